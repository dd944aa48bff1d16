//! An operator empties the queue of a session.

use std::time::Duration;

use mqtt_session::Timestamp;
use store::{Look, Purge};

use crate::node::{Node, message};

const PATIENCE: Duration = Duration::from_secs(30);

/// Queues so many messages, each of which is synced in the end.
fn queue(node: &Node, count: usize) {
    let (shard, of) = (node.first_shard(), message("a", b"before"));
    let given: Vec<_> = (0..count).map(|_| node.publish_to(shard, &of)).collect();
    for correlation_id in given {
        node.inbox_reply(correlation_id).unwrap();
    }
}

fn queued(node: &Node) -> u64 {
    node.store.stats(Timestamp(0)).queued_messages
}

#[test]
fn a_queue_is_emptied_and_stays_empty_when_the_node_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 1);
    node.sleeper("ann", "a");
    // Three parts, of which the last is not full.
    queue(&node, 5_000);
    assert_eq!(queued(&node), 5_000);
    let complete = Look::Found(Purge::Complete);
    assert_eq!(node.purge("ann", PATIENCE), (complete.clone(), 5_000));
    assert_eq!(queued(&node), 0);
    assert_eq!(node.purge("ann", PATIENCE), (complete, 0));
    assert_eq!(node.purge("bob", PATIENCE), (Look::Absent, 0));
    node.stop();

    let node = Node::start(folder.path(), 1);
    assert_eq!(queued(&node), 0);
    assert_eq!(node.publish("a", b"after"), Ok(1));
    let ann = node.connect("ann");
    assert_eq!(node.read("ann", &ann, 1), [b"after"]);
    node.stop();
}

#[test]
fn what_there_is_no_time_for_stays_in_the_queue() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 1);
    node.sleeper("ann", "a");
    queue(&node, 10);
    let purged = node.purge("ann", Duration::ZERO);
    assert_eq!(purged, (Look::Found(Purge::Incomplete), 0));
    assert_eq!(queued(&node), 10);
    node.stop();
}

#[test]
fn what_a_connected_session_was_given_stays_in_the_queue() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 1);
    let ann = node.connect("ann");
    node.subscribe("ann", ann.0, "a");
    queue(&node, 10);
    // It is not known yet what it has.
    let purged = node.purge("ann", PATIENCE);
    assert_eq!(purged, (Look::Found(Purge::Incomplete), 0));
    assert_eq!(node.read("ann", &ann, 3).len(), 3);
    let purged = node.purge("ann", PATIENCE);
    assert_eq!(purged, (Look::Found(Purge::Complete), 7));
    assert_eq!(queued(&node), 3);
    let first = ann.1.first;
    node.acknowledge("ann", ann.0, vec![first, first + 1, first + 2]);
    assert_eq!(queued(&node), 0);
    node.stop();
}
