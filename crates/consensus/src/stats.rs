//! What the log counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use histogram::{Histogram, Micros, Snapshot};

/// What a log has done since it was opened, and what it has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogStats {
    /// Synced writes, each with what all groups had to write by then.
    pub batches: u64,
    /// Entries in these.
    pub entries: u64,
    /// Bytes written to log files, whatever for.
    pub written_bytes: u64,
    /// Calls of `fdatasync`.
    pub syncs: u64,
    /// Time spent in them.
    pub sync_time: Duration,
    /// Entries that wait for the log's thread or are being written.
    pub waiting_entries: u64,
    /// Their bytes, about.
    pub waiting_bytes: u64,
    /// Requests that are not yet answered: the appends with these entries, votes and what else is changed.
    pub waiting_requests: u64,
    /// Writes tried again because the system lacked files or memory (EMFILE, ENFILE, ENOMEM).
    pub waits_for_files: Waits,
    /// What was damaged or missing in the files when the log was opened, by place.
    pub damage: Places,
    /// What all log files take on the disk. Counting it costs a look at each of them.
    pub disk_bytes: u64,
}

/// How often something has waited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Waits(pub u64);

/// How many places in files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Places(pub u64);

/// The counters behind [`LogStats`], but for what others know.
#[derive(Default)]
pub(crate) struct Counters {
    batches: AtomicU64,
    entries: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
    sync_nanoseconds: AtomicU64,
    /// Files of the log are synced by several threads.
    sync_times: Histogram,
    waits_for_files: AtomicU64,
    waiting_entries: AtomicU64,
    waiting_bytes: AtomicU64,
    waiting_requests: AtomicU64,
}

impl Counters {
    pub(crate) fn wrote(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn synced(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.syncs.fetch_add(1, Relaxed);
        self.sync_nanoseconds.fetch_add(nanoseconds, Relaxed);
        self.sync_times.record_shared(Micros::from(took));
    }

    /// A write is tried again for want of files or memory. Whether it is worth a line in the log: the first, and each
    /// hundredth.
    pub(crate) fn waited_for_files(&self) -> bool {
        self.waits_for_files
            .fetch_add(1, Relaxed)
            .is_multiple_of(100)
    }

    pub(crate) fn queued(&self, entries: usize, bytes: usize) {
        self.waiting_entries.fetch_add(entries as u64, Relaxed);
        self.waiting_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn asked(&self) {
        self.waiting_requests.fetch_add(1, Relaxed);
    }

    pub(crate) fn answered(&self) {
        self.waiting_requests.fetch_sub(1, Relaxed);
    }

    /// Entries that were queued wait no more.
    pub(crate) fn left(&self, entries: usize, bytes: usize) {
        self.waiting_entries.fetch_sub(entries as u64, Relaxed);
        self.waiting_bytes.fetch_sub(bytes as u64, Relaxed);
    }

    pub(crate) fn committed(&self, entries: usize) {
        self.batches.fetch_add(1, Relaxed);
        self.entries.fetch_add(entries as u64, Relaxed);
    }

    pub(crate) fn sync_times(&self) -> Snapshot {
        let mut times = Snapshot::default();
        self.sync_times.add_to(&mut times);
        times
    }

    pub(crate) fn read(&self) -> LogStats {
        LogStats {
            batches: self.batches.load(Relaxed),
            entries: self.entries.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            waits_for_files: Waits(self.waits_for_files.load(Relaxed)),
            sync_time: Duration::from_nanos(self.sync_nanoseconds.load(Relaxed)),
            waiting_entries: self.waiting_entries.load(Relaxed),
            waiting_bytes: self.waiting_bytes.load(Relaxed),
            waiting_requests: self.waiting_requests.load(Relaxed),
            damage: Places(0),
            disk_bytes: 0,
        }
    }
}
