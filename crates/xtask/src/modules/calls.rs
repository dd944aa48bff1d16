//! Which files of a crate call each other's methods of the same type.
//!
//! File A has an edge to file B if, in an `impl T` block of A, there is `self.name(…)` or `Self::name(…)`, and an
//! `impl T` block of B defines `name`. Methods are found by name: a name that several files define for T (by several
//! traits, or by blocks for several parameters of T) is no edge, because the text does not say which of them is meant.
//!
//! Deliberately absent: calls on anything but `self` and `Self` (`client_loop.name(…)`, `self.field.name(…)`,
//! `T::name(self)`), methods that are named and not called, methods that a trait provides, and macros. Those calls are
//! edges only if the file imports what it names.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Crate, Implementation, Kind, SourceFile};
use crate::types::{self, Type};

/// Pairs of modules: the first calls methods that the second defines.
pub(super) fn edges(member: &Crate) -> BTreeSet<(Vec<String>, Vec<String>)> {
    let mut found = BTreeSet::new();
    for kind in types::types(member) {
        let definers = definers(&kind);
        for (file, block) in &kind.blocks {
            for name in calls(file, block) {
                // Of several files, none.
                if let Some([definer]) = definers.get(name).map(Vec::as_slice) {
                    found.insert((member.module(file), member.module(definer)));
                }
            }
        }
    }
    found
}

/// The files that define each method of a type.
fn definers<'a>(kind: &'a Type<'_>) -> BTreeMap<&'a str, Vec<&'a SourceFile>> {
    let mut found: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for (file, block) in &kind.blocks {
        for method in &block.methods {
            let files = found.entry(&method.name).or_default();
            if !files.iter().any(|known| known.path == file.path) {
                files.push(file);
            }
        }
    }
    found
}

/// The names that a block calls on `self` and `Self`.
fn calls<'a>(file: &'a SourceFile, block: &'a Implementation) -> impl Iterator<Item = &'a str> {
    block.body.clone().filter_map(|index| {
        let on_self = file.begins(index, &["self", "."]) || file.begins(index, &["Self", "::"]);
        let is_call = file.kind(index + 2) == Some(Kind::Word)
            && (file.at(index + 3) == "(" || file.begins(index + 3, &["::", "<"]));
        (on_self && is_call && !file.is_test(index)).then(|| file.at(index + 2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    /// The edges of a crate whose type `A` is in `lib.rs`.
    fn check(files: &[(&str, &str)], expect: &[&str]) {
        let mut all = vec![("lib.rs", "struct A { f: u8 }")];
        all.extend(files);
        let found: Vec<String> = edges(&member(&all))
            .into_iter()
            .filter(|(from, to)| from != to)
            .map(|(from, to)| format!("{} {}", from.join("::"), to.join("::")))
            .collect();
        assert_eq!(found, expect, "{files:?}");
    }

    const B: (&str, &str) = ("b.rs", "impl A { fn g(&self) {} fn h<T>() {} }");

    #[test]
    fn calls_on_self_and_its_type_are_edges() {
        for text in [
            "impl A { fn c(&self) { self.g(); } }",
            "impl A { fn c() { Self::h::<u8>(); } }",
            "impl A { fn c(&self) { self\n        .g() } }",
            "impl X for A { fn c(&self) { let d = || self.g(); } }",
        ] {
            check(&[B, ("c.rs", text)], &["c b"]);
        }
    }

    #[test]
    fn other_calls_are_none() {
        for text in [
            "impl A { fn c(&self) { self.f.g(); self.g; d.g(); A::h::<u8>(); self.i(); } }",
            "struct C;\nimpl C { fn c(&self) { self.g(); } }",
            "impl A { #[cfg(test)]\n    fn c(&self) { self.g(); } }",
            "#[cfg(test)]\nmod tests { impl A { fn c(&self) { self.g(); } } }",
        ] {
            check(&[B, ("c.rs", text)], &[]);
        }
    }

    #[test]
    fn a_name_of_several_files_is_no_edge() {
        let other = ("d.rs", "impl X for A { fn g(&self) {} }");
        let caller = ("c.rs", "impl A { fn c(&self) { self.g(); Self::h(); } }");
        check(&[B, other, caller], &["c b"]);
        let only_g = ("c.rs", "impl A { fn c(&self) { self.g(); } }");
        check(&[B, other, only_g], &[]);
    }
}
