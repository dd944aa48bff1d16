//! The frames that a loop makes for other nodes in a turn.

use std::sync::Arc;

use mqtt_session::ApplicationMessage;
use net_api::ConnectionId;
use peer_protocol::PublicationsFrame;
use route_exchange::NodeId;

use crate::clients::io::LoopIo;
use crate::clients::timer::Timer;
use crate::node::Node;
use crate::rim::Rim;

/// How soon connections that wait for other nodes look again.
const PEERS_RETRY_MS: u64 = 2;

/// What a loop sends to other nodes.
#[derive(Debug, Default)]
pub(crate) struct Forwarding {
    pub(super) frames: Vec<Outgoing>,
    /// A message that is being encoded; empty between calls.
    pub(super) encoded: Vec<u8>,
    /// The mail that ends the turn is on its way.
    pub(super) flushes: bool,
    /// Nodes that too much is on its way to.
    pub(super) crowded: Vec<NodeId>,
    /// Connections that are not read because of that.
    waiting: Vec<ConnectionId>,
}

/// A frame for a node.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) to: NodeId,
    pub(super) messages: PublicationsFrame,
    /// Messages in it that the node wants, and that nobody keeps a copy of.
    pub(super) lost_with_it: Vec<Arc<ApplicationMessage>>,
}

impl Forwarding {
    pub(super) fn frame(&mut self, to: NodeId, from_loop: usize) -> &mut Outgoing {
        let at = self.frames.iter().position(|frame| frame.to == to);
        let at = at.unwrap_or_else(|| {
            self.frames.push(Outgoing {
                to,
                messages: PublicationsFrame::new(from_loop),
                lost_with_it: Vec::new(),
            });
            self.frames.len() - 1
        });
        &mut self.frames[at]
    }

    /// Whether a node is crowded still.
    pub(super) fn is_crowded<R: Rim>(&mut self, node: &Node<R>) -> bool {
        self.crowded
            .retain(|to| node.peers().is_some_and(|peers| peers.is_crowded(*to)));
        !self.crowded.is_empty()
    }

    /// Whether a connection has to wait for other nodes; it is resumed when it need not any more.
    pub(crate) fn wait<R: Rim>(
        &mut self,
        io: &mut impl LoopIo,
        node: &Node<R>,
        connection: ConnectionId,
    ) -> bool {
        if !self.is_crowded(node) {
            return false;
        }
        if self.waiting.is_empty() {
            io.arm(io.now_ms() + PEERS_RETRY_MS, Timer::Peers.to_bits());
        }
        self.waiting.push(connection);
        true
    }

    /// Takes out the connections that waited and may go on, if other nodes can take more.
    pub(crate) fn take_waiting<R: Rim>(
        &mut self,
        io: &mut impl LoopIo,
        node: &Node<R>,
    ) -> Vec<ConnectionId> {
        if self.is_crowded(node) {
            io.arm(io.now_ms() + PEERS_RETRY_MS, Timer::Peers.to_bits());
            return Vec::new();
        }
        std::mem::take(&mut self.waiting)
    }
}
