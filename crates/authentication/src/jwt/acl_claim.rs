//! The claim with rules of authorization, in the two forms that EMQX reads.

use authorization::{LoginRule, Rules};
use serde::Deserialize;
use serde_json::Value;

use crate::acl::{self, AclEntry};

/// Filters of what is allowed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowedTopics {
    #[serde(default, rename = "pub")]
    publish: Vec<String>,
    #[serde(default, rename = "sub")]
    subscribe: Vec<String>,
    #[serde(default)]
    all: Vec<String>,
}

/// Reads `{"pub": […], "sub": […], "all": […]}`, which denies all else, or a list of
/// `{"permission", "action", "topic"}`, which leaves the rest to other rules.
pub(super) fn read(claim: &Value) -> Result<Rules, String> {
    if claim.is_array() {
        let entries = Vec::<AclEntry>::deserialize(claim).map_err(|error| error.to_string())?;
        return acl::rules(&entries);
    }
    let allowed = AllowedTopics::deserialize(claim).map_err(|error| error.to_string())?;
    let mut rules = Vec::new();
    for (action, topics) in [
        ("publish", allowed.publish),
        ("subscribe", allowed.subscribe),
        ("all", allowed.all),
    ] {
        for topic in topics {
            rules.push(LoginRule::parse("allow", action, &topic)?);
        }
    }
    // Not by a filter: `#` does not match what begins with `$` [MQTT-4.7.2-1].
    Ok(Rules::from_login(rules)?.or_deny())
}
