//! Memory, of the machine and of what it grants; and processes, which are granted likewise.

use super::{Complaint, Kernel, Need, Row, Severity, at_least, judged, sysctl};
use crate::kernel::cgroup::MemoryQuota;
use crate::kernel::need::Side;
use crate::kernel::reading::{Bytes, Numbers};

/// Kernel memory of an idle TCP socket: the socket itself, its inode, directory entry, open file and its
/// place in epoll. 4.4 KB were counted in the slabs of Linux 6.18 with 18,000 sockets; the rest is for
/// slabs that are not full.
const SOCKET_BYTES: u64 = 5 << 10;

/// More than the broker starts on a machine of 64 cores.
const THREADS_OF_BROKER: u64 = 128;

/// More than a process of the load tool starts.
const THREADS_OF_TOOL: u64 = 4;

/// The kernel's default.
const MAP_COUNT: u64 = 65_530;

fn wanted_bytes(need: &Need) -> Bytes {
    let sockets = need.sockets().saturating_mul(SOCKET_BYTES);
    let program = need.connections.saturating_mul(need.bytes_per_connection);
    Bytes(sockets.saturating_add(program))
}

/// Rounded up, so that it never looks like less than what is there.
fn wanted_text(Bytes(bytes): Bytes) -> String {
    format!("at least {} MiB", bytes.div_ceil(1 << 20))
}

/// What the estimate rests on.
fn estimate(need: &Need) -> String {
    let sockets = need.sockets();
    let program = match need.bytes_per_connection {
        0 => "nothing of the program, whose need is not known".to_owned(),
        bytes => format!("{bytes} bytes of the program for each connection"),
    };
    format!(
        "estimated from {SOCKET_BYTES} bytes of the kernel for each of {sockets} idle sockets, and \
         {program}; data under way comes on top"
    )
}

pub(super) fn available(kernel: &Kernel, need: &Need) -> Row {
    let bytes = wanted_bytes(need);
    let wanted = wanted_text(bytes);
    let reading = &kernel.memory_available;
    judged("memory available", reading, wanted, |&now| {
        (now < bytes).then(|| Complaint {
            severity: Severity::Limits,
            why: estimate(need),
            remedy: None,
        })
    })
}

/// The kernel's memory for sockets counts against the group of the program. What is used is partly page
/// cache, which gives way, so that its amount alone does not limit.
pub(super) fn quota(kernel: &Kernel, need: &Need) -> Row {
    let bytes = wanted_bytes(need);
    let wanted = wanted_text(bytes);
    let reading = &kernel.memory_quota;
    judged(
        "memory of the control group",
        reading,
        wanted,
        |&MemoryQuota(quota)| {
            if Bytes(quota.left()?) >= bytes {
                return None;
            }
            let (severity, why) = match Bytes(quota.max?) < bytes {
                true => (Severity::Limits, estimate(need)),
                false => (
                    Severity::Note,
                    format!(
                        "less is left, unless much of it is page cache; {}",
                        estimate(need)
                    ),
                ),
            };
            Some(Complaint {
                severity,
                why,
                remedy: None,
            })
        },
    )
}

/// Pages of all TCP buffers together.
pub(super) fn tcp_mem(kernel: &Kernel, need: &Need) -> Row {
    const SETTING: &str = "net.ipv4.tcp_mem";
    let pages = need.sockets();
    let wanted = format!("second at least {pages}");
    judged(SETTING, &kernel.tcp_mem, wanted, |&Numbers([_, now, _])| {
        (now < pages).then(|| Complaint {
            severity: Severity::Slows,
            why: format!(
                "with a page of {} bytes under way on each socket the kernel shrinks all windows, and \
                 drops data above the third number; idle sockets take none",
                kernel.page_bytes
            ),
            remedy: Some(sysctl(SETTING, tcp_mem_for(pages))),
        })
    })
}

/// In the proportions of the kernel's own.
fn tcp_mem_for(pages: u64) -> Numbers<3> {
    Numbers([pages / 4 * 3, pages, pages.saturating_add(pages / 2)])
}

/// Nothing here maps memory for a connection; the default is enough for all.
pub(super) fn max_map_count(kernel: &Kernel, _: &Need) -> Row {
    at_least(
        "vm.max_map_count",
        &kernel.max_map_count,
        MAP_COUNT,
        Severity::Note,
        "it is below the kernel's default; a program that maps many pieces of memory ends when there are \
         more",
    )
}

pub(super) fn process_quota(kernel: &Kernel, need: &Need) -> Row {
    let each = match need.side {
        Side::Broker => THREADS_OF_BROKER,
        Side::LoadTool => THREADS_OF_TOOL,
    };
    let threads = each * u64::from(need.processes.max(1));
    let wanted = format!("{threads} free");
    let reading = &kernel.process_quota;
    judged("processes of the control group", reading, wanted, |quota| {
        (quota.left()? < threads).then(|| Complaint {
            severity: Severity::Limits,
            why: format!("no more can be started; {each} threads are counted for a process"),
            remedy: None,
        })
    })
}
