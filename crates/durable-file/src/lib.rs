//! Small files that are there as a whole or not at all, and copies of them.
//!
//! [`write_whole`] replaces a file by way of `NAME.new`. [`write`] does so with a file that has a copy: first `NAME.copy` is replaced
//! and synced, then `NAME`. [`read`] takes the one of the two that is whole, [`repair`] writes the other one again.
//!
//! Invariants: when a function here returns, what it wrote is on disk, its name included. Once a file was written with its copy, one of
//! the two is whole at any moment, unless both are damaged. The file counts as long as it is whole, whatever its copy says: a program
//! that knows of no copies may have changed it. A new file is written before its copy, so that a copy alone means that the file was lost.
//!
//! Deliberately absent: what the files hold. The caller says which bytes are whole, by a checksum in them.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Advice, fadvise};

#[cfg(test)]
mod tests;

/// What is stored is nobody's but the broker's: its files are for their owner only.
const PRIVATE_FILE: u32 = 0o600;

/// What the name of a file ends with until it is written.
pub const UNFINISHED: &str = ".new";

/// What the name of a copy ends with.
pub const COPY: &str = ".copy";

/// Where the copy of a file is: beside it.
#[must_use]
pub fn copy_of(path: &Path) -> PathBuf {
    with_suffix(path, COPY).into()
}

fn with_suffix(path: &Path, suffix: &str) -> OsString {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name
}

/// Puts `bytes` at `path`, replacing what was there. Needs `path` with [`UNFINISHED`] added for itself.
///
/// # Errors
/// What the system says; `path` then holds its old content or the new one, never a part.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _alone = alone();
    write_in_steps(path, bytes, &mut |_, _| Ok(()))
}

/// Puts `bytes` at `path` and into its copy, replacing what was there.
///
/// # Errors
/// What the system says; each of the two then holds its old content or the new one, never a part.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _alone = alone();
    write_both(path, bytes, &mut |_, _| Ok(()))
}

/// Writes of this process wait for each other: they are rare, and two of the same file would take each other's unfinished file.
fn alone() -> MutexGuard<'static, ()> {
    static WRITING: Mutex<()> = Mutex::new(());
    // Nothing is behind the lock that a panic could have left half done.
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A step of a write that is about to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Write,
    Rename,
    Sync,
}

/// Called before each step, with the file that it changes.
type Before<'a> = &'a mut dyn FnMut(Step, &Path) -> io::Result<()>;

fn write_both(path: &Path, bytes: &[u8], before: Before<'_>) -> io::Result<()> {
    let copy = copy_of(path);
    let order = match path.try_exists()? {
        true => [&copy, path],
        false => [path, &copy],
    };
    for file in order {
        write_in_steps(file, bytes, before)?;
    }
    Ok(())
}

fn write_in_steps(path: &Path, bytes: &[u8], before: Before<'_>) -> io::Result<()> {
    let unfinished = with_suffix(path, UNFINISHED);
    before(Step::Write, Path::new(&unfinished))?;
    let mut file = create(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    before(Step::Rename, path)?;
    fs::rename(&unfinished, path)?;
    before(Step::Sync, path)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

/// Opens a new or empty file for writing, which only its owner may read.
///
/// # Errors
/// What the system says.
pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.mode(PRIVATE_FILE).open(path)
}

/// What a file holds, or its copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// They are those of the copy: the file is damaged or missing.
    pub is_of_copy: bool,
}

/// The bytes of the file if they are whole, else those of its copy if these are. If neither is whole, the bytes of the file as they
/// are, whose damage the caller finds again. `None`: there is no file, and no whole copy. Nothing is changed.
///
/// # Errors
/// The file cannot be read, and there is no whole copy.
pub fn read(path: &Path, is_whole: impl Fn(&[u8]) -> bool) -> io::Result<Option<Content>> {
    let found = read_if_there(path);
    if let Ok(Some(bytes)) = &found
        && is_whole(bytes)
    {
        return found.map(|bytes| bytes.map(|bytes| content(bytes, false)));
    }
    match read_if_there(&copy_of(path)) {
        Ok(Some(bytes)) if is_whole(&bytes) => Ok(Some(content(bytes, true))),
        // The caller is told of the file, as if there were no copies.
        Ok(_) | Err(_) => found.map(|bytes| bytes.map(|bytes| content(bytes, false))),
    }
}

fn content(bytes: Vec<u8>, is_of_copy: bool) -> Content {
    Content { bytes, is_of_copy }
}

fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        open => open?,
    };
    // The bytes of the disk, not those of memory, which were whole once. A hint: where it has no effect, the file is read all the same.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// What [`repair`] has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    /// Both are whole and alike, or there is neither.
    Nothing,
    /// The copy was missing, or an older or unfinished one: it is written.
    CopyMade,
    /// The copy was damaged, and is written again.
    CopyRepaired,
    /// The file was damaged or missing, and is written again.
    FileRepaired,
    /// Neither is whole.
    BothDamaged,
    /// One of the two could not be written. The other one is whole.
    Failed,
}

/// Makes the file and its copy alike, by the one that is whole: the file, if both are. The log says with a warning, which names the
/// file, what was damaged. No other process uses the file.
pub fn repair(path: &Path, is_whole: impl Fn(&[u8]) -> bool) -> Repair {
    let _alone = alone();
    let copy = copy_of(path);
    let (found, found_copy) = (read_if_there(path), read_if_there(&copy));
    let whole = |found: &io::Result<Option<Vec<u8>>>| match found {
        Ok(Some(bytes)) if is_whole(bytes) => Some(bytes.clone()),
        Ok(_) | Err(_) => None,
    };
    let (damaged, bytes, outcome) = match (whole(&found), whole(&found_copy)) {
        (Some(bytes), Some(copied)) if bytes == copied => return Repair::Nothing,
        (Some(bytes), Some(_)) => (&*copy, bytes, Repair::CopyMade),
        (Some(bytes), None) if matches!(found_copy, Ok(None)) => (&*copy, bytes, Repair::CopyMade),
        (Some(bytes), None) => (&*copy, bytes, Repair::CopyRepaired),
        (None, Some(bytes)) => (path, bytes, Repair::FileRepaired),
        (None, None) if matches!((&found, &found_copy), (Ok(None), Ok(None))) => {
            return Repair::Nothing;
        }
        (None, None) => return Repair::BothDamaged,
    };
    let file = damaged.display();
    if let Err(error) = write_in_steps(damaged, &bytes, &mut |_, _| Ok(())) {
        tracing::warn!(%file, %error, "a file or its copy is missing or damaged and cannot be written again; the other one is used");
        return Repair::Failed;
    }
    if outcome != Repair::CopyMade {
        tracing::warn!(%file, "the file was damaged or missing: it is written again from the one beside it");
    }
    outcome
}
