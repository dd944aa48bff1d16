//! Kernel settings that limit or slow many connections.
//!
//! Call order: [`Kernel::read`]; [`Kernel::check`] for what is wrong, or [`Kernel::table`] for all settings.
//!
//! Invariant: a setting that matters to a [`Need`] and cannot be read is a finding, never an all-clear.
//!
//! Deliberately absent: changing settings; `kernel.threads-max` and `kernel.pid_max`, since neither the
//! broker nor the load tool has threads for connections; `net.ipv4.tcp_fin_timeout`, which many lists name
//! though ports of closed connections do not wait by it.
//!
//! Where to read next: `kernel/rules.rs`, what is wanted of each setting and why.

mod cgroup;
mod finding;
mod need;
mod printed;
mod reading;
mod rules;

use std::path::Path;

pub use finding::{Complaint, Finding, Remedy, Row, Severity};
pub use need::{Need, Side};
pub use printed::{Matters, PRINTED, Printed};

use cgroup::{MemoryQuota, Quota};
use reading::{Bytes, Numbers, OpenFiles, PortRange, Ports, Reading, Source};

/// The settings, as they were when they were read.
#[derive(Clone, Debug)]
pub struct Kernel {
    open_files: Reading<OpenFiles>,
    nr_open: Reading<u64>,
    file_max: Reading<u64>,
    /// Allocated, free among them, the same as `file_max`.
    file_nr: Reading<Numbers<3>>,
    conntrack_max: Reading<u64>,
    conntrack_count: Reading<u64>,
    /// In pages: below the first TCP is free, from the second on it saves, the third is the end.
    tcp_mem: Reading<Numbers<3>>,
    /// In bytes: least, at first, most.
    tcp_rmem: Reading<Numbers<3>>,
    tcp_wmem: Reading<Numbers<3>>,
    rmem_max: Reading<u64>,
    wmem_max: Reading<u64>,
    port_range: Reading<PortRange>,
    reserved_ports: Reading<Ports>,
    tw_reuse: Reading<u64>,
    somaxconn: Reading<u64>,
    max_syn_backlog: Reading<u64>,
    syncookies: Reading<u64>,
    congestion_control: Reading<String>,
    max_map_count: Reading<u64>,
    memory_available: Reading<Bytes>,
    memory_quota: Reading<MemoryQuota>,
    process_quota: Reading<Quota>,
    page_bytes: u64,
    /// Of [`PRINTED`], in its order.
    printed: Vec<Option<Reading<String>>>,
}

/// A setting that reports print, on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrintedHere {
    /// As it is printed.
    pub printed: &'static Printed,
    /// Its value, or why it is not known; `None`: sysctl(8) does not know it.
    pub now: Option<String>,
    /// It matters to the broker, and what is printed is more than what there is.
    pub is_raised: bool,
}

impl Kernel {
    /// Of this machine and process.
    #[must_use]
    pub fn read() -> Self {
        Self::read_at(Path::new("/"))
    }

    /// As the files below `root` have it, which stands for `/`.
    #[must_use]
    pub fn read_at(root: &Path) -> Self {
        let source = Source::new(root);
        Self {
            open_files: source.open_files(),
            nr_open: source.sysctl("fs.nr_open"),
            file_max: source.sysctl("fs.file-max"),
            file_nr: source.sysctl("fs.file-nr"),
            conntrack_max: source.sysctl("net.netfilter.nf_conntrack_max"),
            conntrack_count: source.sysctl("net.netfilter.nf_conntrack_count"),
            tcp_mem: source.sysctl("net.ipv4.tcp_mem"),
            tcp_rmem: source.sysctl("net.ipv4.tcp_rmem"),
            tcp_wmem: source.sysctl("net.ipv4.tcp_wmem"),
            rmem_max: source.sysctl("net.core.rmem_max"),
            wmem_max: source.sysctl("net.core.wmem_max"),
            port_range: source.sysctl("net.ipv4.ip_local_port_range"),
            reserved_ports: source.sysctl("net.ipv4.ip_local_reserved_ports"),
            tw_reuse: source.sysctl("net.ipv4.tcp_tw_reuse"),
            somaxconn: source.sysctl("net.core.somaxconn"),
            max_syn_backlog: source.sysctl("net.ipv4.tcp_max_syn_backlog"),
            syncookies: source.sysctl("net.ipv4.tcp_syncookies"),
            congestion_control: source.sysctl("net.ipv4.tcp_congestion_control"),
            max_map_count: source.sysctl("vm.max_map_count"),
            memory_available: source.memory_available(),
            memory_quota: cgroup::memory(&source),
            process_quota: cgroup::processes(&source),
            page_bytes: rustix::param::page_size() as u64,
            printed: PRINTED
                .iter()
                .map(|printed| printed::now(&source, printed))
                .collect(),
        }
    }

    /// What stands in the way of the need, worst first.
    #[must_use]
    pub fn check(&self, need: &Need) -> Vec<Finding> {
        let rows = self.table(need).into_iter();
        let mut findings: Vec<Finding> = rows.filter_map(Row::into_finding).collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.complaint.severity));
        findings
    }

    /// The settings that reports print, in the order of [`PRINTED`].
    #[must_use]
    pub fn printed(&self) -> Vec<PrintedHere> {
        let here = |(printed, now): (&'static Printed, &Option<Reading<String>>)| {
            let shown = |now: &Reading<String>| match now {
                Ok(value) => value.split_whitespace().collect::<Vec<_>>().join(" "),
                Err(unread) => unread.to_string(),
            };
            PrintedHere {
                printed,
                now: now.as_ref().map(shown),
                is_raised: now
                    .as_ref()
                    .is_some_and(|now| printed::is_raised(printed, now)),
            }
        };
        PRINTED.iter().zip(&self.printed).map(here).collect()
    }

    /// All settings, in an order to read: files, addresses, sockets, memory.
    #[must_use]
    pub fn table(&self, need: &Need) -> Vec<Row> {
        rules::ALL.iter().map(|rule| rule(self, need)).collect()
    }
}

#[cfg(test)]
mod tests;
