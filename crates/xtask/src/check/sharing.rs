//! What several threads write is declared: each field and static of an atomic type, a lock or a channel, in the crates that a
//! message passes, is listed with how often it is written, by whom, and what it is for.
//!
//! `crates/xtask/sharing.csv` has a line for each: `place,written,by,what`. A place is `CRATE Type.field`, or the name of a static
//! or of a type alias. `written` is one of [`WRITTEN`], `by` one of [`BY`]. A new field fails until somebody has said what it costs
//! all cores, and so does a line whose field is gone.
//!
//! Deliberately absent: whether a line is true (`tests/blackbox/test_sharing.py` sees what one message writes); reference counts
//! of `Arc`, which the types do not show (the same test sees them); what a newtype is used for: `Counter` is one line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::finding::Finding;
use crate::source::{Crate, SourceFile};

/// The list.
pub(super) const LIST: &str = "crates/xtask/sharing.csv";

const HEAD: &str = "place,written,by,what";

/// The crates that a message passes.
const CRATES: &[&str] = &[
    "authorization",
    "broker-core",
    "cluster",
    "consensus",
    "control-view",
    "histogram",
    "mqtt-proto",
    "mqtt-session",
    "net",
    "net-api",
    "route-exchange",
    "store",
    "store-state",
    "topic-router",
];

/// Types that are written through a shared reference, beside those whose names begin with `Atomic`.
const SHARED: &[&str] = &[
    "ArcSwap",
    "ArcSwapOption",
    "ArrayQueue",
    "Condvar",
    "Mutex",
    "Notify",
    "RwLock",
    "SegQueue",
    "Semaphore",
    "ShardedLock",
    "Sender",
    "UnboundedSender",
];

/// What it is written for, most frequent first.
const WRITTEN: &[&str] = &["message", "turn", "batch", "connection", "rare"];

/// How many threads write it while messages flow.
const BY: &[&str] = &["one", "several"];

fn is_shared(token: &str) -> bool {
    token.starts_with("Atomic") || SHARED.contains(&token)
}

/// The places of a file with their lines.
fn places(member: &str, file: &SourceFile) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for index in file.code() {
        let name = match file.at(index) {
            "static" if file.at(index + 1) == "mut" => index + 2,
            "struct" | "static" | "type" => index + 1,
            _ => continue,
        };
        let (keyword, owner) = (file.at(index), file.at(name));
        let all = file.tokens.len();
        let open = (name + 1..all).find(|at| ends_head(keyword, file.at(*at)));
        let open = open.unwrap_or(all);
        let end = match file.at(open) {
            "{" | "(" => file.behind_bracket(open),
            ";" => continue,
            _ => (open..file.tokens.len())
                .find(|at| match keyword {
                    "static" => file.at(*at) == "=",
                    _ => file.at(*at) == ";",
                })
                .unwrap_or(file.tokens.len()),
        };
        // A struct's fields: the last `name :` at the depth of its bracket.
        let (mut depth, mut field) = (0_usize, None);
        let mut seen = BTreeSet::new();
        for at in open..end {
            match file.at(at) {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                ":" if keyword == "struct" && depth == 1 => field = Some(file.at(at - 1)),
                token if is_shared(token) && file.at(at + 1) != "::" => {
                    let place = match field {
                        Some(field) => format!("{member} {owner}.{field}"),
                        None => format!("{member} {owner}"),
                    };
                    if seen.insert(place.clone()) {
                        found.push((place, file.line(at)));
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// Whether a token ends what stands before the part that has the types.
fn ends_head(keyword: &str, token: &str) -> bool {
    match keyword {
        "struct" => matches!(token, "{" | "(" | ";"),
        "static" => token == ":",
        _ => matches!(token, "=" | ";"),
    }
}

/// The lines of the list by their places, or what is wrong with them.
fn listed(text: &str) -> (BTreeSet<String>, Vec<String>) {
    let (mut places, mut wrong) = (BTreeSet::new(), Vec::new());
    let mut lines = text.lines().zip(1..);
    if lines.next().is_some_and(|(head, _)| head != HEAD) {
        wrong.push(format!("{LIST}:1: the first line is not `{HEAD}`"));
    }
    for (line, number) in lines {
        let mut columns = line.splitn(4, ',');
        let mut next = || columns.next().unwrap_or_default();
        let (place, written, by, what) = (next(), next(), next(), next());
        if !WRITTEN.contains(&written) {
            wrong.push(format!(
                "{LIST}:{number}: `{written}` is none of {WRITTEN:?}"
            ));
        }
        if !BY.contains(&by) {
            wrong.push(format!("{LIST}:{number}: `{by}` is none of {BY:?}"));
        }
        if what.is_empty() {
            wrong.push(format!("{LIST}:{number}: it does not say what it is for"));
        }
        if !places.insert(place.to_owned()) {
            wrong.push(format!("{LIST}:{number}: {place} is listed twice"));
        }
    }
    (places, wrong)
}

pub(super) fn findings(root: &Path, crates: &[Crate]) -> Vec<Finding> {
    // Trees of tests have no list, and none of these crates.
    let text = fs::read_to_string(root.join(LIST)).unwrap_or_default();
    compare(&text, crates)
}

fn compare(text: &str, crates: &[Crate]) -> Vec<Finding> {
    let (listed, mut wrong) = listed(text);
    let members = crates
        .iter()
        .filter(|member| CRATES.contains(&member.name.as_str()));
    let mut found = BTreeMap::new();
    for member in members {
        for file in &member.source {
            for (place, line) in places(&member.name, file) {
                found.entry(place).or_insert((&file.path, line));
            }
        }
    }
    for (place, (path, line)) in &found {
        if !listed.contains(place) {
            wrong.push(format!(
                "{path}:{line}: `{place}` may be written by several threads: {LIST} is to say how often, by whom and what for"
            ));
        }
    }
    let gone = listed.iter().filter(|place| !found.contains_key(*place));
    wrong.extend(gone.map(|place| format!("{LIST}: `{place}` is not there any more")));
    wrong
        .into_iter()
        .map(|text| Finding {
            rule: "sharing".to_owned(),
            place: "shared state".to_owned(),
            text,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    fn of(text: &str, list: &str) -> Vec<String> {
        let mut member = member(&[("lib.rs", text)]);
        member.name = "net".to_owned();
        let found = compare(&format!("{HEAD}\n{list}"), &[member]);
        found.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn fields_statics_and_aliases_are_found_and_locals_are_not() {
        let text = "use a::Mutex;\nstruct A<T: B> {\n    c: Arc<Mutex<T>>,\n    d: u8,\n    e: [AtomicU64; 2],\n}\nstruct F(RwLock<u8>);\nstruct G;\nstatic H: AtomicU8 = AtomicU8::new(0);\ntype I = Notify;\nfn j(k: &Mutex<u8>) { let l = Mutex::new(0); }\n#[cfg(test)]\nstruct M(Mutex<u8>);\n";
        let found: Vec<String> = of(text, "")
            .iter()
            .filter_map(|line| Some(line.split('`').nth(1)?.to_owned()))
            .collect();
        assert_eq!(found, ["net A.c", "net A.e", "net F", "net H", "net I"]);
    }

    #[test]
    fn what_is_listed_passes_and_what_is_gone_or_unclear_does_not() {
        let text = "struct A { b: AtomicU8 }";
        assert_eq!(of(text, "net A.b,turn,one,whether it sleeps\n"), [""; 0]);
        let wrong = of(text, "net A.b,often,nobody,\nnet A.c,turn,one,d, e\n");
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        assert!(
            wrong[3].contains("`net A.c` is not there any more"),
            "{wrong:?}"
        );
    }
}
