//! Ports and the tracking of connections: what limits how many may exist between the same two machines.

use super::{Complaint, Kernel, Need, Remedy, Row, Severity, judged, listed, sysctl};
use crate::kernel::need::Side;
use crate::kernel::reading::{PortRange, Unread};

const PORT_RANGE: &str = "net.ipv4.ip_local_port_range";
const RESERVED_PORTS: &str = "net.ipv4.ip_local_reserved_ports";
const TW_REUSE: &str = "net.ipv4.tcp_tw_reuse";
const CONNTRACK_MAX: &str = "net.netfilter.nf_conntrack_max";

/// All ports that a program without privileges may have.
const WIDEST: PortRange = PortRange {
    first: 1024,
    last: 65535,
};

/// On the side of the load. Addresses, ports and targets multiply.
pub(super) fn port_range(kernel: &Kernel, need: &Need) -> Row {
    if need.side == Side::Broker {
        return listed(PORT_RANGE, &kernel.port_range);
    }
    let wanted = need.connections.div_ceil(need.connections_per_port());
    let text = format!("at least {wanted} ports");
    judged(PORT_RANGE, &kernel.port_range, text, |range| {
        (range.len() < wanted).then(|| too_few_ports(need, *range, wanted))
    })
}

fn too_few_ports(need: &Need, now: PortRange, wanted: u64) -> Complaint {
    let why = format!(
        "source addresses ({}), targets ({}) and ports ({}) make at most {} connections",
        need.source_addresses.max(1),
        need.targets.max(1),
        now.len(),
        now.len().saturating_mul(need.connections_per_port()),
    );
    let (why, remedy) = if wanted <= WIDEST.len() {
        (why, Some(sysctl(PORT_RANGE, WIDEST)))
    } else {
        let ports = WIDEST.len() * u64::from(need.targets.max(1));
        let enough = need.connections.div_ceil(ports);
        let why = format!("{why}; with all ports ({WIDEST}) it takes {enough} source addresses");
        (why, None)
    };
    Complaint {
        severity: Severity::Limits,
        why,
        remedy,
    }
}

/// On the side of the broker: whether its port may be taken before it starts.
pub(super) fn reserved_ports(kernel: &Kernel, need: &Need) -> Row {
    let (Side::Broker, Some(port)) = (need.side, need.listening_port) else {
        return listed(RESERVED_PORTS, &kernel.reserved_ports);
    };
    if kernel
        .port_range
        .as_ref()
        .is_ok_and(|range| !range.contains(port))
    {
        return listed(RESERVED_PORTS, &kernel.reserved_ports);
    }
    let text = format!("with {port}");
    judged(RESERVED_PORTS, &kernel.reserved_ports, text, |reserved| {
        (!reserved.contains(port)).then(|| Complaint {
            severity: Severity::Note,
            why: format!(
                "{port} is one of the ports that connecting programs get ({PORT_RANGE}); one may have \
                 it when the broker starts"
            ),
            remedy: Some(sysctl(RESERVED_PORTS, reserved.with(port))),
        })
    })
}

/// On the side of the load, if its ports do not suffice for a second run while those of the first wait.
pub(super) fn tw_reuse(kernel: &Kernel, need: &Need) -> Row {
    let two_runs = need.connections.saturating_mul(2);
    let suffice =
        |range: &PortRange| range.len().saturating_mul(need.connections_per_port()) >= two_runs;
    if need.side == Side::Broker || kernel.port_range.as_ref().is_ok_and(suffice) {
        return listed(TW_REUSE, &kernel.tw_reuse);
    }
    // 2 is for connections over loopback only.
    let wanted = if need.targets_loopback { "1 or 2" } else { "1" };
    judged(TW_REUSE, &kernel.tw_reuse, wanted.into(), |&now| {
        let reused = now == 1 || (now == 2 && need.targets_loopback);
        (!reused).then(|| Complaint {
            severity: Severity::Note,
            why: "a port waits for 60 s after its connection was closed; a second run within that time \
                  finds too few"
                .into(),
            remedy: Some(sysctl(TW_REUSE, 1)),
        })
    })
}

/// Without the kernel's module there is no file and no limit.
pub(super) fn conntrack_max(kernel: &Kernel, need: &Need) -> Row {
    if kernel.conntrack_max == Err(Unread::Absent) {
        return listed(CONNTRACK_MAX, &kernel.conntrack_max);
    }
    let tracked = kernel.conntrack_count.as_ref().map_or(0, |&count| count);
    let wanted = need.connections.saturating_add(tracked);
    let text = format!("at least {wanted}");
    judged(CONNTRACK_MAX, &kernel.conntrack_max, text, |&now| {
        (now < wanted).then(|| Complaint {
            severity: Severity::Limits,
            why: "if a rule of the firewall asks for the state of connections, packets of those that do \
                  not fit the table are dropped"
                .into(),
            remedy: Some(Remedy {
                permanent: format!(
                    "`{CONNTRACK_MAX} = {wanted}` in /etc/sysctl.d/90-heraldmq.conf, and `nf_conntrack` \
                     in /etc/modules-load.d, since the setting exists only with the module"
                ),
                ..sysctl(CONNTRACK_MAX, wanted)
            }),
        })
    })
}
