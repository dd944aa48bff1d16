//! A CONNECT that waits for the stores.

use mqtt_proto::{Connect, Packet, ProtocolVersion};
use mqtt_session::{Accepted, ClassId, PacketIdSet};
use net_api::ConnectionId;
use peer_protocol::{Asker, Older};
use route_exchange::NodeId;

use crate::bridge;

/// A CONNECT that waits.
#[derive(Debug)]
pub(crate) struct Joining {
    /// The packet.
    frame: Box<[u8]>,
    /// The server chose the client identifier.
    assigned: bool,
    /// The client's class.
    class: ClassId,
    /// Authentication data for CONNACK.
    data: Option<Box<[u8]>>,
    /// The store has a say in it.
    pub(crate) is_stored: bool,
    /// How far the session store is with it.
    pub(crate) claim: ClaimStage,
    /// Other nodes that want this connection closed, each with its latest question. They are answered when the
    /// directory or the store has answered this CONNECT.
    pub(super) deferred_closes: Vec<(Asker, Older)>,
    /// Publications that came on older connections, as far as these are known of, and are not released.
    pub(crate) unreleased: PacketIdSet,
    /// The nodes that have told of them, and remember them until the client is connected.
    pub(crate) told_by: Vec<NodeId>,
    /// Other connections of the same client, whose CONNECTs wait for this one: of each user at most one.
    ///
    /// Limit: CONNECTs of one client that wait until that of another connection is answered | one of each user | the
    /// one that came earlier is closed, as taken over
    pub(crate) waiters: Vec<Waiter>,
}

/// How far the session store is with a CONNECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClaimStage {
    /// It has not been asked.
    Unasked,
    /// It has not answered.
    Asked,
    /// It has given the connection this epoch.
    Given(u64),
}

/// A connection whose CONNECT waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) connection: ConnectionId,
    /// What it is sent if a later one takes the client identifier over meanwhile.
    pub(crate) takeover_answer: Box<[u8]>,
}

impl Joining {
    pub(crate) fn new(frame: &[u8], accepted: Accepted<'_>, is_stored: bool) -> Self {
        Self {
            frame: frame.into(),
            assigned: accepted.assigned,
            data: accepted.authentication_data.map(Box::from),
            class: accepted.class,
            is_stored,
            claim: ClaimStage::Unasked,
            deferred_closes: Vec::new(),
            unreleased: PacketIdSet::new(),
            told_by: Vec::new(),
            waiters: Vec::new(),
        }
    }

    /// Another node wants this connection closed if it is the older one.
    pub(crate) fn defer_close(&mut self, asker: Asker, older: Older) {
        self.deferred_closes
            .retain(|(waiting, _)| waiting.node != asker.node);
        self.deferred_closes.push((asker, older));
    }

    pub(crate) fn frame(&self) -> &[u8] {
        &self.frame
    }

    pub(super) fn class(&self) -> ClassId {
        self.class
    }

    pub(super) fn accepted(&self) -> Accepted<'_> {
        Accepted {
            assigned: self.assigned,
            authentication_data: self.data.as_deref(),
            class: self.class,
            ..Accepted::default()
        }
    }

    /// See [`connect_in`].
    pub(super) fn connect(&self) -> Option<Connect<'_>> {
        connect_in(&self.frame)
    }
}

/// The CONNECT in the packet of one that waits, without a will that is a bridge's notification.
pub(super) fn connect_in(frame: &[u8]) -> Option<Connect<'_>> {
    match Packet::decode(frame, ProtocolVersion::V5) {
        Ok(Packet::Connect(connect)) => Some(bridge::take_notification(&connect).0),
        _ => None,
    }
}
