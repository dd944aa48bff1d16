//! The lists of docs/internals/adding.md are true: each item begins with a file and a text, as in
//! `` 1. `crates/a/src/b.rs`, `pub struct B`: … ``, the file is there and has the text.
//!
//! Deliberately absent: whether a list is complete.

use std::fs;
use std::path::Path;

use super::finding::Finding;

const PAGE: &str = "docs/internals/adding.md";

/// A tree without the page has no lists.
pub(super) fn findings(root: &Path) -> Vec<Finding> {
    let text = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(wrong) = item(line).and_then(|item| mistake(root, item)) {
            found.push(Finding {
                rule: "adding".to_owned(),
                place: "docs".to_owned(),
                text: format!("{PAGE}:{}: {wrong}", index + 1),
            });
        }
    }
    found
}

/// What stands behind the number of an item.
fn item(line: &str) -> Option<&str> {
    let (number, item) = line.split_once(". ")?;
    number.parse::<u32>().is_ok().then_some(item)
}

fn mistake(root: &Path, item: &str) -> Option<String> {
    let parts: Vec<&str> = item.splitn(5, '`').collect();
    let ["", path, ", ", anchor, _] = parts.as_slice() else {
        return Some("an item begins with `file`, `text`".to_owned());
    };
    match fs::read_to_string(root.join(path)) {
        Err(error) => Some(format!("{path}: {error}")),
        Ok(text) if !text.contains(anchor) => Some(format!("{path} has no `{anchor}`")),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::Tree;

    #[test]
    fn files_and_texts_of_lists_have_to_be_there() {
        let tree = Tree::new(&[("a.rs", "struct A;\n")]);
        assert_eq!(findings(&tree.0), []);
        for (item, count) in [
            ("`a.rs`, `struct A`: a type", 0),
            ("`a.rs`, `struct B`: a type", 1),
            ("`b.rs`, `struct A`: a type", 1),
            ("a type in `a.rs`", 1),
        ] {
            tree.write(PAGE, &format!("# A\n\n1. {item}\n"));
            assert_eq!(findings(&tree.0).len(), count, "{item}");
        }
    }
}
