//! The structs and enums of a crate, each with its `impl` blocks, wherever in the crate these stand.
//!
//! A block belongs to the type of its name. If the crate has several types of that name, it belongs to the one in the
//! deepest module that the block's module is, or is below; if there is none, it belongs to no type.
//!
//! Deliberately absent: unions and traits; blocks for types of other crates; methods that a macro writes. Tests are left
//! out.

use crate::source::{self, Crate, Definition, Implementation, SourceFile};

/// A type of a crate.
pub(crate) struct Type<'a> {
    /// The file that defines it.
    pub(crate) file: &'a SourceFile,
    /// The module of that file.
    pub(crate) module: Vec<String>,
    pub(crate) definition: Definition,
    /// With the files that they are in, in the order of these.
    pub(crate) blocks: Vec<(&'a SourceFile, Implementation)>,
    /// Whether the crate has no other type of this name.
    pub(crate) is_only: bool,
}

/// The types of a crate, in the order of its files.
pub(crate) fn types(member: &Crate) -> Vec<Type<'_>> {
    let mut found: Vec<Type<'_>> = Vec::new();
    for file in &member.source {
        for definition in source::definitions(file) {
            found.push(Type {
                file,
                module: member.module(file),
                definition,
                blocks: Vec::new(),
                is_only: true,
            });
        }
    }
    for at in 0..found.len() {
        let is_only = found
            .iter()
            .filter(|other| Some(other.name()) == found.get(at).map(Type::name))
            .count()
            == 1;
        if let Some(kind) = found.get_mut(at) {
            kind.is_only = is_only;
        }
    }
    for file in &member.source {
        let module = member.module(file);
        for block in source::implementations(file) {
            let owner = found
                .iter_mut()
                .filter(|kind| kind.name() == block.name)
                .filter(|kind| kind.is_only || module.starts_with(&kind.module))
                .max_by_key(|kind| kind.module.len());
            if let Some(owner) = owner {
                owner.blocks.push((file, block));
            }
        }
    }
    found
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
        let found: Vec<String> = types(&member)
            .iter()
            .map(|kind| {
                let methods: Vec<String> = kind
                    .blocks
                    .iter()
                    .flat_map(|(file, block)| {
                        let module = member.module(file).join("::");
                        let names = block.methods.iter().map(|method| method.name.clone());
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
                    "impl A<u8> { fn e() {} }\nimpl X for A<u8> { fn f() {} }",
                ),
                (
                    "g.rs",
                    "impl X for Vec<A> { fn h() {} }\n#[cfg(test)]\nimpl A<u8> { fn i() {} }",
                ),
            ],
            &["b A: b.c d.e d.f"],
        );
    }

    #[test]
    fn types_of_the_same_name_have_the_blocks_below_them() {
        check(
            &[
                ("b/mod.rs", "struct A;"),
                ("b/c.rs", "impl super::A { fn d() {} }"),
                ("b/i/j.rs", "impl super::A { fn k() {} }"),
                ("b/i/mod.rs", "struct A;"),
                ("e.rs", "struct A;\nimpl A { fn f() {} }"),
                ("g.rs", "impl A { fn h() {} }"),
            ],
            &["b A: b::c.d", "b::i A: b::i::j.k", "e A: e.f"],
        );
    }
}
