//! The structs and enums of a crate, each with all that works on it, wherever in the crate it stands: `impl` blocks, and
//! functions whose first parameter is a reference to the type.
//!
//! What belongs to a type is what names it there: `names` says which type a path leads to. The pieces of a type are:
//!
//! - its `impl` blocks, those of traits among them;
//! - each function outside of `impl` blocks whose first parameter is `&T`, `&mut T`, or a reference to an `Arc`, `Box`,
//!   `Pin` or `Rc` of `T`: the text differs from that of a method, and nothing else does;
//! - a trait that only one type of the crate implements, with the methods that it provides and the type does not write
//!   itself: it is a block of the type under another name.
//!
//! Deliberately absent: unions; blocks and functions for types of other crates; methods that a macro writes; functions
//! with a type in another place than the first, or by value; `impl Trait` and generic parameters, of which the text does
//! not say what they are. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::names::{Declared, Item, Names};
use crate::source::{Definition, Method, SourceFile};

/// A type of a crate.
pub(crate) struct Type<'a> {
    /// The file that defines it.
    pub(crate) file: &'a SourceFile,
    /// The module of that file.
    pub(crate) module: Vec<String>,
    pub(crate) definition: Definition,
    /// In the order of the files.
    pub(crate) pieces: Vec<Piece<'a>>,
    /// Whether the crate has no other type of this name.
    pub(crate) is_only: bool,
}

/// A block, a trait or a function that belongs to a type.
pub(crate) struct Piece<'a> {
    pub(crate) kind: PieceKind,
    pub(crate) file: &'a SourceFile,
    /// The module of the file.
    pub(crate) module: Vec<String>,
    pub(crate) methods: Vec<Method>,
    /// What the type is called in it: `self`, or the name of the first parameter.
    pub(crate) receiver: String,
    /// The tokens between its brackets.
    pub(crate) body: Range<usize>,
}

/// What a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Block,
    /// A block of a trait.
    OfTrait,
    /// A trait that only this type implements.
    Trait,
    Function,
}

/// The types of a crate, in the order of its files.
pub(crate) fn types<'a>(names: &Names<'a>) -> Vec<Type<'a>> {
    let mut found: BTreeMap<Item, Type<'a>> = BTreeMap::new();
    for (at, file) in names.files.iter().enumerate() {
        for (number, (_, definition)) in file.definitions.iter().enumerate() {
            let kind = Type {
                file: file.file,
                module: file.module.clone(),
                definition: definition.clone(),
                pieces: Vec::new(),
                is_only: true,
            };
            found.insert(Item::Type(at, number), kind);
        }
    }
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for kind in found.values() {
        *uses.entry(kind.name().to_owned()).or_default() += 1;
    }
    for kind in found.values_mut() {
        kind.is_only = uses.get(kind.name()) == Some(&1);
    }
    for (owner, piece) in pieces(names) {
        if let Some(kind) = found.get_mut(&owner) {
            kind.pieces.push(piece);
        }
    }
    found.into_values().collect()
}

/// All pieces of types of the crate, each with the type that it belongs to.
fn pieces<'a>(names: &Names<'a>) -> Vec<(Item, Piece<'a>)> {
    let mut found = Vec::new();
    // The types that implement each trait, with the methods that they write themselves.
    let mut implementors: BTreeMap<Item, Implementors> = BTreeMap::new();
    for file in &names.files {
        for block in &file.blocks {
            let index = block.body.start;
            let owner = names.kind(file, index, &block.path);
            let of_trait = block.of_trait.as_ref();
            if let Some(of_trait) = of_trait.and_then(|path| names.of_trait(file, index, path)) {
                let written = block.methods.iter().map(|method| method.name.clone());
                let known = implementors.entry(of_trait).or_default();
                known.written.extend(written);
                known.types.insert(owner);
            }
            if let Some(owner) = owner {
                let kind = match block.of_trait {
                    Some(_) => PieceKind::OfTrait,
                    None => PieceKind::Block,
                };
                let piece = piece(file, kind, block.methods.clone(), "self", &block.body);
                found.push((owner, piece));
            }
        }
        for function in &file.functions {
            if let Some(receiver) = &function.receiver
                && let Some(owner) = names.kind(file, function.body.start, &receiver.path)
            {
                let method = Method {
                    name: function.name.clone(),
                    line: function.line,
                };
                let kind = PieceKind::Function;
                let piece = piece(file, kind, vec![method], &receiver.name, &function.body);
                found.push((owner, piece));
            }
        }
    }
    for (item, known) in &implementors {
        let mut owners = known.types.iter();
        if let (Some(Some(owner)), None) = (owners.next(), owners.next())
            && let Item::Trait(at, number) = item
            && let Some(file) = names.files.get(*at)
            && let Some(kind) = file.traits.get(*number)
        {
            let provided = kind.methods.iter();
            let provided = provided.filter(|method| !known.written.contains(&method.name));
            let provided = provided.cloned().collect();
            let piece = piece(file, PieceKind::Trait, provided, "self", &kind.body);
            found.push((*owner, piece));
        }
    }
    found
}

/// `None` among the types stands for those that are not of the crate.
#[derive(Default)]
struct Implementors {
    types: BTreeSet<Option<Item>>,
    written: BTreeSet<String>,
}

fn piece<'a>(
    file: &Declared<'a>,
    kind: PieceKind,
    methods: Vec<Method>,
    receiver: &str,
    body: &Range<usize>,
) -> Piece<'a> {
    Piece {
        kind,
        file: file.file,
        module: file.module.clone(),
        methods,
        receiver: receiver.to_owned(),
        body: body.clone(),
    }
}

impl Type<'_> {
    pub(crate) fn name(&self) -> &str {
        &self.definition.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    /// The types of a crate, as module, name, and methods with the modules of their blocks.
    fn check(files: &[(&str, &str)], expect: &[&str]) {
        let member = member(files);
        let found: Vec<String> = types(&Names::of(&member))
            .iter()
            .map(|kind| {
                let methods: Vec<String> = kind
                    .pieces
                    .iter()
                    .flat_map(|piece| {
                        let module = piece.module.join("::");
                        let names = piece.methods.iter().map(|method| method.name.clone());
                        names
                            .map(|name| format!("{module}.{name}"))
                            .collect::<Vec<String>>()
                    })
                    .collect();
                format!(
                    "{} {}: {}",
                    kind.module.join("::"),
                    kind.name(),
                    methods.join(" ")
                )
            })
            .collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn blocks_of_all_files_are_found() {
        check(
            &[
                ("b.rs", "struct A<T>(T);\nimpl<T> A<T> { fn c() {} }"),
                (
                    "d.rs",
                    "use crate::b::A;\nimpl A<u8> { fn e() {} }\nimpl X for A<u8> { fn f() {} }",
                ),
                (
                    "g.rs",
                    "use crate::b::A;\nimpl X for Vec<A> { fn h() {} }\n#[cfg(test)]\nimpl A<u8> { fn i() {} }",
                ),
            ],
            &["b A: b.c d.e d.f"],
        );
    }

    #[test]
    fn types_of_the_same_name_have_the_blocks_that_name_them() {
        check(
            &[
                ("b/mod.rs", "pub struct A;"),
                ("b/c.rs", "impl super::A { fn d() {} }"),
                ("b/i/j.rs", "use crate::b::A;\nimpl A { fn k() {} }"),
                ("b/i/mod.rs", "struct A;"),
                ("e.rs", "pub struct A;\nimpl A { fn f() {} }"),
                ("g.rs", "use crate::e::A as B;\nimpl B { fn h() {} }"),
                ("l.rs", "impl A { fn m() {} }"),
            ],
            &["b A: b::c.d b::i::j.k", "b::i A: ", "e A: e.f g.h"],
        );
    }

    #[test]
    fn functions_over_a_type_are_its_methods() {
        check(
            &[
                ("b.rs", "pub struct A<T>(T);"),
                (
                    "c.rs",
                    "use crate::b::A;\nfn d<T>(this: &mut A<T>, e: u8) {}\nfn f(this: &Arc<A<u8>>) {}\nfn g(h: u8, this: &A<u8>) {}\n\
                     impl I { fn j(this: &A<u8>) {} }\n#[cfg(test)]\nfn k(this: &A<u8>) {}",
                ),
            ],
            &["b A: c.d c.f"],
        );
    }

    #[test]
    fn a_trait_of_one_type_is_a_block_of_it() {
        let b = (
            "b.rs",
            "use crate::c::X;\npub struct A;\nimpl X for A { fn d() {} }\npub struct B;",
        );
        let c = ("c.rs", "pub trait X { fn d() {} fn e() {} fn f(); }");
        check(&[b, c], &["b A: b.d c.e", "b B: "]);
        let other = ("g.rs", "impl crate::c::X for crate::b::B {}");
        check(&[b, c, other], &["b A: b.d", "b B: "]);
        let all = ("g.rs", "impl<T> crate::c::X for T {}");
        check(&[b, c, all], &["b A: b.d", "b B: "]);
    }
}
