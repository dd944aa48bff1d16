//! What outlets need of the node around them.

use admin::api::{Encoding, EventKind, NewMessage};
use admin::problem::Problem;
use futures_util::future::BoxFuture;

use super::standing::Place;

/// The number of an event of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EventNumber(pub(crate) u64);

/// Events of this node.
#[derive(Debug)]
pub(crate) struct OwnEvents {
    /// Their kinds, and their JSON as the API has it.
    pub(crate) events: Vec<(EventKind, String)>,
    /// The number behind those that were looked at.
    pub(crate) next: EventNumber,
    /// How many are not kept any more, of all kinds.
    pub(crate) missed: usize,
}

/// The node.
pub(crate) trait Rim: Send + Sync {
    /// Where the session of a client identifier is led.
    fn place(&self, client_id: &str) -> Place;

    /// The filters that the session of a client identifier has, as far as this node leads its shard: without a session none.
    fn filters(&self, client_id: &str) -> Vec<String>;

    /// Whether a topic has a retained message. The problem says that this is not known.
    fn is_retained(&self, topic: String) -> BoxFuture<'_, Result<bool, Problem>>;

    /// Publishes messages, which may be below `$hmq`. The problem says that one of them may not be kept.
    fn publish(&self, messages: Vec<NewMessage>) -> BoxFuture<'_, Result<(), Problem>>;

    /// What has happened on this node from a number on, of some kinds; 500 at most.
    fn events(&self, kinds: &[EventKind], from: EventNumber) -> OwnEvents;

    /// The number of the next event.
    fn next_event(&self) -> EventNumber;
}

/// The retained message that says that an outlet is paused.
pub(crate) fn pause_topic(name: &str) -> String {
    format!("$hmq/outlet/{name}/paused")
}

/// A message of the broker's own.
pub(crate) fn message(topic: String, payload: String, retain: bool) -> NewMessage {
    NewMessage {
        topic,
        payload,
        encoding: Encoding::Utf8,
        qos: 1,
        retain,
        message_expiry_s: None,
        payload_is_utf8: true,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
    }
}
