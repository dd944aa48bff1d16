//! Watching the memory of the process (P8): above the high-water mark publishers are not read, further
//! up new connections are refused.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use broker_core::Pressure;
use mqtt_session::Timestamp;

use crate::node::Node;

/// Shares of the available memory that the marks default to, in percent.
const HIGH_WATER_PERCENT: u64 = 80;
const REFUSE_PERCENT: u64 = 90;

/// Resident memory of this process in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The memory that this process may use: the machine's, or its cgroup's if that is less.
pub(crate) fn available_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let machine = total
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        * 1024;
    let cgroup = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .iter()
    .find_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    Some(cgroup.map_or(machine, |limit| limit.min(machine)))
}

/// Looks at the memory once and tells the loops.
pub(crate) fn check(node: &Arc<Node>) {
    if let Some(store) = node.opened_store() {
        let stats = store.stats(Timestamp(node.cluster_now_ms()));
        node.inbox_filters
            .store(stats.filter_bytes, Ordering::Relaxed);
    }
    let Some(used) = resident_bytes() else { return };
    let settings = Arc::clone(&node.settings.read());
    let percent = |percent: u64| available_bytes().map_or(u64::MAX, |total| total / 100 * percent);
    let mark = |set: u64, default| if set == 0 { percent(default) } else { set };
    let refuse = mark(settings.memory_refuse, REFUSE_PERCENT);
    let high_water = mark(settings.memory_high_water, HIGH_WATER_PERCENT);
    let pressure = match used {
        used if used >= refuse => Pressure::Refuse,
        used if used >= high_water => Pressure::StopReading,
        _ => Pressure::None,
    };
    let before = node.pressure();
    node.set_pressure(pressure);
    if pressure > before {
        tracing::warn!(used, high_water, refuse, ?pressure, "memory is scarce");
    } else if pressure < before {
        tracing::info!(used, ?pressure, "memory is less scarce");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_some_of_the_machine() {
        let used = resident_bytes().unwrap();
        assert!(used > 100_000 && used < available_bytes().unwrap());
    }
}
