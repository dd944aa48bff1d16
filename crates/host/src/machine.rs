//! The machine in a few words, for a reader who compares figures.
//!
//! Deliberately absent: its name and addresses, which have no place in a report.

use std::fs;
use std::path::Path;
use std::thread;

/// A machine. What cannot be read is empty or 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Machine {
    /// As /proc/cpuinfo names it; empty on architectures whose file has no `model name`.
    pub cpu: String,
    /// Cores that this process may use, by affinity and by the quota of its cgroup.
    pub cores: u32,
    /// Of the machine, without what the kernel took for itself at the start.
    pub memory_bytes: u64,
    /// Its name and version, as in `Linux 6.1.0`.
    pub kernel: String,
    /// What TCP connections use unless a program asks for another.
    pub congestion_control: String,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn read() -> Self {
        Self {
            cores: thread::available_parallelism()
                .map_or(0, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
            ..Self::read_at(Path::new("/"))
        }
    }

    /// Tasks that run or wait for the processor or a disk, on average over a minute; `None` if the system does not say.
    #[must_use]
    pub fn load() -> Option<f64> {
        let text = fs::read_to_string("/proc/loadavg").ok()?;
        text.split_whitespace().next()?.parse().ok()
    }

    /// What the files below `root` tell: all but the cores.
    fn read_at(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let sysctl = |name: &str| read(&format!("proc/sys/{name}")).trim().to_owned();
        let kernel = format!("{} {}", sysctl("kernel/ostype"), sysctl("kernel/osrelease"));
        Self {
            cpu: parse_cpu(&read("proc/cpuinfo")).unwrap_or_default(),
            cores: 0,
            memory_bytes: parse_memory(&read("proc/meminfo"), "MemTotal:").unwrap_or_default(),
            kernel: kernel.trim().to_owned(),
            congestion_control: sysctl("net/ipv4/tcp_congestion_control"),
        }
    }
}

fn parse_cpu(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start().strip_prefix(':')?.trim().to_owned())
}

/// A line of /proc/meminfo, in bytes.
pub(crate) fn parse_memory(meminfo: &str, field: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::tree::Tree;

    #[test]
    fn the_files_are_read() {
        let tree = Tree::new();
        tree.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC\n");
        tree.write(
            "proc/meminfo",
            "MemTotal:       24683636 kB\nMemFree: 1 kB\n",
        );
        tree.write("proc/sys/kernel/ostype", "Linux\n");
        tree.write("proc/sys/kernel/osrelease", "6.1.0\n");
        tree.write("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
        let expected = Machine {
            cpu: "AMD EPYC".into(),
            cores: 0,
            memory_bytes: 24_683_636 << 10,
            kernel: "Linux 6.1.0".into(),
            congestion_control: "cubic".into(),
        };
        assert_eq!(Machine::read_at(tree.root()), expected);
    }

    #[test]
    fn what_is_not_there_is_empty() {
        assert_eq!(Machine::read_at(Tree::new().root()), Machine::default());
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::read();
        assert!(machine.cores > 0);
        assert!(machine.memory_bytes > 0);
        assert!(machine.kernel.starts_with("Linux "));
    }
}
