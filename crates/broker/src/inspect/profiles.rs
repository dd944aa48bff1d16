//! What goes on inside the processes of nodes: where the CPU time of this one goes, what its threads use, and what takes its memory
//! (`memory.rs`). Other nodes are asked (`asked_profiles.rs`).
//!
//! Invariant: nothing is sampled while nobody asks; all that is kept is what the threads had used in the last minute (`recent_threads.rs`).
//!
//! Deliberately absent: symbols, which the program reads (`OwnProcess`).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use admin::api::{
    Amount, CpuProfile, EarlierThreads, MemoryProfile, ProfiledModule, ProfiledStack,
    ProfiledThread, ThreadUsageRow, ThreadsUsage, TurnTimes,
};
use admin::cluster::NodeId;
use admin::problem::{Kind, Problem};
use admin::{Asked, Profiles};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use histogram::Snapshot;
use host::{Process, ThreadUsage};
use inspection::{ProfileAnswer, ProfileQuestion};
use profiler::{CpuSampling, Frame, Hertz, Refused};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::asked_profiles;
use super::memory::{self, failed};
use super::state::Inspect;
use super::wire::ToApi as _;
use crate::node::Node;

/// No divisor of what the broker does each 10 ms or second, so that this is not seen too often or never.
const HERTZ: Hertz = Hertz(199);

/// How often samples are taken from the handler.
const GATHER: Duration = Duration::from_millis(100);

/// The processes of this node and of the others.
#[derive(Debug)]
pub(super) struct NodeProfiles(pub(super) Arc<Inspect>);

impl NodeProfiles {
    fn is_own(&self, node: NodeId) -> bool {
        node == NodeId(self.0.node.store().node())
    }
}

impl Profiles for NodeProfiles {
    fn cpu(
        &self,
        node: NodeId,
        lasts: Duration,
    ) -> Asked<BoxFuture<'static, Result<CpuProfile, Problem>>> {
        let (inspect, is_own) = (Arc::clone(&self.0), self.is_own(node));
        async move {
            match is_own {
                true => begin_cpu(&inspect, lasts).await,
                false => asked_profiles::begin_there(inspect, node, lasts).await,
            }
        }
        .boxed()
    }

    fn with_functions(&self, mut profile: CpuProfile) -> BoxFuture<'static, CpuProfile> {
        let functions = self.0.process.functions;
        let readings = Arc::clone(&self.0.symbol_readings);
        async move {
            let place = readings.acquire_owned().await;
            let place = place.expect("nobody closes this semaphore");
            let asked = profile.clone();
            let named = spawn_blocking(move || {
                // It reads to the end when nobody waits for it any more, and keeps its place as long.
                let _place = place;
                functions(&asked)
            });
            match named.await {
                Ok(named) => profile.functions = named,
                Err(error) => tracing::warn!(%error, "the functions of a profile are not named"),
            }
            profile
        }
        .boxed()
    }

    fn memory(&self, node: NodeId) -> Asked<MemoryProfile> {
        let (inspect, is_own) = (Arc::clone(&self.0), self.is_own(node));
        async move {
            if is_own {
                return memory::profile(inspect).await;
            }
            match asked_profiles::there(&inspect, node, ProfileQuestion::Memory).await? {
                ProfileAnswer::Memory(profile) => Ok(profile.to_api()),
                _ => Err(asked_profiles::other(node)),
            }
        }
        .boxed()
    }

    fn threads(&self, node: NodeId) -> Asked<ThreadsUsage> {
        let (inspect, is_own) = (Arc::clone(&self.0), self.is_own(node));
        async move {
            if is_own {
                return threads_here(&inspect).await;
            }
            match asked_profiles::there(&inspect, node, ProfileQuestion::Threads).await? {
                ProfileAnswer::Threads(usage) => Ok(usage.to_api()),
                _ => Err(asked_profiles::other(node)),
            }
        }
        .boxed()
    }
}

/// Begins a CPU profile of this process. What it gives is the profile, when the time is over; whoever drops it ends the profile.
pub(super) async fn begin_cpu(
    inspect: &Arc<Inspect>,
    lasts: Duration,
) -> Result<BoxFuture<'static, Result<CpuProfile, Problem>>, Problem> {
    let begun = spawn_blocking(|| CpuSampling::begin(HERTZ)).await;
    let sampling = begun.map_err(failed)?.map_err(|refused| match refused {
        Refused::Busy => Problem::new(Kind::Conflict, refused),
        Refused::System(error) => failed(error),
    })?;
    tracing::info!(seconds = lasts.as_secs(), "a CPU profile begins");
    Ok(sample(Arc::clone(inspect), sampling, lasts).boxed())
}

/// What the threads of this process have used since they started, and had used up to a minute ago.
pub(super) async fn threads_here(inspect: &Arc<Inspect>) -> Result<ThreadsUsage, Problem> {
    let asked = Arc::clone(inspect);
    let read = spawn_blocking(move || look_at_threads(&asked)).await;
    let EarlierThreads { uptime_us, threads } = read.map_err(failed)?.map_err(failed)?;
    Ok(ThreadsUsage {
        node: NodeId(inspect.node.store().node()),
        node_name: inspect.name.clone(),
        uptime_us,
        threads,
        earlier: inspect.recent_threads.oldest(),
    })
}

/// Keeps what the threads have used now for looks within the next minute. It reads files of the kernel.
pub(super) fn record_threads(inspect: &Inspect) {
    match look_at_threads(inspect) {
        Ok(look) => inspect.recent_threads.record(look),
        Err(error) => tracing::warn!(%error, "the threads of this process cannot be read"),
    }
}

fn look_at_threads(inspect: &Inspect) -> io::Result<EarlierThreads> {
    let threads = Process::own().threads()?.into_iter();
    Ok(EarlierThreads {
        uptime_us: us(inspect.started.elapsed()),
        threads: threads.map(|thread| row(&inspect.node, thread)).collect(),
    })
}

async fn sample(
    inspect: Arc<Inspect>,
    mut sampling: CpuSampling,
    lasts: Duration,
) -> Result<CpuProfile, Problem> {
    let cpu = || Process::own().cpu().unwrap_or_default();
    let before = cpu();
    let ends = Instant::now() + lasts;
    while Instant::now() < ends {
        sleep_until(ends.min(Instant::now() + GATHER)).await;
        sampling.gather();
    }
    let used = cpu() - before;
    let node = NodeId(inspect.node.store().node());
    let node = (node, inspect.name.clone());
    // Thousands of stacks are not put in order where other nodes are answered.
    let made = spawn_blocking(move || profile(node, sampling.end(), used.total()));
    made.await.map_err(failed)
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
        functions: None,
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
