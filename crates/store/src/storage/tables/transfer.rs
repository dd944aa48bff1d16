//! A table on its way to another node: read as a stream of bytes, and put in the place of another one.
//!
//! The stream is that of the records in the order of their keys, each as the lengths of key and value, in
//! four bytes each, and both. What is received is a table of its own beside, under another name, until it
//! is complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lsm_tree::{AbstractTree as _, Guard as _, IterGuardImpl, SeqNo, UserKey, UserValue};
use store_state::{Change, DESCRIPTOR_KEY, LEVEL_KEY, Level};

use super::own_rows::OwnedRange;
use super::{MARK, REMOVED, RUNS_LIMIT, ShardTable, Tables, TablesError, Tree, names};
use crate::storage::digest::{Agreed, RowHasher};
use crate::storage::folder::{make_directory, sync_directory};

/// What the name of a folder begins with while a table is received into it.
pub(super) const RECEIVING: &str = "receiving-";
/// What it begins with when all is there, and the table of its shard is to be replaced by it.
pub(super) const RECEIVED: &str = "received-";

/// Bytes of records that are written as one sorted file.
const PART_BYTES: usize = 32 * 1024 * 1024;

/// Bytes of a record's lengths.
const HEAD: usize = 8;

/// Reads a table, as it was when this was made.
pub(crate) struct TableReader {
    records: Box<dyn DoubleEndedIterator<Item = IterGuardImpl> + Send>,
    /// Which of them belong to the shard: others are left out.
    own: OwnedRange,
    mark: Vec<u8>,
    buffer: Vec<u8>,
    is_read: bool,
}

impl ShardTable {
    /// Reads the rows that belong to the shard as the table is now; `None`: it has no mark, so nothing was written to it.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub(crate) fn reader(&self) -> Result<Option<TableReader>, TablesError> {
        let failed = |reason| TablesError::tree(&self.0.folder, &reason);
        let tree = self.0.tree.read();
        let mut descriptor = tree.descriptor().map_err(failed)?;
        let (own, mut records) = loop {
            let records = tree.tree.range::<&[u8], _>(.., SeqNo::MAX, None);
            let now = tree.descriptor().map_err(failed)?;
            // It changes at splits only, and never back: so it is that of these records.
            if now == descriptor {
                break (tree.own.of(descriptor.as_deref()), records);
            }
            descriptor = now;
        };
        drop(tree);
        let Some(first) = records.next() else {
            return Ok(None);
        };
        // The mark has the lowest key, and is of the same moment as what follows.
        let (key, mark) = first.into_inner().map_err(failed)?;
        Ok((*key == *MARK).then(|| TableReader {
            records,
            own,
            mark: mark.to_vec(),
            buffer: Vec::new(),
            is_read: false,
        }))
    }

    /// An empty table beside this one.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn receive(&self) -> Result<TableWriter, TablesError> {
        let folder = self.beside(RECEIVING);
        let io = |reason| TablesError::io(&folder, &reason);
        remove(&folder).map_err(io)?;
        make_directory(&folder).map_err(io)?;
        Ok(TableWriter {
            table: self.clone(),
            tree: Tree::open(&folder, &self.0.resources)?,
            folder,
            rows: Vec::new(),
            bytes: 0,
            last: None,
            has_descriptor: false,
            level: None,
            buffer: Vec::new(),
        })
    }

    fn beside(&self, prefix: &str) -> PathBuf {
        let name = self.0.folder.file_name().unwrap_or_default();
        let name = format!("{prefix}{}", name.to_string_lossy());
        self.0.folder.with_file_name(name)
    }
}

impl TableReader {
    pub(crate) fn mark(&self) -> &[u8] {
        &self.mark
    }

    /// The next bytes of the stream, at most so many; `None` at its end.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub(crate) fn next(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        while self.buffer.len() < most && !self.is_read {
            match self.next_row()? {
                Some((key, value)) => {
                    let key = key.get(1..).unwrap_or_default();
                    for part in [key, &value] {
                        let length = u32::try_from(part.len()).map_err(io::Error::other)?;
                        self.buffer.extend_from_slice(&length.to_le_bytes());
                    }
                    self.buffer.extend_from_slice(key);
                    self.buffer.extend_from_slice(&value);
                }
                None => self.is_read = true,
            }
        }
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let rest = self.buffer.split_off(most.min(self.buffer.len()));
        Ok(Some(std::mem::replace(&mut self.buffer, rest)))
    }

    /// Adds rows to a digest until they have so many bytes together, or one more. False: there are no more. `agreed`: what replicas have
    /// alike in a value, by key and value.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub(crate) fn digest_part(
        &mut self,
        digest: &mut RowHasher,
        agreed: Agreed,
        most: usize,
    ) -> io::Result<bool> {
        let mut taken = 0;
        let mut next = self.next_row()?;
        while let Some((key, value)) = &next {
            taken += HEAD + key.len() + value.len();
            let key = key.get(1..).unwrap_or_default();
            digest.add(key, &agreed(key, value));
            if taken >= most {
                break;
            }
            next = self.next_row()?;
        }
        Ok(next.is_some())
    }

    /// The next row that belongs to the shard, by the key that the tree has.
    fn next_row(&mut self) -> io::Result<Option<(UserKey, UserValue)>> {
        for record in self.records.by_ref() {
            let (key, value) = record.into_inner().map_err(io::Error::other)?;
            if !self.own.is_foreign(&key) {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }
}

/// Takes up a stream that a [`TableReader`] gives.
pub(crate) struct TableWriter {
    table: ShardTable,
    folder: PathBuf,
    tree: Tree,
    /// Records that are not written yet, and their bytes.
    rows: Vec<Change>,
    bytes: usize,
    /// The last key of all.
    last: Option<Vec<u8>>,
    /// The descriptor of the shard is among them.
    has_descriptor: bool,
    /// The row that says the level of the shard, if it is among them.
    level: Option<Vec<u8>>,
    /// The beginning of a record.
    buffer: Vec<u8>,
}

impl TableWriter {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// The stream is broken, or the disk cannot be written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((key, value)) = record(self.buffer.get(at..).unwrap_or_default())? {
            at += HEAD + key.len() + value.len();
            self.bytes += key.len() + value.len();
            if self.last.as_deref().is_some_and(|last| key <= last) {
                return Err(broken("its keys do not ascend"));
            }
            self.last = Some(key.to_vec());
            self.has_descriptor |= key == DESCRIPTOR_KEY;
            if key == LEVEL_KEY {
                self.level = Some(value.to_vec());
            }
            self.rows.push((key.to_vec(), Some(value.to_vec())));
        }
        self.buffer.drain(..at);
        if self.bytes >= PART_BYTES {
            self.write_part(&[])?;
        }
        Ok(())
    }

    /// Whether what has come is of a shard that was split, or that a split has made.
    pub(crate) fn has_descriptor(&self) -> bool {
        self.has_descriptor
    }

    /// The level that the shard has, if what has come says one.
    ///
    /// # Errors
    /// This program does not know it.
    pub(crate) fn level(&self) -> io::Result<Option<Level>> {
        let level = self.level.as_deref().map(Level::of_row);
        level.transpose().map_err(io::Error::other)
    }

    fn write_part(&mut self, mark: &[u8]) -> io::Result<()> {
        if self.tree.tree.l0_run_count() >= RUNS_LIMIT {
            self.tree.merge().map_err(io::Error::other)?;
        }
        let rows: Vec<&Change> = self.rows.iter().collect();
        self.tree.ingest(&rows, mark).map_err(io::Error::other)?;
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Puts what was received, with its mark, in the place of the table. When it returns, that is on disk.
    ///
    /// # Errors
    /// The stream was not complete, or the disk cannot be written; the table stays as it was.
    pub(crate) fn finish(mut self, mark: &[u8]) -> io::Result<()> {
        if !self.buffer.is_empty() {
            return Err(broken("it ends within a record"));
        }
        self.write_part(mark)?;
        let Self {
            table,
            folder,
            tree,
            ..
        } = self;
        drop(tree);
        let received = table.beside(RECEIVED);
        fs::rename(&folder, &received)?;
        let store = table.0.folder.parent().unwrap_or(Path::new("/"));
        sync_directory(store)?;
        // From here on it is done, now or at the next start.
        let mut tree = table.0.tree.write();
        replace(store, &received, &table.0.folder)?;
        *tree = Tree::open(&table.0.folder, &table.0.resources).map_err(io::Error::other)?;
        Ok(())
    }
}

/// The first record of a stream, if all of it has come.
fn record(bytes: &[u8]) -> io::Result<Option<(&[u8], &[u8])>> {
    let Some((head, rest)) = bytes.split_at_checked(HEAD) else {
        return Ok(None);
    };
    let length = |at: usize| -> usize {
        let bytes = head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, |bytes| u32::from_le_bytes(bytes) as usize)
    };
    let (key, value) = (length(0), length(4));
    if key >= super::KEY_BYTES {
        return Err(broken("a key is too long"));
    }
    let Some((record, _)) = rest.split_at_checked(key + value) else {
        return Ok(None);
    };
    Ok(Some(record.split_at(key)))
}

fn broken(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a broken snapshot: {what}"),
    )
}

/// Puts a received table in the place of another one, if there is one.
fn replace(store: &Path, received: &Path, place: &Path) -> io::Result<()> {
    let removed = store.join(format!("{REMOVED}{}", file_name(place)));
    remove(&removed)?;
    if place.exists() {
        fs::rename(place, &removed)?;
    }
    fs::rename(received, place)?;
    sync_directory(store)?;
    remove(&removed)
}

/// Goes on with what a crash has interrupted: tables that were received are put in their places, what was
/// received by half is removed.
pub(super) fn go_on(tables: &Tables) -> Result<(), TablesError> {
    let store = &tables.folder;
    let io = |reason| TablesError::io(store, &reason);
    for name in names(store)? {
        let folder = store.join(&name);
        if let Some(place) = name.strip_prefix(RECEIVED) {
            replace(store, &folder, &store.join(place)).map_err(io)?;
        } else if name.starts_with(RECEIVING) {
            remove(&folder).map_err(io)?;
        }
    }
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
