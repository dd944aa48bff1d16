//! What a node answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    AclPart, ChangePart, ClientPart, ClientsPart, Counts, Ending, EventsPart, HistoryPart,
    LedShard, ListenerRow, LoginSession, MatchPart, MessagesAnswer, NodeHealth, NodeId, Part,
    PlacedDrop, SettingPart, SharedGroupRow, SubscriptionRow,
};

/// What a node answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// How it is.
    Health(Box<NodeHealth>),
    /// What the shards hold that it leads.
    Shards(Vec<LedShard>),
    /// Its listeners.
    Listeners(Vec<ListenerRow>),
    /// A part of the list of clients.
    Clients(ClientsPart),
    /// What it knows of a client.
    Client(Box<ClientPart>),
    /// How many messages wait, by client identifier.
    Queues(BTreeMap<String, u64>),
    /// What became of a client that was to be ended.
    End(Ending),
    /// What it did about a subscription.
    ChangeSubscription(ChangePart),
    /// Subscriptions of a client; `None`: it has neither the client nor its inbox.
    SubscriptionsOf(Option<Part<SubscriptionRow>>),
    /// A part of the list of shared groups.
    SharedGroups(Part<SharedGroupRow>),
    /// Who of the node would get a message.
    Match(MatchPart),
    /// Dropped messages, the latest first.
    Drops(Vec<PlacedDrop>),
    /// How many messages it has dropped, by reason.
    DropTotals(BTreeMap<String, u64>),
    /// The options that it runs with.
    Settings(Vec<SettingPart>),
    /// Counts.
    Stats(Box<Counts>),
    /// Samples.
    History(HistoryPart),
    /// What has happened on it.
    Events(EventsPart),
    /// Messages that wait or are kept, who is busy, and what goes on inside its process.
    Messages(MessagesAnswer),
    /// The session; `None`: there is none, or none any more.
    ApiSession(Option<LoginSession>),
    /// What it says of a client's rights.
    Acl(AclPart),
    /// The change has begun, or why not.
    Change(Result<(), Refusal>),
    /// It answers others.
    Busy,
    /// It could not answer.
    Failed,
    /// It does not know the question.
    NotKnown,
}

/// Why a change was not made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// There is no such node or shard.
    Unknown(String),
    /// The state of the cluster does not allow it.
    Conflict(String),
    /// Nobody who could decide it can be reached now; it can be tried again.
    Unavailable(String),
}

/// What a node was to answer and did not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Missing {
    /// The node.
    pub node: Option<NodeId>,
    /// What people call it; empty if it does not say.
    pub node_name: String,
    /// Why.
    pub reason: MissingReason,
    /// What is not known therefore, such as `connections` or `session_store:0-21845`, with the first and the last slot.
    pub missing: Vec<String>,
}

/// Why a node did not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingReason {
    /// It is down, or there is no connection to it.
    Down,
    /// Its answer did not come in time.
    Timeout,
    /// It answers others.
    Busy,
    /// Its version does not know the question.
    Version,
    /// It could not answer.
    Failed,
    /// Nobody leads the shard.
    NoLeader,
}
