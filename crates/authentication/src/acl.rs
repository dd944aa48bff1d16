//! Rules that come with a login as objects of JSON: `{"permission", "action", "topic"}`.

use authorization::{LoginRule, Rules};
use serde::Deserialize;

/// A rule. An unknown member could be a condition, which must not be ignored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AclEntry {
    permission: String,
    action: String,
    topic: String,
}

/// Rules in their order.
pub(crate) fn rules(entries: &[AclEntry]) -> Result<Rules, String> {
    let rules: Vec<LoginRule> = entries
        .iter()
        .map(|entry| LoginRule::parse(&entry.permission, &entry.action, &entry.topic))
        .collect::<Result<_, _>>()?;
    Rules::from_login(rules)
}
