//! The files that the log is kept in: real ones, or what a test puts in their place.

use std::fs::{File as StdFile, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;

/// The log holds messages: its files are for their owner only.
pub(crate) const PRIVATE_FILE: u32 = 0o600;

/// A file system, as far as the log needs one. Names are listed with `std::fs`, so an implementation
/// that keeps contents elsewhere leaves empty files under these names.
pub trait Files: Send + Sync {
    /// Opens a file for reading and writing, created when there is none.
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Opens an existing file.
    fn open(&self, path: &Path, writable: bool) -> io::Result<Box<dyn File>>;

    /// Removes a file.
    fn delete(&self, path: &Path) -> io::Result<()>;

    /// Gives a file another name; a file that had it is gone.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
}

/// An open file.
pub trait File: Send + Sync {
    /// Reads up to the length of `buffer`; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some or all of `bytes`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Cuts the file, or fills it with zeros, to this many bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Bytes of the file.
    fn size(&self) -> io::Result<u64>;

    /// Takes room on the disk for bytes to come, and makes the file longer by zeros.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Returns when all that was written, and the length, would be there after a power loss.
    fn sync(&self) -> io::Result<()>;
}

/// The operating system's files.
pub(crate) struct RealFiles;

impl Files for RealFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE_FILE)
            .open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path, writable: bool) -> io::Result<Box<dyn File>> {
        let file = OpenOptions::new().read(true).write(writable).open(path)?;
        Ok(Box::new(file))
    }

    fn delete(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }
}

impl File for StdFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        StdFile::set_len(self, len)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(self, rustix::fs::FallocateFlags::empty(), offset, len) {
            // A file system that cannot take room ahead takes it when it is written.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
