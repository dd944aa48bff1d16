//! What goes on inside this process: where its CPU time goes, what its threads use, and what takes its memory (`memory.rs`).
//!
//! Invariant: nothing is sampled or kept while nobody asks.
//!
//! Deliberately absent: other nodes; a profile is made by the node that is asked. Names of functions, which the command finds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admin::api::{
    Amount, CpuProfile, MemoryProfile, ProfiledModule, ProfiledStack, ProfiledThread,
    ThreadUsageRow, ThreadsUsage, TurnTimes,
};
use admin::cluster::NodeId;
use admin::problem::{Kind, Problem};
use admin::{Asked, Profiles};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use histogram::Snapshot;
use host::{Process, ThreadUsage};
use profiler::{CpuSampling, Frame, Hertz, Refused};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::memory::{self, failed};
use super::state::Inspect;
use crate::node::Node;

/// No divisor of what the broker does each 10 ms or second, so that this is not seen too often or never.
const HERTZ: Hertz = Hertz(199);

/// How often samples are taken from the handler.
const GATHER: Duration = Duration::from_millis(100);

/// The process of this node.
#[derive(Debug)]
pub(super) struct OwnProfiles(pub(super) Arc<Inspect>);

impl Profiles for OwnProfiles {
    fn cpu(&self, node: NodeId, lasts: Duration) -> Asked<BoxFuture<'static, CpuProfile>> {
        let inspect = Arc::clone(&self.0);
        async move {
            check(inspect.node.store().node(), node)?;
            let begun = spawn_blocking(|| CpuSampling::begin(HERTZ)).await;
            let sampling = begun.map_err(failed)?.map_err(|refused| match refused {
                Refused::Busy => Problem::new(Kind::Conflict, refused),
                Refused::System(error) => failed(error),
            })?;
            tracing::info!(seconds = lasts.as_secs(), "a CPU profile begins");
            Ok(sample(inspect, sampling, lasts).boxed())
        }
        .boxed()
    }

    fn memory(&self, node: NodeId) -> Asked<MemoryProfile> {
        let inspect = Arc::clone(&self.0);
        async move {
            check(inspect.node.store().node(), node)?;
            memory::profile(inspect).await
        }
        .boxed()
    }

    fn threads(&self, node: NodeId) -> Asked<ThreadsUsage> {
        let inspect = Arc::clone(&self.0);
        async move {
            check(inspect.node.store().node(), node)?;
            let read = spawn_blocking(|| (Process::own().threads(), std::time::Instant::now()));
            let (threads, at) = read.await.map_err(failed)?;
            let threads = threads.map_err(failed)?.into_iter();
            let uptime = at.duration_since(inspect.started);
            Ok(ThreadsUsage {
                node,
                node_name: inspect.name.clone(),
                uptime_us: us(uptime),
                threads: threads.map(|thread| row(&inspect.node, thread)).collect(),
            })
        }
        .boxed()
    }
}

/// Whether the node is this one.
fn check(own: u64, node: NodeId) -> Result<(), Problem> {
    let own = NodeId(own);
    if node == own {
        return Ok(());
    }
    let why = format!(
        "a node looks into its own process only: this is node {own}, and node {node} is to be asked at its own HTTP port"
    );
    Err(Problem::new(Kind::Conflict, why).with("node", own.to_string()))
}

async fn sample(inspect: Arc<Inspect>, mut sampling: CpuSampling, lasts: Duration) -> CpuProfile {
    let cpu = || Process::own().cpu().unwrap_or_default();
    let before = cpu();
    let ends = Instant::now() + lasts;
    while Instant::now() < ends {
        sleep_until(ends.min(Instant::now() + GATHER)).await;
        sampling.gather();
    }
    let used = cpu() - before;
    let node = NodeId(inspect.node.store().node());
    profile((node, inspect.name.clone()), sampling.end(), used.total())
}

/// As the API says it.
fn profile(
    (node, node_name): (NodeId, String),
    sampled: profiler::CpuProfile,
    used: Duration,
) -> CpuProfile {
    let mut numbers: BTreeMap<Frame, usize> = BTreeMap::new();
    let mut places = Vec::new();
    let mut number = |frame: &Frame| {
        *numbers.entry(*frame).or_insert_with(|| {
            places.push(place(frame));
            places.len() - 1
        })
    };
    let stacks = sampled.stacks.iter().map(|stack| ProfiledStack {
        thread: stack.thread,
        count: Amount(stack.count.0),
        places: stack.frames.iter().map(&mut number).collect(),
    });
    let stacks = stacks.collect();
    let threads = sampled.threads.into_iter().map(|thread| ProfiledThread {
        id: Amount(thread.id.0.into()),
        name: thread.name,
    });
    let modules = sampled.modules.into_iter().map(|module| ProfiledModule {
        path: module.path.to_string_lossy().into_owned(),
        build_id: module.build_id.as_deref().map(hexadecimal),
        is_program: module.is_program,
    });
    CpuProfile {
        node,
        node_name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        hertz: Amount(sampled.hertz.0.into()),
        lasted_ms: ms(sampled.lasted),
        cpu_ms: ms(used),
        samples: Amount(sampled.samples.0),
        lost: Amount(sampled.lost.0),
        threads: threads.collect(),
        modules: modules.collect(),
        places,
        stacks,
    }
}

fn place(frame: &Frame) -> String {
    let address = frame.address.0;
    match frame.module {
        Some(module) => format!("{module}:{address:x}"),
        None => format!(":{address:x}"),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn row(node: &Node, thread: ThreadUsage) -> ThreadUsageRow {
    let ThreadUsage { id, name, cpu, .. } = thread;
    let index = name.strip_prefix("loop-");
    let index = index.and_then(|index| index.parse::<usize>().ok());
    let stats = index.and_then(|index| node.rim.net.get(index));
    ThreadUsageRow {
        id: Amount(id.0.into()),
        cpu_us: us(thread.ran.unwrap_or(cpu.total())),
        system_us: us(cpu.system),
        no_core_us: thread.had_no_core.map(us),
        wake_ups: thread.waits.map(|waits| Amount(waits.0)),
        turns: stats.map(|stats| {
            let mut times = Snapshot::default();
            stats.turn_time.add_to(&mut times);
            turns(&times)
        }),
        name,
    }
}

/// The buckets that have counted something, the shortest first.
fn turns(times: &Snapshot) -> Vec<TurnTimes> {
    let ms = |s: f64| (s * 1e6).round() / 1e3;
    let (end, count) = times.shortest();
    let (first, counts) = times.quarters();
    let last = counts.len().saturating_sub(1);
    let longer = (first..).zip(counts).enumerate();
    let longer = longer.map(|(at, (quarter, count))| {
        let end = 2_f64.powf(f64::from(quarter) / 4.0);
        ((at < last).then(|| ms(end)), *count)
    });
    let all = std::iter::once((Some(ms(end)), count)).chain(longer);
    let some = all.filter(|(_, count)| *count > 0);
    let times = some.map(|(up_to_ms, count)| TurnTimes {
        up_to_ms,
        count: Amount(count),
    });
    times.collect()
}

fn ms(time: Duration) -> Amount {
    Amount(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn us(time: Duration) -> Amount {
    Amount(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use histogram::{Histogram, Micros};

    use super::*;

    #[test]
    fn turns_are_in_the_bucket_that_ends_at_or_behind_them() {
        let histogram = Histogram::default();
        for us in [1, 900, 1_100, u64::MAX / 2] {
            histogram.record(Micros(us));
        }
        let mut times = Snapshot::default();
        histogram.add_to(&mut times);
        let told = turns(&times);
        let counted: Vec<u64> = told.iter().map(|times| times.count.0).collect();
        assert_eq!(counted, [1, 1, 1, 1]);
        let ends: Vec<_> = told.iter().map(|times| times.up_to_ms).collect();
        assert!(
            ends[1].is_some_and(|end| (0.9..1.1).contains(&end)),
            "{ends:?}"
        );
        assert!(
            ends[2].is_some_and(|end| (1.1..1.4).contains(&end)),
            "{ends:?}"
        );
        assert_eq!(ends[3], None);
    }

    #[test]
    fn a_place_has_its_module_and_the_address_in_it() {
        let address = profiler::Address(0x1a2b);
        let of = |module| place(&Frame { module, address });
        assert_eq!((of(Some(3)), of(None)), ("3:1a2b".into(), ":1a2b".into()));
    }
}
