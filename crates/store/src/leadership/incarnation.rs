//! A node that the others have taken for dead goes on under a new incarnation.
//!
//! Invariant: requests that clients may have repeated on other nodes meanwhile are refused before the node serves again.

use std::sync::Arc;

use store_state::api::Event;

use crate::api::listener::Listener;
use crate::leadership::led_shards::LedShard;
use crate::peers::known::KnownPeers;
use crate::storage::folder::Folder;

/// The others have taken this node for dead: it goes on as a new process would.
pub(crate) fn adopt_incarnation(
    incarnation: u64,
    folder: &Folder,
    known_peers: &KnownPeers,
    listener: &dyn Listener,
    shards: &[Arc<dyn LedShard>],
) {
    tracing::warn!(
        incarnation,
        "the other nodes have declared this one dead; its clients have to connect again"
    );
    if let Err(error) = folder.raise_incarnation_to(incarnation) {
        return listener.failed(&error.to_string());
    }
    known_peers.set_incarnation(incarnation);
    for shard in shards {
        shard.restart_as(incarnation, listener);
    }
    for loop_index in 0..listener.loops() {
        listener.mail(loop_index, vec![Event::Fenced]);
    }
}
