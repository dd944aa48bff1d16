//! What shards hold and cost.

use serde::{Deserialize, Serialize};

use crate::StoreName;

/// What a shard holds that the node leads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LedShard {
    /// The store.
    pub store: StoreName,
    /// Its number.
    pub shard: u64,
    /// What it holds.
    pub content: ShardHolds,
    /// What the node has decided last about splitting it.
    pub decision: Option<SplitStatus>,
    /// `None`: the node does not know it yet, or is of an earlier version.
    #[serde(default)]
    pub load: Option<LoadStatus>,
}

/// What a shard holds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ShardHolds {
    /// Sessions, or records of clients.
    pub sessions: Option<u64>,
    /// Messages.
    pub messages: Option<u64>,
    /// Their bytes.
    pub bytes: Option<u64>,
}

/// What a node has decided last about a split of a shard that it leads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SplitStatus {
    /// A word: `split`, or why the shard is not split.
    pub decision: String,
    /// The same for people.
    pub reason: String,
    /// Clients, or topics, that have the slot with most of the load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// For how many seconds it has been so.
    pub seconds: u64,
}

/// The load of a shard, per second: the mean of the last ten seconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LoadStatus {
    /// CPU time of its leader in µs: for making batches of requests and proposing them.
    pub propose_us: u64,
    /// For applying them.
    pub apply_us: u64,
    /// For reading queues and retained messages.
    pub read_us: u64,
    /// Requests proposed.
    pub requests: u64,
    /// How long a request has waited for being proposed, on average, in µs.
    pub wait_us: u64,
    /// Bytes written to the log, about.
    pub log_bytes: u64,
    /// The slot at which the load halves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half: Option<HalfStatus>,
}

/// Where a load halves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HalfStatus {
    /// The first slot of the upper part.
    pub slot: u16,
    /// The share of the lower part, in percent.
    pub below: u8,
}
