//! No circle over four files, of imports (`circle`) and of imports and method calls together (`call-circle`): more files
//! than that are read and changed as one. What a circle is stands in `modules`, which calls count in `modules::calls`.

use super::finding::Finding;
use crate::modules;
use crate::source::Crate;

/// So many files may be in a circle.
pub(super) const LIMIT: usize = 4;

type Circles = fn(&Crate) -> Vec<Vec<String>>;

/// Name of the rule, and how its circles are found.
const RULES: &[(&str, Circles)] = &[
    ("circle", modules::circles),
    ("call-circle", modules::call_circles),
];

/// A finding for each file of a circle that is too large.
pub(super) fn findings(crates: &[Crate]) -> Vec<Finding> {
    let mut found = Vec::new();
    for member in crates {
        for (rule, circles) in RULES {
            let large = circles(member)
                .into_iter()
                .filter(|circle| circle.len() > LIMIT);
            for circle in large {
                found.extend(circle.iter().map(|module| Finding {
                    rule: (*rule).to_owned(),
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

    /// The findings of a crate of these files and `lib.rs`, as rules with their numbers.
    fn check(names: &[&str], text: fn(name: &str, next: &str) -> String, expect: &[(&str, usize)]) {
        let declared: String = names.iter().map(|name| format!("mod {name};\n")).collect();
        let lib = format!("{declared}struct A;");
        let next = names.iter().cycle().skip(1);
        let texts: Vec<(String, String)> = names
            .iter()
            .zip(next)
            .map(|(name, next)| (format!("{name}.rs"), text(name, next)))
            .collect();
        let mut files = vec![("lib.rs", lib.as_str())];
        files.extend(
            texts
                .iter()
                .map(|(path, text)| (path.as_str(), text.as_str())),
        );
        let found = findings(&[member(&files)]);
        let counted: Vec<(&str, usize)> = RULES
            .iter()
            .map(|(rule, _)| {
                let of_rule = found.iter().filter(|finding| finding.rule == *rule);
                (*rule, of_rule.count())
            })
            .collect();
        assert_eq!(counted, expect);
    }

    fn imports(_: &str, next: &str) -> String {
        format!("struct X(crate::{next}::X);")
    }

    fn calls(name: &str, next: &str) -> String {
        format!("impl super::A {{ fn {name}(&self) {{ self.{next}() }} }}")
    }

    #[test]
    fn five_files_are_too_many_and_four_are_not() {
        let four = ["b", "c", "d", "e"];
        let five = ["b", "c", "d", "e", "f"];
        check(&four, imports, &[("circle", 0), ("call-circle", 0)]);
        check(&five, imports, &[("circle", 5), ("call-circle", 5)]);
        check(&four, calls, &[("circle", 0), ("call-circle", 0)]);
        check(&five, calls, &[("circle", 0), ("call-circle", 5)]);
    }
}
