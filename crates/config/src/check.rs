//! What options must satisfy together, and what an operator should be told although it is allowed.

use crate::{
    address::{Endpoint, Host},
    options::{Config, TcpListenerConfig},
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
    let listeners = &config.mqtt_server_config.tcp_listeners;
    for (index, listener) in listeners.iter().enumerate() {
        if listeners
            .iter()
            .take(index)
            .any(|earlier| collide(earlier, listener))
        {
            conflicts.push((
                "mqttServerConfig.tcpListener",
                format!(
                    "more than one listener on the same host with port {}",
                    listener.port
                ),
            ));
        }
    }
    conflicts
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
    if !config
        .mqtt_server_config
        .tcp_listeners
        .iter()
        .any(|listener| listener.enable)
    {
        warnings.push(
            "mqttServerConfig.tcpListener enables no listener: no client can connect".to_owned(),
        );
    }
    warnings
}

fn collide(one: &TcpListenerConfig, two: &TcpListenerConfig) -> bool {
    let same_host = match (&one.host, &two.host) {
        (Some(one), Some(two)) => one.is_same(two),
        (one, two) => one.is_none() && two.is_none(),
    };
    one.enable && two.enable && one.port != 0 && one.port == two.port && same_host
}

fn is_self(seed: &Endpoint, host: Option<&Host>, port: u16) -> bool {
    seed.port == port && host.is_some_and(|host| host.is_same(&seed.host))
}
