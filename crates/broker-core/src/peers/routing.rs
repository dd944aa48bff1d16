//! Routes: those of other nodes, for as long as they are believed, and what the others are told of this node's.

use std::sync::atomic::Ordering;

use peer_protocol::Violation;
use route_exchange::{Change, Exports, Message, NodeId, ShardNumber};
use store_state::api::Store;

use super::{Inbound, Links, Peers, ThisNode, splits};
use crate::routes::RoutesUnknown;

impl<L: Links> Peers<L> {
    /// Routes of peers whose lease has ended are not believed any more. Called before anything is routed.
    #[inline]
    pub fn check_leases(&self, node: &impl ThisNode, now_ms: u64) {
        if now_ms >= self.valid_until_ms.load(Ordering::Acquire) {
            self.refresh(node, &mut self.inbound.lock(), now_ms);
        }
    }

    /// Tells the route index who may want any message. Returns whether transient publishers need not wait for
    /// any shard that is not known.
    pub(super) fn refresh(&self, node: &impl ThisNode, inbound: &mut Inbound, now_ms: u64) -> bool {
        self.import(node, inbound, (self.own, &[]), now_ms)
    }

    /// The same with what a peer has told, at once: no route is taken out before the shard is one that may want
    /// any message, or put in after it is not.
    pub(super) fn import(
        &self,
        node: &impl ThisNode,
        inbound: &mut Inbound,
        (from, changes): (NodeId, &[Change]),
        now_ms: u64,
    ) -> bool {
        let all = node
            .opened_store()
            .map(Store::inbox_shards)
            .unwrap_or_default();
        let known = splits::routed(node, inbound, &all, now_ms);
        let numbers: Vec<ShardNumber> = known.iter().map(|shard| shard.number).collect();
        let own = |shard| node.routes().exports()?.lock().led(shard);
        let unknown = inbound.imports.unknown(&numbers, own, now_ms);
        let connected = |peer| (peer, inbound.connected.contains(&peer));
        let forgotten = inbound.cut_off.forget_led(&unknown.shards);
        let is_not_awaited = |shard: &ShardNumber| {
            let own = own(*shard).or_else(|| inbound.cut_off.led(*shard));
            inbound.cut_off.is_since_start() || inbound.imports.was_told(*shard, own)
        };
        let (cut_off, shards) = if inbound.cut_off.is_now() {
            unknown.shards.into_iter().partition(is_not_awaited)
        } else {
            (Vec::new(), unknown.shards)
        };
        let goes_on = !cut_off.is_empty() && shards.is_empty();
        let unsure = RoutesUnknown {
            nodes: unknown.nodes.into_iter().map(connected).collect(),
            shards,
            cut_off,
        };
        node.routes().import(from, changes, unsure, &known);
        splits::narrow(node, &all, &known);
        node.routes().forget_own(&forgotten);
        let valid_until_ms = inbound.imports.valid_until(now_ms);
        self.valid_until_ms.store(valid_until_ms, Ordering::Release);
        goes_on
    }

    /// Whether this node is cut off from most others and has heard no majority since its start: it routes what
    /// transient sessions publish by the subscriptions of its own clients alone.
    pub fn lacks_quorum_since_start(&self) -> bool {
        self.inbound.lock().cut_off.is_since_start()
    }

    /// Whether a live peer may lack a route of this node.
    pub(crate) fn lacks_routes(&self, node: &impl ThisNode, now_ms: u64) -> bool {
        node.routes().exports().is_some_and(|exports| {
            let exports = exports.lock();
            exports.passed(now_ms) < exports.number()
        })
    }

    /// Sends peers what they have not been told yet.
    pub(crate) fn tell_routes(&self, node: &impl ThisNode) {
        if let Some(exports) = node.routes().exports() {
            let mut exports = exports.lock();
            let peers: Vec<NodeId> = exports.peers().collect();
            for peer in peers {
                self.tell(node, &mut exports, peer);
            }
        }
    }

    /// Under the lock of the exports, so that batches go in their order, and no beat that is answered is later
    /// than the time.
    pub(super) fn tell(&self, node: &impl ThisNode, exports: &mut Exports, peer: NodeId) {
        while let Some(batch) = exports.poll(peer, node.now_ms()) {
            self.send(peer, Message::Batch(batch));
        }
    }

    /// Routes of a peer, or what it knows of those of this node.
    pub(super) fn take_routes(
        &self,
        node: &impl ThisNode,
        from: NodeId,
        message: Message,
    ) -> Result<(), Violation> {
        match message {
            Message::Batch(batch) => {
                splits::learn(node, &batch.routes);
                let mut inbound = self.inbound.lock();
                let changes = inbound.imports.apply(from, batch)?;
                self.import(node, &mut inbound, (from, &changes), node.now_ms());
                let state = inbound.imports.state(from, None);
                self.send(from, Message::State(state));
            }
            Message::State(state) => {
                let now_ms = node.now_ms();
                if let Some(exports) = node.routes().exports() {
                    let mut exports = exports.lock();
                    exports.handle_state(from, &state)?;
                    self.tell(node, &mut exports, from);
                }
                self.pass_barriers(node, now_ms);
            }
        }
        Ok(())
    }

    /// Tells a peer what has been applied, and that this node lives.
    pub(super) fn beat(&self, inbound: &Inbound, peer: NodeId, now_ms: u64) {
        let state = inbound.imports.state(peer, Some(now_ms));
        self.send(peer, Message::State(state));
    }

    /// A member is none any more.
    pub(super) fn remove(
        &self,
        node: &impl ThisNode,
        inbound: &mut Inbound,
        peer: NodeId,
        now_ms: u64,
    ) {
        let ends = inbound.imports.remove_peer(peer);
        inbound.connected.remove(&peer);
        self.import(node, inbound, (peer, &ends), now_ms);
        node.routes().forget_node(peer);
        if let Some(exports) = node.routes().exports() {
            exports.lock().remove_peer(peer);
        }
        self.arrivals.lock().forget(peer);
    }

    /// Tells others how many members of groups have room.
    pub(super) fn show_rooms(&self, node: &impl ThisNode) {
        let groups = node.routes().groups();
        if let Some(exports) = node.routes().exports() {
            let mut exports = exports.lock();
            for group in groups {
                exports.show_room(group.filter(), group.room());
            }
        }
    }

    pub(super) fn silent(&self, node: &impl ThisNode, now_ms: u64) -> Vec<NodeId> {
        node.routes().exports().map_or_else(Vec::new, |exports| {
            let exports = exports.lock();
            let silent = |peer: &NodeId| exports.is_silent(*peer, now_ms);
            exports.peers().filter(silent).collect()
        })
    }
}
