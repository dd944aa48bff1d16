//! What an operator sees, from file and environment to values and messages.

use std::{
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    time::Duration,
};

use proptest::prelude::*;

use crate::{
    Config, ConfigError, CpuShare, Host, InboxQos0, Loaded, LogFormat, MaximumQos, QueueFull,
    SplitPolicy, example, load::Loader, reference,
};

/// The minimal file of the published performance reports, as printed there.
const REPORTS_FILE: &str = r#"bootstrap: true

mqttServerConfig:
  tcpListener:
    port: 1883

clusterConfig:
  env: "Test"
  host: 192.168.0.11
  port: 8899
  clusterDomainName:
  seedEndpoints: 192.168.0.11:8899
"#;

/// The file of a node of the reports' cluster, as printed there.
const REPORTS_NODE: &str = r#"bootstrap: true
clusterConfig:
  env: "Test"
  host:
  port: 8899
  seedEndpoints: "192.168.0.11:8899,192.168.0.12:8899,192.168.0.13:8899"
"#;

/// Loads `source` as the file `f.yml`.
fn file(source: impl AsRef<[u8]>) -> Result<Loaded, ConfigError> {
    let mut loader = Loader::default();
    loader.file(Path::new("f.yml"), source.as_ref());
    loader.finish()
}

fn config(source: &str) -> Config {
    file(source)
        .unwrap_or_else(|error| panic!("{source}\n{error}"))
        .config
}

fn refused(source: impl AsRef<[u8]>) -> String {
    file(source).expect_err("this must be refused").to_string()
}

/// Loads with environment and `--set`, over `source` if there is one.
fn layers(
    source: Option<&str>,
    env: &[(&str, &str)],
    sets: &[&str],
) -> Result<Loaded, ConfigError> {
    let path = source.map(|source| {
        let path = scratch("layers.yml");
        fs::write(&path, source).expect("the folder for temporary files is writable");
        path
    });
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let loaded = Config::load(path.as_deref(), env, &sets, None);
    if let Some(path) = path {
        fs::remove_file(path).expect("the file was written just now");
    }
    loaded
}

/// A path of this test thread's own.
fn scratch(name: &str) -> PathBuf {
    let thread = format!("{:?}", std::thread::current().id());
    let own: String = thread.chars().filter(char::is_ascii_digit).collect();
    std::env::temp_dir().join(format!("herald-config-{}-{own}-{name}", std::process::id()))
}

fn layers_refused(source: Option<&str>, env: &[(&str, &str)], sets: &[&str]) -> String {
    layers(source, env, sets)
        .expect_err("this must be refused")
        .to_string()
}

/// Host (empty if unset) and port of each listener.
fn listeners(config: &Config) -> Vec<(String, u16)> {
    let listed = config.mqtt_server_config.tcp_listeners.iter();
    listed
        .map(|l| {
            (
                l.host.as_ref().map(Host::to_string).unwrap_or_default(),
                l.port,
            )
        })
        .collect()
}

fn at(host: &str, port: u16) -> (String, u16) {
    (host.to_owned(), port)
}

// The file.

#[test]
fn the_reports_minimal_file_works_as_printed() {
    let loaded = file(REPORTS_FILE).expect("the file is right");
    let cluster = &loaded.config.cluster_config;
    assert!(loaded.config.bootstrap);
    assert_eq!(listeners(&loaded.config), [at("", 1883)]);
    assert_eq!(cluster.env, "Test");
    assert_eq!(
        cluster.host.as_ref().map(Host::as_str),
        Some("192.168.0.11")
    );
    assert_eq!(cluster.port, 8899);
    assert_eq!(cluster.cluster_domain_name, None);
    let seeds: Vec<String> = cluster
        .seed_endpoints
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(seeds, ["192.168.0.11:8899"]);
    assert!(cluster.is_enabled());
}

#[test]
fn without_content_everything_has_its_default() {
    for source in [
        "",
        "\n",
        "# nothing\n",
        "---\n",
        "null\n",
        "{}",
        "limits:\nmqtt:\nhttp:\n",
    ] {
        assert_eq!(config(source), Config::default(), "{source:?}");
    }
}

#[test]
fn defaults_are_the_documented_ones() {
    let config = Config::default();
    let limits = &config.limits;
    assert_eq!(
        limits.connection.bytes_per_second_in.map(u64::from),
        Some(524_288)
    );
    assert_eq!(limits.connection.publishes_per_second, None);
    assert_eq!(limits.connection.connect_timeout, Duration::from_secs(45));
    assert_eq!(
        limits.connection.hold_publisher,
        Some(Duration::from_secs(5))
    );
    assert_eq!(limits.session.queue_full, QueueFull::DropNewest);
    assert_eq!(config.mqtt.maximum_qos.level(), 2);
    assert_eq!(config.mqtt.keep_alive_maximum_seconds, None);
    assert_eq!(config.sys.interval, Some(Duration::from_secs(10)));
    assert_eq!(config.http.port, None);
    assert_eq!(config.allow_anonymous, None);
    assert_eq!(config.event_loops, None);
    assert_eq!(config.data_dir, Path::new("data"));
    assert_eq!(listeners(&config), [at("127.0.0.1", 1883)]);
}

#[test]
fn values_of_every_type_are_read() {
    let config = config(
        "
dataDir: /var/lib/heraldmq
eventLoops: 3
allowAnonymous: false
http: {host: '::1', port: 0}
log: {level: off, format: json}
mqtt: {maximumQos: 1, responseInformation: 0x10, keepAliveMaximum: 60}
inbox: {qos0: never}
limits:
  connection: {bytesPerSecondIn: 0, receiveMaximum: 65535, holdPublisherMs: 0, connectTimeoutMs: 250}
  session: {queueFull: dropOldest, queueBytes: 18446744073709551615}
sys: {intervalSeconds: 0}
",
    );
    assert_eq!(config.data_dir, Path::new("/var/lib/heraldmq"));
    assert_eq!(config.event_loops.map(u16::from), Some(3));
    assert_eq!(config.allow_anonymous, Some(false));
    assert_eq!(config.http.host.as_str(), "::1");
    assert_eq!(config.http.port, Some(0));
    // YAML 1.1 would take this for a boolean and the next for a number; the option wants text.
    assert_eq!(config.log.level, "off");
    assert_eq!(config.mqtt.response_information.as_deref(), Some("0x10"));
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!(config.mqtt.maximum_qos, MaximumQos::AtLeastOnce);
    assert_eq!(
        config.mqtt.keep_alive_maximum_seconds.map(u16::from),
        Some(60)
    );
    assert_eq!(config.inbox.qos0, InboxQos0::Never);
    assert_eq!(config.limits.connection.bytes_per_second_in, None);
    assert_eq!(config.limits.connection.receive_maximum.get(), 65_535);
    assert_eq!(config.limits.connection.hold_publisher, None);
    assert_eq!(
        config.limits.connection.connect_timeout,
        Duration::from_millis(250)
    );
    assert_eq!(config.limits.session.queue_full, QueueFull::DropOldest);
    assert_eq!(config.limits.session.queue_bytes, u64::MAX);
    assert_eq!(config.sys.interval, None);
}

#[test]
fn json_is_read_too() {
    let config = config(r#"{"limits": {"topic": {"levels": 7}}, "allowAnonymous": true}"#);
    assert_eq!(config.limits.topic.levels, 7);
    assert_eq!(config.allow_anonymous, Some(true));
}

#[test]
fn a_small_anchor_is_fine() {
    let config = config("limits: {topic: {levels: &n 9}, session: {queueMessages: *n}}");
    assert_eq!(config.limits.topic.levels, 9);
    assert_eq!(config.limits.session.queue_messages, 9);
}

#[test]
fn unknown_keys_name_path_line_and_nearest_key() {
    assert_eq!(
        refused("bootstrap: true\nlimits:\n  conection:\n    receiveMaximum: 1\n"),
        "f.yml:3: unknown key `limits.conection`; did you mean `limits.connection`?"
    );
    assert_eq!(
        refused("maximumQos: 1\n"),
        "f.yml:1: unknown key `maximumQos`; did you mean `mqtt.maximumQos`?"
    );
    assert_eq!(
        refused("datadir: x\n"),
        "f.yml:1: unknown key `datadir`; did you mean `dataDir`? (letter case matters)"
    );
    assert_eq!(
        refused("mqttServerConfig:\n  tcpListener:\n    - port: 1\n    - prot: 2\n"),
        "f.yml:4: unknown key `mqttServerConfig.tcpListener[1].prot`; \
         did you mean `mqttServerConfig.tcpListener.port`?"
    );
    assert_eq!(
        refused("limits.topic.levels: 4\n"),
        "f.yml:1: unknown key `limits.topic.levels`; in a file, write the parts between dots as \
         nested maps"
    );
}

#[test]
fn wrong_values_name_path_what_is_allowed_and_what_was_found() {
    let check = |source: &str, expect: &str| assert_eq!(refused(source), expect, "{source}");
    check(
        "limits:\n  node:\n    connections: many\n",
        "f.yml:3: limits.node.connections: expected a whole number 0 to 4294967295, found \"many\"",
    );
    check(
        "limits:\n  node:\n    connections:\n      - 1\n",
        "f.yml:4: limits.node.connections: expected a whole number 0 to 4294967295, found a list",
    );
    check(
        "limits:\n  node: 5\n",
        "f.yml:2: limits.node: expected a map of options, found \"5\"",
    );
    check(
        "- a\n",
        "f.yml:1: the file: expected a map of options, found a list",
    );
    check(
        "hello\n",
        "f.yml:1: the file: expected a map of options, found \"hello\"",
    );
    check(
        "bootstrap: 1\n",
        "f.yml:1: bootstrap: expected true or false, found \"1\"",
    );
    check(
        "http: {port: 65536}\n",
        "f.yml:1: http.port: expected a whole number 0 to 65535, found \"65536\"",
    );
    check(
        "http: {port: -1}\n",
        "f.yml:1: http.port: expected a whole number 0 to 65535, found \"-1\"",
    );
    check(
        "http: {port: .inf}\n",
        "f.yml:1: http.port: expected a whole number 0 to 65535, found \".inf\"",
    );
    check(
        "retain: {maxBytes: 99999999999999999999}\n",
        "f.yml:1: retain.maxBytes: expected a whole number 1 to 18446744073709551615, found \
         \"99999999999999999999\"",
    );
    check(
        "limits: {connection: {receiveMaximum: 0}}\n",
        "f.yml:1: limits.connection.receiveMaximum: expected a whole number 1 to 65535, found \"0\"",
    );
    check(
        "limits: {connection: {maximumPacketSize: 63}}\n",
        "f.yml:1: limits.connection.maximumPacketSize: expected a whole number 64 to 32000000, \
         found \"63\"",
    );
    check(
        "inbox: {qos0: sometimes}\n",
        "f.yml:1: inbox.qos0: expected one of offline, always, never, found \"sometimes\"",
    );
    check(
        "http: {host: 300.1.1.1}\n",
        "f.yml:1: http.host: expected an IP address or a host name, found \"300.1.1.1\"",
    );
    check(
        "dataDir: ''\n",
        "f.yml:1: dataDir: expected a path, found \"\"",
    );
    check(
        "mqttServerConfig: {tcpListener: 1883}\n",
        "f.yml:1: mqttServerConfig.tcpListener: expected a map of options or a list of them, \
         found \"1883\"",
    );
}

#[test]
fn all_problems_are_reported_at_once() {
    let error = file("bootsrap: true\nhttp: {port: x}\nlimits: {node: {sessions: 0}}\n")
        .expect_err("this must be refused");
    assert_eq!(error.problems.len(), 3);
    let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3);
    for (line, start) in lines.iter().zip([
        "f.yml:1: unknown key `bootsrap`",
        "f.yml:2: http.port",
        "f.yml:3: limits.node.sessions",
    ]) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn the_number_and_length_of_messages_is_bounded() {
    let many: String = (0..20_000).map(|index| format!("k{index}: 1\n")).collect();
    let message = refused(&many);
    assert_eq!(message.lines().count(), 51);
    assert!(message.ends_with("f.yml:51: too many problems; the rest was not checked"));
    let long = format!(
        "? {}\n: 1\nhttp: {{port: {}}}\n",
        "k".repeat(500_000),
        "p".repeat(500_000)
    );
    let message = refused(&long);
    assert_eq!(message.lines().count(), 2);
    assert!(message.len() < 600, "{}", message.len());
}

#[test]
fn a_key_given_twice_is_refused() {
    let message = refused("bootstrap: true\nbootstrap: false\n");
    assert!(message.starts_with("f.yml:2: "), "{message}");
    assert!(
        message.contains("duplicate") && message.contains("bootstrap"),
        "{message}"
    );
}

#[test]
fn broken_yaml_is_one_line_with_its_position() {
    for source in [
        "bootstrap: [true\n",
        "a: b: c\n",
        "limits:\n\tnode:\n",
        "x: *nowhere\n",
    ] {
        let message = refused(source);
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.starts_with("f.yml:"), "{message}");
        assert!(!message.contains("column"), "{message}");
    }
    assert_eq!(refused("a: 1\n---\nb: 2\n").lines().count(), 1);
}

#[test]
fn anchor_bombs_and_deep_nesting_are_refused() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        laughs.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    let deep = "[".repeat(100_000);
    let wide = "- x\n".repeat(100_000);
    for bomb in [laughs, deep, wide] {
        let message = refused(&bomb);
        assert_eq!(message.lines().count(), 1, "{message}");
        // Refused while parsing, not afterwards for what it says.
        assert!(
            message.contains("too large") || message.contains("recursion limit"),
            "{message}"
        );
        assert!(message.len() < 300, "{message}");
    }
}

#[test]
fn what_is_no_text_is_refused() {
    assert_eq!(
        refused(b"bootstrap: true\nlog: {level: \xff}\n"),
        "f.yml:2: is not UTF-8 text"
    );
    let junk: Vec<u8> = (0..=255).cycle().take(4096).collect();
    assert!(refused(&junk).starts_with("f.yml"));
    assert!(refused(b"\x7fELF\x02\x01\x01\x00\x00\x00").starts_with("f.yml"));
    assert_eq!(
        refused(vec![b' '; (1 << 20) + 1]),
        "f.yml: has more than 1048576 bytes"
    );
}

#[test]
fn a_folder_or_nothing_in_place_of_the_file_is_one_clear_line() {
    let load = |path: &Path| {
        Config::load(Some(path), std::iter::empty(), &[], None)
            .expect_err("this must be refused")
            .to_string()
    };
    let folder = std::env::temp_dir();
    let message = load(&folder);
    assert!(
        message.starts_with(&format!("{}: cannot be read: ", folder.display())),
        "{message}"
    );
    assert!(message.contains("directory"), "{message}");
    let message = load(Path::new("/nowhere/h.yml"));
    assert!(
        message.starts_with("/nowhere/h.yml: cannot be read: No such file"),
        "{message}"
    );
}

#[test]
fn an_endless_file_is_read_up_to_the_limit_only() {
    let zero = Path::new("/dev/zero");
    if zero.exists() {
        let error = Config::load(Some(zero), std::iter::empty(), &[], None);
        let message = error.expect_err("this must be refused").to_string();
        assert_eq!(message, "/dev/zero: has more than 1048576 bytes");
    }
}

// Listeners.

#[test]
fn a_listener_in_the_file_without_host_listens_on_all_addresses() {
    let local = [at("127.0.0.1", 1883)];
    assert_eq!(listeners(&config("bootstrap: true\n")), local);
    assert_eq!(
        listeners(&config("mqttServerConfig: {tcpListener: }\n")),
        local
    );
    assert_eq!(
        listeners(&config("mqttServerConfig: {tcpListener: {}}\n")),
        [at("", 1883)]
    );
    assert_eq!(
        listeners(&config("mqttServerConfig: {tcpListener: {port: 7}}\n")),
        [at("", 7)]
    );
    assert_eq!(
        listeners(&config(
            "mqttServerConfig: {tcpListener: [{host: localhost, port: 1}, {host: '[::1]'}, {}]}"
        )),
        [at("localhost", 1), at("::1", 1883), at("", 1883)]
    );
}

#[test]
fn environment_and_set_change_the_one_listener_there_is() {
    let port = &["mqttServerConfig.tcpListener.port=0"];
    let loaded = |source, sets: &[&str]| listeners(&layers(source, &[], sets).unwrap().config);
    assert_eq!(loaded(None, port), [at("127.0.0.1", 0)]);
    assert_eq!(
        loaded(Some("bootstrap: true\n"), port),
        [at("127.0.0.1", 0)]
    );
    let written = Some("mqttServerConfig: {tcpListener: {port: 5}}\n");
    assert_eq!(loaded(written, port), [at("", 0)]);
    assert_eq!(
        loaded(written, &["mqttServerConfig.tcpListener.host=::"]),
        [at("::", 5)]
    );
    assert_eq!(
        layers_refused(
            Some("mqttServerConfig: {tcpListener: [{port: 5}, {port: 6}]}"),
            &[],
            port
        ),
        "--set mqttServerConfig.tcpListener.port=0: mqttServerConfig.tcpListener is a list of 2 \
         in the file and can only be changed there"
    );
}

#[test]
fn two_listeners_on_one_address_are_refused_and_none_is_warned_of() {
    let two = |a: &str, b: &str| format!("mqttServerConfig:\n  tcpListener: [{{{a}}}, {{{b}}}]\n");
    assert_eq!(
        refused(two(
            "host: ::1, port: 5",
            "host: '0:0:0:0:0:0:0:1', port: 5"
        )),
        "f.yml:2: mqttServerConfig.tcpListener: more than one listener on the same host with port 5"
    );
    config(&two("port: 0", "port: 0"));
    config(&two("port: 5", "port: 5, enable: false"));
    let none = file("mqttServerConfig: {tcpListener: {enable: false}}").unwrap();
    assert_eq!(
        none.warnings,
        ["mqttServerConfig enables no listener: no client can connect"]
    );
}

#[test]
fn listeners_of_all_kinds_are_checked() {
    let pem = "certFile: c, keyFile: k";
    for (key, listener, statement) in [
        (
            "tlsListener",
            "{}".to_owned(),
            "sslConfig.certFile and sslConfig.keyFile are required",
        ),
        (
            "wssListener",
            "{sslConfig: {certFile: c}}".to_owned(),
            "sslConfig.certFile and sslConfig.keyFile are required",
        ),
        (
            "tlsListener",
            format!("{{sslConfig: {{{pem}, clientAuth: OPTIONAL}}}}"),
            "sslConfig.clientAuth requires sslConfig.trustCertsFile",
        ),
        (
            "wsListener",
            "{proxyProtocol: {version: any}}".to_owned(),
            "proxyProtocol.version requires proxyProtocol.trustedPeers",
        ),
        (
            "tcpListener",
            "{proxyProtocol: {version: 1, trustedPeers: 192.0.2.1, userName: commonName}}"
                .to_owned(),
            "proxyProtocol.userName requires proxyProtocol.version 2 or any",
        ),
        (
            "wsListener",
            "{forwarded: {header: X-Forwarded-For}}".to_owned(),
            "forwarded.header requires forwarded.trustedPeers",
        ),
        (
            "wsListener",
            "{wsPath: mqtt}".to_owned(),
            "expected wsPath to begin with /, found mqtt",
        ),
        (
            "wsListener",
            "{host: 127.0.0.1, port: 1883}".to_owned(),
            "more than one listener on the same host with port 1883",
        ),
        (
            "unixListener",
            "[{path: a}, {path: a}]".to_owned(),
            "more than one listener on a",
        ),
        (
            "unixListener",
            "{mode: '0668'}".to_owned(),
            "expected mode in octal digits, 0777 at most, found 0668",
        ),
        (
            "unixListener",
            "{mode: '+660'}".to_owned(),
            "expected mode in octal digits, 0777 at most, found +660",
        ),
    ] {
        assert_eq!(
            refused(format!("mqttServerConfig:\n  {key}: {listener}\n")),
            format!("f.yml:2: mqttServerConfig.{key}: {statement}")
        );
    }
    config(&format!(
        "mqttServerConfig:
  tlsListener: {{sslConfig: {{{pem}, clientAuth: REQUIRE, trustCertsFile: t}}}}
  wsListener: {{proxyProtocol: {{version: 1, trustedPeers: 192.0.2.1}}}}
  wssListener: {{enable: false}}
  unixListener: {{mode: '777'}}
"
    ));
}

// The cluster.

#[test]
fn seed_endpoints_are_a_text_or_a_list() {
    let seeds = |value: &str| {
        let source =
            format!("clusterConfig: {{host: node1, secretFile: s, seedEndpoints: {value}}}");
        let seeds = config(&source).cluster_config.seed_endpoints;
        seeds.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(seeds("node1:8899"), ["node1:8899"]);
    assert_eq!(
        seeds("'node1:8899, node2:8899,[fe80::1]:1'"),
        ["node1:8899", "node2:8899", "[fe80::1]:1"]
    );
    assert_eq!(
        seeds("[node1:8899, node1:8898]"),
        ["node1:8899", "node1:8898"]
    );
    for wrong in [
        "node1",
        "node1:0",
        "fe80::1:8899",
        "node1:x",
        "[{a: b}]",
        "'a:1,'",
    ] {
        let source = format!("clusterConfig: {{seedEndpoints: {wrong}}}");
        let message = refused(&source);
        assert!(
            message.starts_with("f.yml:1: clusterConfig.seedEndpoints: expected"),
            "{message}"
        );
    }
}

#[test]
fn a_host_or_a_way_to_others_makes_a_cluster() {
    let enabled = |source: &str| {
        let source = format!("clusterConfig: {{{source}}}");
        config(&source).cluster_config.is_enabled()
    };
    assert!(!enabled(""));
    assert!(!enabled(
        "env: Test, port: 1, clusterDomainName: '', seedEndpoints:"
    ));
    assert!(enabled("host: 127.0.0.1"));
    assert!(enabled("host: 127.0.0.1, seedEndpoints: '127.0.0.2:8899'"));
    // An empty `host`, as some have it in their files, is found at the start.
    for others in ["seedEndpoints: 'a:1'", "clusterDomainName: nodes.example"] {
        assert!(enabled(&format!("host:, secretFile: s, {others}")));
    }
    for every in ["0.0.0.0", "'::'"] {
        let message = refused(format!("clusterConfig: {{host: {every}}}"));
        assert!(
            message.contains("an address of this node alone"),
            "{message}"
        );
    }
}

#[test]
fn the_reports_node_files_work_as_printed() {
    for (bootstrap, founds) in [
        ("bootstrap: true", true),
        ("bootstrap: false", false),
        ("", false),
    ] {
        let source = REPORTS_NODE.replace("bootstrap: true", bootstrap);
        let loaded = file(&source).unwrap_or_else(|error| panic!("{source}\n{error}"));
        let cluster = &loaded.config.cluster_config;
        assert_eq!(loaded.config.bootstrap, founds);
        assert!(cluster.is_enabled() && cluster.host.is_none());
        assert_eq!(cluster.seed_endpoints.iter().count(), 3);
        assert_eq!(loaded.warnings.len(), 1);
    }
}

#[test]
fn a_cluster_that_anybody_can_join_has_private_addresses_only() {
    let load = |source: &str| file(format!("clusterConfig: {{{source}}}"));
    let ssl = "sslConfig: {certFile: a, keyFile: b, caFile: c}";
    // The option whose address is refused; and if none is, how many warnings there are.
    for (source, expected) in [
        ("host: 127.0.0.1", Ok(1)),
        ("host: 192.168.0.11", Ok(1)),
        ("host: '[fd00::1]'", Ok(1)),
        ("host: '::ffff:10.0.0.1'", Ok(1)),
        ("host: 192.0.2.1", Err("host: 192.0.2.1")),
        ("host: 100.64.0.1", Err("host: 100.64.0.1")),
        ("host: '::ffff:192.0.2.1'", Err("host: ::ffff:192.0.2.1")),
        ("host: '2001:db8::1'", Err("host: 2001:db8::1")),
        (
            "host:, seedEndpoints: '10.0.0.1:1,169.254.0.1:1,[fe80::1]:1'",
            Ok(1),
        ),
        (
            "host:, seedEndpoints: '10.0.0.1:1,192.0.2.1:1'",
            Err("seedEndpoints: 192.0.2.1"),
        ),
        (
            "host: 127.0.0.1, seedEndpoints: '192.0.2.1:1'",
            Err("seedEndpoints: 192.0.2.1"),
        ),
        (
            "host: 10.0.0.1, seedEndpoints: '0.0.0.0:1'",
            Err("seedEndpoints: 0.0.0.0"),
        ),
        // Names are resolved later.
        ("host: node1", Ok(1)),
        ("host: node1, seedEndpoints: 'node1:1,10.0.0.2:1'", Ok(1)),
        ("host:, clusterDomainName: nodes.example", Ok(1)),
        ("host: 192.0.2.1, insecure: true", Ok(1)),
        ("host: 192.0.2.1, insecure: true, secretFile: s", Ok(0)),
        ("host: 192.0.2.1, secretFile: s", Ok(0)),
        (&format!("host: 192.0.2.1, {ssl}"), Ok(0)),
        ("host: 192.168.0.11, secretFile: s", Ok(0)),
        ("env: Test", Ok(0)),
    ] {
        match (load(source), expected) {
            (Ok(loaded), Ok(warnings)) => {
                assert_eq!(loaded.warnings.len(), warnings, "{source}");
                let open = loaded
                    .warnings
                    .first()
                    .is_some_and(|line| line.contains("THE CLUSTER IS OPEN"));
                assert_eq!(open, warnings > 0, "{source}");
            }
            (Err(error), Err(option)) => {
                let message = error.to_string();
                let start = format!("f.yml:1: clusterConfig.{option} is a public address");
                assert!(message.starts_with(&start), "{message}");
                for word in [
                    "clusterConfig.secretFile",
                    "clusterConfig.sslConfig",
                    "openssl rand",
                ] {
                    assert!(message.contains(word), "{message}");
                }
            }
            (found, expected) => panic!("{source}: {found:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn a_public_address_is_refused_where_it_comes_from() {
    let env = [("HERALDMQ_CLUSTERCONFIG__HOST", "192.0.2.1")];
    let message = layers_refused(Some(REPORTS_NODE), &env, &[]);
    assert!(
        message.starts_with(
            "environment variable HERALDMQ_CLUSTERCONFIG__HOST: clusterConfig.host: 192.0.2.1"
        ),
        "{message}"
    );
}

#[test]
fn only_an_insecure_cluster_is_open_to_public_addresses() {
    for (source, open) in [
        ("host: 10.0.0.1", false),
        ("host: 10.0.0.1, insecure: true", true),
    ] {
        let open_to = config(&format!("clusterConfig: {{{source}}}"))
            .cluster_config
            .open_to();
        assert_eq!(open_to([192, 0, 2, 1].into()), open, "{source}");
        assert!(open_to([10, 0, 0, 2].into()), "{source}");
    }
}

#[test]
fn tls_between_nodes_needs_all_its_files() {
    let files = "{certFile: a, keyFile: b, caFile: c}";
    let ssl = config(&format!("clusterConfig: {{host: a, sslConfig: {files}}}"));
    let expected = ["a", "b", "c"].map(Path::new);
    assert_eq!(ssl.cluster_config.ssl.files(), Some(expected));
    for half in ["certFile: a", "keyFile: b, caFile: c"] {
        let message = refused(format!("clusterConfig: {{host: a, sslConfig: {{{half}}}}}"));
        assert!(
            message.contains("clusterConfig.sslConfig: certFile, keyFile and caFile"),
            "{message}"
        );
    }
}

/// The seeds of the reports are the first node alone, which then may found a second cluster when it loses its folder.
#[test]
fn the_file_for_a_cluster_is_the_one_of_the_reports() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf/cluster.yml");
    let source = fs::read_to_string(path).expect("the file is there");
    let mut reports = config(REPORTS_FILE);
    let seeds = "192.168.0.11:8899,192.168.0.12:8899,192.168.0.13:8899";
    reports.cluster_config.seed_endpoints = config(&format!(
        "clusterConfig: {{host: 192.168.0.11, seedEndpoints: '{seeds}'}}"
    ))
    .cluster_config
    .seed_endpoints;
    assert_eq!(config(&source), reports);
}

// Environment and command line.

#[test]
fn stronger_layers_win() {
    let source = Some("limits: {topic: {levels: 1, length: 1}, session: {queueBytes: 1}}");
    let env = [
        ("HERALDMQ_LIMITS__TOPIC__LENGTH", "2"),
        ("heraldmq_limits__session__QueueBytes", "2"),
    ];
    let limits = layers(source, &env, &["limits.session.queueBytes=3"])
        .unwrap()
        .config
        .limits;
    assert_eq!((limits.topic.levels, limits.topic.length), (1, 2));
    assert_eq!(limits.session.queue_bytes, 3);

    let sets = ["dataDir=/set".to_owned()];
    let with = |dir| {
        Config::load(None, std::iter::empty(), &sets, dir)
            .unwrap()
            .config
            .data_dir
    };
    assert_eq!(with(None), Path::new("/set"));
    assert_eq!(with(Some("/arg".into())), Path::new("/arg"));
    let empty = Config::load(None, std::iter::empty(), &sets, Some(PathBuf::new()));
    assert_eq!(
        empty.expect_err("this must be refused").to_string(),
        "--data-dir: dataDir: expected a path, found nothing"
    );
}

#[test]
fn values_outside_the_file_are_scalars() {
    let sets = [
        "log.level=info,herald_net=debug",
        "http.host=::",
        "mqtt.serverReference=\"a b\"",
        "clusterConfig.host=::1",
        "clusterConfig.seedEndpoints=[::1]:8899",
        "mqtt.responseInformation=a=b # c",
    ];
    let config = layers(None, &[("HERALDMQ_HTTP__PORT", "'8080'")], &sets)
        .unwrap()
        .config;
    assert_eq!(config.log.level, "info,herald_net=debug");
    assert_eq!(config.http.host.as_str(), "::");
    assert_eq!(config.http.port, Some(8080));
    assert_eq!(config.mqtt.server_reference.as_deref(), Some("a b"));
    assert_eq!(config.mqtt.response_information.as_deref(), Some("a=b # c"));
    assert_eq!(config.cluster_config.seed_endpoints.iter().count(), 1);
}

#[test]
fn an_empty_value_goes_back_to_the_default() {
    let source = Some("http: {port: 1, host: '::'}\nallowAnonymous: true\nlog: {level: warn}\n");
    let sets = [
        "http.port=",
        "http.host=~",
        "allowAnonymous=null",
        "log.level=",
    ];
    let config = layers(source, &[], &sets).unwrap().config;
    assert_eq!(config, Config::default());
}

#[test]
fn unknown_variables_name_the_nearest() {
    let refused = |name: &str| layers_refused(None, &[(name, "1")], &[]);
    assert_eq!(
        refused("HERALDMQ_LIMITS__CONECTION__RECEIVEMAXIMUM"),
        "environment variable HERALDMQ_LIMITS__CONECTION__RECEIVEMAXIMUM: unknown key \
         `HERALDMQ_LIMITS__CONECTION__RECEIVEMAXIMUM`; did you mean \
         `HERALDMQ_LIMITS__CONNECTION__RECEIVEMAXIMUM`?"
    );
    assert!(refused("HERALDMQ_HTTP_PORT").contains("did you mean `HERALDMQ_HTTP__PORT`?"));
    assert!(refused("heraldmq_").contains("unknown key `HERALDMQ_`"));
    assert_eq!(
        layers_refused(None, &[("HERALDMQ_LIMITS", "5")], &[]),
        "environment variable HERALDMQ_LIMITS: limits: expected a map of options, found \"5\""
    );
    assert_eq!(
        layers_refused(
            None,
            &[("HERALDMQ_HTTP__PORT", "1"), ("heraldmq_http__port", "2")],
            &[]
        ),
        "environment variable heraldmq_http__port: http.port is also set by a variable that \
         differs only in letter case"
    );
    assert_eq!(
        layers_refused(None, &[("HERALDMQ_HTTP__PORT", "x")], &[]),
        "environment variable HERALDMQ_HTTP__PORT: http.port: expected a whole number 0 to 65535, \
         found \"x\""
    );
}

#[test]
fn variables_that_are_not_options_are_left_alone() {
    let env = [
        ("HERALDMQ_LOG", "debug"),
        ("HERALDMQ_URL", "http://10.0.0.1:8091"),
        ("HERALDMQ_KEY_FILE", "operator.key"),
        ("HERALDMQ_CONTEXT", "plant"),
        ("HERALDMQX", "1"),
        ("PATH", "/bin"),
        ("HÉRALDMQ_X", "1"),
        // What Kubernetes sets for a service called heraldmq.
        ("HERALDMQ_SERVICE_HOST", "10.0.0.1"),
        ("HERALDMQ_SERVICE_PORT", "1883"),
        ("HERALDMQ_SERVICE_PORT_MQTT", "1883"),
        ("HERALDMQ_PORT", "tcp://10.0.0.1:1883"),
        ("HERALDMQ_PORT_1883_TCP", "tcp://10.0.0.1:1883"),
        ("HERALDMQ_PORT_1883_TCP_ADDR", "10.0.0.1"),
    ];
    assert_eq!(layers(None, &env, &[]).unwrap().config, Config::default());
}

#[test]
fn options_without_the_prefix_of_variables_are_warned_of() {
    let meant = |name: &str| {
        let loaded = layers(None, &[(name, "1")], &[]).expect("it has no effect");
        assert_eq!(loaded.config, Config::default());
        loaded.warnings
    };
    let voters = "HERALDMQ_INBOX_STORE_REPLICA_VOTER_COUNT";
    let host = "HERALDMQ_CLUSTERCONFIG__HOST";
    for (name, meant_is) in [
        ("INBOX_STORE_REPLICA_VOTER_COUNT", voters),
        ("inbox_store_replica_voters_count", voters),
        ("clusterConfig.host", host),
        ("CLUSTERCONFIG__HOST", host),
        ("CLUSTERCONFIG__HOTS", host),
        ("LOG__LEVEL", "HERALDMQ_LOG__LEVEL"),
    ] {
        assert_eq!(
            meant(name),
            [format!(
                "environment variable {name} has no effect; did you mean `{meant_is}`?"
            )]
        );
    }
    // Of BifroMQ's store of routes, which has no counterpart.
    assert_eq!(meant("dist_worker_replica_voter_count").len(), 1);
    assert_eq!(meant("inbox_store_a\nb").len(), 1);
    assert!(!meant("inbox_store_a\nb")[0].contains('\n'));
    for others in [
        "PATH",
        "LOG",
        "LOG_LEVEL",
        "LOG__LEVEL2",
        "DATADIR",
        "bootstrap",
        "STORE_DATA_DIR",
    ] {
        assert_eq!(meant(others), [""; 0], "{others}");
    }
}

#[test]
fn options_of_the_stores_may_stand_in_the_environment_as_in_the_file() {
    let env = [
        ("inbox_store_replica_voter_count", "3"),
        ("session_store_split_policy", "none"),
        ("retain_store_range_split_max_cpu_usage", "0.5"),
    ];
    let loaded = layers(Some("inbox_store_replica_voter_count: 1"), &env, &[]).unwrap();
    assert_eq!(loaded.warnings, [""; 0]);
    let config = loaded.config;
    assert_eq!(config.inbox_store_voters.map(NonZero::get), Some(3));
    assert_eq!(config.session_store_split_policy, SplitPolicy::Nothing);
    assert_eq!(
        config.retain_store_max_cpu_usage,
        CpuShare::new(0.5).unwrap()
    );
    let twice = [
        ("inbox_store_initial_shards", "3"),
        ("HERALDMQ_INBOX_STORE_INITIAL_SHARDS", "3"),
    ];
    let message = layers_refused(None, &twice, &[]);
    assert!(message.contains("inbox_store_initial_shards"), "{message}");
    let message = layers_refused(None, &[("inbox_store_initial_shards", "x")], &[]);
    assert!(message.contains("inbox_store_initial_shards"), "{message}");
}

#[test]
fn a_share_of_the_cpu_is_a_number_from_0_to_1() {
    for share in ["-0.1", "1.1", "80", "NaN", "inf", "0,5", "1e-1x"] {
        let set = format!("inbox_store_range_split_max_cpu_usage={share}");
        let message = layers_refused(None, &[], &[&set]);
        assert!(
            message.contains("expected a number from 0 to 1"),
            "{message}"
        );
    }
    for share in ["0", "1", "0.85", ".5"] {
        let set = format!("inbox_store_range_split_max_cpu_usage={share}");
        assert!(layers(None, &[], &[&set]).is_ok(), "{share}");
    }
}

#[test]
fn unknown_sets_name_the_nearest() {
    let refused = |set: &str| layers_refused(None, &[], &[set]);
    assert_eq!(
        refused("limits.conection.receiveMaximum=1"),
        "--set limits.conection.receiveMaximum=1: unknown key `limits.conection.receiveMaximum`; \
         did you mean `limits.connection.receiveMaximum`?"
    );
    assert!(refused("HTTP.port=1").contains("did you mean `http.port`? (letter case matters)"));
    assert_eq!(refused("http.port"), "--set http.port: expected key=value");
    assert_eq!(refused("a\nb=c").lines().count(), 1);
}

// Across options, and over time.

#[test]
fn an_even_number_of_voters_is_refused() {
    for store in ["session", "inbox", "retain"] {
        let voters = |count| file(format!("\n{store}_store_replica_voter_count: {count}\n"));
        for odd in [0, 1, 3, 5] {
            assert!(voters(odd).is_ok(), "{store} {odd}");
        }
        for even in [2, 4] {
            let fewer = even - 1;
            assert_eq!(
                voters(even).expect_err("this must be refused").to_string(),
                format!(
                    "f.yml:2: {store}_store_replica_voter_count: expected 1, 3 or 5, or 0 for what the number of \
                     nodes allows, found {even}: {even} voters survive no more failures than {fewer}"
                )
            );
        }
    }
    let variable = ("HERALDMQ_INBOX_STORE_REPLICA_VOTER_COUNT", "2");
    let message = layers_refused(None, &[variable], &[]);
    assert!(
        message.starts_with("environment variable HERALDMQ_INBOX_STORE_REPLICA_VOTER_COUNT: "),
        "{message}"
    );
}

#[test]
fn refusing_below_the_high_water_mark_is_a_conflict() {
    let memory = |high, refuse| {
        file(format!(
            "limits:\n  node:\n    memoryHighWater: {high}\n    memoryRefuse: {refuse}\n"
        ))
    };
    assert_eq!(
        memory(1000, 999)
            .expect_err("this must be refused")
            .to_string(),
        "f.yml:4: limits.node.memoryRefuse: expected at least limits.node.memoryHighWater, which \
         is 1000, found 999"
    );
    assert!(memory(1000, 1000).is_ok());
    assert!(memory(1000, 0).is_ok());
    assert!(memory(0, 1).is_ok());
}

#[test]
fn reload_tells_what_applies_and_what_needs_a_restart() {
    let old = Config::default();
    assert_eq!(
        Config::reload_diff(&old, &old.clone()),
        crate::ReloadDiff::default()
    );
    let new = config(
        "
bootstrap: true
dataDir: elsewhere
eventLoops: 2
allowAnonymous: false
mqttServerConfig: {tcpListener: [{port: 1}, {port: 2}]}
clusterConfig: {port: 1}
http: {port: 8091}
log: {level: debug, format: json}
mqtt: {maximumQos: 1}
inbox: {qos0: always}
limits: {connection: {connectTimeoutMs: 1, bytesPerSecondIn: 0}, node: {sessions: 1, recentDrops: 1}}
retain: {maxBytes: 1}
sys: {intervalSeconds: 1}
",
    );
    let diff = Config::reload_diff(&old, &new);
    assert_eq!(
        diff.applied,
        [
            "allowAnonymous",
            "log.level",
            "mqtt.maximumQos",
            "inbox.qos0",
            "limits.connection.bytesPerSecondIn",
            "limits.connection.connectTimeoutMs",
            "limits.node.sessions",
            "retain.maxBytes",
            "sys.intervalSeconds",
        ]
    );
    assert_eq!(
        diff.needs_restart,
        [
            "bootstrap",
            "dataDir",
            "eventLoops",
            "mqttServerConfig.tcpListener",
            "clusterConfig.port",
            "http.port",
            "log.format",
            "limits.node.recentDrops",
        ]
    );
}

#[test]
fn exactly_these_options_reload() {
    let groups = [
        "mqtt.",
        "limits.",
        "retain.",
        "authentication.chain.",
        "authorization.",
        "abuse.",
        "attention.",
        "clientClasses.",
        "outlets.",
        "inlets.",
    ];
    let single = [
        "clientClasses",
        "outlets",
        "inlets",
        "log.level",
        "allowAnonymous",
        "session_store_split_script",
        "inbox_store_split_script",
        "retain_store_split_script",
        "authentication.sessionOfAnotherUser",
        "authentication.recheckSeconds",
        "control.refuseStaleAfterSeconds",
        "inbox.qos0",
        "sys.intervalSeconds",
        "http.tokenFile",
        "http.keyFile",
        "http.userFile",
        "http.operators",
        "http.administrators",
        "http.anonymous",
        "http.hosts",
        "telemetry.otlp.headersFile",
        "telemetry.otlp.caFile",
    ];
    let fixed = [
        "limits.node.recentDrops",
        "authorization.cacheEntries",
        "abuse.trackedEntries",
        "abuse.banFile",
    ];
    let leaves = |path: &str| {
        let below = format!("{path}.");
        !crate::catalog::catalog()
            .iter()
            .any(|listed| listed.path.starts_with(&below))
    };
    for listed in crate::catalog::catalog()
        .iter()
        .filter(|listed| leaves(&listed.path))
    {
        let path = listed.path.as_str();
        let expected = !fixed.contains(&path)
            && (single.contains(&path) || groups.iter().any(|group| path.starts_with(group)));
        assert_eq!(listed.spec.live, expected, "{path}");
    }
}

// The documents.

/// Compares a checked-in document with what the declarations give, or writes it.
fn check_document(path: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::create_dir_all(path.parent().expect("the path has a folder")).unwrap();
        fs::write(&path, generated).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "{} is not what the options say; run UPDATE_GENERATED=1 cargo test -p herald-config",
        path.display()
    );
}

#[test]
fn the_reference_page_is_up_to_date() {
    check_document("docs/reference/configuration.md", &reference());
}

#[test]
fn the_example_file_is_up_to_date() {
    check_document("conf/standalone.yml", &example());
}

#[test]
fn the_example_file_runs_alone_on_the_reports_port() {
    let loaded = file(example()).expect("the example is right");
    assert_eq!(loaded.warnings, [""; 0]);
    let expected = config(
        "
bootstrap: true
mqttServerConfig: {tcpListener: {port: 1883}}
",
    );
    assert_eq!(loaded.config, expected);
    assert!(!loaded.config.cluster_config.is_enabled());
}

/// So that each commented default is one that the broker understands, and is the default.
#[test]
fn taking_off_every_mark_of_the_example_changes_nothing() {
    let uncommented: Vec<String> = example()
        .lines()
        .map(|line| {
            let bare = line.trim_start();
            if bare.starts_with('#') && !bare.starts_with("##") {
                line.replacen('#', "", 1)
            } else {
                line.to_owned()
            }
        })
        .collect();
    assert_eq!(config(&uncommented.join("\n")), config(&example()));
}

#[test]
fn a_file_may_have_any_number_of_comments() {
    let comments = "# a line\n".repeat(1_000);
    let source = format!("mqtt:\n  maximumQos: 1\n{comments}log:\n  level: warn\n");
    assert_eq!(config(&source).log.level, "warn");
}

#[test]
fn every_option_is_documented() {
    for listed in crate::catalog::catalog() {
        let is_group = format!("{}.", listed.path);
        let group = crate::catalog::catalog()
            .iter()
            .any(|l| l.path.starts_with(&is_group));
        assert!(
            group || listed.spec.text().ends_with('.'),
            "{}",
            listed.path
        );
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = file(&bytes).map_err(|error| error.to_string());
    }

    #[test]
    fn arbitrary_text_of_yaml_characters_never_panics(
        text in "([a-c]|limits|mqttServerConfig|tcpListener|port|[:,&*!|>?%@{}'\"#\\[\\]\n\t -]){0,80}"
    ) {
        let _ = file(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn arbitrary_arguments_never_panic(name in ".{0,40}", value in ".{0,40}") {
        let env = [(format!("HERALDMQ_{name}"), value.clone())];
        let sets = [format!("{name}={value}"), format!("http.port={value}")];
        let loaded = Config::load(None, env.into_iter(), &sets, None);
        let _ = loaded.map_err(|error| error.to_string());
    }

    #[test]
    fn every_number_of_the_type_is_taken(number: u32) {
        let config = config(&format!("limits: {{node: {{connections: {number}}}}}"));
        prop_assert_eq!(config.limits.node.connections.map_or(0, u32::from), number);
    }
}
