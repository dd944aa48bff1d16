//! Who would get a message, what rules say, and messages that were dropped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{At, ClientState, NodeId};

/// Who of a node would get a message.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MatchPart {
    /// As many as the question has room for.
    pub receivers: Vec<Receiver>,
    /// All of them, with those that are not listed.
    pub counts: MatchCounts,
    /// Whether all were looked at.
    pub counted_all: bool,
    /// Of receivers that are connected and whose queues are in the stores: how many messages may wait there.
    #[serde(default)]
    pub limits: BTreeMap<String, QueueLimit>,
}

/// How many messages may wait for a client, and whether a further one makes room by dropping the oldest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueLimit(pub u64, pub bool);

/// A drop and its place among all of its node, for the order of pages.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlacedDrop {
    /// The drop.
    pub row: DropRow,
    /// Sorts the latest first.
    pub place: String,
}

/// What a node says of a client's rights.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AclPart {
    /// The client is connected here, as this user.
    pub connected: Option<(Verdict, Option<String>)>,
    /// Its session is of this user, who was judged by the rules of the node.
    pub stored: Option<(Verdict, Option<String>)>,
    /// As the question says, by the rules of the node.
    pub asked: Option<(Verdict, Option<String>)>,
}

/// Who would get a message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Receiver {
    /// The client; `null` for a group.
    pub client_id: Option<String>,
    /// The shared group, of which one member gets the message.
    pub group: Option<String>,
    /// The filter that matches, the first if there are several.
    pub filter: String,
    /// The QoS that the message would have.
    pub qos: u8,
    /// The node that the client is connected to.
    pub node: Option<NodeId>,
    /// What people call that node.
    pub node_name: Option<String>,
    /// Whether the client is connected.
    pub state: Option<ClientState>,
    /// What would happen.
    pub outcome: Outcome,
    /// Why it would be dropped.
    pub reason: Option<String>,
    /// The same for people.
    pub detail: Option<String>,
    /// What denies it to the client, if a rule does.
    pub rule: Option<Verdict>,
    /// Sessions of the group.
    pub members: Option<u64>,
}

/// What would happen to a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It would be sent.
    Delivered,
    /// It would wait for the client.
    Queued,
    /// It would not.
    Dropped,
    /// One member of the group would get it.
    OneOf,
}

/// How many would get a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MatchCounts {
    /// Connected clients.
    pub delivered: u64,
    /// Absent ones.
    pub queued: u64,
    /// Those that would not.
    pub dropped: u64,
    /// Shared groups.
    pub groups: u64,
}

/// A message that was dropped.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
    pub qos: u8,
    /// Bytes of its payload.
    pub bytes: u64,
}

/// Whether a client may do something.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether it may.
    pub may: bool,
    /// What decides.
    pub by: DecidedBy,
    /// The line of the rule file, or the number among the rules of the login, from 1; `null`: no rule.
    pub line: Option<u64>,
}

/// What decides about a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// Its login made it one that may do everything.
    Superuser,
    /// A rule that came with its login.
    Login,
    /// A rule of the file.
    File,
    /// `authorization.noMatch`: no rule says anything.
    NoMatch,
    /// A rule of the control store for everybody. Only a cluster whose nodes all know the store has such rules.
    List,
}
