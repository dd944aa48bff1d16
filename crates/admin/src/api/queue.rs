//! Queues of durable sessions, and what waits in one.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{At, BigNumber, Encoding};
use crate::cluster::NodeId;

/// By what queues are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueueOrder {
    /// Messages that wait.
    Messages,
    /// Their bytes.
    #[default]
    Bytes,
    /// The age of the oldest one.
    Age,
}

impl QueueOrder {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Messages, Self::Bytes, Self::Age];

    /// As in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Bytes => "bytes",
            Self::Age => "age",
        }
    }
}

/// A queue of a durable session, as of some seconds ago.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueueRow {
    /// Whose it is: the first 256 bytes of the client identifier.
    pub client_id: String,
    /// The class of the client.
    pub class: String,
    /// The node that leads its shard.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// Messages that wait, in flight ones included.
    pub messages: u64,
    /// The most that may wait.
    pub limit_messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The most bytes that may wait.
    pub limit_bytes: u64,
    /// When the oldest one came, to a tenth of its age.
    pub oldest_at: Option<At>,
    /// Messages per second that came in the last look; `null`: not known yet.
    pub in_per_s: Option<f64>,
    /// Messages per second that went, dropped ones included.
    pub out_per_s: Option<f64>,
}

/// What was dropped from the queue of a durable session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueuePurge {
    /// Messages that were dropped.
    pub removed: u64,
    /// Size of their payloads.
    pub bytes: u64,
    /// Whether all that waited is gone, but what the client may have got. If not, the time was over, no majority has answered, the
    /// disk is full, or another node leads now: ask again.
    pub complete: bool,
}

/// A message that waits for a durable session.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueuedMessage {
    /// Its place in the queue.
    pub sequence: BigNumber,
    /// Its topic.
    pub topic: String,
    /// The QoS that it is delivered with.
    #[schema(value_type = u8)]
    pub qos: u8,
    /// Whether it is delivered as a retained one.
    pub retain: bool,
    /// The shared group that it came by.
    pub group: Option<String>,
    /// Size of its payload.
    pub payload_bytes: u64,
    /// When it ends; `null`: it does not.
    pub expires_at: Option<At>,
    /// The payload, if it was asked for and has at most 16 KiB.
    pub payload: Option<String>,
    /// How `payload` is written.
    pub encoding: Encoding,
}
