//! Records made up for tests and for `examples/page.rs`: plausible, and the same each time.

use report::{
    Columns, Counts, FORMAT, Latencies, Latency, Load, Machine, PayloadBytes, Phase,
    PublishedFigures, PublisherCounts, QosNumber, Record, Sample, Scaling, Setting, ShardCount,
    Shards, SplitCount, SystemUsage, Usage,
};

/// Seconds of each phase.
const PHASES: [(Phase, u32); 4] = [
    (Phase::Connect, 8),
    (Phase::WarmUp, 10),
    (Phase::Measure, 60),
    (Phase::Drain, 4),
];

/// Records of several scenarios, two of which have the same.
pub(crate) fn suite() -> Vec<Record> {
    vec![
        pairs("HeraldMQ 0.1", 1.0),
        pairs("mosquitto 2.0", 2.4),
        idle(),
        empty(),
    ]
}

/// A record in which nothing was measured.
pub(crate) fn empty() -> Record {
    Record {
        format: FORMAT,
        tool: String::new(),
        scenario: String::new(),
        label: String::new(),
        reading: String::new(),
        started_at: String::new(),
        settings: Vec::new(),
        machine: Machine::default(),
        published: None,
        columns: Columns::default(),
        load: Load::default(),
        connections: 0,
        connect_seconds: 0.0,
        seconds: 0.0,
        asked_per_second: 0.0,
        messages_per_second: 0.0,
        counts: Counts::default(),
        latencies: Latencies::default(),
        headline: String::new(),
        system: Vec::new(),
        tool_cpu_user_s: 0.0,
        tool_cpu_system_s: 0.0,
        workers: 0,
        samples: Vec::new(),
        publishers: Vec::new(),
        parts: Vec::new(),
        warnings: Vec::new(),
    }
}

/// 2,000 pairs at 100 messages a second, of a broker that is `slowness` times as slow as the best.
pub(crate) fn pairs(label: &str, slowness: f64) -> Record {
    let lost: u32 = if slowness > 1.0 { 17 } else { 0 };
    Record {
        tool: "heraldmq 0.1.0".to_owned(),
        scenario: "2k_2k_qos0_p32_100mps_1n".to_owned(),
        label: label.to_owned(),
        reading: "2000 pairs, clean sessions, scaled to 1/4 of the rate".to_owned(),
        started_at: "2026-03-14T09:26:53Z".to_owned(),
        settings: vec![
            setting("target", "127.0.0.1:1883"),
            setting("measured for", "60 s after 10 s of warm-up"),
            setting("QoS", "0"),
            setting("queue", if slowness > 1.0 { "1000" } else { "4096" }),
        ],
        machine: machine(),
        published: Some(published()),
        load: load(),
        connections: 4_000,
        connect_seconds: 7.6,
        seconds: 60.0,
        asked_per_second: 50_000.0,
        messages_per_second: 49_987.0 - f64::from(lost),
        counts: Counts {
            sent: 3_500_000,
            delivered: 3_500_000 - u64::from(lost),
            lost: lost.into(),
            reordered: u64::from(lost) / 5,
            ..Counts::default()
        },
        latencies: Latencies {
            connect: Some(latency(4_000, 0.9 * slowness)),
            subscribe: Some(latency(2_000, 0.5 * slowness)),
            deliver: Some(latency(3_000_000, 0.62 * slowness * slowness)),
            tool_lateness: Some(latency(3_000_000, 0.04)),
            ..Latencies::default()
        },
        headline: "deliver".to_owned(),
        system: vec![system("pid 4242 (broker)", slowness)],
        tool_cpu_user_s: 12.5,
        tool_cpu_system_s: 21.25,
        workers: 2,
        samples: samples(slowness),
        publishers: if lost > 0 { publishers() } else { Vec::new() },
        parts: Vec::new(),
        warnings: if lost > 0 {
            vec!["this tool was late by 2.6 ms (p99); use a lower rate".to_owned()]
        } else {
            Vec::new()
        },
        ..empty()
    }
}

/// With an inbox shard that is split twice; in the 20th second no node tells.
pub(crate) fn splitting(label: &str) -> Record {
    let mut record = pairs(label, 1.0);
    for (second, sample) in (1..).zip(&mut record.samples) {
        let is_split = second == 15 || second == 40;
        sample.shards = (second != 20).then_some(Shards {
            session: ShardCount(1),
            inbox: ShardCount(1 + u32::from(second >= 15) + u32::from(second >= 40)),
            retain: ShardCount(1),
            splits: SplitCount(is_split.into()),
        });
    }
    record
}

/// Connections that only stay open.
pub(crate) fn idle() -> Record {
    let mut record = pairs("HeraldMQ 0.1", 1.0);
    record.scenario = "conn-tcp-50k".to_owned();
    record.reading = "50000 idle connections, clean sessions".to_owned();
    record.connections = 50_000;
    record.connect_seconds = 8.0;
    record.asked_per_second = 0.0;
    record.messages_per_second = 0.0;
    record.counts = Counts::default();
    record.latencies.deliver = None;
    record.latencies.subscribe = None;
    record.headline = "connect".to_owned();
    record.published = Some(PublishedFigures {
        connections: Some(1_000_000),
        connects_per_second: Some(5_000.0),
        messages_per_second: None,
        mean_ms: None,
        p99_ms: None,
        load: Load::default(),
        scaling: Scaling {
            connections: 0.05,
            rate: 1.0,
        },
        ..published()
    });
    record.load = Load::default();
    for sample in &mut record.samples {
        sample.connections = (sample.at_s * 6_250.0).min(50_000.0) as u64;
        (sample.sent, sample.delivered) = (0, 0);
        if sample.phase != Phase::Connect {
            (sample.mean_ms, sample.p99_ms, sample.max_ms) = (None, None, None);
        }
    }
    record
}

fn machine() -> Machine {
    Machine {
        cpu: "AMD EPYC 7B13".to_owned(),
        cores: 8,
        memory_bytes: 33_500_000_000,
        kernel: "Linux 6.1.0".to_owned(),
        congestion_control: "cubic".to_owned(),
    }
}

fn published() -> PublishedFigures {
    PublishedFigures {
        source: "cluster report (32 cores, 128 GB per node)".to_owned(),
        product: "BifroMQ".to_owned(),
        version: "2.1".to_owned(),
        section: "clean high-frequency".to_owned(),
        connections: Some(4_000),
        messages_per_second: Some(200_000.0),
        connects_per_second: None,
        mean_ms: Some(3.22),
        p99_ms: Some(24.11),
        cpu_percent: Some(80.0),
        memory_gb: "5-10".to_owned(),
        note: String::new(),
        p95_ms: None,
        acknowledge_mean_ms: None,
        acknowledge_p95_ms: None,
        load: Load {
            rate: Some(100.0),
            ..load()
        },
        scaling: Scaling {
            connections: 1.0,
            rate: 0.25,
        },
    }
}

fn load() -> Load {
    Load {
        qos: Some(QosNumber(0)),
        payload: Some(PayloadBytes(32)),
        rate: Some(25.0),
    }
}

fn setting(name: &str, value: &str) -> Setting {
    Setting {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

fn system(name: &str, slowness: f64) -> SystemUsage {
    SystemUsage {
        name: name.to_owned(),
        cpu_user_s: 31.0 * slowness,
        cpu_system_s: 44.0 * slowness,
        connecting_cpu_s: 1.5 * slowness,
        resident_bytes_before: 12_000_000,
        resident_bytes: (61e6 * slowness) as u64,
        resident_bytes_max: (66e6 * slowness) as u64,
    }
}

/// A distribution with a long tail about this mean: of all times, those above `x` times the shortest are
/// the `x³`th part.
fn latency(count: u64, mean_ms: f64) -> Latency {
    let above = |bucket: i32| 1.04_f64.powi(-3 * bucket);
    let buckets = (1..=100).map(|bucket| {
        let highest_ns = mean_ms * 1e6 * 0.55 * 1.04_f64.powi(bucket);
        let share = above(bucket - 1) - above(bucket);
        (highest_ns as u64, (count as f64 * share).round() as u64)
    });
    Latency {
        count,
        mean_ms,
        p50_ms: mean_ms * 0.7,
        p95_ms: mean_ms * 1.5,
        p99_ms: mean_ms * 2.5,
        p999_ms: mean_ms * 5.5,
        max_ms: mean_ms * 27.5,
        buckets_ns: buckets.filter(|&(_, count)| count > 0).collect(),
    }
}

fn samples(slowness: f64) -> Vec<Sample> {
    let phases = PHASES.iter();
    phases
        .flat_map(|&(phase, seconds)| (0..seconds).map(move |_| phase))
        .zip(1_u32..)
        .map(|(phase, second)| sample(phase, second, slowness))
        .collect()
}

fn sample(phase: Phase, second: u32, slowness: f64) -> Sample {
    let at_s = f64::from(second);
    let noise = 1.0 + 0.05 * (at_s * 1.7).sin() + 0.03 * (at_s * 0.41 + slowness).cos();
    let is_loaded = matches!(phase, Phase::WarmUp | Phase::Measure);
    let arrives = phase != Phase::Drain;
    let hiccup = if second % 23 == 7 { 3.5 } else { 1.0 };
    let mean_ms = 0.62 * slowness * slowness * noise;
    let sent = if is_loaded { 50_000 } else { 0 };
    let busy = if is_loaded { 1.0 } else { 0.1 };
    Sample {
        at_s,
        seconds: 1.0,
        phase,
        connections: (at_s * 500.0).min(4_000.0) as u64,
        sent,
        acknowledged: 0,
        delivered: (sent as f64 * (1.0 - (noise - 1.0).abs() * 0.1 * slowness)) as u64,
        bytes_out: sent * 44,
        bytes_in: sent * 44,
        mean_ms: arrives.then_some(mean_ms),
        p99_ms: arrives.then_some(mean_ms * 2.5 * noise),
        max_ms: arrives.then_some(mean_ms * 8.0 * noise * hiccup),
        system: vec![Some(Usage {
            cpu_user_s: 0.52 * slowness * noise * busy,
            cpu_system_s: 0.73 * slowness * noise * busy,
            resident_bytes: ((12e6 + 49e6 * (at_s / 12.0).min(1.0)) * slowness) as u64,
            threads: Some(10),
            descriptors: Some(4_020),
            network_in_bytes: Some(sent * 110),
            network_out_bytes: Some(sent * 110),
        })],
        shards: None,
        tool_cpu_s: 0.55 * noise * busy,
        machine_load: Some(1.5 * noise),
    }
}

fn publishers() -> Vec<PublisherCounts> {
    [(17, 9), (3, 8)]
        .map(|(publisher, lost)| PublisherCounts {
            publisher,
            sent: 1_750,
            acknowledged: 0,
            delivered: 1_750 - lost,
            lost,
            duplicated: 0,
            reordered: 1,
        })
        .to_vec()
}
