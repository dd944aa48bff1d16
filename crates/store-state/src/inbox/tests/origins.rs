//! What is published once happens once.

use super::*;
use crate::inbox::fences::{FENCE_MS, FENCES, Fence};
use crate::inbox::origins::{LINGER_MOST, LINGER_MS, MATCHING};
use crate::inbox::tables::BrokersRow;
use crate::{Slots, row};

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

/// Rows of origins.
fn rows(shard: &Shard) -> usize {
    [b'N', b'K', b'O', b'R']
        .map(|kind| shard.table.rows_of(kind))
        .iter()
        .sum()
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
    assert_eq!(rows(&shard), 0);
}

#[test]
fn a_refusal_is_told_again_and_kept_by_nobody_twice() {
    let mut shard = Shard::new();
    shard.header.limits.queue.full = QueueFull::REFUSE;
    shard.header.limits.queue.messages = 2;
    let full = shard.sleeper("full", "a");
    for payload in ["1", "2"] {
        shard.publish("a", payload, QoS::ExactlyOnce);
    }
    let empty = shard.sleeper("empty", "a");
    let again = publish(message("a", "x", QoS::ExactlyOnce), Some(origin(3, 1)));
    assert_eq!(shard.apply(&again), published(2, 1));
    shard.checkpoint();
    shard.restart();
    // Its answer was lost, and meanwhile there may be room.
    shard.header.limits.queue.messages = 3;
    assert_eq!(shard.apply(&again), published(1, 1));
    assert_eq!(
        (
            shard.machine.queue_len(full),
            shard.machine.queue_len(empty)
        ),
        (2, 1)
    );
    // The publisher has been told.
    shard.apply(&InboxOp::Release {
        origin: origin(3, 1),
    });
    assert_eq!(shard.apply(&again), published(2, 0));
    shard.checkpoint();
    shard.apply(&InboxOp::Release {
        origin: origin(3, 1),
    });
    shard.checkpoint();
    assert_eq!(rows(&shard), 0);
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
    assert_eq!(rows(&shard), 1);
}

#[test]
fn matching_sessions_and_groups_are_told_apart() {
    let mut shard = Shard::new();
    let ann = shard.sleeper("ann", "a");
    let bob = shard.sleeper("bob", "b");
    let mut deliver = |client: &str, group| {
        shard.apply(&InboxOp::Deliver {
            session: client.into(),
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
    assert_eq!(rows(&shard), 0);
}

/// Bytes that the next checkpoint writes of origins.
fn bytes_written(shard: &mut Shard) -> usize {
    let before = shard.table.clone();
    shard.checkpoint();
    let rows = shard.table.rows.iter();
    let origins = rows.filter(|(key, _)| b"NKOR".contains(&key[0]));
    let new = origins.filter(|(key, value)| before.rows.get(*key) != Some(value));
    new.map(|(key, value)| key.len() + value.len()).sum()
}

#[test]
fn one_identifier_of_many_costs_what_one_of_few_does() {
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "a");
    shard.attach("pub", 3, false);
    for id in 1..=u16::MAX {
        let message = message("b", "x", QoS::ExactlyOnce);
        let reply = shard.apply(&publish(message, Some(origin(3, id))));
        assert_eq!(reply, published(0, 0));
    }
    assert!(bytes_written(&mut shard) < 8 * usize::from(u16::MAX));
    assert_eq!(bytes_written(&mut shard), 0);
    shard.apply(&InboxOp::Release {
        origin: origin(3, 30_000),
    });
    let one = bytes_written(&mut shard);
    assert!((1..2_048).contains(&one), "{one} bytes for one identifier");
    shard.restart();
    assert!(happens(&mut shard, inbox, origin(3, 30_000)));
    assert!(!happens(&mut shard, inbox, origin(3, 30_001)));
    let received = shard.attach("pub", 4, true).received;
    assert_eq!(received.len(), usize::from(u16::MAX));
}

#[test]
fn what_is_released_is_known_for_so_many_only() {
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "a");
    let will = |incarnation| origin(incarnation, 0);
    for incarnation in 1..=LINGER_MOST as u64 + 1 {
        let op = InboxOp::Deliver {
            session: "ann".into(),
            items: Vec::new(),
            origin: Some(will(incarnation)),
        };
        shard.apply(&op);
        let origin = will(incarnation);
        shard.apply(&InboxOp::Release { origin });
    }
    let counts = shard.machine.counts();
    assert_eq!((counts.origins, counts.released_origins), (0, LINGER_MOST));
    shard.header.now_ms += LINGER_MS;
    assert!(happens(&mut shard, inbox, origin(1, 1)));
    assert_eq!(shard.machine.counts().released_origins, 0);
    shard.checkpoint();
    assert_eq!(rows(&shard), 1);
}

#[test]
fn rows_of_the_layout_before_are_read_and_written_anew() {
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "a");
    shard.checkpoint();
    let entries: Vec<(u64, u16, u64)> = vec![(1, 0, 0), (2, 0, 0), (3, 1, 0), (3, 700, 9)];
    let released: Vec<(u64, u64)> = vec![(2, shard.header.now_ms)];
    let rows_before = [
        (row::unseeded_key(b'O', "pub"), row::encode(&entries)),
        (row::unseeded_key(b'R', "pub"), row::encode(&released)),
    ];
    shard.table.rows.extend(rows_before);
    let survey = InboxMachine::survey(Slots::ALL, &shard.table);
    assert_eq!(survey.findings, []);
    for _ in 0..2 {
        shard.restart();
        let counts = shard.machine.counts();
        assert_eq!((counts.origins, counts.released_origins), (1, 1));
        assert!(!happens(&mut shard, inbox, origin(3, 1)));
        assert!(!happens(&mut shard, inbox, origin(2, 0)));
        shard.checkpoint();
        assert_eq!(shard.table.rows_of(b'O') + shard.table.rows_of(b'R'), 0);
        assert_eq!(
            (shard.table.rows_of(b'N'), shard.table.rows_of(b'K')),
            (2, 2)
        );
    }
    assert!(happens(&mut shard, inbox, origin(3, 700)), "another part");
}

/// What a request of an earlier version calls a publisher by, and its rows, may be long.
#[test]
fn rows_by_long_identifiers_are_read_and_written_anew_by_names() {
    let long = "c".repeat(60_000);
    let hash = crate::NameHash::default();
    let by = |client: ClientName, packet_id| Origin {
        client,
        incarnation: 3,
        packet_id,
    };
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "a");
    shard.checkpoint();
    let mut page = row::unseeded_numbered_key(b'N', &long, 3);
    page.push(0);
    let rows_before = [
        (page, row::encode(&vec![(1u16, MATCHING)])),
        (
            row::unseeded_numbered_key(b'K', &long, 3),
            row::encode(&BrokersRow {
                parts: vec![MATCHING],
                released_ms: 0,
            }),
        ),
        (
            row::unseeded_key(b'E', &long),
            row::encode(&Fence {
                epoch: 5,
                raised_ms: shard.header.now_ms,
            }),
        ),
    ];
    shard.table.rows.extend(rows_before);
    let survey = InboxMachine::survey(Slots::ALL, &shard.table);
    assert_eq!(survey.findings, []);
    for _ in 0..2 {
        shard.restart();
        let names = [ClientName::from(&*long), ClientName::of(&long, hash)];
        for name in names {
            assert!(!happens(&mut shard, inbox, by(name.clone(), 1)));
            assert!(!happens(&mut shard, inbox, by(name.clone(), 0)));
            let late = publish_by(&mut shard, inbox, by(name, 2), 4);
            assert_eq!(late, (InboxReply::Fenced, 0));
        }
        shard.checkpoint();
        for kind in [b'N', b'K', b'E'] {
            let keys = shard.table.keys_of(kind);
            assert!(keys.len() == 1 && keys[0].len() < 64, "{}", keys.len());
        }
    }
    let survey = InboxMachine::survey(Slots::ALL, &shard.table);
    assert_eq!(survey.findings, []);
}

fn release(origin: Origin, epoch: u64) -> InboxOp {
    InboxOp::ReleaseFenced { origin, epoch }
}

/// A publication by a connection; the answer, and how many messages are queued then.
fn publish_by(shard: &mut Shard, inbox: u64, origin: Origin, epoch: u64) -> (InboxReply, u32) {
    let reply = shard.apply(&InboxOp::PublishFenced {
        message: message("a", "x", QoS::ExactlyOnce).into(),
        publisher: 0,
        origin,
        epoch,
    });
    (reply, shard.machine.queue_len(inbox))
}

#[test]
fn what_an_earlier_connection_sent_is_refused_when_a_later_one_has_released() {
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "a");
    assert_eq!(
        publish_by(&mut shard, inbox, origin(3, 1), 5),
        (published(1, 0), 1)
    );
    assert_eq!(
        publish_by(&mut shard, inbox, origin(3, 1), 4),
        (published(1, 0), 1)
    );
    assert_eq!(shard.apply(&release(origin(3, 1), 5)), InboxReply::Done);
    shard.checkpoint();
    shard.restart();
    // A copy of it that was under way; and it must not be taken for what comes next under its identifier.
    assert_eq!(
        publish_by(&mut shard, inbox, origin(3, 1), 4),
        (InboxReply::Fenced, 1)
    );
    assert_eq!(
        publish_by(&mut shard, inbox, origin(3, 1), 5),
        (published(1, 0), 2)
    );
    // Nor does a late release make that happen again.
    assert_eq!(shard.apply(&release(origin(3, 1), 4)), InboxReply::Fenced);
    assert_eq!(
        publish_by(&mut shard, inbox, origin(3, 1), 6),
        (published(1, 0), 2)
    );
    let to_member = |epoch| InboxOp::DeliverFenced {
        session: "ann".into(),
        items: vec![item("a", "y", QoS::ExactlyOnce, None)],
        origin: origin(3, 2),
        epoch,
    };
    assert_eq!(shard.apply(&to_member(4)), InboxReply::Fenced);
    assert_eq!(shard.apply(&to_member(6)), published(1, 0));
}

#[test]
fn a_fence_is_forgotten_after_a_while() {
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "a");
    shard.apply(&release(origin(3, 1), 5));
    shard.header.now_ms += FENCE_MS - 1;
    assert_eq!(
        publish_by(&mut shard, inbox, origin(3, 1), 4).0,
        InboxReply::Fenced
    );
    shard.checkpoint();
    shard.restart();
    shard.header.now_ms += 1;
    assert_eq!(
        publish_by(&mut shard, inbox, origin(3, 1), 4).0,
        published(1, 0)
    );
    assert_eq!(shard.machine.counts().fences, 0);
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'E'), 0);
}

#[test]
fn fences_are_bounded_in_number() {
    let mut shard = Shard::new();
    for number in 0..=FENCES {
        let client = (&*format!("pub-{number:06}")).into();
        let origin = Origin {
            client,
            ..origin(1, 1)
        };
        shard.apply(&release(origin, 5));
    }
    assert_eq!(shard.machine.counts().fences, FENCES);
    let of = |number: usize| Origin {
        client: (&*format!("pub-{number:06}")).into(),
        ..origin(1, 1)
    };
    assert_eq!(shard.apply(&release(of(FENCES), 4)), InboxReply::Fenced);
    assert_eq!(shard.apply(&release(of(0), 4)), InboxReply::Done);
}
