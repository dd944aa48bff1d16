//! Shards.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::BigNumber;
use crate::cluster::{LoadStatus, NodeId, Reach, SplitStatus, StoreName};

/// A shard of a store.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ShardRow {
    /// The store.
    pub store: StoreName,
    /// Its number, which is its first slot when it was made.
    pub shard: u64,
    /// Its first slot.
    #[schema(value_type = Option<u16>)]
    pub first_slot: Option<u16>,
    /// Its last slot.
    #[schema(value_type = Option<u16>)]
    pub last_slot: Option<u16>,
    /// Grows with each split.
    pub version: Option<BigNumber>,
    /// Whether a node leads it.
    pub serves: bool,
    /// The term of the leader.
    pub term: BigNumber,
    /// The node that leads it.
    pub leader: Option<NodeId>,
    /// What people call that node.
    pub leader_name: Option<String>,
    /// The replicas that vote.
    pub voters: Vec<Voter>,
    /// The replicas that only learn.
    pub learners: Vec<Voter>,
    /// What it holds, if its leader has answered.
    pub holds: Option<ShardHolds>,
    /// What it costs, if that is known.
    pub load: Option<LoadStatus>,
    /// What its leader has decided last about splitting it.
    pub last_decision: Option<SplitStatus>,
}

/// A replica.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Voter {
    /// The node that has it.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// Whether the node that answers reaches it.
    pub reach: Option<Reach>,
}

/// What a shard holds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ShardHolds {
    /// Sessions, or records of clients.
    pub sessions: Option<u64>,
    /// Messages.
    pub messages: Option<u64>,
    /// Their bytes.
    pub bytes: Option<u64>,
}
