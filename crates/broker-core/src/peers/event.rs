//! What the loops of a node are told because of other nodes.

use std::sync::Arc;

use mqtt_session::PacketIdSet;
use peer_protocol::{Asker, Forwarded, Older, Registered};
use route_exchange::{NodeId, ShardNumber};

/// What a loop is told of other nodes.
#[derive(Debug)]
pub enum PeerEvent {
    /// Messages of clients of another node.
    Publications {
        /// That node.
        from: NodeId,
        /// In the order of their publishers.
        messages: Vec<Forwarded>,
        /// The length of their frame.
        bytes: usize,
    },
    /// Messages for shared groups that a node that is gone may not have given to its members.
    Undelivered {
        /// That node.
        gone: NodeId,
        /// The messages.
        copies: Vec<Forwarded>,
    },
    /// A subscriber of another node holds a publisher of this loop back; see
    /// [`SessionKey::found_by`](crate::SessionKey::found_by).
    HoldFor(NodeId, u64),
    /// One less does.
    ReleaseFor(NodeId, u64),
    /// Whom this node and another hold back for each other may be unknown there.
    HoldsLost(NodeId),
    /// All live nodes know the routes that this question is about.
    RoutesKnown(u64),
    /// This node is cut off from most others.
    CutOff,
    /// Another node wants older connections of a client closed.
    CloseOlder(Asker, Older),
    /// The answer of a node to that, by the question's token: publications of QoS 2 that came on these connections
    /// and are not released. `None`: it is not waited for.
    ClosedElsewhere(u64, Option<(NodeId, PacketIdSet)>),
    /// Who else has clients that connect, by the questions' tokens.
    Registered(Vec<(u64, Registered)>),
    /// Others lead these session shards: they are to be told of the clients here.
    RegisterAgain(Arc<[ShardNumber]>),
}
