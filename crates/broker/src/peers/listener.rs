//! What the cluster tells the broker: members, connections, and what comes over these.

use std::sync::Arc;

use route_exchange::{Malformed, Message, NodeId, ShardNumber};

use super::barriers::Waiter;
use super::frame::{Control, Forwarded, Frame, Messages, begin_messages};
use super::{Inbound, Peers, takeover};
use crate::client_loop::Mail;
use crate::key;
use crate::node::Node;

/// How often [`PeerListener::tick`] is called, in ms.
pub(crate) const TICK_MS: u64 = 250;

/// Bytes of a frame of messages that are sent again.
const FRAME_BYTES: usize = 256 * 1024;

/// The broker, as the cluster sees it. Nothing here blocks but for the length of a loop's turn, and only when
/// that loop has too much mail.
#[derive(Clone, Debug)]
pub struct PeerListener {
    node: Arc<Node>,
}

impl PeerListener {
    /// For a node that [`Peers::join`] was called for; for others, nothing is done.
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// The other members of the cluster, without those that have left or were evicted. They have to be known
    /// before the first client is let in: who is not known is not waited for, and gets nothing.
    pub fn members(&self, others: &[NodeId]) {
        self.with_peers(|node, peers| {
            let now_ms = node.clock.now_ms();
            let mut inbound = peers.inbound.lock();
            let known: Vec<NodeId> = node
                .routes
                .exports()
                .map_or_else(Vec::new, |exports| exports.lock().peers().collect());
            for gone in known.iter().filter(|peer| !others.contains(peer)) {
                peers.remove(node, &mut inbound, *gone, now_ms);
            }
            for new in others.iter().filter(|peer| !known.contains(peer)) {
                inbound.imports.add_peer(*new);
                if let Some(exports) = node.routes.exports() {
                    exports.lock().add_peer(*new, now_ms);
                }
            }
            peers.refresh(node, &mut inbound, now_ms);
            drop(inbound);
            peers.pass_barriers(node, now_ms);
            for gone in known.iter().filter(|peer| !others.contains(peer)) {
                peers.give_copies_to_others(node, *gone);
                peers.nothing_to_close(node, *gone);
                peers.forget_clients(node, *gone);
            }
        });
    }

    /// The store has been opened. Its shards are unknown until their leaders have told all routes; to be called
    /// before anything is routed.
    pub(crate) fn opened(&self) {
        self.with_peers(|node, peers| {
            peers.refresh(node, &mut peers.inbound.lock(), node.clock.now_ms());
        });
    }

    /// There is a connection to a member, perhaps anew: what was sent before may be lost. Nothing is to be
    /// sent over it before this returns.
    pub fn connected(&self, to: NodeId) {
        self.with_peers(|node, peers| {
            let now_ms = node.clock.now_ms();
            let mut inbound = peers.inbound.lock();
            inbound.connected.insert(to);
            peers.refresh(node, &mut inbound, now_ms);
            peers.beat(&inbound, to, now_ms);
            drop(inbound);
            if let Some(exports) = node.routes.exports() {
                let mut exports = exports.lock();
                exports.connected(to);
                peers.tell(node, &mut exports, to);
            }
            peers.send_copies(to);
            peers.ask_to_close_again(to);
            peers.tell_clients_again(to);
        });
    }

    /// The connection to a member is gone.
    pub fn disconnected(&self, to: NodeId) {
        self.with_peers(|node, peers| {
            let mut inbound = peers.inbound.lock();
            inbound.connected.remove(&to);
            peers.refresh(node, &mut inbound, node.clock.now_ms());
            if let Some(exports) = node.routes.exports() {
                exports.lock().disconnected(to);
            }
            drop(inbound);
            peers.do_not_ask(node, to);
            peers.forget_holds(node, to);
        });
    }

    /// The connection from a member is gone. What came over it was told before; what comes over the next one
    /// is told after this.
    pub fn lost(&self, from: NodeId) {
        self.with_peers(|node, peers| {
            let mut inbound = peers.inbound.lock();
            inbound.imports.lost(from);
            peers.refresh(node, &mut inbound, node.clock.now_ms());
            drop(inbound);
            peers.forget_holds(node, from);
        });
    }

    /// There is a connection from a member anew: answers of it may be lost.
    pub fn heard_again(&self, from: NodeId) {
        self.with_peers(|_, peers| peers.ask_to_close_again(from));
    }

    /// The members that are taken for dead: their clients may have new connections on other nodes at once.
    pub fn down(&self, down: &[NodeId]) {
        self.with_peers(|node, peers| peers.do_not_await(node, down.iter().copied().collect()));
    }

    /// A member has been started again: nothing that it had is left.
    pub fn restarted(&self, peer: NodeId) {
        self.lost(peer);
        self.with_peers(|node, peers| {
            peers.arrivals.lock().forget(peer);
            peers.nothing_to_close(node, peer);
            peers.forget_clients(node, peer);
            peers.give_copies_to_others(node, peer);
        });
    }

    /// Bytes of a member, in their order.
    ///
    /// # Errors
    /// They make no sense: the connection is to be broken.
    pub fn message(&self, from: NodeId, bytes: &[u8]) -> Result<(), Malformed> {
        let Some(peers) = self.node.peers() else {
            return Ok(());
        };
        let node = &*self.node;
        if let [takeover::FORMAT, rest @ ..] = bytes {
            return peers.takeover_message(node, from, rest);
        }
        match Frame::decode(bytes)? {
            Frame::Routes(Message::Batch(batch)) => {
                let mut inbound = peers.inbound.lock();
                let changes = inbound.imports.apply(from, batch)?;
                peers.import(node, &mut inbound, (from, &changes), node.clock.now_ms());
                let state = inbound.imports.state(from, None);
                let frame = Frame::routes(&Message::State(state));
                peers.links.send(from, frame);
            }
            Frame::Routes(Message::State(state)) => {
                let now_ms = node.clock.now_ms();
                if let Some(exports) = node.routes.exports() {
                    let mut exports = exports.lock();
                    exports.handle_state(from, &state)?;
                    peers.tell(node, &mut exports, from);
                }
                peers.pass_barriers(node, now_ms);
            }
            Frame::Messages(messages) => peers.take_in(node, from, messages, bytes.len()),
            Frame::Control(Control::Await { shard, token }) => {
                let exports = node.routes.exports();
                let leads = exports.is_some_and(|e| e.lock().led(shard).is_some());
                // Else it asks again, or another node.
                if leads {
                    peers.wait(node, Waiter::Node { node: from, token });
                    peers.tell_routes(node);
                    peers.pass_barriers(node, node.clock.now_ms());
                }
            }
            Frame::Control(Control::Known { token }) => {
                let waiter = peers.barriers.lock().answered(from, token);
                if let Some(waiter) = waiter {
                    peers.go_on(node, waiter);
                }
            }
            Frame::Control(Control::Settled { copies }) => {
                peers.copies.lock().settle(from, &copies);
            }
            Frame::Control(Control::Hold { publisher }) => {
                peers.tell_publisher(node, publisher, |publisher| Mail::HoldFor(from, publisher));
            }
            Frame::Control(Control::Release { publisher }) => {
                peers.tell_publisher(node, publisher, |publisher| {
                    Mail::ReleaseFor(from, publisher)
                });
            }
        }
        Ok(())
    }

    /// This node leads an inbox shard. All of its routes follow, by [`store::Listener`], and then
    /// [`PeerListener::complete`].
    pub fn lead(&self, shard: ShardNumber, term: u64) {
        self.with_peers(|node, peers| {
            let Some(exports) = node.routes.exports() else {
                return;
            };
            if exports
                .lock()
                .led(shard)
                .is_some_and(|(led, _)| led == term)
            {
                return;
            }
            let mut inbound = peers.inbound.lock();
            let mut before = inbound.cut_off.leads_again(shard);
            before.extend(exports.lock().of_shard(shard).cloned());
            exports.lock().lead(shard, term);
            peers.refresh(node, &mut inbound, node.clock.now_ms());
            node.routes.forget_own(&before);
        });
    }

    /// All routes of a shard that this node leads have been told.
    pub fn complete(&self, shard: ShardNumber) {
        self.with_peers(|node, peers| {
            if let Some(exports) = node.routes.exports() {
                exports.lock().complete(shard);
            }
            peers.refresh(node, &mut peers.inbound.lock(), node.clock.now_ms());
            peers.tell_routes(node);
        });
    }

    /// This node leads an inbox shard no longer.
    pub fn resign(&self, shard: ShardNumber) {
        self.with_peers(|node, peers| {
            let mut inbound = peers.inbound.lock();
            if let Some(exports) = node.routes.exports() {
                let mut exports = exports.lock();
                if let Some(lead) = exports.led(shard) {
                    let routes = exports.of_shard(shard).cloned().collect();
                    inbound.cut_off.resigned(shard, lead, routes);
                }
                exports.resign(shard);
            }
            peers.refresh(node, &mut inbound, node.clock.now_ms());
            drop(inbound);
            peers.tell_routes(node);
        });
    }

    /// What has to be done now and then.
    pub(crate) fn tick(&self) {
        self.with_peers(|node, peers| {
            let now_ms = node.clock.now_ms();
            peers.show_rooms(node);
            peers.tell_routes(node);
            let mut inbound = peers.inbound.lock();
            let hears = inbound.imports.hears_majority(now_ms);
            inbound.cut_off.tick(hears);
            let goes_on = peers.refresh(node, &mut inbound, now_ms);
            let connected: Vec<NodeId> = inbound.connected.iter().copied().collect();
            for peer in connected {
                peers.beat(&inbound, peer, now_ms);
            }
            drop(inbound);
            if goes_on {
                peers.tell_loops(node, || Mail::CutOff);
            }
            peers.pass_barriers(node, now_ms);
            peers.keep_registered(node, now_ms);
            peers.ask_again(node, now_ms);
            peers.settle_arrivals();
            for silent in peers.silent(node, now_ms) {
                peers.give_copies_to_others(node, silent);
            }
        });
    }

    fn with_peers(&self, f: impl FnOnce(&Node, &Peers)) {
        if let Some(peers) = self.node.peers() {
            f(&self.node, peers);
        }
    }
}

impl Peers {
    /// Tells a peer what has been applied, and that this node lives.
    fn beat(&self, inbound: &Inbound, peer: NodeId, now_ms: u64) {
        let state = inbound.imports.state(peer, Some(now_ms));
        self.links.send(peer, Frame::routes(&Message::State(state)));
    }

    /// Messages of a peer go to one loop for each of its loops, so that they stay in their order.
    fn take_in(&self, node: &Node, from: NodeId, mut messages: Messages, bytes: usize) {
        let Some(loops) = node.started_loops() else {
            // There are no sessions yet.
            return;
        };
        let slot = node.routes.slot_of(from);
        for forwarded in &mut messages.messages {
            forwarded.came_from(slot);
        }
        let mut arrivals = self.arrivals.lock();
        let is_new = |forwarded: &Forwarded| {
            let copy = forwarded.copy();
            copy.is_none_or(|copy| arrivals.note(from, copy, &forwarded.message))
        };
        messages.messages.retain(is_new);
        drop(arrivals);
        let to = usize::from(messages.from_loop) % loops.loops();
        let messages = messages.messages;
        loops.send(
            to,
            Mail::FromPeer {
                from,
                messages,
                bytes,
            },
        );
    }

    /// Another node holds a publisher back, or lets it go.
    fn tell_publisher(&self, node: &Node, publisher: u64, mail: impl FnOnce(u64) -> Mail) {
        if let Some(loops) = node.started_loops()
            && let Some((index, _)) = key::place_of(publisher)
            && index < loops.loops()
        {
            loops.send(index, mail(publisher));
        }
    }

    /// What was said to a node, or by it, of publishers that are held back may be lost.
    fn forget_holds(&self, node: &Node, peer: NodeId) {
        self.tell_loops(node, || Mail::HoldsLost(peer));
    }

    fn tell_loops(&self, node: &Node, mail: impl Fn() -> Mail) {
        if let Some(loops) = node.started_loops() {
            for index in 0..loops.loops() {
                loops.send(index, mail());
            }
        }
    }

    /// A member is none any more.
    fn remove(&self, node: &Node, inbound: &mut Inbound, peer: NodeId, now_ms: u64) {
        let ends = inbound.imports.remove_peer(peer);
        inbound.connected.remove(&peer);
        self.import(node, inbound, (peer, &ends), now_ms);
        node.routes.forget_node(peer);
        if let Some(exports) = node.routes.exports() {
            exports.lock().remove_peer(peer);
        }
        self.arrivals.lock().forget(peer);
    }

    /// Tells others how many members of groups have room.
    fn show_rooms(&self, node: &Node) {
        let groups = node.routes.groups();
        if let Some(exports) = node.routes.exports() {
            let mut exports = exports.lock();
            for group in groups {
                exports.show_room(group.filter(), group.room());
            }
        }
    }

    fn ask_again(&self, node: &Node, now_ms: u64) {
        let Some(store) = node.opened_store() else {
            return;
        };
        let leader = |shard| store.inbox_leader(shard);
        let unanswered = self.barriers.lock().take_unanswered(leader, now_ms);
        for asked in unanswered {
            self.ask(node, asked.shard, asked.waiter);
        }
    }

    /// Tells others which messages of theirs need no copy any more.
    fn settle_arrivals(&self) {
        self.arrivals.lock().settle(|origin, copies| {
            let frame = Frame::control(&Control::Settled { copies });
            self.links.send(origin, frame)
        });
    }

    fn silent(&self, node: &Node, now_ms: u64) -> Vec<NodeId> {
        node.routes.exports().map_or_else(Vec::new, |exports| {
            let exports = exports.lock();
            let silent = |peer: &NodeId| exports.is_silent(*peer, now_ms);
            exports.peers().filter(silent).collect()
        })
    }

    /// A new connection: what was on its way to members there may be lost.
    fn send_copies(&self, to: NodeId) {
        let copies = self.copies.lock().of(to);
        let mut frame = begin_messages(0);
        for copy in &copies {
            frame = copy.append(frame);
            if frame.len() >= FRAME_BYTES {
                self.send(to, std::mem::replace(&mut frame, begin_messages(0)));
            }
        }
        if !copies.is_empty() {
            self.send(to, frame);
        }
    }

    /// A node is gone: other members get what was on its way to members there. No lock may be held: mail may
    /// be worked off on the spot, by this thread.
    fn give_copies_to_others(&self, node: &Node, gone: NodeId) {
        let copies = self.copies.lock().take(gone);
        if let Some(loops) = node.started_loops().filter(|_| !copies.is_empty()) {
            loops.send(0, Mail::Undelivered { gone, copies });
        }
    }
}
