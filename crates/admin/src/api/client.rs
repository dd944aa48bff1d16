//! Clients: a row of a list, and one in full.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{At, BigNumber, SubscriptionRow};
use crate::cluster::NodeId;
use crate::page::Missing;

/// A client in a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClientRow {
    /// The client identifier.
    pub client_id: String,
    /// The user that it has authenticated as; `null`: it is anonymous.
    pub user: Option<String>,
    /// Whether it is connected.
    pub state: ClientState,
    /// The node that it is connected to.
    pub node: Option<NodeId>,
    /// What people call that node.
    pub node_name: Option<String>,
    /// Since when it is connected, or away.
    pub since: Option<At>,
    /// Where its connection comes from.
    pub address: Option<String>,
    /// Whether its session outlives the connection.
    pub durable: bool,
    /// Messages that wait for it.
    pub queue_messages: Option<u64>,
    /// How it is held; `null`: it was not within the last minute, or it is not known.
    #[serde(default)]
    pub held: Option<PublisherHold>,
}

/// Where a client is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientState {
    /// Its CONNECT is not answered.
    Connecting,
    /// It is connected.
    Connected,
    /// Its connection ends.
    Closing,
    /// It has a session, and no connection.
    Away,
}

impl ClientState {
    /// All.
    pub const ALL: [Self; 4] = [Self::Connecting, Self::Connected, Self::Closing, Self::Away];

    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Closing => "closing",
            Self::Away => "away",
        }
    }
}

/// A client in full.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Client {
    /// The client identifier.
    pub client_id: String,
    /// The user that it has authenticated as; `null`: it is anonymous.
    pub user: Option<String>,
    /// Whether it is connected.
    pub state: ClientState,
    /// The node that it is connected to.
    pub node: Option<NodeId>,
    /// What people call that node.
    pub node_name: Option<String>,
    /// Its connection; `null`: it has none.
    pub connection: Option<Connection>,
    /// Its session; `null`: it is not known, see `partial`.
    pub session: Option<Session>,
    /// Messages that were sent to it and are not acknowledged.
    pub in_flight: Option<u64>,
    /// Which acknowledgements hold back the messages of QoS 1 and 2 that wait for it; `null`: none do, or it is not known.
    pub waits_for: Option<WaitsFor>,
    /// What waits for it.
    pub queue: Option<Queue>,
    /// What it has subscribed to.
    pub subscriptions: Option<SubscriptionsOf>,
    /// What is published if it goes without DISCONNECT.
    pub will: Option<WillOf>,
    /// Publishers that are not read because its queue is full, the latest first.
    pub holds_back: Vec<String>,
    /// Subscribers because of whose full queues it is not read.
    pub held_by: Vec<String>,
    /// How it is held; `null`: it was not within the last minute, or it is not known.
    #[serde(default)]
    pub held: Option<PublisherHold>,
    /// When and why its last connection has ended, as far as a node remembers: some 8,000 departures since it has started.
    pub last_departure: Option<Departure>,
    /// The latest messages that it did not get or that were not taken from it, newest first, ten at most.
    pub recent_drops: Vec<RecentDrop>,
    /// The moment that this is of.
    pub as_of: At,
    /// What is not in this answer.
    pub partial: Vec<Missing>,
}

/// How a client is held: packets that it has sent wait, or its connection is not read.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PublisherHold {
    /// Why it is, or was last.
    pub reason: HeldReason,
    /// The option that limits it, where there is one; one of a class names the class.
    pub option: Option<String>,
    /// The value of the option; `null`: there is no option, or the node takes the value from its machine.
    pub limit: Option<u64>,
    /// The subscriber or the durable session whose queue is filling up, if the node knows it.
    pub subscriber: Option<String>,
    /// Since when it is held; `null`: it is not held any more.
    pub since: Option<At>,
    /// For how much of the last minute it was held, in percent.
    pub share_percent: f64,
}

/// Why packets of a client wait, or its connection is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeldReason {
    /// The connection has sent as many bytes as it may per second.
    BytesPerSecond,
    /// The connection has sent as many PUBLISH packets as it may per second.
    PublishesPerSecond,
    /// Memory of the node is scarce.
    Memory,
    /// The stores of the node have as much to do as they may.
    Store,
    /// As much as may be is on its way to another node.
    OtherNodes,
    /// The queue of a subscriber is filling up.
    SubscriberQueue,
    /// The queues of durable sessions are filling up.
    DurableQueues,
    /// Its messages have many receivers, which have not got them yet.
    ManyReceivers,
    /// The client does not read what it is answered.
    UnreadAnswers,
    /// One of a later version.
    #[serde(other, rename = "other")]
    Other,
}

impl HeldReason {
    /// In words, behind "it is held because".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::BytesPerSecond => "it sends more bytes per second than it may",
            Self::PublishesPerSecond => "it publishes more messages per second than it may",
            Self::Memory => "memory of its node is scarce",
            Self::Store => "the stores of its node have as much to do as they may",
            Self::OtherNodes => "another node does not take messages as fast as it sends them",
            Self::SubscriberQueue => "the queue of a subscriber is filling up",
            Self::DurableQueues => "queues of durable sessions are filling up",
            Self::ManyReceivers => "its messages have many receivers, which have not got them yet",
            Self::UnreadAnswers => "it does not read what it is answered",
            Self::Other => "its node is of a later version and has another reason",
        }
    }

    /// In a word, for a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BytesPerSecond => "bytes_per_second",
            Self::PublishesPerSecond => "publishes_per_second",
            Self::Memory => "memory",
            Self::Store => "store",
            Self::OtherNodes => "other_nodes",
            Self::SubscriberQueue => "subscriber_queue",
            Self::DurableQueues => "durable_queues",
            Self::ManyReceivers => "many_receivers",
            Self::UnreadAnswers => "unread_answers",
            Self::Other => "other",
        }
    }
}

/// The order of the list of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientOrder {
    /// Their identifiers.
    #[default]
    Identifier,
    /// Those that were held for most of the last minute come first; only those that were held.
    Held,
}

/// What a client has to acknowledge before it is sent another message of QoS 1 or 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// Any of those in flight: they are as many as it may be sent at once (`receive_maximum`).
    ReceiveMaximum,
    /// The oldest of those in flight: some 32,768 newer ones have passed it, and the packet identifiers in between are
    /// all that a session which outlives its connection uses.
    PacketIdentifiers,
}

impl WaitsFor {
    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReceiveMaximum => "receive_maximum",
            Self::PacketIdentifiers => "packet_identifiers",
        }
    }
}

/// A network connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Connection {
    /// Where it comes from; what the PROXY protocol says, where a listener has it.
    pub address: String,
    /// The kind of listener: `tcp`, `tls`, `ws`, `wss` or `unix`; `outlet` for the broker's own outlets.
    pub listener: Option<String>,
    /// `3.1`, `3.1.1` or `5.0`.
    pub version: String,
    /// Keep Alive, in seconds; 0: none.
    #[schema(value_type = u16)]
    pub keep_alive_s: u16,
    /// When its CONNECT came.
    pub connected_at: At,
    /// The most messages in flight that it takes.
    #[schema(value_type = u16)]
    pub receive_maximum: u16,
    /// The longest packet that it takes, in bytes; `null`: any.
    #[schema(value_type = Option<u32>)]
    pub maximum_packet_bytes: Option<u32>,
    /// It does not read what is sent to it.
    pub write_blocked: bool,
}

/// The end of a connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Departure {
    /// When.
    pub at: At,
    /// The node that had the connection.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// Why, as in the log: `DISCONNECT`, the name of a reason code, or what happened to the connection.
    pub reason: String,
    /// Where the connection came from.
    pub address: Option<String>,
}

/// A session.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Whether it is in the stores, and so outlives its connection and its node.
    pub durable: bool,
    /// How long it outlives its connection, in seconds; `null`: without end.
    #[schema(value_type = Option<u32>)]
    pub expiry_s: Option<u32>,
    /// When it ends; `null`: its client is connected, or it does not end.
    pub ends_at: Option<At>,
    /// Since when its client is connected, or away.
    pub since: Option<At>,
    /// The shard of the inbox store that has it.
    #[schema(value_type = Option<u16>)]
    pub shard: Option<u16>,
    /// The class of its client, `device` if it matched none that is configured; `null`: no node knows it any more.
    #[serde(default)]
    pub class: Option<String>,
    /// Counts the connections of the session, among those of all clients of its shard.
    pub epoch: Option<BigNumber>,
}

/// What waits for a client.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The most that may wait.
    pub limit_messages: Option<u64>,
    /// The most bytes of them.
    pub limit_bytes: Option<u64>,
    /// What happens if it is full: `drop_oldest`, `drop_new`, …
    pub full: Option<String>,
    /// When the oldest of them was queued, or a little before: known to a tenth of the queue's age, or a second. `null`: nothing
    /// waits, it is not known, or the session is not in the stores.
    #[serde(default)]
    pub oldest_at: Option<At>,
}

/// The subscriptions of a client.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SubscriptionsOf {
    /// How many there are.
    pub count: u64,
    /// Some of them; `/clients/{client_id}/subscriptions` has all.
    pub first: Vec<SubscriptionRow>,
}

/// A will.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WillOf {
    /// Where it is published.
    pub topic: String,
    /// Its QoS.
    #[schema(value_type = u8)]
    pub qos: u8,
    /// Whether it is retained.
    pub retain: bool,
    /// How long after the connection's end, in seconds.
    #[schema(value_type = u32)]
    pub delay_s: u32,
}

/// A message that did not get where it was to go.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecentDrop {
    /// When.
    pub at: At,
    /// Its topic, or the beginning of it.
    pub topic: String,
    /// Why; docs/operate/running.md explains each.
    pub reason: String,
}

/// What was ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Gone {
    /// Whose.
    pub client_id: String,
    /// The node that had the connection; `null`: there was none.
    pub node: Option<NodeId>,
    /// Where the connection came from.
    pub address: Option<String>,
    /// Whether a connection was ended.
    pub disconnected: bool,
    /// Whether the session was ended, with what waited for it.
    pub session_ended: bool,
}
