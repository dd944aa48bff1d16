//! What waits for the sessions of each class.

use crate::api::store::Store;
use crate::retention::found::ClassQueues;

/// What the queues hold of the shards that a node leads, by class of clients, as of the last second or, if very many hold something,
/// some seconds.
#[must_use]
pub fn class_queues(store: &Store) -> Vec<ClassQueues> {
    store.held_queues.led()
}
