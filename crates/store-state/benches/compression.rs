//! What LZ4 would save and cost if entries of the log were compressed: bytes, and CPU time per message.
//!
//! `cargo bench -p herald-store-state --bench compression`; with `HERALD_BENCH_SMOKE=1` each case runs once only. Prints rows of a
//! table in Markdown: for each payload and each number of publications in an entry, the bytes of the entry as the log and the
//! followers get it, its bytes as an LZ4 block (`lz4_flex`, as the tables use it), and the ns per message to compress it and to decompress it. Each time is the least
//! of twenty rounds, so that the work of others on the machine does not count.
//!
//! Decision 43 has the figures and says what follows from them.

#![expect(clippy::print_stdout, reason = "a benchmark reports by printing")]
#![expect(clippy::unwrap_used, reason = "a benchmark may fail")]

use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lz4_flex::block;
use mqtt_proto::{MessageBody, QoS};
use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull};
use store_state::inbox::{InboxOp, Origin};
use store_state::{
    Batch, CorrelationId, Header, Level, Limits, ProposedHere, Request, Requeued, RoutedUntil,
};

/// Publications of an entry.
const FEW: &[usize] = &[1, 8, 64];

/// Those of entries with long payloads. The texts of several would be parts of each other.
const ONE: &[usize] = &[1];

/// Bytes that are compressed in a round, about.
const ROUND_BYTES: usize = 4 << 20;

const ROUNDS: usize = 20;

/// An entry is worth compressing if it shrinks to this share of its bytes, or less.
const WORTH: f64 = 2.0 / 3.0;

/// What a message says, by its number.
type Payload = fn(&mut Random) -> Vec<u8>;

const PAYLOADS: [(&str, Payload, &[usize]); 8] = [
    ("JSON, 64 B", json_64, FEW),
    ("JSON, 256 B", json_256, FEW),
    ("JSON, 1 KB", json_1024, FEW),
    ("text, 64 KB", text, ONE),
    ("random, 64 B", random::<64>, FEW),
    ("random, 256 B", random::<256>, FEW),
    ("random, 1 KB", random::<1024>, FEW),
    ("random, 64 KB", random::<65_536>, ONE),
];

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--test")
        || std::env::var_os("HERALD_BENCH_SMOKE").is_some();
    println!(
        "| payload | publications | bytes | LZ4 | share | compress, ns | decompress, ns | a third less |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---|");
    for (name, payload, batches) in PAYLOADS {
        for &publications in batches {
            let row = measured(payload, publications, smoke);
            let share = row.packed as f64 / row.plain as f64;
            println!(
                "| {name} | {publications} | {} | {} | {share:.2} | {:.0} | {:.0} | {} |",
                row.plain,
                row.packed,
                row.compress_ns,
                row.decompress_ns,
                if share <= WORTH { "yes" } else { "no" }
            );
        }
    }
}

/// Bytes are those of an entry, on average; times those of a message.
struct Row {
    plain: usize,
    packed: usize,
    compress_ns: f64,
    decompress_ns: f64,
}

fn measured(payload: Payload, publications: usize, smoke: bool) -> Row {
    let mut random = Random(7);
    let one = entry(payload, publications, &mut random);
    // Different entries, so that a round is no exercise for the branch predictor.
    let count = if smoke {
        1
    } else {
        (ROUND_BYTES / one.len()).clamp(1, 4_000)
    };
    let entries: Vec<Vec<u8>> = (0..count)
        .map(|_| entry(payload, publications, &mut random))
        .collect();
    let packed: Vec<Vec<u8>> = entries.iter().map(|entry| block::compress(entry)).collect();
    for (entry, packed) in entries.iter().zip(&packed) {
        let again = block::decompress(packed, entry.len()).unwrap();
        assert!(again == *entry, "what is decompressed is another entry");
    }
    let longest = entries.iter().map(Vec::len).max().unwrap();
    let mut out = vec![0; block::get_maximum_output_size(longest)];
    let rounds = if smoke { 1 } else { ROUNDS };
    let compress = least(rounds, || {
        for entry in &entries {
            black_box(block::compress_into(black_box(entry), &mut out).unwrap());
        }
    });
    let decompress = least(rounds, || {
        for packed in &packed {
            black_box(block::decompress_into(black_box(packed), &mut out).unwrap());
        }
    });
    let messages = (count * publications) as f64;
    Row {
        plain: entries.iter().map(Vec::len).sum::<usize>() / count,
        packed: packed.iter().map(Vec::len).sum::<usize>() / count,
        compress_ns: compress.as_nanos() as f64 / messages,
        decompress_ns: decompress.as_nanos() as f64 / messages,
    }
}

fn least(rounds: usize, mut run: impl FnMut()) -> Duration {
    let times = (0..rounds).map(|_| {
        let begin = Instant::now();
        run();
        begin.elapsed()
    });
    times.min().unwrap()
}

/// An entry of an inbox shard as it is written: its format, the number of its store, the batch.
fn entry(payload: Payload, publications: usize, random: &mut Random) -> Vec<u8> {
    let requests = (0..publications).map(|_| Request {
        until: RoutedUntil::slot(u16::MAX),
        correlation_id: CorrelationId::default(),
        op: publish(payload, random),
    });
    let batch = Batch {
        header: Header {
            now_ms: 1_764_495_123_456,
            limits: Limits {
                queue: store_state::QueueLimits {
                    messages: 10_000,
                    bytes: 1 << 24,
                    full: QueueFull::DropNewest,
                    is_closed: false,
                },
                qos0: Qos0Inbox::Offline,
                retained_messages: 1 << 20,
                retained_bytes: 1 << 30,
                classes: store_state::ClassLimits::NONE,
            },
        },
        requests: requests.collect(),
        bytes: 0,
        requeued: Requeued::default(),
        proposed_here: ProposedHere::default(),
        level: Level::NEWEST,
        written: store_state::Written::default(),
    };
    let mut out = vec![1, 1];
    out.extend(postcard::to_stdvec(&batch).unwrap());
    out
}

/// A publication of one of a thousand devices.
fn publish(payload: Payload, random: &mut Random) -> InboxOp {
    let device = random.below(1_000);
    let topic = format!("plant/3/line/{device:03}/telemetry");
    InboxOp::Publish {
        message: Arc::new(ApplicationMessage {
            body: MessageBody::new(&topic, &payload(random)),
            qos: QoS::AtLeastOnce,
            retain: false,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        }),
        publisher: (device + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        origin: Some(Origin {
            client: format!("device-{device:03}").as_str().into(),
            incarnation: 1_000 + device,
            packet_id: 1 + random.below(60_000) as u16,
        }),
    }
}

fn json_64(random: &mut Random) -> Vec<u8> {
    let text = format!(
        r#"{{"t":{},"temp":{:.2},"hum":{:.2},"bat":{:.3}}}"#,
        time(random),
        random.between(-20, 60),
        random.between(10, 90),
        random.between(3, 1)
    );
    text.into_bytes()
}

fn json_256(random: &mut Random) -> Vec<u8> {
    let text = format!(
        r#"{{"ts":{},"device":"device-{:03}","seq":{},"temperature":{:.2},"humidity":{:.2},"pressure":{:.2},"battery":{:.3},"rssi":-{},"location":{{"lat":{:.5},"lon":{:.5}}},"status":"ok","firmware":"2.4.1","uptime":{}}}"#,
        time(random),
        random.below(1_000),
        random.below(1 << 24),
        random.between(-20, 60),
        random.between(10, 90),
        random.between(980, 60),
        random.between(3, 1),
        40 + random.below(50),
        random.between(52, 1),
        random.between(13, 1),
        random.below(1 << 20),
    );
    text.into_bytes()
}

fn json_1024(random: &mut Random) -> Vec<u8> {
    const READINGS: [(&str, &str); 15] = [
        ("temperature", "C"),
        ("humidity", "%"),
        ("pressure", "hPa"),
        ("vibration_x", "mm/s"),
        ("vibration_y", "mm/s"),
        ("vibration_z", "mm/s"),
        ("current", "A"),
        ("voltage", "V"),
        ("power", "kW"),
        ("speed", "rpm"),
        ("torque", "Nm"),
        ("flow", "l/min"),
        ("level", "mm"),
        ("noise", "dB"),
        ("oil", "C"),
    ];
    let mut text = format!(
        r#"{{"device":"device-{:03}","seq":{},"status":"running","readings":["#,
        random.below(1_000),
        random.below(1 << 24)
    );
    for (place, (name, unit)) in READINGS.into_iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let (value, time) = (random.between(0, 2_000), time(random));
        write!(
            text,
            r#"{comma}{{"name":"{name}","unit":"{unit}","value":{value:.3},"ts":{time}}}"#
        )
        .unwrap();
    }
    text.push_str("]}");
    text.into_bytes()
}

/// Some of the English of these documents, each time from another place on.
fn text(random: &mut Random) -> Vec<u8> {
    const DOCUMENTS: [&str; 3] = [
        include_str!("../../../docs/operate/cluster.md"),
        include_str!("../../../docs/operate/security.md"),
        include_str!("../../../docs/operate/production.md"),
    ];
    const BYTES: usize = 65_536;
    let all = DOCUMENTS.iter().flat_map(|document| document.bytes());
    let len: usize = DOCUMENTS.iter().map(|document| document.len()).sum();
    let skipped = random.below(len as u64) as usize;
    all.cycle().skip(skipped).take(BYTES).collect()
}

fn random<const BYTES: usize>(random: &mut Random) -> Vec<u8> {
    (0..BYTES).map(|_| random.next() as u8).collect()
}

/// Unix time in ms, within a minute.
fn time(random: &mut Random) -> u64 {
    1_764_495_123_456 + random.below(60_000)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// From `from` to `from + width`.
    fn between(&mut self, from: i32, width: i32) -> f64 {
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        f64::from(from) + share * f64::from(width)
    }
}
