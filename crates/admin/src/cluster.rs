//! What people and programs ask of a cluster, and what they are told: the JSON of `/api/v1/cluster`.
//!
//! Deliberately absent: how members and shards are managed.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use config::Endpoint;
pub use peer_protocol::Refusal;
use serde::{Deserialize, Serialize};
use store_state::api::{Slot, StoreId};
use utoipa::ToSchema;

/// What can be asked of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Look for members at another address, too.
    Join {
        /// Where a member is.
        seed: Endpoint,
    },
    /// Leave the cluster: drain, move the replicas elsewhere, be no member any more, and end.
    Leave,
    /// Send the clients elsewhere and give up leading shards; the node stays a member.
    Drain,
    /// Serve clients again after [`Change::Drain`].
    EndDrain,
    /// Take a member out that will not come back.
    Evict {
        /// Which.
        node: NodeId,
        /// Also if shards have no majority of their voters without it.
        force: bool,
    },
    /// Let another replica of a shard lead it.
    TransferLeader {
        /// The store that the shard is of.
        store: StoreName,
        /// Its number.
        shard: u64,
        /// The node to lead, one of the shard's voters.
        to: NodeId,
    },
    /// Split a shard: a new one gets its upper slots.
    Split {
        /// The store that the shard is of.
        store: StoreName,
        /// Its number.
        shard: u64,
        /// The first slot of the new shard, which is also its number. `None`: the slot at which the load halves, or
        /// the middle if there is no load.
        at: Option<Slot>,
    },
    /// Raise the level of all shards: each node is of the new version, and none goes back.
    FinishUpgrade,
    /// Move clients from nodes that have more than their share to the others; or stop that.
    Rebalance {
        /// How many clients each node moves per second. `None`: as many as when it is drained; 0: none any more.
        clients_per_second: Option<u32>,
    },
}

/// How evenly clients are spread over the nodes that serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Evenness {
    /// Nodes that serve.
    pub nodes: usize,
    /// The clients of all of them.
    pub clients: u64,
    /// Those of the node that has most.
    pub most: u64,
}

impl Evenness {
    /// By the clients of each node that serves.
    pub fn of(clients: impl Iterator<Item = u64>) -> Self {
        clients.fold(Self::default(), |sum, clients| Self {
            nodes: sum.nodes + 1,
            clients: sum.clients.saturating_add(clients),
            most: sum.most.max(clients),
        })
    }

    /// By what a node tells of all: those are counted that let clients in and can be reached.
    #[must_use]
    pub fn of_status(status: &ClusterStatus) -> Self {
        let serve = status
            .nodes
            .iter()
            .filter(|node| node.state == NodeState::Up && node.reach != Reach::Down);
        Self::of(serve.filter_map(|node| node.connections))
    }

    /// Clients of a node, on average.
    #[must_use]
    pub fn mean(self) -> f64 {
        match self.nodes {
            0 => 0.0,
            nodes => self.clients as f64 / nodes as f64,
        }
    }

    /// The clients of the node that has most, as a multiple of the mean; 1 if there are none.
    #[must_use]
    pub fn most_to_mean(self) -> f64 {
        match self.clients {
            0 => 1.0,
            _ => self.most as f64 / self.mean(),
        }
    }

    /// How many clients a node has at most that keeps none it could give to others: 2 % and one more than the mean.
    #[must_use]
    pub fn enough(self) -> u64 {
        (self.mean() * 1.02).ceil() as u64 + 1
    }
}

#[cfg(test)]
mod evenness_tests {
    use super::*;

    #[test]
    fn clients_are_even_when_no_node_has_more_than_the_mean() {
        let even = Evenness::of([100, 100, 100].into_iter());
        assert_eq!(
            (even.mean(), even.most_to_mean(), even.enough()),
            (100.0, 1.0, 103)
        );
        let added = Evenness::of([100_000 / 3, 100_000 / 3, 100_000 / 3, 0].into_iter());
        assert!((added.most_to_mean() - 4.0 / 3.0).abs() < 0.001);
        assert!(added.enough() as f64 / added.mean() < 1.1);
        let nobody = Evenness::of([].into_iter());
        assert_eq!((nobody.mean(), nobody.most_to_mean()), (0.0, 1.0));
    }
}

/// A node's identifier. As text, and in JSON: 16 hexadecimal digits, because many readers of JSON have
/// only 53 bits for numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "5f3a90c2d1e4b867", pattern = "^[0-9a-f]{1,16}$")]
pub struct NodeId(pub u64);

/// One of the stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreName {
    /// Who owns each client identifier.
    Session,
    /// Queues and subscriptions of durable sessions.
    Inbox,
    /// Retained messages.
    Retain,
    /// Users, groups and rules that change while the cluster runs.
    Control,
}

/// `GET /api/v1/cluster`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterStatus {
    /// The cluster's identifier. `None`: this node has not joined yet.
    pub cluster: Option<NodeId>,
    /// `clusterConfig.env`.
    pub env: String,
    /// The node that answers.
    pub node: NodeId,
    /// All members, this one included; none if the node runs alone.
    pub nodes: Vec<NodeStatus>,
    /// All shards that this node knows of.
    pub shards: Vec<ShardStatus>,
    /// The level of the shards. `None`: the node runs a version without levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LevelStatus>,
    /// Damaged replicas of the node that answers. Missing: there are none, or the node runs a version that does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedReplica>,
}

/// A damaged replica of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DamagedReplica {
    /// The store.
    pub store: StoreName,
    /// The number of the shard.
    pub shard: u64,
    /// What is damaged: a sentence.
    pub damage: String,
    /// For how many seconds the node has known it; since its start at most.
    pub seconds: Seconds,
    /// What makes the replica whole again.
    pub recovers_from: RecoverySource,
    /// How far that is: a sentence without its end.
    pub state: String,
    /// Bytes of the leader's table that have come, before they are compressed for the disk. `None`: no table is being sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// What a person has to do. `None`: nothing as long as the other nodes run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// What makes a damaged replica whole again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecoverySource {
    /// The other replicas of the shard.
    OtherReplicas,
    /// Nothing by itself: a person has to act.
    Nothing,
}

/// How far an upgrade is: what the shards write and do goes by a level, which is raised when each node knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LevelStatus {
    /// The lowest level of a shard, as far as nodes tell.
    pub lowest: LevelNumber,
    /// The highest.
    pub highest: LevelNumber,
    /// The highest level that each node is known to know.
    pub possible: LevelNumber,
    /// The highest level that the node knows which answers.
    pub known: LevelNumber,
    /// Nodes without which the level can be raised to that.
    pub held_up_by: Vec<NodeBehind>,
    /// What raising the level changes: the levels above the lowest.
    pub changes: Vec<LevelChange>,
    /// Seconds until the level is raised by itself. `None`: it is not about to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_in: Option<Seconds>,
}

/// The number of a level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
pub struct LevelNumber(pub u32);

/// A node that holds an upgrade up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeBehind {
    /// Its identifier.
    pub node: NodeId,
    /// What people call it; empty if that is not known.
    pub name: String,
    /// Version of HeraldMQ; empty if that is not known.
    pub version: String,
    /// Why.
    pub reason: String,
}

/// What a level changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LevelChange {
    /// The level.
    pub level: LevelNumber,
    /// The programs that know it.
    pub programs: String,
    /// What is different from it on. Programs that do not know it cannot read what is written then.
    pub changes: String,
}

/// A member of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// Its identifier.
    pub node: NodeId,
    /// What people call it; empty if it does not say.
    #[serde(default)]
    pub name: String,
    /// Host and port for other nodes.
    pub address: String,
    /// What it says of itself.
    pub state: NodeState,
    /// Whether the node that answers reaches it.
    pub reach: Reach,
    /// Version of HeraldMQ.
    pub version: String,
    /// The commit that the program was built from, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The level of its replicas, or the lowest and the highest with a hyphen, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub levels: Option<String>,
    /// Grows with each start of the node.
    pub incarnation: u64,
    /// Clients connected to it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// How many of its replicas cannot be used, or do not follow, if it says so. `GET /api/v1/cluster` at the node says of damaged ones
    /// what becomes of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable_replicas: Option<u32>,
    /// How far its system's clock is ahead of the time that the cluster goes by, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_ms: Option<i64>,
}

/// What a node does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It learns what the cluster knows.
    Joining,
    /// It serves.
    Up,
    /// It sends its clients elsewhere.
    Draining,
    /// It gives up its replicas and leaves permanently.
    Leaving,
    /// It is about to stop, and may come back.
    Stopping,
}

/// Whether a node can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// It was heard of just now.
    Up,
    /// It has been silent for a while.
    Suspect,
    /// It counts as gone until it is heard of again.
    Down,
}

/// A shard of a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ShardStatus {
    /// The store.
    pub store: StoreName,
    /// Its number in the store.
    pub shard: u64,
    /// The first of its slots. `None`: the node runs a version that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>)]
    pub first: Option<Slot>,
    /// The last of its slots, as far as the node that answers knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>)]
    pub last: Option<Slot>,
    /// Grows with each split, from 1. `None`: the node that answers has no replica of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// The node that leads it: it can be reached, and has said so within 5 s. `None`: nobody does, as far as known.
    pub leader: Option<NodeId>,
    /// The node that led it last, if nobody does and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_leader: Option<NodeId>,
    /// Nodes whose replicas vote.
    pub voters: Vec<NodeId>,
    /// Nodes whose replicas only learn.
    pub learners: Vec<NodeId>,
    /// The term of the leader.
    pub term: u64,
    /// What it costs, if it costs something and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadStatus>,
    /// Whether the node would split it by itself. `None`: another node than the one that answers leads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitStatus>,
}

/// What a node has decided last about a split of a shard that it leads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SplitStatus {
    /// A word: `split`, or why the shard is not split.
    pub decision: String,
    /// The same for people.
    pub reason: String,
    /// Clients, or topics, that have the slot with most of the load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// For how many seconds it has been so.
    pub seconds: Seconds,
}

/// Whole seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Seconds(pub u64);

/// The version of a shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
pub struct Version(pub u64);

/// The load of a shard, per second: the mean of the last ten seconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LoadStatus {
    /// CPU time of its leader in µs: for making batches of requests and proposing them.
    pub propose_us: Micros,
    /// For applying them.
    pub apply_us: Micros,
    /// For reading queues and retained messages.
    pub read_us: Micros,
    /// Requests proposed.
    pub requests: Rate,
    /// How long a request has waited for being proposed, on average, in µs.
    pub wait_us: Micros,
    /// Bytes written to the log, about.
    pub log_bytes: Rate,
    /// The slot at which the load halves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half: Option<HalfStatus>,
}

/// Where a load halves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HalfStatus {
    /// The first slot of the upper part.
    #[schema(value_type = u16)]
    pub slot: Slot,
    /// The share of the lower part, in percent.
    pub below: Percent,
}

/// How often something happens in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Rate(pub u64);

/// Hundredths of the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Percent(pub u8);

/// A time in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Micros(pub u64);

/// Text that is no identifier of a node. It says what one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoNodeId;

/// Text that names none of the stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuchStore;

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for NodeId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

impl TryFrom<String> for NodeId {
    type Error = NoNodeId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map_err(|_| NoNodeId)
    }
}

impl From<NodeId> for String {
    fn from(node: NodeId) -> Self {
        node.to_string()
    }
}

impl From<StoreId> for StoreName {
    fn from(store: StoreId) -> Self {
        match store {
            StoreId::Session => Self::Session,
            StoreId::Inbox => Self::Inbox,
            StoreId::Retain => Self::Retain,
            StoreId::Control => Self::Control,
        }
    }
}

impl From<StoreName> for StoreId {
    fn from(name: StoreName) -> Self {
        match name {
            StoreName::Session => Self::Session,
            StoreName::Inbox => Self::Inbox,
            StoreName::Retain => Self::Retain,
            StoreName::Control => Self::Control,
        }
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(StoreId::from(*self).name())
    }
}

impl FromStr for StoreName {
    type Err = NoSuchStore;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        StoreId::ALL
            .into_iter()
            .find(|store| store.name() == text)
            .map(Self::from)
            .ok_or(NoSuchStore)
    }
}

impl fmt::Display for NoNodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("16 hexadecimal digits")
    }
}

impl std::error::Error for NoNodeId {}

impl fmt::Display for NoSuchStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stores are session, inbox, retain and control")
    }
}

impl std::error::Error for NoSuchStore {}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Joining => "joining",
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Leaving => "leaving",
            Self::Stopping => "stopping",
        })
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
        })
    }
}
