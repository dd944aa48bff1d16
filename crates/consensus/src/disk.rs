//! The log's files as raft-engine wants them, with faults handled as we want them.
//!
//! raft-engine panics when a sync fails. Here a failed sync is remembered and told to the engine as done:
//! nothing is written, synced or deleted afterwards, and the log's thread asks [`Health::failure`] before
//! it acknowledges anything. So a process that ends at a panic still ends in its own way.
//!
//! raft-engine starts a new file at each write that finds the disk full, when it recognizes that. Here
//! it does not: the write fails and can be tried again.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use raft_engine::env::{FileSystem, Handle, Permission, WriteExt};
use rustix::io::Errno;

use crate::files::{File, Files};
use crate::log_files::{Kind, LogFile};
use crate::stats::Counters;

/// Whether syncs were kept so far, and what was written.
#[derive(Default)]
pub(crate) struct Health {
    failure: OnceLock<String>,
    pub(crate) counters: Counters,
    ends: Mutex<BTreeMap<LogFile, FileEnd>>,
    /// When the last sync ended.
    synced_at: Mutex<Option<Instant>>,
    /// The last sync took longer than [`QUICK`].
    is_slow: AtomicBool,
}

/// What a sync may take for threads that have other work to write by themselves: as long as they apply entries in one turn.
const QUICK: Duration = Duration::from_millis(2);

/// Bytes of a file.
#[derive(Clone, Copy, Default)]
struct FileEnd {
    written: Bytes,
    synced: Bytes,
}

/// How many bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Bytes(u64);

impl Health {
    /// The first sync that failed. What was written since the one before it may be lost, and the kernel
    /// may say of it that it was written: it is unknown for good.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// The files that are there, with so many bytes synced of each.
    pub(crate) fn set_ends(&self, ends: &BTreeMap<LogFile, u64>) {
        let ends = ends.iter().map(|(file, end)| {
            let end = FileEnd {
                written: Bytes(*end),
                synced: Bytes(*end),
            };
            (*file, end)
        });
        *self.ends.lock() = ends.collect();
    }

    /// How many bytes of each file are synced.
    pub(crate) fn synced_ends(&self) -> BTreeMap<LogFile, u64> {
        let ends = self.ends.lock();
        let synced = ends.iter().filter(|(_, end)| end.synced > Bytes(0));
        synced.map(|(file, end)| (*file, end.synced.0)).collect()
    }

    /// Whether the last sync was so short that a thread with other work may wait for the next one.
    pub(crate) fn is_quick(&self) -> bool {
        !self.is_slow.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Ordering::Relaxed);
    }

    /// When the last sync ended; now, if there was none.
    pub(crate) fn synced_at(&self) -> Instant {
        self.synced_at.lock().unwrap_or_else(Instant::now)
    }

    /// The newest file that was appended to, and how many bytes of it are synced.
    pub(crate) fn newest_end(&self) -> Option<(LogFile, u64)> {
        let ends = self.ends.lock();
        let (file, end) = ends.last_key_value()?;
        (file.kind == Kind::Appended).then_some((*file, end.synced.0))
    }

    fn change_end(&self, file: Option<LogFile>, change: impl FnOnce(&mut FileEnd)) {
        if let Some(file) = file {
            change(self.ends.lock().entry(file).or_default());
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.failure() {
            Some(failure) => Err(io::Error::other(failure.to_owned())),
            None => Ok(()),
        }
    }
}

/// All files of a log.
pub(crate) struct Disk {
    files: Arc<dyn Files>,
    health: Arc<Health>,
}

impl Disk {
    pub(crate) fn new(files: Arc<dyn Files>, health: Arc<Health>) -> Self {
        Self { files, health }
    }

    fn opened(&self, path: &Path, file: Box<dyn File>) -> OpenFile {
        OpenFile {
            file,
            name: LogFile::named(path),
            health: self.health.clone(),
        }
    }
}

impl FileSystem for Disk {
    type Handle = OpenFile;
    type Reader = Cursor;
    type Writer = Cursor;

    fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<OpenFile> {
        self.health.check()?;
        let file = self.files.create(path.as_ref()).map_err(plain)?;
        Ok(self.opened(path.as_ref(), file))
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<OpenFile> {
        let writable = permission == Permission::ReadWrite;
        let file = self.files.open(path.as_ref(), writable)?;
        Ok(self.opened(path.as_ref(), file))
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        // What replaces the file may not be on the disk.
        self.health.check()?;
        self.files.delete(path.as_ref())?;
        if let Some(file) = LogFile::named(path.as_ref()) {
            self.health.ends.lock().remove(&file);
        }
        Ok(())
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.health.check()?;
        self.files.rename(from.as_ref(), to.as_ref())
    }

    fn new_reader(&self, handle: Arc<OpenFile>) -> io::Result<Cursor> {
        Ok(Cursor { handle, offset: 0 })
    }

    fn new_writer(&self, handle: Arc<OpenFile>) -> io::Result<Cursor> {
        Ok(Cursor { handle, offset: 0 })
    }
}

pub(crate) struct OpenFile {
    file: Box<dyn File>,
    name: Option<LogFile>,
    health: Arc<Health>,
}

impl Handle for OpenFile {
    fn truncate(&self, offset: usize) -> io::Result<()> {
        self.health.check()?;
        self.file.set_len(offset as u64)?;
        let offset = Bytes(offset as u64);
        self.health.change_end(self.name, |end| {
            end.written = end.written.min(offset);
            end.synced = end.synced.min(offset);
        });
        Ok(())
    }

    fn file_size(&self) -> io::Result<usize> {
        usize::try_from(self.file.size()?).map_err(io::Error::other)
    }

    fn sync(&self) -> io::Result<()> {
        if self.health.failure().is_some() {
            return Ok(());
        }
        let begin = Instant::now();
        let mut written = Bytes(0);
        self.health
            .change_end(self.name, |end| written = end.written);
        match self.file.sync() {
            Ok(()) => self.health.change_end(self.name, |end| {
                end.synced = end.synced.max(written.min(end.written));
            }),
            Err(error) => {
                tracing::error!(%error, "a sync of the log failed: nothing is acknowledged from now on");
                // A second failure changes nothing.
                drop(self.health.failure.set(format!("sync failed: {error}")));
            }
        }
        let end = Instant::now();
        *self.health.synced_at.lock() = Some(end);
        self.health
            .set_slow(end.saturating_duration_since(begin) > QUICK);
        self.health
            .counters
            .synced(end.saturating_duration_since(begin));
        Ok(())
    }
}

/// A place in a file.
pub(crate) struct Cursor {
    handle: Arc<OpenFile>,
    offset: u64,
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.handle.file.read_at(buffer, self.offset)?;
        self.offset += len as u64;
        Ok(len)
    }
}

impl Write for Cursor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.handle.health.check()?;
        let len = self
            .handle
            .file
            .write_at(bytes, self.offset)
            .map_err(plain)?;
        self.handle.health.counters.wrote(len);
        self.offset += len as u64;
        let offset = Bytes(self.offset);
        self.handle.health.change_end(self.handle.name, |end| {
            end.written = end.written.max(offset);
        });
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Cursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(by) => (self.offset, by),
            SeekFrom::End(by) => (self.handle.file.size()?, by),
        };
        self.offset = base
            .checked_add_signed(by)
            .ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.offset)
    }
}

impl WriteExt for Cursor {
    fn truncate(&mut self, offset: usize) -> io::Result<()> {
        Handle::truncate(&*self.handle, offset)?;
        self.offset = offset as u64;
        Ok(())
    }

    fn allocate(&mut self, offset: usize, size: usize) -> io::Result<()> {
        self.handle.health.check()?;
        self.handle.file.allocate(offset as u64, size as u64)
    }
}

/// The same error without the words by which raft-engine recognizes a full disk.
fn plain(error: io::Error) -> io::Error {
    if is_full(&error) {
        io::Error::new(error.kind(), "the disk is full")
    } else {
        error
    }
}

/// Whether an error goes away when files are closed or memory is given back, of this process or of others. It says
/// nothing about the disk.
pub(crate) fn is_scarce(error: &io::Error) -> bool {
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(Errno::raw_os_error);
    let is_one = |errno| scarce.contains(&errno);
    error.raw_os_error().is_some_and(is_one)
}

/// Whether an error goes away when space returns.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
