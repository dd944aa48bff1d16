//! The log's folder: whose it is, and in which version.
//!
//! `LOCK` is locked by the process that has the log open, `FORMAT` with its copy says the version, `entries` holds
//! raft-engine's files, `ends` says how far they go (`ends.rs`). `damaged` holds the files of logs that were damaged
//! (`mend.rs`).

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::files::PRIVATE_FILE;
use crate::log_error::LogError;

/// The log holds messages: its folders are for their owner only.
pub(crate) const PRIVATE_FOLDER: u32 = 0o700;

/// What `FORMAT` holds. Changed with every change that an older program could misread.
const FORMAT: &str = "heraldmq log, version 1\n";

/// What `FORMAT` holds in all versions, up to the number.
const FORMAT_PREFIX: &str = "heraldmq log, version ";

const LOCK_NAME: &str = "LOCK";
const FORMAT_NAME: &str = "FORMAT";
const UNFINISHED_FORMAT: &str = "FORMAT.new";

/// A folder that is ours, for as long as this lives.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Takes the folder; a new or empty one becomes a log's.
    pub(crate) fn open(path: &Path) -> Result<Self, LogError> {
        let failed = |error| LogError::Io {
            path: path.to_owned(),
            error,
        };
        make_folder(path).map_err(failed)?;
        let folder = Self {
            path: path.to_owned(),
            _lock: lock(path)?,
        };
        folder.check_format()?;
        make_folder(&folder.entries()).map_err(failed)?;
        sync_folder(path).map_err(failed)?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the engine keeps its files.
    pub(crate) fn entries(&self) -> PathBuf {
        entries(&self.path)
    }

    /// Writes `FORMAT` or its copy again if one of them is damaged or missing.
    pub(crate) fn repair(&self) -> durable_file::Repair {
        durable_file::repair(&self.path.join(FORMAT_NAME), is_of_a_version)
    }

    /// Makes the names of the engine's files durable; it does so itself for all but the first.
    pub(crate) fn sync_entries(&self) -> io::Result<()> {
        sync_folder(&self.entries())
    }

    fn check_format(&self) -> Result<(), LogError> {
        if is_ours(&self.path)? {
            self.repair();
            return Ok(());
        }
        self.write_format().map_err(|error| LogError::Io {
            path: self.path.clone(),
            error,
        })
    }

    /// Makes an empty folder ours.
    fn write_format(&self) -> io::Result<()> {
        durable_file::write(&self.path.join(FORMAT_NAME), FORMAT.as_bytes())
    }
}

/// Where the engine keeps its files, in a folder that may be missing. Changes nothing, locks nothing.
pub(crate) fn look(path: &Path) -> Result<PathBuf, LogError> {
    if path.exists() {
        is_ours(path)?;
    }
    Ok(entries(path))
}

fn entries(path: &Path) -> PathBuf {
    path.join("entries")
}

/// Whether a folder is a log's. False: it holds nothing.
fn is_ours(path: &Path) -> Result<bool, LogError> {
    let format = path.join(FORMAT_NAME);
    match durable_file::read(&format, is_of_a_version) {
        Ok(Some(found)) if found.bytes == FORMAT.as_bytes() => Ok(true),
        Ok(Some(found)) => Err(other_format(path, &found.bytes)),
        Ok(None) => refuse_foreign(path),
        Err(error) => Err(LogError::Io {
            path: format,
            error,
        }),
    }
}

/// Whether the bytes are those of some version: a log of a later one is not taken for one of this version, whatever the copy says.
fn is_of_a_version(bytes: &[u8]) -> bool {
    let text = str::from_utf8(bytes).ok();
    let number = text.and_then(|text| text.strip_prefix(FORMAT_PREFIX)?.strip_suffix('\n'));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

fn other_format(path: &Path, found: &[u8]) -> LogError {
    let found = String::from_utf8_lossy(found).trim_end().to_owned();
    let path = path.to_owned();
    if found.starts_with(FORMAT_PREFIX) {
        LogError::Version { path, found }
    } else {
        LogError::Foreign { path }
    }
}

/// False, or an error if a folder without `FORMAT` holds more than a first start leaves behind.
fn refuse_foreign(path: &Path) -> Result<bool, LogError> {
    let failed = |error| LogError::Io {
        path: path.to_owned(),
        error,
    };
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name != LOCK_NAME && name != UNFINISHED_FORMAT {
            return Err(LogError::Foreign {
                path: path.to_owned(),
            });
        }
    }
    Ok(false)
}

fn lock(folder: &Path) -> Result<File, LogError> {
    let path = folder.join(LOCK_NAME);
    let file = match create(&path) {
        Ok(file) => file,
        Err(error) => return Err(LogError::Io { path, error }),
    };
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LogError::Locked {
            path: folder.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(LogError::Io { path, error }),
    }
}

/// Makes a folder for its owner only, and those above it that are missing.
fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_FOLDER)
        .create(path)
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    options.mode(PRIVATE_FILE).open(path)
}

pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
