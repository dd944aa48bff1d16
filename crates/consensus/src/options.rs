//! Where a log is, and how it is kept.

use std::path::PathBuf;
use std::time::Duration;

/// Where the log is and how large its parts become.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The log's own folder; created when there is none.
    pub directory: PathBuf,
    /// At about this many bytes a merged write is closed; what comes later goes into the next.
    pub batch_bytes: usize,
    /// What groups may have waiting together; beyond, they wait to append.
    pub queue_bytes: usize,
    /// Bytes of one log file.
    pub file_bytes: u64,
    /// Beyond this many bytes of files, those are deleted that hold nothing but purged entries.
    pub disk_bytes: u64,
    /// How often, at most, files are looked through for deletion, unless another file has been filled.
    pub purge_interval: Duration,
    /// How often, at most, it is written down how far the log is synced; zero: before anything is acknowledged. What is
    /// lost of a log since then, at its very end, is not noticed.
    pub ends_interval: Duration,
}

impl LogOptions {
    /// The defaults: 1 MiB, 64 MiB, 64 MiB, 256 MiB, 10 s, 1 s.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            batch_bytes: 1 << 20,
            queue_bytes: 64 << 20,
            file_bytes: 64 << 20,
            disk_bytes: 256 << 20,
            purge_interval: Duration::from_secs(10),
            ends_interval: Duration::from_secs(1),
        }
    }
}
