//! What a node says of itself: its process, its listeners, its settings, what it has counted, who has logged in there.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{At, NodeId, UnixMs};

/// What a node says of its process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DrainProgress {
    /// Clients that are still connected.
    pub clients_left: u64,
    /// Shards that it still leads.
    pub shards_left: u64,
}

/// Something that a person should see to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Alarm {
    /// A word that stays: `node_down`, `no_leader`, `memory`, `descriptors`, `disk_full`, `disk_high_water`, `open_cluster`, `certificate`, `revocation_list`, `level_mixed`, `replica_unusable`, `replica_differs`, `control_stale`, `control_rules`, `split_script`.
    pub name: String,
    /// Which node says so.
    pub node: NodeId,
    /// What people call that node.
    pub node_name: String,
    /// Of what, if a node may have several of this name.
    #[serde(default)]
    pub subject: String,
    /// A sentence.
    pub detail: String,
    /// Since when, if that is known.
    pub since: Option<At>,
    /// Until when; `null`: it is raised.
    #[serde(default)]
    pub until: Option<At>,
}

/// A listener.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

/// An option that a node runs with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SettingPart {
    /// Its full name.
    pub key: String,
    /// Whether SIGHUP applies a new value.
    pub live: bool,
    /// The value.
    pub setting: Setting,
}

/// The value of an option.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// YAML on one line. Passwords in URLs are left out. `null`: it is unset.
    pub value: Option<String>,
    /// Who set it: `default`, `file`, `environment` or `argument`.
    pub origin: String,
    /// Where exactly: file and line, the variable, or the option of the command line.
    pub place: Option<String>,
    /// The value that counts from the next start on, if it is another.
    pub at_restart: Option<String>,
}

/// What there is now, and what has happened since the node has started. Shards are counted by the nodes that lead them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Clients that are connected.
    pub connections: u64,
    /// Sessions, also of clients that are away: each in its session shard, and those that are in no shard.
    pub sessions: u64,
    /// Subscriptions of connected clients, and of sessions that linger.
    pub subscriptions: u64,
    /// Retained messages.
    pub retained_messages: u64,
    /// Messages that wait in the queues of durable sessions.
    pub queued_messages: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Messages that clients have published.
    pub messages_in: u64,
    /// Messages that were sent to clients.
    pub messages_out: u64,
    /// Bytes read from clients.
    pub bytes_in: u64,
    /// Bytes written to clients.
    pub bytes_out: u64,
    /// CONNECT packets accepted.
    pub connects: u64,
    /// CONNECT packets refused.
    pub connects_refused: u64,
    /// Messages dropped.
    pub dropped: u64,
    /// Published messages that matched nobody.
    pub unmatched: u64,
    /// Retained messages whose Message Expiry Interval has passed. Counted by the nodes that lead their shards.
    #[serde(default)]
    pub retained_expired: u64,
    /// Retained messages that rules have removed (`retain.maxAgeSeconds`, `retain.rules`).
    #[serde(default)]
    pub retained_removed: u64,
}

/// Samples of a node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HistoryPart {
    /// When the last one ended, in ms of Unix time.
    pub end_ms: Option<UnixMs>,
    /// Values by name.
    pub series: BTreeMap<String, Vec<Option<f64>>>,
}

/// A session, as other nodes are told of it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginSession {
    /// Who has logged in.
    pub user: String,
    /// What the user may do now.
    pub role: Role,
    /// What a request that changes something shows beside the cookie.
    pub csrf_token: String,
    /// When it ends, whatever is done.
    pub ends_at: At,
}

impl fmt::Debug for LoginSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginSession")
            .field("user", &self.user)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// What a key may do; each may what those before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read everything but payloads.
    Viewer,
    /// Also act on clients, sessions, bans and leaders.
    Operator,
    /// Also change the cluster.
    Administrator,
}
