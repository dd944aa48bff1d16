//! How much there is, and how much has happened.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::At;
use crate::cluster::NodeId;
use crate::page::Missing;

/// Counts of all nodes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// The sums over `nodes`.
    pub total: Counts,
    /// Each node.
    pub nodes: Vec<NodeStats>,
    /// When the last of them had answered.
    pub as_of: At,
    /// What is not in this answer.
    pub partial: Vec<Missing>,
}

/// Counts of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeStats {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// What it has counted.
    pub counts: Counts,
}

/// What there is now, and what has happened since the node has started. Shards are counted by the nodes that lead them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Clients that are connected.
    pub connections: u64,
    /// Sessions, also of clients that are away: each in its session shard, and those that are in no shard.
    pub sessions: u64,
    /// Subscriptions of connected clients, and of sessions that linger.
    pub subscriptions: u64,
    /// Retained messages.
    pub retained_messages: u64,
    /// Messages that wait in the queues of durable sessions.
    pub queued_messages: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Messages that clients have published.
    pub messages_in: u64,
    /// Messages that were sent to clients.
    pub messages_out: u64,
    /// Bytes read from clients.
    pub bytes_in: u64,
    /// Bytes written to clients.
    pub bytes_out: u64,
    /// CONNECT packets accepted.
    pub connects: u64,
    /// CONNECT packets refused.
    pub connects_refused: u64,
    /// Messages dropped.
    pub dropped: u64,
    /// Published messages that matched nobody.
    pub unmatched: u64,
    /// Retained messages whose Message Expiry Interval has passed. Counted by the nodes that lead their shards.
    #[serde(default)]
    pub retained_expired: u64,
    /// Retained messages that rules have removed (`retain.maxAgeSeconds`, `retain.rules`).
    #[serde(default)]
    pub retained_removed: u64,
}

impl Counts {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            sessions: self.sessions + other.sessions,
            subscriptions: self.subscriptions + other.subscriptions,
            retained_messages: self.retained_messages + other.retained_messages,
            queued_messages: self.queued_messages + other.queued_messages,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            messages_in: self.messages_in + other.messages_in,
            messages_out: self.messages_out + other.messages_out,
            bytes_in: self.bytes_in + other.bytes_in,
            bytes_out: self.bytes_out + other.bytes_out,
            connects: self.connects + other.connects,
            connects_refused: self.connects_refused + other.connects_refused,
            dropped: self.dropped + other.dropped,
            unmatched: self.unmatched + other.unmatched,
            retained_expired: self.retained_expired + other.retained_expired,
            retained_removed: self.retained_removed + other.retained_removed,
        }
    }
}
