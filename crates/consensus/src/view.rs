//! A log that is looked at and not changed, for people who ask what a disk holds.
//!
//! Invariants: nothing in the log's folder is written, created or removed; what is said of a group is what
//! a node would find that starts with this log.
//!
//! The engine knows no way of opening without writing: it locks its folder and makes
//! the first files. So it gets a folder of the caller's with empty files of the same names, of which it
//! reads the original contents, and what it writes stays in memory. Of a damaged log, what a node would make of it is
//! written into that folder.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::check::{Check, Finding};
use crate::command::Command;
use crate::disk::Health;
use crate::ends;
use crate::engine::{open_engine, refused};
use crate::files::{File, Files, RealFiles};
use crate::folder;
use crate::group::{StartError, check_fit};
use crate::group_log::{commands, has_new_tables, span};
use crate::log::Examined;
use crate::log_error::LogError;
use crate::log_files::{self, LogFile};
use crate::loss::is_group;
use crate::mark::Mark;
use crate::mark::seed_id;
use crate::mend;
use crate::numbers::GroupId;
use crate::one_bit::FlippedBits;
use crate::options::LogOptions;
use crate::seed::{self, Origin};
use crate::settle::Unsettled;
use crate::types::next_index;
use crate::wal::Wal;

/// A log that nobody has open. The caller sees to it that nobody opens it meanwhile.
pub struct LogView {
    wal: Wal,
    files: u64,
    bytes: u64,
    torn_bytes: u64,
    damage: Vec<Finding>,
}

impl LogView {
    /// Looks into the folder of a log; one that is missing is an empty log. `scratch` is an empty folder
    /// of the caller's, which is needed until the view is dropped.
    ///
    /// # Errors
    /// As of [`Log::open`](crate::Log::open).
    pub fn open(directory: &Path, scratch: &Path) -> Result<Self, LogError> {
        let entries = folder::look(directory)?;
        let failed = |error| LogError::Io {
            path: directory.to_owned(),
            error,
        };
        if mend::goes_on(directory) {
            return Err(LogError::Mending {
                path: directory.to_owned(),
            });
        }
        let mut real: Arc<dyn Files> = Arc::new(RealFiles);
        let known = ends::read(&*real, directory).map_err(failed)?;
        let (mut files, mut bytes, mut torn_bytes) = (0, 0, 0);
        let mut damage = Vec::new();
        let options = LogOptions::new(scratch);
        let mut sources: Arc<dyn Files> = Arc::new(Originals {
            folder: entries.clone(),
            check: Check::default(),
            files: real.clone(),
        });
        if entries.is_dir() {
            for file in log_files::list(&entries).map_err(failed)? {
                files += 1;
                bytes += file.path(&entries).metadata().map_err(failed)?.len();
            }
            let mut examined = Examined::of(&real, &entries, known.as_ref()).map_err(failed)?;
            let flipped = examined.flipped_bits(&real, &entries, known.as_ref());
            let flipped = flipped.map_err(failed)?;
            let flipped_findings = flipped.findings(&entries);
            if !flipped.is_empty() {
                let folder = entries.clone();
                real = Arc::new(FlippedBack { folder, flipped });
                examined = Examined::of(&real, &entries, known.as_ref()).map_err(failed)?;
            }
            torn_bytes = examined
                .check
                .torn_bytes(&*real, &entries)
                .map_err(failed)?;
            damage = examined.damage();
            let check = examined.check.clone();
            if damage.is_empty() {
                for file in log_files::list(&entries).map_err(failed)? {
                    if !check.is_unborn(file) {
                        fs::write(file.path(scratch), b"").map_err(failed)?;
                    }
                }
                sources = Arc::new(Originals {
                    folder: entries.clone(),
                    check,
                    files: real,
                });
            } else {
                let remains = examined.remains(&real, &entries, known.as_ref());
                let remains = remains.map_err(failed)?;
                mend::write(&real, &entries, scratch, &remains, &options)?;
                sources = Arc::new(RealFiles);
            }
            damage.extend(flipped_findings);
        }
        let health = Arc::new(Health::default());
        let engine = open_engine(&options, scratch, sources, &health)
            .map_err(|error| refused(error, &entries))?;
        Ok(Self {
            wal: Wal::new(engine, None, health, &options),
            files,
            bytes,
            torn_bytes,
            damage,
        })
    }

    /// What is damaged or missing in its files.
    #[must_use]
    pub fn damage(&self) -> &[Finding] {
        &self.damage
    }

    /// Its files, and their bytes.
    pub fn size(&self) -> (u64, u64) {
        (self.files, self.bytes)
    }

    /// Bytes of a last write that is not whole, which a node cuts off when it starts. 0: there is none.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Groups that have something in the log.
    pub fn group_ids(&self) -> Vec<u64> {
        let mut groups = self.wal.group_ids();
        groups.retain(|group| is_group(*group));
        groups
    }

    /// The indices of a group's entries: the first that is here, and the first that is not yet.
    ///
    /// # Errors
    /// Entries are missing, or what is kept beside them is damaged.
    pub fn span(&self, group: u64) -> io::Result<Range<u64>> {
        span(&self.wal, group)
    }

    /// As of [`Log::origin`](crate::Log::origin).
    ///
    /// # Errors
    /// What is kept of the group is damaged.
    pub fn origin(&self, group: u64) -> io::Result<Option<Origin>> {
        seed::origin(&self.wal, group)
    }

    /// Whether a node would start a group whose tables reach to this mark, and find all that follows. A seeded group
    /// that has no table yet starts with what the entry makes that it comes from.
    ///
    /// # Errors
    /// Why it would not.
    pub fn check_fit(&self, group: u64, tables: &Mark) -> Result<(), StartError> {
        let replica = Unsettled {
            wal: &self.wal,
            group: GroupId(group),
            tables,
        };
        match replica.missing().map_err(StartError::Log)? {
            Some(missing) => return Err(StartError::Lost(missing)),
            None if replica.loss().map_err(StartError::Log)?.is_some() => return Ok(()),
            None => {}
        }
        if has_new_tables(&self.wal, group, tables.log_id).map_err(StartError::Log)? {
            return Ok(());
        }
        let span = self.span(group).map_err(StartError::Log)?;
        let awaits_seed =
            tables.index().is_none() && self.origin(group).map_err(StartError::Log)?.is_some();
        let tables_next = match awaits_seed {
            true => next_index(Some(seed_id())),
            false => tables.next_index(),
        };
        check_fit(tables_next, (span.start, span.end))
    }

    /// Reads entries of a group in their order and visits those that are commands, with their index.
    ///
    /// # Errors
    /// The first entry that is missing or cannot be read; those before it have been visited.
    pub fn commands<C: Command>(
        &self,
        group: u64,
        range: Range<u64>,
        visit: impl FnMut(u64, &C),
    ) -> io::Result<()> {
        commands(&self.wal, group, range, visit)
    }
}

/// The operating system's files; those of a folder are read with the bits flipped back that a start flips back.
struct FlippedBack {
    folder: PathBuf,
    flipped: FlippedBits,
}

impl Files for FlippedBack {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        RealFiles.create(path)
    }

    fn open(&self, path: &Path, writable: bool) -> io::Result<Box<dyn File>> {
        match LogFile::named(path) {
            Some(file) if !writable && path.parent() == Some(&self.folder) => {
                let mut content = fs::read(path)?;
                self.flipped.flip(file, &mut content);
                Ok(Box::new(InMemory(Mutex::new(content))))
            }
            _ => RealFiles.open(path, writable),
        }
    }

    fn delete(&self, path: &Path) -> io::Result<()> {
        RealFiles.delete(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.rename(from, to)
    }
}

/// The files of a folder, by their names alone, without what a node would cut off. None of them is changed.
struct Originals {
    folder: PathBuf,
    check: Check,
    files: Arc<dyn Files>,
}

impl Files for Originals {
    fn create(&self, _: &Path) -> io::Result<Box<dyn File>> {
        Ok(Box::new(InMemory::default()))
    }

    fn open(&self, path: &Path, writable: bool) -> io::Result<Box<dyn File>> {
        let original = self.folder.join(path.file_name().unwrap_or_default());
        let cut = LogFile::named(path).and_then(|file| self.check.cut_len(file));
        if writable || cut.is_some() {
            let mut content = log_files::read(&*self.files, &original)?;
            content.truncate(cut.map_or(usize::MAX, |len| len as usize));
            Ok(Box::new(InMemory(Mutex::new(content))))
        } else {
            self.files.open(&original, false)
        }
    }

    fn delete(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// A file in memory.
#[derive(Default)]
struct InMemory(Mutex<Vec<u8>>);

impl File for InMemory {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.0.lock();
        let from = content.len().min(offset as usize);
        let len = buffer.len().min(content.len() - from);
        buffer[..len].copy_from_slice(&content[from..from + len]);
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut content = self.0.lock();
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        if content.len() < to {
            content.resize(to, 0);
        }
        content[from..to].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().resize(len as usize, 0);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
