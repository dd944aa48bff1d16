//! Each crate has a `README.md` with a title and a paragraph: whoever opens the folder reads there what it is for.
//!
//! A paragraph is a line of text outside a fence: no heading, list, table or quotation.
//!
//! Deliberately absent: whether what it says is true. That is for whoever changes the crate.

use std::fs;
use std::path::Path;

use super::finding::Finding;
use crate::source::Crate;

/// What a line begins with that is no part of a paragraph.
const NO_PARAGRAPH: &[&str] = &["#", "-", "*", "|", ">", "<", "!["];

pub(super) fn findings(root: &Path, crates: &[Crate]) -> Vec<Finding> {
    crates
        .iter()
        .filter_map(|member| {
            let path = format!("{}/README.md", member.folder);
            let wrong = match fs::read_to_string(root.join(&path)) {
                Err(_) => Some("there is none"),
                Ok(text) => wrong_with(&text),
            };
            wrong.map(|wrong| Finding {
                rule: "readme".to_owned(),
                place: member.name.clone(),
                text: format!("{path}: {wrong}"),
            })
        })
        .collect()
}

fn wrong_with(text: &str) -> Option<&'static str> {
    let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
    if title.is_none_or(|title| title.trim().is_empty()) {
        return Some("the first line is no title: `# ` and the name of the crate");
    }
    let mut in_fence = false;
    let has_paragraph = text.lines().skip(1).any(|line| {
        if line.starts_with("```") {
            in_fence = !in_fence;
            return false;
        }
        // What is indented goes on with a list.
        let begins = line.starts_with(|letter: char| !letter.is_whitespace());
        begins && !in_fence && !NO_PARAGRAPH.iter().any(|mark| line.starts_with(mark))
    });
    (!has_paragraph).then_some("there is no paragraph that says what the crate is for")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::{Tree, member};

    #[test]
    fn title_and_paragraph_are_both_needed() {
        assert_eq!(wrong_with("# herald-a\n\nWhat it is for.\n\n- b\n"), None);
        assert_eq!(wrong_with("# a\n```sh\nb\n```\nWhat it is for.\n"), None);
        for text in ["", "\n# a\n\nb\n", "a\n\nb\n", "# \n\nb\n", "## a\n\nb\n"] {
            assert!(
                wrong_with(text).is_some_and(|wrong| wrong.contains("title")),
                "{text}"
            );
        }
        for text in [
            "# a\n",
            "# a\n\n## b\n",
            "# a\n\n- b\n  c\n",
            "# a\n\n```sh\nb\n```\n",
            "# a\n\n| b |\n",
        ] {
            assert!(
                wrong_with(text).is_some_and(|wrong| wrong.contains("paragraph")),
                "{text}"
            );
        }
    }

    #[test]
    fn the_file_is_in_the_folder_of_the_crate() {
        let mut member = member(&[]);
        member.name = "s".to_owned();
        member.folder = "s".to_owned();
        let members = [member];
        let tree = Tree::new(&[("crates/s/README.md", "# s\n\nIt is.\n")]);
        let texts: Vec<String> = findings(&tree.0, &members)
            .into_iter()
            .map(|finding| format!("{} {} {}", finding.rule, finding.place, finding.text))
            .collect();
        assert_eq!(texts, ["readme s s/README.md: there is none"]);
        tree.write("s/README.md", "# s\n\nIt is.\n");
        assert_eq!(findings(&tree.0, &members), []);
    }
}
