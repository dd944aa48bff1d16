//! A record to test with.

use report::{Counts, Latencies, Machine, Record, SystemUsage};

/// 2,000 messages in 2 s, for which the broker took 15 µs of CPU each; 3 were lost.
pub(super) fn record(label: &str) -> Record {
    Record {
        format: report::FORMAT,
        tool: String::new(),
        scenario: "s".to_owned(),
        label: label.to_owned(),
        reading: String::new(),
        started_at: String::new(),
        settings: Vec::new(),
        machine: Machine::default(),
        published: None,
        columns: report::Columns::default(),
        load: report::Load::default(),
        connections: 40,
        connect_seconds: 1.0,
        seconds: 2.0,
        asked_per_second: 1_000.0,
        messages_per_second: 1_000.0,
        counts: Counts {
            lost: 3,
            ..Counts::default()
        },
        latencies: Latencies::default(),
        headline: "deliver".to_owned(),
        system: vec![SystemUsage {
            name: "pid 1".to_owned(),
            cpu_user_s: 0.02,
            cpu_system_s: 0.01,
            connecting_cpu_s: 0.0,
            resident_bytes_before: 0,
            resident_bytes: 12_000_000,
            resident_bytes_max: 0,
        }],
        tool_cpu_user_s: 0.0,
        tool_cpu_system_s: 0.0,
        workers: 1,
        samples: Vec::new(),
        publishers: Vec::new(),
        parts: Vec::new(),
        warnings: Vec::new(),
    }
}
