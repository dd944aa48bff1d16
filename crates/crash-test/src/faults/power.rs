//! A loss of power after the fact: a folder is brought to what a disk would have had to keep.
//!
//! Content and names are durable apart: a file's bytes by a sync of the file, its name by a sync of its
//! folder (a new file's also by its own; [`Filesystem::Ext4`] is kinder). What is not durable is taken
//! back, or some of it is, as a disk writes in any order.
//!
//! Invariant: nothing that was synced is ever taken back. What the shim did not see is an error, not a
//! guess: every file must have the size that the journal says.

mod restore;
mod survival;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use super::journal::{self, JournalError, Operation, Record};
use super::shim::Shim;
use crate::chance::Chance;
use restore::{Places, check_sizes, final_names, restore_content, restore_names};
use survival::{count_lost, durable, keep_some};

/// What a disk loses of a write that it was about to do: multiples of this are written or not.
const SECTOR: usize = 512;

/// What makes a rename or unlink durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filesystem {
    /// A sync of the folder, and nothing else.
    Strict,
    /// A sync of the file, too; new folders by any sync.
    Ext4,
}

/// What is left of that which was not synced.
#[derive(Clone, Debug)]
pub enum Survivors {
    /// Nothing.
    Nothing,
    /// Some, chosen so: of each file the first writes or any, one of them perhaps in part; of all names
    /// the first changes.
    Some(Chance),
}

/// What is in a folder, all of it durable.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    inode: u64,
    /// By path relative to the folder.
    names: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    inode: u64,
    is_folder: bool,
    size: u64,
}

/// How much was taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// Writes and changes of size.
    pub writes: usize,
    /// Creations, renames and unlinks.
    pub names: usize,
}

/// Why a folder could not be brought to what was durable.
#[derive(Debug)]
pub enum PowerError {
    /// The file system failed.
    Io(io::Error),
    /// The journal cannot be used.
    Journal(JournalError),
    /// The process changed a file in a way that the shim did not see.
    Unseen(PathBuf),
}

impl fmt::Display for PowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Journal(error) => error.fmt(f),
            Self::Unseen(path) => write!(f, "the shim missed a change of {}", path.display()),
        }
    }
}

impl std::error::Error for PowerError {}

impl From<io::Error> for PowerError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<JournalError> for PowerError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl Folder {
    /// Notes what is in a folder now.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn look(path: &Path) -> io::Result<Self> {
        let mut names = BTreeMap::new();
        walk(path, Path::new(""), &mut names)?;
        Ok(Self {
            path: path.to_owned(),
            inode: fs::metadata(path)?.ino(),
            names,
        })
    }
}

fn walk(root: &Path, below: &Path, names: &mut BTreeMap<PathBuf, Entry>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let data = entry.metadata()?;
        let path = below.join(entry.file_name());
        let is_folder = data.is_dir();
        names.insert(
            path.clone(),
            Entry {
                inode: data.ino(),
                is_folder,
                size: data.len(),
            },
        );
        if is_folder {
            walk(root, &path, names)?;
        }
    }
    Ok(())
}

/// Takes back what a process that `shim` watched has done in `before`'s folder since, as far as it was
/// not synced. The process must have ended.
///
/// # Errors
/// Those of the file system; the process did something that the shim could not follow.
pub fn lose_power(
    before: &Folder,
    shim: &Shim,
    filesystem: Filesystem,
    survivors: Survivors,
) -> Result<Lost, PowerError> {
    let records = journal::read(&shim.side().join("journal"))?;
    let now = Places::find(before, shim)?;
    check_sizes(before, &records, &now)?;
    let durable = durable(before, &records, filesystem);
    let kept = keep_some(&records, &durable, survivors);
    let lost = count_lost(&records, &kept);
    restore_content(&records, &durable, &kept, &now)?;
    restore_names(before, &final_names(before, &records, &kept), &now, shim)?;
    Ok(lost)
}
