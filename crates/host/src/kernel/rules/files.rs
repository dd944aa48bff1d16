//! Descriptors: each connection is one.

use super::{Complaint, Kernel, Need, Remedy, Row, Severity, at_least, judged};

/// Descriptors of a process that are no connections: standard streams, epoll, timers, files, listeners.
const OTHERS: u64 = 128;

fn wanted(need: &Need) -> u64 {
    need.connections_per_process().saturating_add(OTHERS)
}

/// Only the hard limit is judged: broker and load tool raise the soft one to it by themselves.
pub(super) fn open_files(kernel: &Kernel, need: &Need) -> Row {
    let wanted = wanted(need);
    let text = format!("at least {wanted} (hard)");
    judged("open files", &kernel.open_files, text, |limits| {
        (limits.hard? < wanted).then(|| Complaint {
            severity: Severity::Limits,
            why: "a process cannot hold more connections; only root may raise a hard limit".into(),
            remedy: Some(raise_limit(kernel, wanted)),
        })
    })
}

/// Even root cannot set a limit above `fs.nr_open`.
fn raise_limit(kernel: &Kernel, wanted: u64) -> Remedy {
    let limit = format!("ulimit -n {wanted}");
    let enough = kernel.nr_open.as_ref().is_ok_and(|&now| now >= wanted);
    Remedy {
        command: match enough {
            true => limit,
            false => format!("sysctl -w fs.nr_open={wanted} && {limit}"),
        },
        permanent: format!(
            "`LimitNOFILE={wanted}` in the systemd unit, or `* - nofile {wanted}` in \
             /etc/security/limits.d/90-heraldmq.conf"
        ),
        line: None,
    }
}

/// Holds for a process even if its limit on open files is higher.
pub(super) fn nr_open(kernel: &Kernel, need: &Need) -> Row {
    at_least(
        "fs.nr_open",
        &kernel.nr_open,
        wanted(need),
        Severity::Limits,
        "no process may have more descriptors, nor root raise a limit above it",
    )
}

pub(super) fn file_max(kernel: &Kernel, need: &Need) -> Row {
    let others = OTHERS.saturating_mul(need.processes.max(1).into());
    let needed = need.sockets().saturating_add(others);
    // What is open already goes on top if it is known; it is little on a machine that is not loaded.
    let open = kernel.file_nr.as_ref().map_or(0, |open| open.0[0]);
    at_least(
        "fs.file-max",
        &kernel.file_max,
        needed.saturating_add(open),
        Severity::Limits,
        "all processes of the machine together cannot have more open; root's may",
    )
}
