//! Connections and sessions come and go.

use super::*;

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
            client: client.into(),
            epoch,
        },
        InboxOp::Unsubscribe {
            client: client.into(),
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
        client: "ann".into(),
        items: items.to_vec(),
        origin: None,
    });
    shard.detach("ann", 1, 2);
    // From the tables as well as from memory.
    shard.checkpoint();
    shard.take_events();
    let removed = shard.apply(&InboxOp::Remove {
        client: "ann".into(),
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
    shard.machine.for_each_filter(&mut recorder);
    assert_eq!(recorder.0, told);
    // A late request of the dead process attaches nobody.
    assert!(shard.attach("ann", 2, true).present);
    assert_eq!(shard.machine.counts().attached, 0);
}
