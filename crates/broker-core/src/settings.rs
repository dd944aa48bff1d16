//! The configuration in the form that the event loops use.

use std::sync::Arc;
use std::time::Duration;

use mqtt_session::Policy;
use store_state::session::OfAnotherUser;
use store_state::{Limits, Retention};

use crate::classes::{Class, ClassLimits};
use crate::rights::access::Authorization;

/// What loops look up while they serve. A reload replaces it as a whole.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The limits of clients that are of no class.
    pub limits: ClassLimits,
    /// The classes of clients, in the order in which they are tried.
    pub classes: Vec<Class>,
    /// The same without limits of the queue, for what is on its way when a publisher is held back.
    pub beyond_limit: Policy,
    /// Whether clients without credentials are let in; `None`: those of this machine are.
    pub allow_anonymous: Option<bool>,
    /// What happens to a client whose identifier has a session of another user.
    pub of_another_user: OfAnotherUser,
    /// What clients may do.
    pub authorization: Authorization,
    /// Bytes of a CONNECT packet.
    pub maximum_connect_size: u32,
    /// How long a connection may take for its CONNECT.
    pub connect_timeout_ms: u64,
    /// How long the handshakes of a connection may take together.
    pub handshake_timeout_ms: u64,
    /// How long a full subscriber holds back its publishers; 0: never.
    pub hold_publisher_ms: u64,
    /// How long a subscriber that has acknowledged nothing may hold back publishers whose messages have other receivers.
    pub hold_unearned_ms: u64,
    /// Connections of the node; 0: no limit.
    pub connections: usize,
    /// Connections that have sent no CONNECT yet, in all loops.
    pub unheard_connections: usize,
    /// New connections of the node per second; 0: no limit.
    pub connections_per_s: u64,
    /// Sessions of the node, connected and not.
    pub sessions: usize,
    /// Bytes of the topic filters of all clients that are connected, and of the inboxes that are kept here.
    pub node_subscription_bytes: u64,
    /// Patterns of wildcards in all filters that messages are compared with.
    pub node_wildcard_patterns: usize,
    /// What one user may have of these two, in percent; 100: all.
    pub node_user_share: usize,
    /// What the stores obey.
    pub store_limits: Limits,
    /// How long messages are kept in their queues, and how many bytes.
    pub retention: Arc<Retention>,
    /// How often each user of a database with connected clients is looked up again; `None`: never.
    pub recheck: Option<Duration>,
    /// How often `$SYS` topics are published; 0: never.
    pub sys_interval_ms: u64,
    /// Bytes of memory at which publishers are not read; 0: by the machine's memory.
    pub memory_high_water: u64,
    /// Bytes of memory at which clients are refused; 0: by the machine's memory.
    pub memory_refuse: u64,
}

impl Settings {
    /// Whether a user may take the client identifier over that another connection has. `holder`: the user of that.
    pub(crate) fn may_take(&self, holder: Option<&str>, user: Option<&str>) -> bool {
        holder.is_none() || holder == user || self.of_another_user == OfAnotherUser::Discard
    }
}
