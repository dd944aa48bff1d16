//! What is wrong with an outlet to Kafka.

use crate::options::KafkaTargetConfig;

/// The option, and what is wrong.
pub(super) fn problem(target: &KafkaTargetConfig) -> Option<String> {
    if target.servers.is_empty() {
        return None;
    }
    if let Some(wrong) = target.servers.iter().find(|server| !is_server(server)) {
        return Some(format!("servers: {wrong} is no HOST:PORT"));
    }
    if target.topic.is_none() {
        return Some("topic: expected the topic of Kafka, a template".to_owned());
    }
    let files = [&target.ca_file, &target.cert_file, &target.key_file];
    if !target.tls && files.iter().any(|file| file.is_some()) {
        return Some("tls: `caFile`, `certFile` and `keyFile` are for `tls: true`".to_owned());
    }
    if target.cert_file.is_some() != target.key_file.is_some() {
        return Some("certFile: `certFile` and `keyFile` go together".to_owned());
    }
    if target.sasl.user.is_some() != target.sasl.password_file.is_some() {
        return Some("sasl: `user` and `passwordFile` go together".to_owned());
    }
    None
}

/// Whether it is `HOST:PORT`, of a name, an IPv4 address, or an IPv6 address in brackets.
fn is_server(text: &str) -> bool {
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let is_host = match host.strip_prefix('[') {
        Some(rest) => rest
            .strip_suffix(']')
            .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()),
        None => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            !host.is_empty() && host.chars().all(allowed)
        }
    };
    is_host && port.parse::<u16>().is_ok_and(|port| port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port() {
        for right in ["k1:9092", "k-1.example:9093", "10.0.0.1:1", "[::1]:9092"] {
            assert!(is_server(right), "{right}");
        }
        for wrong in [
            "k1",
            ":9092",
            "k1:",
            "k1:0",
            "k1:65536",
            "SSL://k1:9093",
            "u@k1:9092",
            "k1:9092,k2:9092",
            "::1:9092",
            "[k1]:9092",
            "k 1:9092",
        ] {
            assert!(!is_server(wrong), "{wrong}");
        }
    }
}
