//! No circle of imports over four files: more files than that are read and changed as one. What a circle is stands in
//! `modules`.

use super::finding::Finding;
use crate::modules;
use crate::source::Crate;

/// The crates that keep the rule.
const CRATES: &[&str] = &["broker", "broker-core", "cluster", "store"];

/// So many files may be in a circle.
const LIMIT: usize = 4;

/// A finding for each file of a circle that is too large.
pub(super) fn findings(crates: &[Crate]) -> Vec<Finding> {
    let mut found = Vec::new();
    for member in crates {
        if !CRATES.contains(&member.name.as_str()) {
            continue;
        }
        for circle in modules::circles(member) {
            if circle.len() > LIMIT {
                found.extend(circle.iter().map(|module| Finding {
                    rule: "circle".to_owned(),
                    place: member.name.clone(),
                    text: format!(
                        "{}: {module} is in a circle of {} files",
                        member.folder,
                        circle.len()
                    ),
                }));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::member;

    fn circle_of(names: &[&str]) -> usize {
        let declared: String = names.iter().map(|name| format!("mod {name};\n")).collect();
        let next = names.iter().cycle().skip(1);
        let texts: Vec<(String, String)> = names
            .iter()
            .zip(next)
            .map(|(name, next)| (format!("{name}.rs"), format!("struct X(crate::{next}::X);")))
            .collect();
        let mut files = vec![("lib.rs", declared.as_str())];
        files.extend(
            texts
                .iter()
                .map(|(path, text)| (path.as_str(), text.as_str())),
        );
        let mut member = member(&files);
        member.name = "store".to_owned();
        findings(&[member]).len()
    }

    #[test]
    fn five_files_are_too_many_and_four_are_not() {
        assert_eq!(circle_of(&["b", "c", "d", "e"]), 0);
        assert_eq!(circle_of(&["b", "c", "d", "e", "f"]), 5);
    }
}
