//! Files that forget what was not synced, fill up, and fail: for tests of this crate and of others.
//!
//! Contents are in memory; the folder holds an empty file of each name, since the log lists it. What a
//! power loss leaves of a file is what it was at its last sync, and, as [`Loss`] says, some of what
//! was written since. A file that was never synced is gone. Removing and renaming take effect at once.
//!
//! Deliberately absent: the log's `FORMAT` and `LOCK`, which are real files; errors of reads.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::files::{File, Files};

/// Bytes that a disk writes as a whole.
const SECTOR: usize = 512;

thread_local! {
    static IN_ONE_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread does itself what else others would do for it.
pub fn stay_in_one_thread() {
    IN_ONE_THREAD.set(true);
}

pub(crate) fn is_in_one_thread() -> bool {
    IN_ONE_THREAD.get()
}

/// What a power loss leaves of writes that were not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Nothing.
    All,
    /// The first ones, the last of them in part.
    Tail,
    /// Any of their sectors.
    Sectors,
}

/// A disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: HashMap<PathBuf, Content>,
    /// Files opened before a power loss are dead after it.
    epoch: u64,
    off: bool,
    /// Writes, syncs, creations and deletions until the power fails.
    operations_left: Option<u64>,
    operations: u64,
    /// Bytes of all files beyond which the disk is full.
    capacity: Option<usize>,
    lacks_files: bool,
    syncs_fail: bool,
    syncs_lie: bool,
}

#[derive(Default)]
struct Content {
    now: Vec<u8>,
    /// What is there after a power loss; `None` before the first sync.
    synced: Option<Vec<u8>>,
    unsynced: Vec<Change>,
}

enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl SimulatedDisk {
    /// An empty disk without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the power fail at the operation after the next `operations` ones. Everything fails from then
    /// on, until [`SimulatedDisk::restart`].
    pub fn fail_power_after(&self, operations: u64) {
        self.0.lock().operations_left = Some(operations);
    }

    /// The power does not fail, unless it has failed already.
    pub fn keep_power(&self) {
        let mut state = self.0.lock();
        if !state.off {
            state.operations_left = None;
        }
    }

    /// Whether the power has failed.
    pub fn is_off(&self) -> bool {
        self.0.lock().off
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// A power loss, if it has not come yet, and power again. `seed` decides what is left by chance.
    pub fn restart(&self, loss: Loss, seed: u64) {
        let mut state = self.0.lock();
        let mut chance = Chance(seed);
        // In order, so that the seed decides everything.
        let mut files: Vec<_> = std::mem::take(&mut state.files).into_iter().collect();
        files.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (path, content) in files {
            match content.after_power_loss(loss, &mut chance) {
                Some(content) => drop(state.files.insert(path, content)),
                // It may be gone already, with the whole folder.
                None => drop(std::fs::remove_file(path)),
            }
        }
        state.epoch += 1;
        state.off = false;
        state.operations_left = None;
        state.syncs_fail = false;
    }

    /// The disk is full when its files have this many bytes.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.0.lock().capacity = bytes;
    }

    /// From now on no file can be made, because the process has as many open as it may; or again it can.
    pub fn set_lacks_files(&self, lacks: bool) {
        self.0.lock().lacks_files = lacks;
    }

    /// Syncs fail from now on, until [`SimulatedDisk::restart`].
    pub fn fail_syncs(&self) {
        self.0.lock().syncs_fail = true;
    }

    /// Syncs do nothing from now on, and say that they did: a test of power loss has to notice.
    pub fn lie_about_syncs(&self) {
        self.0.lock().syncs_lie = true;
    }

    /// All bytes of all files.
    pub fn used_bytes(&self) -> usize {
        self.0.lock().used_bytes()
    }

    /// Paths of all files, in order.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> = self.0.lock().files.keys().cloned().collect();
        paths.sort();
        paths
    }

    /// Changes the content of a file, durably.
    pub fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock();
        if let Some(content) = state.files.get_mut(path) {
            edit(&mut content.now);
            content.synced = Some(content.now.clone());
            content.unsynced.clear();
        }
    }

    fn opened(&self, path: &Path, state: &State) -> Box<dyn File> {
        Box::new(SimulatedFile {
            disk: self.clone(),
            path: path.to_owned(),
            epoch: state.epoch,
        })
    }
}

impl State {
    fn operate(&mut self) -> io::Result<()> {
        match &mut self.operations_left {
            Some(0) => self.off = true,
            Some(left) => *left -= 1,
            None => {}
        }
        self.operations += 1;
        self.check()
    }

    fn check(&self) -> io::Result<()> {
        if self.off {
            return Err(io::Error::other("the power is off"));
        }
        Ok(())
    }

    fn used_bytes(&self) -> usize {
        self.files.values().map(|content| content.now.len()).sum()
    }

    /// How many more bytes fit.
    fn room(&self) -> usize {
        self.capacity.map_or(usize::MAX, |capacity| {
            capacity.saturating_sub(self.used_bytes())
        })
    }
}

impl Files for SimulatedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let mut state = self.0.lock();
        state.operate()?;
        if state.lacks_files {
            return Err(rustix::io::Errno::MFILE.into());
        }
        if state.capacity.is_some() && state.room() == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        std::fs::File::create(path)?;
        state.files.entry(path.to_owned()).or_default();
        Ok(self.opened(path, &state))
    }

    fn open(&self, path: &Path, _writable: bool) -> io::Result<Box<dyn File>> {
        let state = self.0.lock();
        state.check()?;
        if !state.files.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(self.opened(path, &state))
    }

    fn delete(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operate()?;
        state.files.remove(path);
        std::fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operate()?;
        let content = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), content);
        std::fs::rename(from, to)
    }
}

impl Content {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        let synced = self.synced.get_or_insert_default();
        for change in self.unsynced.drain(..) {
            change.apply(synced);
        }
    }

    fn after_power_loss(self, loss: Loss, chance: &mut Chance) -> Option<Self> {
        let mut left = self.synced?;
        match loss {
            Loss::All => {}
            Loss::Tail => keep_first(&self.unsynced, &mut left, chance),
            Loss::Sectors => keep_sectors(&self.unsynced, &mut left, chance),
        }
        Some(Self {
            now: left.clone(),
            synced: Some(left),
            unsynced: Vec::new(),
        })
    }
}

/// Applies the first changes, the last of them in part.
fn keep_first(changes: &[Change], content: &mut Vec<u8>, chance: &mut Chance) {
    let whole = chance.below(changes.len() + 1);
    for change in &changes[..whole] {
        change.apply(content);
    }
    if let Some(Change::Write { offset, bytes }) = changes.get(whole) {
        write(content, *offset, &bytes[..chance.below(bytes.len())]);
    }
}

/// Applies parts of changes, as a disk that reorders may.
fn keep_sectors(changes: &[Change], content: &mut Vec<u8>, chance: &mut Chance) {
    for change in changes {
        match change {
            Change::SetLen(_) if chance.below(2) == 0 => {}
            Change::SetLen(_) => change.apply(content),
            Change::Write { offset, bytes } => {
                for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                    if chance.below(2) == 0 {
                        write(content, offset + index * SECTOR, sector);
                    }
                }
            }
        }
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => write(content, *offset, bytes),
            Self::SetLen(len) => content.resize(*len, 0),
        }
    }
}

fn write(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

struct SimulatedFile {
    disk: SimulatedDisk,
    path: PathBuf,
    epoch: u64,
}

impl SimulatedFile {
    fn with<T>(&self, run: impl FnOnce(&mut Content) -> T) -> io::Result<T> {
        self.run(&mut self.disk.0.lock(), run)
    }

    /// The same, counted as an operation, and with the room that is left.
    fn operate<T>(&self, run: impl FnOnce(&mut Content, usize) -> T) -> io::Result<T> {
        let mut state = self.disk.0.lock();
        if self.epoch == state.epoch {
            state.operate()?;
        }
        let room = state.room();
        self.run(&mut state, |content| run(content, room))
    }

    fn run<T>(&self, state: &mut State, run: impl FnOnce(&mut Content) -> T) -> io::Result<T> {
        state.check()?;
        if self.epoch != state.epoch {
            return Err(io::Error::other("opened before the power loss"));
        }
        let content = state.files.get_mut(&self.path);
        content.map(run).ok_or(io::ErrorKind::NotFound.into())
    }
}

impl File for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|content| {
            let rest = content.now.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            len
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.operate(|content, room| {
            let offset = offset as usize;
            let room = content
                .now
                .len()
                .saturating_sub(offset)
                .saturating_add(room);
            let bytes = &bytes[..bytes.len().min(room)];
            if bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            content.change(Change::Write {
                offset,
                bytes: bytes.to_vec(),
            });
            Ok(bytes.len())
        })?
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.operate(|content, _| content.change(Change::SetLen(len as usize)))
    }

    fn size(&self) -> io::Result<u64> {
        self.with(|content| content.now.len() as u64)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.operate(|content, room| {
            let end = (offset + len) as usize;
            let more = end.saturating_sub(content.now.len());
            if more > room {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if more > 0 {
                content.change(Change::SetLen(end));
            }
            Ok(())
        })?
    }

    fn sync(&self) -> io::Result<()> {
        let (fail, lie) = {
            let state = self.disk.0.lock();
            (state.syncs_fail, state.syncs_lie)
        };
        self.operate(|content, _| match (fail, lie) {
            (true, _) => Err(io::Error::other("a sync failed")),
            (false, true) => Ok(()),
            (false, false) => {
                content.sync();
                Ok(())
            }
        })?
    }
}

/// Random numbers that a seed decides (splitmix64).
pub struct Chance(pub u64);

impl Chance {
    /// A number from 0 to before `limit`, or 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed % limit.max(1) as u64) as usize
    }
}
