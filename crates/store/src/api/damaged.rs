//! Replicas of this node that are damaged, and what makes them whole again.

use std::time::Duration;

use store_state::api::{ShardNumber, StoreId};

use crate::shard::recovery::Recovery;

/// A replica of this node that is damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedReplica {
    /// The store.
    pub store: StoreId,
    /// The shard.
    pub shard: ShardNumber,
    /// What is damaged, in 400 characters at most.
    pub damage: String,
    /// For how long that is known; since the start of the node at most.
    pub age: Duration,
    /// What makes it whole again.
    pub recovery: Recovery,
}
