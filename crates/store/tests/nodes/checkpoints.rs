//! What a checkpoint makes possible: memory is let go, and the log becomes short.

use std::sync::Arc;

use crate::node::{Node, message, until};

/// Checkpoints that the inbox store has written.
fn checkpoints(node: &Node) -> u64 {
    node.store
        .stats(mqtt_session::Timestamp(0))
        .stores
        .inbox
        .checkpoints
}

#[test]
fn messages_of_a_session_that_is_away_leave_memory() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    node.sleeper("ann", "a");
    let first = message("a", &[1; 1000]);
    let held = Arc::downgrade(&first);
    node.publish_to(node.first_shard(), &first);
    drop(first);
    // More than lies in memory until a checkpoint is due, and than the log keeps of its end.
    for _ in 0..36 {
        node.publish("a", &vec![2; 1 << 20]).unwrap();
    }
    until("the first message is let go", || held.upgrade().is_none());
    assert!(checkpoints(&node) > 0);
    let ann = node.connect("ann");
    assert_eq!(node.read("ann", &ann, 1), [[1; 1000]]);
    node.stop();
}

#[test]
fn a_queue_that_drains_gives_its_space_back() {
    const MESSAGES: u64 = 340;
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    let (epoch, _) = node.connect("ann");
    node.subscribe("ann", epoch, "a");
    let payload = vec![2; 1 << 20];
    for sequence in 1..=MESSAGES {
        node.publish("a", &payload).unwrap();
        node.acknowledge("ann", epoch, vec![sequence]);
    }
    let full = node.store.stats(mqtt_session::Timestamp(0)).log.disk_bytes;
    assert!(full > 256 << 20, "{full}");
    until("the log is purged", || {
        node.store.stats(mqtt_session::Timestamp(0)).log.disk_bytes < full / 2
    });
    node.stop();
}
