//! What members of shared groups that are away leave to their groups.

use std::ops::Range;

use super::*;
use crate::inbox::inspect::LeftPart;
use crate::{Level, NameHash, SlotRange, Split};

const GROUP: &str = "$share/g/a";
const OTHER: &str = "$share/h/a";

/// A member of two groups, which also has a subscription of its own, and is away. The number of its inbox.
fn member(shard: &mut Shard, client: &str) -> u64 {
    let inbox = shard.session(client, GROUP);
    for filter in [OTHER, "own"] {
        shard.subscribe(client, 1, filter, QoS::ExactlyOnce);
    }
    inbox
}

fn deliver(shard: &mut Shard, client: &str, payload: &str, qos: QoS, group: Option<&str>) {
    shard.apply(&InboxOp::Deliver {
        session: client.into(),
        items: vec![item("a", payload, qos, group)],
        origin: None,
    });
}

/// A member that is away since it may have been sent the first two of these: of both groups, of none, and of QoS 2.
fn with_a_queue(shard: &mut Shard) -> u64 {
    let inbox = member(shard, "ann");
    for (payload, qos, group) in [
        ("1", QoS::ExactlyOnce, Some(GROUP)),
        ("2", QoS::AtLeastOnce, Some(GROUP)),
        ("3", QoS::AtLeastOnce, None),
        ("4", QoS::ExactlyOnce, Some(GROUP)),
        ("5", QoS::AtLeastOnce, Some(OTHER)),
        ("6", QoS::AtMostOnce, Some(GROUP)),
        ("7", QoS::AtLeastOnce, Some(GROUP)),
    ] {
        deliver(shard, "ann", payload, qos, group);
    }
    shard.detach("ann", 1, 2);
    shard.take_events();
    inbox
}

fn leave(shard: &mut Shard, client: &str, epoch: u64, sequences: Range<u64>) -> InboxReply {
    shard.apply(&InboxOp::Trim {
        session: client.into(),
        from: sequences.start,
        below: sequences.end,
        limit: RetentionLimit::Away {
            epoch,
            group: GROUP.into(),
        },
    })
}

/// Legacies that were left since events were taken last.
fn left(shard: &mut Shard) -> Vec<(String, u64)> {
    let events = shard.take_events().into_iter();
    let left = events.filter_map(|event| match event {
        Event::LeftBehind(client, number) => Some((client, number)),
        Event::Member(..) | Event::Filter(..) => None,
        other => panic!("{other:?}"),
    });
    left.collect()
}

/// What a replica that begins to lead tells.
fn told(shard: &Shard) -> Vec<u64> {
    let mut recorder = Recorder::default();
    shard.machine.for_each_legacy(&mut recorder);
    let told = recorder.0.into_iter().map(|event| match event {
        Event::LeftBehind(_, number) => number,
        other => panic!("{other:?}"),
    });
    told.collect()
}

fn texts(items: &[(u64, Item)]) -> Vec<String> {
    let text = |item: &Item| String::from_utf8(item.message.body.payload().to_vec()).unwrap();
    items.iter().map(|(_, item)| text(item)).collect()
}

fn look(shard: &mut Shard, inbox: u64, from: u64, limits: (usize, usize)) -> Option<Range<u64>> {
    let id = InboxId::new(NameHash::default().slot_of("ann"), inbox);
    let found = LeftPart::find(&mut shard.machine, (id, GROUP), from, limits, &shard.table);
    found.unwrap().map(|LeftPart(sequences)| sequences)
}

const ALL: (usize, usize) = (usize::MAX, usize::MAX);

#[test]
fn messages_of_the_group_go_and_all_others_stay() {
    for checkpoints in [false, true] {
        let mut shard = Shard::new();
        let inbox = with_a_queue(&mut shard);
        if checkpoints {
            shard.checkpoint();
            shard.restart();
        }
        let before = shard.machine.counts();
        assert_eq!(leave(&mut shard, "ann", 1, 0..100), InboxReply::Done);
        let legacy = left(&mut shard)[0].1;
        assert!(legacy > inbox);
        // The first and the fourth have QoS 2.
        let stays = payloads(&[(1, "1"), (3, "3"), (4, "4"), (5, "5")]);
        for _ in 0..2 {
            assert_eq!(shard.queue(inbox), stays);
            let counts = shard.machine.counts();
            let moved = InboxCounts {
                legacies: 1,
                ..before
            };
            assert_eq!(counts, moved, "messages and bytes are what they were");
            assert_eq!(texts(&shard.hand_over("ann", legacy, &[])), ["2", "6", "7"]);
            shard.checkpoint();
            shard.restart();
        }
        let sequences: Vec<u64> = shard
            .hand_over("ann", legacy, &[])
            .iter()
            .map(|of| of.0)
            .collect();
        assert_eq!(shard.hand_over("ann", legacy, &sequences), []);
        assert_eq!(told(&shard), []);
        // The session goes on with what it has.
        let attached = shard.attach("ann", 2, true);
        assert_eq!(
            (attached.present, attached.inbox, attached.first),
            (true, inbox, 1)
        );
        deliver(&mut shard, "ann", "8", QoS::AtLeastOnce, Some(GROUP));
        shard.acknowledge("ann", 2, 8, &[1, 3, 4, 5]);
        assert_eq!(shard.queue(inbox), payloads(&[(8, "8")]));
        shard.checkpoint();
        assert_eq!(
            (shard.table.rows_of(b'Q'), shard.table.rows_of(b'L')),
            (1, 0)
        );
    }
}

#[test]
fn a_session_that_a_node_has_or_that_another_connection_had_leaves_nothing() {
    let mut shard = Shard::new();
    let inbox = with_a_queue(&mut shard);
    assert_eq!(leave(&mut shard, "ann", 2, 0..100), InboxReply::Stale);
    assert_eq!(leave(&mut shard, "ann", 0, 0..100), InboxReply::Stale);
    assert_eq!(leave(&mut shard, "bob", 1, 0..100), InboxReply::Stale);
    shard.attach("ann", 2, true);
    assert_eq!(leave(&mut shard, "ann", 2, 0..100), InboxReply::Stale);
    let linger = InboxOp::Linger {
        session: "ann".into(),
        epoch: 2,
        sent: 2,
    };
    shard.apply(&linger);
    assert_eq!(leave(&mut shard, "ann", 2, 0..100), InboxReply::Stale);
    assert_eq!(shard.queue(inbox).len(), 7);
    shard.detach("ann", 2, 2);
    shard.take_events();
    assert_eq!(leave(&mut shard, "ann", 2, 0..100), InboxReply::Done);
    assert_eq!(left(&mut shard).len(), 1);
}

#[test]
fn parts_are_told_in_the_order_of_their_messages_and_the_end_of_the_session_last() {
    let mut shard = Shard::new();
    let inbox = member(&mut shard, "ann");
    for number in 1..=9 {
        deliver(
            &mut shard,
            "ann",
            &number.to_string(),
            QoS::AtLeastOnce,
            Some(GROUP),
        );
    }
    shard.detach("ann", 1, 0);
    shard.take_events();
    let (mut from, mut parts) = (0, Vec::new());
    for _ in 0..2 {
        let part = look(&mut shard, inbox, from, (3, usize::MAX)).unwrap();
        from = part.start;
        leave(&mut shard, "ann", 1, part);
        parts.extend(left(&mut shard).into_iter().map(|of| of.1));
        // All of a replica's memory can be lost in between.
        shard.checkpoint();
        shard.restart();
    }
    shard.apply(&InboxOp::Remove {
        session: "ann".into(),
        epoch: 1,
    });
    let end = left(&mut shard);
    assert_eq!(end, [("ann".to_owned(), inbox)]);
    parts.push(inbox);
    for _ in 0..2 {
        assert_eq!(told(&shard), parts);
        let all: Vec<String> = parts
            .iter()
            .flat_map(|legacy| texts(&shard.hand_over("ann", *legacy, &[])))
            .collect();
        assert_eq!(all, ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        shard.checkpoint();
        shard.restart();
    }
}

#[test]
fn a_look_finds_where_messages_of_the_group_are() {
    let mut shard = Shard::new();
    let inbox = with_a_queue(&mut shard);
    for _ in 0..2 {
        assert_eq!(look(&mut shard, inbox, 0, ALL), Some(2..8));
        assert_eq!(look(&mut shard, inbox, 0, (1, usize::MAX)), Some(2..2));
        assert_eq!(look(&mut shard, inbox, 2, (2, usize::MAX)), Some(2..4));
        assert_eq!(look(&mut shard, inbox, 3, (1, usize::MAX)), Some(4..4));
        assert_eq!(look(&mut shard, inbox, 2, (100, 1)), Some(2..3));
        assert_eq!(look(&mut shard, inbox, 8, ALL), Some(8..8));
        shard.checkpoint();
        shard.restart();
    }
    assert_eq!(look(&mut shard, inbox + 7, 0, ALL), None);
    shard.attach("ann", 2, true);
    assert_eq!(look(&mut shard, inbox, 0, ALL), None);
}

#[test]
fn it_is_known_since_when_a_member_is_away() {
    let mut shard = Shard::new();
    shard.header.now_ms = 5_000;
    with_a_queue(&mut shard);
    shard.sleeper("bob", "own");
    shard.publish("own", "x", QoS::AtLeastOnce);
    let away = |shard: &mut Shard| {
        let mut found = Vec::new();
        let mut pass = QueuePass::new(&mut shard.machine);
        let tell = |queue: QueueView<'_>| {
            let groups: Vec<String> = queue.groups().map(str::to_owned).collect();
            let away = queue.away_member();
            found.push((
                queue.client().to_owned(),
                away.map(|of| (of.epoch.0, of.since)),
                groups,
            ));
        };
        pass.go_on(&mut shard.machine, 100, tell);
        found.sort();
        found.into_iter().next().unwrap()
    };
    let groups = vec![GROUP.to_owned(), OTHER.to_owned()];
    let since = Some(Timestamp(5_000));
    let ann = "ann".to_owned();
    assert_eq!(
        away(&mut shard),
        (ann.clone(), Some((1, since)), groups.clone())
    );
    shard.header.now_ms = 9_000;
    shard.detach("ann", 1, 2);
    assert_eq!(
        away(&mut shard),
        (ann.clone(), Some((1, since)), groups.clone())
    );
    shard.attach("ann", 2, true);
    assert_eq!(away(&mut shard), (ann.clone(), None, groups.clone()));
    shard.detach("ann", 2, 2);
    shard.checkpoint();
    shard.restart();
    assert_eq!(away(&mut shard), (ann, Some((2, None)), groups));
}

#[test]
fn a_legacy_of_a_session_that_is_away_goes_with_its_slot() {
    let mut shard = Shard::new();
    let inbox = with_a_queue(&mut shard);
    leave(&mut shard, "ann", 1, 0..5);
    let legacy = left(&mut shard)[0].1;
    shard.checkpoint();
    let at = NameHash::default().slot_of("ann");
    let mut upper = Shard {
        machine: shard.machine.split_off(at),
        table: shard.table.clone(),
        header: HEADER,
        events: Vec::new(),
    };
    let range = SlotRange {
        first: at,
        last: SlotRange::ALL.last,
    };
    let rows = &mut upper.table.rows;
    rows.retain(|key, _| InboxMachine::keeps(key, range));
    assert_eq!(told(&shard), []);
    assert_eq!(told(&upper), [legacy]);
    assert_eq!(texts(&upper.hand_over("ann", legacy, &[])), ["2"]);
    // Both give numbers from the same on, in slots of their own.
    leave(&mut upper, "ann", 1, 5..100);
    assert_eq!(left(&mut upper)[0].1, legacy + 1);
    assert_eq!(
        upper.queue(inbox),
        payloads(&[(1, "1"), (3, "3"), (4, "4"), (5, "5")])
    );
    assert_eq!(shard.machine.counts().messages, 0);
}

#[test]
fn logs_of_earlier_levels_do_not_have_it() {
    let shard = Shard::new();
    let op = InboxOp::Trim {
        session: "ann".into(),
        from: 0,
        below: 1,
        limit: RetentionLimit::Away {
            epoch: 1,
            group: GROUP.into(),
        },
    };
    assert!(op.is_gated());
    let mut lowered = Level::OLDEST;
    while !lowered.leaves_to_groups() {
        assert!(shard.machine.lowered(op.clone(), lowered).is_none());
        lowered.0 += 1;
    }
    assert!(shard.machine.lowered(op, lowered).is_some());
}
