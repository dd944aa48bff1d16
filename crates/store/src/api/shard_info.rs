//! What is told of a shard.

use store_state::ShardVersion;
use store_state::api::{ShardNumber, Slot, StoreId};

use crate::shard::load::{ShardCost, ShardLoad};

/// A shard, as this node knows it.
#[derive(Clone, Copy, Debug)]
pub struct ShardInfo {
    /// The store.
    pub store: StoreId,
    /// The shard, as [`Lead`](crate::Lead) names it.
    pub shard: ShardNumber,
    /// The first of its slots.
    pub first: Slot,
    /// The last of its slots, as far as this node knows.
    pub last: Slot,
    /// Its version, which begins with 1 and grows with each split; `None`: there is no replica of it here.
    pub version: Option<ShardVersion>,
    /// The node that leads it, if it can be reached from here.
    pub leader: Option<u64>,
    /// Its load; `None`: it is not known, or the shard has none.
    pub load: Option<ShardLoad>,
    /// What it has cost, if this node leads it.
    pub cost: Option<ShardCost>,
}
