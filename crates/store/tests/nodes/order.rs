//! One sender, many batches.

use crate::node::{Node, message};

#[test]
fn what_one_sender_gives_is_applied_in_its_order() {
    const MESSAGES: u32 = 5_000;
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    let ann = node.connect("ann");
    node.subscribe("ann", ann.0, "a");
    let tickets: Vec<_> = (0..MESSAGES)
        .map(|n| node.publish_to(0, &message("a", &n.to_be_bytes())))
        .collect();
    let payloads = node.read("ann", &ann, MESSAGES as usize);
    assert!(
        payloads
            .iter()
            .zip(0..)
            .all(|(of, n): (_, u32)| **of == n.to_be_bytes())
    );
    node.inbox_reply(tickets[tickets.len() - 1]).unwrap();
    let batches = node.store.stats().stores[1].batches;
    assert!(batches > 1 && batches < 2_000, "{batches} batches");
    node.stop();
}
