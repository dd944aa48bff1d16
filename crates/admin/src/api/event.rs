//! What happens, as it happens.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{At, BigNumber};
use crate::cluster::{NodeId, NodeState, Reach};
use crate::page::Missing;

/// What has happened. Others may come with later versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub enum EventKind {
    /// A client is connected.
    #[serde(rename = "client.connected")]
    ClientConnected,
    /// The connection of a client has ended; `reason` says why.
    #[serde(rename = "client.disconnected")]
    ClientDisconnected,
    /// A client was not let in. A node tells of ten a second at most.
    #[serde(rename = "client.refused")]
    ClientRefused,
    /// Messages of a client, or for it, were dropped for a reason: `count` of them in a second.
    #[serde(rename = "message.dropped")]
    MessageDropped,
    /// Somebody should see to something; `reason` is its name in `/alarms`.
    #[serde(rename = "alarm.raised")]
    AlarmRaised,
    /// That is over.
    #[serde(rename = "alarm.cleared")]
    AlarmCleared,
    /// A node reaches another one, or not any more, or that one says something else of itself; `subject` names that one.
    #[serde(rename = "node.state")]
    NodeState,
    /// The node leads a shard from now on.
    #[serde(rename = "shard.leader")]
    ShardLeader,
    /// A shard that the node leads has been split.
    #[serde(rename = "shard.split")]
    ShardSplit,
    /// The voters of a shard that the node leads have changed.
    #[serde(rename = "shard.moved")]
    ShardMoved,
    /// Rules denied something to a client: an action, which `reason` names, `count` times in a second.
    #[serde(rename = "right.denied")]
    RightDenied,
    /// Somebody has changed something by HTTP at this node; publishing is no such change. A node tells of 100 a second at most, and then how many more there were.
    #[serde(rename = "api.change")]
    ApiChange,
    /// A client that is connected to the node has a subscription more; `topic` is its filter. A node tells of 100 a second at most, and
    /// then how many more there were.
    #[serde(rename = "subscription.added")]
    SubscriptionAdded,
    /// A subscription was removed from a session that goes on, as is told of those that are added.
    #[serde(rename = "subscription.removed")]
    SubscriptionRemoved,
    /// A session that outlasts its connection has begun with a client of the node. A node tells of 100 a second at most, and then how
    /// many more there were.
    #[serde(rename = "session.begun")]
    SessionBegun,
    /// A session whose shard the node leads has ended; `reason`: `expired`, `disconnect`, `clean_start` or `operator`. As many are told.
    #[serde(rename = "session.ended")]
    SessionEnded,
    /// One of a later version.
    #[serde(other, rename = "other")]
    Other,
}

impl EventKind {
    /// All that this version knows.
    pub const ALL: [Self; 16] = [
        Self::ClientConnected,
        Self::ClientDisconnected,
        Self::ClientRefused,
        Self::MessageDropped,
        Self::AlarmRaised,
        Self::AlarmCleared,
        Self::NodeState,
        Self::ShardLeader,
        Self::ShardSplit,
        Self::ShardMoved,
        Self::RightDenied,
        Self::ApiChange,
        Self::SubscriptionAdded,
        Self::SubscriptionRemoved,
        Self::SessionBegun,
        Self::SessionEnded,
    ];

    /// As in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientConnected => "client.connected",
            Self::ClientDisconnected => "client.disconnected",
            Self::ClientRefused => "client.refused",
            Self::MessageDropped => "message.dropped",
            Self::AlarmRaised => "alarm.raised",
            Self::AlarmCleared => "alarm.cleared",
            Self::NodeState => "node.state",
            Self::ShardLeader => "shard.leader",
            Self::ShardSplit => "shard.split",
            Self::ShardMoved => "shard.moved",
            Self::RightDenied => "right.denied",
            Self::ApiChange => "api.change",
            Self::SubscriptionAdded => "subscription.added",
            Self::SubscriptionRemoved => "subscription.removed",
            Self::SessionBegun => "session.begun",
            Self::SessionEnded => "session.ended",
            Self::Other => "other",
        }
    }
}

/// Something that has happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// What.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// When.
    pub at: At,
    /// Where.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// Its number on that node since the node has started.
    pub seq: BigNumber,
    /// The client, if it concerns one; 1,024 bytes of its identifier at most.
    pub client_id: Option<String>,
    /// Its user; with `api.change`, the user or the key that made the change.
    pub user: Option<String>,
    /// Where its connection comes from.
    pub address: Option<String>,
    /// Why, as in logs and metrics.
    pub reason: Option<String>,
    /// The topic of a message, or the filter of a subscription.
    pub topic: Option<String>,
    /// How often.
    pub count: Option<u64>,
    /// For people.
    pub detail: Option<String>,
    /// The node that it is about, if that is not where it happened.
    #[serde(default)]
    pub subject: Option<EventSubject>,
}

/// The node that an event is about, as the node sees it where the event happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventSubject {
    /// Which.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// How it is now.
    pub state: SubjectState,
}

/// How a node is: what it says of itself, if it is heard of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SubjectState {
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
    /// It has not been heard of for a while.
    Silent,
    /// It counts as gone until it is heard of again.
    Down,
    /// It is no member of the cluster any more.
    Gone,
    /// One of a later version.
    #[serde(other)]
    Other,
}

impl SubjectState {
    /// How a member of the cluster is.
    #[must_use]
    pub const fn of(state: NodeState, reach: Reach) -> Self {
        match (reach, state) {
            (Reach::Suspect, _) => Self::Silent,
            (Reach::Down, _) => Self::Down,
            (Reach::Up, NodeState::Joining) => Self::Joining,
            (Reach::Up, NodeState::Up) => Self::Up,
            (Reach::Up, NodeState::Draining) => Self::Draining,
            (Reach::Up, NodeState::Leaving) => Self::Leaving,
            (Reach::Up, NodeState::Stopping) => Self::Stopping,
        }
    }

    /// As in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Leaving => "leaving",
            Self::Stopping => "stopping",
            Self::Silent => "silent",
            Self::Down => "down",
            Self::Gone => "gone",
            Self::Other => "other",
        }
    }
}

/// Events that a stream has missed: it was too slow, or the node has started anew.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Gap {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// How many; `null`: not known.
    pub count: Option<u64>,
}

/// What has happened since a position.
#[derive(Clone, PartialEq, Debug)]
pub struct Happened {
    /// What has been missed.
    pub gaps: Vec<Gap>,
    /// The events: of each node in their order.
    pub events: Vec<Event>,
    /// The position behind them.
    pub position: String,
    /// Nodes that have not answered: what they have to tell comes later.
    pub partial: Vec<Missing>,
    /// There is more already.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_json() {
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        let later: EventKind = serde_json::from_str("\"of.later\"").unwrap();
        assert_eq!(later, EventKind::Other);
    }
}
