//! Files that are there as a whole or not at all, whatever instant the power fails.
//!
//! Invariant: when a function here returns, what it wrote is on disk, name included.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

pub(crate) use durable_file::create;
pub(super) use durable_file::{UNFINISHED, write_whole};

/// What is stored is nobody's but the broker's: its files are for their owner only.
const PRIVATE_FILE: u32 = 0o600;

/// The same for directories.
const PRIVATE_DIRECTORY: u32 = 0o700;

/// Opens a file for reading and writing. If there is none, one is made that only its owner may read.
///
/// # Errors
/// What the system says.
pub(super) fn open_or_make(path: &Path) -> io::Result<File> {
    private().read(true).truncate(false).open(path)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(PRIVATE_FILE);
    options
}

/// Makes a directory and those above it that are missing, for their owner only, each one's name on disk at
/// return.
///
/// # Errors
/// What the system says.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    make_directory(above)?;
    match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_directory(above),
    }
}

/// Brings the names in a directory to disk.
///
/// # Errors
/// What the system says.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
