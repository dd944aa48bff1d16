//! Client identifiers that are taken over from other nodes (P5).
//!
//! A connection that has claimed its identifier has the node close the older one that had it, and waits for the
//! answer: by then everything is settled that came on the older one. A node that is down is not waited for. It
//! is told when it is back, if it is still the same process.
//!
//! Deliberately absent: which connection is the later one, which the epochs of the session store say; the
//! closing (`connect/takeover.rs`).

use std::collections::BTreeSet;

use mqtt_proto::PacketId;
use mqtt_session::PacketIdSet;
use peer_protocol::{Asker, Older, Takeover};
use route_exchange::NodeId;
use store_state::api::Store;
use store_state::session::TakenFrom;

use super::event::PeerEvent;
use super::takeovers::{Question, Waiter};
use super::{Links, Peers, ThisNode};

impl<L: Links> Peers<L> {
    /// Has other nodes close older connections of a client. A question of a loop gets a
    /// [`PeerEvent::ClosedElsewhere`] for each node that is waited for; returns the numbers of these questions.
    pub(crate) fn close_elsewhere(
        &self,
        node: &impl ThisNode,
        from: TakenFrom,
        older: &Older,
        (index, token): (usize, u64),
    ) -> Vec<u64> {
        let nodes: Vec<NodeId> = node
            .routes()
            .exports()
            .map_or_else(Vec::new, |exports| exports.lock().peers().collect());
        let may_have = |peer: &NodeId| match from {
            TakenFrom::Nobody => false,
            TakenFrom::Node { node, .. } => node == *peer,
            TakenFrom::Unknown => true,
        };
        let mut takeovers = self.takeovers.lock();
        let mut awaited = Vec::new();
        for peer in nodes.into_iter().filter(may_have) {
            let question = Question {
                node: peer,
                what: older.clone(),
            };
            let (correlation_id, is_waited_for) = takeovers.ask(question, Waiter { index, token });
            if is_waited_for {
                awaited.push(correlation_id);
            }
            let what = older.clone();
            // Not sent: it is sent when there is a connection.
            let close = Takeover::Close {
                correlation_id,
                what,
            };
            self.send(peer, close);
        }
        awaited
    }

    /// A loop waits for the answers to these questions no longer.
    pub(crate) fn stop_awaiting(&self, questions: &[u64]) {
        self.takeovers.lock().stop_awaiting(questions);
    }

    /// Has a node close older connections of a client; nobody waits for it.
    pub(crate) fn have_closed(&self, node: &impl ThisNode, peer: NodeId, what: Older) {
        if peer == node.store().node() {
            let asker = Asker {
                node: peer,
                correlation_id: 0,
            };
            return self.close_here(node, asker, what);
        }
        let mut takeovers = self.takeovers.lock();
        let number = takeovers.next();
        let question = Question {
            node: peer,
            what: what.clone(),
        };
        takeovers.owe(number, question);
        let close = Takeover::Close {
            correlation_id: number,
            what,
        };
        self.send(peer, close);
    }

    fn close_here(&self, node: &impl ThisNode, asker: Asker, what: Older) {
        if node.loops_run() {
            let to = node.home_loop_of(&what.client).unwrap_or(0);
            node.tell_loop(to, PeerEvent::CloseOlder(asker, what));
        } else {
            // There are no connections yet.
            self.tell_closed(asker, &PacketIdSet::new());
        }
    }

    /// Older connections that a node has asked for are closed.
    pub(crate) fn tell_closed(&self, to: Asker, unreleased: &PacketIdSet) {
        let closed = Takeover::Closed {
            correlation_id: to.correlation_id,
            unreleased: unreleased.iter().map(PacketId::get).collect(),
        };
        // Not sent: it is asked again when there is a connection.
        self.send(to.node, closed);
    }

    /// A message about takeovers.
    pub(super) fn takeover_message(&self, node: &impl ThisNode, from: NodeId, message: Takeover) {
        match message {
            Takeover::Close {
                correlation_id,
                what,
            } => {
                let asker = Asker {
                    node: from,
                    correlation_id,
                };
                self.close_here(node, asker, what);
            }
            Takeover::Closed {
                correlation_id,
                unreleased,
            } => {
                let waiter = self.takeovers.lock().answered(from, correlation_id);
                let unreleased = unreleased.into_iter().filter_map(PacketId::new).collect();
                go_on(node, waiter, Some((from, unreleased)));
            }
            Takeover::Directory(message) => self.directory_message(node, from, message),
        }
    }

    /// What was sent to a node, or what it has answered, may be lost.
    pub(super) fn ask_to_close_again(&self, peer: NodeId) {
        let open = self.takeovers.lock().open(peer);
        for message in open {
            self.send(peer, message);
        }
    }

    /// A node has no connections of which it was asked before.
    pub(super) fn nothing_to_close(&self, node: &impl ThisNode, peer: NodeId) {
        let waiters = self.takeovers.lock().gone(peer);
        go_on(node, waiters, None);
    }

    /// Nodes that are down are not waited for.
    pub(super) fn do_not_await(&self, node: &impl ThisNode, down: BTreeSet<NodeId>) {
        let waiters = self.takeovers.lock().down(down);
        go_on(node, waiters, None);
    }
}

fn go_on(
    node: &impl ThisNode,
    waiters: impl IntoIterator<Item = Waiter>,
    told: Option<(NodeId, PacketIdSet)>,
) {
    for Waiter { index, token } in waiters {
        node.tell_loop(index, PeerEvent::ClosedElsewhere(token, told.clone()));
    }
}
