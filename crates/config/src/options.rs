//! The options: name, type, unit, default, range, documentation, and whether SIGHUP applies them.
//!
//! This and the modules below it are the only place where an option is written down. The reference page, the example file,
//! the messages for unknown keys and bad values, and the comparison at SIGHUP follow from it.
//! What two options must satisfy together stands in `check.rs`.

mod classes;
mod inlets;
mod listeners;
mod outlets;
mod security;
mod telemetry;

use std::{
    net::IpAddr,
    num::NonZero,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    address::{Endpoints, Host, Hosts},
    cpu_share::CpuShare,
    declare::options,
    listed::Listed,
    node_name::NodeName,
    private::is_private,
    setting::choice,
};

pub use classes::{ClassLimitsConfig, ClassMatchConfig, ClientClassConfig, DEFAULT_CLASS};
pub use inlets::{
    Deliver, InletConfig, InletSourceConfig, KafkaSourceConfig, MqttSourceConfig, NatsSourceConfig,
};
pub use listeners::{
    ClientAuth, ForwardedConfig, ForwardedHeader, MqttServerConfig, ProxyConfig, ProxyUserName,
    ProxyVersion, SslConfig, TcpListenerConfig, TlsListenerConfig, TlsVersion, UnixListenerConfig,
    WsListenerConfig, WssListenerConfig,
};
pub use outlets::{
    DeadLetterConfig, FileTargetConfig, HttpBody, HttpMethod, HttpTargetConfig, KafkaCompression,
    KafkaSaslConfig, KafkaTargetConfig, MqttTargetConfig, NatsTargetConfig, OutletBatchConfig,
    OutletConfig, OutletSourceConfig, OutletTargetConfig, PostgresColumnConfig,
    PostgresTargetConfig, SaslMechanism,
};
pub use security::{
    AbuseConfig, AuthenticationConfig, AuthenticatorConfig, AuthenticatorKind, AuthorizationConfig,
    ControlConfig, ControlMode, DenyPublishV3, HttpAuthenticatorConfig, JwtConfig, JwtFrom,
    Permission, PostgresConfig, SessionOfAnotherUser,
};
pub use telemetry::{OtlpConfig, TelemetryConfig};

/// The largest packet that can be allowed, in bytes. MQTT could announce 268,435,455 (5.0 §2.1.4), but a message
/// must fit into one entry of the stores' logs, and that into one frame between nodes.
pub const LARGEST_PACKET: u64 = 32_000_000;

/// With what stands before and behind it in the stores' tables, a longer one would not fit.
const LONGEST_CLIENT_ID: u64 = 60_000;

/// Smaller and not even a CONNECT with a client identifier of 23 bytes would fit.
const SMALLEST_PACKET: u64 = 64;

const U16: u64 = u16::MAX as u64;
const U32: u64 = u32::MAX as u64;

options! {
    /// Options that belong to the node as a whole.
    pub struct Config {
        /// Whether this node founds a new cluster at its first start.
        /// Later it has no effect. A node that runs alone may set it or not.
        fixed "bootstrap" => bootstrap: bool = false, example "true";
        /// Folder for durable state. `--data-dir` on the command line wins.
        fixed "dataDir" => data_dir: PathBuf = PathBuf::from("data");
        /// Number of event loops that serve connections. 0: one per core.
        fixed "eventLoops" => event_loops: Option<NonZero<u16>>, range 0..=1024;
        /// Whether clients may connect without user name and password, or with any if there are no
        /// authenticators. Unset: only from loopback addresses (127.0.0.0/8 and ::1) and Unix domain
        /// sockets, and only if there are no authenticators.
        live "allowAnonymous" => allow_anonymous: Option<bool>;
        /// Replicas of each shard of the session store that vote: 1, 3 or 5; an even number would survive no more
        /// failures than one less, and is refused. 0: 3 in a cluster of three nodes or more, else 1. A node that
        /// runs alone has one.
        fixed "session_store_replica_voter_count" => session_store_voters: Option<NonZero<u8>>, range 0..=5;
        /// Shards that the session store begins with, by client identifier. It counts at the first start; later it has no effect.
        fixed "session_store_initial_shards" => session_store_shards: u16 = 1, range 1..=1024;
        /// When a shard of the session store is split by itself: when it has been busy for ten seconds while a thread or a node has
        /// room (`load`), as BifroMQ does (`bifromq`, with three options below), as a script says (`script`), or never (`none`): by hand
        /// only. docs/operate/cluster.md tells more.
        fixed "session_store_split_policy" => session_store_split_policy: SplitPolicy = SplitPolicy::Load;
        /// With `script`: the file, in the language Rhai; its content is read again. docs/operate/split-policies.md tells more.
        live "session_store_split_script" => session_store_split_script: Option<PathBuf>;
        /// With `bifromq`: a shard is not split while an operation takes as long, on average.
        fixed "session_store_io_nanos_limit" => session_store_io_nanos_limit: Duration = Duration::from_nanos(30_000), unit Nanoseconds;
        /// With `bifromq`: a shard is split when an entry of its log has more operations, on average.
        fixed "session_store_max_io_density" => session_store_max_io_density: u64 = 100, range 1..=u64::MAX;
        /// With `bifromq`: no shard is split while the broker uses so much of the machine's CPU time, from 0 to 1.
        fixed "session_store_range_split_max_cpu_usage" => session_store_max_cpu_usage: CpuShare = CpuShare::default();
        /// Time from one split of the session store on a node to the next that the node makes by itself.
        fixed "session_store_split_cooldown_ms" => session_store_split_cooldown: Duration = Duration::from_secs(20), unit Milliseconds;
        /// Shards of the session store that this node has replicas of, from which on it splits none by itself. 0: four for each core.
        fixed "session_store_shards_per_node" => session_store_shards_per_node: Option<NonZero<u16>>, range 0..=4096;
        /// Folder for the tables of the session store. Unset: one in `dataDir`.
        fixed "session_store_data_dir" => session_store_folder: Option<PathBuf>;
        /// Replicas of each shard of the inbox store that vote: 1, 3 or 5; an even number would survive no more
        /// failures than one less, and is refused. 0: 3 in a cluster of three nodes or more, else 1. A node that
        /// runs alone has one.
        fixed "inbox_store_replica_voter_count" => inbox_store_voters: Option<NonZero<u8>>, range 0..=5;
        /// Shards that the inbox store begins with, by client identifier. It counts at the first start; later it has no effect.
        fixed "inbox_store_initial_shards" => inbox_store_shards: u16 = 1, range 1..=1024;
        /// When a shard of the inbox store is split by itself: when it has been busy for ten seconds while a thread or a node has
        /// room (`load`), as BifroMQ does (`bifromq`, with three options below), as a script says (`script`), or never (`none`): by hand
        /// only. docs/operate/cluster.md tells more.
        fixed "inbox_store_split_policy" => inbox_store_split_policy: SplitPolicy = SplitPolicy::Load;
        /// With `script`: the file, in the language Rhai; its content is read again. docs/operate/split-policies.md tells more.
        live "inbox_store_split_script" => inbox_store_split_script: Option<PathBuf>;
        /// With `bifromq`: a shard is not split while an operation takes as long, on average.
        fixed "inbox_store_io_nanos_limit" => inbox_store_io_nanos_limit: Duration = Duration::from_nanos(30_000), unit Nanoseconds;
        /// With `bifromq`: a shard is split when an entry of its log has more operations, on average.
        fixed "inbox_store_max_io_density" => inbox_store_max_io_density: u64 = 100, range 1..=u64::MAX;
        /// With `bifromq`: no shard is split while the broker uses so much of the machine's CPU time, from 0 to 1.
        fixed "inbox_store_range_split_max_cpu_usage" => inbox_store_max_cpu_usage: CpuShare = CpuShare::default();
        /// Time from one split of the inbox store on a node to the next that the node makes by itself.
        fixed "inbox_store_split_cooldown_ms" => inbox_store_split_cooldown: Duration = Duration::from_secs(20), unit Milliseconds;
        /// Shards of the inbox store that this node has replicas of, from which on it splits none by itself. 0: four for each core.
        fixed "inbox_store_shards_per_node" => inbox_store_shards_per_node: Option<NonZero<u16>>, range 0..=4096;
        /// Folder for the tables of the inbox store. Unset: one in `dataDir`.
        fixed "inbox_store_data_dir" => inbox_store_folder: Option<PathBuf>;
        /// Replicas of each shard of the retain store that vote: 1, 3 or 5; an even number would survive no more
        /// failures than one less, and is refused. 0: 3 in a cluster of three nodes or more, else 1. A node that
        /// runs alone has one.
        fixed "retain_store_replica_voter_count" => retain_store_voters: Option<NonZero<u8>>, range 0..=5;
        /// Shards that the retain store begins with, by topic. It counts at the first start; later it has no effect.
        fixed "retain_store_initial_shards" => retain_store_shards: u16 = 1, range 1..=1024;
        /// When a shard of the retain store is split by itself: when it has been busy for ten seconds while a thread or a node has
        /// room (`load`), as BifroMQ does (`bifromq`, with three options below), as a script says (`script`), or never (`none`): by hand
        /// only. docs/operate/cluster.md tells more.
        fixed "retain_store_split_policy" => retain_store_split_policy: SplitPolicy = SplitPolicy::Load;
        /// With `script`: the file, in the language Rhai; its content is read again. docs/operate/split-policies.md tells more.
        live "retain_store_split_script" => retain_store_split_script: Option<PathBuf>;
        /// With `bifromq`: a shard is not split while an operation takes as long, on average.
        fixed "retain_store_io_nanos_limit" => retain_store_io_nanos_limit: Duration = Duration::from_nanos(30_000), unit Nanoseconds;
        /// With `bifromq`: a shard is split when an entry of its log has more operations, on average.
        fixed "retain_store_max_io_density" => retain_store_max_io_density: u64 = 100, range 1..=u64::MAX;
        /// With `bifromq`: no shard is split while the broker uses so much of the machine's CPU time, from 0 to 1.
        fixed "retain_store_range_split_max_cpu_usage" => retain_store_max_cpu_usage: CpuShare = CpuShare::default();
        /// Time from one split of the retain store on a node to the next that the node makes by itself.
        fixed "retain_store_split_cooldown_ms" => retain_store_split_cooldown: Duration = Duration::from_secs(20), unit Milliseconds;
        /// Shards of the retain store that this node has replicas of, from which on it splits none by itself. 0: four for each core.
        fixed "retain_store_shards_per_node" => retain_store_shards_per_node: Option<NonZero<u16>>, range 0..=4096;
        /// Folder for the tables of the retain store. Unset: one in `dataDir`.
        fixed "retain_store_data_dir" => retain_store_folder: Option<PathBuf>;
        group "mqttServerConfig" => mqtt_server_config: MqttServerConfig;
        group "clusterConfig" => cluster_config: ClusterConfig;
        group "authentication" => authentication: AuthenticationConfig;
        group "control" => control: ControlConfig;
        group "authorization" => authorization: AuthorizationConfig;
        group "abuse" => abuse: AbuseConfig;
        group "http" => http: HttpConfig;
        group "log" => log: LogConfig;
        group "mqtt" => mqtt: MqttConfig;
        group "inbox" => inbox: InboxConfig;
        group "limits" => limits: Limits;
        /// Classes of clients with limits of their own, the first that matches counts. One object, or a list of them, 32 at most.
        live "clientClasses" => client_classes: Vec<ClientClassConfig>;
        /// What takes messages to other systems. One object, or a list of them, 64 at most. docs/operate/outlets.md.
        live "outlets" => outlets: Vec<OutletConfig>;
        /// What brings messages of other brokers in. One object, or a list of them, 64 at most together with the outlets. docs/operate/inlets.md.
        live "inlets" => inlets: Vec<InletConfig>;
        group "retain" => retain: RetainConfig;
        group "store" => store: StoreConfig;
        group "sys" => sys: SysConfig;
        group "attention" => attention: AttentionConfig;
        group "telemetry" => telemetry: TelemetryConfig;
        group "stop" => stop: StopConfig;
    }

    /// This node as a member of a cluster. It is one if `host`, `seedEndpoints` or `clusterDomainName` is
    /// set, and runs alone otherwise. docs/operate/cluster.md tells how to form a cluster.
    pub struct ClusterConfig {
        /// Name of the cluster; nodes of another name are not talked to.
        fixed "env" => env: String = "default".to_owned();
        /// What people call this node: shown beside its identifier in tables, logs and metrics. Unset: the name of the
        /// host. Two nodes may have the same name; nothing goes by it.
        fixed "nodeName" => node_name: Option<NodeName>;
        /// Address under which the other nodes reach this one. Unset in a cluster: the one that this node sends
        /// from to `seedEndpoints` or `clusterDomainName`, found at each start.
        fixed "host" => host: Option<Host>;
        /// Port under which the other nodes reach this one: TCP and UDP.
        fixed "port" => port: u16 = 8899, range 1..=U16;
        /// Name whose addresses are the nodes of the cluster, as an alternative to seed endpoints.
        fixed "clusterDomainName" => cluster_domain_name: Option<String>;
        /// Nodes to join the cluster through; this node may be among them.
        fixed "seedEndpoints" => seed_endpoints: Endpoints;
        /// Secret that all nodes share: the content of this file. Without it and `sslConfig`, nodes have loopback,
        /// private (RFC 1918, `fc00::/7`) or link-local addresses only, and whoever reaches the port from one can become
        /// a member: the node warns, and `heraldmq_cluster_open_to_strangers` is 1.
        fixed "secretFile" => secret_file: Option<PathBuf>;
        /// Lets nodes with neither `secretFile` nor `sslConfig` have public addresses, too: whoever reaches the port
        /// can become a member, and read and change everything. Only for networks that nobody else reaches.
        fixed "insecure" => insecure: bool = false;
        /// Time after which the shards of a node that is down get another replica elsewhere, if there is
        /// a node for it. 0: they wait for the node.
        fixed "replaceAfterSeconds" => replace_after: Option<Duration> = Some(Duration::from_secs(600)), unit Seconds;
        /// Time for which each node must have been of a new version before the level of the shards is raised by itself, which
        /// finishes the upgrade: then no node goes back to the version before. 0: only `heraldmq cluster upgrade finish` raises
        /// it.
        fixed "raiseLevelAfterSeconds" => raise_level_after: Option<Duration> = Some(Duration::from_secs(24 * 3_600)), unit Seconds;
        /// How often the three or more replicas of a shard that has changed compare what they hold. One that differs from the majority
        /// takes all anew from its leader, and the alarm `replica_differs` tells. 0: never.
        fixed "compareReplicasSeconds" => compare_replicas: Option<Duration> = Some(Duration::from_secs(30)), unit Seconds;
        /// Time for which a node with `bootstrap` that knows no other node waits for members of an existing cluster to dial it,
        /// before it founds one. A node that has lost its data folder is dialled within a second.
        fixed "foundAfterSeconds" => found_after: Option<Duration> = Some(Duration::from_secs(2)), unit Seconds;
        /// Clients that a node that is drained disconnects per second.
        fixed "drainClientsPerSecond" => drain_clients_per_second: NonZero<u16> = at_least_one(200);
        /// What a node does with clients that connect while it has over 5 % more than the mean of the nodes: nothing (`none`); it sends clients of
        /// MQTT 5.0 that can reach it there to the node with the fewest clients (`redirect`: 0x9C with a reference); or it refuses the others as
        /// well (`refuse`), which then find another node by themselves. In each case every second one at most, so that who comes back gets in.
        fixed "spreadAtConnect" => spread_at_connect: SpreadAtConnect = SpreadAtConnect::Nothing;
        /// What the process does when its node has left the cluster.
        fixed "afterLeave" => after_leave: AfterLeave = AfterLeave::End;
        group "sslConfig" => ssl: ClusterSslConfig;
    }

    /// What a node of a cluster does from SIGTERM or SIGINT to its end; a second signal ends it at once. It hands its shards over in
    /// any case. Give whoever stops it (`TimeoutStopSec`, `terminationGracePeriodSeconds`) both times and 30 seconds more.
    pub struct StopConfig {
        /// Time in which the clients are sent to other nodes: at `clusterConfig.drainClientsPerSecond`, or as fast as the time needs.
        /// 0, or no other node is up: all at once.
        fixed "drainSeconds" => drain: Option<Duration>, unit Seconds;
        /// Time for which the node waits at most before it ends, while shards would have no majority of their voters without it
        /// because another node is down. 0: it does not wait.
        fixed "majoritySeconds" => majority: Option<Duration> = Some(Duration::from_secs(30)), unit Seconds;
    }

    /// TLS between the nodes, with certificates on both sides. Set all three files or none.
    pub struct ClusterSslConfig {
        /// Certificate chain of this node, PEM, its own first. It must name `clusterConfig.host`.
        fixed "certFile" => cert_file: Option<PathBuf>;
        /// Private key of the certificate, PEM.
        fixed "keyFile" => key_file: Option<PathBuf>;
        /// Certificates of the authorities that sign those of the nodes, PEM.
        fixed "caFile" => ca_file: Option<PathBuf>;
    }

    /// The HTTP listener for `/metrics`, `/healthz`, `/readyz` and `/api/v1`.
    pub struct HttpConfig {
        /// Whether the HTTP listener is opened.
        fixed "enable" => enable: bool = true;
        /// Address to listen on. `/metrics`, `/healthz` and `/readyz` need no key; everything else needs one from
        /// other machines.
        fixed "host" => host: Host = Host::loopback();
        /// Port to listen on. Unset: 8091, or if that is taken another one, with a warning.
        /// A port given here that is taken is an error. 0: the operating system chooses.
        fixed "port" => port: Option<u16>;
        /// Bearer token of an administrator: the content of this file.
        live "tokenFile" => token_file: Option<PathBuf>;
        /// Keys with roles, as `heraldmq api-key` writes them. Without it and `tokenFile`, nothing can be changed.
        live "keyFile" => key_file: Option<PathBuf>;
        /// People who log in at the HTTP port, with hashed passwords, as `heraldmq passwd` writes them: a file of its own, not that of
        /// MQTT clients. Whoever has no role by `operators` and `administrators` is a viewer.
        live "userFile" => user_file: Option<PathBuf>;
        /// Users of `userFile` who may act on clients, messages, bans and leaders.
        live "operators" => operators: Listed<String>;
        /// Users of `userFile` who may also change the cluster.
        live "administrators" => administrators: Listed<String>;
        /// What requests without a key may do that come from this machine, and that no proxy has passed on.
        live "anonymous" => anonymous: HttpAnonymous = HttpAnonymous::Viewer;
        /// Names of the node in the header `Host` of requests without a key, beside addresses and `localhost`.
        live "hosts" => hosts: Hosts;
        /// With `certFile` and `keyFile` the port is HTTPS only, also for `/metrics`. A client certificate stands for no key.
        group "sslConfig" => ssl: SslConfig;
    }

    /// Logs, which go to standard error.
    pub struct LogConfig {
        /// What is logged: `error`, `warn`, `info`, `debug`, `trace` or `off`, also per target,
        /// as in `info,herald_broker_core=debug`.
        live "level" => level: String = "info".to_owned();
        /// Lines for people (`text`) or one JSON object per line (`json`).
        fixed "format" => format: LogFormat = LogFormat::Text;
    }

    /// Which features of MQTT clients may use. Connections that are open keep what their CONNACK
    /// said; changes apply to new connections.
    pub struct MqttConfig {
        /// Highest quality of service for publishing and subscribing.
        live "maximumQos" => maximum_qos: MaximumQos = MaximumQos::ExactlyOnce;
        /// Whether messages can be retained.
        live "retainAvailable" => retain_available: bool = true;
        /// Whether topic filters may hold wildcards.
        live "wildcardSubscriptionAvailable" => wildcard_subscription_available: bool = true;
        /// Whether shared subscriptions are served.
        live "sharedSubscriptionAvailable" => shared_subscription_available: bool = true;
        /// Whether subscriptions may carry an identifier.
        live "subscriptionIdentifierAvailable" => subscription_identifier_available: bool = true;
        /// Topic aliases that a client may define. 0: none.
        live "topicAliasMaximum" => topic_alias_maximum: u16 = 64;
        /// Topic aliases that the broker defines towards one client at most; the client's own
        /// maximum counts if it is smaller. Messages of QoS 2 go without: some clients hand them out without a topic
        /// then. 0: none.
        live "topicAliasMaximumOut" => topic_alias_maximum_out: u16 = 16;
        /// Longest keep alive. A client that asks for more, or for none, is given this as Server
        /// Keep Alive. 0: whatever the client asks for.
        live "keepAliveMaximum" => keep_alive_maximum_seconds: Option<NonZero<u16>>, unit Seconds;
        /// Longest session expiry interval. 4294967295: never expires.
        live "sessionExpiryMaximum" => session_expiry_maximum_seconds: u32 = u32::MAX, unit Seconds;
        /// Expiry of sessions of MQTT 3.1 and 3.1.1 clients that connect with clean session 0.
        /// 4294967295: never expires.
        live "sessionExpiryV3" => session_expiry_v3_seconds: u32 = u32::MAX, unit Seconds;
        /// Response information for clients that request it. Unset: none.
        live "responseInformation" => response_information: Option<String>;
        /// Server reference sent to clients that are refused for load or disconnected at
        /// shutdown (reason code 0x9C). Unset: none.
        live "serverReference" => server_reference: Option<String>;
        /// Whether a payload announced as UTF-8 is checked, and refused with 0x99 if it is not.
        live "checkPayloadFormat" => check_payload_format: bool = false;
        /// Whether clients of MQTT 3.1 are refused (0x02) if their client identifier has more than 23
        /// characters, as that version demands. Unset, they are let in: many have longer ones.
        live "strictClientIdV31" => strict_client_id_v3_1: bool = false;
    }

    /// The queues of persistent sessions.
    pub struct InboxConfig {
        /// Which messages of QoS 0 are stored for persistent sessions: those that arrive while the
        /// session is offline (`offline`), also those while it is online (`always`), none (`never`).
        live "qos0" => qos0: InboxQos0 = InboxQos0::Offline;
    }

    /// How much clients may take.
    pub struct Limits {
        group "connection" => connection: ConnectionLimits;
        group "topic" => topic: TopicLimits;
        group "session" => session: SessionLimits;
        group "node" => node: NodeLimits;
    }

    /// Limits of each network connection.
    pub struct ConnectionLimits {
        /// Rate at which a client is read. More waits, and is not lost. 0: no limit.
        // Limit: bytes per second, in and out | {limits.connection.bytesPerSecondIn},
        // {limits.connection.bytesPerSecondOut} | delayed
        live "bytesPerSecondIn" => bytes_per_second_in: Option<NonZero<u64>> = NonZero::new(524_288), unit BytesPerSecond;
        /// Rate at which a client is written to. More waits in its queues. 0: no limit.
        live "bytesPerSecondOut" => bytes_per_second_out: Option<NonZero<u64>> = NonZero::new(524_288), unit BytesPerSecond;
        /// PUBLISH packets read from a client per second. More waits. 0: no limit.
        live "publishesPerSecond" => publishes_per_second: Option<NonZero<u32>>;
        /// Messages of QoS 1 and 2 from a client that may be in flight (Receive Maximum).
        live "receiveMaximum" => receive_maximum: NonZero<u16> = at_least_one(1024);
        /// Messages of QoS 1 and 2 to a client that are in flight at most; the client's Receive
        /// Maximum counts if it is smaller. An outlet has two batches in flight, whatever stands here.
        // Limit: in flight, out and in | {limits.connection.inflightMaximum}, {limits.connection.receiveMaximum} |
        // waits (`waits_for` of a client); 0x93
        live "inflightMaximum" => inflight_maximum: NonZero<u16> = at_least_one(128);
        /// Largest packet from a client; a larger one closes the connection with 0x95. At most 32 MB, for a
        /// message goes in one piece to the stores and to other nodes.
        // Limit: a packet | {limits.connection.maximumPacketSize}, {limits.connection.maximumConnectSize} | 0x95,
        // judged by the announced length
        //
        // Limit: an incomplete packet | {limits.connection.maximumPacketSize},
        // {limits.connection.maximumConnectSize}, in memory only what has arrived | –
        live "maximumPacketSize" => maximum_packet_size: u32 = 2_097_152, unit Bytes, range SMALLEST_PACKET..=LARGEST_PACKET;
        /// The longest client identifier; a longer one is refused with 0x85 (0x02 before MQTT 5.0). It is written
        /// to the disk about four times for each connection, and kept in memory.
        live "clientIdLength" => client_id_length: u16 = 60_000, unit Bytes, range 23..=LONGEST_CLIENT_ID;
        /// Largest packet before the client is authenticated. The smaller of this and
        /// `maximumPacketSize` counts.
        live "maximumConnectSize" => maximum_connect_size: u32 = 65_536, unit Bytes, range SMALLEST_PACKET..=LARGEST_PACKET;
        /// Time from opening a connection to its complete CONNECT.
        live "connectTimeoutMs" => connect_timeout: Duration = Duration::from_secs(45), unit Milliseconds, range 1..=U32;
        /// Time from opening a connection to the end of its PROXY, TLS and WebSocket handshakes.
        // Limit: handshakes of PROXY, TLS and WebSocket | {limits.connection.handshakeTimeoutMs} | closed
        live "handshakeTimeoutMs" => handshake_timeout: Duration = Duration::from_secs(30), unit Milliseconds, range 1..=U32;
        /// How long a full queue of a subscriber may hold back a publisher of QoS 1 and 2 before
        /// `limits.session.queueFull` applies. 0: not at all.
        live "holdPublisherMs" => hold_publisher: Option<Duration> = Some(Duration::from_secs(5)), unit Milliseconds;
        /// How long a subscriber whose full queue has not yet drained in time may hold back a publisher whose
        /// messages also have other receivers. Each message that the subscriber has acknowledged adds a 1250th
        /// of `holdPublisherMs`, up to `holdPublisherMs` in all. 0: not at all before the first
        /// acknowledgement.
        live "holdUnearnedMs" => hold_unearned: Option<Duration> = Some(Duration::from_millis(80)), unit Milliseconds;
    }

    /// Limits of each topic name and topic filter.
    pub struct TopicLimits {
        /// Levels, which are one more than there are `/`.
        // Limit: a topic name or filter | {limits.topic.length}, {limits.topic.levels} | 0x90, 0x8F
        live "levels" => levels: u16 = 128, range 1..=U16;
        /// Length. A longer topic name is refused with 0x90, a longer topic filter with 0x8F; an alias that is
        /// set to a longer topic name stands for none.
        live "length" => length: u16 = 4_096, unit Bytes, range 1..=U16;
    }

    /// Limits of each session.
    pub struct SessionLimits {
        /// Messages queued for a session.
        // Limit: a session's queue | {limits.session.queueMessages}, {limits.session.queueBytes} | messages of QoS 0
        // are dropped; publishers are held back, then {limits.session.queueFull} decides
        //
        // Limit: a durable session's queue | {limits.session.queueMessages}, {limits.session.queueBytes} | dropped
        // for this session; with `queueFull: refuse` its publisher is told by 0x97, unless the session has been away
        // for {limits.session.queueFullAwaySeconds}
        live "queueMessages" => queue_messages: u32 = 10_000, range 1..=U32;
        /// Size of the messages queued for a session.
        // Limit: messages of QoS 0 that are held until an inbox has given what it kept | those of the session's
        // queue: {limits.session.queueMessages}, {limits.session.queueBytes} | dropped and counted as there
        live "queueBytes" => queue_bytes: u64 = 16_777_216, unit Bytes, range 1..=u64::MAX;
        /// Which message is dropped for a session whose queue is full: the oldest in it (`dropOldest`) or the
        /// arriving one (`dropNewest`). All others get it, and its publisher is told that it is kept. Each drop is
        /// counted and kept in the drop list, and the log names the session. `refuse`: the arriving one, and if the
        /// session is a persistent one, its publisher is told by 0x97 (5.0, QoS 1 and 2), and should publish it
        /// again: so what is acknowledged is kept by all, and one full queue stops its publishers. Before 5.0 an
        /// acknowledgement cannot say no.
        live "queueFull" => queue_full: QueueFull = QueueFull::DropNewest;
        /// With `queueFull: refuse`: a persistent session whose client has been away for longer drops instead, from
        /// the first message that came for it since. 4294967295: it refuses without end.
        live "queueFullAwaySeconds" => queue_full_away: u32 = 3_600, unit Seconds;
        /// How long a message is kept in the queue of a persistent session. Older ones are dropped within a tenth of that and
        /// some seconds, unless they may have been sent to the client; each is counted and kept in the drop list. 0: no limit.
        live "queueAgeSeconds" => queue_age: u32 = 0, unit Seconds;
        /// The age of the oldest message in the queue of a persistent session at which the log says that the session lags; it
        /// says so, too, when the session has caught up. 0: never.
        live "queueAgeWarnSeconds" => queue_age_warn: u32 = 0, unit Seconds;
        /// What waits with a member of a shared group that is away for longer goes to members that are connected: also to one that
        /// comes back, or that is new. Its other messages stay with it. 0: never, it waits until the session ends.
        live "sharedHandoverAwaySeconds" => shared_handover_away: u32 = 300, unit Seconds;
        /// Space on the disk of the data folder that queues of persistent sessions leave free. While the node that leads a
        /// session's shard has less, nothing more is queued for a client that is away, and at most 1,000 messages for one
        /// that is connected: `queueFull` says whether such a message is dropped or refused, but the oldest one never makes
        /// room. 0: queues may fill the disk.
        live "queueDiskFree" => queue_disk_free: u64 = 0, unit Bytes;
        /// Subscriptions; further ones are refused with 0x97.
        live "subscriptions" => subscriptions: u32 = 10_000, range 1..=U32;
        /// Patterns of `+` in the filters of a session: `a/+` and `b/+` have one, `+/a` and `a/+/+` have
        /// others. A filter with a further one is refused with 0x97: patterns, not filters, are what a message
        /// is compared with.
        // Limit: patterns of `+` in the filters of a session, and so what they cost a match: one path of the trie for
        // each | {limits.session.wildcardPatterns} | 0x97
        live "wildcardPatterns" => wildcard_patterns: u32 = 64, range 1..=U32;
        /// Size of the topic filters of all subscriptions; more is refused with 0x97.
        live "subscriptionBytes" => subscription_bytes: u64 = 1_048_576, unit Bytes, range 1..=u64::MAX;
    }

    /// Limits of this node as a whole.
    pub struct NodeLimits {
        /// Clients connected at the same time; further ones are refused. 0: as many as file descriptors allow.
        // Limit: connections, sessions, subscriptions | {limits.node.connections},
        // {limits.node.connectionsPerSecond}, {limits.node.sessions}, {limits.session.subscriptions} | 0x97;
        // connections beyond the number of a second wait
        live "connections" => connections: Option<NonZero<u32>>;
        /// Connections accepted per second; further ones wait. 0: no limit.
        live "connectionsPerSecond" => connections_per_second: Option<NonZero<u32>>;
        /// Sessions, online and offline; further ones are refused with 0x97.
        live "sessions" => sessions: u32 = 10_000_000, range 1..=U32;
        /// Size of the topic filters of all clients that are connected to this node, and of the persistent
        /// sessions that are kept on it, connected or not; more is refused with 0x97.
        // Limit: topic filters of a session; of all connected clients and all inboxes of a node |
        // {limits.session.subscriptionBytes}, {limits.node.subscriptionBytes}; none while memory is scarce | 0x97
        live "subscriptionBytes" => subscription_bytes: u64 = 1_073_741_824, unit Bytes, range 1..=u64::MAX;
        /// Patterns of `+` in the filters of all sessions that this node knows of, also on other nodes and not
        /// connected: a message is compared with one path of filters for each. A filter with a further one is
        /// refused with 0x97. Filters that come from templates have few.
        // Limit: patterns of `+` in all filters that a node knows of, also of absent sessions and other nodes |
        // {limits.node.wildcardPatterns} | 0x97
        live "wildcardPatterns" => wildcard_patterns: u32 = 1_000, range 1..=U32;
        /// What the sessions of one user may have of `subscriptionBytes` and `wildcardPatterns`, connected or
        /// not, in percent; more is refused with 0x97. Anonymous clients have no share. 100: no limit.
        // Limit: what one user's sessions have of the node's room for filters and patterns, connected or not |
        // {limits.node.userShare} | 0x97
        live "userShare" => user_share: u8 = 25, range 1..=100;
        /// Memory in use at which the broker stops reading from publishers, and refuses further subscriptions
        /// with 0x97.
        /// 0: 80 % of what the machine or its cgroup has.
        // Limit: memory | {limits.node.memoryHighWater}, {limits.node.memoryRefuse} | publishers are not read,
        // subscriptions are refused, retained messages wait; connections are refused
        live "memoryHighWater" => memory_high_water: Option<NonZero<u64>>, unit Bytes;
        /// Memory in use at which new connections are refused with 0x97 (3.1.1: 3); not below
        /// `memoryHighWater`. 0: 90 % of what the machine or its cgroup has.
        live "memoryRefuse" => memory_refuse: Option<NonZero<u64>>, unit Bytes;
        /// Size of the queues of all persistent sessions that are kept on this node, as `limits.session.queueBytes` counts it.
        /// If they have more, the oldest messages of the largest queue are dropped, until they do not: first of clients of no
        /// class, then of `clientClasses` from the last to the first. 0: no limit.
        live "queuedBytes" => queued_bytes: Option<NonZero<u64>>, unit Bytes;
        /// Drops that the drop list remembers; older ones are forgotten, but stay counted.
        // Limit: recent drops | {limits.node.recentDrops} | the oldest is forgotten, the counters are not
        fixed "recentDrops" => recent_drops: u32 = 1024, range 0..=1_048_576;
    }

    /// The retained messages.
    pub struct RetainConfig {
        /// Retained messages in each shard that the retain store began with; further ones are refused with 0x97. If such a
        /// shard was split, each part may keep the share of its slots, a 256th at least, and refuses more even if another
        /// part has room.
        // Limit: retained messages | {retain.maxMessages}, {retain.maxBytes} | refused with 0x97, counted
        live "maxMessages" => max_messages: u64 = 1_000_000, range 1..=u64::MAX;
        /// Size of the retained messages in each shard that the retain store began with; more is refused with 0x97. Parts
        /// of a shard that was split share it as `maxMessages`.
        live "maxBytes" => max_bytes: u64 = 1_073_741_824, unit Bytes, range 1..=u64::MAX;
        /// How long a retained message is kept that no rule of `retain.rules` is for, from when it was published: within a tenth of that
        /// and some minutes it is removed, and counted by `heraldmq_retained_removed_total`. Its own Message Expiry Interval may end
        /// it before. What was retained before the level of the cluster was 8 counts from when such a rule was first in force. 0: no limit.
        live "maxAgeSeconds" => max_age: u32 = 0, unit Seconds;
        live "rules" => rules: Vec<RetainRuleConfig>;
    }

    /// What is kept of the retained messages of some topics. The first rule whose topics match is that of a message; a rule without
    /// limits keeps all. What a rule does not keep is removed in parts while the broker serves. Up to 64 rules.
    pub struct RetainRuleConfig {
        /// The topic filter, such as `plant/+/state`. As in a subscription, `#` and `+` at its beginning do not match topics that
        /// begin with `$`.
        live "topics" => topics: Option<String>;
        /// How long a message is kept, from when it was published; as `retain.maxAgeSeconds`. 0: no limit.
        live "maxAgeSeconds" => max_age: u32 = 0, unit Seconds;
        /// Messages that a node keeps. If there are more, those are removed that were published first: exactly those if they are
        /// few, and about those if they are more than 256, or in several shards. 0: no limit.
        live "maxMessages" => max_messages: Option<NonZero<u64>>;
        /// Size of the messages that a node keeps, as `retain.maxBytes` counts it; what is too much is removed as with `maxMessages`.
        /// 0: no limit.
        live "maxBytes" => max_bytes: Option<NonZero<u64>>, unit Bytes;
    }

    /// The durable store of sessions, inboxes and retained messages.
    pub struct StoreConfig {
        /// Threads that its shards live on. 0: one for four cores, and up to one for two, of which there are two where there are
        /// two cores, when splits have made more shards.
        fixed "threads" => threads: Option<NonZero<u16>>, range 0..=256;
        /// Time in which all tables, the log and the small files of the data folder are read again from the disk, to find what it has
        /// damaged: at most 5 MB/s, and nothing while syncs take twice as long as in the last hour. 0: they are not read.
        fixed "scrubSeconds" => scrub: Option<Duration> = Some(Duration::from_secs(20 * 3_600)), unit Seconds;
    }

    /// From which counts on the node has an alarm.
    pub struct AttentionConfig {
        /// Messages dropped per second, on average of the last minute, from which on the node has the alarm `dropping`. 0: never.
        live "dropsPerSecond" => drops_per_second: u32 = 1;
        /// Full queues of persistent sessions whose shards the node leads from which on it has the alarm `queues_full`. 0: never.
        live "fullQueues" => full_queues: u32 = 1;
        /// Publishers that have waited for half of the last minute or more from which on the node has the alarm
        /// `publishers_held`. More than 128 for each event loop are not counted. 0: never.
        live "publishersHeld" => publishers_held: u32 = 10;
    }

    /// The `$SYS` topics.
    pub struct SysConfig {
        /// Time between two publications. 0: no `$SYS` topics.
        live "intervalSeconds" => interval: Option<Duration> = Some(Duration::from_secs(10)), unit Seconds;
    }
}

choice! {
    /// Form of the log.
    pub enum LogFormat {
        /// Lines for people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }

    /// Highest quality of service. [MQTT 5.0 §3.2.2.3.4]
    pub enum MaximumQos {
        /// QoS 0.
        AtMostOnce = "0",
        /// QoS 0 and 1.
        AtLeastOnce = "1",
        /// QoS 0, 1 and 2.
        ExactlyOnce = "2",
    }

    /// Which messages of QoS 0 are stored for persistent sessions.
    pub enum InboxQos0 {
        /// Those that arrive while the session is offline.
        Offline = "offline",
        /// All of them.
        Always = "always",
        /// None.
        Never = "never",
    }

    /// What a process does when its node has left.
    pub enum AfterLeave {
        /// It ends, with exit code 0.
        End = "end",
        /// It stays, serves no clients and is not ready, until SIGTERM or SIGINT: for supervisors that start again whatever ends.
        Wait = "wait",
    }

    /// What requests without a key may do.
    pub enum HttpAnonymous {
        /// Read.
        Viewer = "viewer",
        /// Nothing.
        None = "none",
    }

    /// What a node that has more clients than the others does with those that connect.
    pub enum SpreadAtConnect {
        /// Nothing.
        Nothing = "none",
        /// It sends those to another node that it can tell which.
        Redirect = "redirect",
        /// It refuses the others as well.
        Refuse = "refuse",
    }

    /// When a shard is split by itself.
    pub enum SplitPolicy {
        /// When it is busy.
        Load = "load",
        /// As BifroMQ does.
        Bifromq = "bifromq",
        /// As the script of the store says.
        Script = "script",
        /// Never.
        Nothing = "none",
    }

    /// Which message a full queue drops.
    pub enum QueueFull {
        /// The oldest in the queue.
        DropOldest = "dropOldest",
        /// The arriving one.
        DropNewest = "dropNewest",
        /// The arriving one, and the publisher is told that it is not kept.
        Refuse = "refuse",
    }
}

impl MaximumQos {
    /// As in the properties of MQTT: 0, 1 or 2.
    pub const fn level(self) -> u8 {
        match self {
            Self::AtMostOnce => 0,
            Self::AtLeastOnce => 1,
            Self::ExactlyOnce => 2,
        }
    }
}

impl ClusterConfig {
    /// Whether this node is, or is to become, a member of a cluster.
    pub fn is_enabled(&self) -> bool {
        self.host.is_some() || self.finds_others()
    }

    /// Whether neither a secret nor certificates keep strangers out: then [`ClusterConfig::open_to`] says who comes in.
    pub(crate) fn is_open(&self) -> bool {
        self.is_enabled() && self.secret_file.is_none() && self.ssl.files().is_none()
    }

    /// Which addresses the nodes may have while there is neither a secret nor TLS: private ones ([`is_private`]), or all
    /// if the cluster is `insecure`.
    pub fn open_to(&self) -> fn(IpAddr) -> bool {
        match self.insecure {
            true => |_| true,
            false => is_private,
        }
    }

    /// An address that is public, of this node or of a seed, and the option that has it. Names have their addresses
    /// looked at when they are resolved.
    pub(crate) fn public_host(&self) -> Option<(&'static str, &Host)> {
        let own = self.host.iter().map(|host| ("clusterConfig.host", host));
        let seeds = self.seed_endpoints.iter();
        let seeds = seeds.map(|seed| ("clusterConfig.seedEndpoints", &seed.host));
        own.chain(seeds).find(|(_, host)| host.is_public())
    }

    /// Whether it says where other nodes are.
    pub(crate) fn finds_others(&self) -> bool {
        !self.seed_endpoints.is_empty() || self.cluster_domain_name.is_some()
    }
}

impl ClusterSslConfig {
    /// Certificate, key and authorities, if links between nodes use TLS.
    pub fn files(&self) -> Option<[&Path; 3]> {
        let [cert, key, ca] = [&self.cert_file, &self.key_file, &self.ca_file];
        Some([cert.as_deref()?, key.as_deref()?, ca.as_deref()?])
    }

    pub(crate) fn is_half_set(&self) -> bool {
        let files = [&self.cert_file, &self.key_file, &self.ca_file];
        self.files().is_none() && files.iter().any(|file| file.is_some())
    }
}

/// For defaults, so that a zero among them does not compile into anything.
const fn at_least_one(number: u16) -> NonZero<u16> {
    match NonZero::new(number) {
        Some(number) => number,
        None => panic!("a default that must not be zero is zero"),
    }
}
