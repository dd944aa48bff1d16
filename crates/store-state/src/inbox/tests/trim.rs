//! Queues that are emptied: each message is acknowledged, dropped with a reason, or waits.

use std::ops::Range;

use super::*;
use crate::inbox::inspect::unsent;

/// Drops what has these sequences and cannot have been sent: their payloads.
fn purge(shard: &mut Shard, sequences: Range<u64>) -> Vec<String> {
    let op = InboxOp::Trim {
        session: "ann".into(),
        from: sequences.start,
        below: sequences.end,
        limit: RetentionLimit::Purge,
    };
    assert_eq!(shard.apply(&op), InboxReply::Done);
    let drops = shard.drops().into_iter().map(|(client, payload, reason)| {
        assert_eq!((&*client, reason), ("ann", DropReason::Purged));
        payload
    });
    drops.collect()
}

#[test]
fn a_queue_is_emptied_part_by_part_and_each_message_is_counted_once() {
    const PUBLISHED: usize = 10;
    for checkpoints in [false, true] {
        let mut shard = Shard::new();
        let inbox = shard.session("ann", "a");
        for number in 1..=PUBLISHED {
            shard.publish("a", &number.to_string(), QoS::AtLeastOnce);
        }
        // The third may have been sent as well, and is not acknowledged.
        let acknowledged = [1, 2];
        shard.acknowledge("ann", 1, 3, &acknowledged);
        shard.detach("ann", 1, 3);
        shard.take_events();
        let found = unsent(&shard.machine, "ann").unwrap();
        assert_eq!((found.sequences, found.is_connected), (4..11, false));
        let mut dropped = Vec::new();
        for part in [1..5, 5..9, 9..11] {
            if checkpoints {
                shard.checkpoint();
                shard.restart();
            }
            let end = part.end;
            dropped.extend(purge(&mut shard, part));
            let waiting = shard.machine.queue_len(inbox) as usize;
            let known = acknowledged.len() + dropped.len() + waiting;
            assert_eq!(known, PUBLISHED);
            // After a start it is looked for from the first on again.
            let first = unsent(&shard.machine, "ann").unwrap().sequences.start;
            assert!(first == end || checkpoints && first == 4);
        }
        assert_eq!(dropped, ["4", "5", "6", "7", "8", "9", "10"]);
        assert_eq!(shard.queue(inbox), payloads(&[(3, "3")]));
        // Nothing is dropped twice, and what comes later waits.
        assert_eq!(purge(&mut shard, 1..11), [""; 0]);
        shard.publish("a", "later", QoS::AtLeastOnce);
        assert_eq!(shard.queue(inbox), payloads(&[(3, "3"), (11, "later")]));
        shard.checkpoint();
        shard.restart();
        assert_eq!(shard.queue(inbox), payloads(&[(3, "3"), (11, "later")]));
        assert_eq!(shard.table.rows_of(b'Q'), 2);
    }
}

#[test]
fn a_connected_client_keeps_what_it_may_have_a_packet_identifier_for() {
    let mut shard = Shard::new();
    let inbox = shard.session("ann", "a");
    let quality = [QoS::AtLeastOnce, QoS::ExactlyOnce];
    for number in 1..=6 {
        shard.publish("a", &number.to_string(), quality[number % 2]);
    }
    shard.take_events();
    assert!(unsent(&shard.machine, "ann").unwrap().is_connected);
    assert_eq!(purge(&mut shard, 1..7), ["2", "4", "6"]);
    let exactly_once = payloads(&[(1, "1"), (3, "3"), (5, "5")]);
    assert_eq!(shard.queue(inbox), exactly_once);
    // The exchange goes on as if nothing had been dropped in between.
    assert_eq!(shard.receipt("ann", 1, 1), InboxReply::Done);
    shard.acknowledge("ann", 1, 1, &[1]);
    shard.detach("ann", 1, 1);
    assert_eq!(purge(&mut shard, 1..7), ["3", "5"]);
    assert_eq!(shard.queue(inbox), []);
}

#[test]
fn who_is_not_there_has_no_queue_to_empty() {
    let shard = Shard::new();
    assert_eq!(unsent(&shard.machine, "ann"), None);
}
