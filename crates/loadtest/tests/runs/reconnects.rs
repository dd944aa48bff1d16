//! Connections that the broker closes during the load come back, and no count goes wrong.

use std::thread;
use std::time::Duration;

use loadtest::Topology;
use mqtt_proto::QoS;
use report::{Counts, Record};

use crate::broker::{Broker, Seen, Wrong};
use crate::crew::{messages, open, run, warns};

/// Two workers with a pair each, of which one meets the wrong: 2 × 200 messages in a second.
fn play(qos: QoS, wrong: Wrong) -> (Record, Seen) {
    let broker = Broker::start(&[((0, 50), wrong)]);
    let pairs = messages(Topology::Pairs { pairs: 2 }, qos, open(400.0));
    let record = run(2, pairs, &broker, Duration::from_secs(1));
    let seen = broker.seen_when_empty();
    assert_eq!(seen.sessions.len(), 5, "{qos:?} {wrong:?}");
    assert!(
        warns(&record, "connections broke off 1 times"),
        "{:?}",
        record.warnings
    );
    (record, seen)
}

/// Nothing is lost above QoS 0, because what was not acknowledged is sent again.
fn check_publisher(wrong: Wrong, duplicated: u64) {
    let counts = Counts {
        sent: 400,
        acknowledged: 400,
        delivered: 400 + duplicated,
        duplicated,
        disconnects: 1,
        ..Counts::default()
    };
    let with = |qos| {
        let (record, _) = play(qos, wrong);
        assert_eq!(record.counts, counts, "{qos:?} {wrong:?}");
        // The first that was due after the end of the connection waited for the next, half a second.
        let deliver = record.latencies.deliver.unwrap();
        assert!(deliver.max_ms >= 400.0, "{deliver:?}");
    };
    thread::scope(|scope| {
        scope.spawn(|| with(QoS::AtLeastOnce));
        scope.spawn(|| with(QoS::ExactlyOnce));
    });
}

#[test]
fn what_a_closed_connection_took_along_is_sent_again() {
    check_publisher(Wrong::CutBefore, 0);
}

/// The broker had it, but nobody knows: it comes twice, rightly so at QoS 1. At QoS 2 the session would
/// tell, but this broker has lost it.
#[test]
fn what_was_delivered_but_not_answered_comes_twice() {
    check_publisher(Wrong::CutUnanswered, 1);
}

/// At QoS 2 it is between PUBREC and PUBCOMP; to send it again would be wrong.
#[test]
fn what_was_answered_is_not_sent_again() {
    check_publisher(Wrong::CutAnswered, 0);
}

#[test]
fn what_an_absent_subscriber_misses_is_lost() {
    for qos in [QoS::AtMostOnce, QoS::ExactlyOnce] {
        let (record, seen) = play(qos, Wrong::CutReceivers);
        assert!(seen.unclaimed > 0 && seen.unclaimed < 150, "{seen:?}");
        let counts = Counts {
            sent: 400,
            acknowledged: if qos == QoS::AtMostOnce { 0 } else { 400 },
            delivered: 400 - seen.unclaimed,
            lost: seen.unclaimed,
            disconnects: 1,
            ..Counts::default()
        };
        assert_eq!(record.counts, counts, "{qos:?}");
        assert_eq!(record.publishers.len(), 1);
        assert_eq!(record.publishers[0].lost, seen.unclaimed);
    }
}
