//! Subscriptions, and who is told of them.

use super::*;

#[test]
fn the_outlet_hears_of_each_change_once() {
    let mut shard = Shard::new();
    let told = |shard: &mut Shard| {
        let mut events = shard.take_events();
        events.retain(|event| matches!(event, Event::Filter(..)));
        events
    };
    let filter = |any, detached| vec![Event::Filter("a/+".into(), any, detached)];
    shard.session("ann", "a/+");
    assert_eq!(told(&mut shard), filter(true, false));
    shard.session("bob", "a/+");
    assert_eq!(told(&mut shard), []);
    shard.detach("ann", 1, 0);
    assert_eq!(told(&mut shard), filter(true, true));
    shard.detach("bob", 1, 0);
    shard.detach("bob", 1, 0);
    assert_eq!(told(&mut shard), []);
    shard.attach("ann", 2, true);
    assert_eq!(told(&mut shard), []);
    shard.attach("bob", 2, true);
    assert_eq!(told(&mut shard), filter(true, false));
    for (client, expected) in [("ann", vec![]), ("bob", filter(false, false))] {
        let reply = shard.apply(&InboxOp::Unsubscribe {
            session: client.into(),
            epoch: 2,
            filters: vec!["a/+".into(), "a/+".into()],
        });
        assert_eq!(reply, InboxReply::Unsubscribed(vec![true, false]));
        assert_eq!(told(&mut shard), expected);
    }
}

#[test]
fn members_of_groups_are_told_of_with_their_options() {
    let mut shard = Shard::new();
    shard.attach("ann", 1, false);
    let member = |options| vec![Event::Member("ann".into(), "$share/g/a".into(), options)];
    let reply = shard.subscribe("ann", 1, "$share/g/a", QoS::AtLeastOnce);
    assert_eq!(reply, InboxReply::Subscribed(vec![true]));
    assert_eq!(shard.take_events(), member(Some((0, 1))));
    shard.subscribe("ann", 1, "$share/g/a", QoS::AtLeastOnce);
    assert_eq!(shard.take_events(), []);
    let reply = shard.subscribe("ann", 1, "$share/g/a", QoS::ExactlyOnce);
    assert_eq!(reply, InboxReply::Subscribed(vec![false]));
    assert_eq!(shard.take_events(), member(Some((0, 2))));
    assert_eq!(shard.publish("a", "1", QoS::AtLeastOnce), published(0, 0));
}

#[test]
fn a_session_gets_a_message_once_as_all_its_subscriptions_say() {
    let mut shard = Shard::new();
    let inbox = shard.attach("ann", 1, false).inbox;
    let with = |filter: &str, qos, no_local, id| StoredSubscription {
        filter: filter.into(),
        options: SubscriptionOptions {
            qos,
            no_local,
            ..SubscriptionOptions::default()
        },
        id,
    };
    shard.apply(&InboxOp::Subscribe {
        session: "ann".into(),
        epoch: 1,
        subscriptions: vec![
            with("a/b", QoS::ExactlyOnce, true, 9),
            with("a/#", QoS::AtLeastOnce, false, 7),
            with("+/b", QoS::AtMostOnce, false, 0),
        ],
    });
    shard.take_events();
    let mut seen = |publisher: u64| {
        let message = Arc::new(message("a/b", "1", QoS::ExactlyOnce));
        shard.apply(&InboxOp::Publish {
            message,
            publisher,
            origin: None,
        });
        match &shard.take_events()[..] {
            [Event::Queued(of, _, seen)] if *of == inbox => (seen.qos, seen.ids.clone()),
            other => panic!("{other:?}"),
        }
    };
    // [MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4]
    assert_eq!(seen(0), (QoS::ExactlyOnce, vec![7, 9]));
    assert_eq!(seen(publisher_hash("bob")), (QoS::ExactlyOnce, vec![7, 9]));
    // [MQTT-3.8.3-3] its own messages come by the subscriptions without No Local only.
    assert_eq!(seen(publisher_hash("ann")), (QoS::AtLeastOnce, vec![7]));
}

#[test]
fn retain_is_forwarded_to_whom_wants_it_so() {
    // [MQTT-3.3.1-12] [MQTT-3.3.1-13]
    let mut shard = Shard::new();
    for (client, retain_as_published) in [("ann", false), ("bob", true)] {
        shard.attach(client, 1, false);
        let mut subscription = subscription("a", QoS::AtLeastOnce);
        subscription.options.retain_as_published = retain_as_published;
        shard.apply(&InboxOp::Subscribe {
            session: client.into(),
            epoch: 1,
            subscriptions: vec![subscription],
        });
    }
    shard.take_events();
    for retain in [false, true] {
        let message = ApplicationMessage {
            retain,
            ..message("a", "1", QoS::AtLeastOnce)
        };
        shard.apply(&publish(message, None));
        let flags: Vec<bool> = shard
            .take_events()
            .iter()
            .map(|event| match event {
                Event::Queued(.., seen) => seen.retain,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(flags, [false, retain]);
    }
}

#[test]
fn many_filters_of_one_request_are_answered_and_told_of_in_its_order() {
    let mut shard = Shard::new();
    shard.attach("ann", 1, false);
    shard.subscribe("ann", 1, "f05", QoS::AtMostOnce);
    shard.take_events();
    let names = [
        "f09",
        "f05",
        "f01",
        "$share/g/a",
        "f07",
        "f03",
        "f09",
        "f08",
        "f00",
        "f09",
        "f02",
    ];
    let op = InboxOp::Subscribe {
        session: "ann".into(),
        epoch: 1,
        subscriptions: names
            .map(|name| subscription(name, QoS::AtLeastOnce))
            .into(),
    };
    let new = [
        true, false, true, true, true, true, false, true, true, false, true,
    ];
    assert_eq!(shard.apply(&op), InboxReply::Subscribed(new.into()));
    let told: Vec<String> = shard
        .take_events()
        .into_iter()
        .map(|event| match event {
            Event::Filter(filter, true, false) | Event::Member(_, filter, Some(_)) => filter,
            other => panic!("{other:?}"),
        })
        .collect();
    let firsts = [
        "f09",
        "f01",
        "$share/g/a",
        "f07",
        "f03",
        "f08",
        "f00",
        "f02",
    ];
    assert_eq!(told, firsts);
    let attached = shard.attach("ann", 2, true);
    let filters = attached.subscriptions.iter().map(|of| &*of.filter);
    let sorted = [
        "$share/g/a",
        "f00",
        "f01",
        "f02",
        "f03",
        "f05",
        "f07",
        "f08",
        "f09",
    ];
    assert!(filters.eq(sorted));
    let bytes = sorted.iter().map(|filter| filter.len()).sum::<usize>();
    assert_eq!(shard.machine.counts().filter_bytes, bytes);
    assert_eq!(shard.publish("f05", "1", QoS::AtLeastOnce), published(1, 0));
    let mut gone = names.map(|name| -> Box<str> { name.into() });
    gone[0] = "f04".into();
    let reply = shard.apply(&InboxOp::Unsubscribe {
        session: "ann".into(),
        epoch: 2,
        filters: gone.into(),
    });
    let had = [
        false, true, true, true, true, true, true, true, true, false, true,
    ];
    assert_eq!(reply, InboxReply::Unsubscribed(had.into()));
    assert_eq!(shard.machine.counts().filter_bytes, 0);
    assert_eq!(shard.publish("f09", "1", QoS::AtLeastOnce), published(0, 0));
}
