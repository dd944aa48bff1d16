//! What nodes ask each other of messages that wait or are kept, and of who is busy.

use admin::api::{
    BusyClient, BusyOrder, BusyRole, BusyTopic, FailedLoginsRow, Message, QueueOrder, QueuePurge,
    QueueRow, QueuedMessage, RetainedLevelRow, RetainedRow, WatchedClient,
};
use serde::{Deserialize, Serialize};
use store::{Cursor, InTopicOrder};

/// The most rows of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Limit(pub(super) u16);

/// A place in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Sequence(pub(super) u64);

/// A question about messages, or about clients by what they do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MessagesQuestion {
    /// Retained messages that a topic filter selects.
    Retained { filter: String, range: PlaceRange },
    /// The levels below a topic; `None`: the first levels.
    Levels {
        below: Option<String>,
        range: PlaceRange,
    },
    /// The retained message of a topic.
    Message { topic: String },
    /// The first queues in an order.
    FirstQueues { by: QueueOrder, limit: Limit },
    /// What waits for a client.
    Waiting(WaitingQuestion),
    /// What waits for a client is to be dropped.
    Purge { client_id: String },
    /// The clients that publish most, or are sent most or latest.
    BusyClients {
        role: BusyRole,
        by: BusyOrder,
        limit: Limit,
    },
    /// The topics that most is published to.
    BusyTopics { by: BusyOrder, limit: Limit },
    /// What a client does that is watched.
    Watch { client_id: String },
    /// Who fails to log in there.
    FailedLogins,
    /// A question of a later version.
    #[serde(other)]
    Unknown,
}

/// The first ones of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BusyPart {
    Clients(Vec<BusyClient>),
    Topics(Vec<BusyTopic>),
}

/// What a node answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MessagesAnswer {
    Retained(RetainedPart<Listed<RetainedRow>>),
    Levels(RetainedPart<Listed<RetainedLevelRow>>),
    Message(Held<Box<Message>>),
    FirstQueues(Vec<QueueRow>),
    Waiting(Held<WaitingPart>),
    Purged(Held<QueuePurge>),
    Busy(BusyPart),
    FailedLogins(Vec<FailedLoginsRow>),
    /// What it has counted; `None`: the client is not here.
    Watched(Option<WatchedClient>),
    /// It does not know the question.
    #[serde(other)]
    NotKnown,
}

/// What the node has whose shard something belongs to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Held<T> {
    /// This node does not lead the shard.
    Elsewhere,
    /// There is no such thing.
    Absent,
    /// There is.
    Found(T),
}

/// A part of the order of topics.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct PlaceRange {
    /// Where it begins, as the part before has said.
    pub(super) after: Option<String>,
    pub(super) limit: Limit,
}

/// A part of a list in that order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct RetainedPart<T> {
    pub(super) rows: Vec<T>,
    /// Where the next ones begin.
    pub(super) next: Option<String>,
    /// The first and the last slot of each range of the retain store that the rows speak for.
    pub(super) covered: Vec<(u16, u16)>,
}

/// A row as nodes send it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Listed<T>(pub(super) T);

impl InTopicOrder for Listed<RetainedRow> {
    fn topic(&self) -> &str {
        &self.0.topic
    }

    fn behind(&self) -> Cursor {
        Cursor::behind(&self.0.topic)
    }

    fn join(&mut self, _: &Self) {
        // While a shard is split, both halves may have it for a moment.
    }
}

impl InTopicOrder for Listed<RetainedLevelRow> {
    fn topic(&self) -> &str {
        &self.0.topic
    }

    fn behind(&self) -> Cursor {
        Cursor::behind_all_below(&self.0.topic)
    }

    fn join(&mut self, other: &Self) {
        self.0.has_message |= other.0.has_message;
        self.0.has_more_below |= other.0.has_more_below;
    }
}

/// A part of what waits for a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct WaitingQuestion {
    pub(super) client_id: String,
    /// Where it begins.
    pub(super) from: Sequence,
    pub(super) limit: Limit,
    pub(super) payloads: bool,
}

/// What waits for it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct WaitingPart {
    pub(super) messages: Vec<QueuedMessage>,
    /// From where on the next ones may stand.
    pub(super) next: Option<Sequence>,
}
