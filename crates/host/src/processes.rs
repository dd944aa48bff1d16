//! A process and all its descendants, as if they were one.
//!
//! Invariant: CPU time never goes back, though processes come and go between two readings.
//!
//! A process that was seen once belongs to the tree until it ends, even if its parent ends first and init
//! takes it over. One that starts and is taken over between two readings is not noticed.
//!
//! Where to read next: `processes/account.rs`, the CPU time of those that ended.

mod account;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use crate::process::{Process, ProcessUsage, Stat};
use account::{Account, Times};

/// A process with its descendants.
#[derive(Clone, Debug)]
pub struct Processes {
    root: Process,
    /// Seen at the last reading, with the time when each started.
    members: BTreeMap<u32, u64>,
    account: Account,
}

impl Processes {
    /// The process with this identifier and what it starts. Reads nothing yet.
    #[must_use]
    pub fn tree(pid: u32) -> Self {
        Self {
            root: Process::new(pid),
            members: BTreeMap::new(),
            account: Account::default(),
        }
    }

    /// The processes of this name, but for this one and its children; of those that started each other only the first. The
    /// kernel knows the first 15 bytes of a name, and so only these are compared.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn named(name: &str) -> io::Result<Vec<u32>> {
        const KNOWN: usize = 15;
        let own = std::process::id();
        let name = name.get(..KNOWN).unwrap_or(name);
        let mut stats = all_processes()?;
        stats.retain(|pid, stat| {
            let is_own = *pid == own || stat.parent == own;
            !is_own && !stat.ended && Process::new(*pid).name().is_ok_and(|of| of == name)
        });
        let is_first = |(_, stat): &(&u32, &Stat)| !stats.contains_key(&stat.parent);
        Ok(stats.iter().filter(is_first).map(|(pid, _)| *pid).collect())
    }

    /// The process that the tree began with.
    #[must_use]
    pub fn root(&self) -> Process {
        self.root
    }

    /// The sums over all. CPU time includes that of children that have ended.
    ///
    /// Memory is the sum of the resident memory of each: pages that several share count several times, so
    /// it is an upper bound; [`Processes::resident_bytes`] has the true sum. Reads one file of each process
    /// of the machine, at some 20 µs, and a few files of each of the tree.
    ///
    /// # Errors
    /// All have ended ([`io::ErrorKind::NotFound`]), or /proc cannot be read.
    pub fn usage(&mut self) -> io::Result<ProcessUsage> {
        let stats = self.look()?;
        let mut sum = ProcessUsage {
            descriptors: Some(0),
            ..ProcessUsage::default()
        };
        for (pid, stat) in living(&stats) {
            let Some(usage) = unless_ended(Process::new(pid).usage_by(stat))? else {
                continue;
            };
            sum.resident_bytes += usage.resident_bytes;
            sum.threads += usage.threads;
            sum.descriptors = sum
                .descriptors
                .zip(usage.descriptors)
                .map(|(sum, of_one)| sum + of_one);
        }
        let cpu = self.account.used();
        sum.cpu_user = cpu.user;
        sum.cpu_system = cpu.system;
        Ok(sum)
    }

    /// Resident memory in bytes, exact: of a page that n processes share each has the n-th part (`Pss`), so
    /// that pages shared within the tree count once, and those shared with others in part. A process
    /// without children has its `Rss`. Looks at all pages of the tree: 10 ms for each GB.
    ///
    /// # Errors
    /// As [`Processes::usage`], or one belongs to another user.
    pub fn resident_bytes(&mut self) -> io::Result<u64> {
        let stats = self.look()?;
        let pids: Vec<u32> = living(&stats).map(|(pid, _)| pid).collect();
        if let [alone] = pids[..] {
            return Process::new(alone).resident_bytes();
        }
        let mut sum = 0;
        for pid in pids {
            sum += unless_ended(Process::new(pid).proportional_bytes())?.unwrap_or_default();
        }
        Ok(sum)
    }

    /// Finds who belongs to the tree now, and takes their CPU time to account.
    fn look(&mut self) -> io::Result<BTreeMap<u32, Stat>> {
        let mut stats = all_processes()?;
        let found = self.find(&stats);
        stats.retain(|pid, _| found.contains(pid));
        if living(&stats).next().is_none() {
            let message = format!("process {} and its children have ended", self.root.pid());
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        self.account
            .update(stats.iter().map(|(&pid, stat)| Times::of(pid, stat)));
        self.members = stats
            .iter()
            .map(|(&pid, stat)| (pid, stat.started))
            .collect();
        Ok(stats)
    }

    /// Those who belonged to the tree before, and all their descendants.
    fn find(&self, stats: &BTreeMap<u32, Stat>) -> BTreeSet<u32> {
        let same = |(pid, started): (&u32, &u64)| {
            let stat = stats.get(pid)?;
            (stat.started == *started).then_some(*pid)
        };
        let mut open: Vec<u32> = if self.members.is_empty() {
            vec![self.root.pid()]
        } else {
            self.members.iter().filter_map(same).collect()
        };
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (&pid, stat) in stats {
            children.entry(stat.parent).or_default().push(pid);
        }
        let mut found = BTreeSet::new();
        while let Some(pid) = open.pop() {
            if found.insert(pid) {
                open.extend(children.get(&pid).into_iter().flatten());
            }
        }
        found
    }
}

fn living(stats: &BTreeMap<u32, Stat>) -> impl Iterator<Item = (u32, &Stat)> {
    stats
        .iter()
        .filter(|(_, stat)| !stat.ended)
        .map(|(&pid, stat)| (pid, stat))
}

/// Leaves out those that end meanwhile, and those that this user may not see.
fn all_processes() -> io::Result<BTreeMap<u32, Stat>> {
    let mut stats = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let Ok(stat) = Process::new(pid).stat() {
            stats.insert(pid, stat);
        }
    }
    Ok(stats)
}

fn unless_ended<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
