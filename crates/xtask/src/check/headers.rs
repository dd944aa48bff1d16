//! `lib.rs` or `main.rs` of each crate begins with what the crate is for, and says what is deliberately absent.

use super::finding::Finding;
use crate::source::Crate;

/// The words that a header has, in small letters, and what is wrong without them.
const ABSENT: &str = "deliberately absent";

pub(super) fn findings(crates: &[Crate]) -> Vec<Finding> {
    crates
        .iter()
        .filter_map(|member| {
            let path = format!("{}/src", member.folder);
            let (path, wrong) = match member.root() {
                None => (path, Some("neither lib.rs nor main.rs")),
                Some(root) => (root.path.clone(), wrong_with(&root.text)),
            };
            wrong.map(|wrong| Finding {
                rule: "header".to_owned(),
                place: member.name.clone(),
                text: format!("{path}: {wrong}"),
            })
        })
        .collect()
}

fn wrong_with(text: &str) -> Option<&'static str> {
    let header: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .collect();
    if header.first().is_none_or(|purpose| purpose.is_empty()) {
        return Some("the file does not begin with `//!` and the purpose of the crate");
    }
    // The words may stand at the end of a line and the beginning of the next.
    let said = header.join(" ").to_lowercase().contains(ABSENT);
    (!said).then_some("the header does not say what is `Deliberately absent`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purpose_and_absence_are_both_needed() {
        assert_eq!(
            wrong_with("//! Events.\n//!\n//! Deliberately\n//! absent: b.\n\nmod c;\n"),
            None
        );
        for text in ["", "mod a;\n", "//!\n//! Deliberately absent: b.\n"] {
            assert!(
                wrong_with(text).is_some_and(|wrong| wrong.contains("purpose")),
                "{text}"
            );
        }
        for text in [
            "//! Events.\n",
            "//! Events.\n\n// Deliberately absent: b.\n",
        ] {
            assert!(
                wrong_with(text).is_some_and(|wrong| wrong.contains("absent")),
                "{text}"
            );
        }
    }
}
