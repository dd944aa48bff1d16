//! What options must satisfy together, and what an operator should be told although it is allowed.

mod inlets;
mod kafka;
mod postgres_target;

use std::collections::BTreeSet;

use mqtt_proto::{validate_topic_filter, validate_topic_name};

use crate::{
    address::Host,
    listener::{ListenerView, Place, WebSocketView},
    options::{
        ClientAuth, ClientClassConfig, ClusterConfig, Config, DEFAULT_CLASS, ForwardedHeader,
        HttpBody, OutletConfig, OutletTargetConfig, ProxyConfig, ProxyUserName, ProxyVersion,
        RetainRuleConfig, SplitPolicy, SslConfig,
    },
};

/// Contradictions: the path of the option to change, and what must hold.
pub(crate) fn conflicts(config: &Config) -> Vec<(&'static str, String)> {
    let mut conflicts = Vec::new();
    let node = &config.limits.node;
    if let (Some(high_water), Some(refuse)) = (node.memory_high_water, node.memory_refuse)
        && refuse < high_water
    {
        conflicts.push((
            "limits.node.memoryRefuse",
            format!(
                "expected at least limits.node.memoryHighWater, which is {high_water}, \
                 found {refuse}"
            ),
        ));
    }
    for (option, policy, script) in [
        (
            "session_store_split_script",
            config.session_store_split_policy,
            &config.session_store_split_script,
        ),
        (
            "inbox_store_split_script",
            config.inbox_store_split_policy,
            &config.inbox_store_split_script,
        ),
        (
            "retain_store_split_script",
            config.retain_store_split_policy,
            &config.retain_store_split_script,
        ),
    ] {
        if policy == SplitPolicy::Script && script.is_none() {
            conflicts.push((
                option,
                "the split policy `script` requires a file".to_owned(),
            ));
        }
    }
    if let Some(url) = &config.telemetry.otlp.url
        && !["https://", "http://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
    {
        conflicts.push((
            "telemetry.otlp.url",
            format!("expected a URL that begins with https:// or http://, found {url}"),
        ));
    }
    let server = &config.mqtt_server_config;
    if let Some(unix) = (server.unix_listeners.iter()).find(|l| l.permissions().is_none()) {
        conflicts.push((
            "mqttServerConfig.unixListener",
            format!(
                "expected mode in octal digits, 0777 at most, found {}",
                unix.mode
            ),
        ));
    }
    conflicts.extend(classes(&config.client_classes).map(|problem| ("clientClasses", problem)));
    conflicts.extend(retain_rules(&config.retain.rules).map(|problem| ("retain.rules", problem)));
    conflicts.extend(outlets(&config.outlets).map(|problem| ("outlets", problem)));
    let inlets = inlets::inlets(&config.inlets, &config.outlets);
    conflicts.extend(inlets.map(|problem| ("inlets", problem)));
    conflicts.extend(even_voters(config));
    conflicts.extend(cluster_conflicts(&config.cluster_config));
    let http = &config.http.ssl;
    if *http != SslConfig::default() {
        let problem = incomplete_tls(http);
        conflicts.extend(problem.map(|problem| ("http.sslConfig", problem.to_owned())));
    }
    let listeners = server.listeners();
    for (index, listener) in listeners.iter().enumerate() {
        let earlier = listeners.iter().take(index);
        let problem = taken(earlier, listener)
            .or_else(|| listener.ssl.and_then(incomplete_tls).map(str::to_owned))
            .or_else(|| listener.proxy.and_then(wrong_proxy).map(str::to_owned))
            .or_else(|| listener.websocket.and_then(wrong_websocket));
        conflicts.extend(problem.map(|problem| (listener.key, problem)));
    }
    conflicts
}

/// Classes of clients at most: what stores write for each batch grows by them.
const MOST_CLASSES: usize = 32;

/// The longest name of a class, in characters.
const LONGEST_NAME: usize = 64;

/// The most rules for retained messages: each message is compared with them.
const MOST_RULES: usize = 64;

/// What is wrong with the rules for retained messages.
fn retain_rules(rules: &[RetainRuleConfig]) -> Option<String> {
    if rules.len() > MOST_RULES {
        let found = rules.len();
        return Some(format!("expected at most {MOST_RULES}, found {found}"));
    }
    let mut seen = BTreeSet::new();
    rules.iter().find_map(|rule| {
        let Some(topics) = rule.topics.as_deref() else {
            return Some("expected `topics`, a topic filter, for each rule".to_owned());
        };
        if validate_topic_filter(topics).is_err() {
            Some(format!("{topics} is no topic filter"))
        } else if !seen.insert(topics) {
            Some(format!("two rules are for {topics}"))
        } else {
            None
        }
    })
}

/// The most outlets and inlets: each is a process.
const MOST_OUTLETS: usize = 64;

/// The most topic filters of an outlet: they go in one SUBSCRIBE.
const MOST_FILTERS: usize = 256;

/// What is wrong with the outlets.
fn outlets(outlets: &[OutletConfig]) -> Option<String> {
    if outlets.len() > MOST_OUTLETS {
        let found = outlets.len();
        return Some(format!("expected at most {MOST_OUTLETS}, found {found}"));
    }
    let mut names = BTreeSet::new();
    outlets.iter().find_map(|outlet| {
        let Some(name) = outlet.name.as_deref() else {
            return Some("expected a name for each outlet".to_owned());
        };
        if !is_outlet_name(name) {
            return Some(format!(
                "expected a name of 1 to {LONGEST_NAME} letters, digits, `.`, `_` or `-` with a letter or digit first, found {name}"
            ));
        }
        if !names.insert(name) {
            return Some(format!("two outlets are called {name}"));
        }
        outlet_problem(outlet).map(|problem| format!("{name}: {problem}"))
    })
}

/// Whether a text can be the name of an outlet.
fn is_outlet_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters
        .next()
        .is_some_and(|first| first.is_ascii_alphanumeric())
        && characters.all(|next| next.is_ascii_alphanumeric() || "._-".contains(next))
        && name.len() <= LONGEST_NAME
}

/// What is wrong with an outlet, but for its name.
fn outlet_problem(outlet: &OutletConfig) -> Option<String> {
    let filters = &outlet.source.filter;
    let events = &outlet.source.events;
    if filters.iter().count() + events.iter().count() > MOST_FILTERS {
        return Some(format!("source: more than {MOST_FILTERS}"));
    }
    if filters.is_empty() && events.is_empty() {
        return Some("expected `source.filter`, a topic filter, or `source.events`".to_owned());
    }
    if let Some(wrong) = filters
        .iter()
        .find(|filter| validate_topic_filter(filter).is_err())
    {
        return Some(format!("source.filter: {wrong} is no topic filter"));
    }
    if let Some(topic) = &outlet.dead_letter.topic
        && (validate_topic_name(topic).is_err() || topic.starts_with('$'))
    {
        return Some(format!(
            "deadLetter.topic: {topic} is no topic, or begins with $"
        ));
    }
    let OutletTargetConfig {
        file,
        http,
        kafka,
        mqtt,
        nats,
        postgres,
    } = &outlet.target;
    let named = [
        file.path.is_some(),
        http.url.is_some(),
        !kafka.servers.is_empty(),
        mqtt.url.is_some(),
        !nats.url.is_empty(),
        postgres.url.is_some(),
    ];
    if named.into_iter().filter(|is_named| *is_named).count() != 1 {
        return Some(
            "expected one target: `target.file.path`, `target.http.url`, `target.kafka.servers`, `target.mqtt.url`, `target.nats.url` or `target.postgres.url`"
                .to_owned(),
        );
    }
    if let Some(problem) = postgres_target::problem(postgres) {
        return Some(format!("target.postgres.{problem}"));
    }
    if let Some(problem) = kafka::target_problem(kafka) {
        return Some(format!("target.kafka.{problem}"));
    }
    if http.concurrency > 1 && http.body != HttpBody::Raw {
        return Some("target.http.concurrency: only requests with one message, `body: raw`, can be on their way together".to_owned());
    }
    let schemes = [
        ("target.http.url", &http.url, ["https://", "http://"]),
        ("target.mqtt.url", &mqtt.url, ["mqtts://", "mqtt://"]),
    ];
    for (key, url, schemes) in schemes {
        if let Some(url) = url
            && !schemes.iter().any(|scheme| url.starts_with(scheme))
        {
            let [first, second] = schemes;
            return Some(format!(
                "{key}: expected a URL that begins with {first} or {second}, found {url}"
            ));
        }
    }
    None
}

/// What is wrong with the classes of clients.
fn classes(classes: &[ClientClassConfig]) -> Option<String> {
    if classes.len() > MOST_CLASSES {
        let found = classes.len();
        return Some(format!(
            "expected {MOST_CLASSES} classes at most, found {found}"
        ));
    }
    let mut names = BTreeSet::new();
    classes.iter().find_map(|class| {
        let Some(name) = class.name.as_deref() else {
            return Some("expected a name for each class".to_owned());
        };
        let kinds = ["tcp", "tls", "ws", "wss", "unix", "outlet"];
        let unknown = class.matching.listener.iter();
        let unknown = unknown
            .into_iter()
            .find(|kind| !kinds.contains(&kind.as_str()));
        if name.chars().count() > LONGEST_NAME {
            Some(format!(
                "expected a name of {LONGEST_NAME} characters at most, found {name}"
            ))
        } else if name == DEFAULT_CLASS {
            Some(format!(
                "{name} is the class of clients that match no other"
            ))
        } else if !names.insert(name) {
            Some(format!("two classes are called {name}"))
        } else {
            let expected = kinds.join(", ");
            unknown
                .map(|kind| format!("class {name}: expected listeners of {expected}, found {kind}"))
        }
    })
}

/// A majority of an even number leaves out fewer than half: of four voters one may fail, as of three.
fn even_voters(config: &Config) -> impl Iterator<Item = (&'static str, String)> {
    let counts = [
        (
            "session_store_replica_voter_count",
            config.session_store_voters,
        ),
        ("inbox_store_replica_voter_count", config.inbox_store_voters),
        (
            "retain_store_replica_voter_count",
            config.retain_store_voters,
        ),
    ];
    counts.into_iter().filter_map(|(key, voters)| {
        let found = voters?.get();
        let statement = || {
            let fewer = found - 1;
            format!(
                "expected 1, 3 or 5, or 0 for what the number of nodes allows, found {found}: {found} voters \
                 survive no more failures than {fewer}"
            )
        };
        found.is_multiple_of(2).then(|| (key, statement()))
    })
}

fn cluster_conflicts(cluster: &ClusterConfig) -> Option<(&'static str, String)> {
    if let Some(host) = &cluster.host
        && host.is_unspecified()
    {
        return Some((
            "clusterConfig.host",
            format!("expected an address of this node alone, found {host}"),
        ));
    }
    if cluster.ssl.is_half_set() {
        return Some((
            "clusterConfig.sslConfig",
            "certFile, keyFile and caFile are required together".to_owned(),
        ));
    }
    let (key, host) = cluster
        .public_host()
        .filter(|_| cluster.is_open() && !cluster.insecure)?;
    let statement = format!(
        "{host} is a public address, which requires clusterConfig.secretFile or clusterConfig.sslConfig: whoever \
         reaches port {} could become a member. Make a secret by `openssl rand -hex 32 > cluster-secret`, give all \
         nodes the same file, and set secretFile to its path (clusterConfig.insecure: true does without)",
        cluster.port
    );
    Some((key, statement))
}

/// What is wrong if a listener wants the place of an earlier one.
fn taken<'a>(
    mut earlier: impl Iterator<Item = &'a ListenerView<'a>>,
    listener: &ListenerView<'_>,
) -> Option<String> {
    let place = &listener.place;
    earlier
        .any(|earlier| collide(&earlier.place, place))
        .then(|| match place {
            Place::Port { port, .. } => {
                format!("more than one listener on the same host with port {port}")
            }
            Place::Socket { path, .. } => format!("more than one listener on {}", path.display()),
        })
}

fn incomplete_tls(ssl: &SslConfig) -> Option<&'static str> {
    if ssl.cert_file.is_none() || ssl.key_file.is_none() {
        return Some("sslConfig.certFile and sslConfig.keyFile are required");
    }
    (ssl.client_auth != ClientAuth::None && ssl.trust_certs_file.is_none())
        .then_some("sslConfig.clientAuth requires sslConfig.trustCertsFile")
}

fn wrong_proxy(proxy: &ProxyConfig) -> Option<&'static str> {
    if proxy.version != ProxyVersion::Off && proxy.trusted_peers.is_empty() {
        return Some("proxyProtocol.version requires proxyProtocol.trustedPeers");
    }
    let has_names = matches!(proxy.version, ProxyVersion::V2 | ProxyVersion::Any);
    (proxy.user_name != ProxyUserName::Off && !has_names)
        .then_some("proxyProtocol.userName requires proxyProtocol.version 2 or any")
}

fn wrong_websocket(websocket: WebSocketView<'_>) -> Option<String> {
    let path = websocket.path;
    if !path.starts_with('/') {
        return Some(format!("expected wsPath to begin with /, found {path}"));
    }
    let forwarded = websocket.forwarded;
    if forwarded.header != ForwardedHeader::Off && forwarded.trusted_peers.is_empty() {
        return Some("forwarded.header requires forwarded.trustedPeers".to_owned());
    }
    (websocket.require_origin && websocket.origins.is_empty())
        .then(|| "requireOrigin requires allowedOrigins".to_owned())
}

/// One line for each thing that is allowed and yet surprising.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let cluster = &config.cluster_config;
    if cluster.is_open() {
        let from = match cluster.insecure {
            true => "any address, because clusterConfig.insecure is set,",
            false => "a loopback, private or link-local address",
        };
        warnings.push(format!(
            "THE CLUSTER IS OPEN: neither clusterConfig.secretFile nor clusterConfig.sslConfig is set, so whoever \
             reaches port {} of this node from {from} can become a member, and read, forge and delete all messages \
             and sessions. Set clusterConfig.secretFile on all nodes (docs/operate/cluster.md)",
            cluster.port
        ));
    }
    if config.mqtt_server_config.listeners().is_empty() {
        warnings.push("mqttServerConfig enables no listener: no client can connect".to_owned());
    }
    warnings
}

fn collide(one: &Place<'_>, two: &Place<'_>) -> bool {
    match (one, two) {
        (
            Place::Port { host, port },
            Place::Port {
                host: other,
                port: other_port,
            },
        ) => *port != 0 && port == other_port && same_host(*host, *other),
        (Place::Socket { path, .. }, Place::Socket { path: other, .. }) => path == other,
        _ => false,
    }
}

fn same_host(one: Option<&Host>, two: Option<&Host>) -> bool {
    match (one, two) {
        (Some(one), Some(two)) => one.is_same(two),
        (one, two) => one.is_none() && two.is_none(),
    }
}
