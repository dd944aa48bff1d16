//! Each wrong that a broker does shows in its own count, and at the right publisher.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use loadtest::verify::Faults;
use loadtest::workload::Pace;
use loadtest::{Engine, EngineError, Outcome, Share, Target, Topology, Workload, monotonic_ns};
use mqtt_proto::QoS;
use report::{Counts, PublisherCounts};

use crate::broker::{Broker, Which, Wrong};
use crate::crew::{messages, open, run};

fn engine(workload: Workload, address: SocketAddr) -> Engine {
    let target = Target::new(address);
    Engine::new(workload, Share::WHOLE, target, "test", monotonic_ns()).unwrap()
}

/// 200 messages at 1,000 per second, or as many as pass in 0.2 s through a window.
fn play(wrongs: &[(Which, Wrong)], qos: QoS, pace: Pace) -> Outcome {
    let workload = messages(Topology::Pairs { pairs: 1 }, qos, pace);
    let mut engine = engine(workload, Broker::start(wrongs).address);
    engine.connect(usize::MAX, |_| Ok(None)).unwrap();
    engine.load(Duration::from_millis(200), true).unwrap();
    engine.drain().unwrap();
    engine.outcome()
}

fn check(wrongs: &[(Which, Wrong)], qos: QoS, expected: Faults) -> Outcome {
    let outcome = play(wrongs, qos, open(1_000.0));
    assert_eq!(outcome.totals.sent, 200);
    assert_eq!(outcome.faults, expected, "{qos:?}");
    let delivered = outcome.totals.sent + expected.duplicated - expected.lost;
    assert_eq!(outcome.totals.delivered, delivered);
    outcome
}

const NONE: Faults = Faults {
    lost: 0,
    duplicated: 0,
    reordered: 0,
    stray: 0,
};

#[test]
fn a_right_broker_has_no_faults() {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let outcome = check(&[], qos, NONE);
        let acknowledged = if qos == QoS::AtMostOnce { 0 } else { 200 };
        assert_eq!(outcome.totals.acknowledged, acknowledged);
        assert_eq!(outcome.acknowledge.len(), acknowledged);
        assert_eq!(outcome.deliver.len(), 200);
    }
}

#[test]
fn each_wrong_shows_in_its_own_count() {
    let (lost, duplicated, reordered) = (1, 1, 1);
    let faults = |at, wrong, qos, expected| check(&[((0, at), wrong)], qos, expected);
    faults(50, Wrong::Drop, QoS::AtLeastOnce, Faults { lost, ..NONE });
    faults(199, Wrong::Drop, QoS::AtMostOnce, Faults { lost, ..NONE });
    faults(
        0,
        Wrong::Duplicate,
        QoS::AtMostOnce,
        Faults { duplicated, ..NONE },
    );
    faults(
        100,
        Wrong::Swap,
        QoS::AtLeastOnce,
        Faults { reordered, ..NONE },
    );
}

/// Both copies come before the client could answer with PUBREC: the same packet identifier then means
/// the same message.
#[test]
fn a_repeated_qos_2_packet_is_one_message() {
    let repeated = [((0, 5), Wrong::Duplicate)];
    let outcome = play(&repeated, QoS::ExactlyOnce, open(1_000.0));
    assert_eq!(outcome.faults, NONE);
    assert_eq!(outcome.totals.delivered, 200);
}

#[test]
fn a_window_survives_a_loss() {
    let lost = [((0, 3), Wrong::Drop)];
    let outcome = play(&lost, QoS::AtMostOnce, Pace::Closed { window: 4 });
    assert_eq!(outcome.faults, Faults { lost: 1, ..NONE });
    assert!(outcome.totals.sent > 8, "{}", outcome.totals.sent);
}

/// A worker is told to begin long before the beginning.
#[test]
fn a_closed_loop_begins_when_the_load_does() {
    let broker = Broker::start(&[]);
    let pairs = Topology::Pairs { pairs: 2 };
    let window = messages(pairs, QoS::AtLeastOnce, Pace::Closed { window: 4 });
    let counts = run(1, window, &broker, Duration::from_millis(200)).counts;
    assert!(counts.sent > 16, "{counts:?}");
    assert_eq!(counts.delivered, counts.sent);
}

/// Each of three workers has two pairs, and each kind of wrong is at another worker's.
#[test]
fn wrongs_show_at_the_right_publisher_of_several_workers() {
    let wrongs = [
        ((0, 10), Wrong::Drop),
        ((0, 11), Wrong::Drop),
        ((0, 49), Wrong::Drop),
        ((2, 7), Wrong::Duplicate),
        ((2, 9), Wrong::Duplicate),
        ((5, 20), Wrong::Swap),
        // Five others have nothing to do with it.
        ((3, 30), Wrong::Stray),
    ];
    let of = |publisher, delivered| PublisherCounts {
        publisher,
        sent: 50,
        acknowledged: 50,
        delivered,
        lost: 0,
        duplicated: 0,
        reordered: 0,
    };
    let (lost, duplicated, reordered) = (3, 2, 1);
    let worst_first = [
        PublisherCounts { lost, ..of(0, 47) },
        PublisherCounts {
            duplicated,
            ..of(2, 52)
        },
        PublisherCounts {
            reordered,
            ..of(5, 50)
        },
    ];
    let counts = Counts {
        sent: 300,
        acknowledged: 300,
        delivered: 300 - lost + duplicated + 5,
        lost,
        duplicated,
        reordered,
        stray: 5,
        disconnects: 0,
    };
    for workers in [1, 3] {
        let broker = Broker::start(&wrongs);
        let pairs = Topology::Pairs { pairs: 6 };
        let workload = messages(pairs, QoS::AtLeastOnce, open(1_200.0));
        let record = run(workers, workload, &broker, Duration::from_millis(250));
        assert_eq!(record.counts, counts, "{workers}");
        assert_eq!(record.publishers, worst_first, "{workers}");
    }
}

/// No member of a shared subscription can know alone what another worker's members got.
#[test]
fn wrongs_in_a_shared_subscription_are_found_across_workers() {
    let wrongs = [
        ((0, 10), Wrong::Drop),
        ((3, 0), Wrong::Duplicate),
        ((1, 20), Wrong::Stray),
    ];
    let shared = Topology::Shared {
        publishers: 4,
        members: 4,
    };
    for workers in [1, 2] {
        let broker = Broker::start(&wrongs);
        let workload = messages(shared.clone(), QoS::AtMostOnce, open(800.0));
        let record = run(workers, workload, &broker, Duration::from_millis(250));
        let counts = record.counts;
        assert_eq!((counts.sent, counts.lost), (200, 1), "{workers}");
        // To all four members instead of one: three too many, like the one that came twice.
        assert_eq!(counts.duplicated, 3 + 1, "{workers}");
        assert_eq!((counts.stray, counts.delivered), (0, 203), "{workers}");
        let faulty = record.publishers.iter();
        let faulty: Vec<_> = faulty
            .map(|p| (p.publisher, p.duplicated, p.lost))
            .collect();
        assert_eq!(faulty, [(1, 3, 0), (0, 0, 1), (3, 1, 0)], "{workers}");
    }
}

#[test]
fn a_broker_that_is_not_there_is_an_error() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let idle = Topology::Idle { connections: 1 };
    let mut engine = engine(messages(idle, QoS::AtMostOnce, open(1.0)), address);
    match engine.connect(1, |_| Ok(None)) {
        Err(EngineError::Client { client_id, .. }) => assert_eq!(client_id, "test-part-s0"),
        other => panic!("{other:?}"),
    }
}
