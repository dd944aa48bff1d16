//! CPU time, memory, threads and descriptors of a process, from /proc.
//!
//! A reading of [`Process::usage`] takes some 60 µs whatever the process holds, so that it can be taken
//! each second beside a load. [`Process::resident_bytes`] looks at all pages instead, some 10 ms for each GB.
//!
//! Threads one by one are in `threads.rs`.
//!
//! Deliberately absent: child processes; see `processes.rs`.

mod maps;
mod stat;
mod threads;

use std::fs;
use std::io;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use rustix::io::Errno;

use crate::network::NetworkBytes;
pub use maps::ResidentParts;
pub(crate) use stat::Stat;
pub use threads::{ThreadId, ThreadUsage, Waits};

/// CPU time used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cpu {
    /// In user mode.
    pub user: Duration,
    /// In the kernel on the process's behalf.
    pub system: Duration,
}

impl Cpu {
    /// Both.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.user + self.system
    }

    /// The lesser of each.
    pub(crate) fn min(self, other: Self) -> Self {
        Self {
            user: self.user.min(other.user),
            system: self.system.min(other.system),
        }
    }
}

impl Add for Cpu {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
        }
    }
}

impl AddAssign for Cpu {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Never less than nothing.
impl Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// What a process, or several together, used so far and hold now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessUsage {
    /// In user mode since the start, in steps of a clock tick (mostly 10 ms).
    pub cpu_user: Duration,
    /// In the kernel since the start, likewise.
    pub cpu_system: Duration,
    /// Resident memory now. The kernel counts changes on each core (before 6.2: in each thread) and adds
    /// them up when there are enough of them. The sum may therefore be off by 32 pages, or by twice as
    /// many pages as there are cores if that is more, for each core: 256 KiB on two cores, 32 MiB on 64.
    pub resident_bytes: u64,
    /// Now.
    pub threads: u32,
    /// Open now; `None` where this user may not see them.
    pub descriptors: Option<u32>,
}

impl ProcessUsage {
    /// Both modes.
    #[must_use]
    pub fn cpu(&self) -> Cpu {
        Cpu {
            user: self.cpu_user,
            system: self.cpu_system,
        }
    }
}

/// A running process of this machine. An identifier that the kernel has given to another process
/// meanwhile means that other process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u32);

impl Process {
    /// The process with this identifier.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        Self(pid)
    }

    /// The calling process.
    #[must_use]
    pub fn own() -> Self {
        Self(std::process::id())
    }

    /// Its identifier.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0
    }

    /// The command's name, which the kernel cuts off after 15 bytes.
    ///
    /// # Errors
    /// The process has ended ([`io::ErrorKind::NotFound`]), or /proc cannot be read.
    pub fn name(&self) -> io::Result<String> {
        Ok(self.read("comm")?.trim_end_matches('\n').to_owned())
    }

    /// The program with its arguments, as they were when it started; empty for threads of the kernel.
    ///
    /// # Errors
    /// As [`Process::name`].
    pub fn command(&self) -> io::Result<Vec<String>> {
        let text = self.read("cmdline")?;
        let words = text.split('\0').filter(|word| !word.is_empty());
        Ok(words.map(str::to_owned).collect())
    }

    /// CPU time of all its threads since it started, in steps of a clock tick (mostly 10 ms).
    ///
    /// # Errors
    /// As [`Process::name`]. A process that nobody has waited for yet has ended, too.
    pub fn cpu(&self) -> io::Result<Cpu> {
        Ok(self.living()?.own)
    }

    /// What it used and holds, children aside.
    ///
    /// # Errors
    /// As [`Process::cpu`].
    pub fn usage(&self) -> io::Result<ProcessUsage> {
        self.usage_by(&self.living()?)
    }

    /// Resident memory in bytes, exact. Looks at all pages of the process.
    ///
    /// # Errors
    /// As [`Process::cpu`], or it belongs to another user.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        self.rolled_up("Rss:")
    }

    /// As [`Process::resident_bytes`], but of a page that n processes share, the n-th part.
    ///
    /// # Errors
    /// As [`Process::resident_bytes`].
    pub fn proportional_bytes(&self) -> io::Result<u64> {
        self.rolled_up("Pss:")
    }

    /// Bytes of the network namespace that the process is in. Without a namespace of its own that is
    /// everything that the machine receives and sends.
    ///
    /// # Errors
    /// As [`Process::cpu`], or it belongs to another user.
    pub fn network_bytes(&self) -> io::Result<NetworkBytes> {
        NetworkBytes::parse(&self.read("net/dev")?).ok_or_else(|| self.unreadable("net/dev"))
    }

    /// As /proc/pid/stat has it, even if the process has ended and nobody has waited for it yet.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Stat::parse(&self.read("stat")?).ok_or_else(|| self.unreadable("stat"))
    }

    /// The usage of a process whose `stat` has just been read.
    pub(crate) fn usage_by(&self, stat: &Stat) -> io::Result<ProcessUsage> {
        let statm = self.read("statm")?;
        let pages = parse_resident_pages(&statm).ok_or_else(|| self.unreadable("statm"))?;
        Ok(ProcessUsage {
            cpu_user: stat.own.user,
            cpu_system: stat.own.system,
            resident_bytes: pages.saturating_mul(rustix::param::page_size() as u64),
            threads: stat.threads,
            descriptors: self.descriptors().ok(),
        })
    }

    fn living(&self) -> io::Result<Stat> {
        let stat = self.stat()?;
        if stat.ended {
            return Err(self.ended());
        }
        Ok(stat)
    }

    fn descriptors(&self) -> io::Result<u32> {
        let count = count_entries(&format!("/proc/{}/fd", self.0))?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn rolled_up(&self, field: &str) -> io::Result<u64> {
        let rollup = self.read("smaps_rollup")?;
        parse_rolled_up(&rollup, field).ok_or_else(|| self.unreadable("smaps_rollup"))
    }

    /// A command's name need not be UTF-8, and `stat` has it too.
    fn read(&self, file: &str) -> io::Result<String> {
        match fs::read(format!("/proc/{}/{file}", self.0)) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if is_ended(&error) => Err(self.ended()),
            Err(error) => Err(error),
        }
    }

    fn ended(&self) -> io::Error {
        let message = format!("process {} has ended", self.0);
        io::Error::new(io::ErrorKind::NotFound, message)
    }

    fn unreadable(&self, file: &str) -> io::Error {
        let message = format!("/proc/{}/{file} does not look as in proc(5)", self.0);
        io::Error::new(io::ErrorKind::InvalidData, message)
    }
}

/// Of a folder of /proc. Since Linux 6.2 the size of a folder of descriptors is the number of its entries;
/// before, it is 0. Asking for it takes 20 µs; reading a folder of 18,000 entries takes 16 ms.
fn count_entries(folder: &str) -> io::Result<u64> {
    match fs::metadata(folder)?.len() {
        0 => Ok(fs::read_dir(folder)?.count() as u64),
        size => Ok(size),
    }
}

/// A process may end before its file is opened or before it is read.
fn is_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// Field 2 of /proc/pid/statm.
fn parse_resident_pages(statm: &str) -> Option<u64> {
    statm.split(' ').nth(1)?.parse().ok()
}

fn parse_rolled_up(rollup: &str, field: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests;
