//! Files that are there as a whole or not at all, whatever instant the power fails.
//!
//! Invariant: when a function here returns, what it wrote is on disk, name included.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Puts `bytes` at `path`, replacing what was there. Needs `path` with a `.new` added for itself.
///
/// # Errors
/// What the system says; `path` then holds its old content or the new one, never a part.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let mut file = File::create(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    sync_directory(path.parent().unwrap_or(Path::new("/")))
}

/// What the name of a file ends with until it is written.
pub(super) const UNFINISHED: &str = ".new";

/// Makes a directory and those above it that are missing, each one's name on disk at return.
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
    match fs::create_dir(path) {
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
