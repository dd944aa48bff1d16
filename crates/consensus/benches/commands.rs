//! Commands per second, CPU time and bytes written per command, on the real disk.
//!
//! `cargo bench -p herald-consensus`; with `HERALD_BENCH_SMOKE=1` each case runs a few times only, and
//! with `HERALD_BENCH_IDLE=1` it shows instead what ten idle seconds of three groups cost. The folder is
//! below `HERALD_BENCH_DIR`, or else the folder for temporary files.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use consensus::{
    Applied, Birth, Command, CorruptCommand, Encoded, Group, GroupOptions, Log, LogOptions, Mark,
    Nobody, StateMachine,
};
use host::Process;
use tokio::runtime::Builder;

const MESSAGE: usize = 256;
const IN_FLIGHT: usize = 64;

/// Messages of 256 bytes.
#[derive(Clone, Debug)]
struct Batch(Arc<Vec<u8>>);

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Command for Batch {
    fn encoded(&self) -> Encoded {
        Encoded::Own(self.0.to_vec())
    }

    fn decode(bytes: &Bytes) -> Result<Self, CorruptCommand> {
        Ok(Self(Arc::new(bytes.to_vec())))
    }

    fn encoded_len_hint(&self) -> usize {
        self.0.len()
    }
}

struct Nothing;

impl StateMachine<Batch> for Nothing {
    fn durable(&self) -> Option<Mark> {
        None
    }

    fn apply(&mut self, _index: u64, _: &Mark, _command: &Batch, _from: usize) -> Applied {
        Applied::Done
    }

    fn flush(&mut self, _applied: &Mark) {}
}

fn main() {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    if std::env::var_os("HERALD_BENCH_IDLE").is_some() {
        runtime.block_on(idle());
        return;
    }
    let smoke = std::env::var_os("HERALD_BENCH_SMOKE").is_some();
    for (packed, commands) in [(1, 300_000), (32, 60_000)] {
        let commands = if smoke { 100 } else { commands };
        runtime.block_on(measure(packed, commands));
    }
}

#[expect(clippy::print_stdout, reason = "the result of a benchmark")]
async fn measure(packed: usize, commands: usize) {
    let folder = Folder::new();
    let log = Log::open(&LogOptions::new(&folder.0)).expect("the log opens");
    let group = start(1, &log).await;
    let command = Batch(Arc::new(vec![7; MESSAGE * packed]));
    let (cpu, begin) = (cpu(), Instant::now());
    let mut in_flight = VecDeque::with_capacity(IN_FLIGHT);
    let mut slowest = Duration::ZERO;
    for _ in 0..commands {
        if in_flight.len() == IN_FLIGHT {
            slowest = slowest.max(wait(&mut in_flight).await);
        }
        let proposal = group.propose(command.clone()).await.expect("it is taken");
        in_flight.push_back((Instant::now(), proposal));
    }
    while !in_flight.is_empty() {
        slowest = slowest.max(wait(&mut in_flight).await);
    }
    let (took, cpu) = (begin.elapsed(), self::cpu() - cpu);
    let stats = log.stats();
    println!(
        "{packed:2} messages per command, {IN_FLIGHT} commands in flight: {:.0} commands/s, \
         {:.0} messages/s, {:.2} µs of CPU per command, {:.0} bytes written per command, \
         {:.1} commands per sync, {:.0} µs per sync, slowest {:.1} ms",
        commands as f64 / took.as_secs_f64(),
        (commands * packed) as f64 / took.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / commands as f64,
        stats.written_bytes as f64 / commands as f64,
        stats.entries as f64 / stats.batches as f64,
        stats.sync_time.as_secs_f64() * 1e6 / stats.syncs as f64,
        slowest.as_secs_f64() * 1e3,
    );
    group.shutdown().await;
}

/// The time from proposing the oldest to its end.
async fn wait(in_flight: &mut VecDeque<(Instant, consensus::Proposal<Batch>)>) -> Duration {
    let (proposed, proposal) = in_flight.pop_front().expect("something is in flight");
    proposal.await.expect("it is applied");
    proposed.elapsed()
}

#[expect(clippy::print_stdout, reason = "the result of a benchmark")]
async fn idle() {
    let folder = Folder::new();
    let log = Log::open(&LogOptions::new(&folder.0)).expect("the log opens");
    let mut groups = Vec::new();
    for id in 1..=3 {
        groups.push(start(id, &log).await);
    }
    let (before, switches) = (cpu(), context_switches());
    tokio::time::sleep(Duration::from_secs(10)).await;
    println!(
        "3 groups, 10 idle seconds: {:?} of CPU, {} context switches",
        cpu() - before,
        context_switches() - switches,
    );
}

async fn start(id: u64, log: &Log) -> Group<Batch> {
    let options = GroupOptions::default();
    let group = Group::start(
        id,
        1,
        log,
        Nothing,
        Arc::new(Nobody),
        Birth::Alone,
        &options,
    )
    .await
    .expect("the group starts");
    group.recovered().await.expect("it leads");
    group
}

fn cpu() -> Duration {
    Process::own().cpu().expect("/proc").total()
}

/// Of all threads of this process.
fn context_switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc");
    let status = tasks.map(|task| task.expect("/proc").path().join("status"));
    let texts = status.map(|path| std::fs::read_to_string(path).unwrap_or_default());
    texts.map(|text| switches_in(&text)).sum()
}

fn switches_in(status: &str) -> u64 {
    let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
    lines
        .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok())
        .sum()
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let parent =
            std::env::var_os("HERALD_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = parent.join(format!("herald-consensus-bench-{}", std::process::id()));
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is for people to delete.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
