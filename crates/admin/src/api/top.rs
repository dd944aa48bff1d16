//! The busiest clients and topics, the slowest clients, and what a client does that is watched.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::At;
use crate::cluster::NodeId;
use crate::page::Missing;

/// What the clients of a list do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BusyRole {
    /// They publish.
    Publisher,
    /// They are sent messages.
    Subscriber,
}

/// By what clients and topics are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BusyOrder {
    /// Messages.
    #[default]
    Messages,
    /// Bytes.
    Bytes,
    /// The longest time from PUBLISH to the first PUBLISH to the client; of subscribers only.
    Delay,
}

impl BusyOrder {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Messages, Self::Bytes, Self::Delay];

    /// As in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Bytes => "bytes",
            Self::Delay => "delay",
        }
    }
}

/// Rates of the last whole window of 5 s, from a sample of the packets: each while there are up to 512 a second in a loop of the
/// node, else about as many.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BusyRates {
    /// PUBLISH packets per second: at least so many, but for the error of sampling.
    pub messages_per_s: f64,
    /// Bytes per second: of payloads that were published, of packets that were sent.
    pub bytes_per_s: f64,
    /// How many messages or bytes more, by what the list is in order of, there may have been before this one was counted, where it is
    /// counted: each event loop of a node counts 256 at a time.
    pub uncounted_per_s: f64,
}

/// One of the busiest clients.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BusyClient {
    /// The client identifier, or its first 256 bytes.
    pub client_id: String,
    /// The node that counted it.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// What it publishes or is sent.
    #[serde(flatten)]
    pub rates: BusyRates,
    /// The mean time in ms from PUBLISH to the first PUBLISH to this client, of messages that were published on the same node and
    /// measured; `null`: none was, or the client is a publisher.
    pub delay_mean_ms: Option<f64>,
    /// The longest such time.
    pub delay_max_ms: Option<f64>,
}

/// One of the busiest topics.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BusyTopic {
    /// The topic, or its first 256 bytes.
    pub topic: String,
    /// What is published to it on all nodes.
    #[serde(flatten)]
    pub rates: BusyRates,
}

/// What a node has counted of a client since it is watched there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchedClient {
    /// The node.
    pub node: NodeId,
    /// Since when, in ms of Unix time.
    pub since_ms: u64,
    /// PUBLISH packets that it has sent.
    pub messages_in: u64,
    /// Bytes of their payloads.
    pub bytes_in: u64,
    /// PUBLISH packets that it was sent.
    pub messages_out: u64,
    /// Bytes of the packets that it was sent with them.
    pub bytes_out: u64,
}

/// What a client does in about a second: a rate times `span_ms` is what was counted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClientRates {
    /// When that time ended.
    pub at: At,
    /// The time that the rates are of, in ms: a second, and more if nodes or their answers are late.
    pub span_ms: u64,
    /// PUBLISH packets per second that it sends; `null`: not known yet, or no node has it.
    pub messages_in_per_s: Option<f64>,
    /// Bytes of their payloads.
    pub bytes_in_per_s: Option<f64>,
    /// PUBLISH packets per second that it is sent.
    pub messages_out_per_s: Option<f64>,
    /// Bytes of the packets that it is sent with them.
    pub bytes_out_per_s: Option<f64>,
    /// Nodes that have not answered.
    pub partial: Vec<Missing>,
}
