//! Messages of clients: those of other nodes that are for sessions here, and those for members of shared groups on other
//! nodes, which are kept until they have arrived.

use peer_protocol::{Control, Forwarded, Publications, PublicationsFrame};
use route_exchange::NodeId;

use super::event::PeerEvent;
use super::{Links, Peers, ThisNode};

impl<L: Links> Peers<L> {
    /// Keeps a copy of a message for a group, until its new node says that it needs none.
    pub(crate) fn keep_copy(&self, node: NodeId, forwarded: &mut Forwarded) {
        self.copies.lock().keep(node, forwarded);
    }

    /// Messages of a peer go to one loop for each of its loops, so that they stay in their order.
    pub(super) fn take_in(
        &self,
        node: &impl ThisNode,
        from: NodeId,
        mut publications: Publications,
        bytes: usize,
    ) {
        if !node.loops_run() {
            // There are no sessions yet.
            return;
        }
        let slot = node.routes().slot_of(from);
        for forwarded in &mut publications.messages {
            forwarded.came_from(slot);
        }
        let mut arrivals = self.arrivals.lock();
        let is_new = |forwarded: &Forwarded| {
            let copy = forwarded.copy();
            copy.is_none_or(|copy| arrivals.note(from, copy, &forwarded.message))
        };
        publications.messages.retain(is_new);
        drop(arrivals);
        let to = usize::from(publications.from_loop) % node.loops();
        let messages = publications.messages;
        node.tell_loop(
            to,
            PeerEvent::Publications {
                from,
                messages,
                bytes,
            },
        );
    }

    /// Tells others which messages of theirs need no copy any more.
    pub(super) fn settle_arrivals(&self) {
        self.arrivals
            .lock()
            .settle(|origin, copies| self.send(origin, Control::Settled { copies }));
    }

    /// A new connection: what was on its way to members there may be lost.
    pub(super) fn send_copies(&self, to: NodeId) {
        let copies = self.copies.lock().of(to);
        let mut frame = PublicationsFrame::new(0);
        for copy in &copies {
            frame.push(copy);
            if frame.is_full() {
                let full = std::mem::replace(&mut frame, PublicationsFrame::new(0));
                self.forward(to, full);
            }
        }
        if !copies.is_empty() {
            self.forward(to, frame);
        }
    }

    /// A node is gone: other members get what was on its way to members there. No lock may be held: mail may
    /// be worked off on the spot, by this thread.
    pub(super) fn give_copies_to_others(&self, node: &impl ThisNode, gone: NodeId) {
        let copies = self.copies.lock().take(gone);
        if !copies.is_empty() {
            node.tell_loop(0, PeerEvent::Undelivered { gone, copies });
        }
    }
}
