//! The settings that published performance reports and tuning guides of brokers change, with the values that they print, and what
//! each of them does for HeraldMQ.
//!
//! Sources: BifroMQ's "Linux Kernel Tuning" (versions 2.0 to 3.1), EMQX's "Performance Tuning (Linux)".

use super::reading::{Reading, Source};

/// Whom a setting helps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Matters {
    /// The machine of the broker, from some number of connections on.
    ToBroker,
    /// The machine that makes the load.
    ToLoad,
    /// A machine whose firewall asks for the state of connections, and no other.
    ToFirewall,
    /// Nobody: HeraldMQ does nothing that the setting limits, or the default does as well.
    ToNobody,
}

impl Matters {
    /// In a table.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::ToBroker => "yes",
            Self::ToLoad => "for the load test",
            Self::ToFirewall => "with a stateful firewall",
            Self::ToNobody => "no",
        }
    }
}

/// A setting as it is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Printed {
    /// As sysctl(8) names it, or as it is called where it is none.
    pub setting: &'static str,
    /// Values, as printed.
    pub value: &'static str,
    /// Who prints it.
    pub by: &'static str,
    /// Whom it helps.
    pub matters: Matters,
    /// What it does.
    pub effect: &'static str,
}

impl Printed {
    /// Whether sysctl(8) knows it.
    #[must_use]
    pub fn is_sysctl(&self) -> bool {
        self.setting.contains('.')
    }

    /// A single number, if it is one.
    fn number(&self) -> Option<u64> {
        self.value.parse().ok()
    }
}

const BOTH: &str = "BifroMQ, EMQX";

/// All of them: memory, files, connection tracking, sockets, addresses.
pub const PRINTED: [Printed; 26] = [
    Printed {
        setting: "vm.max_map_count",
        value: "221184",
        by: "BifroMQ",
        matters: Matters::ToNobody,
        effect: "mappings of a process; a JVM with RocksDB maps each file, HeraldMQ needs some hundreds",
    },
    Printed {
        setting: "swap",
        value: "off",
        by: "EMQX",
        matters: Matters::ToBroker,
        effect: "memory that was swapped out makes latencies of milliseconds and more",
    },
    Printed {
        setting: "open files (nofile)",
        value: "2097152",
        by: BOTH,
        matters: Matters::ToBroker,
        effect: "each connection is one; the broker raises its soft limit to the hard one by itself",
    },
    Printed {
        setting: "fs.nr_open",
        value: "2097152",
        by: BOTH,
        matters: Matters::ToBroker,
        effect: "the highest hard limit of open files of a process; the default of 1048576 is enough for a million \
                 connections less some hundred",
    },
    Printed {
        setting: "fs.file-max",
        value: "2097152",
        by: BOTH,
        matters: Matters::ToBroker,
        effect: "open files of the whole machine; current kernels have no limit in practice",
    },
    Printed {
        setting: "processes (nproc)",
        value: "unlimited",
        by: "BifroMQ",
        matters: Matters::ToNobody,
        effect: "threads of a user; HeraldMQ has a few for each core, and none for connections",
    },
    Printed {
        setting: "net.netfilter.nf_conntrack_buckets",
        value: "262144",
        by: "BifroMQ",
        matters: Matters::ToFirewall,
        effect: "buckets of the table of tracked connections; with fewer than a quarter of the connections, each packet \
                 takes longer to be found",
    },
    Printed {
        setting: "net.netfilter.nf_conntrack_max",
        value: "1048576",
        by: BOTH,
        matters: Matters::ToFirewall,
        effect: "tracked connections; packets of those that do not fit are dropped",
    },
    Printed {
        setting: "net.nf_conntrack_max",
        value: "1048576",
        by: BOTH,
        matters: Matters::ToFirewall,
        effect: "another name of net.netfilter.nf_conntrack_max",
    },
    Printed {
        setting: "net.netfilter.nf_conntrack_tcp_timeout_fin_wait",
        value: "30",
        by: "BifroMQ",
        matters: Matters::ToFirewall,
        effect: "seconds that a connection that one side has closed stays in the table",
    },
    Printed {
        setting: "net.netfilter.nf_conntrack_tcp_timeout_time_wait",
        value: "30",
        by: BOTH,
        matters: Matters::ToFirewall,
        effect: "seconds that a closed connection stays in the table: matters if many come and go",
    },
    Printed {
        setting: "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
        value: "15",
        by: "BifroMQ",
        matters: Matters::ToFirewall,
        effect: "seconds that a connection that the peer has closed stays in the table",
    },
    Printed {
        setting: "net.netfilter.nf_conntrack_tcp_timeout_established",
        value: "300",
        by: "BifroMQ",
        matters: Matters::ToNobody,
        effect: "seconds that a silent connection stays in the table. Do not lower it below the clients' keep alive and a \
                 half: the firewall then forgets clients that are silent but connected. The default is five days",
    },
    Printed {
        setting: "net.core.wmem_max",
        value: "16777216",
        by: BOTH,
        matters: Matters::ToNobody,
        effect: "caps send buffers that a program asks for itself, which HeraldMQ does not: the kernel sizes them by \
                 net.ipv4.tcp_wmem",
    },
    Printed {
        setting: "net.core.wmem_default",
        value: "262144",
        by: BOTH,
        matters: Matters::ToNobody,
        effect: "send buffers of sockets that are not TCP",
    },
    Printed {
        setting: "net.core.rmem_max",
        value: "16777216",
        by: BOTH,
        matters: Matters::ToNobody,
        effect: "caps receive buffers that a program asks for itself, which HeraldMQ does not: the kernel sizes them by \
                 net.ipv4.tcp_rmem",
    },
    Printed {
        setting: "net.core.rmem_default",
        value: "262144",
        by: BOTH,
        matters: Matters::ToNobody,
        effect: "receive buffers of sockets that are not TCP",
    },
    Printed {
        setting: "net.ipv4.tcp_rmem",
        value: "1024 4096 16777216",
        by: BOTH,
        matters: Matters::ToNobody,
        effect: "least, first and most bytes of a receive buffer. Memory is taken only while data is in it; the default most \
                 (6 MiB) is more than a client is allowed to send in a second",
    },
    Printed {
        setting: "net.ipv4.tcp_wmem",
        value: "1024 4096 16777216",
        by: BOTH,
        matters: Matters::ToNobody,
        effect: "the same of a send buffer (4 MiB)",
    },
    Printed {
        setting: "net.core.optmem_max",
        value: "16777216",
        by: BOTH,
        matters: Matters::ToNobody,
        effect: "bytes of options of a socket, such as control messages, which MQTT brokers do not send",
    },
    Printed {
        setting: "net.core.netdev_max_backlog",
        value: "16384",
        by: BOTH,
        matters: Matters::ToNobody,
        effect: "packets that wait for a core between the network card and TCP; raise it if the second column of \
                 /proc/net/softnet_stat grows",
    },
    Printed {
        setting: "net.core.somaxconn",
        value: "32768",
        by: "EMQX",
        matters: Matters::ToBroker,
        effect: "connections that wait to be accepted; HeraldMQ asks for 4096, which is the default, and more has no effect",
    },
    Printed {
        setting: "net.ipv4.tcp_max_syn_backlog",
        value: "16384",
        by: "EMQX",
        matters: Matters::ToNobody,
        effect: "connections that wait for the client's answer; without effect while net.ipv4.tcp_syncookies is on, as it is \
                 by default",
    },
    Printed {
        setting: "net.ipv4.ip_local_port_range",
        value: "1024 65535",
        by: "EMQX",
        matters: Matters::ToLoad,
        effect: "ports of outgoing connections: of the load test, of bridges. The broker's own ports have to be in \
                 net.ipv4.ip_local_reserved_ports if they are in the range",
    },
    Printed {
        setting: "net.ipv4.tcp_max_tw_buckets",
        value: "1048576",
        by: "EMQX",
        matters: Matters::ToNobody,
        effect: "closed connections that wait for late packets; what is above it does not wait, which does no harm",
    },
    Printed {
        setting: "net.ipv4.tcp_fin_timeout",
        value: "15",
        by: "EMQX",
        matters: Matters::ToNobody,
        effect: "seconds until a connection that only this side has closed is forgotten; ports do not wait by it",
    },
];

/// What a machine has for a setting that is printed, or why that is not known; `None`: it is no sysctl.
pub(super) fn now(source: &Source, printed: &Printed) -> Option<Reading<String>> {
    printed.is_sysctl().then(|| source.sysctl(printed.setting))
}

/// A printed number that matters, and is more than there is: it is worth setting.
pub(super) fn is_raised(printed: &Printed, now: &Reading<String>) -> bool {
    let now = now.as_ref().ok().and_then(|now| now.parse::<u64>().ok());
    let more = printed
        .number()
        .zip(now)
        .is_some_and(|(value, now)| value > now);
    matches!(printed.matters, Matters::ToBroker | Matters::ToFirewall) && more
}
