//! The other nodes that this one has links to.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::members::list::Place;
use crate::protocol::channel::Channel;
use crate::protocol::frame::{FRAME_LIMIT, Frame};
use crate::state::peer::Peer;

#[derive(Debug, Default)]
pub(crate) struct Peers(RwLock<HashMap<u64, Arc<Peer>>>);

impl Peers {
    pub(crate) fn get(&self, node: u64) -> Option<Arc<Peer>> {
        self.0.read().get(&node).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Peer>> {
        self.0.read().values().cloned().collect()
    }

    /// From any thread. `false`: it is not sent.
    pub(crate) fn send(&self, to: u64, channel: Channel, frame: Frame) -> bool {
        if !is_sendable(channel, &frame) {
            return false;
        }
        let peers = self.0.read();
        peers
            .get(&to)
            .is_some_and(|peer| peer.link(channel).outbox.push(frame))
    }

    /// The same, but the calling thread may write the frame itself; see `Outbox::push_or_write`.
    pub(crate) fn send_at_once(&self, to: u64, channel: Channel, frame: Frame) -> bool {
        // No lock of the list is held during the system call.
        let peer = self.get(to).filter(|_| is_sendable(channel, &frame));
        peer.is_some_and(|peer| {
            let link = peer.link(channel);
            link.outbox.push_or_write(frame, &link.counters)
        })
    }

    /// Takes in nodes that are new in the list, and lets those go that are not there any more. Returns the new ones,
    /// which have no links yet.
    pub(crate) fn reconcile(&self, places: Vec<Place>, now_ms: u64) -> Vec<Arc<Peer>> {
        let mut new = Vec::new();
        let mut peers = self.0.write();
        peers.retain(|node, peer| {
            let stays = places.iter().any(|place| place.node == *node);
            if !stays {
                peer.gone.cancel();
            }
            stays
        });
        for place in places {
            let peer = peers.entry(place.node).or_insert_with(|| {
                let peer = Arc::new(Peer::new(place.node, place.incarnation, now_ms));
                new.push(peer.clone());
                peer
            });
            peer.raise_incarnation(place.incarnation);
        }
        new
    }

    pub(crate) fn clear(&self) {
        self.0.write().clear();
    }
}

fn is_sendable(channel: Channel, frame: &Frame) -> bool {
    let fits = frame.size() <= FRAME_LIMIT.min(channel.queue_limit());
    if !fits {
        tracing::error!(
            bytes = frame.size(),
            channel = channel.name(),
            "a message to another node is too long; it is dropped"
        );
    }
    fits
}
