//! Patterns of code that are counted: silent returns, plurals behind numbers, assertions, bare integers, arrays of three. Tests are left out.

use crate::source::{self, Kind, Shape, SourceFile};

/// What a silent return leaves with.
const SILENT: [&[&str]; 8] = [
    &[],
    &["None"],
    &["false"],
    &["(", ")"],
    &["Ok", "(", "(", ")", ")"],
    &["Ok", "(", "None", ")"],
    &["Ok", "(", "false", ")"],
    &["Vec", "::", "new", "(", ")"],
];

/// Lines of an `else` whose whole block is `return` (with nothing, or with a value that says nothing: [`SILENT`]),
/// `continue` or `break`. Whether a comment stands in the block makes no difference.
pub(crate) fn silent_returns(file: &SourceFile) -> Vec<usize> {
    let is_silent = |index: usize| {
        if !file.begins(index, &["else", "{"]) {
            return false;
        }
        let end = file.behind_bracket(index + 1) - 1;
        let end = end - usize::from(file.at(end - 1) == ";");
        let from = index + 3;
        match file.at(index + 2) {
            "continue" | "break" => {
                end == from || (end == from + 1 && file.kind(from) == Some(Kind::Lifetime))
            }
            "return" => SILENT
                .iter()
                .any(|value| end == from + value.len() && file.begins(from, value)),
            _ => false,
        }
    };
    lines(file, is_silent)
}

/// Lines of `assert!`, `debug_assert!` and their kin, `unreachable!`, and `expect` with a sentence: a text of several
/// words.
pub(crate) fn assertions(file: &SourceFile) -> Vec<usize> {
    let is_assertion = |index: usize| match file.at(index) {
        "assert" | "assert_eq" | "assert_ne" | "debug_assert" | "debug_assert_eq"
        | "debug_assert_ne" | "unreachable" => file.at(index + 1) == "!",
        "expect" => {
            index > 0
                && file.at(index - 1) == "."
                && file.at(index + 1) == "("
                && file.kind(index + 2) == Some(Kind::Text)
                && file.at(index + 2).contains(' ')
        }
        _ => false,
    };
    lines(file, is_assertion)
}

/// Things that are counted, as they are called if there are several.
const COUNTED: [&str; 35] = [
    "alarms",
    "attempts",
    "bans",
    "clients",
    "connections",
    "disconnects",
    "entries",
    "events",
    "files",
    "filters",
    "groups",
    "inboxes",
    "items",
    "keys",
    "lines",
    "listeners",
    "logins",
    "members",
    "messages",
    "nodes",
    "others",
    "publishers",
    "queues",
    "replicas",
    "requests",
    "rows",
    "rules",
    "sessions",
    "shards",
    "subscribers",
    "subscriptions",
    "topics",
    "users",
    "voters",
    "workers",
];

/// Whether a text has a placeholder and, directly behind it, a noun of [`COUNTED`]: "{count} nodes" would be "1 nodes".
pub(crate) fn has_plural(text: &str) -> bool {
    let is_placeholder = |before: &str| {
        let inner = before.rsplit_once('{').map(|(_, inner)| inner);
        inner.is_some_and(|inner| !inner.contains(['"', '}', ' ']))
    };
    let mut parts = text.split("} ");
    let mut before = parts.next().unwrap_or_default();
    parts.any(|behind| {
        let word = behind.split(|c: char| !c.is_ascii_alphanumeric()).next();
        let found = word.is_some_and(|word| COUNTED.contains(&word)) && is_placeholder(before);
        before = behind;
        found
    })
}

/// Lines of fields of structs whose type is `u64`, `u32` or `u16` and nothing else. Fields without names are what a type
/// of its own is made of, and do not count; neither do options of a command line, of which name, help and limits say what they are.
pub(crate) fn bare_integers(file: &SourceFile) -> Vec<usize> {
    source::definitions(file)
        .into_iter()
        .filter_map(|(_, definition)| match definition.shape {
            Shape::Struct(fields) => Some(fields),
            Shape::Tuple | Shape::Enum(_) => None,
        })
        .flatten()
        .filter(|field| {
            matches!(field.kind.as_slice(), [kind] if matches!(kind.as_str(), "u64" | "u32" | "u16"))
        })
        .map(|field| field.line)
        .filter(|line| !is_option(file, *line) && !is_described(file))
        .collect()
}

/// Whether a file has types of the HTTP API, or those that nodes answer it with, which have the same fields: their document says of each
/// field what it counts, and its name the unit.
fn is_described(file: &SourceFile) -> bool {
    file.text.contains("ToSchema") || file.path.starts_with("crates/inspection/")
}

/// Whether an attribute of clap ends on the line above.
fn is_option(file: &SourceFile, line: usize) -> bool {
    let above = line
        .checked_sub(2)
        .and_then(|above| file.text.lines().nth(above));
    let above = above.unwrap_or_default().trim();
    above.starts_with("#[arg(") || above == ")]"
}

/// Lines of `[…; 3]`.
pub(crate) fn arrays_of_three(file: &SourceFile) -> Vec<usize> {
    lines(file, |index| file.begins(index, &[";", "3", "]"]))
}

pub(crate) fn lines(file: &SourceFile, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
    file.code()
        .filter(|index| wanted(*index))
        .map(|index| file.line(index))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> SourceFile {
        SourceFile::new("crates/a/src/b.rs", text.to_owned())
    }

    #[test]
    fn an_else_that_only_leaves_is_silent() {
        for text in [
            "else { return }",
            "else { return; }",
            "else { return None; }",
            "else {\n    // Gone.\n    return Ok(());\n}",
            "else { continue; }",
            "else { break 'a; }",
        ] {
            assert_eq!(silent_returns(&file(text)), [1], "{text}");
        }
        for text in [
            "else { return Err(a); }",
            "else { return b(); }",
            "else { drops.count(); return; }",
            "else { None }",
            "#[cfg(test)]\nfn a() { let Some(b) = c else { return; }; }",
        ] {
            assert_eq!(silent_returns(&file(text)), [] as [usize; 0], "{text}");
        }
    }

    #[test]
    fn assertions_say_what_holds() {
        let text = "assert!(a);\ndebug_assert_eq!(b, c);\nunreachable!();\nd.expect(\"it is there\");\ne.expect(\"it\");\nexpect(\"a b\");\n";
        assert_eq!(assertions(&file(text)), [1, 2, 3, 4]);
    }

    #[test]
    fn only_named_fields_are_bare() {
        let text = "struct A {\n    b: u64,\n    c: Option<u64>,\n    d: u32,\n    e: usize,\n}\nstruct F(u64);\nenum G { H { i: u16 } }\n";
        assert_eq!(bare_integers(&file(text)), [2, 4]);
    }

    #[test]
    fn options_of_a_command_line_are_not_bare() {
        let text = "struct A {\n    #[arg(long)]\n    b: u64,\n    #[arg(\n        long\n    )]\n    c: u16,\n    d: u16,\n}\n";
        assert_eq!(bare_integers(&file(text)), [8]);
    }

    #[test]
    fn arrays_of_three_are_types_and_values() {
        assert_eq!(
            arrays_of_three(&file("let a: [u8; 3] = [0;\n3];\n[1, 2, 3]; [0; 4]")),
            [1, 1]
        );
    }
}
