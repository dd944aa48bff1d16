//! Connections and sessions come and go.

use super::*;
use crate::NameHash;
use crate::inbox::tables::{InboxRow, Rest};
use crate::row;

fn node_up(incarnation: u64) -> InboxOp {
    InboxOp::NodeUp {
        node: 1,
        incarnation,
    }
}

#[test]
fn a_session_goes_on_as_it_was() {
    let mut shard = Shard::new();
    let first = shard.attach("ann", 5, true);
    assert_eq!((first.present, first.incarnation), (false, 5));
    assert_eq!((first.first, first.sent), (1, 1));
    shard.subscribe("ann", 5, "a", QoS::AtLeastOnce);
    for payload in ["1", "2", "3"] {
        shard.publish("a", payload, QoS::AtLeastOnce);
    }
    shard.acknowledge("ann", 5, 2, &[1]);
    assert_eq!(shard.detach("ann", 5, 2), InboxReply::Done);
    let second = shard.attach("ann", 9, true);
    assert_eq!((second.present, second.incarnation), (true, 5));
    assert_eq!(second.inbox, first.inbox);
    assert_eq!((second.first, second.sent), (2, 3));
    assert_eq!(second.subscriptions, [subscription("a", QoS::AtLeastOnce)]);
    assert_eq!(shard.queue(second.inbox), payloads(&[(2, "2"), (3, "3")]));
}

#[test]
fn older_epochs_change_nothing() {
    let mut shard = Shard::new();
    let inbox = shard.session("ann", "a");
    shard.publish("a", "1", QoS::ExactlyOnce);
    shard.attach("ann", 7, true);
    shard.take_events();
    assert_eq!(shard.detach("ann", 6, 1), InboxReply::Stale);
    assert_eq!(shard.acknowledge("ann", 6, 1, &[1]), InboxReply::Stale);
    assert_eq!(shard.receipt("ann", 6, 1), InboxReply::Stale);
    let stale = shard.subscribe("ann", 6, "b", QoS::AtMostOnce);
    assert_eq!(stale, InboxReply::Stale);
    let (client, epoch) = ("ann", 6);
    for op in [
        InboxOp::Remove {
            session: client.into(),
            epoch,
        },
        InboxOp::Unsubscribe {
            session: client.into(),
            epoch,
            filters: vec!["a".into()],
        },
        InboxOp::Attach {
            client: client.into(),
            epoch,
            node: 1,
            node_incarnation: 1,
            resume: false,
        },
    ] {
        assert_eq!(shard.apply(&op), InboxReply::Stale, "{op:?}");
    }
    assert_eq!(shard.take_events(), []);
    assert_eq!(shard.queue(inbox), payloads(&[(1, "1")]));
    assert_eq!(shard.machine.counts().attached, 1);
}

#[test]
fn a_session_that_begins_twice_because_its_node_says_it_again_is_one() {
    let mut shard = Shard::new();
    shard.sleeper("ann", "old");
    let first = shard.attach("ann", 5, false);
    let again = shard.attach("ann", 5, false);
    assert_eq!((again.inbox, again.present), (first.inbox, false));
    // The client had the first answer, and has subscribed: that is said behind it.
    let slot = NameHash::default().slot_of("ann");
    let name = SessionName::Inbox(InboxId::new(slot, first.inbox));
    let subscribed = shard.apply(&InboxOp::Subscribe {
        session: name,
        epoch: 5,
        subscriptions: vec![subscription("a", QoS::AtLeastOnce)],
    });
    assert_eq!(subscribed, InboxReply::Subscribed(vec![true]));
    let again = shard.attach("ann", 5, false);
    assert_eq!(again.subscriptions, [subscription("a", QoS::AtLeastOnce)]);
    shard.publish("a", "1", QoS::AtLeastOnce);
    assert_eq!(shard.queue(first.inbox), payloads(&[(1, "1")]));
    // The next one begins anew.
    assert_ne!(shard.attach("ann", 6, false).inbox, first.inbox);
}

#[test]
fn a_session_that_does_not_go_on_leaves_nothing_behind() {
    let mut shard = Shard::new();
    let old = shard.sleeper("ann", "a");
    shard.publish("a", "1", QoS::AtLeastOnce);
    shard.take_events();
    let new = shard.attach("ann", 2, false);
    assert!(!new.present && new.inbox != old && new.subscriptions.is_empty());
    assert_eq!((new.incarnation, new.first), (2, 1));
    assert_eq!(
        shard.take_events(),
        [
            Event::Filter("a".into(), false, false),
            Event::Dropped("ann".into(), b"1".to_vec(), DropReason::SessionEnded),
        ]
    );
    assert_eq!(shard.publish("a", "2", QoS::AtLeastOnce), published(0, 0));
    assert_eq!(shard.machine.counts().messages, 0);
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'I'), 1);
}

#[test]
fn a_group_gets_nothing_that_a_connection_may_have_got_that_has_not_said_what_it_sent() {
    // [MQTT-4.8.2-5]: the next session begins at another node, which hears nothing of the one that had the connection.
    let group = Some("$share/g/a");
    let mut shard = Shard::new();
    let inbox = shard.session("ann", "$share/g/a");
    let items = [
        item("a", "2", QoS::ExactlyOnce, group),
        item("a", "1", QoS::AtLeastOnce, group),
    ];
    shard.apply(&InboxOp::Deliver {
        session: "ann".into(),
        items: items.to_vec(),
        origin: None,
    });
    shard.attach("ann", 2, false);
    let rest = shard.hand_over("ann", inbox, &[]);
    let rest: Vec<_> = rest.iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(rest, [2]);
}

#[test]
fn a_group_gets_what_a_session_cannot_have_received() {
    // [MQTT-4.8.2-5]
    let group = Some("$share/g/a");
    let mut shard = Shard::new();
    let inbox = shard.session("ann", "$share/g/a");
    let items = [
        item("a", "sent 2", QoS::ExactlyOnce, group),
        item("a", "sent 1", QoS::AtLeastOnce, group),
        item("a", "own", QoS::ExactlyOnce, None),
        item("a", "new 2", QoS::ExactlyOnce, group),
    ];
    shard.apply(&InboxOp::Deliver {
        session: "ann".into(),
        items: items.to_vec(),
        origin: None,
    });
    shard.detach("ann", 1, 2);
    // From the tables as well as from memory.
    shard.checkpoint();
    shard.take_events();
    let removed = shard.apply(&InboxOp::Remove {
        session: "ann".into(),
        epoch: 1,
    });
    assert_eq!(removed, InboxReply::Done);
    let dropped =
        |payload: &str| Event::Dropped("ann".into(), payload.into(), DropReason::SessionEnded);
    assert_eq!(
        shard.take_events(),
        [
            Event::Member("ann".into(), "$share/g/a".into(), None),
            dropped("sent 2"),
            dropped("own"),
            Event::LeftBehind("ann".into(), inbox),
        ]
    );
    let left = vec![(2, items[1].clone()), (4, items[3].clone())];
    assert_eq!(shard.hand_over("ann", inbox, &[]), left);
    assert_eq!(shard.hand_over("ann", inbox, &[2, 4]), []);
    shard.checkpoint();
    assert_eq!(shard.table.rows.len(), 1, "only the machine's own row");
    assert_eq!(shard.machine.counts(), InboxCounts::default());
}

#[test]
fn what_a_dead_process_had_attached_is_detached() {
    let mut shard = Shard::new();
    shard.apply(&node_up(1));
    shard.session("ann", "a");
    shard.checkpoint();
    shard.take_events();
    shard.apply(&node_up(1));
    shard.apply(&node_up(0));
    assert_eq!(shard.take_events(), []);
    shard.apply(&node_up(2));
    let told = [Event::Filter("a".into(), true, true)];
    assert_eq!(shard.take_events(), told);
    assert_eq!(shard.machine.counts().attached, 0);
    // The inbox's row is not written for it, and says the same when it is read.
    assert_eq!(shard.checkpoint().entries.len(), 1);
    shard.restart();
    assert_eq!(shard.machine.counts().attached, 0);
    let mut recorder = Recorder::default();
    shard.machine.tell_routes(&mut recorder);
    assert_eq!(recorder.0, told);
    // A late request of the dead process attaches nobody.
    assert!(shard.attach("ann", 2, true).present);
    assert_eq!(shard.machine.counts().attached, 0);
}

/// A shard with the session of "ann", whose connection with epoch 1 has ended, and whose inbox lingers.
fn lingering() -> (Shard, u64) {
    let mut shard = Shard::new();
    let inbox = shard.session("ann", "a");
    let progress = Progress {
        filter: "a".into(),
        from: Box::default(),
        next: None,
    };
    shard.apply(&InboxOp::Replay {
        session: "ann".into(),
        epoch: 1,
        items: Vec::new(),
        progress: vec![progress],
    });
    shard.publish("a", "1", QoS::AtLeastOnce);
    shard.take_events();
    let op = InboxOp::Linger {
        session: "ann".into(),
        epoch: 1,
        sent: 1,
    };
    assert_eq!(shard.apply(&op), InboxReply::Done);
    (shard, inbox)
}

fn again(epoch: u64, last: u64) -> InboxOp {
    InboxOp::AttachAgain {
        client: "ann".into(),
        epoch,
        node: 1,
        node_incarnation: 1,
        last,
        knows_owed: false,
    }
}

fn late(epoch: u64) -> InboxOp {
    late_or_detached(epoch, false)
}

fn late_or_detached(epoch: u64, detached: bool) -> InboxOp {
    InboxOp::DeliverLate {
        session: "ann".into(),
        epoch,
        detached,
        item: item("a", "x", QoS::AtMostOnce, None),
    }
}

#[test]
fn who_comes_back_to_a_node_that_knows_its_subscriptions_is_not_told_them() {
    let (mut shard, inbox) = lingering();
    shard.publish("a", "2", QoS::AtLeastOnce);
    let InboxReply::AttachedAgain(known) = shard.apply(&again(2, 1)) else {
        panic!("its last connection had epoch 1");
    };
    assert_eq!((known.inbox, known.present, known.sent), (inbox, true, 2));
    assert_eq!(known.subscriptions, []);
    assert_eq!(shard.take_events(), [], "no filter is looked at");
    // It is connected: nobody has said what was sent.
    let InboxReply::Attached(unknown) = shard.apply(&again(3, 2)) else {
        panic!("the inbox does not linger");
    };
    assert_eq!((unknown.subscriptions.len(), unknown.sent), (1, 3));
    assert_eq!(shard.apply(&again(2, 3)), InboxReply::Stale);
}

#[test]
fn who_comes_back_elsewhere_or_after_another_connection_is_told_its_subscriptions() {
    let (mut shard, _) = lingering();
    shard.publish("a", "2", QoS::AtLeastOnce);
    let elsewhere = shard.apply(&InboxOp::AttachAgain {
        client: "ann".into(),
        epoch: 2,
        node: 2,
        node_incarnation: 1,
        last: 1,
        knows_owed: false,
    });
    let InboxReply::Attached(elsewhere) = elsewhere else {
        panic!("another node does not know them");
    };
    assert_eq!(elsewhere.subscriptions.len(), 1);
    assert_eq!(
        elsewhere.sent, 2,
        "what came while it lingered was not sent"
    );
    shard.apply(&InboxOp::Linger {
        session: "ann".into(),
        epoch: 2,
        sent: 1,
    });
    assert!(matches!(shard.apply(&again(3, 1)), InboxReply::Attached(_)));
}

#[test]
fn a_node_that_does_not_know_what_is_owed_is_told_everything() {
    let (mut shard, _) = lingering();
    shard.subscribe("ann", 1, "b", QoS::AtMostOnce);
    let again = |epoch, last, knows_owed| InboxOp::AttachAgain {
        client: "ann".into(),
        epoch,
        node: 1,
        node_incarnation: 1,
        last,
        knows_owed,
    };
    let InboxReply::AttachedAgain(known) = shard.apply(&again(2, 1, true)) else {
        panic!("it knows");
    };
    assert_eq!((&*known.subscriptions, &*known.owed), (&[][..], &[][..]));
    shard.apply(&InboxOp::Linger {
        session: "ann".into(),
        epoch: 2,
        sent: 0,
    });
    let InboxReply::Attached(unknown) = shard.apply(&again(3, 2, false)) else {
        panic!("it does not know");
    };
    assert_eq!((unknown.subscriptions.len(), unknown.owed.len()), (2, 1));
}

#[test]
fn what_lingers_stays_so_over_a_restart_and_ends_with_its_process() {
    let (mut shard, _) = lingering();
    shard.publish("a", "2", QoS::AtLeastOnce);
    shard.checkpoint();
    shard.restart();
    assert_eq!(shard.apply(&late(1)), published(1, 0));
    shard.apply(&node_up(2));
    assert_eq!(shard.apply(&late(1)), InboxReply::Stale);
    let later = shard.apply(&InboxOp::Attach {
        client: "ann".into(),
        epoch: 2,
        node: 1,
        node_incarnation: 2,
        resume: true,
    });
    let InboxReply::Attached(later) = later else {
        panic!("{later:?}");
    };
    assert_eq!(later.sent, 2, "it is known what was sent");
}

#[test]
fn the_row_of_an_inbox_that_does_not_linger_is_as_it_always_was() {
    let row_with = |lingers, away_since, class, marks: &[(u64, u64)]| {
        row::encode(&InboxRow::<&[StoredSubscription], &[u64]> {
            number: 1,
            incarnation: 1,
            epoch: 1,
            attached: Some((1, 1)),
            subscriptions: &[][..],
            next: 1,
            head: 1,
            alive: 0,
            bytes: 0,
            sent: 0,
            released: &[][..],
            rest: Rest {
                lingers,
                away_since: Timestamp(away_since),
                class,
                marks: marks.to_vec(),
            },
        })
    };
    let row = |lingers, away_since| row_with(lingers, away_since, ClassId::DEFAULT, &[]);
    let plain = row(false, 0);
    assert_eq!(plain, [1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0]);
    assert_eq!(row(true, 0), [&plain[..], &[1]].concat());
    assert_eq!(row(false, 9), [&plain[..], &[0, 9]].concat());
    for (lingers, away_since) in [(false, 0), (true, 0), (false, 9), (true, 9)] {
        let read: InboxRow = row::decode(b"I", &row(lingers, away_since)).unwrap();
        let rest = Rest {
            lingers,
            away_since: Timestamp(away_since),
            class: ClassId::DEFAULT,
            marks: Vec::new(),
        };
        assert_eq!(read.rest, rest);
    }
    let marked = row_with(false, 0, ClassId::DEFAULT, &[(3, 4)]);
    assert_eq!(marked, [&plain[..], &[0, 0, 0, 1, 3, 4]].concat());
    let read: InboxRow = row::decode(b"I", &marked).unwrap();
    assert_eq!(read.rest.marks, [(3, 4)]);
    let classed = row_with(true, 0, ClassId(7), &[]);
    assert_eq!(classed, [&plain[..], &[1, 0, 7, 0]].concat());
    let read: InboxRow = row::decode(b"I", &classed).unwrap();
    assert_eq!((read.rest.lingers, read.rest.class), (true, ClassId(7)));
    let longer = [&marked[..], &[0]].concat();
    assert!(row::decode::<InboxRow>(b"I", &longer).is_err());
}

#[test]
fn a_late_message_is_for_a_session_without_a_later_connection() {
    let (mut shard, inbox) = lingering();
    assert_eq!(shard.apply(&late(1)), published(1, 0));
    assert_eq!(shard.take_events(), [], "nobody reads");
    shard.attach("ann", 2, true);
    assert_eq!(shard.apply(&late(1)), InboxReply::Stale);
    assert_eq!(shard.apply(&late(2)), InboxReply::Stale, "it is connected");
    assert_eq!(shard.machine.queue_len(inbox), 2);
    let connected = shard.apply(&late_or_detached(2, true));
    assert_eq!(connected, InboxReply::Stale);
    shard.detach("ann", 2, 2);
    assert_eq!(shard.apply(&late(2)), InboxReply::Stale);
    assert_eq!(shard.apply(&late_or_detached(2, true)), published(1, 0));
}

#[test]
fn a_lingering_inbox_that_fills_up_slows_nobody_down() {
    let (mut shard, _) = lingering();
    shard.header.limits.queue.messages = 2;
    let pressing = |reply| match reply {
        InboxReply::Published { pressing, .. } => pressing,
        other => panic!("{other:?}"),
    };
    assert_eq!(pressing(shard.publish("a", "2", QoS::AtLeastOnce)), 0);
    shard.apply(&again(2, 1));
    assert_eq!(pressing(shard.publish("a", "3", QoS::AtLeastOnce)), 1);
}

/// What is told of cursors.
#[derive(Default)]
struct Cursors(Vec<(u64, bool)>);

impl InboxOutlet for Cursors {
    fn queued(&mut self, _: u64, _: u64, _: &Item) {}
    fn dropped(&mut self, _: InboxDrop<'_>) {}
    fn filter(&mut self, _: &str, _: bool, _: bool) {}
    fn member(&mut self, _: &str, _: &str, _: Option<&StoredSubscription>) {}
    fn left_behind(&mut self, _: &str, _: u64) {}

    fn awaited(&mut self, inbox: u64, is_awaited: bool) {
        self.0.push((inbox, is_awaited));
    }
}

#[test]
fn the_cursor_of_a_session_that_has_ended_is_not_awaited() {
    let attach = |epoch| InboxOp::Attach {
        client: "ann".into(),
        epoch,
        node: 1,
        node_incarnation: 1,
        resume: false,
    };
    let remove = InboxOp::Remove {
        session: "ann".into(),
        epoch: 2,
    };
    let mut shard = Shard::new();
    let mut cursors = Cursors::default();
    for op in [attach(1), attach(2), remove] {
        let reply = shard
            .machine
            .apply(&shard.header, &op, &shard.table, &mut cursors);
        reply.unwrap();
    }
    let told = [(1, true), (1, false), (2, true), (2, false)];
    assert_eq!(cursors.0, told);
}
