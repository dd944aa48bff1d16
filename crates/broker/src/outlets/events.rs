//! What happens on this node, as messages for the outlets that take events.
//!
//! Each event of a kind that an outlet wants is published with QoS 1 under `$hmq/event/KIND`, as JSON as the API tells it: the session of
//! the outlet has it then, wherever that is, and keeps it like each message.

use std::collections::BTreeSet;
use std::time::Duration;

use admin::api::EventKind;
use outlets::{EVENTS, Transfer};
use tokio::time::sleep;

use super::known::Outlets;
use super::rim::{EventNumber, Rim, message};

/// How often it is looked for events.
const LOOKS: Duration = Duration::from_millis(200);

/// How long after a failure it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Publishes what happens as long as it is polled. While no outlet takes events, nothing is looked at.
pub(crate) async fn tell_events(outlets: &Outlets, rim: &dyn Rim) {
    let mut next = EventNumber::default();
    loop {
        let kinds = kinds(outlets);
        if kinds.is_empty() {
            outlets.events_changed.notified().await;
            next = rim.next_event();
            continue;
        }
        let told = rim.events(&kinds, next);
        if told.missed > 0 {
            let missed = told.missed;
            tracing::warn!(missed, "events were overwritten before outlets got them");
        }
        let messages = told.events.into_iter().map(|(kind, text)| {
            let topic = format!("{EVENTS}{}", kind.name());
            message(topic, text, false)
        });
        let messages: Vec<_> = messages.collect();
        let is_idle = messages.is_empty();
        match rim.publish(messages).await {
            Ok(()) => next = told.next,
            // Those that were kept come again.
            Err(problem) => {
                tracing::debug!(?problem, "events for outlets are not kept yet");
                sleep(PAUSE).await;
            }
        }
        if is_idle {
            sleep(LOOKS).await;
        }
    }
}

/// The kinds of events that outlets take.
fn kinds(outlets: &Outlets) -> Vec<EventKind> {
    let (wanted, _) = outlets.wanted();
    let outlets = wanted.iter().filter_map(|transfer| match &**transfer {
        Transfer::Outlet(outlet) => Some(outlet),
        Transfer::Inlet(_) => None,
    });
    let filters = outlets.flat_map(|outlet| &outlet.filters);
    let names: BTreeSet<&str> = filters
        .filter_map(|filter| filter.strip_prefix(EVENTS))
        .collect();
    names.into_iter().filter_map(kind).collect()
}

/// The kind of events of a name.
pub(super) fn kind(name: &str) -> Option<EventKind> {
    EventKind::ALL.into_iter().find(|kind| kind.name() == name)
}
