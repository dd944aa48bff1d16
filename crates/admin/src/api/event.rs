//! What happens, as it happens.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{At, BigNumber};
use crate::cluster::NodeId;
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
    /// A node reaches another one, or not any more, or that one says something else of itself.
    #[serde(rename = "node.state")]
    NodeState,
    /// The node leads a shard from now on.
    #[serde(rename = "shard.leader")]
    ShardLeader,
    /// One of a later version.
    #[serde(other, rename = "other")]
    Other,
}

impl EventKind {
    /// All that this version knows.
    pub const ALL: [Self; 8] = [
        Self::ClientConnected,
        Self::ClientDisconnected,
        Self::ClientRefused,
        Self::MessageDropped,
        Self::AlarmRaised,
        Self::AlarmCleared,
        Self::NodeState,
        Self::ShardLeader,
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
    /// Its user.
    pub user: Option<String>,
    /// Where its connection comes from.
    pub address: Option<String>,
    /// Why, as in logs and metrics.
    pub reason: Option<String>,
    /// The topic of a message.
    pub topic: Option<String>,
    /// How often.
    pub count: Option<u64>,
    /// For people.
    pub detail: Option<String>,
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
        let later: EventKind = serde_json::from_str("\"session.begun\"").unwrap();
        assert_eq!(later, EventKind::Other);
    }
}
