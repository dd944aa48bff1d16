//! The other nodes of the cluster: what this node tells them, and what it does about what they tell it.
//!
//! [`Peers`] has the state. Events come by its methods in `events.rs`: members and connections, messages, leaders of
//! shards, and a tick. `routing.rs`: routes of other nodes, for how long they are believed, and what others are told.
//! `route_barriers.rs`: SUBSCRIBEs that wait until all nodes know a route. `cut_off.rs`: what is routed by where most
//! others are silent. `splits.rs`: inbox shards that are split. `publications.rs`: messages of clients of other nodes, and for shared groups there. `register.rs`
//! and `takeover.rs`: clients that have an older connection elsewhere. What is beside these holds their data.
//! `publish/forward.rs`: messages that go out and come in, in each loop.
//!
//! Below are [`Links`], which the process implements, and [`ThisNode`], which [`Node`](crate::Node) implements: nothing
//! here knows the node's sessions and loops.
//!
//! Invariant: when [`Peers::check_leases`] returns, loops route by no routes that may be out of date: what a peer wants
//! is either known, with a lease, or it gets everything. The exception is P10, in `cut_off.rs`.
//!
//! Deliberately absent: types and bytes of messages (`peer-protocol`); connections and membership (`cluster`); when
//! routes are known (`route-exchange`).

mod barriers;
mod copies;
mod cut_off;
mod directory;
mod event;
mod events;
mod links;
mod publications;
mod register;
mod registrations;
mod route_barriers;
mod routing;
pub(crate) mod splits;
mod takeover;
mod takeovers;
mod this_node;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use peer_protocol::{Control, PeerMessage, PublicationsFrame};
use route_exchange::{Imports, NodeId, Times};

use barriers::Barriers;
use copies::{Arrivals, Copies};
use cut_off::CutOff;
use registrations::Registrations;
use takeovers::Takeovers;

pub use cut_off::TICK_MS;
pub use event::PeerEvent;
pub use links::Links;
pub use this_node::ThisNode;

/// Bytes on their way to a peer at which publishers whose messages go there are not read.
///
/// Limit: messages on their way to a node | {:bytes} | publishers that send there are not read
pub const LINK_FULL: usize = 8 << 20;

/// A node's place in its cluster.
#[derive(Debug)]
pub struct Place<L> {
    /// Which node it is.
    pub node: NodeId,
    /// Grows with each start of it; below 2³².
    pub incarnation: u64,
    /// How long others are believed, and waited for.
    pub times: Times,
    /// How it reaches the others.
    pub links: L,
}

/// The other nodes.
pub struct Peers<L> {
    own: NodeId,
    links: L,
    inbound: Mutex<Inbound>,
    barriers: Mutex<Barriers>,
    copies: Mutex<Copies>,
    arrivals: Mutex<Arrivals>,
    takeovers: Mutex<Takeovers>,
    registrations: Mutex<Registrations>,
    /// Until when loops may route by what is known.
    valid_until_ms: AtomicU64,
}

#[derive(Debug)]
struct Inbound {
    imports: Imports,
    /// Peers that there is a connection to.
    connected: BTreeSet<NodeId>,
    cut_off: CutOff,
}

impl<L> fmt::Debug for Peers<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("own", &self.own).finish()
    }
}

impl<L: Links> Peers<L> {
    pub(crate) fn new(place: Place<L>) -> Self {
        Self {
            own: place.node,
            links: place.links,
            inbound: Mutex::new(Inbound {
                imports: Imports::new(place.times),
                connected: BTreeSet::new(),
                cut_off: CutOff::default(),
            }),
            barriers: Mutex::default(),
            copies: Mutex::default(),
            arrivals: Mutex::default(),
            takeovers: Mutex::new(Takeovers::new(place.incarnation)),
            registrations: Mutex::new(Registrations::new(place.incarnation)),
            valid_until_ms: AtomicU64::new(u64::MAX),
        }
    }

    /// This node.
    pub fn own(&self) -> NodeId {
        self.own
    }

    /// Queues messages of clients for a node. False: they are lost.
    pub(crate) fn forward(&self, to: NodeId, frame: PublicationsFrame) -> bool {
        self.links.forward(to, frame)
    }

    /// Queues a message for a node. False: it is lost.
    fn send<'a>(&self, to: NodeId, message: impl Into<PeerMessage<'a>>) -> bool {
        self.links.send(to, message.into())
    }

    /// Asks a node to hold a publisher of its own back, or to let it go. False: it cannot be reached.
    pub(crate) fn hold(&self, node: NodeId, publisher: u64, hold: bool) -> bool {
        let control = if hold {
            Control::Hold { publisher }
        } else {
            Control::Release { publisher }
        };
        self.send(node, control)
    }

    /// Whether so much waits to be sent to a node that its publishers are to wait.
    pub(crate) fn is_crowded(&self, node: NodeId) -> bool {
        self.links.queued_bytes(node) > LINK_FULL
    }

    /// Routes told by others, SUBSCRIBEs that wait, and bytes of messages for groups that are on their way.
    pub fn figures(&self) -> [u64; 3] {
        let imported = self.inbound.lock().imports.len();
        let waiting = self.barriers.lock().len();
        let copied = self.copies.lock().bytes();
        [imported as u64, waiting as u64, copied as u64]
    }
}
