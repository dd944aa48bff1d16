//! What happens on this node, as messages for the outlets that take events.
//!
//! Each event of a kind that an outlet wants is published with QoS 1 under `$hmq/event/KIND`, as JSON as the API tells it: the session of
//! the outlet has it then, wherever that is, and keeps it like each message.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use admin::api::EventKind;
use outlets::EVENTS;
use tokio::time::sleep;

use super::{Outlets, message};
use crate::inspect::{self, Inspect};

/// How often it is looked for events.
const LOOKS: Duration = Duration::from_millis(200);

/// How long stores may take to keep events.
const BUDGET: Duration = Duration::from_secs(10);

/// How long after a failure it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

impl Outlets {
    /// Publishes what happens as long as it is polled. While no outlet takes events, nothing is looked at.
    pub(crate) async fn tell_events(&self, inspect: &Arc<Inspect>) {
        let mut next = 0;
        loop {
            let kinds = self.kinds();
            if kinds.is_empty() {
                self.events_changed.notified().await;
                next = inspect.node.rim.events.next();
                continue;
            }
            let told = inspect::own_events(inspect, &kinds, next);
            if told.missed > 0 {
                tracing::warn!(
                    missed = told.missed,
                    "events were overwritten before outlets got them"
                );
            }
            let messages = told.events.into_iter().map(|(kind, text)| {
                let topic = format!("{EVENTS}{}", kind.name());
                message(topic, text, false)
            });
            let messages: Vec<_> = messages.collect();
            let is_idle = messages.is_empty();
            match inspect::publish_internal(inspect, messages, BUDGET).await {
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
    fn kinds(&self) -> Vec<EventKind> {
        let state = self.state.lock();
        let definitions = state.outlets.values();
        let definitions = definitions.filter_map(|standing| standing.definition.as_deref());
        let names: BTreeSet<&str> = definitions
            .flat_map(|definition| definition.filters.iter())
            .filter_map(|filter| filter.strip_prefix(EVENTS))
            .collect();
        names.into_iter().filter_map(kind).collect()
    }
}

/// The kind of events of a name.
pub(super) fn kind(name: &str) -> Option<EventKind> {
    EventKind::ALL.into_iter().find(|kind| kind.name() == name)
}
