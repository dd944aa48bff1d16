//! The engine that keeps the files of a log, as it is set here.

use std::io;
use std::path::Path;
use std::sync::Arc;

use raft_engine::{Config, Engine, ReadableSize, RecoveryMode, Version};

use crate::disk::{Disk, Health};
use crate::files::Files;
use crate::log_error::LogError;
use crate::options::LogOptions;

/// Opens the engine in its folder.
pub(crate) fn open_engine(
    options: &LogOptions,
    folder: &Path,
    files: Arc<dyn Files>,
    health: &Arc<Health>,
) -> raft_engine::Result<Engine<Disk>> {
    let directory = folder
        .to_str()
        .ok_or_else(|| io::Error::other("the name is not UTF-8"))?;
    let config = Config {
        dir: directory.to_owned(),
        // What is torn is cut off before (`check.rs`).
        recovery_mode: RecoveryMode::AbsoluteConsistency,
        // Payloads are small or already compressed; the time is better spent elsewhere.
        batch_compression_threshold: ReadableSize(0),
        format_version: Version::V2,
        target_file_size: ReadableSize(options.file_bytes),
        purge_threshold: ReadableSize(options.disk_bytes.max(options.file_bytes)),
        // A queue that drains gives its space back.
        enable_log_recycle: false,
        ..Config::default()
    };
    Engine::open_with_file_system(config, Arc::new(Disk::new(files, health.clone())))
}

/// Why the engine does not open.
pub(crate) fn refused(error: raft_engine::Error, folder: &Path) -> LogError {
    LogError::Io {
        path: folder.to_owned(),
        error: to_io(error),
    }
}

/// The error of the operating system that the engine speaks of, or another one with its words.
pub(crate) fn to_io(error: raft_engine::Error) -> io::Error {
    match error {
        raft_engine::Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
