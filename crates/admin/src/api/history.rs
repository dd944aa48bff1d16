//! What was counted over time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::At;
use crate::cluster::{NodeId, StoreName};
use crate::page::Missing;

/// The last hour of each node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Seconds between samples. Samples end at times that this divides, by the clock of the cluster.
    pub step_s: u32,
    /// Each node.
    pub nodes: Vec<NodeHistory>,
    /// What is not in this answer.
    pub partial: Vec<Missing>,
}

/// The last hour of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeHistory {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// When the last sample ended; `null`: there is none.
    pub end: Option<At>,
    /// Values by name, all of the same length, the last one of `end`. `null`: there was no sample, for example because the node
    /// did not run. Names that end in `_per_s` are means over the time of a sample, others are as of its end.
    pub series: BTreeMap<String, Series>,
}

/// Values of one name, the oldest first.
pub type Series = Vec<Option<f64>>;

/// A shard of one of the stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardName {
    /// The store.
    pub store: StoreName,
    /// The number of the shard in it.
    pub shard: u64,
}
