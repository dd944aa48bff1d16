//! What the threads of this process have used since they started, and had used in the last minute.
//!
//! Invariant: the kernel is asked on threads that may wait, never by an event loop.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::api::{Amount, EarlierThreads, ThreadUsageRow, ThreadsUsage, TurnTimes};
use admin::cluster::NodeId;
use admin::problem::Problem;
use histogram::Snapshot;
use host::{Process, ThreadUsage};
use tokio::task::spawn_blocking;

use super::memory::failed;
use super::recent_threads::RecentThreads;
use crate::node::Node;

/// The threads of this process.
pub(super) struct OwnThreads {
    node: Arc<Node>,
    /// What people call the node.
    name: String,
    started: Instant,
    /// What they had used in the last minute.
    recent: RecentThreads,
}

impl OwnThreads {
    /// Those of a node with a name, which started then.
    pub(super) fn new(node: Arc<Node>, name: String, started: Instant) -> Self {
        Self {
            node,
            name,
            started,
            recent: RecentThreads::default(),
        }
    }

    /// What they have used since they started, and had used up to a minute ago.
    pub(super) async fn usage(self: Arc<Self>) -> Result<ThreadsUsage, Problem> {
        let threads = Arc::clone(&self);
        let read = spawn_blocking(move || threads.look()).await;
        let EarlierThreads { uptime_us, threads } = read.map_err(failed)?.map_err(failed)?;
        Ok(ThreadsUsage {
            node: NodeId(self.node.store().node()),
            node_name: self.name.clone(),
            uptime_us,
            threads,
            earlier: self.recent.oldest(),
        })
    }

    /// Keeps what they have used now for looks within the next minute. It reads files of the kernel.
    pub(super) fn record(&self) {
        match self.look() {
            Ok(look) => self.recent.record(look),
            Err(error) => tracing::warn!(%error, "the threads of this process cannot be read"),
        }
    }

    fn look(&self) -> io::Result<EarlierThreads> {
        let threads = Process::own().threads()?.into_iter();
        Ok(EarlierThreads {
            uptime_us: us(self.started.elapsed()),
            threads: threads.map(|thread| row(&self.node, thread)).collect(),
        })
    }
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
}
