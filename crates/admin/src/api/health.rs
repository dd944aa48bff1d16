//! How the cluster is, in one word and its reasons.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Alarm;
use crate::cluster::NodeId;
use crate::page::Missing;

/// How the cluster is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// In one word.
    pub state: HealthState,
    /// Each node.
    pub nodes: Vec<NodeCheck>,
    /// What a person should see to, on all nodes.
    pub alarms: Vec<Alarm>,
    /// Nodes that have not answered.
    pub partial: Vec<Missing>,
}

/// How it is, in one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// All is as it should be.
    Ok,
    /// Clients are served, and an alarm needs attention. Alarms of counts (`dropping`, `queues_full`, `publishers_held`) alone leave it `ok`.
    Degraded,
    /// No node takes clients.
    Unavailable,
}

/// How a node is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeCheck {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// Whether it is as it should be: reached, up, and ready.
    pub ok: bool,
    /// What is not.
    pub detail: Option<String>,
}
