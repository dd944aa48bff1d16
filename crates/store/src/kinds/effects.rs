//! Where the effects of a shard's operations go: to the listener at once, or with the next mail.

use std::sync::Arc;

use control::{Incarnation, Node};
use store_state::api::{Event, ShardNumber};

use crate::api::listener::Listener;
use crate::shard::cursors::InboxCursors;
use crate::shard::load::SlotWeights;

/// A process of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    pub(crate) node: Node,
    /// Which one of the node it is, as of its start.
    pub(crate) incarnation: Incarnation,
}

/// Where the effects of a shard's operations go: to the listener at once, or with the next mail.
pub(crate) struct Effects {
    pub(crate) shard: ShardNumber,
    pub(crate) listener: Arc<dyn Listener>,
    pub(crate) cursors: InboxCursors,
    /// The process that applies.
    pub(crate) process: Process,
    /// Where in the shard's range its load is.
    pub(crate) weights: SlotWeights,
    /// For any loop.
    pub(crate) events: Vec<Event>,
    /// The inbox that the operation which is being applied attaches.
    pub(crate) attaching: Option<u64>,
    /// What is applied happens now. While the log is applied again, it has happened before.
    pub(crate) live: bool,
}
