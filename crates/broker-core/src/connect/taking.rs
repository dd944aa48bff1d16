//! Takeovers that are under way: of connections of other nodes, and of those here.

use mqtt_session::PacketIdSet;
use net_api::{ConnectionId, Key};
use peer_protocol::{Asker, Older};
use route_exchange::NodeId;
use store_state::inbox::Attached;
use store_state::session::Claimed;

/// A client whose older connections other nodes are to close.
#[derive(Debug)]
pub(crate) struct Taking {
    pub(super) key: Key,
    pub(super) then: Then,
    /// Nodes that have not answered.
    pub(super) left: usize,
    /// What they were asked.
    pub(super) questions: Vec<u64>,
    /// Publications that came on the older connections, and are not released.
    pub(super) unreleased: PacketIdSet,
    /// The nodes that have told of them.
    pub(super) told_by: Vec<NodeId>,
}

/// What was answered last, and is gone on with.
#[derive(Debug)]
pub(crate) enum Then {
    /// By the directory.
    Registered,
    /// By the session store.
    Claimed(Claimed),
    /// By the inbox store.
    Attached { epoch: u64, attached: Box<Attached> },
}

/// A connection that another node is to hear is closed.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(super) asker: Asker,
    pub(super) client: Box<str>,
    /// Of the later connection.
    pub(super) epoch: u64,
    /// Shards that have not applied everything yet.
    pub(super) left: usize,
}

/// A connection that another node takes over: what the client has sent on it before it connected there is read
/// first, because it may be DISCONNECT.
#[derive(Debug)]
pub(crate) struct Superseded {
    pub(super) connection: ConnectionId,
    pub(super) asker: Asker,
    pub(super) older: Older,
    pub(super) until_ms: u64,
}
