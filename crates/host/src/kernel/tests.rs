//! With a folder that stands for the machine: first one that has all that is needed, then with one file
//! changed.

use super::*;

use crate::tree::Tree;

const LIMITS: &str = "proc/self/limits";
const NR_OPEN: &str = "proc/sys/fs/nr_open";
const FILE_MAX: &str = "proc/sys/fs/file-max";
const FILE_NR: &str = "proc/sys/fs/file-nr";
const CONNTRACK_MAX: &str = "proc/sys/net/netfilter/nf_conntrack_max";
const CONNTRACK_COUNT: &str = "proc/sys/net/netfilter/nf_conntrack_count";
const TCP_MEM: &str = "proc/sys/net/ipv4/tcp_mem";
const TCP_RMEM: &str = "proc/sys/net/ipv4/tcp_rmem";
const TCP_WMEM: &str = "proc/sys/net/ipv4/tcp_wmem";
const RMEM_MAX: &str = "proc/sys/net/core/rmem_max";
const WMEM_MAX: &str = "proc/sys/net/core/wmem_max";
const PORT_RANGE: &str = "proc/sys/net/ipv4/ip_local_port_range";
const RESERVED_PORTS: &str = "proc/sys/net/ipv4/ip_local_reserved_ports";
const TW_REUSE: &str = "proc/sys/net/ipv4/tcp_tw_reuse";
const SOMAXCONN: &str = "proc/sys/net/core/somaxconn";
const MAX_SYN_BACKLOG: &str = "proc/sys/net/ipv4/tcp_max_syn_backlog";
const SYNCOOKIES: &str = "proc/sys/net/ipv4/tcp_syncookies";
const CONGESTION_CONTROL: &str = "proc/sys/net/ipv4/tcp_congestion_control";
const MAX_MAP_COUNT: &str = "proc/sys/vm/max_map_count";
const MEMINFO: &str = "proc/meminfo";
const CGROUP: &str = "proc/self/cgroup";

/// What is enough for [`broker`] and [`tool`], and hardly more.
const ENOUGH: [(&str, &str); 21] = [
    (
        LIMITS,
        "Max open files            1024       1128      files\n",
    ),
    (NR_OPEN, "1128\n"),
    (FILE_MAX, "1200\n"),
    (FILE_NR, "72\t0\t1200\n"),
    (CONNTRACK_MAX, "1050\n"),
    (CONNTRACK_COUNT, "50\n"),
    (TCP_MEM, "750\t1000\t1500\n"),
    (TCP_RMEM, "4096\t16384\t65536\n"),
    (TCP_WMEM, "4096\t16384\t65536\n"),
    (RMEM_MAX, "1\n"),
    (WMEM_MAX, "1\n"),
    (PORT_RANGE, "32768\t33767\n"),
    (RESERVED_PORTS, "\n"),
    (TW_REUSE, "1\n"),
    (SOMAXCONN, "1000\n"),
    (MAX_SYN_BACKLOG, "1000\n"),
    (SYNCOOKIES, "0\n"),
    (CONGESTION_CONTROL, "cubic\n"),
    (MAX_MAP_COUNT, "65530\n"),
    (MEMINFO, "MemTotal: 9000 kB\nMemAvailable:    5000 kB\n"),
    (CGROUP, "0::/\n"),
];

fn broker() -> Need {
    Need {
        listening_port: Some(1883),
        ..Need::new(Side::Broker, 1000)
    }
}

fn tool() -> Need {
    Need::new(Side::LoadTool, 1000)
}

/// [`ENOUGH`], with other files in the place of some.
fn machine(changes: &[(&str, &str)]) -> Tree {
    let tree = Tree::new();
    std::fs::create_dir_all(tree.root().join("sys/fs/cgroup")).unwrap();
    for (path, content) in ENOUGH.iter().chain(changes) {
        tree.write(path, content);
    }
    tree
}

fn check(changes: &[(&str, &str)], need: &Need) -> Vec<Finding> {
    Kernel::read_at(machine(changes).root()).check(need)
}

/// Setting, severity and command of each finding.
fn found(changes: &[(&str, &str)], need: &Need) -> Vec<(&'static str, Severity, Option<String>)> {
    let findings = check(changes, need).into_iter();
    findings
        .map(|finding| {
            let Complaint {
                severity, remedy, ..
            } = finding.complaint;
            (
                finding.setting,
                severity,
                remedy.map(|remedy| remedy.command),
            )
        })
        .collect()
}

/// That all is well with `enough`, and that `short` gives one finding.
#[track_caller]
fn judges(
    need: &Need,
    path: &str,
    enough: &[&str],
    short: &str,
    setting: &'static str,
    severity: Severity,
    command: Option<&str>,
) {
    for enough in enough {
        assert_eq!(check(&[(path, enough)], need), [], "{enough}");
    }
    let expected = (setting, severity, command.map(str::to_owned));
    assert_eq!(found(&[(path, short)], need), [expected]);
}

#[test]
fn just_enough_is_enough() {
    assert_eq!(check(&[], &broker()), []);
    assert_eq!(check(&[], &tool()), []);
}

#[test]
fn open_files() {
    judges(
        &broker(),
        LIMITS,
        &[
            "Max open files 1128 1128 files",
            "Max open files 16 1129 files",
            "Max open files unlimited unlimited files",
        ],
        "Max cpu time 1 1 seconds\nMax open files 1024 1127 files",
        "open files",
        Severity::Limits,
        Some("ulimit -n 1128"),
    );
}

#[test]
fn a_limit_that_root_cannot_raise_has_another_command() {
    let both = [
        (LIMITS, "Max open files 1024 1127 files"),
        (NR_OPEN, "1127"),
    ];
    let raise = "sysctl -w fs.nr_open=1128";
    assert_eq!(
        found(&both, &broker()),
        [
            (
                "open files",
                Severity::Limits,
                Some(format!("{raise} && ulimit -n 1128"))
            ),
            ("fs.nr_open", Severity::Limits, Some(raise.into())),
        ]
    );
    judges(
        &broker(),
        NR_OPEN,
        &["1128", "1048576"],
        "1127",
        "fs.nr_open",
        Severity::Limits,
        Some(raise),
    );
}

#[test]
fn processes_share_connections_and_not_limits() {
    let need = Need {
        processes: 4,
        ..tool()
    };
    let shared = [
        (LIMITS, "Max open files 378 378 files"),
        (NR_OPEN, "378"),
        (FILE_MAX, "1584"),
    ];
    assert_eq!(check(&shared, &need), []);
    let less = [(LIMITS, "Max open files 377 377 files"), (NR_OPEN, "378")];
    assert_eq!(found(&less, &need)[0].0, "open files");
    let less = [(FILE_MAX, "1583")];
    assert_eq!(found(&less, &need)[0].0, "fs.file-max");
}

#[test]
fn file_max() {
    judges(
        &broker(),
        FILE_MAX,
        &["1200", "9223372036854775807"],
        "1199",
        "fs.file-max",
        Severity::Limits,
        Some("sysctl -w fs.file-max=1200"),
    );
}

#[test]
fn conntrack() {
    judges(
        &broker(),
        CONNTRACK_MAX,
        &["1050", "1051"],
        "1049",
        "net.netfilter.nf_conntrack_max",
        Severity::Limits,
        Some("sysctl -w net.netfilter.nf_conntrack_max=1050"),
    );
    let tree = machine(&[]);
    tree.remove(CONNTRACK_MAX);
    tree.remove(CONNTRACK_COUNT);
    assert_eq!(Kernel::read_at(tree.root()).check(&broker()), []);
}

#[test]
fn memory_of_all_buffers() {
    judges(
        &broker(),
        TCP_MEM,
        &["1 1000 1", "1 1001 1"],
        "750 999 1500",
        "net.ipv4.tcp_mem",
        Severity::Slows,
        Some("sysctl -w net.ipv4.tcp_mem=\"750 1000 1500\""),
    );
}

#[test]
fn most_of_one_buffer() {
    for (path, setting) in [
        (TCP_RMEM, "net.ipv4.tcp_rmem"),
        (TCP_WMEM, "net.ipv4.tcp_wmem"),
    ] {
        judges(
            &broker(),
            path,
            &["1 1 65536", "4096 16384 4194304"],
            "4096 16384 65535",
            setting,
            Severity::Slows,
            Some(&format!("sysctl -w {setting}=\"4096 16384 65536\"")),
        );
    }
}

#[test]
fn ports_of_the_load() {
    judges(
        &tool(),
        PORT_RANGE,
        &["32768 33767", "1024 65535"],
        "32768 33766",
        "net.ipv4.ip_local_port_range",
        Severity::Limits,
        Some("sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\""),
    );
    let range = [(PORT_RANGE, "1 10")];
    assert_eq!(check(&range, &broker()), []);
    let more = Need {
        source_addresses: 50,
        targets: 2,
        ..tool()
    };
    assert_eq!(check(&range, &more), []);
}

#[test]
fn a_range_that_ends_before_it_begins_is_not_understood() {
    let findings = check(&[(PORT_RANGE, "5000 4999")], &tool());
    assert_eq!(findings[0].now, "not understood (\"5000 4999\")");
}

#[test]
fn no_range_of_ports_is_enough_for_one_address() {
    let need = Need::new(Side::LoadTool, 64_513);
    let findings = check(&[(PORT_RANGE, "1024 65535")], &need);
    let finding = findings
        .iter()
        .find(|finding| finding.setting == "net.ipv4.ip_local_port_range")
        .unwrap();
    assert_eq!(finding.complaint.remedy, None);
    let why = &finding.complaint.why;
    assert!(why.contains("it takes 2 source addresses"), "{why}");
}

#[test]
fn a_listening_port_that_others_may_get() {
    judges(
        &broker(),
        PORT_RANGE,
        &["1884 65535", "1024 1882"],
        "1024 65535",
        "net.ipv4.ip_local_reserved_ports",
        Severity::Note,
        Some("sysctl -w net.ipv4.ip_local_reserved_ports=1883"),
    );
    let reserved = |list: &str| {
        found(
            &[(PORT_RANGE, "1883 1883"), (RESERVED_PORTS, list)],
            &broker(),
        )
    };
    assert_eq!(reserved("80,1000-1883\n"), []);
    assert_eq!(reserved("1883\n"), []);
    assert_eq!(
        reserved("80,1000-1882\n")[0].2.as_deref(),
        Some("sysctl -w net.ipv4.ip_local_reserved_ports=80,1000-1882,1883")
    );
}

#[test]
fn ports_that_wait_after_closing() {
    let command = Some("sysctl -w net.ipv4.tcp_tw_reuse=1");
    let setting = "net.ipv4.tcp_tw_reuse";
    judges(
        &tool(),
        TW_REUSE,
        &["1"],
        "2",
        setting,
        Severity::Note,
        command,
    );
    let loopback = Need {
        targets_loopback: true,
        connections: 500,
        source_addresses: 1,
        ..tool()
    };
    let fewer_ports = |value| found(&[(TW_REUSE, value), (PORT_RANGE, "32768 33766")], &loopback);
    assert_eq!(fewer_ports("2"), []);
    assert_eq!(fewer_ports("1"), []);
    assert_eq!(fewer_ports("0")[0].0, setting);
    // Ports for two runs.
    let twice = [(TW_REUSE, "0"), (PORT_RANGE, "32768 34767")];
    assert_eq!(check(&twice, &tool()), []);
}

#[test]
fn queue_of_those_that_connect() {
    judges(
        &broker(),
        SOMAXCONN,
        &["1000", "4096"],
        "999",
        "net.core.somaxconn",
        Severity::Slows,
        Some("sysctl -w net.core.somaxconn=1000"),
    );
    assert_eq!(check(&[(SOMAXCONN, "1")], &tool()), []);
    let slowly = Need {
        connects_per_second: Some(199.5),
        ..broker()
    };
    assert_eq!(check(&[(SOMAXCONN, "200")], &slowly), []);
    assert_eq!(found(&[(SOMAXCONN, "199")], &slowly).len(), 1);
    let more_than_is_used = Need::new(Side::Broker, 1_000_000);
    let kernel = Kernel::read_at(machine(&[(SOMAXCONN, "4096")]).root());
    let findings = kernel.check(&more_than_is_used);
    assert!(findings.iter().all(|f| f.setting != "net.core.somaxconn"));
}

#[test]
fn queue_of_those_that_have_not_answered() {
    judges(
        &broker(),
        MAX_SYN_BACKLOG,
        &["1000", "1001"],
        "999",
        "net.ipv4.tcp_max_syn_backlog",
        Severity::Slows,
        Some("sysctl -w net.ipv4.tcp_max_syn_backlog=1000"),
    );
    let short = [(MAX_SYN_BACKLOG, "1"), (SYNCOOKIES, "1")];
    assert_eq!(check(&short, &broker()), []);
}

#[test]
fn pacing_over_loopback() {
    let local = |connections| Need {
        targets_loopback: true,
        ..Need::new(Side::Broker, connections)
    };
    judges(
        &local(400),
        CONGESTION_CONTROL,
        &["cubic", "reno"],
        "bbr",
        "net.ipv4.tcp_congestion_control",
        Severity::Slows,
        Some("sysctl -w net.ipv4.tcp_congestion_control=cubic"),
    );
    assert_eq!(check(&[(CONGESTION_CONTROL, "bbr")], &broker()), []);
}

#[test]
fn maps() {
    judges(
        &broker(),
        MAX_MAP_COUNT,
        &["65530", "262144"],
        "65529",
        "vm.max_map_count",
        Severity::Note,
        Some("sysctl -w vm.max_map_count=65530"),
    );
}

#[test]
fn memory_of_the_machine() {
    judges(
        &broker(),
        MEMINFO,
        &["MemAvailable: 5000 kB", "MemAvailable: 5001 kB"],
        "MemFree: 9 kB\nMemAvailable: 4999 kB",
        "memory available",
        Severity::Limits,
        None,
    );
    // Both ends of a connection, and what the program holds.
    let local = Need {
        targets_loopback: true,
        bytes_per_connection: 1024,
        ..Need::new(Side::Broker, 1000)
    };
    let memory = |kilobytes: u32| {
        let meminfo = format!("MemAvailable: {kilobytes} kB");
        check(&[(MEMINFO, &meminfo)], &local)
            .iter()
            .any(|finding| finding.setting == "memory available")
    };
    assert!(memory(10_999));
    assert!(!memory(11_000));
}

/// Of version 2, in the group `/a/b`.
fn quota(files: &[(&str, &str)]) -> Vec<(&'static str, Severity, Option<String>)> {
    let folder = |path: &str| format!("sys/fs/cgroup/a/{path}");
    let tree = machine(&[(CGROUP, "0::/a/b\n")]);
    for (path, content) in files {
        tree.write(&folder(path), content);
    }
    let findings = Kernel::read_at(tree.root()).check(&broker()).into_iter();
    findings
        .map(|finding| (finding.setting, finding.complaint.severity, None))
        .collect()
}

#[test]
fn memory_of_the_control_group() {
    const SETTING: &str = "memory of the control group";
    let memory = |max, current| quota(&[("b/memory.max", max), ("b/memory.current", current)]);
    assert_eq!(memory("max", "7"), []);
    assert_eq!(memory("5120000", "0"), []);
    assert_eq!(memory("5120001", "1"), []);
    assert_eq!(memory("5119999", "0"), [(SETTING, Severity::Limits, None)]);
    assert_eq!(memory("5120001", "2"), [(SETTING, Severity::Note, None)]);
    assert_eq!(memory("much", "2"), [(SETTING, Severity::Note, None)]);
    assert_eq!(
        quota(&[
            ("b/memory.max", "max"),
            ("memory.max", "4096"),
            ("memory.current", "0"),
        ]),
        [(SETTING, Severity::Limits, None)],
        "a limit of the group above"
    );
}

#[test]
fn processes_of_the_control_group() {
    const SETTING: &str = "processes of the control group";
    let pids = |max, current| quota(&[("b/pids.max", max), ("b/pids.current", current)]);
    assert_eq!(pids("max", "7"), []);
    assert_eq!(pids("135", "7"), []);
    assert_eq!(pids("134", "7"), [(SETTING, Severity::Limits, None)]);
    assert_eq!(pids("?", "7"), [(SETTING, Severity::Note, None)]);
    assert_eq!(pids("135", "?"), [(SETTING, Severity::Note, None)]);
}

#[test]
fn control_groups_of_version_1() {
    let memory = |limit: &str| {
        let tree = machine(&[(CGROUP, "4:cpu,memory:/docker/x\n1:name=systemd:/\n0::/\n")]);
        // As in a container, whose own group is mounted as the root.
        tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", limit);
        tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "0");
        let table = Kernel::read_at(tree.root()).table(&broker());
        let row = table
            .into_iter()
            .find(|row| row.setting == "memory of the control group")
            .unwrap();
        (row.now, row.complaint.map(|complaint| complaint.severity))
    };
    let no_limit = memory("9223372036854771712\n");
    assert_eq!(no_limit, ("no limit".into(), None));
    let enough = memory("5120000\n");
    assert_eq!(enough, ("4 MiB (0 MiB used)".into(), None));
    let short = memory("5119999\n");
    assert_eq!(short, ("4 MiB (0 MiB used)".into(), Some(Severity::Limits)));
}

#[test]
fn control_groups_that_are_not_mounted_are_not_known() {
    let tree = machine(&[]);
    std::fs::remove_dir(tree.root().join("sys/fs/cgroup")).unwrap();
    let findings = Kernel::read_at(tree.root()).check(&broker());
    let settings: Vec<_> = findings.iter().map(|finding| finding.setting).collect();
    assert_eq!(
        settings,
        [
            "memory of the control group",
            "processes of the control group"
        ]
    );
}

/// Files that verdicts rest on. Left out are those that only add to what is needed, and congestion control,
/// of which any name may be right.
const JUDGED: [&str; 14] = [
    LIMITS,
    NR_OPEN,
    FILE_MAX,
    TCP_MEM,
    TCP_RMEM,
    TCP_WMEM,
    PORT_RANGE,
    RESERVED_PORTS,
    TW_REUSE,
    SOMAXCONN,
    MAX_SYN_BACKLOG,
    MAX_MAP_COUNT,
    MEMINFO,
    CGROUP,
];

/// With needs for which all of them matter.
fn check_all(tree: &Tree) -> Vec<Finding> {
    let kernel = Kernel::read_at(tree.root());
    let broker = Need {
        listening_port: Some(33_000),
        connections: 400,
        targets_loopback: true,
        ..broker()
    };
    let mut findings = kernel.check(&broker);
    findings.extend(kernel.check(&tool()));
    findings
}

#[test]
fn what_is_missing_or_garbled_is_a_note() {
    let reserved = [(RESERVED_PORTS, "33000")];
    assert_eq!(check_all(&machine(&reserved)), []);
    for path in JUDGED {
        let missing = machine(&reserved);
        missing.remove(path);
        let garbled = |garbage: &[u8]| {
            let tree = machine(&reserved);
            tree.write(path, garbage);
            tree
        };
        let trees = [
            missing,
            garbled(b"Max open files 5\nMemAvailable: lots\n5 x -1"),
            garbled(b"\xff\xfe"),
            garbled(&[b'9'; 4000]),
        ];
        for tree in &trees {
            let findings = check_all(tree);
            assert_ne!(findings, [], "{path}");
            for finding in findings {
                assert_eq!(finding.complaint.severity, Severity::Note, "{finding}");
            }
        }
    }
}

#[test]
fn without_any_file_all_that_matters_is_a_note() {
    let tree = Tree::new();
    let findings = check_all(&tree);
    assert!(findings.len() > JUDGED.len());
    for finding in findings {
        assert_eq!(finding.complaint.severity, Severity::Note, "{finding}");
        assert_eq!(finding.complaint.remedy, None, "{finding}");
    }
}

#[test]
fn findings_are_sorted_and_the_table_has_all() {
    let changes = [
        (MAX_MAP_COUNT, "1"),
        (SOMAXCONN, "1"),
        (FILE_MAX, "1"),
        (NR_OPEN, "1"),
    ];
    let kernel = Kernel::read_at(machine(&changes).root());
    let severities: Vec<Severity> = kernel
        .check(&broker())
        .iter()
        .map(|finding| finding.complaint.severity)
        .collect();
    use Severity::{Limits, Note, Slows};
    assert_eq!(severities, [Limits, Limits, Slows, Note]);
    let table = kernel.table(&broker());
    assert_eq!(table.len(), rules::ALL.len());
    let row = |setting| table.iter().find(|row| row.setting == setting).unwrap();
    assert_eq!(row("net.core.rmem_max").now, "1");
    assert_eq!(row("net.core.rmem_max").wanted, "any");
    assert_eq!(row("open files").now, "1024 (soft), 1128 (hard)");
    assert_eq!(row("open files").complaint, None);
    assert_eq!(row("memory available").now, "4 MiB");
    assert_eq!(row("memory available").wanted, "at least 5 MiB");
    assert_eq!(row("memory of the control group").now, "no limit");
}

#[test]
fn more_than_there_can_be_is_no_panic() {
    let need = Need {
        processes: u32::MAX,
        bytes_per_connection: u64::MAX,
        source_addresses: u32::MAX,
        targets: u32::MAX,
        connects_per_second: Some(f64::INFINITY),
        targets_loopback: true,
        ..Need::new(Side::LoadTool, u64::MAX)
    };
    let kernel = Kernel::read_at(machine(&[]).root());
    assert!(!kernel.check(&need).is_empty());
    let nothing = Need {
        processes: 0,
        source_addresses: 0,
        targets: 0,
        ..Need::new(Side::LoadTool, 0)
    };
    let findings = kernel.check(&nothing);
    assert!(findings.iter().all(|f| f.setting != "open files"));
}

#[test]
fn this_machine_can_be_read() {
    let kernel = Kernel::read();
    assert!(kernel.open_files.is_ok());
    assert!(kernel.memory_available.is_ok());
    assert!(kernel.somaxconn.is_ok());
}
