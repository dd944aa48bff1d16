//! What a scrub counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::shard::load::Total;

/// The counters behind [`ScrubStats`].
#[derive(Debug, Default)]
pub(crate) struct ScrubCounters {
    /// As of [`Options::scrub_every`](crate::Options::scrub_every).
    pub(crate) every: Duration,
    pub(super) bytes: AtomicU64,
    pub(super) rounds: AtomicU64,
    pub(super) ended: Mutex<Option<Instant>>,
    pub(super) small_files: AtomicU64,
    pub(super) log_places: AtomicU64,
    pub(super) tables: AtomicU64,
}

/// What a scrub has done since the node started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubStats {
    /// Bytes read.
    pub bytes: Total,
    /// Rounds that are over.
    pub rounds: Total,
    /// How long ago the last one was over; `None`: none is yet.
    pub since_round: Option<Duration>,
    /// Small files and copies of them that were damaged or missing.
    pub small_files: Total,
    /// Places in the log that are damaged.
    pub log_places: Total,
    /// Tables that are damaged.
    pub tables: Total,
}

impl ScrubCounters {
    /// Of rounds that take so long each.
    pub(crate) fn of(every: Duration) -> Self {
        Self {
            every,
            ..Self::default()
        }
    }

    pub(crate) fn stats(&self) -> ScrubStats {
        let total = |counter: &AtomicU64| Total(counter.load(Relaxed));
        ScrubStats {
            bytes: total(&self.bytes),
            rounds: total(&self.rounds),
            since_round: self.ended.lock().map(|ended| ended.elapsed()),
            small_files: total(&self.small_files),
            log_places: total(&self.log_places),
            tables: total(&self.tables),
        }
    }
}
