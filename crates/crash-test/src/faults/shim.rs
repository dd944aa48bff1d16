//! The preloaded library: compiled on the spot, attached to a process, told what to break.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("../../shim/powerloss.c");

/// Offsets in `struct control` of the library.
const DISK_IS_FULL: u64 = 0;
const SYNCS_UNTIL_FAIL: u64 = 4;
const REFUSED_WRITES: u64 = 12;
const REFUSED_SYNCS: u64 = 16;
const SYNC_DELAY_MS: u64 = 20;
const CONTROL_BYTES: u64 = 24;

/// The library with its side folder.
#[derive(Debug)]
pub struct Shim {
    library: PathBuf,
    side: PathBuf,
}

impl Shim {
    /// Compiles the library with `cc` into `work`, where the side folder will be as well. `work` must be
    /// on the file system of the folder that is to be watched.
    ///
    /// # Errors
    /// No compiler, or it fails; the folder cannot be written.
    pub fn build(work: &Path) -> io::Result<Self> {
        let source = work.join("powerloss.c");
        let library = work.join("powerloss.so");
        fs::write(&source, SOURCE)?;
        let status = Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-pthread", "-o"])
            .arg(&library)
            .arg(&source)
            .status()?;
        if !status.success() {
            return Err(io::Error::other("cc could not compile the shim"));
        }
        let shim = Self {
            library,
            side: work.join("side"),
        };
        shim.reset()?;
        Ok(shim)
    }

    /// Forgets the journal and all faults, for the next process.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn reset(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.side) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&self.side)?,
        }
        File::create(self.side.join("control"))?.set_len(CONTROL_BYTES)
    }

    /// Where the journal is.
    #[must_use]
    pub fn side(&self) -> &Path {
        &self.side
    }

    /// Makes `command` start a process whose work in `folder`, an absolute path without symbolic links,
    /// is watched.
    pub fn attach(&self, command: &mut Command, folder: &Path) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("CRASH_SHIM_FOLDER", folder)
            .env("CRASH_SHIM_SIDE", &self.side);
    }

    /// From now on the disk takes nothing, or takes everything again.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn set_disk_full(&self, is_full: bool) -> io::Result<()> {
        self.set(DISK_IS_FULL, u32::from(is_full))
    }

    /// The `number`-th sync from now (from 1) and all after it fail.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn fail_sync(&self, number: u32) -> io::Result<()> {
        self.set(SYNCS_UNTIL_FAIL, number)
    }

    /// From now on each sync takes so much longer, in ms.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn delay_syncs(&self, ms: u32) -> io::Result<()> {
        self.set(SYNC_DELAY_MS, ms)
    }

    /// Writes that were refused because the disk was full.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn refused_writes(&self) -> io::Result<u32> {
        self.get(REFUSED_WRITES)
    }

    /// Syncs that failed.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn refused_syncs(&self) -> io::Result<u32> {
        self.get(REFUSED_SYNCS)
    }

    fn set(&self, offset: u64, value: u32) -> io::Result<()> {
        // The library has mapped the file; what is written here it sees at once.
        File::options()
            .write(true)
            .open(self.side.join("control"))?
            .write_all_at(&value.to_le_bytes(), offset)
    }

    fn get(&self, offset: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        File::open(self.side.join("control"))?.read_exact_at(&mut bytes, offset)?;
        Ok(u32::from_le_bytes(bytes))
    }
}
