//! Space that is kept for a start and a shutdown on a full disk.
//!
//! Purpose: a start records itself in the log, a shutdown what clients have done at last. When the disk is
//! full, this file is released for that, and made again as soon as there is space.
//!
//! Deliberately absent: errors. Without a reserve everything works but these two.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

pub(super) const RESERVE: &str = "reserve";

/// Bytes that are kept.
const BYTES: u64 = 8 << 20;

/// The part of a small disk that is kept at most: one in so many.
const PART: u64 = 16;

/// It is made again when so many times its size are free.
const AMPLE: u64 = 4;

/// Less than this is not worth a file.
const LEAST: u64 = 64 << 10;

/// The file of one data folder.
#[derive(Debug)]
pub(crate) struct Reserve {
    root: PathBuf,
    bytes: u64,
}

impl Reserve {
    /// The reserve of a folder; nothing is changed.
    ///
    /// # Errors
    /// The disk cannot be asked for its size.
    pub(super) fn of(root: &Path) -> io::Result<Self> {
        let disk = statvfs(root)?;
        Ok(Self {
            root: root.to_owned(),
            bytes: BYTES.min(disk.f_blocks.saturating_mul(disk.f_frsize) / PART),
        })
    }

    /// How much is kept when there is space.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the space, or what there is of it.
    pub(crate) fn keep(&self) {
        if let Err(error) = self.take() {
            tracing::warn!(
                file = %self.path().display(),
                %error,
                "no space can be reserved for a start or a shutdown on a full disk"
            );
        }
    }

    /// Takes the space again if there is so much that nobody will miss it.
    pub(crate) fn refill(&self) {
        let is_short = self.len() < self.bytes;
        if is_short
            && super::free_bytes(&self.root).is_ok_and(|free| free >= AMPLE * self.bytes)
            && let Err(error) = self.take()
        {
            tracing::debug!(%error, "the space that was given up cannot be kept again");
        }
    }

    fn path(&self) -> PathBuf {
        self.root.join(RESERVE)
    }

    fn len(&self) -> u64 {
        self.path().metadata().map_or(0, |file| file.len())
    }

    fn take(&self) -> io::Result<()> {
        let file = super::open_or_make(&self.path())?;
        let mut bytes = self.bytes;
        while self.len() < bytes {
            match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                Err(rustix::io::Errno::NOSPC) if bytes / 2 >= LEAST => bytes /= 2,
                taken => return Ok(taken?),
            }
        }
        Ok(())
    }

    /// Gives the space back to the disk.
    pub(crate) fn release(&self) {
        // There may be none.
        match File::options().write(true).open(self.path()) {
            Ok(file) => match file.set_len(0) {
                Ok(()) => tracing::warn!("the disk is full: the reserved space is released"),
                Err(error) => tracing::warn!(%error, "the reserved space cannot be released"),
            },
            Err(error) => tracing::debug!(%error, "no space was kept"),
        }
    }
}
