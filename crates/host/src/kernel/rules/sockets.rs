//! Queues, buffers and congestion control of sockets.

use super::{Complaint, Kernel, Need, Row, Severity, at_least, judged, listed, sysctl};
use crate::kernel::need::Side;
use crate::kernel::reading::{Numbers, Reading};

const SOMAXCONN: &str = "net.core.somaxconn";
const MAX_SYN_BACKLOG: &str = "net.ipv4.tcp_max_syn_backlog";
const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";

/// The queue that HeraldMQ asks for when it listens; what the kernel allows above is not used.
const BACKLOG: u64 = 4096;

/// Shorter queues are not worth a word.
const SHORTEST_BACKLOG: u64 = 128;

/// Less does not hold what 100 Mbit/s bring in a round trip of 5 ms.
const WINDOW_BYTES: u64 = 64 << 10;

/// As many as come in a second, so that a pause of the broker that short drops none.
fn backlog(need: &Need) -> u64 {
    let in_a_second = match need.connects_per_second {
        Some(rate) => need.connections.min(rate.ceil() as u64),
        None => need.connections,
    };
    in_a_second.clamp(SHORTEST_BACKLOG, BACKLOG)
}

/// On the side of the broker.
pub(super) fn somaxconn(kernel: &Kernel, need: &Need) -> Row {
    if need.side == Side::LoadTool {
        return listed(SOMAXCONN, &kernel.somaxconn);
    }
    at_least(
        SOMAXCONN,
        &kernel.somaxconn,
        backlog(need),
        Severity::Slows,
        "connections that come faster than they are accepted are dropped, and try again after 1 s or \
         more; holds for listeners opened after the change",
    )
}

/// On the side of the broker. With SYN cookies, the default, the kernel goes by `somaxconn` alone.
pub(super) fn max_syn_backlog(kernel: &Kernel, need: &Need) -> Row {
    let cookies = kernel
        .syncookies
        .as_ref()
        .is_ok_and(|&cookies| cookies != 0);
    if need.side == Side::LoadTool || cookies {
        return listed(MAX_SYN_BACKLOG, &kernel.max_syn_backlog);
    }
    at_least(
        MAX_SYN_BACKLOG,
        &kernel.max_syn_backlog,
        backlog(need),
        Severity::Slows,
        "without net.ipv4.tcp_syncookies, connections that wait for the client's answer are dropped when \
         they are more",
    )
}

/// Over loopback.
pub(super) fn congestion_control(kernel: &Kernel, need: &Need) -> Row {
    if !need.targets_loopback {
        return listed(CONGESTION_CONTROL, &kernel.congestion_control);
    }
    let wanted = "not bbr".to_owned();
    judged(
        CONGESTION_CONTROL,
        &kernel.congestion_control,
        wanted,
        |now| {
            now.starts_with("bbr").then(|| Complaint {
            severity: Severity::Slows,
            why: "bbr paces what it sends by times that loopback does not have: latencies measured there \
                  are 3 to 12 times as long"
                .into(),
            remedy: Some(sysctl(CONGESTION_CONTROL, "cubic")),
        })
        },
    )
}

pub(super) fn tcp_rmem(kernel: &Kernel, _: &Need) -> Row {
    window("net.ipv4.tcp_rmem", &kernel.tcp_rmem)
}

pub(super) fn tcp_wmem(kernel: &Kernel, _: &Need) -> Row {
    window("net.ipv4.tcp_wmem", &kernel.tcp_wmem)
}

/// Only the most is judged. A buffer has a size and takes memory only while data is in it, so that even a
/// large one costs an idle connection nothing.
fn window(setting: &'static str, reading: &Reading<Numbers<3>>) -> Row {
    let wanted = format!("third at least {WINDOW_BYTES}");
    judged(
        setting,
        reading,
        wanted,
        |&Numbers([least, first, most])| {
            (most < WINDOW_BYTES).then(|| Complaint {
                severity: Severity::Slows,
                why: format!("a connection with much traffic stops after each {most} bytes"),
                remedy: Some(sysctl(setting, Numbers([least, first, WINDOW_BYTES]))),
            })
        },
    )
}

/// Caps what programs ask for themselves, which neither the broker nor the load tool does.
pub(super) fn rmem_max(kernel: &Kernel, _: &Need) -> Row {
    listed("net.core.rmem_max", &kernel.rmem_max)
}

/// As [`rmem_max`].
pub(super) fn wmem_max(kernel: &Kernel, _: &Need) -> Row {
    listed("net.core.wmem_max", &kernel.wmem_max)
}
