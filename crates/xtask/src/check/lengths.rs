//! Pages that newcomers read to the end stay short; what is longer becomes a page of its own.

use std::fs;
use std::path::Path;

use super::finding::Finding;

/// Pages, and how many words each may have, those of tables and diagrams among them.
const PAGES: &[(&str, usize)] = &[("ARCHITECTURE.md", 2_500)];

/// A tree without such a page has none that is too long.
pub(super) fn findings(root: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    for (page, most) in PAGES {
        let text = fs::read_to_string(root.join(page)).unwrap_or_default();
        let words = text.split_whitespace().count();
        if words > *most {
            found.push(Finding {
                rule: "length".to_owned(),
                place: "docs".to_owned(),
                text: format!(
                    "{page} has {words} words, at most {most}: move some to a page of docs/internals"
                ),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::Tree;

    #[test]
    fn a_page_with_too_many_words_is_found() {
        let tree = Tree::new(&[("README.md", "")]);
        assert_eq!(findings(&tree.0), []);
        tree.write("ARCHITECTURE.md", &"word ".repeat(2_500));
        assert_eq!(findings(&tree.0), []);
        tree.write("ARCHITECTURE.md", &"word ".repeat(2_501));
        assert_eq!(findings(&tree.0).len(), 1);
    }
}
