//! Latency runs from the moment a message was due, so a broker's pause shows in all that were due in it.
//!
//! Say the broker stands still for S of the T seconds that are measured, at a steady rate. Of the messages
//! the part S/T were due in the pause, and one that was due t after it began waits at least S − t. So the
//! quantile q is S − (1 − q)·T while that is above 0, and the mean S²/2T. With S = 1 s and T = 2 s: p99
//! 0.98 s, p95 0.90 s, mean 0.25 s.
//!
//! A tool with a closed loop waits for each answer before it sends the next message. It would have sent one
//! message into the pause and printed a p99 and p95 of a normal day, a mean of about 1 ms, and only as its
//! maximum 1 s: of 1,000 messages that users would have waited for, 999 would never have existed.

use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use loadtest::{Crew, Topology};
use mqtt_proto::QoS;
use report::{Latency, Record};

use crate::broker::{Broker, Wrong};
use crate::crew::{messages, open, record, run, settings, warns, worker};

const RATE: f64 = 1_000.0;
const STALL: Duration = Duration::from_secs(1);
const DURATION: Duration = Duration::from_secs(2);

/// Half a second into the measurement the broker stands still.
fn stall(workers: usize, qos: QoS) -> Record {
    let broker = Broker::start(&[((0, 125), Wrong::Stall(STALL))]);
    let pairs = messages(Topology::Pairs { pairs: 4 }, qos, open(RATE));
    let record = run(workers, pairs, &broker, DURATION);
    assert_eq!(record.counts.delivered, 2_000);
    assert_eq!(record.counts.lost, 0);
    record
}

/// The lower bounds are certain, because nobody sleeps too short. How much a busy machine adds is not, so
/// there are no upper ones.
fn check_pause(latency: &Latency, pause: Duration, measured: Duration) {
    let (pause_ms, all_ms) = (pause.as_secs_f64() * 1e3, measured.as_secs_f64() * 1e3);
    let quantile = |q: f64| pause_ms - (1.0 - q) * all_ms;
    // Three digits are kept; what is shown is the highest of its bucket.
    for (name, shown, expected) in [
        ("p95", latency.p95_ms, quantile(0.95)),
        ("p99", latency.p99_ms, quantile(0.99)),
        ("p999", latency.p999_ms, quantile(0.999)),
        ("max", latency.max_ms, pause_ms),
        (
            "mean",
            latency.mean_ms * 1.001,
            pause_ms * pause_ms / (2.0 * all_ms),
        ),
    ] {
        assert!(shown >= expected, "{name} {shown}, less than {expected}");
    }
}

/// At QoS 0 the messages wait in the socket.
#[test]
fn a_stall_shows_in_the_quantiles_as_computed() {
    let with = |workers| {
        let record = stall(workers, QoS::AtMostOnce);
        check_pause(record.latencies.deliver.as_ref().unwrap(), STALL, DURATION);
    };
    thread::scope(|scope| {
        scope.spawn(|| with(1));
        scope.spawn(|| with(2));
    });
}

/// At QoS 1 all but ten of each publisher wait in the tool, in-flight room being full; that is not lateness
/// of the tool.
#[test]
fn a_stall_shows_also_where_the_receive_maximum_keeps_messages_back() {
    let record = stall(2, QoS::AtLeastOnce);
    check_pause(record.latencies.deliver.as_ref().unwrap(), STALL, DURATION);
    check_pause(
        record.latencies.acknowledge.as_ref().unwrap(),
        STALL,
        DURATION,
    );
    let late = record.latencies.tool_lateness.as_ref().unwrap();
    let sent = record.latencies.due_to_sent.as_ref().unwrap();
    // Ten of each of four publishers went out at once: 40 ms of the second.
    assert!(sent.max_ms >= 960.0, "{sent:?}");
    // Lateness of the tool is in both, however busy the machine is.
    assert!(late.mean_ms + 100.0 < sent.mean_ms, "{late:?} {sent:?}");
}

#[test]
fn a_load_that_is_not_kept_up_is_a_warning() {
    let broker = Broker::start(&[((0, 50), Wrong::Stall(STALL))]);
    let pairs = messages(Topology::Pairs { pairs: 1 }, QoS::AtMostOnce, open(RATE));
    let record = run(1, pairs, &broker, Duration::from_millis(500));
    assert_eq!(record.counts.delivered, 500);
    assert!(
        warns(&record, "the load was not kept up"),
        "{:?}",
        record.warnings
    );
    // At most the first 50 came before the end.
    assert!(
        record.messages_per_second <= 100.0,
        "{}",
        record.messages_per_second
    );
}

/// A worker's output that is stuck for a while, and the worker with it.
struct Sticky {
    stream: TcpStream,
    reports: usize,
}

const STICKS: Duration = Duration::from_millis(400);

impl Write for Sticky {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    /// Comes after each report. Among the third to the fifth is that of the moment when the load begins.
    fn flush(&mut self) -> io::Result<()> {
        self.reports += 1;
        if (3..=5).contains(&self.reports) {
            thread::sleep(STICKS);
        }
        Ok(())
    }
}

/// The tool's own pause shows in its lateness like a broker's in the latency, and is said.
#[test]
fn a_tool_that_is_late_says_so() {
    let broker = Broker::start(&[]);
    let pairs = messages(Topology::Pairs { pairs: 4 }, QoS::AtMostOnce, open(RATE));
    let sticky = worker(|stream| Sticky { stream, reports: 0 });
    let crew = Crew::connected([sticky, worker(|stream| stream)]).unwrap();
    let record = record(crew, &settings(pairs, &broker, DURATION)).unwrap();
    let late = record.latencies.tool_lateness.as_ref().unwrap();
    // Half of the messages are the other worker's.
    let half = |q: f64| 400.0 - (1.0 - q) * 2.0 * 2_000.0;
    assert!(late.p99_ms >= half(0.99), "{late:?}");
    assert!(late.p95_ms >= half(0.95), "{late:?}");
    assert!(late.max_ms >= 400.0 - 1.0, "{late:?}");
    assert!(
        warns(&record, "this tool was the limit"),
        "{:?}",
        record.warnings
    );
}
