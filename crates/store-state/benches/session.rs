//! Time and memory of a session shard and a retain shard at a million records.
//!
//! `cargo bench -p herald-store-state --bench session` prints the figures; with `--test`, or
//! `HERALD_BENCH_SMOKE=1` in the environment, a thousand records only prove that it runs. Times are
//! means over clients in an order without pattern, so they include the cache misses of large tables.

#![expect(clippy::print_stdout, reason = "a benchmark reports by printing")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mqtt_proto::{MessageBody, QoS};
use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull};
use store_state::retain::{RetainMachine, RetainOp};
use store_state::session::{
    ClaimRequest, SessionEnd, SessionMachine, SessionOp, SessionOutlet, StoredWill, WillAtClose,
};
use store_state::{Changes, Header, Limits, Machine, Slots, Table, TableError};

/// Counts the bytes that are asked for.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

#[expect(
    unsafe_code,
    reason = "measuring memory takes an allocator, whose trait is unsafe"
)]
// SAFETY: each call is passed on unchanged to the system's allocator; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `memory` came from `System` through `alloc` or `realloc` with this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size, Relaxed);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as for `dealloc`; the caller keeps the contract of `size`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--test")
        || std::env::var_os("HERALD_BENCH_SMOKE").is_some();
    let n = if smoke { 1_000 } else { 1_000_000 };
    sessions(n);
    retained(n);
}

/// Sorted keys and values.
#[derive(Default)]
struct Rows(Vec<(Vec<u8>, Vec<u8>)>);

impl Rows {
    /// The rows of a first checkpoint.
    fn of(changes: Changes) -> Self {
        let rows = changes.entries.into_iter();
        let mut rows: Vec<_> = rows
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        rows.sort_unstable();
        Self(rows)
    }

    fn bytes(&self) -> usize {
        self.0
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum()
    }
}

impl Table for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        let at = self.0.binary_search_by(|(other, _)| other[..].cmp(key));
        Ok(at.ok().map(|at| self.0[at].1.clone()))
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TableError> {
        let first = self.0.partition_point(|(key, _)| key[..] < *from);
        for (key, value) in &self.0[first..] {
            if key[..] >= *to || visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Counts what it is told.
#[derive(Default)]
struct Count {
    fired: u64,
    ended: u64,
}

impl SessionOutlet for Count {
    fn fire(&mut self, _: &str, _: u64, _: &StoredWill) {
        self.fired += 1;
    }

    fn ended(&mut self, _: &str, _: u64, _: Option<SessionEnd>) {
        self.ended += 1;
    }

    fn known(&mut self, _: &str, _: bool) {}
}

fn sessions(n: u64) {
    let ops: Vec<_> = scattered(n).map(claim).collect();
    let mut machine = SessionMachine::load(Slots::ALL, &Rows::default()).unwrap();
    let first = apply_all(&mut machine, 0, &ops);
    let (saving, rows) = checkpoint(&mut machine);
    let closes: Vec<_> = (1..=n).zip(scattered(n)).map(lost).collect();
    let closing = apply_all(&mut machine, 1, &closes);
    let again = apply_all(&mut machine, 2, &ops);
    let closes: Vec<_> = (n + 1..=2 * n).zip(scattered(n)).map(lost).collect();
    apply_all(&mut machine, 3, &closes);
    let (_, idle) = checkpoint(&mut machine);
    println!(
        "{n} clients, {} bytes of rows each; ns each: claim {first:.0}, checkpoint {saving:.0}, \
         disconnect {closing:.0}, claim again {again:.0}",
        rows.bytes() as u64 / n,
    );
    drop((machine, rows, closes));
    let before = LIVE.load(Relaxed);
    let (loading, mut machine) = load::<SessionMachine>(&idle);
    let bytes = LIVE.load(Relaxed) - before;
    println!(
        "loaded in {} ms, {} bytes of heap per idle record",
        loading.as_millis(),
        bytes as u64 / n
    );
    let mut told = Count::default();
    let (due, ()) = time(|| {
        let header = header(u64::from(EXPIRY) * 1_000 + 3);
        let reply = machine.apply(&header, &SessionOp::Due, &idle, &mut told);
        reply.unwrap();
    });
    assert_eq!((told.ended, machine.counts().records), (n, 0));
    println!("all expire at once in {} ms", due.as_millis());
    node_up(n, &ops);
}

/// A node comes back whose earlier process had all clients.
fn node_up(n: u64, ops: &[SessionOp]) {
    let mut machine = SessionMachine::load(Slots::ALL, &Rows::default()).unwrap();
    apply_all(&mut machine, 0, ops);
    let up = SessionOp::NodeUp {
        node: 1,
        incarnation: 2,
        last_alive_ms: 1,
    };
    let (took, ()) = time(|| {
        let mut told = Count::default();
        let reply = machine.apply(&header(9), &up, &Rows::default(), &mut told);
        reply.unwrap();
    });
    assert_eq!(machine.counts().connected, 0);
    println!(
        "{n} connections of an ended process closed in {} ms",
        took.as_millis()
    );
}

fn retained(n: u64) {
    let ops: Vec<_> = scattered(n).map(set).collect();
    let mut machine = RetainMachine::load(Slots::ALL, &Rows::default()).unwrap();
    let mut apply = |ops: &[RetainOp]| {
        let (took, ()) = time(|| {
            for op in ops {
                let reply = machine.apply(&header(0), op, &Rows::default(), &mut ());
                black_box(reply.unwrap());
            }
        });
        each(took, ops.len() as u64)
    };
    let (first, again) = (apply(&ops), apply(&ops));
    let (saving, rows) = checkpoint(&mut machine);
    drop((machine, ops));
    let before = LIVE.load(Relaxed);
    let (loading, machine) = load::<RetainMachine>(&rows);
    assert_eq!(machine.size().0, n);
    println!(
        "\n{n} retained messages of 16 bytes, {} bytes of row each; ns each: set {first:.0}, again \
         {again:.0}, checkpoint {saving:.0}; loaded in {} ms, {} bytes of heap each",
        rows.bytes() as u64 / n,
        loading.as_millis(),
        (LIVE.load(Relaxed) - before) as u64 / n,
    );
}

/// ns each.
fn apply_all(machine: &mut SessionMachine, now: u64, ops: &[SessionOp]) -> f64 {
    let (header, table, mut told) = (header(now), Rows::default(), Count::default());
    let (took, ()) = time(|| {
        for op in ops {
            black_box(machine.apply(&header, op, &table, &mut told).unwrap());
        }
    });
    each(took, ops.len() as u64)
}

/// ns per row, and the rows.
fn checkpoint<M: Machine>(machine: &mut M) -> (f64, Rows) {
    let mut changes = Changes::default();
    let (took, ()) = time(|| machine.collect(&mut changes));
    machine.saved();
    (each(took, changes.entries.len() as u64), Rows::of(changes))
}

fn load<M: Machine>(rows: &Rows) -> (Duration, M) {
    time(|| M::load(Slots::ALL, rows).unwrap())
}

/// Seconds.
const EXPIRY: u32 = 3_600;

fn client(i: u64) -> Box<str> {
    format!("device-{i:09}").into()
}

fn claim(i: u64) -> SessionOp {
    SessionOp::Claim(ClaimRequest {
        client: client(i),
        node: 1,
        node_incarnation: 1,
        clean_start: false,
        expiry: EXPIRY,
        will: None,
        asked_ms: 0,
    })
}

fn lost((epoch, i): (u64, u64)) -> SessionOp {
    SessionOp::Disconnect {
        client: client(i),
        epoch,
        expiry: EXPIRY,
        will: WillAtClose::Keep,
    }
}

fn set(i: u64) -> RetainOp {
    RetainOp::Set {
        message: Arc::new(ApplicationMessage {
            body: MessageBody::new(&format!("site/{:03}/dev/{i:07}", i % 1_000), &[7; 16]),
            qos: QoS::AtLeastOnce,
            retain: true,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        }),
    }
}

fn header(now_ms: u64) -> Header {
    Header {
        now_ms,
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

fn each(time: Duration, n: u64) -> f64 {
    time.as_nanos() as f64 / n as f64
}

fn time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}
