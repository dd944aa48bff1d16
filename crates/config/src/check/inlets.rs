//! What is wrong with inlets.

use std::collections::BTreeSet;

use mqtt_proto::SubscriptionFilter;

use super::{LONGEST_NAME, MOST_FILTERS, MOST_OUTLETS, is_outlet_name, kafka};
use crate::options::{
    InletConfig, InletSourceConfig, MqttSourceConfig, NatsSourceConfig, OutletConfig,
};

/// The longest name of a stream or consumer of NATS, in bytes.
const LONGEST_NATS_NAME: usize = 128;

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
    let InletSourceConfig { mqtt, kafka, nats } = &inlet.from;
    match (&mqtt.url, kafka.servers.is_empty(), nats.url.is_empty()) {
        (Some(url), true, true) => mqtt_problem(mqtt, url),
        (None, false, true) => {
            kafka::source_problem(kafka).map(|problem| format!("from.kafka.{problem}"))
        }
        (None, true, false) => {
            let name = inlet.name.as_deref().unwrap_or_default();
            nats_problem(nats, name).map(|problem| format!("from.nats.{problem}"))
        }
        _ => Some(
            "expected one source: `from.mqtt.url`, `from.kafka.servers` or `from.nats.url`"
                .to_owned(),
        ),
    }
}

/// The option, and what is wrong.
fn nats_problem(nats: &NatsSourceConfig, name: &str) -> Option<String> {
    // JetStream has names of streams and consumers in subjects and in paths of files.
    let is_name = |name: &str| {
        let is_wrong = |c: char| !c.is_ascii_graphic() || ".*>/\\".contains(c);
        !name.is_empty() && name.len() <= LONGEST_NATS_NAME && !name.contains(is_wrong)
    };
    let expected = format!(
        "expected 1 to {LONGEST_NATS_NAME} visible characters of ASCII without `.`, `*`, `>`, `/` and `\\`"
    );
    match &nats.stream {
        None => return Some("stream: expected the stream".to_owned()),
        Some(stream) if !is_name(stream) => {
            return Some(format!("stream: {expected}, found {stream}"));
        }
        Some(_) => {}
    }
    match &nats.durable {
        None if name.contains('.') => {
            return Some(format!(
                "durable: expected a name, as that of the inlet, {name}, has a point"
            ));
        }
        Some(durable) if !is_name(durable) => {
            return Some(format!("durable: {expected}, found {durable}"));
        }
        Some(_) | None => {}
    }
    if nats.subject.iter().count() > MOST_FILTERS {
        return Some(format!("subject: more than {MOST_FILTERS}"));
    }
    let mut subjects = nats.subject.iter();
    let wrong = subjects.find(|subject| !is_subject(subject));
    wrong.map(|wrong| format!("subject: {wrong} is no subject"))
}

/// Whether a text is a subject, perhaps with wildcards.
fn is_subject(text: &str) -> bool {
    let count = text.split('.').count();
    let is_wrong = |c: char| c.is_whitespace() || c.is_control();
    let mut tokens = text.split('.').enumerate();
    !text.contains(is_wrong)
        && tokens.all(|(place, token)| !token.is_empty() && (token != ">" || place + 1 == count))
}

/// What is wrong with another broker as a source.
fn mqtt_problem(mqtt: &MqttSourceConfig, url: &str) -> Option<String> {
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
