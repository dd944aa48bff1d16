//! The tables of a store: for each shard a sorted map on disk, written by checkpoints.
//!
//! Each shard is a log-structured merge tree (`lsm-tree`) in a folder of its own. A checkpoint is written
//! straight into a new, immutable, sorted file and becomes valid by replacing one small file, the pointer
//! to the list of files that count. So there is no write-ahead log beside the shard's own, nothing to
//! replay at the start, no memory that grows between checkpoints, and what a full disk or a crash leaves
//! behind is files that no list names.
//!
//! ```text
//! shard-0000000000000001/
//!   tables/17 …      sorted files; every block with a checksum
//!   v42              the list of files that count
//!   current          the number of that list, and its checksum
//! damaged/1-shard-…  damaged tables that were replaced (`tables/aside.rs`)
//! ```
//!
//! Invariants: when [`ShardTable::write`] returns, all of it is on disk, mark included; when it fails, or
//! the process dies in it, what was there before is, or all of it; nothing that fails a checksum is
//! returned. A scan and a snapshot have no row of the slots that a split has given to another shard.
//!
//! Deliberately absent: threads. Writing and [`ShardTable::maintain`] take disk time and belong on a thread
//! that may wait. What keys mean (`store-state`).
//!
//! Read next: `tables/manifest.rs` for the checks before opening, `tables/seed.rs` for the table of a shard that a split has
//! made, `tables/own_rows.rs` for the rows that both tables have afterwards.

mod aside;
mod error;
mod manifest;
mod own_rows;
mod scrub;
mod seed;
#[cfg(test)]
mod tests;
mod transfer;
mod view;

use std::collections::HashMap;
use std::fs;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lsm_tree::compaction::Leveled;
use lsm_tree::config::CompressionPolicy;
use lsm_tree::{
    AbstractTree as _, AnyTree, Cache, CompressionType, Config, DescriptorTable, Guard as _, SeqNo,
    SequenceNumberCounter, UserKey, UserValue,
};
use parking_lot::{Mutex, RwLock};
use store_state::{Change, Changes, DESCRIPTOR_KEY, Split, Table, TableError};

use crate::storage::folder::{make_directory, sync_directory};
pub use error::TablesError;
use own_rows::OwnRows;
pub use own_rows::RowFilter;
pub(crate) use scrub::{TableFile, TableReading};
pub(crate) use transfer::{TableReader, TableWriter};

/// Bytes of a sorted file that compaction makes. With `RUNS_TO_MERGE` of them the first level is full, so
/// that this bounds what merging small checkpoints rewrites.
const FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Fresh checkpoints that are merged at once, as soon as there is a file's worth of bytes in them.
const RUNS_TO_MERGE: u8 = 4;
/// Fresh checkpoints that are merged however small they are: every read looks into each.
const RUNS_MOST: usize = 12;
/// Fresh checkpoints at which a write waits for merging. The list of files cannot hold 256.
const RUNS_LIMIT: usize = 48;
/// A table below this size is not worth a rewrite for the space of removed keys.
const WORTH_REWRITING_BYTES: u64 = 1024 * 1024;
/// Files of one store that are kept open, unless somebody says how many.
pub(crate) const OPEN_FILES: usize = 256;
/// How long a read waits for files or memory of the system before it is tried again.
const FILES_PAUSE: Duration = Duration::from_millis(20);
/// The longest key: the trees take 65,535 bytes, and the first is ours.
const KEY_BYTES: usize = 65_534;

/// The key of the mark. Those of a shard's records begin with `RECORD`.
const MARK: &[u8] = &[0];
const RECORD: u8 = 1;

/// What folders of shards begin with; 16 hexadecimal digits follow.
const SHARD: &str = "shard-";
/// What the name of a shard's folder begins with while it is being removed.
const REMOVED: &str = "removed-";

/// Whether a name in the folder of a store is that of a folder of tables, whole or not.
pub(crate) fn is_name(name: &str) -> bool {
    if name == aside::DAMAGED {
        return true;
    }
    let beginnings = [
        SHARD,
        REMOVED,
        seed::SEEDING,
        transfer::RECEIVING,
        transfer::RECEIVED,
    ];
    beginnings
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

/// What the tables of a store may use.
#[derive(Clone, Copy, Debug)]
pub struct TablesOptions {
    /// Bytes of memory for blocks that were read, shared by the shards of the store.
    pub cache_bytes: u64,
    /// Which rows belong to a shard.
    pub keeps: RowFilter,
    /// Files of the store that are kept open.
    pub open_files: usize,
}

impl TablesOptions {
    /// For the shards of the store that this machine is of.
    #[must_use]
    pub fn of<M: Split>() -> Self {
        Self {
            keeps: M::keeps,
            ..Self::default()
        }
    }
}

impl Default for TablesOptions {
    /// Every row belongs to each shard.
    fn default() -> Self {
        Self {
            cache_bytes: 64 * 1024 * 1024,
            keeps: |_, _| true,
            open_files: OPEN_FILES,
        }
    }
}

/// The tables of one store: a folder with one for each shard. The caller holds the data folder's lock.
pub struct Tables {
    folder: PathBuf,
    resources: TableResources,
    open: Mutex<HashMap<u64, Weak<Shard>>>,
    /// Held while the table of a child is made.
    seeding: Mutex<()>,
}

/// What the shards of a store share.
#[derive(Clone)]
struct TableResources {
    cache: Arc<Cache>,
    files: Arc<DescriptorTable>,
    keeps: RowFilter,
}

impl TableResources {
    fn new(options: TablesOptions) -> Self {
        Self {
            cache: Arc::new(Cache::with_capacity_bytes(options.cache_bytes)),
            files: Arc::new(DescriptorTable::new(options.open_files)),
            keeps: options.keeps,
        }
    }
}

impl Tables {
    /// Opens the tables in a folder, and makes it if it is missing. No shard is read yet.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub fn open(folder: &Path, options: TablesOptions) -> Result<Self, TablesError> {
        make_directory(folder).map_err(|reason| TablesError::io(folder, &reason))?;
        let tables = Self {
            folder: folder.to_owned(),
            resources: TableResources::new(options),
            open: Mutex::default(),
            seeding: Mutex::default(),
        };
        transfer::go_on(&tables)?;
        for name in names(&tables.folder)? {
            if name.starts_with(REMOVED) || name.starts_with(seed::SEEDING) {
                tables.delete(&name)?;
            }
        }
        Ok(tables)
    }

    /// Bytes of blocks that were read and are kept in memory; [`TablesOptions::cache_bytes`] at most.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.resources.cache.size()
    }

    /// The shards that have a table, in order.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn shards(&self) -> Result<Vec<u64>, TablesError> {
        shards_in(&self.folder)
    }

    /// The table of a shard, which is made if it is missing. All handles to a shard are one table.
    ///
    /// # Errors
    /// The table is damaged, or cannot be read or made. Other shards are not concerned.
    pub fn shard(&self, id: u64) -> Result<ShardTable, TablesError> {
        let mut open = self.open.lock();
        if let Some(shard) = open.get(&id).and_then(Weak::upgrade) {
            return Ok(ShardTable(shard));
        }
        let folder = self.folder.join(folder_of(id));
        // Also if it is there: the process that made it may have died before its name was on disk.
        make_directory(&folder)
            .and_then(|()| sync_directory(&self.folder))
            .map_err(|reason| TablesError::io(&folder, &reason))?;
        let shard = Arc::new(Shard {
            tree: RwLock::new(Tree::open(&folder, &self.resources)?),
            folder,
            resources: self.resources.clone(),
            unmerged_bytes: AtomicUsize::new(0),
        });
        open.retain(|_, shard| shard.strong_count() > 0);
        open.insert(id, Arc::downgrade(&shard));
        Ok(ShardTable(shard))
    }

    /// A table without rows that is no shard's, and is removed when the tables are opened the next time.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn nothing(&self) -> Result<ShardTable, TablesError> {
        let folder = self.folder.join(format!("{}nothing", seed::SEEDING));
        make_directory(&folder)
            .and_then(|()| sync_directory(&self.folder))
            .map_err(|reason| TablesError::io(&folder, &reason))?;
        Ok(ShardTable(Arc::new(Shard {
            tree: RwLock::new(Tree::open(&folder, &self.resources)?),
            folder,
            resources: self.resources.clone(),
            unmerged_bytes: AtomicUsize::new(0),
        })))
    }

    /// Removes the table of a shard, if there is one, and gives its space back.
    ///
    /// # Errors
    /// A handle to it is still held, or it cannot be removed; it may be gone by half then, and is gone
    /// wholly when the tables are opened the next time.
    pub fn remove(&self, id: u64) -> Result<(), TablesError> {
        let open = self.open.lock();
        let name = folder_of(id);
        let folder = self.folder.join(&name);
        if open.get(&id).is_some_and(|shard| shard.strong_count() > 0) {
            return Err(TablesError::StillOpen { folder });
        }
        if !folder.exists() {
            return Ok(());
        }
        let removed = format!("{REMOVED}{name}");
        fs::rename(&folder, self.folder.join(&removed))
            .and_then(|()| sync_directory(&self.folder))
            .map_err(|reason| TablesError::io(&folder, &reason))?;
        self.delete(&removed)
    }

    /// Moves the table of a shard to the damaged ones that are kept, if there is one.
    ///
    /// # Errors
    /// A handle to it is still held, or the folder of the store cannot be read or written.
    pub(crate) fn set_aside(&self, id: u64) -> Result<(), TablesError> {
        let open = self.open.lock();
        let name = folder_of(id);
        let folder = self.folder.join(&name);
        if open.get(&id).is_some_and(|shard| shard.strong_count() > 0) {
            return Err(TablesError::StillOpen { folder });
        }
        if !folder.exists() {
            return Ok(());
        }
        let moved = aside::set_aside(&self.folder, &folder, &name);
        moved.map_err(|reason| TablesError::io(&folder, &reason))
    }

    fn delete(&self, name: &str) -> Result<(), TablesError> {
        let folder = self.folder.join(name);
        fs::remove_dir_all(&folder).map_err(|reason| TablesError::io(&folder, &reason))
    }
}

/// The shards that have a table in the folder of a store, in order.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn shards_in(store: &Path) -> Result<Vec<u64>, TablesError> {
    let names = names(store)?;
    let mut shards: Vec<u64> = names.iter().filter_map(|name| shard_of(name)).collect();
    shards.sort_unstable();
    Ok(shards)
}

/// The names in a folder that can be ours.
fn names(folder: &Path) -> Result<Vec<String>, TablesError> {
    let io = |reason| TablesError::io(folder, &reason);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        names.extend(entry.map_err(io)?.file_name().into_string());
    }
    Ok(names)
}

fn folder_of(shard: u64) -> String {
    format!("{SHARD}{shard:016x}")
}

fn shard_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(SHARD)?;
    u64::from_str_radix(digits, 16).ok()
}

/// The table of one shard.
#[derive(Clone)]
pub struct ShardTable(Arc<Shard>);

struct Shard {
    folder: PathBuf,
    resources: TableResources,
    /// Writing and maintenance hold it for reading, so that both can go on at once; opening it again
    /// holds it for writing, so that no two instances work on the same files.
    tree: RwLock<Tree>,
    /// Bytes of checkpoints since the last merge.
    unmerged_bytes: AtomicUsize,
}

impl ShardTable {
    /// Writes changes and mark, all or nothing. When it returns they are on disk.
    ///
    /// One file is written and seven syncs are done, so that this is for checkpoints, not for single
    /// operations. Takes no memory beyond a list of references to the changes. May merge files first, if
    /// [`maintain`](Self::maintain) was not called for long.
    ///
    /// The row of the shard's descriptor, if it is among the changes, says which rows the table has from now on: no scan finds
    /// the others, and [`maintain`](Self::maintain) removes them.
    ///
    /// # Errors
    /// [`TablesError::is_full`]: what was there before can be read (or, if only the last step failed, what
    /// should be; the mark says which), and the same changes can be written when there is space.
    /// [`TablesError::KeyTooLong`]: nothing was done. Any other error leaves unknown whether the changes are
    /// on disk: the caller must not go on with this shard in this process.
    ///
    /// # Panics
    /// If a key stands twice in the changes.
    pub fn write(&self, changes: &Changes, mark: &[u8]) -> Result<(), TablesError> {
        let entries = sorted(changes)?;
        self.change(|tree| tree.checkpoint(&entries, mark))?;
        self.0.unmerged_bytes.fetch_add(changes.bytes, Relaxed);
        Ok(())
    }

    /// The mark of the last write; `None` if there was none.
    ///
    /// # Errors
    /// The disk cannot be read, or what it holds is damaged.
    pub fn mark(&self) -> Result<Option<Vec<u8>>, TablesError> {
        self.value(MARK)
    }

    /// Merges what is due, and gives back the space of removed keys: at the end at most a third of the
    /// records on disk are removals, or the table is below 1 MiB. Rows of slots that a split has given to another shard are
    /// gone from disk at the end, and so are their bytes, once the other shard's table no longer has the same files.
    ///
    /// To be called after writes, or each few seconds, from a thread that may wait: it takes seconds for
    /// gigabytes. Costs nothing if nothing is due. Reads and writes go on meanwhile.
    ///
    /// # Errors
    /// As of [`write`](Self::write); no record is lost by a full disk, and the next call tries again.
    /// Merging needs space for what it makes before it gives any back, at most the table's size: keep as
    /// much free, or a full disk stays full.
    pub fn maintain(&self) -> Result<(), TablesError> {
        self.change(|tree| {
            let runs = tree.tree.l0_run_count();
            let bytes = self.0.unmerged_bytes.load(Relaxed) as u64;
            if runs >= RUNS_MOST || runs >= usize::from(RUNS_TO_MERGE) && bytes >= FILE_BYTES {
                tree.merge()?;
                self.0.unmerged_bytes.fetch_sub(bytes as usize, Relaxed);
            }
            if tree.wastes_space() {
                tree.rewrite()?;
            }
            tree.remove_foreign()?;
            tree.forget_replaced_lists()
        })
    }

    /// Bytes of the files that count.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.tree().disk_space()
    }

    /// Does something that changes files. If it fails, the table is opened again: that removes the files
    /// of the attempt, and what counts is what the disk says. A scan that is going on may then fail.
    fn change(
        &self,
        work: impl FnOnce(&Tree) -> Result<(), lsm_tree::Error>,
    ) -> Result<(), TablesError> {
        let outcome = work(&self.0.tree.read());
        outcome.map_err(|reason| {
            let mut tree = self.0.tree.write();
            match Tree::open(&self.0.folder, &self.0.resources) {
                Ok(opened) => *tree = opened,
                // What was open before still serves reads.
                Err(error) => tracing::warn!(%error, "a table could not be opened again"),
            }
            TablesError::tree(&self.0.folder, &reason)
        })
    }

    fn tree(&self) -> AnyTree {
        self.0.tree.read().tree.clone()
    }

    fn value(&self, stored_key: &[u8]) -> Result<Option<Vec<u8>>, TablesError> {
        loop {
            match self.tree().get(stored_key, SeqNo::MAX) {
                Ok(value) => return Ok(value.map(|value| value.to_vec())),
                Err(reason) if TablesError::is_scarce(&reason) => self.wait_for_files(&reason),
                Err(reason) => return Err(TablesError::tree(&self.0.folder, &reason)),
            }
        }
    }

    /// The system lacks files or memory, which says nothing about the table: it is read again in a moment.
    fn wait_for_files(&self, reason: &lsm_tree::Error) {
        tracing::warn!(folder = %self.0.folder.display(), ?reason, "a table waits for files or memory of the system");
        std::thread::sleep(FILES_PAUSE);
    }
}

impl Table for ShardTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        Ok(self.value(&record_key(key))?)
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TableError> {
        if from >= to {
            return Ok(());
        }
        let (tree, own) = {
            let tree = self.0.tree.read();
            (tree.tree.clone(), tree.own.now())
        };
        let (mut from, to) = (Bound::Included(record_key(from).into()), record_key(to));
        'again: loop {
            let to = Bound::Excluded(UserKey::from(to.as_slice()));
            let rest: (Bound<UserKey>, Bound<UserKey>) = (from.clone(), to);
            for entry in tree.range(rest, SeqNo::MAX, None) {
                let (key, value) = match entry.into_inner() {
                    Ok(row) => row,
                    Err(reason) if TablesError::is_scarce(&reason) => {
                        self.wait_for_files(&reason);
                        continue 'again;
                    }
                    Err(reason) => return Err(TablesError::tree(&self.0.folder, &reason).into()),
                };
                if !own.is_foreign(&key)
                    && visit(key.get(1..).unwrap_or_default(), &value).is_break()
                {
                    return Ok(());
                }
                from = Bound::Excluded(key);
            }
            return Ok(());
        }
    }
}

/// The changes of a checkpoint in the order of their keys.
///
/// # Panics
/// If a key stands twice in the changes.
fn sorted(changes: &Changes) -> Result<Vec<&Change>, TablesError> {
    let mut entries: Vec<&Change> = changes.entries.iter().collect();
    if let Some((key, _)) = entries.iter().find(|(key, _)| key.len() > KEY_BYTES) {
        return Err(TablesError::KeyTooLong { bytes: key.len() });
    }
    entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    assert!(
        entries.is_sorted_by(|a, b| a.0 < b.0),
        "a key stands once in the changes of a checkpoint"
    );
    Ok(entries)
}

fn record_key(key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(1 + key.len());
    stored.push(RECORD);
    stored.extend_from_slice(key);
    stored
}

/// The descriptor that a checkpoint has.
fn descriptor_in<'a>(sorted: &[&'a Change]) -> Option<&'a [u8]> {
    let at = sorted.binary_search_by(|(key, _)| key.as_slice().cmp(DESCRIPTOR_KEY));
    sorted.get(at.ok()?)?.1.as_deref()
}

/// An open tree.
struct Tree {
    tree: AnyTree,
    /// The next sequence number. Whatever is older and replaced can go: readers hold files, not numbers.
    next: SequenceNumberCounter,
    /// Which rows belong to the shard, as the descriptor says that is on disk.
    own: OwnRows,
}

impl Tree {
    fn open(folder: &Path, resources: &TableResources) -> Result<Self, TablesError> {
        manifest::check(folder)?;
        let next = SequenceNumberCounter::default();
        let visible = SequenceNumberCounter::default();
        let own = OwnRows::new(resources.keeps);
        let tree = Config::new(folder, next.clone(), visible.clone())
            .use_cache(resources.cache.clone())
            .use_descriptor_table(Some(resources.files.clone()))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
            .with_compaction_filter_factory(Some(own.filter_factory()))
            .open()
            .map_err(|reason| TablesError::tree(folder, &reason))?;
        let after_all = tree.get_highest_seqno().map_or(0, |last| last + 1);
        next.fetch_max(after_all);
        visible.fetch_max(after_all);
        let tree = Self { tree, next, own };
        let descriptor = tree.descriptor();
        let descriptor = descriptor.map_err(|reason| TablesError::tree(folder, &reason))?;
        if let Some(row) = descriptor {
            tree.own.narrow(&row);
        }
        Ok(tree)
    }

    /// The row of the shard's descriptor, if there is one.
    fn descriptor(&self) -> Result<Option<UserValue>, lsm_tree::Error> {
        self.tree.get(record_key(DESCRIPTOR_KEY), SeqNo::MAX)
    }

    /// Writes a checkpoint. If it has a descriptor, the rows that belong to the shard are those that it says.
    fn checkpoint(&self, sorted: &[&Change], mark: &[u8]) -> Result<(), lsm_tree::Error> {
        if self.tree.l0_run_count() >= RUNS_LIMIT {
            self.merge()?;
        }
        self.ingest(sorted, mark)?;
        // Not before it is on disk: until then the split may have to be done again, with the rows of before it.
        if let Some(row) = descriptor_in(sorted) {
            self.own.narrow(row);
        }
        Ok(())
    }

    fn ingest(&self, sorted: &[&Change], mark: &[u8]) -> Result<(), lsm_tree::Error> {
        let mut file = self.tree.ingestion()?;
        file.write(MARK, mark)?;
        for (key, value) in sorted {
            match value {
                Some(value) => file.write(record_key(key), value.as_slice())?,
                None => file.write_tombstone(record_key(key))?,
            }
        }
        file.finish()
    }

    /// Merges until every level is as it should be.
    fn merge(&self) -> Result<(), lsm_tree::Error> {
        let strategy = Arc::new(
            Leveled::default()
                .with_l0_threshold(RUNS_TO_MERGE)
                .with_table_target_size(FILE_BYTES),
        );
        loop {
            let before = self.tree.current_version().id();
            self.tree.compact(strategy.clone(), self.next.get())?;
            if self.tree.current_version().id() == before {
                return self.forget_replaced_lists();
            }
        }
    }

    /// Deletes what only replaced lists of files name. Without this the files that the last merge has
    /// replaced would stay until the next one.
    fn forget_replaced_lists(&self) -> Result<(), lsm_tree::Error> {
        let mut lists = self.tree.get_version_history_lock();
        lists.maintenance(&self.tree.tree_config().path, self.next.get())
    }

    fn rewrite(&self) -> Result<(), lsm_tree::Error> {
        self.tree.major_compact(FILE_BYTES, self.next.get())
    }

    /// Rewrites the table if it has rows that do not belong to the shard.
    fn remove_foreign(&self) -> Result<(), lsm_tree::Error> {
        if self.own.take_may_have_foreign() && self.holds_foreign()? {
            self.rewrite()?;
            if self.holds_foreign()? {
                // Other merging was under way.
                self.own.set_may_have_foreign();
            }
        }
        Ok(())
    }

    fn holds_foreign(&self) -> Result<bool, lsm_tree::Error> {
        for span in self.own.now().foreign_spans() {
            if let Some(row) = self.tree.range(span, SeqNo::MAX, None).next() {
                return row.key().map(|_| true);
            }
        }
        Ok(false)
    }

    fn wastes_space(&self) -> bool {
        let removals = self.tree.tombstone_count();
        removals.saturating_mul(3) > self.tree.approximate_len() as u64
            && self.tree.disk_space() >= WORTH_REWRITING_BYTES
    }
}
