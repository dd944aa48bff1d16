//! Retained messages that subscriptions owe.

use mqtt_proto::RetainHandling;

use super::*;
use crate::row;

fn owed(filter: &str, place: &[u8]) -> Owed {
    Owed {
        filter: filter.into(),
        place: place.into(),
    }
}

fn page(payload: &str, filter: &str, from: &[u8], next: Option<&[u8]>) -> InboxOp {
    InboxOp::Replay {
        session: "ann".into(),
        epoch: 1,
        items: vec![item("a", payload, QoS::ExactlyOnce, None)],
        progress: vec![Progress {
            filter: filter.into(),
            from: from.into(),
            next: next.map(Box::from),
        }],
    }
}

#[test]
fn pages_are_queued_once_and_go_on_after_a_restart() {
    let mut shard = Shard::new();
    let inbox = shard.session("ann", "a");
    shard.subscribe("ann", 1, "#", QoS::ExactlyOnce);
    let first = page("1", "a", b"", Some(b"x"));
    for op in [&first, &first, &page("2", "a", b"x", Some(b"y"))] {
        assert_eq!(shard.apply(op), published(1, 0));
    }
    assert_eq!(shard.machine.queue_len(inbox), 2);
    shard.checkpoint();
    shard.restart();
    let attached = shard.attach("ann", 2, true);
    assert_eq!(attached.owed, [owed("a", b"y"), owed("#", b"")]);
    // Of the connection before.
    let last = page("3", "a", b"y", None);
    assert_eq!(shard.apply(&last), InboxReply::Stale);
    assert_eq!(shard.attach("ann", 3, false).owed, []);
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'G'), 0);
}

#[test]
fn the_last_page_and_the_end_of_the_subscription_end_it() {
    let mut shard = Shard::new();
    let inbox = shard.session("ann", "a");
    shard.subscribe("ann", 1, "b", QoS::AtMostOnce);
    shard.checkpoint();
    shard.apply(&page("1", "a", b"", None));
    let op = InboxOp::Unsubscribe {
        session: "ann".into(),
        epoch: 1,
        filters: vec!["b".into()],
    };
    shard.apply(&op);
    shard.apply(&page("2", "b", b"", None));
    assert_eq!(shard.machine.queue_len(inbox), 1);
    assert_eq!(shard.attach("ann", 2, true).owed, []);
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'G'), 0);
}

#[test]
fn a_subscription_owes_what_it_asks_for() {
    let mut shard = Shard::new();
    shard.attach("ann", 1, false);
    let mut owes = |filter: &str, retain_handling| {
        let mut subscription = subscription(filter, QoS::AtLeastOnce);
        subscription.options.retain_handling = retain_handling;
        shard.apply(&InboxOp::Subscribe {
            session: "ann".into(),
            epoch: 1,
            subscriptions: vec![subscription],
        });
        let attached = shard.attach("ann", 1, true);
        shard.apply(&page("1", filter, b"", None));
        !attached.owed.is_empty()
    };
    assert!(!owes("a", RetainHandling::DoNotSend));
    assert!(!owes("a", RetainHandling::SendIfNew));
    assert!(owes("a", RetainHandling::SendAtSubscribe));
    assert!(owes("b", RetainHandling::SendIfNew));
    assert!(!owes("$share/g/a", RetainHandling::SendAtSubscribe));
}

#[test]
fn what_an_earlier_version_wrote_is_owed_in_its_order_and_written_anew() {
    let mut shard = Shard::new();
    shard.session("ann", "a");
    for filter in ["b", "c"] {
        shard.subscribe("ann", 1, filter, QoS::AtLeastOnce);
    }
    shard.checkpoint();
    for key in shard.table.keys_of(b'G') {
        shard.table.rows.remove(&key);
    }
    let all = [owed("c", b"y"), owed("a", b""), owed("b", b"x")];
    let key = row::unseeded_key(b'P', "ann");
    shard.table.rows.insert(key, row::encode(&all.to_vec()));
    for _ in 0..2 {
        shard.restart();
        assert_eq!(shard.attach("ann", 2, true).owed, all);
        shard.checkpoint();
        assert_eq!(
            (shard.table.rows_of(b'P'), shard.table.rows_of(b'G')),
            (0, 3)
        );
    }
}

#[test]
fn rows_by_identifiers_are_written_anew_by_the_number_of_the_inbox() {
    let long = "c".repeat(60_000);
    let mut shard = Shard::new();
    shard.session(&long, "a");
    shard.subscribe(&long, 1, "b", QoS::AtLeastOnce);
    shard.checkpoint();
    for key in shard.table.keys_of(b'G') {
        shard.table.rows.remove(&key);
    }
    let all = [owed("b", b"x"), owed("a", b"")];
    for (number, owed) in (3..).zip(&all) {
        let key = row::unseeded_numbered_key(b'F', &long, number);
        shard.table.rows.insert(key, row::encode(owed));
    }
    let survey = InboxMachine::survey(Slots::ALL, &shard.table);
    assert_eq!(survey.findings, []);
    for _ in 0..2 {
        shard.restart();
        assert_eq!(shard.attach(&long, 2, true).owed, all);
        shard.checkpoint();
        let rows = |kind| shard.table.keys_of(kind);
        assert_eq!(rows(b'F').len(), 0);
        assert_eq!(
            rows(b'G').iter().map(Vec::len).collect::<Vec<_>>(),
            [19, 19]
        );
    }
    let survey = InboxMachine::survey(Slots::ALL, &shard.table);
    assert_eq!(survey.findings, []);
}

/// One filter after the other, and each again: what is written is what changed, however much is owed.
#[test]
fn what_a_change_writes_does_not_grow_with_what_is_owed() {
    let mut shard = Shard::new();
    shard.session("ann", "filter/0");
    for n in 1..1_000 {
        shard.subscribe("ann", 1, &format!("filter/{n}"), QoS::AtMostOnce);
    }
    shard.checkpoint();
    let before = shard.machine.unsaved_bytes();
    for n in 0..100 {
        shard.apply(&page("1", &format!("filter/{n}"), b"", Some(b"x")));
    }
    let unsaved = shard.machine.unsaved_bytes() - before;
    assert!(unsaved < 100 * 500, "{unsaved} bytes for 100 pages");
}
