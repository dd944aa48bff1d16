//! CPU time and memory of a process, from /proc.
//!
//! Deliberately absent: child processes. A broker of several processes is the sum of several of these.

use std::io;
use std::ops::Sub;
use std::time::Duration;

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
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// A running process of this machine.
#[derive(Clone, Copy, Debug)]
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

    /// CPU time of all its threads since it started, in steps of a clock tick (mostly 10 ms).
    ///
    /// # Errors
    /// The process has ended, or /proc cannot be read.
    pub fn cpu(&self) -> io::Result<Cpu> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        parse_stat(&stat, rustix::param::clock_ticks_per_second())
            .ok_or_else(|| unreadable("stat", self.0))
    }

    /// Resident memory in bytes. Asks for `smaps_rollup`, which is exact; `status` may lag behind by
    /// some pages per thread.
    ///
    /// # Errors
    /// The process has ended or belongs to another user.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.0))?;
        parse_resident(&rollup).ok_or_else(|| unreadable("smaps_rollup", self.0))
    }
}

fn unreadable(file: &str, pid: u32) -> io::Error {
    let message = format!("/proc/{pid}/{file} does not look as in proc(5)");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Fields 14 and 15 of /proc/pid/stat. Field 2 is the command's name in parentheses and may itself have
/// blanks and parentheses.
fn parse_stat(stat: &str, ticks_per_second: u64) -> Option<Cpu> {
    let (_, from_third) = stat.rsplit_once(") ")?;
    let mut fields = from_third.split(' ').skip(11);
    let mut ticks = || -> Option<Duration> {
        let ticks: u64 = fields.next()?.parse().ok()?;
        Some(Duration::from_secs_f64(
            ticks as f64 / ticks_per_second as f64,
        ))
    };
    Some(Cpu {
        user: ticks()?,
        system: ticks()?,
    })
}

fn parse_resident(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 75 0 0 20 0 4 0 99 1 1";
        let cpu = parse_stat(stat, 100).unwrap();
        assert_eq!(cpu.user, Duration::from_millis(2_500));
        assert_eq!(cpu.system, Duration::from_millis(750));
        assert_eq!(cpu.total(), Duration::from_millis(3_250));
    }

    #[test]
    fn own_process_can_be_read() {
        assert!(Process::own().cpu().is_ok());
        let before = Process::own().resident_bytes().unwrap();
        let grown = vec![1_u8; 32 << 20];
        let after = Process::own().resident_bytes().unwrap();
        assert!(
            after >= before + (30 << 20),
            "{before} {after} {}",
            grown.len()
        );
    }

    #[test]
    fn a_process_that_is_not_is_an_error() {
        assert!(Process::new(u32::MAX).cpu().is_err());
    }
}
