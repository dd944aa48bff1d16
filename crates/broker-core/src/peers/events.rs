//! What happens to this node because of others: the cluster tells of members, connections and messages, the store of
//! leaders.
//!
//! Nothing here blocks but for the length of a loop's turn, and only when that loop has more to do than its inbox
//! holds.
//!
//! Invariant: what a peer has sent against the protocol changes nothing.

use peer_protocol::{Control, PeerMessage, Violation, place_of};
use route_exchange::{NodeId, ShardNumber};

use super::barriers::Waiter;
use super::event::PeerEvent;
use super::{Links, Peers, ThisNode, splits};

impl<L: Links> Peers<L> {
    /// A message of a member, in their order. `bytes`: its length. What stores say to each other, and bans, are not
    /// for here.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn message(
        &self,
        node: &impl ThisNode,
        from: NodeId,
        message: PeerMessage<'_>,
        bytes: usize,
    ) -> Result<(), Violation> {
        match message {
            PeerMessage::Routes(message) => self.take_routes(node, from, message)?,
            PeerMessage::Publications(publications) => {
                self.take_in(node, from, publications, bytes)
            }
            PeerMessage::Control(control) => self.control_message(node, from, control),
            PeerMessage::Takeover(takeover) => self.takeover_message(node, from, takeover),
            PeerMessage::Store(_) | PeerMessage::Bans(_) => {}
        }
        Ok(())
    }

    /// The other members of the cluster, without those that have left or were evicted. They have to be known
    /// before the first client is let in: who is not known is not waited for, and gets nothing.
    pub fn members(&self, node: &impl ThisNode, others: &[NodeId]) {
        let now_ms = node.now_ms();
        let mut inbound = self.inbound.lock();
        let known: Vec<NodeId> = node
            .routes()
            .exports()
            .map_or_else(Vec::new, |exports| exports.lock().peers().collect());
        for gone in known.iter().filter(|peer| !others.contains(peer)) {
            self.remove(node, &mut inbound, *gone, now_ms);
        }
        for new in others.iter().filter(|peer| !known.contains(peer)) {
            inbound.imports.add_peer(*new);
            if let Some(exports) = node.routes().exports() {
                exports.lock().add_peer(*new, now_ms);
            }
        }
        self.refresh(node, &mut inbound, now_ms);
        drop(inbound);
        self.pass_barriers(node, now_ms);
        for gone in known.iter().filter(|peer| !others.contains(peer)) {
            self.give_copies_to_others(node, *gone);
            self.nothing_to_close(node, *gone);
            self.forget_clients(node, *gone);
        }
    }

    /// The store has been opened. Its shards are unknown until their leaders have told all routes; to be called
    /// before anything is routed.
    pub fn opened(&self, node: &impl ThisNode) {
        self.refresh(node, &mut self.inbound.lock(), node.now_ms());
    }

    /// There is a connection to a member, perhaps anew: what was sent before may be lost. Nothing is to be
    /// sent over it before this returns.
    pub fn connected(&self, node: &impl ThisNode, to: NodeId) {
        let now_ms = node.now_ms();
        let mut inbound = self.inbound.lock();
        inbound.connected.insert(to);
        self.refresh(node, &mut inbound, now_ms);
        self.beat(&inbound, to, now_ms);
        drop(inbound);
        if let Some(exports) = node.routes().exports() {
            let mut exports = exports.lock();
            exports.connected(to);
            self.tell(node, &mut exports, to);
        }
        self.send_copies(to);
        self.ask_to_close_again(to);
        self.tell_clients_again(to);
    }

    /// The connection to a member is gone.
    pub fn disconnected(&self, node: &impl ThisNode, to: NodeId) {
        let mut inbound = self.inbound.lock();
        inbound.connected.remove(&to);
        self.refresh(node, &mut inbound, node.now_ms());
        if let Some(exports) = node.routes().exports() {
            exports.lock().disconnected(to);
        }
        drop(inbound);
        self.do_not_ask(node, to);
        self.tell_loops(node, || PeerEvent::HoldsLost(to));
    }

    /// The connection from a member is gone. What came over it was told before; what comes over the next one
    /// is told after this.
    pub fn lost(&self, node: &impl ThisNode, from: NodeId) {
        let mut inbound = self.inbound.lock();
        inbound.imports.lost(from);
        self.refresh(node, &mut inbound, node.now_ms());
        drop(inbound);
        self.tell_loops(node, || PeerEvent::HoldsLost(from));
    }

    /// There is a connection from a member anew: answers of it may be lost.
    pub fn heard_again(&self, from: NodeId) {
        self.ask_to_close_again(from);
    }

    /// The members that are taken for dead: their clients may have new connections on other nodes at once.
    pub fn down(&self, node: &impl ThisNode, down: &[NodeId]) {
        self.do_not_await(node, down.iter().copied().collect());
    }

    /// A member has been started again: nothing that it had is left.
    pub fn restarted(&self, node: &impl ThisNode, peer: NodeId) {
        self.lost(node, peer);
        self.arrivals.lock().forget(peer);
        self.nothing_to_close(node, peer);
        self.forget_clients(node, peer);
        self.give_copies_to_others(node, peer);
    }

    /// This node leads an inbox shard. All of its routes follow, in the route index, and then [`Self::complete`].
    pub fn lead(&self, node: &impl ThisNode, shard: ShardNumber, term: u64) {
        let Some(exports) = node.routes().exports() else {
            return;
        };
        if exports
            .lock()
            .led(shard)
            .is_some_and(|(led, _)| led == term)
        {
            return;
        }
        let mut inbound = self.inbound.lock();
        let mut before = inbound.cut_off.leads_again(shard);
        before.extend(exports.lock().of_shard(shard).cloned());
        let mut led = exports.lock();
        led.lead(shard, term);
        splits::narrow_led(node, &mut led, shard);
        drop(led);
        self.refresh(node, &mut inbound, node.now_ms());
        node.routes().forget_own(&before);
    }

    /// All routes of a shard that this node leads have been told.
    pub fn complete(&self, node: &impl ThisNode, shard: ShardNumber) {
        if let Some(exports) = node.routes().exports() {
            exports.lock().complete(shard);
        }
        self.refresh(node, &mut self.inbound.lock(), node.now_ms());
        self.tell_routes(node);
    }

    /// This node leads an inbox shard no longer.
    pub fn resign(&self, node: &impl ThisNode, shard: ShardNumber) {
        let mut inbound = self.inbound.lock();
        if let Some(exports) = node.routes().exports() {
            let mut exports = exports.lock();
            if let Some(lead) = exports.led(shard) {
                let routes = exports.of_shard(shard).cloned().collect();
                inbound.cut_off.resigned(shard, lead, routes);
            }
            exports.resign(shard);
        }
        self.refresh(node, &mut inbound, node.now_ms());
        drop(inbound);
        self.tell_routes(node);
    }

    /// What has to be done now and then.
    pub fn tick(&self, node: &impl ThisNode) {
        let now_ms = node.now_ms();
        self.show_rooms(node);
        self.tell_routes(node);
        let mut inbound = self.inbound.lock();
        let hears = inbound.imports.hears_majority(now_ms);
        inbound.cut_off.tick(hears);
        let goes_on = self.refresh(node, &mut inbound, now_ms);
        let connected: Vec<NodeId> = inbound.connected.iter().copied().collect();
        for peer in connected {
            self.beat(&inbound, peer, now_ms);
        }
        drop(inbound);
        if goes_on {
            self.tell_loops(node, || PeerEvent::CutOff);
        }
        self.pass_barriers(node, now_ms);
        self.keep_registered(node, now_ms);
        self.ask_again(node, now_ms);
        self.settle_arrivals();
        for silent in self.silent(node, now_ms) {
            self.give_copies_to_others(node, silent);
        }
    }

    /// Barriers, copies and holds of a peer.
    pub(super) fn control_message(&self, node: &impl ThisNode, from: NodeId, control: Control) {
        match control {
            Control::Await {
                shard,
                correlation_id,
            } => {
                let exports = node.routes().exports();
                let leads = exports.is_some_and(|e| e.lock().led(shard).is_some());
                // Else it asks again, or another node.
                if leads {
                    let waiter = Waiter::Node {
                        node: from,
                        correlation_id,
                    };
                    self.wait(node, waiter);
                    self.tell_routes(node);
                    self.pass_barriers(node, node.now_ms());
                }
            }
            Control::Known { correlation_id } => {
                let waiter = self.barriers.lock().answered(from, correlation_id);
                if let Some(waiter) = waiter {
                    self.go_on(node, waiter);
                }
            }
            Control::Settled { copies } => self.copies.lock().settle(from, &copies),
            Control::Hold { publisher } => {
                self.tell_publisher(node, publisher, |publisher| {
                    PeerEvent::HoldFor(from, publisher)
                });
            }
            Control::Release { publisher } => {
                let release = |publisher| PeerEvent::ReleaseFor(from, publisher);
                self.tell_publisher(node, publisher, release);
            }
        }
    }

    /// Another node holds a publisher back, or lets it go.
    fn tell_publisher(
        &self,
        node: &impl ThisNode,
        publisher: u64,
        event: impl FnOnce(u64) -> PeerEvent,
    ) {
        if let Some((index, _)) = place_of(publisher)
            && index < node.loops()
        {
            node.tell_loop(index, event(publisher));
        }
    }

    fn tell_loops(&self, node: &impl ThisNode, event: impl Fn() -> PeerEvent) {
        for index in 0..node.loops() {
            node.tell_loop(index, event());
        }
    }
}
