//! `advisories`: no library of `Cargo.lock` has a version that an advisory concerns, unless it is accepted with a reason.
//!
//! The advisories stand in `packaging/advisories`, in the format and the folders of RustSec's database. Invariants: what cannot
//! be read is a violation, never passed over; like the ratchet, a list that accepts more than there is fails too.
//!
//! Deliberately absent: RustSec's database, which is not reached from where the tests run, and which `cargo audit` looks up before
//! a release; cargo-deny, which reads advisories from a clone of that database only.

mod requirement;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use requirement::Requirement;

use crate::version::Version;

/// Where the advisories are: `crates/PACKAGE/IDENTIFIER.md`.
const FOLDER: &str = "packaging/advisories/crates";

/// Advisories that concern a library of this workspace: identifier, library with its version, and why it stays.
const ACCEPTED: &[(&str, &str, &str)] = &[
    (
        "RUSTSEC-2024-0437",
        "protobuf 2.28.0",
        "raft-engine 0.4.2 and its prometheus 0.13 need it, and no release of them takes 3.7. `skip_group` is reached from the \
         fields of generated messages only. The log holds `consensus::Record`, whose `parse_from_bytes` and `merge_from` copy bytes; \
         prometheus writes messages and reads none.",
    ),
    (
        "RUSTSEC-2026-0253",
        "lru 0.17.0",
        "chitchat 0.11.2 needs it. Its keys are a string, a number and an address, whose drop cannot panic, and no panic is caught: \
         it ends the process.",
    ),
];

/// The inner result says how much was checked, or what is wrong, one violation per line.
pub(crate) fn check(root: &Path) -> Result<Result<String, String>, String> {
    let (advisories, mut wrong) = read(&root.join(FOLDER))?;
    let lock = root.join("Cargo.lock");
    let lock =
        fs::read_to_string(&lock).map_err(|error| format!("{}: {error}\n", lock.display()))?;
    let libraries = libraries(&lock);
    wrong.extend(violations(&advisories, &libraries, ACCEPTED));
    if wrong.is_empty() {
        return Ok(Ok(format!(
            "{} advisories concern none of {} libraries but for {} that are accepted\n",
            advisories.len(),
            libraries.len(),
            ACCEPTED.len()
        )));
    }
    let lines: String = wrong.iter().map(|line| format!("{line}\n")).collect();
    Ok(Err(format!("{lines}{} violations\n", wrong.len())))
}

/// What an advisory says of versions.
#[derive(Debug, PartialEq, Eq)]
struct Advisory {
    id: String,
    package: String,
    title: String,
    /// A version that meets one of these is not concerned.
    harmless: Vec<Requirement>,
}

/// All advisories of a folder, and what is wrong with those that cannot be used.
fn read(folder: &Path) -> Result<(Vec<Advisory>, Vec<String>), String> {
    let (mut advisories, mut wrong) = (Vec::new(), Vec::new());
    for package in entries(folder)? {
        for file in entries(&folder.join(&package))? {
            let path = folder.join(&package).join(&file);
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}\n", path.display()))?;
            match parse(&text) {
                Ok(advisory)
                    if advisory.package == package && file == format!("{}.md", advisory.id) =>
                {
                    advisories.push(advisory);
                }
                Ok(advisory) => wrong.push(format!(
                    "advisory: {package}/{file} is about {} and called {}",
                    advisory.package, advisory.id
                )),
                Err(reason) => wrong.push(format!("advisory: {package}/{file}: {reason}")),
            }
        }
    }
    Ok((advisories, wrong))
}

/// The names in a folder, in their order.
fn entries(folder: &Path) -> Result<BTreeSet<String>, String> {
    let failed = |error| format!("{}: {error}\n", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?;
    entries
        .map(|entry| {
            let name = entry.map_err(failed)?.file_name();
            Ok(name.to_string_lossy().into_owned())
        })
        .collect()
}

/// The TOML between the fences, of which each value stands in its line, and the heading behind it.
fn parse(text: &str) -> Result<Advisory, String> {
    let inner = text
        .strip_prefix("```toml\n")
        .and_then(|text| text.split_once("\n```"));
    let (toml, prose) = inner.ok_or("it does not begin with TOML between fences")?;
    let value = |section: &str, key: &str| {
        let mut here = "";
        toml.lines().find_map(|line| {
            if line.starts_with('[') {
                here = line.trim();
            }
            let (name, value) = line.split_once('=')?;
            (here == section && name.trim() == key).then(|| value.trim())
        })
    };
    let word = |key| {
        let value = value("[advisory]", key).ok_or_else(|| format!("there is no {key}"))?;
        Ok::<_, String>(value.trim_matches('"').to_owned())
    };
    let patched = value("[versions]", "patched").ok_or("there is no list of patched versions")?;
    let unaffected = value("[versions]", "unaffected").unwrap_or("[]");
    let mut harmless = requirements(patched)?;
    harmless.extend(requirements(unaffected)?);
    let title = prose.lines().find_map(|line| line.strip_prefix("# "));
    Ok(Advisory {
        id: word("id")?,
        package: word("package")?,
        title: title.ok_or("there is no heading")?.to_owned(),
        harmless,
    })
}

/// A list such as `[">= 0.8.6, < 0.9.0", ">= 0.9.3"]`.
fn requirements(list: &str) -> Result<Vec<Requirement>, String> {
    let unreadable = || format!("{list} is no list of requirements in one line");
    let inner = list
        .strip_prefix('[')
        .and_then(|list| list.strip_suffix(']'));
    let mut quotes = inner.ok_or_else(unreadable)?.split('"');
    let mut found = Vec::new();
    while let Some(between) = quotes.next() {
        if !matches!(between.trim(), "" | ",") {
            return Err(unreadable());
        }
        if let Some(text) = quotes.next() {
            found.push(text.parse()?);
        }
    }
    Ok(found)
}

/// Name and version of each package of a lock file that comes from elsewhere.
fn libraries(lock: &str) -> Vec<(&str, &str)> {
    let packages = lock.split("[[package]]").skip(1);
    packages
        .filter(|package| package.contains("\nsource = "))
        .filter_map(|package| Some((field(package, "name")?, field(package, "version")?)))
        .collect()
}

/// The value of a line such as `name = "bytes"`.
fn field<'a>(package: &'a str, key: &str) -> Option<&'a str> {
    package.lines().find_map(|line| {
        let value = line.strip_prefix(key)?.strip_prefix(" = \"")?;
        value.strip_suffix('"')
    })
}

fn violations(
    advisories: &[Advisory],
    libraries: &[(&str, &str)],
    accepted: &[(&str, &str, &str)],
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for advisory in advisories {
        for (name, version) in libraries {
            if *name != advisory.package {
                continue;
            }
            let library = format!("{name} {version}");
            match version.parse::<Version>() {
                Err(reason) => wrong.push(format!("advisory: {library}: {reason}")),
                Ok(version) if advisory.harmless.iter().any(|met| met.is_met_by(&version)) => {}
                Ok(_) => {
                    let known = accepted
                        .iter()
                        .find(|(id, accepted, _)| *id == advisory.id && *accepted == library);
                    match known {
                        Some(known) => {
                            used.insert(*known);
                        }
                        None => wrong.push(format!(
                            "advisory: {library}: {}, {}; take a version that it does not concern, or accept it with a reason",
                            advisory.id, advisory.title
                        )),
                    }
                }
            }
        }
    }
    wrong.extend(
        accepted
            .iter()
            .filter(|known| !used.contains(*known))
            .map(|(id, library, _)| {
                format!("advisory: {id} is accepted for {library}, and does not concern it")
            }),
    );
    wrong
}

#[cfg(test)]
mod tests;
