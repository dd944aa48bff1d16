//! Warnings that no whole run on one machine can bring about.

use mqtt_proto::ProtocolVersion;

use super::*;
use crate::coordinator::Clock;
use crate::workload::{Login, Part};

/// The warnings of an idle run with a worker whose clock was known like this before and after it.
fn warnings(before: Clock, after: Clock) -> Vec<String> {
    let idle = Part::new("idle", Activity::Background { connections: 1 });
    let workload = Workload {
        parts: vec![idle],
        login: Login::new(ProtocolVersion::V5),
    };
    let played = Played {
        system_names: Vec::new(),
        connections: 1,
        connect_seconds: 0.0,
        before: Moment::default(),
        connected: Moment::default(),
        start: Moment::default(),
        end: Moment::default(),
        last: Progress::default(),
        samples: Vec::new(),
        sent: Vec::new(),
        finishes: Vec::new(),
        clocks: vec![
            ("agent a".to_owned(), Clock::default(), Clock::default()),
            ("agent b".to_owned(), before, after),
        ],
    };
    let title = Title {
        scenario: String::new(),
        label: String::new(),
        reading: String::new(),
        started_at: String::new(),
        settings: Vec::new(),
        machine: Machine::default(),
        plan: None,
    };
    played.record(&workload, title).warnings
}

#[test]
fn clocks_that_are_not_known_well_are_a_warning() {
    let clock = |offset_ns, uncertainty_ns| Clock {
        offset_ns,
        uncertainty_ns,
    };
    let hour_ns = 3_600_000_000_000;
    assert_eq!(
        warnings(clock(hour_ns, 500_000), clock(hour_ns, 0)),
        [] as [String; 0]
    );
    for (before, after) in [
        (clock(hour_ns, 900_000), clock(hour_ns, 0)),
        (clock(hour_ns, 0), clock(hour_ns, 900_000)),
        // It went slower than this machine's.
        (clock(hour_ns, 0), clock(hour_ns - 900_000, 0)),
        (clock(-hour_ns, 400_000), clock(-hour_ns + 500_000, 0)),
    ] {
        let warnings = warnings(before, after);
        let [warning] = warnings.as_slice() else {
            panic!("{warnings:?}");
        };
        assert!(
            warning.contains("that of agent b is known to 0.9 ms"),
            "{warning}"
        );
    }
}
