//! One sender, many batches.

use store_state::api::{Failure, REQUEST_LIMIT};
use store_state::inbox::{InboxOp, InboxReply};

use crate::node::{Node, message};

#[test]
fn what_one_sender_gives_is_applied_in_its_order() {
    const MESSAGES: u32 = 5_000;
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    let ann = node.connect("ann");
    node.subscribe("ann", ann.0, "a");
    let correlation_ids: Vec<_> = (0..MESSAGES)
        .map(|n| node.publish_to(node.first_shard(), &message("a", &n.to_be_bytes())))
        .collect();
    let payloads = node.read("ann", &ann, MESSAGES as usize);
    assert!(
        payloads
            .iter()
            .zip(0..)
            .all(|(of, n): (_, u32)| **of == n.to_be_bytes())
    );
    node.inbox_reply(correlation_ids[correlation_ids.len() - 1])
        .unwrap();
    let batches = node
        .store
        .stats(mqtt_session::Timestamp(0))
        .stores
        .inbox
        .batches;
    assert!(batches > 1 && batches < 2_000, "{batches} batches");
    node.stop();
}

#[test]
fn what_is_too_long_is_refused_and_what_is_asked_beside_it_goes_on() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    let ann = node.connect("ann");
    node.subscribe("ann", ann.0, "a");
    let asked = [
        message("a", b"before"),
        message("a", &vec![0; REQUEST_LIMIT]),
        message("a", b"after"),
    ]
    .map(|message| node.publish_to(node.first_shard(), &message));
    let replies = asked.map(|correlation_id| node.inbox_reply(correlation_id));
    assert_eq!(replies[1], Err(Failure::TooLong));
    for reply in [&replies[0], &replies[2]] {
        assert!(
            matches!(reply, Ok(InboxReply::Published { matched: 1, .. })),
            "{reply:?}"
        );
    }
    // A filter may be long, and so may be what is asked of many of them.
    let filters = vec!["f".repeat(60_000).into(); REQUEST_LIMIT / 60_000 + 1];
    let unsubscribe = InboxOp::Unsubscribe {
        session: "ann".into(),
        epoch: ann.0,
        filters,
    };
    assert_eq!(node.inbox(unsubscribe), Err(Failure::TooLong));
    node.stop();
}

/// Requests of 300 KB each: two are more than a batch takes.
#[test]
fn batches_are_cut_by_what_is_written_whatever_the_operation() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    let ann = node.connect("ann");
    let before = node.store.stats(mqtt_session::Timestamp(0)).stores.inbox;
    let correlation_ids: Vec<_> = (0..40)
        .map(|_| {
            let correlation_id = node.correlation_id();
            let op = InboxOp::Unsubscribe {
                session: "ann".into(),
                epoch: ann.0,
                filters: vec!["f".repeat(60_000).into(); 5],
            };
            node.store.inbox(correlation_id, op);
            correlation_id
        })
        .collect();
    for correlation_id in correlation_ids {
        node.inbox_reply(correlation_id).unwrap();
    }
    let after = node.store.stats(mqtt_session::Timestamp(0)).stores.inbox;
    let (batches, requests) = (
        after.batches - before.batches,
        after.requests - before.requests,
    );
    assert_eq!(requests, 40);
    assert!(batches >= 40, "{batches} batches of more than 512 KiB");
    node.stop();
}
