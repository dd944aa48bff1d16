//! What is published once happens once.

use super::*;
use crate::inbox::origins::LINGER_MS;

fn origin(incarnation: u64, packet_id: u16) -> Origin {
    Origin {
        client: "pub".into(),
        incarnation,
        packet_id,
    }
}

/// Publishes with an origin; whether it was queued.
fn happens(shard: &mut Shard, inbox: u64, origin: Origin) -> bool {
    let before = shard.machine.queue_len(inbox);
    let reply = shard.apply(&publish(message("a", "x", QoS::ExactlyOnce), Some(origin)));
    assert_eq!(reply, published(1, 0));
    shard.machine.queue_len(inbox) > before
}

#[test]
fn until_it_is_released() {
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "a");
    assert!(happens(&mut shard, inbox, origin(3, 1)));
    assert!(!happens(&mut shard, inbox, origin(3, 1)));
    assert!(happens(&mut shard, inbox, origin(3, 2)));
    shard.checkpoint();
    shard.restart();
    assert!(!happens(&mut shard, inbox, origin(3, 1)));
    for _ in 0..2 {
        shard.apply(&InboxOp::Release {
            origin: origin(3, 1),
        });
    }
    assert!(happens(&mut shard, inbox, origin(3, 1)));
    assert!(!happens(&mut shard, inbox, origin(3, 2)));
    // A later session makes all void.
    assert!(happens(&mut shard, inbox, origin(4, 9)));
    assert!(happens(&mut shard, inbox, origin(3, 2)));
    shard.apply(&InboxOp::Forget {
        client: "pub".into(),
        incarnation: 4,
    });
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'O'), 0);
}

#[test]
fn qos_1_happens_again() {
    let mut shard = Shard::new();
    shard.sleeper("ann", "a");
    for _ in 0..2 {
        shard.apply(&publish(
            message("a", "x", QoS::AtLeastOnce),
            Some(origin(3, 1)),
        ));
    }
    assert_eq!(shard.machine.counts().messages, 2);
}

#[test]
fn a_will_outlives_the_session() {
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "a");
    let will = |shard: &mut Shard| {
        shard.apply(&publish(
            message("a", "x", QoS::AtMostOnce),
            Some(origin(3, 0)),
        ));
        shard.machine.queue_len(inbox)
    };
    assert_eq!(will(&mut shard), 1);
    assert!(happens(&mut shard, inbox, origin(5, 1)));
    shard.attach("pub", 6, false);
    assert_eq!(will(&mut shard), 2);
    // Another node that publishes it may be late.
    for _ in 0..2 {
        shard.apply(&InboxOp::Release {
            origin: origin(3, 0),
        });
        assert_eq!(will(&mut shard), 2);
        shard.checkpoint();
        shard.restart();
        shard.header.now_ms += LINGER_MS / 2 - 1;
    }
    assert_eq!(will(&mut shard), 2);
    shard.header.now_ms += 2;
    assert_eq!(will(&mut shard), 3);
}

#[test]
fn a_publisher_that_lives_here_finds_its_identifiers_again() {
    let mut shard = Shard::new();
    shard.attach("pub", 3, false);
    for id in [7, 2, 0] {
        let reply = shard.apply(&publish(
            message("nobody", "x", QoS::ExactlyOnce),
            Some(origin(3, id)),
        ));
        assert_eq!(reply, published(0, 0));
    }
    let again = publish(message("nobody", "x", QoS::ExactlyOnce), Some(origin(3, 7)));
    assert_eq!(shard.apply(&again), published(1, 0));
    let ids =
        |attached: Attached| -> Vec<u16> { attached.received.iter().map(|id| id.get()).collect() };
    assert_eq!(ids(shard.attach("pub", 4, true)), [2, 7]);
    assert_eq!(ids(shard.attach("pub", 5, false)), []);
    // One that lives elsewhere, and whose message nobody here gets, is none of this shard's business.
    let elsewhere = Origin {
        client: "far".into(),
        ..origin(3, 1)
    };
    shard.apply(&publish(
        message("nobody", "x", QoS::ExactlyOnce),
        Some(elsewhere),
    ));
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'O'), 1);
}

#[test]
fn matching_sessions_and_groups_are_told_apart() {
    let mut shard = Shard::new();
    let ann = shard.sleeper("ann", "a");
    let bob = shard.sleeper("bob", "b");
    let mut deliver = |client: &str, group| {
        shard.apply(&InboxOp::Deliver {
            client: client.into(),
            items: vec![item("a", "x", QoS::ExactlyOnce, Some(group))],
            origin: Some(origin(3, 1)),
        })
    };
    assert_eq!(deliver("eve", "$share/g/a"), InboxReply::Stale);
    assert_eq!(deliver("bob", "$share/g/a"), published(1, 0));
    assert_eq!(deliver("bob", "$share/g/a"), published(1, 0));
    assert_eq!(deliver("bob", "$share/h/a"), published(1, 0));
    // Whoever the group would choose now.
    assert_eq!(deliver("eve", "$share/g/a"), published(1, 0));
    assert_eq!(deliver("ann", "$share/g/a"), published(1, 0));
    assert!(happens(&mut shard, ann, origin(3, 1)));
    let lens = (shard.machine.queue_len(ann), shard.machine.queue_len(bob));
    assert_eq!(lens, (1, 2));
    shard.apply(&InboxOp::Release {
        origin: origin(3, 1),
    });
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'O'), 0);
}
