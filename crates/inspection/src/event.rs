//! What happens on nodes.

use serde::{Deserialize, Serialize};

use crate::{At, BigNumber, NodeId, UnixMs};

/// A place in what happens on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place(pub u64, pub u64);

/// Which events.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EventsQuestion {
    /// `None`: from `since_ms` on.
    pub after: Option<Place>,
    /// `None`: from now on, which is also what a node of an earlier version answers.
    #[serde(default)]
    pub since_ms: Option<UnixMs>,
    /// Of these kinds; none: of all.
    pub kinds: Vec<EventKind>,
    /// What concerns this client.
    pub client_id: Option<String>,
    /// What concerns clients whose identifiers begin so.
    pub prefix: Option<String>,
    /// What concerns topics that this filter matches.
    pub topic: Option<String>,
}

/// What has happened on a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EventsPart {
    /// In their order, 500 at most.
    pub events: Vec<Event>,
    /// The place behind them.
    pub next: Place,
    /// How many were missed; the node has started anew if that is not known.
    pub missed: Option<Missed>,
    /// There are others behind them.
    pub more: bool,
}

/// How many events were missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// So many.
    Some(u64),
    /// It is not known.
    Unknown,
}

/// Something that has happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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

/// What has happened. Others may come with later versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

/// The node that an event is about, as the node sees it where the event happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EventSubject {
    /// Which.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// How it is now.
    pub state: SubjectState,
}

/// How a node is: what it says of itself, if it is heard of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubjectState {
    /// It learns what the cluster knows.
    Joining,
    /// It serves.
    Up,
    /// It sends its clients elsewhere.
    Draining,
    /// It gives up its replicas, for ever.
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
