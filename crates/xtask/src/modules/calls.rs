//! Which files of a crate call each other's methods and functions of types.
//!
//! A method of a type is what `types` counts as one: what an `impl` block defines, what a trait of only this type provides,
//! and a function over a reference to the type. File A calls file B if in A there is
//!
//! - `self.name(…)` or `Self::name(…)` in a block of the type, or `this.name(…)` in a function whose first parameter is
//!   `this: &T` or `this: &mut T`, and B defines the method `name` of that type;
//! - `T::name(…)`, and B defines the method `name` of the type that `T` leads to;
//! - `name(…)` or `path::name(…)`, and this leads to a function of B that counts as a method.
//!
//! Methods are found by name: a name that several files define for a type (by several traits, or by blocks for several
//! parameters of the type) is no call, because the text does not say which of them is meant.
//!
//! Deliberately absent: what a trait calls on `self`, which is whatever implements it; calls on anything but these
//! (`self.field.name(…)`, a second parameter, `client_loop.name(…)`), methods that are named and not called, functions over
//! no type, and macros. Those are edges of a circle only if the file imports what it names.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::names::{Declared, Item, Names};
use crate::source::{self, Crate, Kind};
use crate::types::{self, PieceKind, Type};

/// A call of a method or function that another or the same file defines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    /// The module that calls.
    pub(crate) from: Vec<String>,
    /// The module that defines what is called.
    pub(crate) to: Vec<String>,
    /// Where the call is.
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) name: String,
    /// The type of which it is a method.
    pub(crate) owner: String,
}

/// Pairs of modules: the first calls what the second defines.
pub(super) fn edges(member: &Crate) -> BTreeSet<(Vec<String>, Vec<String>)> {
    calls(member)
        .into_iter()
        .map(|call| (call.from, call.to))
        .collect()
}

/// All calls of a crate, in the order of its files.
pub(crate) fn calls(member: &Crate) -> Vec<Call> {
    let names = Names::of(member);
    let types = types::types(&names);
    let known = Known::of(&names, &types);
    names
        .files
        .iter()
        .flat_map(|file| known.calls(file))
        .collect()
}

/// What can be called.
struct Known<'a, 'b> {
    names: &'b Names<'a>,
    types: &'b [Type<'a>],
    /// The place of each type in `types`.
    places: BTreeMap<Item, usize>,
    /// For each type, the modules that define each method.
    definers: Vec<BTreeMap<&'b str, Vec<&'b [String]>>>,
}

impl<'a, 'b> Known<'a, 'b> {
    fn of(names: &'b Names<'a>, types: &'b [Type<'a>]) -> Self {
        // Both are in the order of files and definitions.
        let items = names.files.iter().enumerate().flat_map(|(at, file)| {
            (0..file.definitions.len()).map(move |number| Item::Type(at, number))
        });
        let places = items.enumerate().map(|(place, item)| (item, place));
        Self {
            names,
            types,
            places: places.collect(),
            definers: types.iter().map(definers).collect(),
        }
    }

    fn calls(&self, file: &Declared<'_>) -> Vec<Call> {
        // For each token, the type that it is in a piece of, and what the type is called there: the innermost last.
        let mut inside: Vec<(Range<usize>, usize, &str, bool)> = Vec::new();
        for (place, kind) in self.types.iter().enumerate() {
            let here = kind
                .pieces
                .iter()
                .filter(|piece| piece.file.path == file.file.path)
                .filter(|piece| piece.kind != PieceKind::Trait);
            inside.extend(here.map(|piece| {
                let is_block = piece.kind != PieceKind::Function;
                (piece.body.clone(), place, piece.receiver.as_str(), is_block)
            }));
        }
        inside.sort_by_key(|(body, ..)| body.start);
        let source = file.file;
        let mut found = Vec::new();
        for index in source.code() {
            let begins = source.kind(index) == Some(Kind::Word)
                && (index == 0 || !matches!(source.at(index - 1), "." | "::" | "fn"));
            if !begins {
                continue;
            }
            let around = inside
                .iter()
                .rev()
                .filter(|(body, ..)| body.contains(&index));
            let target = if source.at(index + 1) == "." {
                let on = around
                    .clone()
                    .find(|(_, _, receiver, _)| *receiver == source.at(index));
                let called = source.at(index + 2).to_owned();
                on.filter(|_| is_call(file, index + 3))
                    .and_then(|(_, place, ..)| self.method(*place, &called))
                    .zip(Some(called))
            } else {
                let own = around.clone().find(|(_, _, _, is_block)| *is_block);
                let own = own.map(|(_, place, ..)| *place);
                called_path(file, index).and_then(|path| {
                    let target = self.target(file, index, &path, own);
                    target.zip(path.last().cloned())
                })
            };
            if let Some(((to, owner), name)) = target {
                found.push(Call {
                    from: file.module.clone(),
                    to: to.to_vec(),
                    file: source.path.clone(),
                    line: source.line(index),
                    name,
                    owner: self
                        .types
                        .get(owner)
                        .map_or(String::new(), |kind| kind.name().to_owned()),
                });
            }
        }
        found
    }

    /// The module that defines what a path calls, and the place of the type whose method it is; `own` is the type that is `Self` there.
    fn target(
        &self,
        file: &Declared<'_>,
        index: usize,
        path: &[String],
        own: Option<usize>,
    ) -> Option<(&[String], usize)> {
        let (name, owner) = path.split_last()?;
        if let [only] = owner
            && only == "Self"
        {
            return self.method(own?, name);
        }
        if !owner.is_empty()
            && let Some(item) = self.names.kind(file, index, owner)
        {
            return self.method(*self.places.get(&item)?, name);
        }
        match self.names.function(file, index, path)? {
            Item::Function(at, number) => {
                let definer = self.names.files.get(at)?;
                let function = definer.functions.get(number)?;
                let receiver = function.receiver.as_ref()?;
                // Over a type of the crate.
                let index = function.body.start;
                let owner = self.names.kind(definer, index, &receiver.path)?;
                Some((&definer.module, *self.places.get(&owner)?))
            }
            Item::Type(..) | Item::Trait(..) => None,
        }
    }

    /// The module that alone defines a method of a type, and the place of the type.
    fn method(&self, place: usize, name: &str) -> Option<(&[String], usize)> {
        match self.definers.get(place)?.get(name)?.as_slice() {
            [only] => Some((only, place)),
            _ => None,
        }
    }
}

/// The modules that define each method of a type.
fn definers<'b>(kind: &'b Type<'_>) -> BTreeMap<&'b str, Vec<&'b [String]>> {
    let mut found: BTreeMap<&str, Vec<&[String]>> = BTreeMap::new();
    let of_blocks = kind
        .pieces
        .iter()
        .filter(|piece| piece.kind != PieceKind::Function);
    for piece in of_blocks {
        for method in &piece.methods {
            let modules = found.entry(&method.name).or_default();
            if !modules.contains(&piece.module.as_slice()) {
                modules.push(&piece.module);
            }
        }
    }
    found
}

/// Whether arguments begin at this index, behind the name of a method.
fn is_call(file: &Declared<'_>, index: usize) -> bool {
    file.file.at(index) == "(" || file.file.begins(index, &["::", "<"])
}

/// The words of a path that begins at this index, without parameters of types, if it is called.
fn called_path(file: &Declared<'_>, index: usize) -> Option<Vec<String>> {
    let source = file.file;
    let mut path = vec![source.at(index).to_owned()];
    let mut at = index + 1;
    loop {
        if source.begins(at, &["::", "<"]) {
            at = source::behind_angles(source, at + 1);
        } else if source.at(at) == "::" && source.kind(at + 1) == Some(Kind::Word) {
            path.push(source.at(at + 1).to_owned());
            at += 2;
        } else {
            return (source.at(at) == "(").then_some(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    /// The calls between the files of a crate whose type `A` is in `lib.rs`.
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

    const B: (&str, &str) = (
        "b.rs",
        "use crate::A;\nimpl A { fn g(&self) {} fn h<T>() {} }\npub fn j(this: &mut A) {}\npub fn k(n: u8) {}",
    );

    #[test]
    fn calls_on_a_type_are_edges() {
        for text in [
            "impl super::A { fn c(&self) { self.g(); } }",
            "impl super::A { fn c() { Self::h::<u8>(); } }",
            "impl super::A { fn c(&self) { self\n        .g() } }",
            "impl X for super::A { fn c(&self) { let d = || self.g(); } }",
            "use crate::A;\nfn c(this: &mut A) { this.g(); }",
            "fn c(this: &crate::A<u8>, d: u8) { e(this.g()); }",
            "use crate::A as B;\nfn c(d: u8) { B::<u8>::h(); }",
            "fn c(d: u8) { crate::A::h::<u8>(); }",
            "use crate::b::j;\nfn c(d: D) { j(d); }",
            "use crate::b;\nimpl D { fn c() { b::j(d); } }",
            "use crate::b::*;\nfn c(d: D) { j(d); }",
        ] {
            check(&[B, ("c.rs", text)], &["c b"]);
        }
    }

    #[test]
    fn other_calls_are_none() {
        for text in [
            "impl super::A { fn c(&self) { self.f.g(); self.g; d.g(); self.i(); } }",
            "struct C;\nimpl C { fn c(&self) { self.g(); Self::h(); } }",
            "impl super::A { #[cfg(test)]\n    fn c(&self) { self.g(); } }",
            "#[cfg(test)]\nmod tests { impl super::super::A { fn c(&self) { self.g(); } } }",
            "use crate::b::{j, k};\nfn c(d: D) { k(1); d.j(); let j = 1; }",
            "fn c(this: &mut crate::A) { other.g(); }",
            "fn c() { j(d); A::h(); }",
        ] {
            check(&[B, ("c.rs", text)], &[]);
        }
    }

    #[test]
    fn a_trait_calls_nobody_and_is_called() {
        let provided = (
            "d.rs",
            "pub trait X { fn e(&self) { self.g(); } }\nimpl X for super::A {}",
        );
        check(&[B, provided], &[]);
        let caller = ("c.rs", "impl super::A { fn c(&self) { self.e(); } }");
        check(&[B, provided, caller], &["c d"]);
    }

    #[test]
    fn a_name_of_several_files_is_no_edge() {
        let other = ("d.rs", "impl X for super::A { fn g(&self) {} }");
        let caller = (
            "c.rs",
            "impl super::A { fn c(&self) { self.g(); Self::h(); } }",
        );
        check(&[B, other, caller], &["c b"]);
        let only_g = ("c.rs", "impl super::A { fn c(&self) { self.g(); } }");
        check(&[B, other, only_g], &[]);
    }
}
