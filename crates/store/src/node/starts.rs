//! How a thread of the store is given a shard.
//!
//! A node begins with few threads, and starts another one for a shard that a split has made when all that run use a quarter of a
//! core: on a machine that is short of CPU one more thread costs more than it brings (decision 22). Shards that splits have made
//! earlier are spread over all threads when the node starts.
//!
//! Invariant: a shard is given once, to a thread that runs or is about to.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::leadership::led_shards::LedShard;
use crate::node::thread_load::ThreadLoad;

/// CPU time per second that all threads use at least when another one is started, without what they wait for a core.
pub(crate) const START_CPU: Duration = Duration::from_millis(250);

/// What a thread does to start one shard, within its runtime.
pub(crate) type BoxedBootstrap = Box<dyn FnOnce() -> BootstrapFuture + Send>;

/// A shard that starts.
pub(crate) type BootstrapFuture = Pin<Box<dyn Future<Output = Option<Box<dyn RunningShard>>>>>;

/// A shard that serves.
pub(crate) trait RunningShard {
    /// Serves no more: carries out what has been given, and writes a last checkpoint.
    fn finish(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()>>>;
}

/// How many threads a store has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ThreadCounts {
    /// From the beginning on.
    pub(crate) first: usize,
    /// At most.
    pub(crate) most: usize,
}

/// The threads of a store: a shard is given to one of them when it comes up, and stays there.
pub(crate) struct StoreThreads {
    threads: Box<[StoreThread]>,
    counts: ThreadCounts,
    /// Held while a shard is given away.
    standings: Mutex<Box<[Standing]>>,
}

/// A thread, whether it runs or not.
struct StoreThread {
    /// Each shard is given once, and a node serves so many at most (`shard/shards.rs`).
    starts: mpsc::UnboundedSender<BoxedBootstrap>,
    load: Arc<ThreadLoad>,
}

/// What a thread is given.
pub(crate) struct ThreadStarts {
    pub(crate) starts: mpsc::UnboundedReceiver<BoxedBootstrap>,
    /// Counts what the thread uses.
    pub(crate) load: Arc<ThreadLoad>,
}

/// Starts a thread.
pub(crate) type Launch = Box<dyn FnOnce() -> io::Result<()> + Send>;

enum Standing {
    /// The store is being opened: those run that are given a shard meanwhile.
    Planned,
    Runs,
    /// It does not run yet.
    Waits(Launch),
    /// It could not be started.
    Failed,
}

impl StoreThreads {
    /// So many threads, and for each what it is given.
    pub(crate) fn new(counts: ThreadCounts) -> (Self, Vec<ThreadStarts>) {
        let first = counts.first.max(1);
        let counts = ThreadCounts {
            first,
            most: counts.most.max(first),
        };
        let thread = |_| {
            let (send, starts) = mpsc::unbounded_channel();
            let load = Arc::new(ThreadLoad::default());
            let thread = StoreThread {
                starts: send,
                load: Arc::clone(&load),
            };
            (thread, ThreadStarts { starts, load })
        };
        let (threads, given): (Vec<_>, Vec<_>) = (0..counts.most).map(thread).unzip();
        let standings = threads.iter().map(|_| Standing::Planned).collect();
        let threads = Self {
            threads: threads.into(),
            counts,
            standings: Mutex::new(standings),
        };
        (threads, given)
    }

    /// Whether a thread is to be started when the store opens: it is one of the first, or has been given a shard.
    pub(crate) fn is_first(&self, thread: usize) -> bool {
        let load = self.threads.get(thread).map(|thread| &thread.load);
        thread < self.counts.first || load.is_some_and(|load| load.shards() > 0)
    }

    /// The store is open: a thread runs, or is started by `launch` when it is given a shard.
    pub(crate) fn is_ready(&self, thread: usize, launch: Option<Launch>) {
        if let Some(standing) = self.standings.lock().get_mut(thread) {
            *standing = launch.map_or(Standing::Runs, Standing::Waits);
        }
    }

    /// Has a shard started on one of the threads. If the node ends, it may not be. `is_child`: a split has made it.
    pub(crate) fn start(
        &self,
        shard: Arc<dyn LedShard>,
        is_child: bool,
        bootstrap: BoxedBootstrap,
    ) {
        let mut standings = self.standings.lock();
        let number = loop {
            let number = self.least_loaded(&standings, is_child);
            let standing = standings
                .get_mut(number)
                .expect("each thread has a standing");
            let Standing::Waits(_) = standing else {
                break number;
            };
            if let Standing::Waits(launch) = std::mem::replace(standing, Standing::Runs)
                && let Err(error) = launch()
            {
                tracing::error!(%error, "an additional thread of the store cannot start");
                *standing = Standing::Failed;
                continue;
            }
            break number;
        };
        let thread = self
            .threads
            .get(number)
            .expect("a thread that has a standing is there");
        thread.load.add(shard);
        // An error: the thread has ended with the node.
        let _ = thread.starts.send(bootstrap);
    }

    /// The thread that a shard should be given.
    fn least_loaded(&self, standings: &[Standing], is_child: bool) -> usize {
        let count = if is_child {
            self.counts.most
        } else {
            self.counts.first
        };
        let seen = |(thread, standing): (&StoreThread, &Standing)| Seen {
            standing: match standing {
                Standing::Planned | Standing::Runs => SeenStanding::Runs,
                Standing::Waits(_) => SeenStanding::Waits,
                Standing::Failed => SeenStanding::Failed,
            },
            cpu: thread.load.cpu(),
            busy: thread.load.busy(),
            shards: thread.load.shards(),
        };
        let threads: Vec<Seen> = self.threads.iter().zip(standings).map(seen).collect();
        choose(&threads, count)
    }

    /// What each thread has used lately, in CPU time per second; none: it does not run, or no shard is there.
    pub(crate) fn loads(&self) -> Vec<Arc<ThreadLoad>> {
        let threads = self.threads.iter();
        threads.map(|thread| Arc::clone(&thread.load)).collect()
    }
}

/// A thread, as it is looked at when a shard is given away.
#[derive(Clone, Copy, Debug)]
struct Seen {
    standing: SeenStanding,
    /// CPU time per second.
    cpu: Duration,
    /// The same with the time of waiting for a core.
    busy: Duration,
    shards: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SeenStanding {
    /// Or it will as soon as it is given a shard while the store is opened.
    Runs,
    Waits,
    Failed,
}

/// The first of those of the first `count` threads that have the least to do. One that does not run is started only if all others
/// are busy.
fn choose(threads: &[Seen], count: usize) -> usize {
    let mut running = threads
        .iter()
        .filter(|thread| thread.standing == SeenStanding::Runs);
    let are_busy = running.all(|thread| thread.cpu >= START_CPU);
    let can = |(_, thread): &(usize, &Seen)| match thread.standing {
        SeenStanding::Runs => true,
        SeenStanding::Waits => are_busy,
        SeenStanding::Failed => false,
    };
    let able = threads.iter().enumerate().take(count).filter(can);
    // The load of shards that have come lately is not known yet.
    let least = able.min_by_key(|(_, thread)| (thread.busy.as_millis() / 50, thread.shards));
    least.map_or(0, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_thread_is_given_a_shard() {
        use SeenStanding::{Failed, Runs, Waits};
        let seen = |(standing, cpu, busy, shards): &(SeenStanding, u64, u64, usize)| Seen {
            standing: *standing,
            cpu: Duration::from_millis(*cpu),
            busy: Duration::from_millis(*busy),
            shards: *shards,
        };
        for (threads, count, chosen) in [
            // While the store is opened all are alike.
            (&[(Runs, 0, 0, 0), (Runs, 0, 0, 0)][..], 2, 0),
            (&[(Runs, 0, 0, 1), (Runs, 0, 0, 0)], 2, 1),
            (&[(Runs, 0, 0, 1), (Runs, 0, 0, 0)], 1, 0),
            // Threads that wait for cores are no reason to start one more.
            (&[(Runs, 249, 990, 1), (Waits, 0, 0, 0)], 2, 0),
            (&[(Runs, 250, 250, 1), (Waits, 0, 0, 0)], 2, 1),
            (&[(Runs, 250, 250, 1), (Waits, 0, 0, 0)], 1, 0),
            (
                &[(Runs, 900, 900, 1), (Runs, 90, 90, 9), (Waits, 0, 0, 0)],
                3,
                1,
            ),
            (
                &[(Runs, 900, 900, 1), (Runs, 260, 990, 1), (Waits, 0, 0, 0)],
                3,
                2,
            ),
            (&[(Runs, 900, 900, 1), (Failed, 0, 0, 0)], 2, 0),
            (
                &[(Runs, 900, 900, 1), (Failed, 0, 0, 0), (Waits, 0, 0, 0)],
                3,
                2,
            ),
            // Differences of less than 50 ms are none: the one with fewer shards.
            (&[(Runs, 240, 240, 1), (Runs, 210, 210, 2)], 2, 0),
        ] {
            let seen: Vec<Seen> = threads.iter().map(seen).collect();
            assert_eq!(choose(&seen, count), chosen, "{threads:?} of {count}");
        }
    }
}
