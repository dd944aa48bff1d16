//! Pure crates have no thread, socket, file, clock, randomness, lock or environment, in their source; tests may.
//!
//! A use is a path in a `use` or in code; a name that was imported stands for the path that it was imported by. What a
//! macro or another crate does is not seen; what other crates may be used is the rule of `dependencies`.

use super::finding::Finding;
use crate::source::{self, Crate, SourceFile};

/// The pure crates.
const PURE: &[&str] = &[
    "authentication-api",
    "authorization",
    "hashing",
    "histogram",
    "inspection",
    "mqtt-client",
    "mqtt-proto",
    "control",
    "control-document",
    "mqtt-session",
    "net-api",
    "outlet",
    "peer-protocol",
    "report",
    "route-exchange",
    "sizing",
    "store-state",
    "text-table",
    "topic-router",
];

/// Crates that keep the same rules but are not among the pure ones yet: the ratchet holds what is left.
const NEARLY_PURE: &[&str] = &["broker-core"];

/// Names of rules, and the paths that they forbid. A path stands for all that is below it. `*` at the end of a name:
/// whatever begins so. `…::` in front: whatever is above.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "pure-threads",
        &["std::thread", "tokio", "futures_executor"],
    ),
    (
        "pure-sockets",
        &[
            "std::net::Tcp*",
            "std::net::Udp*",
            "std::os::unix::net",
            "mio",
            "socket2",
        ],
    ),
    ("pure-files", &["std::fs", "tempfile"]),
    ("pure-clocks", &["…::Instant::now", "…::SystemTime::now"]),
    (
        "pure-locks",
        &[
            "parking_lot",
            // Each of them locks or makes a thread wait: `ShardedLock`, `WaitGroup`, `Parker`.
            "crossbeam_utils::sync",
            "std::sync::Mutex*",
            "std::sync::RwLock*",
            "std::sync::ReentrantLock*",
            "std::sync::Condvar",
            "std::sync::Barrier",
            "std::sync::mpsc",
            "std::sync::*",
        ],
    ),
    // hashbrown's own tables seed themselves; those of `hashing` can be told to repeat.
    (
        "pure-randomness",
        &[
            "rand",
            "getrandom",
            "…::RandomState",
            "hashbrown::HashMap",
            "hashbrown::HashSet",
            "hashbrown::hash_map::HashMap",
            "hashbrown::hash_set::HashSet",
        ],
    ),
    ("pure-environment", &["std::env", "std::process"]),
];

/// Whether a crate is to be pure.
pub(super) fn is_pure(name: &str) -> bool {
    PURE.contains(&name)
}

pub(super) fn findings(crates: &[Crate]) -> Vec<Finding> {
    let mut found = Vec::new();
    for member in crates {
        let name = member.name.as_str();
        if !is_pure(name) && !NEARLY_PURE.contains(&name) {
            continue;
        }
        for file in &member.source {
            for (path, line) in resolved(file) {
                let rules = FORBIDDEN.iter().filter(|(_, forbidden)| {
                    forbidden.iter().any(|forbidden| is_in(&path, forbidden))
                });
                found.extend(rules.map(|(rule, _)| Finding {
                    rule: (*rule).to_owned(),
                    place: name.to_owned(),
                    text: format!("{}:{line}: {}", file.path, path.join("::")),
                }));
            }
        }
    }
    found
}

/// The paths of a file, with imported names replaced by what they were imported by.
fn resolved(file: &SourceFile) -> Vec<(Vec<String>, usize)> {
    let imports: Vec<(String, Vec<String>)> = file
        .code()
        .filter(|index| file.at(*index) == "use")
        .flat_map(|index| source::imports(file, index).0)
        .collect();
    source::paths(file)
        .into_iter()
        .filter_map(|(path, line)| {
            let (first, rest) = path.split_first()?;
            let imported = imports.iter().find(|(name, _)| name == first);
            match imported {
                Some((_, from)) if *from != path => Some(([from.as_slice(), rest].concat(), line)),
                // A single name that was not imported is one of this crate.
                None if rest.is_empty() => None,
                _ => Some((path, line)),
            }
        })
        .collect()
}

fn is_in(path: &[String], forbidden: &str) -> bool {
    let (anywhere, forbidden) = match forbidden.strip_prefix("…::") {
        Some(rest) => (true, rest),
        None => (false, forbidden),
    };
    let wanted: Vec<&str> = forbidden.split("::").collect();
    let matches = |path: &[String]| {
        path.len() >= wanted.len()
            && path.iter().zip(&wanted).all(|(part, wanted)| {
                match wanted.strip_suffix('*').filter(|prefix| !prefix.is_empty()) {
                    Some(prefix) => part.starts_with(prefix),
                    None => part == wanted,
                }
            })
    };
    if anywhere {
        path.windows(wanted.len()).any(matches)
    } else {
        matches(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    /// The findings in a file of a pure crate, as rule and path.
    fn check(text: &str, expect: &[&str]) {
        let mut member = member(&[("lib.rs", text)]);
        for name in ["mqtt-proto", "broker-core"] {
            member.name = name.to_owned();
            let found: Vec<String> = findings(std::slice::from_ref(&member))
                .iter()
                .map(|finding| {
                    let path = finding.text.rsplit(": ").next().unwrap_or_default();
                    format!("{} {path}", finding.rule)
                })
                .collect();
            assert_eq!(found, expect, "{text}");
        }
        member.name = "net".to_owned();
        assert_eq!(findings(&[member]), [], "{text}");
    }

    #[test]
    fn each_kind_of_effect_is_found() {
        for (text, expect) in [
            (
                "fn a() { std::thread::spawn(b); }",
                "pure-threads std::thread::spawn",
            ),
            (
                "use tokio::sync::Notify;",
                "pure-threads tokio::sync::Notify",
            ),
            (
                "use std::net::{IpAddr, UdpSocket};",
                "pure-sockets std::net::UdpSocket",
            ),
            ("use std::{fmt, fs};", "pure-files std::fs"),
            (
                "fn a() { SystemTime::now() }",
                "pure-clocks SystemTime::now",
            ),
            ("use rand::Rng;", "pure-randomness rand::Rng"),
            (
                "use hashbrown::HashMap;",
                "pure-randomness hashbrown::HashMap",
            ),
            (
                "use foldhash::fast::RandomState;",
                "pure-randomness foldhash::fast::RandomState",
            ),
            (
                "fn a() { std::env::var(b) }",
                "pure-environment std::env::var",
            ),
            ("use std::sync::*;", "pure-locks std::sync::*"),
            (
                "fn a() -> std::sync::MutexGuard<'static, u8> {}",
                "pure-locks std::sync::MutexGuard",
            ),
            (
                "use crossbeam_utils::sync::*;",
                "pure-locks crossbeam_utils::sync::*",
            ),
            (
                "fn a() -> crossbeam_utils::sync::ShardedLockReadGuard<'_, u8> {}",
                "pure-locks crossbeam_utils::sync::ShardedLockReadGuard",
            ),
        ] {
            check(text, &[expect]);
        }
    }

    #[test]
    fn imported_names_stand_for_their_paths() {
        check(
            "use std::time::{self, Duration};\nfn a() { time::Instant::now() }",
            &["pure-clocks std::time::Instant::now"],
        );
        check(
            "use crossbeam_utils::sync;\nstruct A(sync::ShardedLock<u8>);",
            &[
                "pure-locks crossbeam_utils::sync",
                "pure-locks crossbeam_utils::sync::ShardedLock",
            ],
        );
        check(
            "use parking_lot::Mutex as M;\nstruct A(M<u8>);",
            &[
                "pure-locks parking_lot::Mutex",
                "pure-locks parking_lot::Mutex",
            ],
        );
    }

    #[test]
    fn tests_comments_and_other_names_are_free() {
        check(
            "// std::fs\nuse std::net::IpAddr;\nuse std::sync::Arc;\nuse std::sync::{OnceLock, LazyLock, atomic::AtomicU64};\nuse crossbeam_utils::CachePadded;\nfn a(now: Instant, rand: u8) { b.now(\"std::fs\") }\nenum C { Tcp }\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}",
            &[],
        );
    }
}
