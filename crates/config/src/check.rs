//! What options must satisfy together, and what an operator should be told although it is allowed.

use crate::{
    address::{Endpoint, Host},
    listener::{ListenerView, Place},
    options::{ClientAuth, Config, ProxyConfig, ProxyVersion, SslConfig},
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
    let listeners = server.listeners();
    for (index, listener) in listeners.iter().enumerate() {
        let earlier = listeners.iter().take(index);
        let problem = taken(earlier, listener)
            .or_else(|| listener.ssl.and_then(incomplete_tls).map(str::to_owned))
            .or_else(|| listener.proxy.and_then(trusts_nobody).map(str::to_owned))
            .or_else(|| listener.ws_path.and_then(relative_path));
        conflicts.extend(problem.map(|problem| (listener.key, problem)));
    }
    conflicts
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

fn trusts_nobody(proxy: &ProxyConfig) -> Option<&'static str> {
    (proxy.version != ProxyVersion::Off && proxy.trusted_peers.is_empty())
        .then_some("proxyProtocol.version requires proxyProtocol.trustedPeers")
}

fn relative_path(ws_path: &str) -> Option<String> {
    (!ws_path.starts_with('/')).then(|| format!("expected wsPath to begin with /, found {ws_path}"))
}

/// One line for each thing that is allowed and yet surprising.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let cluster = &config.cluster_config;
    let others: Vec<String> = cluster
        .seed_endpoints
        .iter()
        .filter(|seed| !is_self(seed, cluster.host.as_ref(), cluster.port))
        .map(Endpoint::to_string)
        .collect();
    if !others.is_empty() {
        warnings.push(format!(
            "clusterConfig.seedEndpoints names other nodes ({}), but clustering is not available \
             yet: this node runs alone",
            others.join(", ")
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

fn is_self(seed: &Endpoint, host: Option<&Host>, port: u16) -> bool {
    seed.port == port && host.is_some_and(|host| host.is_same(&seed.host))
}
