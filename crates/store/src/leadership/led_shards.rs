//! The shards of all three stores, as other nodes are told of them.
//!
//! Purpose: tasks of the node know its shards by this trait.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use store_state::api::{ShardNumber, Slot, StoreId};

use crate::api::listener::Listener;
use crate::peers::member::ShardId;
use crate::peers::message::Lead;
use crate::shard::load::{Busyness, LoadScale, ShardLoad};

/// A shard, as far as other nodes are told of it.
pub(crate) trait LedShard: Send + Sync {
    /// What to tell a node, if this one leads the shard.
    fn lead(&self, receiver: u64) -> Option<Lead>;

    /// Its load, if this node leads it and it has any.
    fn load(&self) -> Option<(StoreId, ShardNumber, ShardLoad)>;

    /// What a split of it would go by; `None`: another node leads it.
    fn candidate(&self) -> Option<(ShardId, Option<Busyness>)>;

    /// Whether this node has a replica of it, and of which store.
    fn replica(&self) -> Option<StoreId>;

    /// Clients, or topics, that have a slot: so many at most, and the first 128 characters of each. Looks at all of them.
    fn names(&self, slot: Slot, most: usize) -> Vec<String>;

    /// CPU time that was counted for it since this process has begun.
    fn counted(&self) -> Duration;

    /// A second has passed, in which it has used so much more than was counted. On its thread.
    fn roll_load(&self, scale: LoadScale);

    /// This node goes on as a new process would: what it had connected is closed.
    fn restart_as(&self, incarnation: u64, listener: &dyn Listener);
}

/// All shards of the three stores that this node knows of.
#[derive(Default)]
pub(crate) struct LedShards(RwLock<Vec<Arc<dyn LedShard>>>);

impl LedShards {
    pub(crate) fn add(&self, shard: Arc<dyn LedShard>) {
        self.0.write().push(shard);
    }

    /// Those of now.
    pub(crate) fn all(&self) -> Vec<Arc<dyn LedShard>> {
        self.0.read().clone()
    }
}
