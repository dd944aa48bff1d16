//! The store with very many sessions, on a real disk: CPU time, memory, disk space, and the time to
//! start again.
//!
//! ```text
//! cargo bench -p herald-store --bench scale -- [case …] [--sessions 1000000] [--messages 2000000]
//!                                              [--threads 1] [--folder /somewhere]
//! ```
//!
//! Cases: `sessions`, `restart`, `backlog`, `broadcast`, `drain`, `split`; without one, all. `restart`, `backlog` and `split`
//! go on with what `sessions` has made. Each runs in a process of its own, so that memory is its own. With `HERALD_BENCH_SMOKE=1` numbers are small and nothing is
//! waited for, so that only results mean something, not figures.
//!
//! CPU time is that of the store's threads, not of the one that asks and verifies. A benchmark whose
//! results are wrong panics.

#![expect(clippy::print_stdout, reason = "a benchmark reports by printing")]
mod flow;
mod measure;
mod node;
mod payload;
mod visits;

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use flow::InboxCursors;
use measure::{Disk, Meter, Probe, mb, memory, peak_memory};
use node::{Node, own_topic};
use store_state::api::StoreId;
use visits::{Plan, play};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// As in the broker, but that unused memory goes back to the system sooner: the benchmark waits for it.
const ALLOCATOR_OPTIONS: &str =
    "background_thread:true,narenas:16,dirty_decay_ms:1000,muzzy_decay_ms:0";

/// Messages queued for each session in the case `backlog`.
const QUEUED: u64 = 10;

/// Sessions that are drained there.
const DRAINED: u64 = 1_000;

/// The topic of the case `broadcast`.
const NEWS: &str = "news";

struct Settings {
    sessions: u64,
    messages: u64,
    threads: usize,
    folder: PathBuf,
    smoke: bool,
}

type Case = (&'static str, fn(&Settings));

const CASES: [Case; 6] = [
    ("sessions", sessions),
    ("restart", restart),
    ("backlog", backlog),
    ("broadcast", broadcast),
    ("drain", drain),
    ("split", split),
];

fn main() {
    let smoke = std::env::var_os("HERALD_BENCH_SMOKE").is_some();
    let mut settings = Settings {
        sessions: if smoke { 200 } else { 20_000 },
        messages: if smoke { 2_000 } else { 200_000 },
        threads: 1,
        folder: PathBuf::new(),
        smoke,
    };
    let mut cases = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("an option has a value");
        let mut number = || value().replace('_', "").parse().expect("a number");
        match &*argument {
            "--sessions" => settings.sessions = number(),
            "--messages" => settings.messages = number(),
            "--threads" => settings.threads = number() as usize,
            "--folder" => settings.folder = value().into(),
            // What cargo passes on.
            "--bench" | "--test" => {}
            name => {
                let case = CASES.iter().find(|(known, _)| *known == name);
                cases.push(*case.unwrap_or_else(|| panic!("there is no case {name}")));
            }
        }
    }
    match cases[..] {
        [(_, run)] if std::env::var_os("_RJEM_MALLOC_CONF").is_some() => run(&settings),
        [] => run_each(&settings, &CASES),
        _ => run_each(&settings, &cases),
    }
}

/// Runs cases as processes, one after the other.
fn run_each(settings: &Settings, cases: &[Case]) {
    let temporary = tempfile::tempdir().expect("a folder");
    let mut folder = settings.folder.as_path();
    if folder.as_os_str().is_empty() {
        folder = temporary.path();
    }
    for (name, _) in cases {
        let status = Command::new(std::env::current_exe().expect("this program"))
            .arg(name)
            .args(["--sessions", &settings.sessions.to_string()])
            .args(["--messages", &settings.messages.to_string()])
            .args(["--threads", &settings.threads.to_string()])
            .arg("--folder")
            .arg(folder)
            .env("_RJEM_MALLOC_CONF", ALLOCATOR_OPTIONS)
            .status();
        assert!(status.expect("it runs").success(), "case {name}");
    }
}

impl Settings {
    /// The store in a folder of the benchmark's.
    fn open(&self, name: &str) -> (PathBuf, Node) {
        let folder = self.folder.join(name);
        let node = Node::open(&folder, self.threads);
        (folder, node)
    }

    /// Waits for a checkpoint, unless nothing is waited for.
    fn settle(&self, node: &Node) {
        if !self.smoke {
            node.checkpointed();
        }
    }

    fn memory(&self) -> u64 {
        if self.smoke { 0 } else { memory() }
    }
}

/// A new client for each number, with a filter of its own, that comes and leaves.
fn sessions(settings: &Settings) {
    let count = settings.sessions;
    let (folder, node) = settings.open("sessions");
    let before = settings.memory();
    let probe = Probe::start(&node.store);
    let meter = Meter::start();
    make(&node, count, &own_topic);
    let used = meter.used();
    println!(
        "sessions: {count} made: {:.1} µs of CPU each, {:.0} requests/s, {:.0} bytes written each, \
         longest look {:.1} ms",
        used.cpu_each(count),
        used.per_second(5 * count),
        used.written as f64 / count as f64,
        probe.longest_ms(),
    );
    settings.settle(&node);
    let disk = Disk::of(&folder);
    println!(
        "sessions: idle: {:.0} bytes of memory each, {:.0} bytes of tables each, log {:.0} MB, peak {:.0} MB",
        (settings.memory().saturating_sub(before)) as f64 / count as f64,
        disk.tables as f64 / count as f64,
        mb(disk.log),
        mb(peak_memory()),
    );
    let stats = node.store.stats(mqtt_session::Timestamp(0));
    assert_eq!((stats.sessions, stats.inboxes), (count, count));
    node.store.shutdown();
}

fn make(node: &Node, count: u64, filter: &dyn Fn(u64) -> String) {
    let plan = Plan {
        subscribe: Some(filter),
        ..Plan::leave_at_once()
    };
    play(node, 0..count, plan);
}

/// What `sessions` has made is opened again.
fn restart(settings: &Settings) {
    let count = settings.sessions;
    let before = settings.memory();
    let node = reopen(settings, "restart", "sessions", count, before);
    assert_eq!(
        node.store.stats(mqtt_session::Timestamp(0)).queued_messages,
        0
    );
    node.store.shutdown();
}

fn reopen(settings: &Settings, case: &str, folder: &str, count: u64, before: u64) -> Node {
    let meter = Meter::start();
    let begin = Instant::now();
    let (_, node) = settings.open(folder);
    let took = begin.elapsed();
    let used = meter.used();
    println!(
        "{case}: open after {:.2} s, {:.2} s of CPU; peak {:.0} MB",
        took.as_secs_f64(),
        used.cpu.as_secs_f64(),
        mb(peak_memory()),
    );
    println!(
        "{case}: {:.0} bytes of memory for each of {count} sessions",
        settings.memory().saturating_sub(before) as f64 / count as f64,
    );
    let stats = node.store.stats(mqtt_session::Timestamp(0));
    assert_eq!((stats.sessions, stats.inboxes), (count, count));
    node
}

/// Messages are queued for all sessions that `sessions` has made, the store is opened again, and some
/// sessions are drained.
fn backlog(settings: &Settings) {
    let count = settings.sessions;
    if std::env::var_os(AGAIN).is_none() {
        fill(settings);
        let status = Command::new(std::env::current_exe().expect("this program"))
            .args(std::env::args().skip(1))
            .env(AGAIN, "1")
            .status();
        assert!(status.expect("it runs").success(), "case backlog");
        return;
    }
    let before = settings.memory();
    let node = reopen(settings, "backlog", "sessions", count, before);
    assert_eq!(
        node.store.stats(mqtt_session::Timestamp(0)).queued_messages,
        count * QUEUED
    );
    let drained = DRAINED.min(count);
    let step = (count / drained) as usize;
    let meter = Meter::start();
    let plan = Plan {
        subscribe: None,
        read: QUEUED,
        number: &|client, nth| nth * count + client,
    };
    play(&node, (0..count).step_by(step).take(drained as usize), plan);
    let used = meter.used();
    println!(
        "backlog: {drained} sessions drained in {:.2} s, {:.1} µs of CPU each message",
        used.time.as_secs_f64(),
        used.cpu_each(drained * QUEUED),
    );
    let left = (count - drained) * QUEUED;
    assert_eq!(
        node.store.stats(mqtt_session::Timestamp(0)).queued_messages,
        left
    );
    node.store.shutdown();
}

/// Set in the second process of `backlog`.
const AGAIN: &str = "HERALD_BENCH_AGAIN";

fn fill(settings: &Settings) {
    let messages = settings.sessions * QUEUED;
    let (folder, node) = settings.open("sessions");
    let probe = Probe::start(&node.store);
    let meter = Meter::start();
    flow::queue(&node, messages, settings.sessions);
    let used = meter.used();
    println!(
        "backlog: {messages} messages queued: {:.1} µs of CPU each, {:.0}/s, {:.0} bytes written each, \
         longest look {:.1} ms, peak {:.0} MB",
        used.cpu_each(messages),
        used.per_second(messages),
        used.written as f64 / messages as f64,
        probe.longest_ms(),
        mb(peak_memory()),
    );
    settings.settle(&node);
    let disk = Disk::of(&folder);
    println!(
        "backlog: {:.0} bytes of tables each message, log {:.0} MB, {:.0} MB of memory",
        disk.tables as f64 / messages as f64,
        mb(disk.log),
        mb(settings.memory()),
    );
    drop(probe);
    node.store.shutdown();
}

/// One message for very many sessions that sleep.
fn broadcast(settings: &Settings) {
    let count = settings.sessions.min(100_000);
    let (folder, node) = settings.open("broadcast");
    make(&node, count, &|_| NEWS.to_owned());
    settings.settle(&node);
    let empty = (settings.memory(), Disk::of(&folder));
    let probe = Probe::start(&node.store);
    let (stats, meter) = (node.store.stats(mqtt_session::Timestamp(0)), Meter::start());
    flow::broadcast(&node, NEWS, count);
    let used = meter.used();
    let queued = node.store.stats(mqtt_session::Timestamp(0));
    println!(
        "broadcast: to {count} sessions: reply after {:.1} ms, {:.2} µs of CPU each, {} bytes of log; \
         memory {:.0} MB, before {:.0} MB",
        used.time.as_secs_f64() * 1e3,
        used.cpu_each(count),
        queued.log.written_bytes - stats.log.written_bytes,
        mb(settings.memory()),
        mb(empty.0),
    );
    assert_eq!(queued.queued_messages, count);
    probe.longest_ms();
    settings.settle(&node);
    let full = Disk::of(&folder);
    println!(
        "broadcast: checkpoint of {:.1} MB, tables {:.1} MB, before {:.1} MB; longest look {:.1} ms",
        mb(checkpoint_bytes(&node) - queued.stores.inbox.checkpoint_bytes),
        mb(full.tables),
        mb(empty.1.tables),
        probe.longest_ms(),
    );
    let meter = Meter::start();
    let plan = Plan {
        subscribe: None,
        read: 1,
        number: &|_, _| 0,
    };
    play(&node, 0..count, plan);
    let used = meter.used();
    println!(
        "broadcast: all drained in {:.2} s, {:.1} µs of CPU each, longest look {:.1} ms",
        used.time.as_secs_f64(),
        used.cpu_each(count),
        probe.longest_ms(),
    );
    assert_eq!(
        node.store.stats(mqtt_session::Timestamp(0)).queued_messages,
        0
    );
    settings.settle(&node);
    let disk = Disk::of(&folder);
    println!(
        "broadcast: afterwards tables {:.1} MB, log {:.0} MB; memory {:.0} MB",
        mb(disk.tables),
        mb(disk.log),
        mb(settings.memory()),
    );
    drop(probe);
    node.store.shutdown();
}

fn checkpoint_bytes(node: &Node) -> u64 {
    node.store
        .stats(mqtt_session::Timestamp(0))
        .stores
        .inbox
        .checkpoint_bytes
}

/// Messages through inboxes of connected clients: through one, and through very many.
fn drain(settings: &Settings) {
    let inboxes = settings.sessions.min(1_000);
    let (folder, node) = settings.open("drain");
    make(&node, 1 + inboxes, &own_topic);
    settings.settle(&node);
    let empty = Disk::of(&folder);
    carry(settings, &node, 0, 1);
    carry(settings, &node, 1, inboxes);
    settings.settle(&node);
    let disk = Disk::of(&folder);
    println!(
        "drain: afterwards tables {:.2} MB, log {:.0} MB; before {:.2} MB, {:.0} MB",
        mb(disk.tables),
        mb(disk.log),
        mb(empty.tables),
        mb(empty.log),
    );
    node.store.shutdown();
}

fn carry(settings: &Settings, node: &Node, first: u64, inboxes: u64) {
    let messages = settings.messages;
    let mut readers = InboxCursors::connect(node, first, inboxes);
    let probe = Probe::start(&node.store);
    let (stats, meter) = (node.store.stats(mqtt_session::Timestamp(0)), Meter::start());
    readers.carry(messages);
    node.flush();
    let used = meter.used();
    let now = node.store.stats(mqtt_session::Timestamp(0));
    assert_eq!(now.queued_messages, 0);
    let each = |bytes: u64| bytes as f64 / messages as f64;
    println!(
        "drain: {messages} messages through {inboxes} inboxes: {:.0}/s, {:.2} µs of CPU each; written \
         each: {:.0} bytes in all, {:.0} to the log, {:.1} in checkpoints; longest look {:.1} ms; peak {:.0} MB",
        used.per_second(messages),
        used.cpu_each(messages),
        each(used.written),
        each(now.log.written_bytes - stats.log.written_bytes),
        each(now.stores.inbox.checkpoint_bytes - stats.stores.inbox.checkpoint_bytes),
        probe.longest_ms(),
        mb(peak_memory()),
    );
}

/// Rounds of requests before a split, and after it.
const ROUNDS: usize = 200;

/// Both shards are split in the middle, while messages are published and sessions are claimed, one after the other.
fn split(settings: &Settings) {
    let count = settings.sessions;
    let node = reopen(settings, "split", "sessions", count, settings.memory());
    let queued = node.store.stats(mqtt_session::Timestamp(0)).queued_messages;
    let publish = |round: u64| {
        node.publish(round, &own_topic(round % count), b"x");
        node.answered();
    };
    pauses(
        &node,
        StoreId::Inbox,
        &format!("{count} inboxes, {queued} messages"),
        publish,
    );
    let claim = |round: u64| {
        node.claim(round % count, round);
        node.answered();
    };
    pauses(&node, StoreId::Session, &format!("{count} sessions"), claim);
    node.store.shutdown();
}

/// Splits a shard while something is asked again and again, and prints how long that took.
fn pauses(node: &Node, store: StoreId, of: &str, ask: impl Fn(u64)) {
    let (asked, is_over) = (&*node.store, AtomicBool::new(false));
    let timed = |round: usize| {
        let begin = Instant::now();
        ask(round as u64);
        begin.elapsed().as_secs_f64() * 1e3
    };
    let mut before: Vec<f64> = (0..ROUNDS).map(timed).collect();
    let (during, took) = std::thread::scope(|scope| {
        let split = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            let begin = Instant::now();
            let split = runtime
                .expect("a runtime")
                .block_on(asked.splits().split(store, 0, 32_768));
            split.expect("the shard is split");
            is_over.store(true, Ordering::Release);
            begin.elapsed().as_secs_f64() * 1e3
        });
        let mut during = Vec::new();
        let mut left = ROUNDS;
        while left > 0 {
            left -= usize::from(is_over.load(Ordering::Acquire));
            during.push(timed(during.len()));
        }
        (during, split.join().expect("the split ends"))
    });
    before.sort_by(f64::total_cmp);
    let longest = during.iter().copied().fold(0.0, f64::max);
    println!(
        "split: {} store of {of}: split in {took:.1} ms; longest request {longest:.1} ms, before {:.1} ms, median {:.1} ms",
        store.name(),
        before[ROUNDS - 1],
        before[ROUNDS / 2],
    );
}
