//! Messages that were dropped, and who has held whom back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::At;
use crate::cluster::NodeId;

/// A message that was dropped.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DropRow {
    /// When.
    pub at: At,
    /// Where.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// Whether the client is the `publisher`, or the `receiver` that it was for.
    #[serde(default)]
    pub role: String,
    /// The client that it was for, or that published it.
    pub client_id: String,
    /// Its topic, or the beginning of it.
    pub topic: String,
    /// Why.
    pub reason: String,
    /// Its QoS.
    #[schema(value_type = u8)]
    pub qos: u8,
    /// Bytes of its payload.
    pub bytes: u64,
}

/// How many messages were dropped since the nodes have started, by reason.
pub type DropTotals = BTreeMap<String, u64>;

/// What a session has lost on a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionDrops {
    /// The node that has counted it.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// Whose.
    pub client_id: String,
    /// Messages.
    pub dropped: u64,
    /// The same by reason.
    pub reasons: BTreeMap<String, u64>,
    /// When the first of them was dropped.
    pub first: At,
    /// When the last was.
    pub last: At,
}

/// A subscriber that has held a publisher back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HolderRow {
    /// The node that both are known to.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// Whose queue was full; `null`: a session whose inbox shard another node leads.
    pub subscriber: Option<String>,
    /// Whether its session is durable.
    pub durable: bool,
    /// Who was not read.
    pub publisher: String,
    /// How often.
    pub times: u64,
    /// When last.
    pub last: At,
}
