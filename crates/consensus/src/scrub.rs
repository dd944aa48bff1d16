//! Reads the files of a log again while it is written, to find what the disk has damaged since.
//!
//! Invariants: only what was synced before is read, so that a batch that cannot be read is damaged and not unfinished; the log's thread
//! is never waited for; the page cache does not answer for the disk; memory is taken for one batch at a time.
//!
//! Deliberately absent: when files are read, and how fast; what is behind damage in a file, which the next start reads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use crate::check::{Damage, Finding, has_header};
use crate::log_files::{BATCH_HEADER, FILE_HEADER, LogFile, batch_at, said_len};

/// Bytes from the beginning of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Offset(u64);

/// A file of a log, as far as it is synced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncedFile {
    path: PathBuf,
    file: LogFile,
    end: Offset,
}

/// A file that is being read.
#[derive(Debug)]
pub struct LogScrub {
    of: SyncedFile,
    open: File,
    offset: Offset,
}

/// What is next in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scrubbed {
    /// So many bytes, which are whole.
    Whole(u64),
    /// Damage. What is behind it in the file is not read.
    Damaged(Finding),
    /// Nothing: all of it is read.
    End,
}

impl SyncedFile {
    /// The file of the log in this folder, of which so many bytes are synced.
    pub(crate) fn new(folder: &Path, file: LogFile, end: u64) -> Self {
        Self {
            path: file.path(folder),
            file,
            end: Offset(end),
        }
    }

    /// Bytes of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end.0
    }

    /// Opens the file; `None`: it was deleted, since nothing in it is needed any more.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(&self) -> io::Result<Option<LogScrub>> {
        let open = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            open => open?,
        };
        // From the disk, not from memory: what is cached was whole once. What is not written back yet stays.
        fadvise(&open, 0, None, Advice::DontNeed)?;
        Ok(Some(LogScrub {
            of: self.clone(),
            open,
            offset: Offset(0),
        }))
    }
}

impl LogScrub {
    /// Reads the header, then a batch each time. Blocks.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn read_next(&mut self) -> io::Result<Scrubbed> {
        if self.offset.0 == 0 {
            let mut header = [0; FILE_HEADER];
            return match self.fill(&mut header)? && has_header(&header) {
                true => Ok(self.advance(FILE_HEADER as u64)),
                false => Ok(self.damaged(Damage::Header)),
            };
        }
        let left = self.of.end.0.saturating_sub(self.offset.0);
        if left == 0 {
            return Ok(Scrubbed::End);
        }
        let mut header = [0; BATCH_HEADER];
        // No batch is longer than what is left of the file, whatever its header says.
        let len = match left >= BATCH_HEADER as u64 && self.fill(&mut header)? {
            true => said_len(&header, 0).filter(|len| *len as u64 <= left),
            false => None,
        };
        let Some(len) = len.filter(|len| *len > BATCH_HEADER) else {
            return Ok(self.damaged_until(self.of.end.0));
        };
        let mut batch = vec![0; len];
        let is_whole = self.fill(&mut batch)?
            && batch_at(&batch, 0, self.of.file.number.signature())
                .is_some_and(|batch| batch.is_whole());
        match is_whole {
            true => Ok(self.advance(len as u64)),
            false => Ok(self.damaged_until(self.offset.0 + len as u64)),
        }
    }

    /// Reads at the present place; false: the file ends before that.
    fn fill(&self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.open.read_exact_at(buffer, self.offset.0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            read => read.map(|()| true),
        }
    }

    fn advance(&mut self, bytes: u64) -> Scrubbed {
        self.offset.0 += bytes;
        Scrubbed::Whole(bytes)
    }

    fn damaged_until(&self, to: u64) -> Scrubbed {
        let from = self.offset.0;
        self.damaged(Damage::Bytes { from, to })
    }

    fn damaged(&self, what: Damage) -> Scrubbed {
        Scrubbed::Damaged(Finding {
            path: self.of.path.clone(),
            what,
        })
    }
}
