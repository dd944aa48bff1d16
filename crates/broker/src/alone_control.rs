//! What people ask of a node that runs alone: how its shards are, and to split them.

use std::fmt;
use std::sync::Arc;

use crate::cluster_control::{Change, ClusterControl, ClusterStatus, NodeId, Refusal};
use crate::control::{find, half, shards, split_here};
use crate::node::Node;

const ALONE: &str =
    "this node runs alone: clusterConfig.host, which makes it a member of a cluster, is not set";

/// A node without others, for those who ask and command.
pub(crate) struct AloneControl {
    node: Arc<Node>,
    env: String,
}

impl fmt::Debug for AloneControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AloneControl")
    }
}

impl AloneControl {
    pub(crate) fn new(node: Arc<Node>, env: String) -> Self {
        Self { node, env }
    }
}

impl ClusterControl for AloneControl {
    fn status(&self) -> ClusterStatus {
        let own = NodeId(self.node.store().node());
        let mut shards = shards(&self.node);
        for shard in &mut shards {
            shard.voters = vec![own];
        }
        ClusterStatus {
            cluster: None,
            env: self.env.clone(),
            node: own,
            nodes: Vec::new(),
            shards,
        }
    }

    fn change(&self, change: Change) -> Result<(), Refusal> {
        match change {
            Change::Split { store, shard, at } => {
                let info = find(&self.node, store, shard)?;
                split_here(&self.node, info, at.unwrap_or_else(|| half(&info)))
            }
            Change::Join { .. }
            | Change::Leave
            | Change::Drain
            | Change::Evict { .. }
            | Change::TransferLeader { .. } => Err(Refusal::Conflict(ALONE.to_owned())),
        }
    }
}
