//! `/metrics`: every counter of every loop, summed when somebody asks.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use authorization::Action;
use cluster::{Channel, LinkReading, Members};
use guard::{Refusal, Remembered};
use host::Process;
use mqtt_session::Timestamp;
use net::{HandshakeFailure, ListenerStats, LoopStats};
use net_api::{Counter, Kind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use store::{AWAY_DAYS, ScrubStats, ShardCost, ShardInfo, ShardStats, StoreStats, Verdict};
use store_state::api::{PerStore, StoreId};
use telemetry::Counts;

use crate::certificate_metrics::CertificateCollector;
use crate::clustered::name_of;
use crate::control::{control_age, reach, without_leader};
use crate::listeners::Listening;
use crate::node::Node;
use crate::spreading;
use admin::cluster::{Evenness, Reach};
use broker_core::Reason;
use broker_core::{BrokerStats, ClosedBeforeConnect, HeldReason, sum};

use crate::latency_metrics::encode_latency;
use crate::net_stats::sum_net;
use crate::otlp::PushCollector;
use crate::outlets::{OutletCollector, Outlets};
use crate::process_metrics::ProcessCollector;
use crate::queue_metrics::encode_queues;

/// The registry of a node, of its outlets, and of its pushes to OpenTelemetry if it makes any, for the text format of Prometheus (OpenMetrics).
pub(crate) fn registry(
    node: Arc<Node>,
    listeners: &[Listening],
    pushes: Option<Arc<Counts>>,
    outlets: Option<Arc<Outlets>>,
) -> Registry {
    let mut registry = Registry::default();
    let own = registry.sub_registry_with_prefix("heraldmq");
    own.register_collector(Box::new(NodeCollector(Arc::clone(&node))));
    own.register_collector(Box::new(CertificateCollector::new(listeners)));
    own.register_collector(Box::new(PushCollector(pushes)));
    own.register_collector(Box::new(OutletCollector(outlets)));
    let process = registry.sub_registry_with_prefix("process");
    process.register_collector(Box::new(ProcessCollector(node)));
    registry
}

/// The metrics in the text format of Prometheus, version 0.0.4, which every scraper reads. The library
/// writes OpenMetrics, where the description of a counter leaves out the `_total` of its samples.
pub(crate) fn text(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut open_metrics = String::new();
    encode(&mut open_metrics, registry)?;
    let mut text = String::with_capacity(open_metrics.len());
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", "EOF"] | ["#", "UNIT", ..] => {}
            ["#", "HELP", name, help] => {
                let counter = lines
                    .peek()
                    .is_some_and(|next| next.starts_with("# TYPE") && next.ends_with(" counter"));
                let total = if counter { "_total" } else { "" };
                writeln!(text, "# HELP {name}{total} {help}")?;
            }
            ["#", "TYPE", name, "counter"] => writeln!(text, "# TYPE {name}_total counter")?,
            _ => writeln!(text, "{line}")?,
        }
    }
    Ok(text)
}

#[derive(Debug)]
struct NodeCollector(Arc<Node>);

type Encoded = Result<(), std::fmt::Error>;

/// A counter: name, help, and where it stands.
type Described<S> = (&'static str, &'static str, fn(&S) -> &Counter);

/// Counters of the MQTT side.
const BROKER: [Described<BrokerStats>; 34] = [
    ("packets_received", "Control packets received", |s| {
        &s.packets_in
    }),
    ("packets_sent", "Control packets sent", |s| &s.packets_out),
    ("publishes_sent", "PUBLISH packets sent", |s| {
        &s.publishes_out
    }),
    (
        "publishes_unmatched",
        "PUBLISH packets whose topic matched no subscription",
        |s| &s.unmatched,
    ),
    ("connects", "CONNECT packets accepted", |s| &s.connects),
    ("connects_refused", "CONNECT packets refused", |s| {
        &s.refused
    }),
    (
        "logins_allowed",
        "Clients that have authenticated, also again on the same connection",
        |s| &s.logins,
    ),
    (
        "logins_denied",
        "Clients refused because their credentials are wrong or no authenticator knows them",
        |s| &s.logins_denied,
    ),
    (
        "logins_failed",
        "Clients refused because an authenticator could not be asked",
        |s| &s.logins_failed,
    ),
    (
        "violations",
        "Connections closed because the client broke the protocol",
        |s| &s.violations,
    ),
    (
        "takeovers",
        "Sessions taken over by a new connection",
        |s| &s.takeovers,
    ),
    (
        "takeover_timeouts",
        "CONNECT packets refused because a node that had the client did not answer in time",
        |s| &s.takeover_timeouts,
    ),
    (
        "stale_answers",
        "Answers and pages of the store for connections that were over",
        |s| &s.stale_answers,
    ),
    (
        "disconnect_timeouts",
        "Connections of clients that sent DISCONNECT, broken because the store did not record it in time",
        |s| &s.disconnect_timeouts,
    ),
    (
        "session_owner_refusals",
        "Clients refused because another user has made the session of their client identifier",
        |s| &s.not_owner,
    ),
    (
        "subscriptions_revoked",
        "Subscriptions taken back because the rules do not allow them any more",
        |s| &s.revoked,
    ),
    (
        "keep_alive_timeouts",
        "Connections closed because the keep alive passed",
        |s| &s.keep_alive_timeouts,
    ),
    ("wills_published", "Will messages published", |s| &s.wills),
    (
        "publisher_backpressure",
        "Times a publisher was held back for a subscriber's full queue",
        |s| &s.holds,
    ),
    (
        "publisher_backpressure_expired",
        "Times a subscriber held publishers back for limits.connection.holdPublisherMs, or for as long as it had earned, and did not drain",
        |s| &s.holds_expired,
    ),
    (
        "publisher_backpressure_skipped",
        "Messages whose publisher was not held back, because the subscriber had not earned it or the publisher had just waited in vain for another one",
        |s| &s.holds_spared,
    ),
    (
        "packet_identifier_waits",
        "Times a client of a durable session was sent nothing more because it kept the acknowledgement of one message back for 32,768 others",
        |s| &s.identifier_waits,
    ),
    (
        "publish_rate_pauses",
        "Reads put off because of limits.connection.publishesPerSecond",
        |s| &s.throttled_publishes,
    ),
    (
        "memory_pauses",
        "Reads put off because memory is scarce",
        |s| &s.pressure_pauses,
    ),
    (
        "store_pauses",
        "Reads put off because the store has enough to do",
        |s| &s.store_pauses,
    ),
    (
        "peer_pauses",
        "Reads put off because too much is on its way to another node",
        |s| &s.peer_pauses,
    ),
    (
        "messages_forwarded",
        "Messages sent to other nodes, one for each node",
        |s| &s.forwarded,
    ),
    (
        "messages_from_peers",
        "Messages that came from other nodes",
        |s| &s.from_peers,
    ),
    (
        "subscribe_route_waits",
        "SUBSCRIBE packets whose answer waited until all nodes knew their routes",
        |s| &s.route_waits,
    ),
    (
        "retained_replay_pauses",
        "Replays of retained messages that waited because too many messages passed them by",
        |s| &s.replay_pauses,
    ),
    (
        "subscriptions_refused",
        "Topic filters of SUBSCRIBE packets that were refused",
        |s| &s.subscriptions_refused,
    ),
    (
        "deliveries_put_off",
        "Messages of which some receivers got theirs in a later turn",
        |s| &s.deliveries_put_off,
    ),
    (
        "publisher_delivery_pauses",
        "Times a publisher was held back until the receivers of a message had got it",
        |s| &s.delivery_holds,
    ),
    (
        "match_cache_misses",
        "Topics looked up in the route index",
        |s| &s.cache_misses,
    ),
];

/// Counters of the event loops.
const NET: [Described<LoopStats>; 9] = [
    ("sockets_accepted", "Connections accepted", |s| &s.accepted),
    ("socket_reads", "Calls of read(2)", |s| &s.reads),
    ("socket_writes", "Calls of write(2)", |s| &s.writes),
    ("loop_turns", "Turns of the event loops", |s| &s.turns),
    (
        "turn_pauses",
        "Reads put off because the turn of the loop had enough to do",
        |s| &s.put_off,
    ),
    (
        "loop_turns_helped",
        "Turns run for a sleeping loop by another one",
        |s| &s.helped,
    ),
    (
        "read_rate_pauses",
        "Reads put off because of limits.connection.bytesPerSecondIn",
        |s| &s.throttled_in,
    ),
    (
        "write_rate_pauses",
        "Writes put off because of limits.connection.bytesPerSecondOut",
        |s| &s.throttled_out,
    ),
    ("accept_errors", "Failures of accept(2)", |s| {
        &s.accept_errors
    }),
];

impl Collector for NodeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let node = &*self.0;
        for (name, help, pick) in BROKER {
            counter(&mut encoder, name, help, None, sum(&node.stats, pick))?;
        }
        for (name, help, pick) in NET {
            counter(&mut encoder, name, help, None, sum_net(&node.rim.net, pick))?;
        }
        encode_listeners(&mut encoder, node)?;
        let bytes = Some(&Unit::Bytes);
        counter(
            &mut encoder,
            "received",
            "Bytes read from clients",
            bytes,
            sum_net(&node.rim.net, |s| &s.bytes_in),
        )?;
        counter(
            &mut encoder,
            "sent",
            "Bytes written to clients",
            bytes,
            sum_net(&node.rim.net, |s| &s.bytes_out),
        )?;
        counter(
            &mut encoder,
            "forwarded",
            "Bytes of messages sent to other nodes",
            bytes,
            sum(&node.stats, |s| &s.forwarded_bytes),
        )?;
        counter(
            &mut encoder,
            "from_peers",
            "Bytes of messages that came from other nodes",
            bytes,
            sum(&node.stats, |s| &s.from_peers_bytes),
        )?;
        let payload = sum(&node.stats, |s| &s.publish_bytes_in);
        counter(
            &mut encoder,
            "publish_payload_received",
            "Payload of PUBLISH packets received",
            bytes,
            payload,
        )?;

        let help = "PUBLISH packets received, by QoS";
        let mut family =
            encoder.encode_descriptor("publishes_received", help, None, MetricType::Counter)?;
        for qos in 0..3usize {
            let total: u64 = node
                .stats
                .iter()
                .filter_map(|s| s.publishes_in.get(qos))
                .map(Counter::get)
                .sum();
            let labels = [("qos", qos.to_string())];
            ConstCounter::new(total).encode(family.encode_family(&labels)?)?;
        }
        let help = "Publications, wills, subscriptions and deliveries that rules denied, by action";
        let mut family = encoder.encode_descriptor("denied", help, None, MetricType::Counter)?;
        for (index, action) in Action::ALL.iter().enumerate() {
            let total = node.stats.iter().filter_map(|s| s.denied.get(index));
            let labels = [("action", action.as_str())];
            ConstCounter::new(total.map(Counter::get).sum::<u64>())
                .encode(family.encode_family(&labels)?)?;
        }
        let help = "Connections closed before their CONNECT, by reason";
        let mut family = encoder.encode_descriptor(
            "connections_awaiting_connect_closed",
            help,
            None,
            MetricType::Counter,
        )?;
        for (index, reason) in ClosedBeforeConnect::ALL.iter().enumerate() {
            let total = node
                .stats
                .iter()
                .filter_map(|s| s.closed_before_connect.get(index));
            let labels = [("reason", reason.as_str())];
            ConstCounter::new(total.map(Counter::get).sum::<u64>())
                .encode(family.encode_family(&labels)?)?;
        }
        let shares = &node.rim.descriptors;
        let places = &shares.places;
        let help =
            "Times that accepting stopped because all descriptors for connections were taken";
        counter(&mut encoder, "accept_waits", help, None, places.waits())?;
        for (name, help, value) in [
            (
                "descriptors_kept_back",
                "File descriptors that connections of clients do not get",
                shares.kept_back,
            ),
            (
                "connection_descriptors",
                "File descriptors that connections of clients may have",
                places.most(),
            ),
            (
                "connection_descriptors_taken",
                "File descriptors that connections of clients have",
                places.taken(),
            ),
        ] {
            gauge(&mut encoder, name, help, None, value.0)?;
        }
        let help = "Messages dropped, by reason; /api/v1/drops lists recent ones";
        let mut family =
            encoder.encode_descriptor("messages_dropped", help, None, MetricType::Counter)?;
        for reason in Reason::all() {
            let labels = [("reason", reason.as_str())];
            ConstCounter::new(node.dropped(reason)).encode(family.encode_family(&labels)?)?;
        }

        let help = "Retained messages that the leaders here have removed and no client has, by reason: the message's own expiry, or a rule of `retain`";
        let mut family =
            encoder.encode_descriptor("retained_removed", help, None, MetricType::Counter)?;
        for (end, count) in node.rim.removals.retained.counts() {
            let labels = [("reason", end.name())];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }

        encode_latency(&mut encoder, node)?;
        encode_build(&mut encoder)?;
        encode_queues(&mut encoder, node)?;
        encode_guard(&mut encoder, node)?;
        encode_cluster(&mut encoder, node)?;
        encode_peers(&mut encoder, node)?;
        encode_costs(&mut encoder, node)?;
        encode_splits(&mut encoder, node)?;
        let stored = node.opened_store();
        let now = Timestamp(node.cluster_now_ms());
        let stored = stored.map(|store| store.stats(now)).unwrap_or_default();
        encode_store(&mut encoder, &stored)?;
        let help = "Time for which publishers were held back for durable sessions, as of the beginning of each hold; \
                    /api/v1/backpressure lists who has held whom back";
        let (name, unit) = ("publisher_backpressure_durable", Some(&Unit::Seconds));
        let metric = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        let throttled_ms = sum(&node.stats, |s| &s.throttled_ms);
        ConstCounter::new(throttled_ms as f64 / 1_000.0).encode(metric)?;
        let help = "Time for which packets of connections waited or connections were not read, by reason, as of the end of each wait or \
                    a while before; GET /api/v1/clients?order=held lists whose";
        let (name, unit) = ("connections_held", Some(&Unit::Seconds));
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (index, reason) in HeldReason::ALL.iter().enumerate() {
            let counts = node.stats.iter().filter_map(|s| s.held_ms.get(index));
            let ms: u64 = counts.map(Counter::get).sum();
            let labels = [("reason", reason.as_str())];
            ConstCounter::new(ms as f64 / 1_000.0).encode(family.encode_family(&labels)?)?;
        }
        let sessions = node.sessions();
        let cached = sum(&node.stats, |s| &s.cached_topics);
        let open = sum_net(&node.rim.net, |s| &s.open);
        let connected = node.connected.load(Ordering::Relaxed) as u64;
        let uptime = node.rim.clock.uptime_ms() / 1000;
        let process = Process::own().usage().unwrap_or_default();
        for (name, help, time) in [
            ("cpu_user", "CPU time in user mode", process.cpu_user),
            ("cpu_system", "CPU time in the kernel", process.cpu_system),
        ] {
            let unit = Some(&Unit::Seconds);
            let metric = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
            ConstCounter::new(time.as_secs_f64()).encode(metric)?;
        }
        for (name, help, unit, value) in [
            ("connections_open", "Open network connections", None, open),
            ("clients_connected", "Clients connected", None, connected),
            ("sessions", "Sessions, online and offline", None, sessions),
            (
                "publishers_paused",
                "Publishers that subscribers of this node hold back; one that several hold counts for each",
                None,
                sum(&node.stats, |s| &s.holding),
            ),
            (
                "sessions_routed_after_disconnect",
                "Sessions with many subscriptions whose connections have just ended, and whose routes stay for a while",
                None,
                sum(&node.stats, |s| &s.lingering),
            ),
            (
                "sessions_unreleased",
                "Sessions that are not connected here, of which this process remembers unreleased messages of QoS 2",
                None,
                node.unreleased.sessions() as u64,
            ),
            (
                "direct_wills_remembered",
                "Wills, and messages that ended sessions have left to shared groups, of which this node remembers that connected sessions got them",
                None,
                node.direct.remembered() as u64,
            ),
            (
                "subscriptions",
                "Subscriptions",
                None,
                node.routes.subscriptions() as u64,
            ),
            (
                "wildcard_patterns",
                "Patterns of + in the topic filters of all sessions that this node knows of; limits.node.wildcardPatterns is the limit",
                None,
                node.routes.patterns() as u64,
            ),
            (
                "subscription_filters",
                "Topic filters of connected clients, and of sessions that linger",
                Some(&Unit::Bytes),
                node.subscription_bytes(),
            ),
            (
                "inbox_filters",
                "Topic filters of the inboxes that are kept here, those of shards that other nodes lead included",
                Some(&Unit::Bytes),
                node.inbox_filters.load(Ordering::Relaxed) as u64,
            ),
            (
                "deliveries_waiting",
                "Receivers of messages that get theirs in a later turn",
                None,
                sum(&node.stats, |s| &s.deliveries_waiting),
            ),
            (
                "messages_awaiting_members",
                "Messages for shared groups that wait until all members are known",
                None,
                sum(&node.stats, |s| &s.members_awaited),
            ),
            (
                "ended_sessions_redispatching",
                "Ended sessions whose messages for shared groups are being given to other members",
                None,
                sum(&node.stats, |s| &s.legacies),
            ),
            (
                "connections_superseded",
                "Connections that other nodes take over, and that are read to their end before they are closed",
                None,
                sum(&node.stats, |s| &s.superseded),
            ),
            (
                "connects_waiting",
                "CONNECTs that wait until another one of the same client is answered",
                None,
                sum(&node.stats, |s| &s.connects_waiting),
            ),
            (
                "wills_unpublished",
                "Wills that could not be published, and that are tried again in a while",
                None,
                sum(&node.stats, |s| &s.unpublished_wills),
            ),
            (
                "shared_groups",
                "Shared subscription groups",
                None,
                node.routes.shared_groups() as u64,
            ),
            (
                "retained_messages",
                "Retained messages",
                None,
                stored.retained_messages,
            ),
            (
                "retained",
                "Memory of retained messages",
                Some(&Unit::Bytes),
                stored.retained_bytes,
            ),
            (
                "retained_wills_remembered",
                "Wills of which retain shards of this node remember that they were kept, so that they are kept once",
                None,
                stored.retained_wills,
            ),
            (
                "wills_pending_takeover",
                "Wills of connections that were taken over by another node, which session shards of this node hold until it is known whether the client has discarded them",
                None,
                stored.held_wills,
            ),
            (
                "inboxes",
                "Inboxes of durable sessions",
                None,
                stored.inboxes,
            ),
            (
                "inboxes_full",
                "Inboxes whose queues are full, as far as a message has been dropped for it since this node serves them",
                None,
                stored.full_queues as u64,
            ),
            (
                "inbox_messages",
                "Messages queued in inboxes",
                None,
                stored.queued_messages,
            ),
            (
                "inbox",
                "Messages queued in inboxes",
                Some(&Unit::Bytes),
                stored.queued_bytes,
            ),
            (
                "store_remembered_calls",
                "Publications of QoS 0, and of clean publishers of QoS 2, that inbox shards have recorded and their nodes may ask them to record again",
                None,
                stored.remembered_calls,
            ),
            (
                "store_remembered_fences",
                "Publishers of QoS 2 or of retained messages of which shards know, for a minute, that what earlier connections have sent comes too late",
                None,
                stored.remembered_fences,
            ),
            (
                "store_remembered_wills",
                "Wills, and messages that ended sessions left to shared groups, of which inbox shards remember that they were published",
                None,
                stored.remembered_origins,
            ),
            (
                "store_log_disk",
                "Files of the store's log",
                Some(&Unit::Bytes),
                stored.log.disk_bytes,
            ),
            (
                "match_cache_topics",
                "Topics in the loops' match caches",
                None,
                cached,
            ),
            (
                "memory_pressure",
                "0: none, 1: publishers are not read, 2: connections are refused",
                None,
                { node.pressure() as u64 },
            ),
            (
                "resident_memory",
                "Resident memory of the process",
                Some(&Unit::Bytes),
                process.resident_bytes,
            ),
            (
                "threads",
                "Threads of the process",
                None,
                process.threads.into(),
            ),
            (
                "descriptors_open",
                "Open files and sockets of the process",
                None,
                process.descriptors.unwrap_or_default().into(),
            ),
            (
                "uptime",
                "Time since the start",
                Some(&Unit::Seconds),
                uptime,
            ),
        ] {
            gauge(&mut encoder, name, help, unit, value)?;
        }
        Ok(())
    }
}

/// What came by listeners, by their kind.
fn encode_listeners(encoder: &mut DescriptorEncoder<'_>, node: &Node) -> Encoded {
    let counters: [Described<ListenerStats>; 2] = [
        (
            "listener_accepted",
            "Connections accepted, by the kind of their listener",
            |s| &s.accepted,
        ),
        (
            "listener_refused",
            "Connections closed when they were accepted",
            |s| &s.refused,
        ),
    ];
    for (name, help, pick) in counters {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for kind in Kind::ALL {
            let value = sum_kind(node, kind, pick);
            let labels = [("listener", kind.name())];
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    let (name, help) = ("listener_open", "Connections open");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for kind in Kind::ALL {
        let value = i64::try_from(sum_kind(node, kind, |s| &s.open)).unwrap_or(i64::MAX);
        let labels = [("listener", kind.name())];
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    let help = "PROXY, TLS and WebSocket handshakes that failed";
    let name = "listener_handshakes_failed";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for kind in Kind::ALL {
        for failure in HandshakeFailure::ALL {
            let value = sum_kind(node, kind, |s| s.failed(failure));
            let labels = [("listener", kind.name()), ("reason", failure.name())];
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Sums one counter of the listeners of one kind over all loops.
fn sum_kind(node: &Node, kind: Kind, pick: impl Fn(&ListenerStats) -> &Counter) -> u64 {
    let numbers = (0..).zip(&node.listener_kinds);
    let of_kind = numbers.filter(|(_, other)| **other == kind);
    let sum = of_kind.map(|(number, _)| {
        let loops = node.rim.net.iter();
        loops.map(|s| pick(s.listener(number)).get()).sum::<u64>()
    });
    sum.sum()
}

fn encode_build(encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let help = "Always 1: the version of the program";
    let mut family = encoder.encode_descriptor("build_info", help, None, MetricType::Gauge)?;
    let labels = [("version", env!("CARGO_PKG_VERSION"))];
    ConstGauge::new(1).encode(family.encode_family(&labels)?)
}

/// Members of the cluster, the links to them, and shards whose voters are not all there. On a node that runs
/// alone these are 0.
fn encode_cluster(encoder: &mut DescriptorEncoder<'_>, node: &Node) -> Encoded {
    let clustered = node.rim.clustered();
    let members = clustered.map(|clustered| clustered.cluster().members());
    let name = "cluster_members";
    let help = "Members of the cluster, this node included, by whether it reaches them";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for wanted in [Reach::Up, Reach::Suspect, Reach::Down] {
        let all = members.iter().flat_map(|members| members.nodes.values());
        let count = all.filter(|member| reach(member.reach) == wanted).count();
        let labels = [("reach", wanted.to_string())];
        ConstGauge::new(count as i64).encode(family.encode_family(&labels)?)?;
    }
    let name = "cluster_node_info";
    let help = "Always 1: the identifier and the name of each member";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for member in members.iter().flat_map(|members| members.nodes.values()) {
        let id = format!("{:016x}", member.node);
        let labels = [("node", id.as_str()), ("name", name_of(member))];
        ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
    }
    let help = "Connections to the cluster's port that were refused, by reason";
    let name = "cluster_refused_connections";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    let refusals = clustered.map(|clustered| clustered.cluster().refusals());
    for (reason, count) in refusals.into_iter().flatten() {
        ConstCounter::new(count).encode(family.encode_family(&[("reason", reason)])?)?;
    }
    let is_open = clustered.is_some_and(|clustered| clustered.cluster().is_open());
    let help = "1 if neither clusterConfig.secretFile nor clusterConfig.sslConfig is set: whoever reaches the cluster's \
                port can become a member";
    gauge(
        encoder,
        "cluster_open_to_strangers",
        help,
        None,
        is_open.into(),
    )?;
    let evenness = members.as_ref().map(|members| spreading::evenness(members));
    let help = "Clients of the node of the cluster that has most, divided by the mean of the nodes that serve, as they have told \
                it; 1 if all have as many";
    let metric =
        encoder.encode_descriptor("connections_most_to_mean", help, None, MetricType::Gauge)?;
    ConstGauge::new(evenness.map_or(1.0, Evenness::most_to_mean)).encode(metric)?;
    let missing = members.map_or(0, |members| voters_missing(node, &members));
    let help = "Voting replicas of shards led here whose nodes cannot be reached";
    gauge(encoder, "store_voters_missing", help, None, missing)?;
    let offset_ms = node.rim.cluster_time.own_offset_ms(&node.rim.clock);
    let help = "How far the system's clock is ahead of the time that the cluster goes by";
    let unit = Some(&Unit::Seconds);
    let metric = encoder.encode_descriptor("clock_offset", help, unit, MetricType::Gauge)?;
    ConstGauge::new(offset_ms as f64 / 1_000.0).encode(metric)?;
    let help = "How long this node has not known whether its copy of users, groups and rules is current; 0 while it hears the \
                leader of the control store, and while nothing was ever changed";
    let metric = encoder.encode_descriptor("control_age", help, unit, MetricType::Gauge)?;
    ConstGauge::new(control_age(node).as_secs_f64()).encode(metric)?;
    let name = "store_shards_without_leader";
    let help = "Shards that no node has led for 10 s, as far as this node knows";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    let leaderless = without_leader(node);
    for store in StoreId::ALL {
        let count = leaderless.iter().filter(|(known, _)| *known == store);
        let value = count.count() as i64;
        ConstGauge::new(value).encode(family.encode_family(&[("store", store.name())])?)?;
    }
    let links = clustered.map_or_else(Vec::new, |clustered| clustered.cluster().links());
    type Pick = fn(&LinkReading) -> u64;
    let counters: [(&str, &str, Option<&Unit>, Pick); 5] = [
        (
            "link_connects",
            "Connections to other nodes that came up, by channel",
            None,
            |link| link.connects,
        ),
        (
            "link_frames_sent",
            "Messages, requests and answers sent to other nodes, by channel",
            None,
            |link| link.sent_frames,
        ),
        (
            "link_frames_received",
            "Messages, requests and answers that came from other nodes, by channel",
            None,
            |link| link.received_frames,
        ),
        (
            "link_sent",
            "Bytes sent to other nodes, by channel",
            Some(&Unit::Bytes),
            |link| link.sent_bytes,
        ),
        (
            "link_received",
            "Bytes that came from other nodes, by channel",
            Some(&Unit::Bytes),
            |link| link.received_bytes,
        ),
    ];
    for (name, help, unit, pick) in counters {
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for channel in Channel::ALL {
            let labels = [("channel", channel.name())];
            ConstCounter::new(sum_links(&links, channel, pick))
                .encode(family.encode_family(&labels)?)?;
        }
    }
    let gauges: [(&str, &str, Option<&Unit>, Pick); 2] = [
        (
            "links_connected",
            "Connections to other nodes that are up, by channel",
            None,
            |link| link.connected.into(),
        ),
        (
            "link_queued",
            "Bytes that wait to be sent to other nodes, by channel",
            Some(&Unit::Bytes),
            |link| link.queued_bytes,
        ),
    ];
    for (name, help, unit, pick) in gauges {
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for channel in Channel::ALL {
            let labels = [("channel", channel.name())];
            let value = i64::try_from(sum_links(&links, channel, pick)).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn sum_links(links: &[LinkReading], channel: Channel, pick: fn(&LinkReading) -> u64) -> u64 {
    let of_channel = links.iter().filter(|link| link.channel == channel);
    of_channel.map(pick).sum()
}

/// What each shard has cost that this node leads.
fn encode_costs(encoder: &mut DescriptorEncoder<'_>, node: &Node) -> Encoded {
    let store = node.opened_store();
    let shards = store.map_or_else(Vec::new, |store| store.shards());
    let led = |info: &ShardInfo| Some((info.store, info.shard, info.cost?));
    let costs: Vec<_> = shards.iter().filter_map(led).collect();
    let label = |store: StoreId, shard: u16| (store.name(), shard.to_string());
    let help = "CPU time counted for each shard, by store, shard and part: propose, apply or read; on the node that leads it. What its thread uses beside is not in it";
    let unit = Some(&Unit::Seconds);
    let mut family = encoder.encode_descriptor("shard_cpu", help, unit, MetricType::Counter)?;
    for (store, shard, cost) in &costs {
        let (store, shard) = label(*store, *shard);
        for (part, time) in [
            ("propose", cost.propose),
            ("apply", cost.apply),
            ("read", cost.read),
        ] {
            let labels = [("store", store), ("shard", &*shard), ("part", part)];
            ConstCounter::new(time.as_secs_f64()).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "How long requests have waited for being proposed, all together, by store and shard";
    let mut family = encoder.encode_descriptor("shard_wait", help, unit, MetricType::Counter)?;
    for (store, shard, cost) in &costs {
        let (store, shard) = label(*store, *shard);
        let labels = [("store", store), ("shard", &*shard)];
        ConstCounter::new(cost.wait.as_secs_f64()).encode(family.encode_family(&labels)?)?;
    }
    let help = "The slot at which the load of a shard halves, by store and shard; none while there is no load";
    let mut family = encoder.encode_descriptor("shard_half_slot", help, None, MetricType::Gauge)?;
    for info in shards.iter().filter(|info| info.cost.is_some()) {
        if let Some(half) = info.load.and_then(|load| load.half) {
            let (store, shard) = label(info.store, info.shard);
            let labels = [("store", store), ("shard", &*shard)];
            ConstGauge::new(i64::from(half.at.0)).encode(family.encode_family(&labels)?)?;
        }
    }
    type Pick = fn(&ShardCost) -> u64;
    let counters: [(&str, &str, Option<&Unit>, Pick); 2] = [
        (
            "shard_requests",
            "Requests proposed, by store and shard",
            None,
            |cost| cost.requests.0,
        ),
        (
            "shard_log",
            "Bytes of these in the log, about, by store and shard",
            Some(&Unit::Bytes),
            |cost| cost.log_bytes.0,
        ),
    ];
    for (name, help, unit, pick) in counters {
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (store, shard, cost) in &costs {
            let (store, shard) = label(*store, *shard);
            let labels = [("store", store), ("shard", &*shard)];
            ConstCounter::new(pick(cost)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// What the node splits by itself, and why it does not.
fn encode_splits(encoder: &mut DescriptorEncoder<'_>, node: &Node) -> Encoded {
    let store = node.opened_store();
    let help =
        "Splits that this node has decided on by itself, by store and outcome: done or refused";
    let mut family = encoder.encode_descriptor("splits", help, None, MetricType::Counter)?;
    let counts = store.map(|store| store.splits().counts());
    for (store, count) in counts.iter().flat_map(PerStore::iter) {
        for (outcome, count) in [("done", count.done), ("refused", count.refused)] {
            let labels = [("store", store.name()), ("outcome", outcome)];
            ConstCounter::new(count.0).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Failures of the split scripts of this node, by store and cause: file, syntax, runtime, operations or answer";
    let name = "split_script_failures";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    let failures = store.map(|store| store.splits().scripts().failures());
    for (store, causes) in failures.iter().flat_map(PerStore::iter) {
        for (cause, count) in causes {
            let labels = [("store", store.name()), ("cause", cause.name())];
            ConstCounter::new(count.0).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "1 for what this node has decided last about a split of each shard that it leads, by store, shard and decision";
    let name = "shard_split_decision";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for decision in store.map_or_else(Vec::new, |store| store.splits().decisions()) {
        let shard = decision.shard.to_string();
        let name = match &decision.verdict {
            Verdict::Split { .. } => "split",
            Verdict::Hold(hold) => hold.name(),
        };
        let labels = [
            ("store", decision.store.name()),
            ("shard", &*shard),
            ("decision", name),
        ];
        ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Voters of the shards that a node leads, on nodes that it does not reach.
fn voters_missing(node: &Node, members: &Members) -> u64 {
    let Some(store) = node.opened_store() else {
        return 0;
    };
    let is_missing = |voter: &&u64| {
        let member = members.nodes.get(voter);
        member.is_none_or(|member| reach(member.reach) == Reach::Down)
    };
    let leads = store.leads();
    let led = leads.iter().filter(|(leader, _)| *leader == store.node());
    let missing = led.map(|(_, lead)| lead.voters.iter().filter(is_missing).count());
    missing.sum::<usize>() as u64
}

/// What is known of other nodes, and what they know.
fn encode_peers(encoder: &mut DescriptorEncoder<'_>, node: &Node) -> Encoded {
    let exported = node
        .routes
        .exports()
        .map_or(0, |exports| exports.lock().len());
    let (nodes, shards) = node.routes.unsure();
    let [imported, waiting, copied] = node.peers().map_or([0; 3], |peers| peers.figures());
    for (name, help, unit, value) in [
        (
            "routes_exported",
            "Routes that other nodes are told",
            None,
            exported as u64,
        ),
        (
            "routes_imported",
            "Routes that other nodes have told",
            None,
            imported,
        ),
        (
            "peers_unknown",
            "Nodes whose routes are not known: they get all messages, if they are connected",
            None,
            nodes as u64,
        ),
        (
            "inbox_shards_unknown",
            "Inbox shards whose routes are not known: they get all messages",
            None,
            shards as u64,
        ),
        (
            "route_barriers",
            "SUBSCRIBE packets that wait until all nodes know their routes",
            None,
            waiting,
        ),
        (
            "group_copies",
            "Messages kept until members of shared groups on other nodes have them",
            Some(&Unit::Bytes),
            copied,
        ),
    ] {
        gauge(encoder, name, help, unit, value)?;
    }
    Ok(())
}

/// Who was not let in, and what is remembered for that.
fn encode_guard(encoder: &mut DescriptorEncoder<'_>, node: &Node) -> Encoded {
    let guard = &node.guard;
    let help = "Connections and logins refused in defence against abuse, by reason";
    let mut family = encoder.encode_descriptor("refusals", help, None, MetricType::Counter)?;
    for reason in Refusal::ALL {
        let labels = [("reason", reason.as_str())];
        ConstCounter::new(guard.refused(reason)).encode(family.encode_family(&labels)?)?;
    }
    let help = "Logins denied";
    counter(encoder, "failed_logins", help, None, guard.failed_logins())?;
    let help = "Logins denied at other nodes of the cluster, as far as these have told; they count here as well";
    let elsewhere = guard.failed_logins_elsewhere();
    counter(encoder, "failed_logins_elsewhere", help, None, elsewhere)?;
    let Remembered {
        arrivals,
        addresses,
        logins,
        wrong,
        proven,
        accounts,
        homes,
        clients,
    } = guard.remembered();
    let help = "Entries remembered in defence against abuse, by kind; abuse.trackedEntries is the limit of each";
    let mut family = encoder.encode_descriptor("abuse_tracked", help, None, MetricType::Gauge)?;
    for (kind, entries) in [
        ("arrivals", arrivals),
        ("addresses", addresses),
        ("failed_logins", logins),
        ("failed_credentials", wrong),
        ("proven_credentials", proven),
        ("failed_accounts", accounts),
        ("logged_in_from", homes),
        ("clients", clients),
    ] {
        let labels = [("kind", kind)];
        ConstGauge::new(entries as u64).encode(family.encode_family(&labels)?)?;
    }
    let bans = guard.bans().iter(node.rim.clock.now_ms()).count() as u64;
    gauge(encoder, "bans", "Bans", None, bans)
}

/// What the store counts: its log, and the shards of the three stores.
fn encode_store(encoder: &mut DescriptorEncoder<'_>, stats: &StoreStats) -> Encoded {
    let log = &stats.log;
    for (name, help, unit, value) in [
        (
            "store_log_syncs",
            "Calls of fdatasync(2) for the log",
            None,
            log.syncs,
        ),
        (
            "store_log_entries",
            "Entries written to the log",
            None,
            log.entries,
        ),
        (
            "store_log_written",
            "Bytes written to the log",
            Some(&Unit::Bytes),
            log.written_bytes,
        ),
        (
            "store_log_waits_for_files",
            "Writes to the log tried again because the system lacked files or memory",
            None,
            log.waits_for_files.0,
        ),
    ] {
        counter(encoder, name, help, unit, value)?;
    }
    let help = "Places in the log that were found damaged or missing at the start of the node, or since then";
    gauge(encoder, "store_log_damage", help, None, log.damage.0)?;
    encode_scrub(encoder, &stats.scrub)?;
    let unit = Some(&Unit::Seconds);
    let help = "Time spent in syncs of the log";
    let metric = encoder.encode_descriptor("store_log_sync", help, unit, MetricType::Counter)?;
    ConstCounter::new(log.sync_time.as_secs_f64()).encode(metric)?;
    let help = "Sessions whose clients have been away for longer, to the hour; mqtt.sessionExpiryV3 ends those of \
                clients before MQTT 5.0, and never by default";
    let mut family = encoder.encode_descriptor("sessions_away", help, None, MetricType::Gauge)?;
    for (days, away) in AWAY_DAYS.into_iter().zip(stats.away) {
        let labels = [("longer_than", format!("{days}d"))];
        ConstGauge::new(i64::try_from(away).unwrap_or(i64::MAX))
            .encode(family.encode_family(&labels)?)?;
    }
    type Pick = fn(&ShardStats) -> u64;
    let counters: [(&str, &str, Option<&Unit>, Pick); 10] = [
        (
            "store_forwarded",
            "Requests sent to the nodes that lead their shards, also again",
            None,
            |s| s.forwarded,
        ),
        ("store_batches", "Batches applied", None, |s| s.batches),
        ("store_requests", "Requests applied", None, |s| s.requests),
        ("store_refused", "Requests refused", None, |s| s.refused),
        ("store_checkpoints", "Checkpoints written", None, |s| {
            s.checkpoints
        }),
        (
            "store_replicas_compared",
            "How often replicas of this node were compared with the others",
            None,
            |s| s.compared.0,
        ),
        (
            "store_replicas_differed",
            "Replicas of this node that were found to hold something else than the others",
            None,
            |s| s.differed.0,
        ),
        (
            "store_replicas_made_anew",
            "Of these, those that have taken all anew from their leaders",
            None,
            |s| s.made_anew.0,
        ),
        (
            "store_replicas_mended",
            "Replicas of this node that were damaged and have taken their data from the other nodes",
            None,
            |s| s.damaged.mended.0,
        ),
        (
            "store_checkpoint_written",
            "Bytes of changes that checkpoints wrote",
            Some(&Unit::Bytes),
            |s| s.checkpoint_bytes,
        ),
    ];
    for (name, help, unit, pick) in counters {
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (store, shards) in stats.stores.iter() {
            let labels = [("store", store.name())];
            ConstCounter::new(pick(shards)).encode(family.encode_family(&labels)?)?;
        }
    }
    let gauges: [(&str, &str, Pick); 12] = [
        (
            "store_answers_held",
            "New connections that this node, which leads their session shards, lets wait until wills of older connections of their clients are published",
            |s| s.held_back.answers.0,
        ),
        (
            "store_queues_awaited",
            "Persistent sessions that were connected a moment ago and whose queues are not read yet, in the inbox shards that this node leads: messages of QoS 0 are kept for them",
            |s| s.held_back.queues.0,
        ),
        (
            "store_filters_held",
            "Topic filters of such sessions, for which messages of QoS 0 come to the inbox shard until the queue is read",
            |s| s.held_back.filters.0,
        ),
        (
            "store_requests_joined",
            "Requests that several shards carry out since one was split, and new shards that wait for what was asked before",
            |s| s.joined as u64,
        ),
        ("store_shards", "Shards", |s| s.shards),
        ("store_shards_led", "Shards that this node leads", |s| s.led),
        (
            "store_outstanding",
            "Requests sent to other nodes and not answered yet",
            |s| s.outstanding,
        ),
        (
            "store_shards_stopped",
            "Shards whose replica on this node is damaged and does not serve, and which no other node is known to serve",
            |s| s.stopped,
        ),
        (
            "store_replicas_hurt",
            "Replicas on this node that are damaged and take their data from the other nodes, which serve meanwhile",
            |s| s.damaged.hurt.0,
        ),
        (
            "store_replicas_below_floor",
            "Replicas on this node whose log was damaged, until the others have sent what they may lack; they do not lead meanwhile",
            |s| s.below_floor.0,
        ),
        ("store_waiting", "Requests waiting", |s| s.waiting),
        (
            "store_requests_pending",
            "Requests that wait for space on the disk",
            |s| s.deferred,
        ),
    ];
    for (name, help, pick) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (store, shards) in stats.stores.iter() {
            let value = i64::try_from(pick(shards)).unwrap_or(i64::MAX);
            let labels = [("store", store.name())];
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// What was read again on the disk, and what was found.
fn encode_scrub(encoder: &mut DescriptorEncoder<'_>, scrub: &ScrubStats) -> Encoded {
    let help = "Bytes read again on the disk to find damage";
    let unit = Some(&Unit::Bytes);
    counter(encoder, "store_scrub_read", help, unit, scrub.bytes.0)?;
    let help = "Times that all files on the disk were read again";
    counter(encoder, "store_scrub_rounds", help, None, scrub.rounds.0)?;
    let help = "Time since all files on the disk had been read again; without a value before the first time";
    let name = "store_scrub_round_age";
    let mut family =
        encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
    if let Some(age) = scrub.since_round {
        let none: [(&str, &str); 0] = [];
        ConstGauge::new(age.as_secs_f64()).encode(family.encode_family(&none)?)?;
    }
    let help = "Damage found by reading files again: small files and their copies, places in the log, tables";
    let name = "store_scrub_damage";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (kind, found) in [
        ("small_file", scrub.small_files),
        ("log", scrub.log_places),
        ("table", scrub.tables),
    ] {
        let labels = [("kind", kind)];
        ConstCounter::new(found.0).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: u64,
) -> Encoded {
    let metric = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
    ConstCounter::new(value).encode(metric)
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: u64,
) -> Encoded {
    let metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use guard::Guard;
    use net::Clock;

    use authentication::Authentication;

    use super::*;
    use crate::descriptors::Shares;
    use broker_core::NodeOptions;
    use parking_lot::RwLock;
    use transport::CertificateFacts;

    use crate::node::Process;
    use crate::settings::settings;

    const PAGE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/metrics.md"
    );

    fn exposition() -> String {
        let config = config::Config::default();
        let authentication = Authentication::open(&config.authentication, Arc::default()).unwrap();
        let options = NodeOptions {
            settings: Arc::new(settings(&config, Default::default())),
            guard: Arc::new(Guard::new(&config.abuse)),
            listener_kinds: Box::default(),
            loops: 2,
            recent_drops: 0,
            seed: 0,
        };
        let shares = Shares::new(&config, 2, &store::Options::default());
        let folder = tempfile::tempdir().unwrap();
        let process = Process::new(
            Clock::start(),
            (authentication, Arc::default()),
            crate::audit_notes::AuditNotes::open(folder.path()),
            Box::default(),
            crate::disk_space::DiskSpace::new(std::path::PathBuf::new()),
            (2, shares),
        );
        // A certificate, so that its metric has its labels.
        let facts = CertificateFacts {
            subject: String::new(),
            issuer: String::new(),
            names: Vec::new(),
            not_before: Duration::ZERO,
            not_after: Duration::from_secs(1_800_000_000),
            next_update: Some(Duration::from_secs(1_700_000_000)),
        };
        let listening = Listening {
            kind: Kind::Tls,
            address: "127.0.0.1:8883".to_owned(),
            certificate: Arc::new(RwLock::new(Some(facts))),
        };
        let node = Arc::new(Node::new(options, process));
        text(&registry(node, &[listening], None, None)).unwrap()
    }

    fn page() -> String {
        let mut page = String::from(
            "# Metrics\n\n\
             The metrics that `GET /metrics` on the HTTP port returns, in the text format of Prometheus 0.0.4, or in protocol\n\
             buffers for clients whose `Accept` header prefers them (histograms then have native buckets too). Names that end\n\
             in `_bytes` or `_seconds` have that unit, all others are counts; those in `_total` only grow. This\n\
             page is generated: `UPDATE_GENERATED=1 cargo test -p herald-broker metrics` writes it.\n\n\
             The last column has the name and, in the notation of UCUM, the unit of the metric in pushes to\n\
             [OpenTelemetry](../operate/opentelemetry.md).\n\n\
             | Name | Kind | Labels | Meaning | OpenTelemetry |\n|---|---|---|---|---|\n",
        );
        let exposition = exposition();
        let lines: Vec<&str> = exposition.lines().collect();
        for pair in lines.windows(3) {
            let [help, kind, sample] = pair else { continue };
            let is_label = |name: &&str| *name != "le";
            if let Some((name, text)) = help
                .strip_prefix("# HELP ")
                .and_then(|rest| rest.split_once(' '))
            {
                let kind = kind.rsplit(' ').next().unwrap_or_default();
                let labels = sample.split_once('{').map_or("", |(_, rest)| rest);
                let labels: Vec<String> = labels
                    .split(',')
                    .filter_map(|label| Some(label.split_once('=')?.0))
                    .filter(is_label)
                    .map(|label| format!("`{label}`"))
                    .collect();
                let labels = labels.join(", ");
                let pushed = telemetry::otlp_metric(name, kind).unwrap();
                let unit = match &*pushed.unit {
                    "" => String::new(),
                    unit => format!(", `{unit}`"),
                };
                writeln!(
                    page,
                    "| `{name}` | {kind} | {labels} | {} | `{}`{unit} |",
                    text.trim_end_matches('.'),
                    pushed.name,
                )
                .unwrap();
            }
        }
        page
    }

    #[test]
    fn every_sample_belongs_to_a_described_metric() {
        let exposition = exposition();
        let described = |name: &str| exposition.contains(&format!("# HELP {name} "));
        let samples: Vec<&str> = exposition
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        assert!(samples.len() > 40);
        for sample in samples {
            let name = sample.split(['{', ' ']).next().unwrap();
            let parts = ["_bucket", "_sum", "_count"];
            let family = parts.iter().find_map(|part| name.strip_suffix(part));
            assert!(described(name) || family.is_some_and(described), "{sample}");
        }
    }

    #[test]
    fn each_metric_has_a_name_of_its_own_in_pushes() {
        let mut names = std::collections::BTreeMap::new();
        let exposition = exposition();
        let described = exposition
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "));
        for (name, kind) in described.filter_map(|line| line.split_once(' ')) {
            let pushed = telemetry::otlp_metric(name, kind).expect(name);
            let other = names.insert(pushed.name, name);
            assert_eq!(other, None, "{name}");
        }
        assert!(names.len() > 100, "{}", names.len());
    }

    #[test]
    fn the_reference_page_is_up_to_date() {
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(PAGE, page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(PAGE).unwrap_or_default(), page());
    }
}
