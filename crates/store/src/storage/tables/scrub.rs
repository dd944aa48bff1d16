//! The files of an open table, to be read again for damage.
//!
//! A sorted file has a checksum in the list of files: xxh3 of 128 bits, over all of it. So a file is read once, and no block has to be
//! understood.
//!
//! Invariant: a file that is merged, or whose replica is closed, while it is read is not damaged.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use lsm_tree::{AbstractTree as _, TableId};
use rustix::fs::{Advice, fadvise};
use xxhash_rust::xxh3::Xxh3Default;

use super::{Arc, Shard, ShardTable, Tables, TablesError, Weak, manifest};

/// Bytes that are read at once.
const PART_BYTES: usize = 64 * 1024;

/// A file of a table.
pub(crate) struct TableFile {
    shard: Weak<Shard>,
    /// `None`: the list of the files.
    sorted: Option<Sorted>,
}

/// A sorted file. It is no handle of the tree's: one that is dropped late would delete a file of that name.
struct Sorted {
    path: PathBuf,
    id: TableId,
    checksum: u128,
}

/// A file that is being read.
pub(crate) struct TableReading {
    of: TableFile,
    open: Option<OpenFile>,
    /// It was read once, and was damaged.
    is_suspect: bool,
}

/// Bytes from the beginning of a file.
struct Offset(u64);

struct OpenFile {
    file: File,
    offset: Offset,
    hasher: Box<Xxh3Default>,
}

impl Tables {
    /// The files of the table of a shard; none if the table is not open.
    pub(crate) fn files_of(&self, id: u64) -> Vec<TableFile> {
        let shard = self.open.lock().get(&id).and_then(Weak::upgrade);
        shard.map_or_else(Vec::new, |shard| ShardTable(shard).files())
    }

    /// Bytes of the files of all open tables.
    pub(crate) fn open_bytes(&self) -> u64 {
        let open = self.open.lock();
        let shards: Vec<_> = open.values().filter_map(Weak::upgrade).collect();
        drop(open);
        let bytes = shards
            .into_iter()
            .map(|shard| ShardTable(shard).disk_bytes());
        bytes.sum()
    }
}

impl ShardTable {
    /// The list of the files, then the files in it.
    fn files(&self) -> Vec<TableFile> {
        let file = |sorted| TableFile {
            shard: Arc::downgrade(&self.0),
            sorted,
        };
        let version = self.tree().current_version();
        let sorted = version.iter_tables().map(|table| {
            Some(Sorted {
                path: table.path.to_path_buf(),
                id: table.id(),
                checksum: table.checksum().into_u128(),
            })
        });
        std::iter::once(None).chain(sorted).map(file).collect()
    }

    fn lists(&self, id: TableId) -> bool {
        let version = self.tree().current_version();
        version.iter_tables().any(|table| table.id() == id)
    }
}

impl TableFile {
    /// Reads it from the beginning.
    pub(crate) fn reading(self) -> TableReading {
        TableReading {
            of: self,
            open: None,
            is_suspect: false,
        }
    }
}

impl TableReading {
    /// Reads the next part, and returns how many bytes it has; 0: all is read, and whole. Blocks. A damaged file is read a second time
    /// first.
    ///
    /// # Errors
    /// The file is damaged, or the disk cannot be read.
    pub(crate) fn read_next(&mut self) -> Result<u64, TablesError> {
        match self.try_next() {
            Err(_) if !self.is_suspect => {
                self.is_suspect = true;
                self.open = None;
                self.try_next()
            }
            read => read,
        }
    }

    fn try_next(&mut self) -> Result<u64, TablesError> {
        // The replica was closed: its files may be gone, or those of another one.
        let Some(shard) = self.of.shard.upgrade() else {
            return Ok(0);
        };
        let Some(sorted) = &self.of.sorted else {
            return match self.open.is_some() {
                true => Ok(0),
                false => {
                    let (file, bytes) = read_list(&shard.folder)?;
                    self.open = Some(OpenFile::new(file));
                    Ok(bytes)
                }
            };
        };
        let read = read_part(sorted, &mut self.open);
        let table = ShardTable(shard);
        match read {
            Ok(bytes) => Ok(bytes),
            // It was merged meanwhile.
            Err(_) if !table.lists(sorted.id) => Ok(0),
            Err(reason) => Err(TablesError::Damaged {
                folder: table.0.folder.clone(),
                reason: format!("{}: {reason}", sorted.path.display()),
            }),
        }
    }
}

/// The next part of a sorted file, by its bytes; 0: all is read, and whole.
fn read_part(sorted: &Sorted, open: &mut Option<OpenFile>) -> io::Result<u64> {
    let open = match open {
        Some(open) => open,
        none => none.insert(OpenFile::new(open_uncached(&sorted.path)?)),
    };
    let part = open.read()?;
    if part == 0 && open.hasher.digest128() != sorted.checksum {
        let what = "the file fails its checksum";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(part)
}

impl OpenFile {
    fn new(file: File) -> Self {
        Self {
            file,
            offset: Offset(0),
            hasher: Box::default(),
        }
    }

    fn read(&mut self) -> io::Result<u64> {
        let mut part = [0; PART_BYTES];
        loop {
            match self.file.read_at(&mut part, self.offset.0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(bytes) => {
                    self.hasher.update(&part[..bytes]);
                    self.offset.0 += bytes as u64;
                    return Ok(bytes as u64);
                }
            }
        }
    }
}

/// The list of a table, checked; and its bytes.
fn read_list(folder: &Path) -> Result<(File, u64), TablesError> {
    let io = |reason: io::Error| TablesError::io(folder, &reason);
    let file = open_uncached(&folder.join("current")).map_err(io)?;
    let list = manifest::read_list(folder)?;
    // It was replaced, so that it was written just now.
    let bytes = list.map_or(0, |list| list.bytes.len() + list.current.len());
    Ok((file, (bytes as u64).max(1)))
}

/// Opens a file whose bytes come from the disk, not from memory: what is cached was whole once.
fn open_uncached(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(file)
}
