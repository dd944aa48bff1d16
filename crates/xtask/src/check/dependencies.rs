//! Which crate of the workspace may depend on which. Dependencies of tests are left out.
//!
//! The table says what ARCHITECTURE.md says of each crate (what it "does not know"). A dependency that contradicts it,
//! and is there all the same, is not in the table, but in the ratchet. A pure crate depends on pure crates only.
//!
//! `fuzz` is a workspace of its own with a lock file of its own, which no build of the others keeps up to date.

use super::finding::Finding;
use super::purity;
use crate::source::Crate;

/// A crate, and the crates that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    // Of MQTT, or for its crates, and pure.
    ("hashing", &[]),
    ("histogram", &[]),
    ("mqtt-proto", &[]),
    ("mqtt-session", &["mqtt-proto"]),
    ("mqtt-client", &["mqtt-proto"]),
    ("topic-router", &[]),
    ("route-exchange", &[]),
    ("control", &[]),
    ("control-document", &["control", "mqtt-proto"]),
    (
        "store-state",
        &[
            "control",
            "hashing",
            "mqtt-proto",
            "mqtt-session",
            "topic-router",
        ],
    ),
    (
        "peer-protocol",
        &["mqtt-session", "route-exchange", "store-state"],
    ),
    // Its types are those between nodes, and of nobody else.
    ("inspection", &[]),
    ("net-api", &[]),
    ("authorization", &["mqtt-proto"]),
    ("authentication-api", &["authorization", "control"]),
    (
        "broker-core",
        &[
            "authentication-api",
            "authorization",
            "guard",
            "hashing",
            "histogram",
            "mqtt-proto",
            "mqtt-session",
            "net-api",
            "peer-protocol",
            "route-exchange",
            "store-state",
            "topic-router",
        ],
    ),
    // With threads, sockets, files or clocks.
    ("config", &["mqtt-proto"]),
    ("host", &[]),
    ("durable-file", &[]),
    ("profiler", &[]),
    ("http-client", &[]),
    ("postgres-client", &["http-client"]),
    ("telemetry", &["config", "http-client"]),
    ("control-view", &["control"]),
    ("guard", &["config"]),
    ("transport", &["net-api"]),
    ("net", &["histogram", "net-api", "transport"]),
    (
        "authentication",
        &[
            "authentication-api",
            "authorization",
            "config",
            "control",
            "control-view",
            "http-client",
            "postgres-client",
        ],
    ),
    ("consensus", &["durable-file", "histogram"]),
    (
        "store",
        &[
            "consensus",
            "control",
            "durable-file",
            "histogram",
            "mqtt-session",
            "peer-protocol",
            "store-state",
            "topic-router",
        ],
    ),
    ("split-script", &["store", "store-state"]),
    ("cluster", &["durable-file", "transport"]),
    (
        "admin",
        &[
            "authorization",
            "config",
            "control",
            "control-document",
            "control-view",
            "peer-protocol",
            "store-state",
        ],
    ),
    (
        "broker",
        &[
            "admin",
            "authentication",
            "authentication-api",
            "authorization",
            "broker-core",
            "cluster",
            "config",
            "consensus",
            "control",
            "control-document",
            "control-view",
            "guard",
            "histogram",
            "host",
            "inspection",
            "mqtt-proto",
            "mqtt-session",
            "net",
            "net-api",
            "outlets",
            "peer-protocol",
            "profiler",
            "route-exchange",
            "split-script",
            "store",
            "store-state",
            "telemetry",
            "transport",
        ],
    ),
    (
        "heraldmq",
        &[
            "admin",
            "authentication",
            "authorization",
            "broker",
            "config",
            "control",
            "control-document",
            "guard",
            "host",
            "loadtest",
            "mqtt-client",
            "mqtt-proto",
            "net-api",
            "outlets",
            "peer-protocol",
            "report",
            "sizing",
            "split-script",
            "store",
            "store-state",
            "telemetry",
            "text-table",
            "transport",
        ],
    ),
    // Tools: no part of the broker, and without knowledge of what is inside.
    ("report", &["text-table"]),
    ("text-table", &[]),
    ("sizing", &[]),
    ("outlet", &[]),
    ("outlet-rules", &["outlet"]),
    (
        "outlets",
        &[
            "config",
            "http-client",
            "mqtt-client",
            "mqtt-proto",
            "outlet",
            "outlet-rules",
            "postgres-client",
        ],
    ),
    ("outlet-kafka", &["mqtt-proto", "outlet", "outlets"]),
    (
        "loadtest",
        &[
            "host",
            "mqtt-client",
            "mqtt-proto",
            "report",
            "text-table",
            "transport",
        ],
    ),
    ("crash-test", &["mqtt-client", "mqtt-proto"]),
    (
        "fuzz",
        &[
            "authentication",
            "authorization",
            "cluster",
            "consensus",
            "control-document",
            "inspection",
            "mqtt-proto",
            "mqtt-session",
            "peer-protocol",
            "route-exchange",
            "store",
            "store-state",
            "transport",
        ],
    ),
    ("xtask", &[]),
    // Runs what is pure, and the store on simulated disks; the rim of the simulation is its own.
    (
        "sim",
        &[
            "authentication-api",
            "authorization",
            "broker-core",
            "config",
            "consensus",
            "control",
            "control-view",
            "guard",
            "hashing",
            "mqtt-client",
            "mqtt-proto",
            "mqtt-session",
            "net-api",
            "peer-protocol",
            "route-exchange",
            "store",
            "store-state",
        ],
    ),
];

pub(super) fn findings(crates: &[Crate]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut find = |place: &str, text: String| {
        found.push(Finding {
            rule: "dependency".to_owned(),
            place: place.to_owned(),
            text,
        });
    };
    for member in crates {
        let name = member.name.as_str();
        let manifest = format!("{}/Cargo.toml", member.folder);
        let Some((_, allowed)) = ALLOWED.iter().find(|(of, _)| *of == name) else {
            find(
                name,
                format!("{manifest}: {name} has no row in crates/xtask/src/check/dependencies.rs"),
            );
            continue;
        };
        for other in &member.dependencies {
            if !allowed.contains(&other.as_str()) {
                find(
                    name,
                    format!("{manifest}: {name} may not depend on {other}"),
                );
            } else if purity::is_pure(name) && !purity::is_pure(other) {
                find(
                    name,
                    format!("{manifest}: {name} is pure, and {other} is not"),
                );
            }
        }
    }
    found
}

/// Dependencies between crates that the lock file of another workspace lacks: nothing is built there until it is
/// written anew.
pub(super) fn lacking(crates: &[Crate], path: &str, lock: &str) -> Vec<Finding> {
    // Crates that others may want too have names without the prefix.
    let names = |name: &str, line: &str| {
        line.contains(&format!("\"herald-{name}\"")) || line.contains(&format!("\"{name}\""))
    };
    let entry = |member: &Crate| {
        lock.split("[[package]]").find(|package| {
            package
                .lines()
                .any(|line| line.starts_with("name = ") && names(&member.name, line))
        })
    };
    let mut found = Vec::new();
    for (member, entry) in crates
        .iter()
        .filter_map(|member| Some((member, entry(member)?)))
    {
        for other in member
            .dependencies
            .iter()
            .filter(|other| !names(other, entry))
        {
            let name = &member.name;
            found.push(Finding {
                rule: "dependency".to_owned(),
                place: "fuzz".to_owned(),
                text: format!("{path}: lacks that {name} depends on {other}: run `cargo update --workspace` there"),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    fn check(name: &str, dependencies: &[&str], expect: &[&str]) {
        let mut member = member(&[]);
        member.name = name.to_owned();
        member.folder = format!("crates/{name}");
        member.dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        let found: Vec<String> = findings(&[member])
            .into_iter()
            .map(|finding| finding.text)
            .collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn only_what_the_table_says_is_allowed() {
        check("mqtt-session", &["mqtt-proto"], &[]);
        check(
            "mqtt-proto",
            &["mqtt-session"],
            &["crates/mqtt-proto/Cargo.toml: mqtt-proto may not depend on mqtt-session"],
        );
        check(
            "news",
            &[],
            &["crates/news/Cargo.toml: news has no row in crates/xtask/src/check/dependencies.rs"],
        );
    }

    #[test]
    fn a_lock_file_that_is_behind_is_found() {
        let lock = "[[package]]\nname = \"herald-net\"\nversion = \"0.1.0\"\ndependencies = [\n \"herald-net-api\",\n]\n";
        let mut member = member(&[]);
        member.name = "net".to_owned();
        member.dependencies = vec!["net-api".to_owned()];
        assert!(lacking(std::slice::from_ref(&member), "fuzz/Cargo.lock", lock).is_empty());
        member.dependencies.push("hashing".to_owned());
        let found = lacking(&[member], "fuzz/Cargo.lock", lock);
        assert_eq!(found.len(), 1);
        assert!(found[0].text.contains("net depends on hashing"));
    }

    #[test]
    fn the_table_lets_no_pure_crate_depend_on_another() {
        for (name, allowed) in ALLOWED {
            for other in *allowed {
                assert!(
                    !purity::is_pure(name) || purity::is_pure(other),
                    "{name} on {other}"
                );
            }
        }
    }

    #[test]
    fn the_table_has_no_circle() {
        // Whoever depends only on crates that are gone goes as well; a circle is what stays.
        let mut left: Vec<&(&str, &[&str])> = ALLOWED.iter().collect();
        loop {
            let names: Vec<&str> = left.iter().map(|(name, _)| *name).collect();
            let count = left.len();
            left.retain(|(_, allowed)| allowed.iter().any(|other| names.contains(other)));
            if left.len() == count {
                break;
            }
        }
        assert_eq!(left, [] as [&(&str, &[&str]); 0]);
    }
}
