//! Threads for password hashes: as many at once as configured, whoever asks.
//!
//! They are those that the runtime keeps for blocking work; a few more of them are left to name lookups,
//! so that these do not wait behind hashes.

use std::{num::NonZero, sync::Arc, thread};

use tokio::{
    sync::Semaphore,
    task::{self, JoinError},
};

/// Threads that the runtime keeps for name lookups, beyond those for hashes.
pub(crate) const SPARE_THREADS: usize = 4;

/// The right to compute some hashes at once. Whoever waits for it is a login, so `maxPending` is the limit.
#[derive(Clone, Debug)]
pub(crate) struct HashThreads(Arc<Semaphore>);

impl HashThreads {
    pub(crate) fn new(threads: usize) -> Self {
        Self(Arc::new(Semaphore::new(threads)))
    }

    /// Computes something on one of the threads, and fails if the runtime ends. Within the crate's runtime.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        task::spawn_blocking(move || {
            let _until_done = permit;
            work()
        })
        .await
    }
}

/// How many threads compute hashes; one per core unless configured.
pub(crate) fn thread_count(configured: Option<NonZero<u16>>) -> usize {
    match configured {
        Some(count) => usize::from(count.get()),
        None => thread::available_parallelism().map_or(1, NonZero::get),
    }
}
