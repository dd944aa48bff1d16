//! What happens at the limits of a queue, and to QoS 0.

use super::*;
use crate::QueueLimits;

fn full_shard(queue_full: QueueFull) -> (Shard, u64) {
    let mut shard = Shard::new();
    shard.header.limits.queue.messages = 3;
    shard.header.limits.queue.full = queue_full;
    let inbox = shard.sleeper("ann", "a");
    for payload in ["1", "2", "3"] {
        shard.publish("a", payload, QoS::AtLeastOnce);
    }
    shard.take_events();
    (shard, inbox)
}

fn drop_of(payload: &str, reason: DropReason) -> (String, String, DropReason) {
    ("ann".to_owned(), payload.to_owned(), reason)
}

#[test]
fn the_oldest_that_cannot_have_been_sent_makes_room() {
    for checkpoints in [false, true] {
        let (mut shard, inbox) = full_shard(QueueFull::DropOldest);
        shard.detach("ann", 1, 1);
        for (payload, oldest) in [("4", "2"), ("5", "3"), ("6", "4")] {
            if checkpoints {
                shard.checkpoint();
            }
            let reply = shard.publish("a", payload, QoS::AtLeastOnce);
            assert_eq!(reply, published(1, 0));
            let full = DropReason::QueueFullMessages;
            assert_eq!(shard.drops(), [drop_of(oldest, full)]);
        }
        let left = payloads(&[(1, "1"), (5, "5"), (6, "6")]);
        assert_eq!(shard.queue(inbox), left);
    }
}

#[test]
fn the_newest_is_dropped_or_refused() {
    for (policy, refused) in [(QueueFull::DropNewest, 0), (QueueFull::REFUSE, 1)] {
        let (mut shard, inbox) = full_shard(policy);
        let reply = shard.publish("a", "4", QoS::AtLeastOnce);
        assert_eq!(reply, published(1, refused));
        let full = DropReason::QueueFullMessages;
        assert_eq!(shard.drops(), [drop_of("4", full)]);
        // QoS 0 is dropped whatever the policy.
        assert_eq!(shard.publish("a", "5", QoS::AtMostOnce), published(1, 0));
        assert_eq!(shard.drops(), [drop_of("5", full)]);
        assert_eq!(shard.queue(inbox).len(), 3);
    }
    let (mut shard, _) = full_shard(QueueFull::DropOldest);
    shard.publish("a", "5", QoS::AtMostOnce);
    let full = DropReason::QueueFullMessages;
    assert_eq!(shard.drops(), [drop_of("5", full)]);
}

#[test]
fn who_has_been_away_for_long_refuses_nothing() {
    let away = QueueFull::Refuse { away_secs: 10 };
    for restarts in [false, true] {
        let (mut shard, _) = full_shard(away);
        // Since the first message, at 1 s.
        for (now_ms, refused) in [(10_999, 1), (11_000, 0)] {
            if restarts {
                shard.checkpoint();
                shard.restart();
            }
            shard.header.now_ms = now_ms;
            let reply = shard.publish("a", "4", QoS::AtLeastOnce);
            assert_eq!(reply, published(1, refused));
            let full = DropReason::QueueFullMessages;
            assert_eq!(shard.drops(), [drop_of("4", full)]);
        }
        // It has been there again.
        shard.attach("ann", 2, true);
        assert_eq!(
            shard.publish("a", "5", QoS::AtLeastOnce),
            published(1, 1),
            "it is connected"
        );
        shard.detach("ann", 2, 0);
        let reply = shard.publish("a", "6", QoS::AtLeastOnce);
        assert_eq!(reply, published(1, 1), "it has just gone");
    }
}

#[test]
fn full_queues_are_counted_until_there_is_room() {
    let (mut shard, inbox) = full_shard(QueueFull::DropNewest);
    let full = |shard: &Shard| shard.machine.counts().full;
    assert_eq!(full(&shard), 0, "nothing was dropped yet");
    for _ in 0..2 {
        shard.publish("a", "4", QoS::AtLeastOnce);
        assert_eq!(full(&shard), 1);
    }
    shard.attach("ann", 2, true);
    shard.acknowledge("ann", 2, 1, &[1]);
    assert_eq!(full(&shard), 0);
    for _ in 0..2 {
        shard.publish("a", "5", QoS::AtLeastOnce);
    }
    assert_eq!(full(&shard), 1);
    shard.apply(&InboxOp::Remove {
        session: "ann".into(),
        epoch: 2,
    });
    assert_eq!(full(&shard), 0);
    assert!(inbox > 0);
    let (mut shard, _) = full_shard(QueueFull::DropOldest);
    for _ in 0..2 {
        shard.publish("a", "4", QoS::AtLeastOnce);
        assert_eq!(full(&shard), 1);
    }
}

#[test]
fn what_happens_when_a_queue_is_full_is_written_as_it_always_was() {
    let written = |queue_full| {
        let limits = Limits {
            queue: QueueLimits {
                full: queue_full,
                ..HEADER.limits.queue
            },
            ..HEADER.limits
        };
        let bytes = postcard::to_allocvec(&limits).unwrap();
        assert_eq!(postcard::from_bytes(&bytes), Ok(limits));
        bytes
    };
    let always = written(QueueFull::REFUSE);
    let at = always.len() - 4;
    assert_eq!((written(QueueFull::DropOldest)[at], always[at]), (0, 2));
    let some_time = written(QueueFull::Refuse { away_secs: 5 });
    let expected = [&always[..at], &[3, 5], &always[at + 1..]].concat();
    assert_eq!(some_time, expected);
}

#[test]
fn a_closed_queue_is_written_as_nothing_that_an_earlier_version_reads() {
    let closed = HEADER.limits.closing(&[ClassId::DEFAULT]);
    let bytes = postcard::to_allocvec(&closed).unwrap();
    assert_eq!(bytes[bytes.len() - 4], 4);
    assert_eq!(postcard::from_bytes(&bytes), Ok(closed));
    let limits = Limits {
        queue: QueueLimits {
            full: QueueFull::Refuse { away_secs: 5 },
            is_closed: true,
            ..HEADER.limits.queue
        },
        ..HEADER.limits
    };
    let bytes = postcard::to_allocvec(&limits).unwrap();
    assert_eq!(postcard::from_bytes(&bytes), Ok(limits));
}

#[test]
fn a_class_is_closed_without_the_others() {
    let application = ClassId(1);
    let limits = Limits {
        classes: [(application, HEADER.limits.queue)].into_iter().collect(),
        ..HEADER.limits
    };
    let closed = |classes: &[ClassId]| {
        let limits = limits.clone().closing(classes);
        [ClassId::DEFAULT, application].map(|class| limits.of(class).is_closed)
    };
    assert_eq!(closed(&[]), [false, false]);
    assert_eq!(closed(&[ClassId::DEFAULT]), [true, false]);
    assert_eq!(closed(&[application]), [false, true]);
    assert_eq!(limits.clone().closing(&[application]).closing(&[]), limits);
}

#[test]
fn a_closed_queue_keeps_what_it_has_and_takes_nothing_while_its_client_is_away() {
    let high = DropReason::DiskHighWater;
    for full in [
        QueueFull::DropOldest,
        QueueFull::DropNewest,
        QueueFull::REFUSE,
    ] {
        let mut shard = Shard::new();
        shard.header.limits.queue.full = full;
        let inbox = shard.sleeper("ann", "a");
        let expiring = ApplicationMessage {
            expires_at: Some(Timestamp(1_001)),
            ..message("a", "1", QoS::AtLeastOnce)
        };
        shard.apply(&publish(expiring, None));
        shard.publish("a", "2", QoS::AtLeastOnce);
        shard.header.limits.queue.is_closed = true;
        shard.header.now_ms = 2_000;
        let refused = u32::from(full == QueueFull::REFUSE);
        let reply = shard.publish("a", "3", QoS::AtLeastOnce);
        assert_eq!(reply, published(1, refused));
        assert_eq!(shard.publish("a", "4", QoS::AtMostOnce), published(1, 0));
        assert_eq!(shard.drops(), [drop_of("3", high), drop_of("4", high)]);
        assert_eq!(shard.queue(inbox), payloads(&[(1, "1"), (2, "2")]));
        shard.header.limits.queue.is_closed = false;
        assert_eq!(shard.publish("a", "5", QoS::AtLeastOnce), published(1, 0));
    }
}

#[test]
fn what_passes_to_a_connected_client_passes_through_a_closed_queue() {
    let mut shard = Shard::new();
    shard.header.limits.queue.messages = 2_000;
    shard.header.limits.queue.full = QueueFull::DropNewest;
    shard.header.limits.queue.is_closed = true;
    let inbox = shard.session("ann", "a");
    for number in 0..1_001 {
        shard.publish("a", &number.to_string(), QoS::AtLeastOnce);
    }
    assert_eq!(shard.drops(), [drop_of("1000", DropReason::DiskHighWater)]);
    assert_eq!(shard.queue(inbox).len(), 1_000);
    shard.acknowledge("ann", 1, 1, &[1]);
    shard.publish("a", "1001", QoS::AtLeastOnce);
    assert_eq!(shard.drops(), []);
    // The queue's own limit is the smaller one.
    shard.header.limits.queue.messages = 10;
    shard.publish("a", "1002", QoS::AtLeastOnce);
    assert_eq!(
        shard.drops(),
        [drop_of("1002", DropReason::QueueFullMessages)]
    );
}

#[test]
fn expired_messages_make_room_first() {
    for checkpoints in [false, true] {
        let mut shard = Shard::new();
        shard.header.limits.queue.messages = 2;
        shard.header.limits.queue.full = QueueFull::DropNewest;
        let inbox = shard.sleeper("ann", "a");
        let expiring = ApplicationMessage {
            expires_at: Some(Timestamp(2_000)),
            ..message("a", "1", QoS::AtLeastOnce)
        };
        shard.apply(&publish(expiring, None));
        shard.publish("a", "2", QoS::AtLeastOnce);
        if checkpoints {
            shard.checkpoint();
        }
        shard.header.now_ms = 1_999;
        shard.publish("a", "3", QoS::AtLeastOnce);
        let full = DropReason::QueueFullMessages;
        assert_eq!(shard.drops(), [drop_of("3", full)]);
        shard.header.now_ms = 2_000;
        shard.publish("a", "4", QoS::AtMostOnce);
        assert_eq!(shard.drops(), [drop_of("1", DropReason::Expired)]);
        assert_eq!(shard.queue(inbox), payloads(&[(2, "2"), (3, "4")]));
    }
}

#[test]
fn bytes_are_limited_too() {
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "a");
    // 2 bytes of length, 1 of topic, 1 of payload.
    shard.header.limits.queue.bytes = 2 * 100;
    for payload in ["1", "2", "3"] {
        shard.publish("a", payload, QoS::AtLeastOnce);
    }
    let full = DropReason::QueueFullBytes;
    assert_eq!(shard.drops(), [drop_of("1", full)]);
    assert_eq!(shard.machine.counts().bytes, 200);
    // Nothing is dropped for a message that cannot fit.
    let long = "x".repeat(102);
    shard.publish("a", &long, QoS::AtLeastOnce);
    assert_eq!(shard.drops(), [drop_of(&long, full)]);
    assert_eq!(shard.queue(inbox).len(), 2);
}

#[test]
fn qos_0_is_stored_as_the_policy_says() {
    let stored = |qos0, attached: bool| {
        let mut shard = Shard::new();
        shard.header.limits.qos0 = qos0;
        let inbox = shard.session("ann", "a");
        if !attached {
            shard.detach("ann", 1, 0);
        }
        assert_eq!(shard.publish("a", "1", QoS::AtMostOnce), published(1, 0));
        (shard.queue(inbox).len(), shard.drops().len())
    };
    assert_eq!(stored(Qos0Inbox::Offline, true), (0, 0));
    assert_eq!(stored(Qos0Inbox::Offline, false), (1, 0));
    assert_eq!(stored(Qos0Inbox::Always, true), (1, 0));
    assert_eq!(stored(Qos0Inbox::Always, false), (1, 0));
    assert_eq!(stored(Qos0Inbox::Never, true), (0, 0));
    assert_eq!(stored(Qos0Inbox::Never, false), (0, 1));
}

#[test]
fn one_message_makes_room_for_one_when_the_limit_was_lowered() {
    let (mut shard, inbox) = full_shard(QueueFull::DropOldest);
    let full = DropReason::QueueFullMessages;
    shard.header.limits.queue.messages = 1;
    let set = shard.header.limits.clone();
    shard.header.limits = leave_alone(&shard.machine, set.clone());
    assert_eq!(shard.publish("a", "4", QoS::AtLeastOnce), published(1, 0));
    assert_eq!(shard.drops(), [drop_of("1", full)]);
    assert_eq!(shard.queue(inbox).len(), 3);
    // After a start it is known from the tables.
    shard.checkpoint();
    shard.restart();
    assert_eq!(leave_alone(&shard.machine, set.clone()).queue.messages, 3);
    // The client has acknowledged all but one, and all queues were looked at.
    shard.attach("ann", 2, true);
    shard.acknowledge("ann", 2, 4, &[2, 3]);
    let mut pass = QueuePass::new(&mut shard.machine);
    while !pass.go_on(&mut shard.machine, 9, |_| {}) {}
    assert_eq!(leave_alone(&shard.machine, set).queue.messages, 1);
}

#[test]
fn only_limits_by_which_the_oldest_goes_leave_alone_what_waits() {
    let (shard, _) = full_shard(QueueFull::DropOldest);
    for (messages, full) in [
        (1, QueueFull::DropNewest),
        (1, QueueFull::REFUSE),
        (0, QueueFull::DropOldest),
        (4, QueueFull::DropOldest),
    ] {
        let mut limits = shard.header.limits.clone();
        limits.queue.messages = messages;
        limits.queue.full = full;
        assert_eq!(leave_alone(&shard.machine, limits.clone()), limits);
    }
}
