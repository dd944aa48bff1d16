//! The other nodes of the cluster, as the broker sees them: their routes and messages.
//!
//! `listener.rs`: what comes from them. `frame.rs`: what is sent. `barriers.rs`: SUBSCRIBEs that wait until
//! all nodes know a route. `cut_off.rs`: what is routed by where most others are silent. `copies.rs`: messages
//! for shared groups that are on their way. `directory.rs` and `takeover.rs`: clients that have an older
//! connection elsewhere.
//! `client_loop/forward.rs`: messages that go out and come in.
//!
//! Invariant: when [`Peers::refresh`] returns, loops route by no routes that may be out of date: what a peer
//! wants is either known, with a lease, or it gets everything. The exception is P10, in `cut_off.rs`.
//!
//! Deliberately absent: connections and membership (`cluster`); when routes are known (`route-exchange`).

mod barriers;
mod copies;
mod cut_off;
mod directory;
pub(crate) mod frame;
mod listener;
mod takeover;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use route_exchange::{Change, Exports, Imports, Message, NodeId, ShardNumber, Times};

use crate::client_loop::Mail;
use crate::node::Node;
use crate::routes::Unsure;
use barriers::{Barriers, Waiter};
use copies::{Arrivals, Copies};
use cut_off::CutOff;
use frame::{Control, Forwarded, Frame};

use directory::Registrations;
use takeover::Takeovers;

pub(crate) use directory::{Registered, Registration};
pub use listener::PeerListener;
pub(crate) use listener::TICK_MS;
#[cfg(feature = "fuzzing")]
pub(crate) use takeover::fuzzing::{read_takeover, takeover_seeds};
pub(crate) use takeover::{Asker, Older};

/// Bytes on their way to a peer at which publishers whose messages go there are not read.
pub(crate) const CROWDED: usize = 8 << 20;

/// How the broker reaches other nodes.
pub trait Links: Send + Sync + 'static {
    /// Queues bytes for a node, behind all that went before. False: there is no connection, and they are
    /// lost; they may also be lost later, when the connection breaks.
    fn send(&self, to: NodeId, bytes: Bytes) -> bool;

    /// Bytes that wait to be sent to a node.
    fn queued_bytes(&self, to: NodeId) -> usize;
}

/// A node's place in its cluster.
pub struct Place {
    /// Which node it is.
    pub node: NodeId,
    /// Grows with each start of it; below 2³².
    pub incarnation: u64,
    /// How long others are believed, and waited for.
    pub times: Times,
    /// How it reaches the others.
    pub links: Box<dyn Links>,
}

/// The other nodes.
pub(crate) struct Peers {
    own: NodeId,
    links: Box<dyn Links>,
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

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("own", &self.own).finish()
    }
}

impl Peers {
    /// Makes a node one of several. Before its store is opened and its loops start.
    pub(crate) fn join(node: &Node, place: Place) {
        let times = place.times;
        node.routes.export(Exports::new(place.incarnation, times));
        node.set_peers(Self {
            own: place.node,
            links: place.links,
            inbound: Mutex::new(Inbound {
                imports: Imports::new(times),
                connected: BTreeSet::new(),
                cut_off: CutOff::default(),
            }),
            barriers: Mutex::default(),
            copies: Mutex::default(),
            arrivals: Mutex::default(),
            takeovers: Mutex::new(Takeovers::new(place.incarnation)),
            registrations: Mutex::new(Registrations::new(place.incarnation)),
            valid_until_ms: AtomicU64::new(u64::MAX),
        });
    }

    pub(crate) fn own(&self) -> NodeId {
        self.own
    }

    /// Queues messages for a node. False: they are lost.
    pub(crate) fn send(&self, to: NodeId, frame: Vec<u8>) -> bool {
        self.links.send(to, frame.into())
    }

    /// Asks a node to hold a publisher of its own back, or to let it go. False: it cannot be reached.
    pub(crate) fn hold(&self, node: NodeId, publisher: u64, hold: bool) -> bool {
        let control = if hold {
            Control::Hold { publisher }
        } else {
            Control::Release { publisher }
        };
        self.links.send(node, Frame::control(&control))
    }

    /// Whether so much waits to be sent to a node that its publishers are to wait.
    pub(crate) fn is_crowded(&self, node: NodeId) -> bool {
        self.links.queued_bytes(node) > CROWDED
    }

    /// Routes of peers whose lease has ended are not believed any more. Called before anything is routed.
    #[inline]
    pub(crate) fn check_leases(&self, node: &Node, now_ms: u64) {
        if now_ms >= self.valid_until_ms.load(Ordering::Acquire) {
            self.refresh(node, &mut self.inbound.lock(), now_ms);
        }
    }

    /// Tells the route index who may want any message. Returns whether transient publishers need not wait for
    /// any shard that is not known.
    fn refresh(&self, node: &Node, inbound: &mut Inbound, now_ms: u64) -> bool {
        self.import(node, inbound, (self.own, &[]), now_ms)
    }

    /// The same with what a peer has told, at once: no route is taken out before the shard is one that may want
    /// any message, or put in after it is not.
    fn import(
        &self,
        node: &Node,
        inbound: &mut Inbound,
        (from, changes): (NodeId, &[Change]),
        now_ms: u64,
    ) -> bool {
        let shards = node.opened_store().map_or(0, store::Store::inbox_shards);
        let own = |shard| node.routes.exports()?.lock().led(shard);
        let unknown = inbound.imports.unknown(shards, own, now_ms);
        let connected = |peer| (peer, inbound.connected.contains(&peer));
        let forgotten = inbound.cut_off.forget_led(&unknown.shards);
        let was_told = |shard: &ShardNumber| {
            let own = own(*shard).or_else(|| inbound.cut_off.led(*shard));
            inbound.imports.was_told(*shard, own)
        };
        let (cut_off, shards) = if inbound.cut_off.is_now() {
            unknown.shards.into_iter().partition(was_told)
        } else {
            (Vec::new(), unknown.shards)
        };
        let goes_on = !cut_off.is_empty() && shards.is_empty();
        let unsure = Unsure {
            nodes: unknown.nodes.into_iter().map(connected).collect(),
            shards,
            cut_off,
        };
        node.routes.import(from, changes, unsure);
        node.routes.forget_own(&forgotten);
        let valid_until_ms = inbound.imports.valid_until(now_ms);
        self.valid_until_ms.store(valid_until_ms, Ordering::Release);
        goes_on
    }

    /// Whether a live peer may lack a route of this node.
    pub(crate) fn lacks_routes(&self, node: &Node, now_ms: u64) -> bool {
        node.routes.exports().is_some_and(|exports| {
            let exports = exports.lock();
            exports.passed(now_ms) < exports.number()
        })
    }

    /// Whether another node leads a shard, or nobody is known to.
    pub(crate) fn is_led_elsewhere(&self, node: &Node, shard: ShardNumber) -> bool {
        node.store().inbox_leader(shard) != Some(self.own)
    }

    /// A question of a loop is answered when all live peers know this node's routes.
    pub(crate) fn await_routes(&self, node: &Node, index: usize, token: u64) {
        self.wait(node, Waiter::Loop { index, token });
    }

    /// A question of a loop is answered when all live nodes know the routes of a shard.
    pub(crate) fn await_shard(&self, node: &Node, shard: ShardNumber, index: usize, token: u64) {
        self.ask(node, shard, Waiter::Loop { index, token });
    }

    fn wait(&self, node: &Node, waiter: Waiter) {
        if let Some(exports) = node.routes.exports() {
            // Under the lock, so that the numbers do not fall.
            let mut barriers = self.barriers.lock();
            let number = exports.lock().number();
            barriers.wait(number, waiter);
        }
    }

    fn ask(&self, node: &Node, shard: ShardNumber, waiter: Waiter) {
        let leader = node.store().inbox_leader(shard);
        if leader == Some(self.own) {
            return self.wait(node, waiter);
        }
        let now_ms = node.clock.now_ms();
        let token = self.barriers.lock().ask(shard, waiter, leader, now_ms);
        if let Some(leader) = leader {
            let control = Control::Await { shard, token };
            self.links.send(leader, Frame::control(&control));
        }
    }

    /// Sends peers what they have not been told yet.
    pub(crate) fn tell_routes(&self, node: &Node) {
        if let Some(exports) = node.routes.exports() {
            let mut exports = exports.lock();
            let peers: Vec<NodeId> = exports.peers().collect();
            for peer in peers {
                self.tell(node, &mut exports, peer);
            }
        }
    }

    /// Under the lock of the exports, so that batches go in their order, and no beat that is answered is later
    /// than the time.
    fn tell(&self, node: &Node, exports: &mut Exports, peer: NodeId) {
        while let Some(batch) = exports.poll(peer, node.clock.now_ms()) {
            self.links.send(peer, Frame::routes(&Message::Batch(batch)));
        }
    }

    /// Those who waited for routes that all live peers know by now go on.
    pub(crate) fn pass_barriers(&self, node: &Node, now_ms: u64) {
        let Some(exports) = node.routes.exports() else {
            return;
        };
        let passed = exports.lock().passed(now_ms);
        let waiters = self.barriers.lock().passed(passed);
        for waiter in waiters {
            self.go_on(node, waiter);
        }
    }

    fn go_on(&self, node: &Node, waiter: Waiter) {
        match waiter {
            Waiter::Loop { index, token } => {
                if let Some(loops) = node.started_loops() {
                    loops.send(index, Mail::RoutesKnown(token));
                }
            }
            Waiter::Node { node: peer, token } => {
                self.links
                    .send(peer, Frame::control(&Control::Known { token }));
            }
        }
    }

    /// Keeps a copy of a message for a group, until its new node says that it needs none.
    pub(crate) fn keep_copy(&self, node: NodeId, forwarded: &mut Forwarded) {
        self.copies.lock().keep(node, forwarded);
    }

    /// Routes told by others, SUBSCRIBEs that wait, and bytes of messages for groups that are on their way.
    pub(crate) fn figures(&self) -> [u64; 3] {
        let imported = self.inbound.lock().imports.len();
        let waiting = self.barriers.lock().len();
        let copied = self.copies.lock().bytes();
        [imported as u64, waiting as u64, copied as u64]
    }
}
