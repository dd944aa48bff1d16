//! No type has more methods, fields or variants than a limit; those that do only get smaller.
//!
//! Each method, field or variant of a type over the limit is a finding, so that the number in the ratchet is what the type
//! has: one more fails, one less lowers the number. A type at its limit that gets one more fails with all of them.
//! The place is crate and type, `broker-core ClientLoop`; with the module where a crate has several types of the name.
//!
//! Methods are those of all `impl` blocks of a type in its crate, blocks of traits and functions without `self` among
//! them, and functions over a reference to the type: code that moves from one of these to another changes nothing. What
//! belongs to a type stands in `types`.
//!
//! Deliberately absent: fields without names, fields of variants, methods that a trait provides or a derive writes, and
//! the lengths of functions and files, which do not tell good code from bad.

use super::finding::Finding;
use crate::names::Names;
use crate::source::{Crate, Shape};
use crate::types::{self, Type};

/// So many methods a type may have.
const METHODS: usize = 40;
/// So many named fields a struct may have.
const FIELDS: usize = 20;
/// So many variants an enum may have.
const VARIANTS: usize = 24;

/// Structs that are lists: a field is a counter, an option or a figure, and knows nothing of the others. A new one there is
/// no harm. Crate and name.
const LISTS: &[&str] = &[
    "broker-core BrokerStats",
    "broker-core Settings",
    "heraldmq ConnectionOptions",
    "host Kernel",
    "mqtt-session Policy",
    "report Record",
];

type Parts = fn(&Type<'_>) -> Vec<String>;

/// Name of the rule, how many a type may have, and what is counted: each with file, line and name.
const RULES: &[(&str, usize, Parts)] = &[
    ("methods", METHODS, methods),
    ("fields", FIELDS, fields),
    ("variants", VARIANTS, variants),
];

pub(super) fn findings(crates: &[Crate]) -> Vec<Finding> {
    let mut found = Vec::new();
    for member in crates {
        for kind in types::types(&Names::of(member)) {
            let name = name(&kind);
            for (rule, limit, parts) in RULES {
                let parts = parts(&kind);
                let place = format!("{} {name}", member.name);
                if parts.len() > *limit && !is_list(rule, &place) {
                    found.extend(parts.iter().map(|part| Finding {
                        rule: (*rule).to_owned(),
                        place: place.clone(),
                        text: format!(
                            "{part}, one of {} {rule} of {name}; {limit} are the limit",
                            parts.len()
                        ),
                    }));
                }
            }
        }
    }
    found
}

/// What a type is called in the ratchet: with its module, where the crate has several types of the name.
pub(super) fn name(kind: &Type<'_>) -> String {
    if kind.is_only || kind.module.is_empty() {
        kind.name().to_owned()
    } else {
        format!("{}::{}", kind.module.join("::"), kind.name())
    }
}

/// Whether a type of a crate has more of anything than it may.
pub(super) fn is_over(member: &Crate, kind: &Type<'_>) -> bool {
    let place = format!("{} {}", member.name, name(kind));
    RULES
        .iter()
        .any(|(rule, limit, parts)| parts(kind).len() > *limit && !is_list(rule, &place))
}

fn is_list(rule: &str, place: &str) -> bool {
    rule == "fields" && LISTS.contains(&place)
}

fn methods(kind: &Type<'_>) -> Vec<String> {
    kind.pieces
        .iter()
        .flat_map(|piece| {
            piece
                .methods
                .iter()
                .map(|method| format!("{}:{}: {}", piece.file.path, method.line, method.name))
        })
        .collect()
}

fn fields(kind: &Type<'_>) -> Vec<String> {
    match &kind.definition.shape {
        Shape::Struct(fields) => fields
            .iter()
            .map(|field| format!("{}:{}: {}", kind.file.path, field.line, field.name))
            .collect(),
        Shape::Tuple | Shape::Enum(_) => Vec::new(),
    }
}

fn variants(kind: &Type<'_>) -> Vec<String> {
    match &kind.definition.shape {
        Shape::Enum(variants) => variants
            .iter()
            .map(|variant| format!("{}:{}: {variant}", kind.file.path, kind.definition.line))
            .collect(),
        Shape::Tuple | Shape::Struct(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    /// The findings of a crate, as rule, place and number.
    fn check(files: &[(&str, &str)], expect: &[(&str, &str, usize)]) {
        let mut counted: Vec<(String, String, usize)> = Vec::new();
        for finding in findings(&[member(files)]) {
            match counted.last_mut() {
                Some((rule, place, count)) if *rule == finding.rule && *place == finding.place => {
                    *count += 1;
                }
                _ => counted.push((finding.rule, finding.place, 1)),
            }
        }
        let counted: Vec<(&str, &str, usize)> = counted
            .iter()
            .map(|(rule, place, count)| (rule.as_str(), place.as_str(), *count))
            .collect();
        assert_eq!(counted, expect);
    }

    /// So many parts of a text that has `#` for the number of the part.
    fn repeat(part: &str, count: usize) -> String {
        (0..count)
            .map(|number| part.replace('#', &number.to_string()))
            .collect()
    }

    #[test]
    fn methods_of_all_blocks_are_too_many_together() {
        let own = format!(
            "use crate::B;\nimpl B {{ {} }}",
            repeat("fn c#(&self) {}\n", METHODS - 1)
        );
        let of_trait =
            "impl X for super::B { fn d() {} }\n#[cfg(test)]\nimpl super::B { fn e() {} }";
        check(
            &[("lib.rs", "struct B;"), ("c.rs", &own), ("d.rs", of_trait)],
            &[],
        );
        let one_more = "impl X for crate::B { fn d() {} fn f() {} }";
        check(
            &[("lib.rs", "struct B;"), ("c.rs", &own), ("d.rs", one_more)],
            &[("methods", "a B", METHODS + 1)],
        );
    }

    #[test]
    fn a_second_type_of_the_name_has_its_own_methods() {
        let methods = repeat("fn c#(&self) {}\n", METHODS + 1);
        let block = format!("use crate::d::B;\nimpl B {{ {methods} }}");
        check(
            &[
                ("b.rs", "pub struct B;"),
                ("d.rs", "pub struct B;"),
                ("e.rs", &block),
            ],
            &[("methods", "a d::B", METHODS + 1)],
        );
    }

    #[test]
    fn one_more_function_over_a_type_is_too_many() {
        let own = format!(
            "pub struct B<T>(T);\nimpl<T> B<T> {{ {} }}",
            repeat("fn c#(&self) {}\n", METHODS)
        );
        check(&[("b.rs", &own), ("d.rs", "")], &[]);
        for function in [
            "use crate::b::B;\nfn e<T: X>(this: &mut B<T>, f: u8) {}",
            "fn e(this: &crate::b::B<u8>) {}",
        ] {
            check(
                &[("b.rs", &own), ("d.rs", function)],
                &[("methods", "a B", METHODS + 1)],
            );
        }
    }

    #[test]
    fn one_more_method_of_an_extension_trait_is_too_many() {
        let own = format!(
            "pub struct B<T>(T);\nimpl<T> B<T> {{ {} }}",
            repeat("fn c#(&self) {}\n", METHODS)
        );
        for extension in [
            "use crate::b::B;\ntrait X { fn e(&mut self); }\nimpl<T> X for B<T> { fn e(&mut self) {} }",
            "use crate::b::B;\ntrait X { fn e(&mut self) {} }\nimpl<T> X for B<T> {}",
        ] {
            check(
                &[("b.rs", &own), ("d.rs", extension)],
                &[("methods", "a B", METHODS + 1)],
            );
        }
    }

    #[test]
    fn fields_and_variants_are_counted() {
        let field = |count| format!("struct B {{ {} }}", repeat("c#: u8,\n", count));
        check(&[("lib.rs", &field(FIELDS))], &[]);
        check(
            &[("lib.rs", &field(FIELDS + 2))],
            &[("fields", "a B", FIELDS + 2)],
        );
        let variant = |count| format!("enum B {{ {} }}", repeat("C# { d: u8 },\n", count));
        check(&[("lib.rs", &variant(VARIANTS))], &[]);
        check(
            &[("lib.rs", &variant(VARIANTS + 1))],
            &[("variants", "a B", VARIANTS + 1)],
        );
    }

    #[test]
    fn types_of_the_same_name_are_told_apart() {
        let large = format!("struct B {{ {} }}", repeat("c#: u8,\n", FIELDS + 1));
        check(
            &[("lib.rs", "struct B;"), ("d.rs", &large)],
            &[("fields", "a d::B", FIELDS + 1)],
        );
    }
}
