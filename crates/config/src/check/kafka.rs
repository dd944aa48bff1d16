//! What is wrong with an outlet to Kafka, or an inlet from it.

use std::path::PathBuf;

use super::MOST_FILTERS;
use crate::listed::Listed;
use crate::options::{KafkaSaslConfig, KafkaSourceConfig, KafkaTargetConfig};

/// The longest name of a topic, in bytes.
const LONGEST_TOPIC: usize = 249;

/// The longest name of a group, in bytes.
const LONGEST_GROUP: usize = 255;

/// The option, and what is wrong.
pub(super) fn target_problem(target: &KafkaTargetConfig) -> Option<String> {
    if target.servers.is_empty() {
        return None;
    }
    if let Some(problem) = wrong_server(&target.servers) {
        return Some(problem);
    }
    if target.topic.is_none() {
        return Some("topic: expected the topic of Kafka, a template".to_owned());
    }
    let files = [&target.ca_file, &target.cert_file, &target.key_file];
    connection_problem(target.tls, files, &target.sasl)
}

/// The option, and what is wrong.
pub(super) fn source_problem(source: &KafkaSourceConfig) -> Option<String> {
    if let Some(problem) = wrong_server(&source.servers) {
        return Some(problem);
    }
    let count = source.topics.iter().count();
    if !(1..=MOST_FILTERS).contains(&count) {
        return Some(format!(
            "topics: expected the topics of Kafka, {MOST_FILTERS} at most, found {count}"
        ));
    }
    if let Some(wrong) = source.topics.iter().find(|topic| !is_topic(topic)) {
        return Some(format!(
            "topics: {wrong} is no topic of Kafka, which has 1 to {LONGEST_TOPIC} letters, digits, `.`, `_` and `-`"
        ));
    }
    let group = source.group.as_deref();
    if group.is_some_and(|group| !(1..=LONGEST_GROUP).contains(&group.len())) {
        return Some(format!("group: expected 1 to {LONGEST_GROUP} bytes"));
    }
    let files = [&source.ca_file, &source.cert_file, &source.key_file];
    connection_problem(source.tls, files, &source.sasl)
}

fn wrong_server(servers: &Listed<String>) -> Option<String> {
    let wrong = servers.iter().find(|server| !is_server(server));
    wrong.map(|wrong| format!("servers: {wrong} is no HOST:PORT"))
}

fn connection_problem(
    tls: bool,
    [ca_file, cert_file, key_file]: [&Option<PathBuf>; 3],
    sasl: &KafkaSaslConfig,
) -> Option<String> {
    let has_files = [ca_file, cert_file, key_file]
        .iter()
        .any(|file| file.is_some());
    if !tls && has_files {
        return Some("tls: `caFile`, `certFile` and `keyFile` are for `tls: true`".to_owned());
    }
    if cert_file.is_some() != key_file.is_some() {
        return Some("certFile: `certFile` and `keyFile` go together".to_owned());
    }
    if sasl.user.is_some() != sasl.password_file.is_some() {
        return Some("sasl: `user` and `passwordFile` go together".to_owned());
    }
    None
}

/// Whether it is the name of a topic.
fn is_topic(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=LONGEST_TOPIC).contains(&name.len())
        && name.chars().all(is_allowed)
        && !matches!(name, "." | "..")
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
