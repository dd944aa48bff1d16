//! Which part of a crate may call which: a list that only shrinks.
//!
//! A part is a folder or a file directly in `src`, by its name; `lib.rs` is none. There is an edge from one part to another
//! if code of the first calls a method, or a function over a reference to a type, that the second defines: by
//! `self.name(…)`, `Self::name(…)`, `Type::name(…)` or `name(…)`, as `modules::calls` says. The methods of one type stand in
//! many parts, so an edge is not what `use` says: a part that calls `self.kick(…)` has an edge to the part that defines
//! `kick`.
//!
//! An edge that is not in the list is a violation, and so is one in the list that is not there any more. Neither is in
//! the ratchet.
//!
//! Deliberately absent: calls on fields and parameters (`self.node.name(…)`), whose types the text does not say. State
//! that a part keeps in a struct of its own is called so, and is to be.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use crate::modules::calls::{self, Call};
use crate::source::Crate;

/// A part, and the parts that it calls.
type Edges = &'static [(&'static str, &'static [&'static str])];

/// Crates with parts, and their edges.
const ALLOWED: &[(&str, Edges)] = &[("broker-core", BROKER_CORE)];

const BROKER_CORE: Edges = &[
    ("backpressure", &["key", "node"]),
    ("clients", &["drops"]),
    (
        "connect",
        &[
            "classes", "clients", "dispatch", "end", "inbox", "linger", "publish", "retained",
        ],
    ),
    (
        "dispatch",
        &[
            "clients",
            "connect",
            "drain",
            "end",
            "inbox",
            "inspect",
            "linger",
            "publish",
            "rejudge",
            "share",
            "shared",
            "subscribe",
            "turn",
            "will",
        ],
    ),
    ("drain", &["turn"]),
    ("end", &["clients", "inbox", "linger", "subscribe", "will"]),
    ("inbox", &["clients", "shared"]),
    ("inspect", &["dispatch", "rights"]),
    ("linger", &["clients", "inbox", "key", "retained"]),
    (
        "node",
        &["backpressure", "connect", "drops", "peers", "routes"],
    ),
    (
        "publish",
        &[
            "backpressure",
            "clients",
            "connect",
            "dispatch",
            "inbox",
            "key",
            "linger",
            "shared",
        ],
    ),
    ("rejudge", &["subscribe"]),
    ("reopening", &["connect", "inbox"]),
    ("retained", &["clients"]),
    ("routes", &["key", "route_table", "shared"]),
    (
        "shared",
        &["clients", "dispatch", "key", "publish", "rights", "routes"],
    ),
    ("subscribe", &["linger", "quotas", "retained"]),
    ("turn", &["clients", "drops", "key", "share"]),
    ("will", &["clients"]),
];

const RULE: &str = "edge";

pub(super) fn findings(crates: &[Crate]) -> Vec<Finding> {
    let of = |name: &str| crates.iter().find(|member| member.name == name);
    ALLOWED
        .iter()
        .filter_map(|(name, allowed)| Some((of(name)?, allowed)))
        .flat_map(|(member, allowed)| compare(member, allowed))
        .collect()
}

/// The crates that have parts, each with the edges that there are.
pub(super) fn of(crates: &[Crate]) -> Vec<(&Crate, BTreeSet<(String, String)>)> {
    let has_parts = |member: &&Crate| ALLOWED.iter().any(|(name, _)| *name == member.name);
    crates
        .iter()
        .filter(has_parts)
        .map(|member| (member, edges(member).into_keys().collect()))
        .collect()
}

fn compare(member: &Crate, allowed: &[(&str, &[&str])]) -> Vec<Finding> {
    let today = edges(member);
    let listed: BTreeSet<(&str, &str)> = allowed
        .iter()
        .flat_map(|(from, to)| to.iter().map(|to| (*from, *to)))
        .collect();
    let finding = |text| Finding {
        rule: RULE.to_owned(),
        place: member.name.clone(),
        text,
    };
    let new = today
        .iter()
        .filter(|((from, to), _)| !listed.contains(&(from.as_str(), to.as_str())))
        .map(|((from, to), call)| {
            finding(format!(
                "{}:{}: {from} calls `{}::{}` of {to}, and may not: the list is in crates/xtask/src/check/parts.rs",
                call.file, call.line, call.owner, call.name
            ))
        });
    let gone = listed
        .iter()
        .filter(|(from, to)| !today.contains_key(&((*from).to_owned(), (*to).to_owned())))
        .map(|(from, to)| {
            finding(format!(
                "{}: {from} does not call {to} any more: take it out of the list in crates/xtask/src/check/parts.rs",
                member.folder
            ))
        });
    new.chain(gone).collect()
}

/// The edges between parts, each with the first call that makes it.
fn edges(member: &Crate) -> BTreeMap<(String, String), Call> {
    let mut found = BTreeMap::new();
    for call in calls::calls(member) {
        if let (Some(from), Some(to)) = (call.from.first(), call.to.first())
            && from != to
        {
            let edge = (from.clone(), to.clone());
            found.entry(edge).or_insert(call);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    /// The findings of a crate with the parts `b`, `c` and `d`; `b` calls `c`.
    fn check(d: &str, allowed: &[(&str, &[&str])], expect: &[&str]) {
        let member = member(&[
            ("lib.rs", "mod b;\nmod c;\nmod d;\nstruct A;"),
            ("b/mod.rs", "mod e;"),
            (
                "b/e.rs",
                "use crate::A;\nimpl A { fn f(&self) { self.g(); } }",
            ),
            ("c.rs", "use crate::A;\nimpl A { fn g(&self) {} }"),
            ("d.rs", d),
        ]);
        let found: Vec<String> = compare(&member, allowed)
            .into_iter()
            .map(|finding| finding.text)
            .collect();
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.contains(expect), "{found}");
        }
    }

    #[test]
    fn an_edge_is_in_the_list_or_a_violation() {
        check("", &[("b", &["c"])], &[]);
        check(
            "",
            &[],
            &["crates/a/src/b/e.rs:2: b calls `A::g` of c, and may not"],
        );
        let function = "use crate::A;\nfn h(this: &mut A) {\n    this.f();\n}";
        check(function, &[("b", &["c"])], &["d.rs:3: d calls `A::f` of b"]);
    }

    #[test]
    fn an_edge_that_is_gone_leaves_the_list() {
        check("", &[("b", &["c", "d"])], &["b does not call d any more"]);
    }
}
