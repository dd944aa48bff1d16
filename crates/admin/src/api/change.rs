//! Changes of nodes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cluster::NodeId;

/// What a change of a node means; with `dry_run` nothing is changed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeChange {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// Whether the change has begun.
    pub begun: bool,
    /// Whether it is possible as it was asked for.
    pub possible: bool,
    /// Why it is not, or what it would take from the cluster.
    pub detail: Option<String>,
    /// Clients that are connected to the node, if that is known.
    pub clients: Option<u64>,
    /// Shards that it leads.
    pub shards_led: u64,
    /// Shards that it has a voter of.
    pub voters: u64,
}
