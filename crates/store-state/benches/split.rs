//! How long a session shard and a retain shard stop for a cut, at 100,000 and a million records.
//!
//! `cargo bench -p herald-store-state --bench split` prints the figures; with `--test`, or
//! `HERALD_BENCH_SMOKE=1` in the environment, a thousand records only prove that it runs. Each figure is the
//! least and the greatest of five cuts in the middle.

#![expect(clippy::print_stdout, reason = "a benchmark reports by printing")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqtt_proto::{MessageBody, QoS};
use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull, Timestamp};
use store_state::retain::{RetainMachine, RetainOp};
use store_state::session::{
    ClaimRequest, SessionEnd, SessionMachine, SessionOp, SessionOutlet, StoredWill, WillAtClose,
};
use store_state::{Changes, Header, Limits, Machine, Slots, Split, Table, TableError};

/// The first slot of the child.
const MIDDLE: u16 = 0x8000;

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--test")
        || std::env::var_os("HERALD_BENCH_SMOKE").is_some();
    let sizes: &[u64] = if smoke {
        &[1_000]
    } else {
        &[100_000, 1_000_000]
    };
    for &n in sizes {
        cut("clients that are connected", n, || sessions(n, false));
        cut("clients that are away", n, || sessions(n, true));
        cut("retained messages", n, || retained(n, None));
        let expires_at = Some(Timestamp(9));
        cut("retained messages that expire", n, || {
            retained(n, expires_at)
        });
    }
}

/// Of a machine whose rows are all in the tables, and of one none of whose rows are.
fn cut<M: Split>(what: &str, n: u64, make: impl Fn() -> M) {
    let saved = spread(|| {
        let mut machine = make();
        machine.collect(&mut Changes::default());
        machine.saved();
        machine
    });
    let unsaved = spread(&make);
    println!("{n} {what}: {saved}; {unsaved} if the tables have none of them");
}

fn spread<M: Split>(make: impl Fn() -> M) -> String {
    let times: Vec<Duration> = (0..5)
        .map(|_| {
            let mut machine = make();
            let start = Instant::now();
            let child = machine.split_off(MIDDLE);
            let took = start.elapsed();
            drop(child);
            took
        })
        .collect();
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
    let (least, most) = (ms(times.iter().min()), ms(times.iter().max()));
    format!("{least:.1} to {most:.1} ms")
}

/// No rows.
struct Empty;

impl Table for Empty {
    fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        Ok(None)
    }

    fn range(
        &self,
        _: &[u8],
        _: &[u8],
        _: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TableError> {
        Ok(())
    }
}

/// Listens to nothing.
struct Deaf;

impl SessionOutlet for Deaf {
    fn fire(&mut self, _: &str, _: u64, _: &StoredWill) {}

    fn ended(&mut self, _: &str, _: u64, _: Option<SessionEnd>) {}

    fn known(&mut self, _: &str, _: bool) {}
}

fn sessions(n: u64, are_away: bool) -> SessionMachine {
    let mut machine = SessionMachine::load(Slots::ALL, &Empty).unwrap();
    let mut apply = |op| machine.apply(&header(), &op, &Empty, &mut Deaf).unwrap();
    for i in scattered(n) {
        apply(SessionOp::Claim(ClaimRequest {
            client: client(i),
            node: 1,
            node_incarnation: 1,
            clean_start: false,
            expiry: 3_600,
            will: None,
            asked_ms: 0,
        }));
    }
    if are_away {
        for (epoch, i) in (1..=n).zip(scattered(n)) {
            apply(SessionOp::Disconnect {
                client: client(i),
                epoch,
                expiry: 3_600,
                will: WillAtClose::Keep,
            });
        }
    }
    machine
}

fn client(i: u64) -> Box<str> {
    format!("device-{i:09}").into()
}

fn retained(n: u64, expires_at: Option<Timestamp>) -> RetainMachine {
    let mut machine = RetainMachine::load(Slots::ALL, &Empty).unwrap();
    for i in scattered(n) {
        let topic = format!("site/{:03}/dev/{i:07}", i % 1_000);
        let message = Arc::new(ApplicationMessage {
            body: MessageBody::new(&topic, &[7; 16]),
            qos: QoS::AtLeastOnce,
            retain: true,
            publisher: 0,
            publisher_hash: 0,
            expires_at,
            taken_up: None,
        });
        let op = RetainOp::Set { message };
        machine.apply(&header(), &op, &Empty, &mut ()).unwrap();
    }
    machine
}

fn header() -> Header {
    Header {
        now_ms: 0,
        limits: Limits {
            queue: store_state::QueueLimits {
                messages: 0,
                bytes: 0,
                full: QueueFull::REFUSE,
                is_closed: false,
            },
            qos0: Qos0Inbox::Never,
            retained_messages: u64::MAX,
            retained_bytes: u64::MAX,
            classes: store_state::ClassLimits::NONE,
        },
    }
}

/// 0 … n - 1 in an order without pattern.
fn scattered(n: u64) -> impl Iterator<Item = u64> {
    (0..n).map(move |i| i * 7_368_787 % n)
}
