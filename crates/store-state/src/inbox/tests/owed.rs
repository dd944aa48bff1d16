//! Retained messages that subscriptions owe.

use mqtt_proto::RetainHandling;

use super::*;

fn owed(filter: &str, place: &[u8]) -> Owed {
    Owed {
        filter: filter.into(),
        place: place.into(),
    }
}

fn page(payload: &str, filter: &str, from: &[u8], next: Option<&[u8]>) -> InboxOp {
    InboxOp::Replay {
        client: "ann".into(),
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
    assert_eq!(shard.table.rows_of(b'P'), 0);
}

#[test]
fn the_last_page_and_the_end_of_the_subscription_end_it() {
    let mut shard = Shard::new();
    let inbox = shard.session("ann", "a");
    shard.subscribe("ann", 1, "b", QoS::AtMostOnce);
    shard.checkpoint();
    shard.apply(&page("1", "a", b"", None));
    let op = InboxOp::Unsubscribe {
        client: "ann".into(),
        epoch: 1,
        filters: vec!["b".into()],
    };
    shard.apply(&op);
    shard.apply(&page("2", "b", b"", None));
    assert_eq!(shard.machine.queue_len(inbox), 1);
    assert_eq!(shard.attach("ann", 2, true).owed, []);
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'P'), 0);
}

#[test]
fn a_subscription_owes_what_it_asks_for() {
    let mut shard = Shard::new();
    shard.attach("ann", 1, false);
    let mut owes = |filter: &str, retain_handling| {
        let mut subscription = subscription(filter, QoS::AtLeastOnce);
        subscription.options.retain_handling = retain_handling;
        shard.apply(&InboxOp::Subscribe {
            client: "ann".into(),
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
