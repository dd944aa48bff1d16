//! What is wrong with inlets.

use std::collections::BTreeSet;

use mqtt_proto::SubscriptionFilter;

use super::{LONGEST_NAME, MOST_FILTERS, MOST_OUTLETS, is_outlet_name};
use crate::options::{InletConfig, OutletConfig};

/// What is wrong with the inlets; the outlets beside them were checked.
pub(super) fn inlets(inlets: &[InletConfig], outlets: &[OutletConfig]) -> Option<String> {
    let found = inlets.len() + outlets.len();
    if found > MOST_OUTLETS {
        return Some(format!(
            "expected at most {MOST_OUTLETS} inlets and outlets together, found {found}"
        ));
    }
    let outlets: BTreeSet<&str> = outlets
        .iter()
        .filter_map(|outlet| outlet.name.as_deref())
        .collect();
    let mut names = BTreeSet::new();
    inlets.iter().find_map(|inlet| {
        let Some(name) = inlet.name.as_deref() else {
            return Some("expected a name for each inlet".to_owned());
        };
        if !is_outlet_name(name) {
            return Some(format!(
                "expected a name of 1 to {LONGEST_NAME} letters, digits, `.`, `_` or `-` with a letter or digit first, found {name}"
            ));
        }
        if outlets.contains(name) {
            return Some(format!("an inlet and an outlet are called {name}"));
        }
        if !names.insert(name) {
            return Some(format!("two inlets are called {name}"));
        }
        inlet_problem(inlet).map(|problem| format!("{name}: {problem}"))
    })
}

/// What is wrong with an inlet, but for its name.
fn inlet_problem(inlet: &InletConfig) -> Option<String> {
    let mqtt = &inlet.from.mqtt;
    let Some(url) = &mqtt.url else {
        return Some("expected `from.mqtt.url`, the other broker".to_owned());
    };
    if !["mqtts://", "mqtt://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
    {
        return Some(format!(
            "from.mqtt.url: expected a URL that begins with mqtts:// or mqtt://, found {url}"
        ));
    }
    let mut filters = mqtt.filter.iter();
    if mqtt.filter.is_empty() {
        return Some("expected `from.mqtt.filter`, a topic filter".to_owned());
    }
    if mqtt.filter.iter().count() > MOST_FILTERS {
        return Some(format!("from.mqtt.filter: more than {MOST_FILTERS}"));
    }
    let wrong = filters.find(|filter| SubscriptionFilter::parse(filter).is_err());
    wrong.map(|wrong| format!("from.mqtt.filter: {wrong} is no topic filter"))
}
