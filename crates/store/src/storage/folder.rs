//! The data folder of a node: whose it is, that only one process uses it, and how often it was opened.
//!
//! ```text
//! FORMAT        what this is, the node's identifier, and    written last of a first start, and when the node joins a
//!               the seed of the hash of names              cluster: then it has that of the cluster
//! FORMAT.copy   the same                                     written before FORMAT is replaced (`durable_file`)
//! LOCK          locked by the process that has it open
//! incarnation   how often it was opened                      synced at each open
//! alive         Unix time in ms, of the last second lived    unsynced, each second
//! reserve       space for a start on a full disk             see `folder/reserve.rs`
//! inbox/ …      one folder for each store, with a FORMAT     or elsewhere, if settings say so
//! inbox.made    this node has made an inbox store            so that a missing one is noticed
//! level         the level of shards that say none           written at the first start of a program with levels
//! founded       the shards were begun, here or elsewhere     so that none is begun twice
//! left          the node has left its cluster                see `folder/left.rs`
//! ```
//!
//! Invariants: a folder that is not ours is never written into, except for the lock's file; an incarnation
//! is never given twice; a store that was made and is not there is an error, not an empty store; a folder has anything of a
//! split only if its format says so.
//!
//! Deliberately absent: what the stores hold (`tables.rs`).

mod durable;
mod format;
mod left;
mod reserve;
mod slots;
#[cfg(test)]
mod tests;
mod view;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::{error, fmt};

use durable_file::Repair;
use parking_lot::Mutex;
use store_state::api::StoreId;
use store_state::{Level, NameHash};

use crate::storage::map;
use durable::open_or_make;
pub(crate) use durable::{create, make_directory, sync_directory};
use format::{
    FORMAT_FILE, Label, SEEDED, SPLIT, UNSEEDED, read as read_format, write as write_format,
};
pub use left::{Left, empty_if_left, note_left};
pub(crate) use reserve::Reserve;
use slots::Slots;
pub(crate) use view::FolderView;

/// What the `FORMAT` file of a node's folder says it is.
const DATA_FOLDER: &str = "data folder";
const LOCK: &str = "LOCK";
const INCARNATION: &str = "incarnation";
const ALIVE: &str = "alive";
const FOUNDED: &str = "founded";
const LEVEL: &str = "level";
/// What the name of the file ends in that says that a store was made.
const MADE: &str = ".made";

/// The seed of simulated nodes, so that they need not join each other.
#[cfg(feature = "simulation")]
const SIMULATED_SEED: u64 = 0x5EED;

/// A number that shows in no output.
#[derive(Clone, Copy)]
struct Seed(u64);

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed")
    }
}

/// A node's data folder, open and locked until this is dropped.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    node: u64,
    seed: Seed,
    /// What its `FORMAT` says.
    format: Mutex<u32>,
    /// The level of shards that say none.
    level: Mutex<Option<Level>>,
    incarnation: u64,
    last_alive_ms: Option<u64>,
    alive: Mutex<Slots>,
    reserve: Reserve,
    /// Holds the lock.
    _lock: File,
}

impl Folder {
    /// Opens the folder, and makes it if it is missing or empty. A first start that was interrupted is begun
    /// anew. If the disk is full, the reserve is released.
    ///
    /// # Errors
    /// Another process has it open; it holds other things; its format is newer or its files are damaged;
    /// or it cannot be read or written.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        Self::open_or_begin(path, || Ok((random_number()?, random_number()?)))
    }

    /// The same with this node's identifier, and the seed that all simulated nodes have, if the folder is new.
    ///
    /// # Errors
    /// As of [`Folder::open`].
    #[cfg(feature = "simulation")]
    pub fn open_as(path: &Path, node: u64) -> Result<Self, FolderError> {
        Self::open_or_begin(path, || Ok((node, SIMULATED_SEED)))
    }

    fn open_or_begin(
        path: &Path,
        new_node: impl FnOnce() -> io::Result<(u64, u64)>,
    ) -> Result<Self, FolderError> {
        let io = |reason| FolderError::io(path, reason);
        let root = std::path::absolute(path).map_err(io)?;
        make_directory(&root).map_err(io)?;
        refuse_foreign(&root)?;
        let lock = lock(&root)?;
        format::repair(&root);
        let label = match read_format(&root, DATA_FOLDER)? {
            Some(label) => label,
            None => begin(&root, new_node)?,
        };
        let reserve = Reserve::of(&root).map_err(io)?;
        if free_bytes(&root)? < reserve.bytes() {
            reserve.release();
        }
        if label.format < SEEDED {
            // What this program writes into the folder, an older one may not understand.
            let label = Label {
                format: SEEDED,
                ..label
            };
            write_format(&root, DATA_FOLDER, label)?;
        }
        let incarnation = raise_incarnation(&root)?;
        let alive_path = root.join(ALIVE);
        let (alive, last_alive_ms) = open_or_make(&alive_path)
            .and_then(Slots::open)
            .map_err(|reason| FolderError::io(&alive_path, reason))?;
        let level = read_level(&root)?;
        Ok(Self {
            root,
            node: label.node,
            seed: Seed(label.seed),
            level: Mutex::new(level),
            format: Mutex::new(label.format),
            incarnation,
            last_alive_ms,
            alive: Mutex::new(alive),
            reserve,
            _lock: lock,
        })
    }

    /// The node's identifier: random, made at the first start, the same ever after.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.node
    }

    /// The hash of names of this node's cluster.
    pub(crate) fn name_hash(&self) -> NameHash {
        NameHash::with_seed(self.seed.0)
    }

    /// The seed of the hash of names: to be told to nodes that join the cluster, and to nobody else. 0: that of
    /// clusters that began when there was none.
    #[must_use]
    pub fn name_seed(&self) -> u64 {
        self.seed.0
    }

    /// Takes over the seed of the cluster that this node has joined.
    ///
    /// # Errors
    /// The node has stores already that were made with another one, or it cannot be written.
    pub fn adopt_name_seed(&mut self, seed: u64) -> Result<(), FolderError> {
        if seed == self.seed.0 {
            return Ok(());
        }
        if self.has_stores()? {
            return Err(FolderError::OtherCluster {
                folder: self.root.clone(),
            });
        }
        let label = Label {
            // A shard that was split has a store.
            format: SEEDED,
            node: self.node,
            seed,
        };
        write_format(&self.root, DATA_FOLDER, label)?;
        self.seed = Seed(seed);
        Ok(())
    }

    /// Whether [`note_split`](Self::note_split) has noted that a shard was split.
    pub(crate) fn is_split(&self) -> bool {
        *self.format.lock() >= SPLIT
    }

    /// Whether programs refuse the folder that do not know a level.
    pub(crate) fn has_noted(&self, level: Level) -> bool {
        *self.format.lock() >= level.0
    }

    /// A shard is about to be raised to a level in the folder, or one of that level to be stored: from now on programs that do
    /// not know the level refuse the folder. Synced at the first time.
    ///
    /// # Errors
    /// As of [`note_split`](Self::note_split).
    pub(crate) fn note_level(&self, level: Level) -> Result<(), FolderError> {
        self.note_format(level.0)
    }

    /// The level of shards of which neither tables nor log say one, once it is known.
    #[must_use]
    pub fn noted_level(&self) -> Option<Level> {
        *self.level.lock()
    }

    /// The level of shards of which neither tables nor log say one.
    ///
    /// # Panics
    /// It is not known yet.
    pub(crate) fn level(&self) -> Level {
        let level = *self.level.lock();
        level.expect("the level of a folder is known before its shards are opened")
    }

    /// Says which level it is, before shards are opened.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn set_level(&self, level: Level) -> Result<(), FolderError> {
        if level.is_said() {
            self.note_level(level)?;
        }
        let path = self.root.join(LEVEL);
        durable::write_whole(&path, format!("{level}\n").as_bytes())
            .map_err(|reason| FolderError::io(&path, reason))?;
        *self.level.lock() = Some(level);
        Ok(())
    }

    /// Whether stores were made in it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_new(&self) -> Result<bool, FolderError> {
        Ok(!self.has_stores()?)
    }

    /// A shard is about to be split in the folder, or half of one to be stored: from now on programs that know of no splits
    /// refuse the folder, also if nothing comes of it. Synced at the first time, and costs nothing afterwards.
    ///
    /// # Errors
    /// It cannot be written; the format is the old one, or the new one from the next start on.
    pub(crate) fn note_split(&self) -> Result<(), FolderError> {
        self.note_format(SPLIT)
    }

    fn note_format(&self, at_least: u32) -> Result<(), FolderError> {
        let mut format = self.format.lock();
        if *format < at_least {
            let label = Label {
                format: at_least,
                node: self.node,
                seed: self.seed.0,
            };
            write_format(&self.root, DATA_FOLDER, label)?;
            *format = at_least;
        }
        Ok(())
    }

    fn has_stores(&self) -> Result<bool, FolderError> {
        let io = |reason| FolderError::io(&self.root, reason);
        for entry in fs::read_dir(&self.root).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            if name.to_string_lossy().ends_with(MADE) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How often the folder was opened, this time included. From 1.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// What [`mark_alive`](Self::mark_alive) was last told by the process before this one, in ms of Unix
    /// time. `None` at the first start, or if both of the newest values were lost with the machine's power.
    #[must_use]
    pub fn last_alive_ms(&self) -> Option<u64> {
        self.last_alive_ms
    }

    /// Notes that the node lives at `now_ms` of Unix time. To be called each second; nothing is synced.
    ///
    /// # Errors
    /// The note cannot be written; the one before stays.
    pub fn mark_alive(&self, now_ms: u64) -> Result<(), FolderError> {
        self.alive
            .lock()
            .write(now_ms)
            .map_err(|reason| FolderError::io(&self.root.join(ALIVE), reason))
    }

    /// Counts on to `incarnation`, as if the folder had been opened again.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn raise_incarnation_to(&self, incarnation: u64) -> Result<(), FolderError> {
        let path = self.root.join(INCARNATION);
        let io = |reason| FolderError::io(&path, reason);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let (mut slots, last) = file.and_then(Slots::open).map_err(io)?;
        if last.is_none_or(|last| last < incarnation) {
            slots.write_synced(incarnation).map_err(io)?;
        }
        Ok(())
    }

    /// Whether the shards of this node were made, here or elsewhere.
    #[must_use]
    pub fn has_founded(&self) -> bool {
        self.root.join(FOUNDED).exists()
    }

    /// From now on shards that are not here are elsewhere.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn note_founded(&self) -> Result<(), FolderError> {
        let path = self.root.join(FOUNDED);
        durable::write_whole(&path, b"").map_err(|reason| FolderError::io(&path, reason))
    }

    /// Reads the small files of the folder and of its stores again, and writes those that are damaged or missing from their copies, and the
    /// other way round. Returns what was found, file by file. Blocks.
    pub(crate) fn repair(&self) -> Vec<Repair> {
        // Held, so that nobody replaces the file meanwhile.
        let _format = self.format.lock();
        let mut found = vec![format::repair(&self.root)];
        for folder in store_folders(&self.root) {
            found.push(format::repair(&folder));
            found.push(map::repair(&folder));
        }
        found
    }

    /// The space that is kept for times when there is none.
    pub(crate) fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// The folder of the log, which looks after it itself.
    pub(crate) fn log(&self) -> PathBuf {
        self.root.join(left::LOG)
    }

    /// The folder of a store that was elsewhere when it was last found; `None`: it was in here, or is not known.
    pub(crate) fn last_place(&self, name: &str) -> Option<PathBuf> {
        last_place(&self.root, name)
    }

    /// The folder of a store: the one in here with its name, or `elsewhere`. Makes it at the first time.
    ///
    /// # Errors
    /// It belongs to another node or store, or holds other things; this node has made the store before and
    /// it is not there; or it cannot be read or written.
    pub fn store(&self, name: &str, elsewhere: Option<&Path>) -> Result<PathBuf, FolderError> {
        let place = place_of(&self.root, name, elsewhere);
        if !made(&self.root, name).exists() {
            left::remove_stray_copies(&place)?;
        }
        format::repair(&place);
        let (path, is_there) = find_store(&self.root, self.node, name, elsewhere)?;
        let made = made(&self.root, name);
        if !is_there {
            make_directory(&path).map_err(|reason| FolderError::io(&path, reason))?;
            refuse_foreign(&path)?;
            let label = Label {
                format: UNSEEDED,
                node: self.node,
                seed: 0,
            };
            write_format(&path, &what(name), label)?;
        }
        // Whoever looks later may do so from another working directory.
        let place = elsewhere.map(std::path::absolute).transpose();
        let place = place.map_err(|reason| FolderError::io(&path, reason))?;
        let place = place.unwrap_or_default();
        let place = place.as_os_str().as_bytes();
        if fs::read(&made).is_ok_and(|known| known == place) {
            return Ok(path);
        }
        durable::write_whole(&made, place).map_err(|reason| FolderError::io(&made, reason))?;
        Ok(path)
    }
}

/// Where a node has last found its stores.
fn store_folders(root: &Path) -> Vec<PathBuf> {
    let names = StoreId::ALL.into_iter().map(StoreId::name);
    let names = names.filter(|name| made(root, name).exists());
    names
        .map(|name| last_place(root, name).unwrap_or_else(|| root.join(name)))
        .collect()
}

/// Where the folder of a store is.
fn place_of(root: &Path, name: &str, elsewhere: Option<&Path>) -> PathBuf {
    elsewhere.map_or_else(|| root.join(name), Path::to_owned)
}

/// The folder of a store, and whether it is there.
///
/// # Errors
/// It belongs to another node or store; it was made and is not there; or it cannot be read.
fn find_store(
    root: &Path,
    node: u64,
    name: &str,
    elsewhere: Option<&Path>,
) -> Result<(PathBuf, bool), FolderError> {
    let folder = place_of(root, name, elsewhere);
    match read_format(&folder, &what(name))? {
        Some(found) if found.node == node => Ok((folder, true)),
        Some(found) => Err(FolderError::OtherNode {
            folder,
            found: found.node,
            node,
        }),
        None if made(root, name).exists() => Err(FolderError::StoreMissing {
            folder,
            name: name.to_owned(),
        }),
        None => Ok((folder, false)),
    }
}

/// What the `FORMAT` file of a store's folder says it is.
fn what(name: &str) -> String {
    format!("{name} store")
}

/// The folder of a store that a node has last found elsewhere; `None`: it was in the data folder, or an earlier version has made
/// it.
fn last_place(root: &Path, name: &str) -> Option<PathBuf> {
    let place = fs::read(made(root, name)).ok()?;
    (!place.is_empty()).then(|| OsString::from_vec(place).into())
}

/// The file that says that this node has made a store, and where, if that is not in the data folder.
fn made(root: &Path, name: &str) -> PathBuf {
    root.join(format!("{name}{MADE}"))
}

/// Bytes that this process may still write to the disk of a folder.
///
/// # Errors
/// The folder cannot be asked.
pub fn free_bytes(folder: &Path) -> Result<u64, FolderError> {
    let disk =
        rustix::fs::statvfs(folder).map_err(|reason| FolderError::io(folder, reason.into()))?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// What the file says; `None`: there is none, as programs without levels leave the folder.
fn read_level(root: &Path) -> Result<Option<Level>, FolderError> {
    let path = root.join(LEVEL);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|reason| FolderError::io(&path, reason))?,
    };
    let level = text.trim().parse().ok().map(Level);
    let level = level.filter(|level| (Level::OLDEST..=Level::NEWEST).contains(level));
    level.map(Some).ok_or(FolderError::Damaged { path })
}

/// Takes the lock, which ends with the file or the process.
fn lock(root: &Path) -> Result<File, FolderError> {
    let path = root.join(LOCK);
    let file = open_or_make(&path).map_err(|reason| FolderError::io(&path, reason))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(FolderError::InUse {
            folder: root.to_owned(),
        }),
        Err(TryLockError::Error(reason)) => Err(FolderError::io(&path, reason)),
    }
}

/// The first start. `FORMAT` comes last: until it is there, all else counts for nothing.
fn begin(
    root: &Path,
    new_node: impl FnOnce() -> io::Result<(u64, u64)>,
) -> Result<Label, FolderError> {
    let path = root.join(INCARNATION);
    let start = || -> io::Result<(u64, u64)> {
        let file = open_or_make(&path)?;
        file.set_len(0)?;
        let (mut incarnation, _) = Slots::open(file)?;
        incarnation.write_synced(0)?;
        new_node()
    };
    let (node, seed) = start().map_err(|reason| FolderError::io(&path, reason))?;
    let label = Label {
        format: SEEDED,
        node,
        seed,
    };
    write_format(root, DATA_FOLDER, label)?;
    Ok(label)
}

fn random_number() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Counts this opening, on disk before it is used. If a slot of the file is broken, it may have held the number of the opening before
/// this one: that number is left out, so that none is given twice.
fn raise_incarnation(root: &Path) -> Result<u64, FolderError> {
    let path = root.join(INCARNATION);
    let io = |reason| FolderError::io(&path, reason);
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let (mut slots, last) = file.and_then(Slots::open).map_err(io)?;
    let Some(last) = last else {
        return Err(FolderError::Damaged { path });
    };
    let next = match slots.has_broken() {
        true => {
            tracing::warn!(
                file = %path.display(),
                last,
                "the newest number of the file may be lost: the number after the last whole one is left out"
            );
            last + 2
        }
        false => last + 1,
    };
    slots.write_synced(next).map_err(io)?;
    Ok(next)
}

/// Refuses a folder without `FORMAT` in which anything stands that a first start does not leave behind.
fn refuse_foreign(folder: &Path) -> Result<(), FolderError> {
    let io = |reason| FolderError::io(folder, reason);
    // The folder of a node that has left was the broker's, and has only files of people beside what the emptying leaves.
    if format::is_there(folder) || left::has_left(folder) {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if !name.to_str().is_some_and(is_left_by_first_start) {
            return Err(FolderError::Foreign {
                folder: folder.to_owned(),
                found: name.to_string_lossy().into_owned(),
            });
        }
    }
    Ok(())
}

fn is_left_by_first_start(name: &str) -> bool {
    // `.write-test-…` is how `heraldmq serve` tries whether it can write; `lost+found` is a new disk's.
    matches!(name, LOCK | INCARNATION | "lost+found")
        || name.strip_suffix(durable::UNFINISHED) == Some(FORMAT_FILE)
        || name.starts_with(".write-test-")
}

/// Why a data folder cannot be used.
#[derive(Debug)]
pub enum FolderError {
    /// Another process, or another part of this one, has it open.
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// It holds something that is not HeraldMQ's.
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// The first name that was not known.
        found: String,
    },
    /// No node has made it.
    NoFormat {
        /// The folder.
        folder: PathBuf,
    },
    /// It was written by a newer HeraldMQ.
    Newer {
        /// The folder.
        folder: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format this program knows.
        known: u32,
    },
    /// It is a folder of HeraldMQ, but not the one that is wanted.
    OtherKind {
        /// The folder.
        folder: PathBuf,
        /// What it is.
        found: String,
        /// What was wanted.
        wanted: String,
    },
    /// It is a store of another node.
    OtherNode {
        /// The folder.
        folder: PathBuf,
        /// The identifier in it.
        found: u64,
        /// This node's identifier.
        node: u64,
    },
    /// It has stores that began in another cluster than the one it has joined, or in none.
    OtherCluster {
        /// The folder.
        folder: PathBuf,
    },
    /// This node has made the store before, and it is not there.
    StoreMissing {
        /// Where it should be.
        folder: PathBuf,
        /// The store.
        name: String,
    },
    /// A file in it does not hold what was written.
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The system refuses.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
}

impl FolderError {
    pub(crate) fn io(path: &Path, reason: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            reason,
        }
    }
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { folder } => {
                write!(
                    f,
                    "data folder {} is in use by another process",
                    folder.display()
                )
            }
            Self::Foreign { folder, found } => write!(
                f,
                "folder {} is not HeraldMQ's: it holds {found}, and no FORMAT file",
                folder.display()
            ),
            Self::NoFormat { folder } => write!(
                f,
                "folder {} is no data folder of HeraldMQ: it has no FORMAT file",
                folder.display()
            ),
            Self::Newer {
                folder,
                found,
                known,
            } => write!(
                f,
                "folder {} has format {found}; this HeraldMQ knows formats up to {known}",
                folder.display()
            ),
            Self::OtherKind {
                folder,
                found,
                wanted,
            } => write!(
                f,
                "folder {} is that of the {found}, not of the {wanted}",
                folder.display()
            ),
            Self::OtherNode {
                folder,
                found,
                node,
            } => write!(
                f,
                "folder {} belongs to node {found:016x}; this is node {node:016x}",
                folder.display()
            ),
            Self::OtherCluster { folder } => write!(
                f,
                "folder {} has stores that did not begin in the cluster which this node has joined",
                folder.display()
            ),
            Self::StoreMissing { folder, name } => write!(
                f,
                "the {name} store of this node is not in {}: is a disk not mounted, or a setting changed?",
                folder.display()
            ),
            Self::Damaged { path } => write!(f, "{} is damaged", path.display()),
            Self::Io { path, reason } => write!(f, "{}: {reason}", path.display()),
        }
    }
}

impl error::Error for FolderError {}
