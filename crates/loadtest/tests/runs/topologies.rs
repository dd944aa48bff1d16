//! Each topology gets all its messages, the same ones whatever the number of workers.

use std::thread;
use std::time::Duration;

use loadtest::Topology;
use mqtt_proto::QoS;
use report::{Counts, Record};

use crate::broker::{Broker, Seen};
use crate::crew::{crew, messages, open, record, run, settings};

const DURATION: Duration = Duration::from_millis(250);

/// Sends this many messages in all with 1, 2 and 3 workers; `check` sees what the broker saw.
fn check_topology(
    topology: Topology,
    qos: QoS,
    expected: Counts,
    check: impl Fn(&Record, &Seen) + Sync,
) {
    let rate = expected.sent.max(1) as f64 / DURATION.as_secs_f64();
    let with = |workers: usize| {
        let broker = Broker::start(&[]);
        let record = run(
            workers,
            messages(topology.clone(), qos, open(rate)),
            &broker,
            DURATION,
        );
        assert_eq!(record.counts, expected, "{topology}, {workers} workers");
        assert_eq!(record.publishers, [], "{topology}, {workers} workers");
        assert_eq!(record.workers as usize, workers);
        assert_eq!(record.connections, topology.connections() as u64);
        let seen = broker.seen_when_empty();
        assert_eq!(seen.sessions.len(), topology.connections());
        // All publishers at the same pace.
        assert_eq!(seen.published.len(), topology.publishers(), "{topology}");
        let each = expected.sent / topology.publishers().max(1) as u64;
        assert!(
            seen.published.values().all(|&count| count == each),
            "{seen:?}"
        );
        check(&record, &seen);
    };
    thread::scope(|scope| {
        for workers in 1..=3 {
            let with = &with;
            scope.spawn(move || with(workers));
        }
    });
}

/// Subscribers that each received this many.
fn check_delivered(seen: &Seen, subscribers: usize, each: u64) {
    assert_eq!(seen.delivered.len(), subscribers, "{seen:?}");
    assert!(
        seen.delivered.values().all(|&count| count == each),
        "{seen:?}"
    );
}

fn counts(sent: u64, acknowledged: u64, delivered: u64) -> Counts {
    Counts {
        sent,
        acknowledged,
        delivered,
        ..Counts::default()
    }
}

#[test]
fn pairs() {
    let topology = Topology::Pairs { pairs: 6 };
    for (qos, acknowledged) in [(QoS::AtMostOnce, 0), (QoS::ExactlyOnce, 300)] {
        let counts = counts(300, acknowledged, 300);
        check_topology(topology.clone(), qos, counts, |record, seen| {
            check_delivered(seen, 6, 50);
            let deliver = record.latencies.deliver.as_ref();
            assert_eq!(deliver.map(|latency| latency.count), Some(300));
        });
    }
}

/// Two publishers, so that one of three workers has none.
#[test]
fn fan_out() {
    let topology = Topology::FanOut {
        publishers: 2,
        subscribers: 5,
    };
    let counts = counts(100, 100, 500);
    check_topology(topology, QoS::AtLeastOnce, counts, |record, seen| {
        check_delivered(seen, 5, 100);
        assert!((record.asked_per_second - 2_000.0).abs() < 1e-6);
    });
}

/// Two members, so that one of three workers has none.
#[test]
fn shared_subscription() {
    let topology = Topology::Shared {
        publishers: 6,
        members: 2,
    };
    let counts = counts(300, 300, 300);
    check_topology(topology, QoS::AtLeastOnce, counts, |_, seen| {
        check_delivered(seen, 2, 150);
    });
}

#[test]
fn fan_in() {
    let topology = Topology::FanIn { publishers: 4 };
    let counts = counts(200, 200, 0);
    check_topology(topology, QoS::AtLeastOnce, counts, |record, seen| {
        assert_eq!(seen.unclaimed, 200);
        assert_eq!(record.headline, "acknowledge");
        assert_eq!(record.latencies.deliver, None);
        assert!(record.messages_per_second > 0.0);
    });
}

/// Two groups, so that one of three workers has none.
#[test]
fn groups() {
    let topology = Topology::Groups {
        publishers: 6,
        groups: 2,
    };
    let counts = counts(300, 0, 300);
    check_topology(topology, QoS::AtMostOnce, counts, |_, seen| {
        check_delivered(seen, 2, 150);
    });
}

#[test]
fn idle() {
    let topology = Topology::Idle { connections: 7 };
    check_topology(topology, QoS::AtLeastOnce, counts(0, 0, 0), |record, _| {
        let connect = record.latencies.connect.as_ref();
        assert_eq!(connect.map(|latency| latency.count), Some(7));
    });
}

#[test]
fn the_warm_up_counts_but_is_not_timed() {
    let broker = Broker::start(&[]);
    let pairs = messages(
        Topology::Pairs { pairs: 2 },
        QoS::AtLeastOnce,
        open(1_000.0),
    );
    let mut settings = settings(pairs, &broker, DURATION);
    settings.warm_up = Duration::from_millis(100);
    let record = record(crew(2), &settings).unwrap();
    assert_eq!(record.counts, counts(350, 350, 350));
    let latencies = &record.latencies;
    for timed in [
        &latencies.deliver,
        &latencies.acknowledge,
        &latencies.due_to_sent,
    ] {
        assert_eq!(timed.as_ref().map(|latency| latency.count), Some(250));
    }
}
