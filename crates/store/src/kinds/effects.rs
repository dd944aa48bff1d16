//! Where the effects of a shard's operations go: to the listener at once, or with the next mail.

use std::sync::Arc;

use store_state::api::{Event, ShardNumber};

use crate::api::listener::Listener;
use crate::shard::cursors::InboxCursors;
use crate::shard::load::SlotWeights;

/// Where the effects of a shard's operations go: to the listener at once, or with the next mail.
pub(crate) struct Effects {
    pub(crate) shard: ShardNumber,
    pub(crate) listener: Arc<dyn Listener>,
    pub(crate) cursors: InboxCursors,
    /// Where in the shard's range its load is.
    pub(crate) weights: SlotWeights,
    /// For any loop.
    pub(crate) events: Vec<Event>,
    /// The inbox that the operation which is being applied attaches.
    pub(crate) attaching: Option<u64>,
    /// What is applied happens now. While the log is applied again, it has happened before.
    pub(crate) live: bool,
}
