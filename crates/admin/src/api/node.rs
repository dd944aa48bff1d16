//! Nodes, and what they are made of.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::At;
use crate::cluster::{NodeId, NodeState, Reach};

/// A node of the cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeRow {
    /// Its identifier.
    pub node: NodeId,
    /// What people call it.
    pub node_name: String,
    /// Host and port for other nodes; `null`: it runs alone.
    pub address: Option<String>,
    /// What it says of itself.
    pub state: NodeState,
    /// Whether the node that answers reaches it.
    pub reach: Reach,
    /// Version of HeraldMQ.
    pub version: String,
    /// Grows with each start of the node.
    pub incarnation: u64,
    /// Clients connected to it.
    pub connections: Option<u64>,
    /// How far its system's clock is ahead of the time that the cluster goes by.
    pub clock_offset_ms: Option<i64>,
    /// What it says of its process; `null`: it did not answer.
    pub health: Option<NodeHealth>,
}

/// What a node says of its process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeHealth {
    /// Whether it takes clients.
    pub ready: bool,
    /// How long the process runs.
    pub uptime_s: u64,
    /// CPU time that it has used, in seconds.
    pub cpu_s: f64,
    /// Cores that it may use.
    pub cores: u64,
    /// Resident memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of its data folder's file system that are free.
    pub disk_free_bytes: Option<u64>,
    /// Sessions that it knows: those of its connections, and those of the session shards that it leads.
    pub sessions: u64,
    /// Shards that it leads.
    pub shards_led: u64,
    /// Messages that it has dropped since it started.
    pub dropped: u64,
    /// How far it is with sending its clients elsewhere; `null`: it does not.
    pub drain: Option<DrainProgress>,
    /// What is wrong with it now.
    pub alarms: Vec<Alarm>,
}

/// How far a node is with sending its clients elsewhere.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DrainProgress {
    /// Clients that are still connected.
    pub clients_left: u64,
    /// Shards that it still leads.
    pub shards_left: u64,
}

/// Something that a person should see to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Alarm {
    /// A word that stays: `node_down`, `no_leader`, `memory`, `descriptors`, `disk_full`, `disk_high_water`, `open_cluster`, `certificate`, `revocation_list`, `level_mixed`, `replica_unusable`, `replica_differs`, `control_stale`, `control_rules`, `split_script`.
    pub name: String,
    /// Which node says so.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// Of what, if a node may have several of this name: a node, a shard, a listener. Name, node and subject tell alarms apart.
    #[serde(default)]
    pub subject: String,
    /// A sentence; it may change while the alarm is raised.
    pub detail: String,
    /// Since when the node has seen it without interruption; `null`: the node's version does not say.
    pub since: Option<At>,
    /// When it ended; `null`: it is raised.
    #[serde(default)]
    pub until: Option<At>,
}

/// A listener.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ListenerRow {
    /// The node that has it.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// `tcp`, `tls`, `ws`, `wss` or `unix`.
    pub kind: String,
    /// Host and port.
    pub address: String,
    /// Open connections.
    pub connections: Option<u64>,
    /// Connections that were accepted since the node has started.
    pub accepted: Option<u64>,
    /// Connections that were closed at once, because their peer is none of the trusted ones of the listener's PROXY settings.
    #[serde(default)]
    pub refused: Option<u64>,
    /// PROXY, TLS and WebSocket handshakes that failed.
    pub failed_handshakes: Option<u64>,
    /// The certificate that it shows.
    #[serde(default)]
    pub certificate: Option<ListenerCertificate>,
}

/// A certificate of a listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ListenerCertificate {
    /// Its subject, as RFC 4514 writes it.
    pub subject: String,
    /// Who has signed it.
    pub issuer: String,
    /// The host names and addresses that it is for.
    pub names: Vec<String>,
    /// From when on it is valid.
    pub not_before: At,
    /// Until when. Two weeks before it is an alarm.
    pub not_after: At,
}
