//! A data folder that is looked at.
//!
//! Invariants: nothing in it is changed; no node opens it as long as the view lives.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use store_state::{Level, NameHash};

use super::slots::Slots;
use super::{
    ALIVE, DATA_FOLDER, FolderError, INCARNATION, LOCK, Label, format, read_format, store_folders,
};
use crate::storage::map;

/// A node's data folder, locked against nodes until this is dropped.
pub(crate) struct FolderView {
    root: PathBuf,
    label: Label,
    _lock: File,
}

impl FolderView {
    /// Looks into a folder that a node has made and that none has open. Several may look at once.
    ///
    /// # Errors
    /// A process has it open; it is no data folder; its format is newer or damaged; or it cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Self, FolderError> {
        let root = std::path::absolute(path).map_err(|reason| FolderError::io(path, reason))?;
        root.metadata()
            .map_err(|reason| FolderError::io(&root, reason))?;
        let Some(label) = read_format(&root, DATA_FOLDER)? else {
            return Err(FolderError::NoFormat { folder: root });
        };
        let lock = lock_shared(&root)?;
        Ok(Self {
            root,
            label,
            _lock: lock,
        })
    }

    /// The folder's full path.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The node's identifier.
    pub(crate) fn node(&self) -> u64 {
        self.label.node
    }

    /// The number of its format.
    pub(crate) fn format(&self) -> u32 {
        self.label.format
    }

    /// The level of shards that say none; the newest, if no program with levels has opened the folder: its rows are read alike.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub(crate) fn level(&self) -> Result<Level, FolderError> {
        Ok(super::read_level(&self.root)?.unwrap_or(Level::NEWEST))
    }

    /// The hash of names of its cluster.
    pub(crate) fn name_hash(&self) -> NameHash {
        NameHash::with_seed(self.label.seed)
    }

    /// How often it was opened by a node.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub(crate) fn incarnation(&self) -> Result<u64, FolderError> {
        let path = self.root.join(INCARNATION);
        self.number(INCARNATION)?
            .ok_or(FolderError::Damaged { path })
    }

    /// When a node was last known to run, in ms of Unix time; `None` if that is not known.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn last_alive_ms(&self) -> Result<Option<u64>, FolderError> {
        self.number(ALIVE)
    }

    /// The folder of the log.
    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// The folder of a store: `elsewhere`, or where its node has last found it. `None`: none was made yet.
    ///
    /// # Errors
    /// It belongs to another node or store; it was made and is not there; or it cannot be read.
    pub(crate) fn store(
        &self,
        name: &str,
        elsewhere: Option<&Path>,
    ) -> Result<Option<PathBuf>, FolderError> {
        let last = super::last_place(&self.root, name);
        let elsewhere = elsewhere.or(last.as_deref());
        super::find_store(&self.root, self.label.node, name, elsewhere)
            .map(|(path, is_there)| is_there.then_some(path))
    }

    /// Small files that are damaged or missing, and read from their copies.
    pub(crate) fn read_from_copies(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for folder in std::iter::once(self.root.clone()).chain(store_folders(&self.root)) {
            files.extend(format::read_from_copy(&folder));
            files.extend(map::read_from_copy(&folder));
        }
        files
    }

    fn number(&self, name: &str) -> Result<Option<u64>, FolderError> {
        let path = self.root.join(name);
        match File::open(&path).and_then(Slots::open) {
            Ok((_, number)) => Ok(number),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(reason) => Err(FolderError::io(&path, reason)),
        }
    }
}

/// Takes a lock that nodes respect, without writing.
fn lock_shared(root: &Path) -> Result<File, FolderError> {
    let path = root.join(LOCK);
    let file = File::open(&path).map_err(|reason| FolderError::io(&path, reason))?;
    match file.try_lock_shared() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(FolderError::InUse {
            folder: root.to_owned(),
        }),
        Err(TryLockError::Error(reason)) => Err(FolderError::io(&path, reason)),
    }
}
