//! Habits that are to get fewer: silent returns, fields of bare integers, and plurals behind numbers. What these are stands in `patterns`.

use super::finding::Finding;
use crate::patterns;
use crate::source::{Crate, Kind, SourceFile};

/// How many tokens before a text an arm for 1 may stand.
const ARM: usize = 24;

type Lines = fn(&SourceFile) -> Vec<usize>;

/// Name of the rule, where it finds something, and what is wrong there.
const HABITS: &[(&str, Lines, &str)] = &[
    (
        "silent-return",
        patterns::silent_returns,
        "leaves and says nothing: count it, log it, or return an error",
    ),
    (
        "bare-integer",
        patterns::bare_integers,
        "a field of a bare integer: a type of its own says what it counts",
    ),
    (
        "plural",
        |file| {
            // An arm for 1 stands shortly before an arm for the rest.
            let has_arm = |index: usize| {
                let mut before = index.saturating_sub(ARM)..index;
                before.any(|at| matches!(file.at(at), "1" | "1.0") && file.at(at + 1) == "=>")
            };
            patterns::lines(file, |index| {
                let is_text = file.kind(index) == Some(Kind::Text);
                is_text && patterns::has_plural(file.at(index)) && !has_arm(index)
            })
        },
        "a number with a plural behind it, which is wrong for 1: `text_table::units::counted` has both",
    ),
];

pub(super) fn findings(crates: &[Crate]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (rule, lines, wrong) in HABITS {
        for member in crates {
            for file in &member.source {
                found.extend(lines(file).into_iter().map(|line| Finding {
                    rule: (*rule).to_owned(),
                    place: member.name.clone(),
                    text: format!("{}:{line}: {wrong}", file.path),
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

    #[test]
    fn each_habit_is_found_where_it_stands() {
        let text = "struct A {\n    b: u32,\n}\nfn c() {\n    let Some(d) = e else { return };\n    f!(\"{c} has {d} nodes, {e}: nodes, {{g}} of nodes\");\n    f!(\"{} nodes-\", \"nodes\");\n    f!(\"{name}s nodes\");\n    match 1 { 1 => a, _ => f!(\"{b} nodes\") }\n}\n";
        let found: Vec<String> = findings(&[member(&[("lib.rs", text)])])
            .iter()
            .map(|finding| {
                format!(
                    "{} {}",
                    finding.rule,
                    finding.text.split(' ').next().unwrap_or_default()
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                "silent-return crates/a/src/lib.rs:5:",
                "bare-integer crates/a/src/lib.rs:2:",
                "plural crates/a/src/lib.rs:6:",
                "plural crates/a/src/lib.rs:7:"
            ]
        );
    }
}
