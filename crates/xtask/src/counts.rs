//! `counts`: what can be counted of a checkout, as tables in Markdown, so that two checkouts can be compared.
//!
//! Lines are all lines of a file, blank ones and comments included. Source is what is in `src` and not for tests only;
//! tests are the rest of `src` and everything in `tests` (see `source`). Benchmarks and examples are neither. All
//! columns but *tests* are about source. *Flat files* lie directly in `src`, without `lib.rs` and `main.rs`. What a circle
//! is stands in `modules`, the others in `patterns`.
//!
//! Invariant: a crate, type or file that is not there is left out, or counts nothing.

use std::fmt::Write;
use std::path::Path;

use crate::modules;
use crate::names::Names;
use crate::patterns;
use crate::source::{self, Crate, Shape};
use crate::types::{PieceKind, Type};

/// Types that are known to gather everything.
const TYPES: [&str; 5] = ["ClientLoop", "Client", "Mail", "Pending", "Node"];

/// The tables of a checkout.
pub(crate) fn tables(root: &Path) -> Result<String, String> {
    let crates =
        source::crates(root).map_err(|error| format!("reading {}: {error}\n", root.display()))?;
    let mut text = String::new();
    per_crate(&crates, &mut text);
    circles(&crates, &mut text);
    types(&crates, &mut text);
    Ok(text)
}

#[derive(Default)]
struct Counts {
    source: usize,
    tests: usize,
    flat: usize,
    circle: usize,
    silent: usize,
    assertions: usize,
    bare: usize,
    threes: usize,
}

fn per_crate(crates: &[Crate], text: &mut String) {
    text.push_str(
        "| Crate | Source lines | Test lines | Tests per source line | Flat files | Largest circle | Silent returns \
         | Assertions per 1,000 lines | Bare integer fields | Arrays of three |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut total = Counts::default();
    for member in crates {
        let counts = count(member);
        row(&member.name, &counts, text);
        total.source += counts.source;
        total.tests += counts.tests;
        total.flat += counts.flat;
        total.circle = total.circle.max(counts.circle);
        total.silent += counts.silent;
        total.assertions += counts.assertions;
        total.bare += counts.bare;
        total.threes += counts.threes;
    }
    row("all", &total, text);
}

fn count(member: &Crate) -> Counts {
    let mut counts = Counts {
        circle: modules::circles(member).first().map_or(0, Vec::len),
        ..Counts::default()
    };
    for file in &member.source {
        let marks = file.test_lines();
        let tests = marks.iter().filter(|test| **test).count();
        counts.tests += tests;
        counts.source += marks.len() - tests;
        let in_src = file
            .path
            .strip_prefix(&format!("{}/src/", member.folder))
            .unwrap_or(&file.path);
        let flat = !in_src.contains('/') && !matches!(in_src, "lib.rs" | "main.rs");
        counts.flat += usize::from(flat && !file.is_test_file());
        counts.silent += patterns::silent_returns(file).len();
        counts.assertions += patterns::assertions(file).len();
        counts.bare += patterns::bare_integers(file).len();
        counts.threes += patterns::arrays_of_three(file).len();
    }
    counts.tests += member
        .tests
        .iter()
        .map(|file| file.text.lines().count())
        .sum::<usize>();
    counts
}

fn row(name: &str, counts: &Counts, text: &mut String) {
    line(
        text,
        &[
            name.to_owned(),
            counts.source.to_string(),
            counts.tests.to_string(),
            ratio(counts.tests, counts.source, 1, 2),
            counts.flat.to_string(),
            counts.circle.to_string(),
            counts.silent.to_string(),
            ratio(counts.assertions, counts.source, 1000, 1),
            counts.bare.to_string(),
            counts.threes.to_string(),
        ],
    );
}

/// `count / of × scale` with so many decimals.
fn ratio(count: usize, of: usize, scale: u32, decimals: usize) -> String {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    if of == 0 {
        return "–".to_owned();
    }
    format!(
        "{:.decimals$}",
        number(count) * f64::from(scale) / number(of)
    )
}

fn line(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn circles(crates: &[Crate], text: &mut String) {
    text.push_str("\n| Crate | Modules of its largest circle |\n|---|---|\n");
    for member in crates {
        if let Some(circle) = modules::circles(member).first() {
            line(text, &[member.name.clone(), circle.join(", ")]);
        }
    }
}

fn types(crates: &[Crate], text: &mut String) {
    text.push_str(
        "\n| Type | File | Methods | Methods of traits | Functions over it | Fields | of these `Option` or `bool` | Variants |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for name in TYPES {
        for member in crates {
            for kind in crate::types::types(&Names::of(member)) {
                if kind.name() == name {
                    type_row(&kind, text);
                }
            }
        }
    }
}

/// Which methods are those of a type stands in `types`.
fn type_row(kind: &Type<'_>, text: &mut String) {
    let (mut own, mut of_traits, mut functions) = (0, 0, 0);
    for piece in &kind.pieces {
        let methods = match piece.kind {
            PieceKind::Block => &mut own,
            PieceKind::OfTrait | PieceKind::Trait => &mut of_traits,
            PieceKind::Function => &mut functions,
        };
        *methods += piece.methods.len();
    }
    let none = || "–".to_owned();
    let (fields, loose, variants) = match &kind.definition.shape {
        Shape::Struct(fields) => {
            let loose = fields
                .iter()
                .filter(|field| match field.kind.as_slice() {
                    [only] => only == "bool",
                    [first, ..] => first == "Option",
                    [] => false,
                })
                .count();
            (fields.len().to_string(), loose.to_string(), none())
        }
        Shape::Tuple => (none(), none(), none()),
        Shape::Enum(variants) => (none(), none(), variants.len().to_string()),
    };
    line(
        text,
        &[
            kind.name().to_owned(),
            kind.file.path.clone(),
            own.to_string(),
            of_traits.to_string(),
            functions.to_string(),
            fields,
            loose,
            variants,
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::Tree;

    #[test]
    fn a_checkout_is_counted() {
        let tree = Tree::new(&[
            ("crates/a/Cargo.toml", "[package]\n"),
            (
                "crates/a/src/lib.rs",
                "mod b;\nuse b::B;\npub struct Client {\n    c: Option<u8>,\n    d: bool,\n    e: u64,\n    f: [u8; 3],\n}\n",
            ),
            (
                "crates/a/src/b.rs",
                "use super::Client;\nimpl Client {\n    fn g() { let Some(h) = i else { return; }; assert!(h, \"it is\"); }\n}\nimpl Default for Client {\n    fn default() {}\n}\n\n#[cfg(test)]\nmod tests {\n}\n",
            ),
            ("crates/a/tests/c.rs", "fn a() {}\n"),
            ("crates/b/Cargo.toml", "[package]\n"),
            (
                "crates/b/src/c.rs",
                "struct Node;\nimpl Node {\n    fn d() {}\n}\n",
            ),
            (
                "crates/b/src/e.rs",
                "struct Node;\nimpl Node {\n    fn f() {}\n    fn g() {}\n}\n",
            ),
        ]);
        let text = tables(&tree.0).expect("a tree");
        for expect in [
            "| a | 16 | 4 | 0.25 | 1 | 2 | 1 | 62.5 | 1 | 1 |",
            "| a | b, lib |",
            "| Client | crates/a/src/lib.rs | 1 | 1 | 0 | 4 | 2 | – |",
            "| Node | crates/b/src/c.rs | 1 | 0 | 0 | – | – | – |",
            "| Node | crates/b/src/e.rs | 2 | 0 | 0 | – | – | – |",
        ] {
            assert!(text.lines().any(|line| line == expect), "{expect}\n{text}");
        }
    }
}
