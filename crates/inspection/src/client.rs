//! Clients, sessions and subscriptions.

use serde::{Deserialize, Serialize};

use crate::{At, BigNumber, ClientState, Missing, NodeId};

/// A part of the list of clients.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClientsPart {
    /// In the order of identifiers.
    pub rows: Vec<ClientRow>,
    /// The last identifier that was looked at, if there may be more behind it.
    pub last: Option<String>,
    /// How many identifiers were looked at.
    pub scanned: u64,
    /// The first and the last slot of each range of the session store that the rows speak for.
    pub covered: Vec<(u16, u16)>,
}

/// What a node knows of a client.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClientPart {
    /// It has its connection, or a session in memory.
    pub here: Option<Box<Client>>,
    /// It leads the session shard.
    pub leads_record: bool,
    /// The record there.
    pub record: Option<RecordPart>,
    /// It leads the inbox shard.
    pub leads_inbox: bool,
    /// The inbox there.
    pub inbox: Option<InboxPart>,
    /// The latest messages that the client did not get, or that were not taken from it, newest first.
    pub drops: Vec<RecentDrop>,
    /// The end of its last connection here, as far as the node remembers.
    #[serde(default)]
    pub departure: Option<Departure>,
    /// Publishers that are paused because its queue is full.
    pub pauses: Vec<String>,
    /// Subscribers because of which it is paused.
    pub paused_by: Vec<String>,
}

/// A record of the session store.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordPart {
    /// The node that has the connection.
    pub node: Option<NodeId>,
    /// The user of the session; `None`: it is anonymous.
    pub user: Option<String>,
    /// When it connected, or left, in ms of Unix time.
    pub since_ms: u64,
    /// Seconds; `u32::MAX`: without end.
    pub expiry_s: u32,
    /// Counts the connections of the session.
    pub epoch: u64,
    /// Whether the session outlives the connection.
    pub durable: bool,
}

/// An inbox.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct InboxPart {
    /// The shard that has it.
    pub shard: u16,
    /// What waits in it.
    pub queue: Queue,
    /// How many subscriptions there are.
    pub subscriptions: u64,
    /// Some of them.
    pub first: Vec<SubscriptionRow>,
    /// The name of its client's class, if the node has it.
    #[serde(default)]
    pub class: Option<String>,
}

/// What became of a client that was to be ended.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Ending {
    /// What was ended here.
    pub gone: Option<Gone>,
    /// The client has a session in a shard that this node leads.
    pub has_record: bool,
}

/// What a node did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangePart {
    /// It has neither the connection, nor the inbox of an absent client.
    NotHere,
    /// The client is connecting or leaving, or waits for an answer of its own.
    Busy,
    /// The inbox was asked, and has not done it in time: it still may.
    MayCome,
    /// SUBACK or UNSUBACK would have this reason code.
    Answered {
        /// The reason code.
        code: u8,
        /// The client has no connection.
        is_away: bool,
    },
}

/// A client in a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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

/// A client in full.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

/// What a client has to acknowledge before it is sent another message of QoS 1 or 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// Any of those in flight: they are as many as it may be sent at once (`receive_maximum`).
    ReceiveMaximum,
    /// The oldest of those in flight: some 32,768 newer ones have passed it, and the packet identifiers in between are
    /// all that a session which outlives its connection uses.
    PacketIdentifiers,
}

/// A network connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Connection {
    /// Where it comes from; what the PROXY protocol says, where a listener has it.
    pub address: String,
    /// The kind of listener: `tcp`, `tls`, `ws`, `wss` or `unix`; `outlet` for the broker's own outlets.
    pub listener: Option<String>,
    /// `3.1`, `3.1.1` or `5.0`.
    pub version: String,
    /// Keep Alive, in seconds; 0: none.
    pub keep_alive_s: u16,
    /// When its CONNECT came.
    pub connected_at: At,
    /// The most messages in flight that it takes.
    pub receive_maximum: u16,
    /// The longest packet that it takes, in bytes; `null`: any.
    pub maximum_packet_bytes: Option<u32>,
    /// It does not read what is sent to it.
    pub write_blocked: bool,
}

/// The end of a connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Whether it is in the stores, and so outlives its connection and its node.
    pub durable: bool,
    /// How long it outlives its connection, in seconds; `null`: without end.
    pub expiry_s: Option<u32>,
    /// When it ends; `null`: its client is connected, or it does not end.
    pub ends_at: Option<At>,
    /// Since when its client is connected, or away.
    pub since: Option<At>,
    /// The shard of the inbox store that has it.
    pub shard: Option<u16>,
    /// The class of its client, `device` if it matched none that is configured; `null`: no node knows it any more.
    #[serde(default)]
    pub class: Option<String>,
    /// Counts the connections of the session, among those of all clients of its shard.
    pub epoch: Option<BigNumber>,
}

/// What waits for a client.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SubscriptionsOf {
    /// How many there are.
    pub count: u64,
    /// Some of them; `/clients/{client_id}/subscriptions` has all.
    pub first: Vec<SubscriptionRow>,
}

/// A will.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WillOf {
    /// Where it is published.
    pub topic: String,
    /// Its QoS.
    pub qos: u8,
    /// Whether it is retained.
    pub retain: bool,
    /// How long after the connection's end, in seconds.
    pub delay_s: u32,
}

/// A message that did not get where it was to go.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecentDrop {
    /// When.
    pub at: At,
    /// Its topic, or the beginning of it.
    pub topic: String,
    /// Why; docs/operate/running.md explains each.
    pub reason: String,
}

/// What was ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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

/// A subscription.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SubscriptionRow {
    /// The topic filter, without what makes it a shared one.
    pub filter: String,
    /// The same as it was given at SUBSCRIBE.
    pub given_filter: String,
    /// Whose it is.
    pub client_id: String,
    /// The name of the shared group, empty for `$queue/`; `null`: it is not shared.
    pub shared: Option<String>,
    /// The granted QoS.
    pub qos: u8,
    /// Whether what the client publishes itself is left out.
    pub no_local: bool,
    /// Whether RETAIN is kept as it was published.
    pub retain_as_published: bool,
    /// The subscription identifier of MQTT 5.0.
    pub identifier: Option<u32>,
    /// The node that the client is connected to; `null`: it is away, or not known.
    pub node: Option<NodeId>,
    /// What people call that node.
    pub node_name: Option<String>,
}
