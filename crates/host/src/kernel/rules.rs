//! What is wanted of each setting, and what comes of it otherwise.
//!
//! A rule makes one row of one setting. Rules know nothing of each other, except that a remedy may need
//! another setting changed before.

mod addresses;
mod files;
mod memory;
mod sockets;

use std::fmt::Display;

use super::finding::{Complaint, Remedy, Row, Severity};
use super::need::Need;
use super::{Kernel, Reading};

/// Judges one setting.
pub(super) type Rule = fn(&Kernel, &Need) -> Row;

/// In the order of the table.
pub(super) const ALL: [Rule; 19] = [
    files::open_files,
    files::nr_open,
    files::file_max,
    addresses::port_range,
    addresses::reserved_ports,
    addresses::tw_reuse,
    addresses::conntrack_max,
    sockets::somaxconn,
    sockets::max_syn_backlog,
    sockets::congestion_control,
    sockets::tcp_rmem,
    sockets::tcp_wmem,
    sockets::rmem_max,
    sockets::wmem_max,
    memory::available,
    memory::quota,
    memory::tcp_mem,
    memory::max_map_count,
    memory::process_quota,
];

/// The row of a setting that matters: a note if it is not known, else what `judge` says of it.
fn judged<T: Display>(
    setting: &'static str,
    reading: &Reading<T>,
    wanted: String,
    judge: impl FnOnce(&T) -> Option<Complaint>,
) -> Row {
    let complaint = match reading {
        Ok(value) => judge(value),
        Err(_) => Some(Complaint {
            severity: Severity::Note,
            why: "cannot be judged".into(),
            remedy: None,
        }),
    };
    Row {
        wanted,
        complaint,
        ..listed(setting, reading)
    }
}

/// The row of a setting that does not matter to the need.
fn listed<T: Display>(setting: &'static str, reading: &Reading<T>) -> Row {
    Row {
        setting,
        now: match reading {
            Ok(value) => value.to_string(),
            Err(unread) => unread.to_string(),
        },
        wanted: "any".into(),
        complaint: None,
    }
}

/// The row of a sysctl that has to be a number of at least `wanted`.
fn at_least(
    setting: &'static str,
    reading: &Reading<u64>,
    wanted: u64,
    severity: Severity,
    why: &str,
) -> Row {
    judged(setting, reading, format!("at least {wanted}"), |&now| {
        (now < wanted).then(|| Complaint {
            severity,
            why: why.into(),
            remedy: Some(sysctl(setting, wanted)),
        })
    })
}

/// Sets a sysctl.
fn sysctl(setting: &str, value: impl Display) -> Remedy {
    let value = value.to_string();
    let quoted = match value.contains(' ') {
        true => format!("\"{value}\""),
        false => value.clone(),
    };
    Remedy {
        command: format!("sysctl -w {setting}={quoted}"),
        permanent: format!("`{setting} = {value}` in /etc/sysctl.d/90-heraldmq.conf"),
        line: Some(format!("{setting} = {value}")),
    }
}
