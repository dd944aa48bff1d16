//! Shared groups and their members.

use serde::{Deserialize, Serialize};

use crate::{ClientState, Limit, NodeId};

/// A shared group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SharedGroupRow {
    /// The subscription that makes sessions members, as it is given at SUBSCRIBE.
    pub given_filter: String,
    /// Its name.
    pub group: String,
    /// Its topic filter.
    pub filter: String,
    /// How many sessions are in it.
    pub members: u64,
    /// How many of them are connected.
    pub online: u64,
    /// What the node counts of it; `None`: its version does not say.
    #[serde(default)]
    pub share: Option<GroupShare>,
}

/// What a node counts of a shared group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupShare {
    /// Members that live as long as their connections to the node.
    pub sessions: u64,
    /// Durable members, wherever they are.
    pub durable: u64,
    /// Those of them whose clients are connected to the node.
    pub durable_online: u64,
    /// Messages that wait or are in flight for the first of these, and for durable members whose inbox shards the node leads;
    /// `None`: the groups of the answer have too many members.
    pub waiting: Option<u64>,
}

/// The members of a shared group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MembersQuestion {
    /// The subscription that makes sessions members, as it is given at SUBSCRIBE.
    pub filter: String,
    /// The place behind which the part begins.
    #[serde(default)]
    pub after: Option<String>,
    /// The most rows.
    pub limit: Limit,
}

/// A part of the members of a shared group.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MembersPart {
    /// In the order of places.
    pub rows: Vec<GroupMember>,
    /// The last place that was looked at, if others follow.
    #[serde(default)]
    pub last: Option<String>,
}

/// A member of a shared group, as a node knows it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupMember {
    /// Its place in the list: durable members in the order of client identifiers, then the others by node.
    pub place: String,
    /// The client identifier.
    pub client_id: String,
    /// Whether its session outlives its connection.
    pub durable: bool,
    /// Where in its life it is; `None`: the node does not know it.
    pub state: Option<ClientState>,
    /// The node that it is connected to.
    pub node: Option<NodeId>,
    /// What people call that node.
    pub node_name: Option<String>,
    /// Messages that wait or are in flight, by all its subscriptions; `None`: the node does not know it.
    pub waiting: Option<u64>,
    /// Messages that are in flight; `None`: it is not connected to the node.
    pub in_flight: Option<u64>,
}
