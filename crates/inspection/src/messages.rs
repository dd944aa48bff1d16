//! Messages that wait or are kept, who is busy, and what goes on inside a process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Alarm, At, BigNumber, Limit, MembersPart, MembersQuestion, NodeId, OutletHere, ProfileAnswer,
    ProfileQuestion, Refusal, Sequence,
};

/// A question about messages, about clients by what they do, or about the process of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessagesQuestion {
    /// Retained messages that a topic filter selects.
    Retained {
        /// The topic filter.
        filter: String,
        /// Which part.
        range: PlaceRange,
    },
    /// The levels below a topic; `None`: the first levels.
    Levels {
        /// The topic.
        below: Option<String>,
        /// Which part.
        range: PlaceRange,
    },
    /// The retained message of a topic.
    Message {
        /// The topic name.
        topic: String,
    },
    /// The first queues in an order.
    FirstQueues {
        /// The order.
        by: QueueOrder,
        /// How many.
        limit: Limit,
    },
    /// What waits for a client.
    Waiting(WaitingQuestion),
    /// What waits for a client is to be dropped.
    Purge {
        /// The client.
        client_id: String,
    },
    /// The clients that publish most, or are sent most or latest.
    BusyClients {
        /// What they do.
        role: BusyRole,
        /// The order.
        by: BusyOrder,
        /// How many.
        limit: Limit,
    },
    /// The topics that most is published to.
    BusyTopics {
        /// The order.
        by: BusyOrder,
        /// How many.
        limit: Limit,
    },
    /// What a client does that is watched.
    Watch {
        /// The client.
        client_id: String,
    },
    /// Who fails to log in there.
    FailedLogins,
    /// Who was not let in there, and why, the latest first.
    RefusedLogins {
        /// How many.
        limit: Limit,
    },
    /// Alarms that have ended there.
    EndedAlarms,
    /// What sessions have lost there, those first that have lost something last.
    SessionDrops {
        /// How many.
        limit: Limit,
    },
    /// Who has held whom back there, the latest first.
    Holders {
        /// How many.
        limit: Limit,
    },
    /// The members of a shared group, and what waits for them.
    Members(MembersQuestion),
    /// What goes on inside its process.
    Profile(ProfileQuestion),
    /// What the outlets do that are there.
    Outlets,
}

/// What a node answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessagesAnswer {
    /// Retained messages.
    Retained(RetainedPart<RetainedRow>),
    /// Levels of topics.
    Levels(RetainedPart<RetainedLevelRow>),
    /// The retained message of a topic.
    Message(Held<Box<Message>>),
    /// The first queues.
    FirstQueues(Vec<QueueRow>),
    /// What waits for a client.
    Waiting(Held<WaitingPart>),
    /// What was dropped.
    Purged(Held<QueuePurge>),
    /// Who is busy, and which topics are.
    Busy(BusyPart),
    /// Who fails to log in.
    FailedLogins(Vec<FailedLoginsRow>),
    /// Who was not let in, and why.
    RefusedLogins(Vec<RefusedLoginsRow>),
    /// Alarms that have ended, the latest first.
    EndedAlarms(Vec<Alarm>),
    /// What sessions have lost.
    SessionDrops(Vec<SessionDrops>),
    /// Who has held whom back.
    Holders(Vec<HolderRow>),
    /// Members of a shared group.
    Members(MembersPart),
    /// What it has counted; `None`: the client is not here.
    Watched(Option<WatchedClient>),
    /// What goes on inside its process, or why it does not say it now.
    Profile(Result<ProfileAnswer, Refusal>),
    /// What its outlets do.
    Outlets(Vec<OutletHere>),
    /// It does not know the question.
    NotKnown,
}

/// What a session has lost on a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HolderRow {
    /// The node that both are known to.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// Whose queue was full; `None`: a session whose inbox shard another node leads.
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

/// The first ones of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BusyPart {
    /// Clients.
    Clients(Vec<BusyClient>),
    /// Topics.
    Topics(Vec<BusyTopic>),
}

/// What the node has whose shard something belongs to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held<T> {
    /// This node does not lead the shard.
    Elsewhere,
    /// There is no such thing.
    Absent,
    /// There is.
    Found(T),
}

/// A part of the order of topics.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlaceRange {
    /// Where it begins, as the part before has said.
    pub after: Option<String>,
    /// How many rows.
    pub limit: Limit,
}

/// A part of a list in that order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RetainedPart<T> {
    /// In the order of topics.
    pub rows: Vec<T>,
    /// Where the next ones begin.
    pub next: Option<String>,
    /// The first and the last slot of each range of the retain store that the rows speak for.
    pub covered: Vec<(u16, u16)>,
}

/// A part of what waits for a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WaitingQuestion {
    /// The client.
    pub client_id: String,
    /// Where it begins.
    pub from: Sequence,
    /// How many messages.
    pub limit: Limit,
    /// With payloads.
    pub payloads: bool,
}

/// What waits for it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WaitingPart {
    /// The oldest first.
    pub messages: Vec<QueuedMessage>,
    /// From where on the next ones may stand.
    pub next: Option<Sequence>,
}

/// A retained message in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RetainedRow {
    /// Its topic.
    pub topic: String,
    /// The QoS that it was published with.
    pub qos: u8,
    /// Size of its payload.
    pub payload_bytes: u64,
    /// When it ends; `null`: it does not.
    pub expires_at: Option<At>,
    /// When it was retained, by which rules remove it; `null`: before that was kept.
    #[serde(default)]
    pub retained_at: Option<At>,
}

/// A level of topics.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RetainedLevelRow {
    /// The topic up to this level.
    pub topic: String,
    /// It has a retained message itself.
    pub has_message: bool,
    /// Topics below it have.
    pub has_more_below: bool,
}

/// A message with its properties.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Message {
    /// Its topic.
    pub topic: String,
    /// The QoS that it was published with.
    pub qos: u8,
    /// The payload; `null`: it is larger than 128 KiB.
    pub payload: Option<String>,
    /// How `payload` is written.
    pub encoding: Encoding,
    /// Size of the payload.
    pub payload_bytes: u64,
    /// When the message ends; `null`: it does not.
    pub expires_at: Option<At>,
    /// Whether the payload is announced as UTF-8.
    pub payload_is_utf8: bool,
    /// What the payload is.
    pub content_type: Option<String>,
    /// Where an answer is to be published.
    pub response_topic: Option<String>,
    /// What the answer is to carry, in base64.
    pub correlation_data: Option<String>,
    /// Names and values, about 16 KiB of them at most.
    pub user_properties: Vec<UserProperty>,
}

/// How a payload is written as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// As it is.
    #[default]
    Utf8,
    /// With padding.
    Base64,
}

/// A name and a value that go with a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UserProperty {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// What makes a queue one of the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
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

/// A queue of a durable session, as of some seconds ago.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// Its place in the queue.
    pub sequence: BigNumber,
    /// Its topic.
    pub topic: String,
    /// The QoS that it is delivered with.
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

/// What the clients of a list do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BusyRole {
    /// They publish.
    Publisher,
    /// They are sent messages.
    Subscriber,
}

/// What makes a client or a topic one of the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
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

/// Rates of the last whole window of 5 s, from a sample of the packets: each while there are up to 512 a second in a loop of the
/// node, else about as many.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BusyTopic {
    /// The topic, or its first 256 bytes.
    pub topic: String,
    /// What is published to it on all nodes.
    #[serde(flatten)]
    pub rates: BusyRates,
}

/// What a node has counted of a client since it is watched there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

/// An address whose logins have failed on a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FailedLoginsRow {
    /// Where.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// The address; of IPv6 the /64 network that it is in.
    pub address: String,
    /// Logins that were judged and denied, since the node remembers the address.
    pub denied: u64,
    /// Logins that were refused unjudged, since others of the user name or with the same credentials had failed there.
    pub refused: u64,
    /// When the last one failed.
    pub last: At,
    /// The user names that were tried last, those that failed most first: 16 at most.
    pub users: Vec<FailedUser>,
}

/// Logins of an address and a user name that a node has refused for the same cause.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RefusedLoginsRow {
    /// Where.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// The address; of IPv6 the /64 network that it is in. `None`: a Unix socket.
    pub address: Option<String>,
    /// The first 128 bytes of the user name; `None`: no user name was given.
    pub user: Option<String>,
    /// The first 128 bytes of the client identifier that was given last.
    pub client_id: Option<String>,
    /// The kind of the listener that was connected to last; `None`: the HTTP API.
    pub listener: Option<String>,
    /// The name of the cause. Later versions have more.
    pub cause: String,
    /// The cause as a sentence.
    pub explanation: String,
    /// The first 128 bytes of what exactly was wrong last.
    pub detail: Option<String>,
    /// How often.
    pub count: u64,
    /// When the first one was refused.
    pub first: At,
    /// When the last one was.
    pub last: At,
}

/// A user name that has failed at an address.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FailedUser {
    /// Its first 128 bytes; `null`: no user name was given.
    pub user: Option<String>,
    /// As of the address.
    pub denied: u64,
    /// As of the address.
    pub refused: u64,
    /// When the last one failed.
    pub last: At,
}
