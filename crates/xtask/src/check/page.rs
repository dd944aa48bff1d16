//! The page that shows what the rules about types, circles and parts see, for people: docs/internals/counts.md.
//!
//! It has only what the ratchet and the list of edges are about, so that a commit which changes neither hardly ever changes the
//! page. `counts --page` and `check --update` write it; `check` says when it is out of date. A tree without the page
//! has none to keep.
//!
//! Deliberately absent: lines, tests, and types below their limits, which many commits change; `counts` prints those.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::finding::Finding;
use super::{circles, parts, sizes};
use crate::modules;
use crate::names::Names;
use crate::source::{Crate, Shape};
use crate::types::{self, PieceKind, Type};

/// Where the page is.
pub(super) const PAGE: &str = "docs/internals/counts.md";

const HEAD: &str = "\
# What the rules see

Written by `cargo run -p xtask -- counts --page`. [rules](rules.md) says what counts as a method and as an edge;
[decision 29](../decisions/0029-rules-that-see.md), which of these numbers fall with which step.
";

pub(super) fn findings(root: &Path, crates: &[Crate]) -> Vec<Finding> {
    let is_old = fs::read_to_string(root.join(PAGE)).is_ok_and(|text| text != page(crates));
    let finding = || Finding {
        rule: "page".to_owned(),
        place: "docs".to_owned(),
        text: format!("{PAGE} is out of date: cargo run -p xtask -- counts --page"),
    };
    is_old.then(finding).into_iter().collect()
}

/// The page of a checkout.
pub(super) fn page(crates: &[Crate]) -> String {
    let mut text = HEAD.to_owned();
    types_over(crates, &mut text);
    circles_over(crates, &mut text);
    edges(crates, &mut text);
    text
}

fn types_over(crates: &[Crate], text: &mut String) {
    text.push_str(
        "\n## Types over a limit\n\n*Files*: those with methods of the type. *Functions*: those whose first parameter is a reference to \
         it.\n\n| Crate | Type | Methods | of these its own | of traits | functions | Files | Fields | Variants |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for member in crates {
        for kind in types::types(&Names::of(member)) {
            if sizes::is_over(member, &kind) {
                let _ = writeln!(text, "| {} | {} |", member.name, row(&kind).join(" | "));
            }
        }
    }
}

fn row(kind: &Type<'_>) -> Vec<String> {
    let count = |wanted: &dyn Fn(PieceKind) -> bool| -> usize {
        let pieces = kind.pieces.iter().filter(|piece| wanted(piece.kind));
        pieces.map(|piece| piece.methods.len()).sum()
    };
    let with_methods = kind.pieces.iter().filter(|piece| !piece.methods.is_empty());
    let files: BTreeSet<&str> = with_methods.map(|piece| piece.file.path.as_str()).collect();
    let none = || "–".to_owned();
    let (fields, variants) = match &kind.definition.shape {
        Shape::Struct(fields) => (fields.len().to_string(), none()),
        Shape::Tuple => (none(), none()),
        Shape::Enum(variants) => (none(), variants.len().to_string()),
    };
    vec![
        sizes::name(kind),
        count(&|_| true).to_string(),
        count(&|of| of == PieceKind::Block).to_string(),
        count(&|of| matches!(of, PieceKind::OfTrait | PieceKind::Trait)).to_string(),
        count(&|of| of == PieceKind::Function).to_string(),
        files.len().to_string(),
        fields,
        variants,
    ]
}

fn circles_over(crates: &[Crate], text: &mut String) {
    let _ = write!(
        text,
        "\n## Circles of more than {} files\n\n| Crate | By | Files | Modules |\n|---|---|---|---|\n",
        circles::LIMIT
    );
    for member in crates {
        let by_imports = modules::circles(member);
        let by_calls = modules::call_circles(member);
        let both = by_imports
            .iter()
            .map(|circle| ("imports", circle))
            .chain(by_calls.iter().map(|circle| ("imports and calls", circle)));
        for (by, circle) in both.filter(|(_, circle)| circle.len() > circles::LIMIT) {
            let (name, files, modules) = (&member.name, circle.len(), circle.join(", "));
            let _ = writeln!(text, "| {name} | {by} | {files} | {modules} |");
        }
    }
}

fn edges(crates: &[Crate], text: &mut String) {
    for (member, edges) in parts::of(crates) {
        let mut calls: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut called: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (from, to) in &edges {
            calls.entry(from).or_default().push(to);
            called.entry(to).or_default().push(from);
        }
        let _ = write!(
            text,
            "\n## Parts of {} that call each other: {} edges\n\n| Part | Calls | Is called by |\n|---|---|---|\n",
            member.name,
            edges.len()
        );
        let parts: BTreeSet<&str> = calls.keys().chain(called.keys()).copied().collect();
        for part in parts {
            let list = |of: &BTreeMap<&str, Vec<&str>>| {
                of.get(part)
                    .map_or_else(|| "–".to_owned(), |parts| parts.join(", "))
            };
            let _ = writeln!(text, "| {part} | {} | {} |", list(&calls), list(&called));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::{Tree, member};

    #[test]
    fn a_page_that_is_there_is_kept_up_to_date() {
        let variants: String = (0..25).map(|number| format!("C{number},")).collect();
        let large = format!("pub enum B {{ {variants} }}\nimpl B {{ fn d() {{}} }}");
        let other = "fn e(b: &crate::B) {}\nimpl X for crate::B { fn f() {} fn g() {} }";
        let members = [member(&[("lib.rs", &large), ("h.rs", other)])];
        let text = page(&members);
        let row = "| a | B | 4 | 1 | 2 | 1 | 2 | – | 25 |";
        assert!(text.lines().any(|line| line == row), "{text}");

        let tree = Tree::new(&[("README.md", "")]);
        assert_eq!(findings(&tree.0, &members), []);
        tree.write(PAGE, &text);
        assert_eq!(findings(&tree.0, &members), []);
        tree.write(PAGE, &text.replace("| 25 |", "| 24 |"));
        assert_eq!(findings(&tree.0, &members).len(), 1);
    }
}
