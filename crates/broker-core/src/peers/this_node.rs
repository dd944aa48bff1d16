//! This node, as its logic about other nodes sees it.

use store_state::api::{ShardNumber, Store};

use super::event::PeerEvent;
use crate::routes::Routes;

/// What [`Peers`](super::Peers) has to know of its own node, and whom it tells.
pub trait ThisNode {
    /// The way to the stores.
    type Store: Store;

    /// The route index.
    fn routes(&self) -> &Routes;

    /// The store.
    ///
    /// # Panics
    /// It has not been opened yet.
    fn store(&self) -> &Self::Store;

    /// The same, if it has been opened.
    fn opened_store(&self) -> Option<&Self::Store>;

    /// Now, as [`Rim::now_ms`](crate::Rim::now_ms).
    fn now_ms(&self) -> u64;

    /// The cluster's time now, in µs of Unix time.
    fn cluster_now_us(&self) -> u64;

    /// How many event loops there are.
    fn loops(&self) -> usize;

    /// Whether they run: there are no sessions before.
    fn loops_run(&self) -> bool;

    /// The loop that has the session of a client.
    fn home_loop_of(&self, client: &str) -> Option<usize>;

    /// Tells a loop; before the loops run, nothing comes of it. The loop may handle it on the spot, in the calling
    /// thread: no lock may be held.
    fn tell_loop(&self, index: usize, event: PeerEvent);

    /// The term in which this node leads a session shard, if it does.
    fn own_term(&self, shard: ShardNumber) -> Option<u64> {
        let store = self.store();
        let (leader, term) = store.session_leader(shard)?;
        (leader == store.node()).then_some(term)
    }
}
