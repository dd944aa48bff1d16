//! `libraries`: what the workspace takes from elsewhere, as rules: under which licences, from where, and of which
//! libraries there are two.
//!
//! Each rule is data at the top of this file. Like the ratchet, a list that allows more than there is fails too.
//!
//! Deliberately absent: known vulnerabilities, which are in `advisories`. What only other platforms or only tests take is not
//! looked at.

mod licence;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Licences that ask for nothing but their text and notices, which packages carry.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Libraries under other licences, and why they are allowed (docs/decisions/0040-split-policies.md).
const EXCEPTED: &[(&str, &str)] = &[
    // Its source has to be available to those who get the binary: it is what the registry has, unchanged.
    ("smartstring", "MPL-2.0+"),
    // For the build only; it asks for nothing.
    ("tiny-keccak", "CC0-1.0"),
];

/// The only place that libraries come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Libraries that are built in two incompatible versions, or more, with who keeps the older ones.
const SEVERAL: &[(&str, &str)] = &[
    ("base64", "postgres-protocol, jsonwebtoken"),
    ("bitflags", "raft-engine"),
    ("block-buffer", "openraft"),
    ("const-oid", "nkeys"),
    ("cpufeatures", "openraft"),
    ("crypto-common", "openraft"),
    ("der", "nkeys"),
    ("digest", "openraft"),
    ("fallible-iterator", "postgres-protocol"),
    ("foldhash", "prost-build"),
    ("getrandom", "raft-engine"),
    ("gimli", "framehop"),
    ("hashbrown", "raft-engine, quick_cache"),
    ("heck", "raft-engine"),
    ("itertools", "chitchat"),
    ("lock_api", "raft-engine, prometheus-client, tokio-postgres"),
    ("lru", "chitchat"),
    (
        "parking_lot",
        "raft-engine, prometheus-client, tokio-postgres",
    ),
    (
        "parking_lot_core",
        "raft-engine, prometheus-client, tokio-postgres",
    ),
    ("pem", "jsonwebtoken"),
    ("phf", "openraft"),
    ("phf_shared", "openraft"),
    ("rand", "raft-engine"),
    ("rand_core", "raft-engine"),
    ("sha2", "openraft"),
    ("spki", "nkeys"),
    ("syn", "raft-engine"),
    ("thiserror", "raft-engine"),
    ("thiserror-impl", "raft-engine"),
    ("unicode-width", "miette"),
    ("untrusted", "aws-lc-rs"),
];

/// The inner result says how much was checked, or what is wrong, one violation per line.
pub(crate) fn check(root: &Path) -> Result<Result<String, String>, String> {
    let lock = root.join("Cargo.lock");
    let lock =
        std::fs::read_to_string(&lock).map_err(|error| format!("{}: {error}\n", lock.display()))?;
    let libraries = parse(&tree(root)?);
    let mut wrong = wrong_licences(&libraries);
    wrong.extend(wrong_sources(&lock));
    wrong.extend(wrong_versions(&libraries, SEVERAL));
    if wrong.is_empty() {
        return Ok(Ok(format!(
            "{} libraries keep the rules\n",
            libraries.len()
        )));
    }
    let lines: String = wrong.iter().map(|line| format!("{line}\n")).collect();
    Ok(Err(format!("{lines}{} violations\n", wrong.len())))
}

/// A library as it is built here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Library {
    name: String,
    version: String,
    licence: String,
}

/// What Cargo says of all that is built but for tests.
fn tree(root: &Path) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--workspace", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}|{l}"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo tree: {error}\n"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    String::from_utf8(output.stdout).map_err(|error| format!("cargo tree: {error}\n"))
}

/// Lines such as `bytes v1.12.0|MIT (*)`. Those of the workspace say where they are, and are left out.
fn parse(tree: &str) -> BTreeSet<Library> {
    let line = |line: &str| {
        let (package, licence) = line.split_once('|')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        let is_ours = words.any(|word| word.starts_with("(/"));
        (!is_ours).then(|| Library {
            name: name.to_owned(),
            version: version.to_owned(),
            licence: licence.trim_end_matches(" (*)").to_owned(),
        })
    };
    tree.lines().filter_map(line).collect()
}

fn wrong_licences(libraries: &BTreeSet<Library>) -> Vec<String> {
    libraries
        .iter()
        .filter(|library| !licence::is_met(&library.licence, LICENCES))
        .filter(|library| !EXCEPTED.contains(&(&*library.name, &*library.licence)))
        .map(|library| {
            let Library { name, version, licence } = library;
            format!("licence: {name} {version} is under `{licence}`, which asks for more than is allowed here")
        })
        .collect()
}

fn wrong_sources(lock: &str) -> Vec<String> {
    lock.lines()
        .filter_map(|line| line.strip_prefix("source = "))
        .map(|source| source.trim_matches('"'))
        .filter(|source| *source != REGISTRY)
        .map(|source| format!("source: a library comes from {source}"))
        .collect()
}

/// Libraries in several incompatible versions that are not listed, and listed ones that are not in several any more.
fn wrong_versions(libraries: &BTreeSet<Library>, listed: &[(&str, &str)]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for library in libraries {
        let of_name = versions.entry(&library.name).or_default();
        of_name.insert(compatible(&library.version));
    }
    versions.retain(|_, found| found.len() > 1);
    let mut wrong: Vec<String> = versions
        .iter()
        .filter(|(name, _)| !listed.iter().any(|(known, _)| known == *name))
        .map(|(name, found)| {
            let found: Vec<&str> = found.iter().copied().collect();
            format!(
                "several: {name} is built in the versions {}",
                found.join(", ")
            )
        })
        .collect();
    wrong.extend(
        listed
            .iter()
            .filter(|(name, _)| !versions.contains_key(name))
            .map(|(name, _)| format!("several: {name} is listed and is built in one version")),
    );
    wrong
}

/// The part of a version that says what it is compatible with: 1 of 1.2.3, 0.2 of 0.2.3.
fn compatible(version: &str) -> &str {
    let is_early = version.starts_with("0.");
    let mut dots = version.match_indices('.').map(|(at, _)| at);
    let end = dots.nth(usize::from(is_early));
    end.and_then(|end| version.get(..end)).unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "\
herald-net v0.1.0 (/work/crates/net)|Apache-2.0
bytes v1.12.0|MIT
rand v0.8.8|MIT OR Apache-2.0
serde_derive v1.0.2 (proc-macro)|MIT

bytes v1.12.0|MIT (*)
rand v0.10.3|MIT (*)
rand v0.10.4|GPL-3.0-only
";

    #[test]
    fn what_the_workspace_takes_from_elsewhere_is_read() {
        let libraries = parse(TREE);
        let names: Vec<_> = libraries
            .iter()
            .map(|l| (l.name.as_str(), l.version.as_str()))
            .collect();
        let rand = [("rand", "0.10.3"), ("rand", "0.10.4"), ("rand", "0.8.8")];
        assert_eq!(names[0], ("bytes", "1.12.0"));
        assert_eq!(names[1..4], rand);
        assert_eq!(names[4], ("serde_derive", "1.0.2"));
        assert_eq!(names.len(), 5);
    }

    #[test]
    fn each_rule_is_a_line() {
        let libraries = parse(TREE);
        let licences = wrong_licences(&libraries);
        assert!(
            licences.len() == 1 && licences[0].contains("rand 0.10.4"),
            "{licences:?}"
        );
        let several = wrong_versions(&libraries, &[]);
        assert_eq!(
            several,
            ["several: rand is built in the versions 0.10, 0.8"]
        );
        let listed = wrong_versions(&libraries, &[("rand", "somebody"), ("bytes", "nobody")]);
        assert_eq!(
            listed,
            ["several: bytes is listed and is built in one version"]
        );
        let lock = format!("source = \"{REGISTRY}\"\nsource = \"git+https://example.org/a\"\n");
        let sources = wrong_sources(&lock);
        assert!(
            sources.len() == 1 && sources[0].contains("git+"),
            "{sources:?}"
        );
    }

    #[test]
    fn versions_are_compatible_by_their_first_part_that_is_not_zero() {
        for (version, expect) in [
            ("1.2.3", "1"),
            ("0.2.3", "0.2"),
            ("12.0.0+1.2", "12"),
            ("7", "7"),
        ] {
            assert_eq!(compatible(version), expect);
        }
    }
}
