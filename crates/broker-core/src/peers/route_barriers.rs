//! SUBSCRIBEs wait until all live nodes know their routes (P3): those of this node, and those of the leader of a shard.

use peer_protocol::Control;
use route_exchange::ShardNumber;
use store_state::api::Store;

use super::barriers::Waiter;
use super::event::PeerEvent;
use super::{Links, Peers, ThisNode};

impl<L: Links> Peers<L> {
    /// Whether another node leads a shard, or nobody is known to.
    pub(crate) fn is_led_elsewhere(&self, node: &impl ThisNode, shard: ShardNumber) -> bool {
        node.store().inbox_leader(shard) != Some(self.own)
    }

    /// A question of a loop is answered when all live peers know this node's routes.
    pub(crate) fn await_routes(&self, node: &impl ThisNode, index: usize, token: u64) {
        self.wait(node, Waiter::Loop { index, token });
    }

    /// A question of a loop is answered when all live nodes know the routes of a shard.
    pub(crate) fn await_shard(
        &self,
        node: &impl ThisNode,
        shard: ShardNumber,
        index: usize,
        token: u64,
    ) {
        self.ask(node, shard, Waiter::Loop { index, token });
    }

    pub(super) fn wait(&self, node: &impl ThisNode, waiter: Waiter) {
        if let Some(exports) = node.routes().exports() {
            // Under the lock, so that the numbers do not fall.
            let mut barriers = self.barriers.lock();
            let number = exports.lock().number();
            barriers.wait(number, waiter);
        }
    }

    fn ask(&self, node: &impl ThisNode, shard: ShardNumber, waiter: Waiter) {
        let leader = node.store().inbox_leader(shard);
        if leader == Some(self.own) {
            return self.wait(node, waiter);
        }
        let now_ms = node.now_ms();
        let correlation_id = self.barriers.lock().ask(shard, waiter, leader, now_ms);
        if let Some(leader) = leader {
            let control = Control::Await {
                shard,
                correlation_id,
            };
            self.send(leader, control);
        }
    }

    /// Those who waited for routes that all live peers know by now go on.
    pub(super) fn pass_barriers(&self, node: &impl ThisNode, now_ms: u64) {
        let Some(exports) = node.routes().exports() else {
            return;
        };
        let passed = exports.lock().passed(now_ms);
        let waiters = self.barriers.lock().passed(passed);
        for waiter in waiters {
            self.go_on(node, waiter);
        }
    }

    pub(super) fn go_on(&self, node: &impl ThisNode, waiter: Waiter) {
        match waiter {
            Waiter::Loop { index, token } => {
                node.tell_loop(index, PeerEvent::RoutesKnown(token));
            }
            Waiter::Node {
                node: peer,
                correlation_id,
            } => {
                self.send(peer, Control::Known { correlation_id });
            }
        }
    }

    pub(super) fn ask_again(&self, node: &impl ThisNode, now_ms: u64) {
        let Some(store) = node.opened_store() else {
            return;
        };
        let leader = |shard| store.inbox_leader(shard);
        let unanswered = self.barriers.lock().take_unanswered(leader, now_ms);
        for asked in unanswered {
            self.ask(node, asked.shard, asked.waiter);
        }
    }
}
