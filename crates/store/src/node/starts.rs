//! How a thread of the store is given a shard.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

/// What a thread does to start one shard, within its runtime.
pub(crate) type BoxedBootstrap = Box<dyn FnOnce() -> BootstrapFuture + Send>;

/// A shard that starts.
pub(crate) type BootstrapFuture = Pin<Box<dyn Future<Output = Option<Box<dyn RunningShard>>>>>;

/// A shard that serves.
pub(crate) trait RunningShard {
    /// Serves no more: carries out what has been given, and writes a last checkpoint.
    fn finish(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()>>>;
}

/// The threads of a store: a shard is given to one of them when it comes up, and stays there.
pub(crate) struct StoreThreads {
    /// Each shard is given once, and a node serves so many at most (`shard/shards.rs`).
    starts: Box<[mpsc::UnboundedSender<BoxedBootstrap>]>,
    /// How many shards they have been given.
    given: AtomicUsize,
}

impl StoreThreads {
    /// So many threads, and for each what it is given.
    pub(crate) fn new(count: usize) -> (Self, Vec<mpsc::UnboundedReceiver<BoxedBootstrap>>) {
        let (starts, given): (Vec<_>, Vec<_>) =
            (0..count.max(1)).map(|_| mpsc::unbounded_channel()).unzip();
        let threads = Self {
            starts: starts.into(),
            given: AtomicUsize::new(0),
        };
        (threads, given)
    }

    /// Has a shard started on one of the threads, which take turns. If the node ends, it may not be.
    pub(crate) fn start(&self, bootstrap: BoxedBootstrap) {
        let thread = self.given.fetch_add(1, Ordering::Relaxed) % self.starts.len();
        if let Some(starts) = self.starts.get(thread) {
            // An error: the thread has ended with the node.
            let _ = starts.send(bootstrap);
        }
    }
}
