//! Acknowledgements, receipts and pages.

use super::*;

#[test]
fn a_receipt_lets_the_message_go_and_owes_pubrel() {
    for checkpoints in [false, true] {
        let mut shard = Shard::new();
        let inbox = shard.sleeper("ann", "a");
        for payload in ["1", "2"] {
            shard.publish("a", payload, QoS::ExactlyOnce);
        }
        if checkpoints {
            shard.checkpoint();
        }
        for _ in 0..2 {
            assert_eq!(shard.receipt("ann", 1, 1), InboxReply::Done);
        }
        assert_eq!(shard.receipt("ann", 1, 3), InboxReply::Stale);
        assert_eq!(shard.machine.counts().messages, 1);
        if checkpoints {
            shard.checkpoint();
            shard.restart();
        }
        assert_eq!(shard.queue(inbox), payloads(&[(1, "PUBREL"), (2, "2")]));
        let attached = shard.attach("ann", 2, true);
        assert_eq!((attached.first, attached.sent), (1, 2));
        shard.acknowledge("ann", 2, 1, &[1]);
        assert_eq!(shard.receipt("ann", 2, 1), InboxReply::Stale);
        assert_eq!(shard.queue(inbox), payloads(&[(2, "2")]));
    }
}

#[test]
fn acknowledging_twice_or_what_is_unknown_does_nothing() {
    let mut shard = Shard::new();
    let inbox = shard.session("ann", "a");
    for payload in ["1", "2", "3"] {
        shard.publish("a", payload, QoS::AtLeastOnce);
    }
    for _ in 0..2 {
        let reply = shard.acknowledge("ann", 1, 99, &[2, 0, 99, u64::MAX]);
        assert_eq!(reply, InboxReply::Done);
        assert_eq!(shard.queue(inbox), payloads(&[(1, "1"), (3, "3")]));
        shard.checkpoint();
    }
    // What may have been sent is not more than there is.
    assert_eq!(shard.attach("ann", 2, true).sent, 4);
    assert_eq!(shard.acknowledge("bob", 1, 0, &[1]), InboxReply::Stale);
}

#[test]
fn pages_go_through_tables_and_memory() {
    let mut shard = Shard::new();
    let inbox = shard.session("ann", "a");
    for payload in 1..=6 {
        if payload == 4 {
            shard.detach("ann", 1, 0);
            shard.checkpoint();
            shard.attach("ann", 2, true);
        }
        shard.publish("a", &payload.to_string(), QoS::AtLeastOnce);
    }
    // Deleted, but still in the table.
    shard.acknowledge("ann", 2, 2, &[2]);
    assert_eq!(shard.table.rows_of(b'Q'), 3);
    let mut from = 1;
    let mut pages = Vec::new();
    loop {
        let mut out = Vec::new();
        let next = shard
            .machine
            .page(inbox, from, 2, usize::MAX, &shard.table, &mut out)
            .unwrap();
        if out.is_empty() {
            break;
        }
        pages.push(out.iter().map(|of| of.0).collect::<Vec<_>>());
        from = next;
    }
    assert_eq!(pages, [vec![1, 3], vec![4, 5], vec![6]]);
    assert_eq!(from, 7);
    let mut out = Vec::new();
    let unknown = shard
        .machine
        .page(99, 5, 1, 1, &shard.table, &mut out)
        .unwrap();
    assert_eq!((unknown, out.len()), (5, 0));
    // The accounted bytes of one message are 100: the second exceeds the limit, and is the last.
    shard
        .machine
        .page(inbox, 1, 9, 101, &shard.table, &mut out)
        .unwrap();
    assert_eq!(out.len(), 2);
}

#[test]
fn a_page_that_was_read_is_acknowledged_without_the_table() {
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "a");
    for payload in ["1", "2", "3"] {
        shard.publish("a", payload, QoS::AtLeastOnce);
    }
    shard.checkpoint();
    shard.attach("ann", 2, true);
    assert_eq!(shard.queue(inbox).len(), 3);
    let table = std::mem::take(&mut shard.table);
    shard.acknowledge("ann", 2, 3, &[1, 3]);
    assert_eq!(shard.machine.queue_len(inbox), 1);
    shard.table = table;
    assert_eq!(shard.queue(inbox), payloads(&[(2, "2")]));
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'Q'), 1);
}

#[test]
fn an_attached_inbox_acknowledges_recent_messages_without_the_table() {
    let mut shard = Shard::new();
    let inbox = shard.session("ann", "a");
    for n in 0..2_000 {
        shard.publish("a", &n.to_string(), QoS::AtLeastOnce);
    }
    shard.header.limits.queue.messages = 5_000;
    for n in 0..2_000 {
        shard.publish("a", &n.to_string(), QoS::AtLeastOnce);
    }
    shard.checkpoint();
    let table = std::mem::take(&mut shard.table);
    let len = shard.machine.queue_len(inbox);
    let recent: Vec<u64> = (3_100..=4_000).filter(|of| of % 2 == 0).collect();
    assert!(recent.len() > 400);
    shard.acknowledge("ann", 1, 4_000, &recent[..400]);
    assert_eq!(shard.machine.queue_len(inbox), len - 400);
    shard.table = table;
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'Q') as u32, len - 400);
}
