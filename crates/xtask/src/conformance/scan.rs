//! Finds the tags of statements in the source and the tests of the workspace.
//!
//! A tag is an id in brackets, `[MQTT-3.3.1-4]`, or in quotes, where code names the statement it enforces
//! (`statement()` of an error) or a test asserts that name. Anything in brackets that begins like an id is a
//! tag, so that a misspelt one is reported instead of overlooked; quoted text has to be a whole id.
//!
//! Deliberately absent: parsing. The function around a tag is found line by line, which relies on rustfmt: a line
//! that is less indented encloses it. Not scanned: this crate, whose text is about
//! tags, benches and fuzz targets, which prove nothing.

use std::fs;
use std::io;
use std::path::Path;

use super::statements::{Standard, is_id};
use crate::source::SourceFile;

/// Whether a tag stands in code that implements or in a test that proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Code,
    Test,
}

/// One tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Citation {
    /// What stands between the brackets, a known id or not.
    pub(crate) id: String,
    pub(crate) kind: Kind,
    /// Relative to the workspace root, with `/`.
    pub(crate) file: String,
    /// The test function around or right below the tag, where the language makes that easy to tell.
    pub(crate) function: Option<String>,
}

/// All tags of the workspace, in the order of the file names.
pub(crate) fn workspace(root: &Path) -> io::Result<Vec<Citation>> {
    let mut found = Vec::new();
    for folder in ["crates", "tests"] {
        if root.join(folder).is_dir() {
            walk(root, folder, &mut found)?;
        }
    }
    Ok(found)
}

fn walk(root: &Path, folder: &str, found: &mut Vec<Citation>) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        // A name that is not UTF-8 is no source file of ours.
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    for name in names {
        let path = format!("{folder}/{name}");
        let kind = fs::symlink_metadata(root.join(&path))?.file_type();
        if kind.is_dir() && !is_foreign(&name) {
            walk(root, &path, found)?;
        } else if kind.is_file()
            && let Some(kind) = kind_of(&path)
        {
            let text = fs::read_to_string(root.join(&path))?;
            found.extend(citations(&path, kind, &text));
        }
    }
    Ok(())
}

/// Folders that hold other people's code, build products, or nothing that counts.
fn is_foreign(folder: &str) -> bool {
    folder.starts_with('.')
        || matches!(
            folder,
            "node_modules" | "target" | "__pycache__" | "xtask" | "benches" | "fuzz"
        )
}

/// What a file is by its path: source, test, or of no interest.
fn kind_of(path: &str) -> Option<Kind> {
    let (stem, extension) = path.rsplit_once('.')?;
    let parts: Vec<&str> = stem.split('/').collect();
    match (parts.as_slice(), extension) {
        (["tests", ..], "py" | "js" | "mjs" | "go" | "java") => Some(Kind::Test),
        (["crates", _, "tests", ..], "rs") => Some(Kind::Test),
        (["crates", _, "src", rest @ ..], "rs") if rest.contains(&"tests") => Some(Kind::Test),
        (["crates", _, "src", ..], "rs") => Some(Kind::Code),
        _ => None,
    }
}

fn citations(path: &str, kind: Kind, text: &str) -> Vec<Citation> {
    let lines: Vec<&str> = text.lines().collect();
    let in_test = if kind == Kind::Code {
        SourceFile::new(path, text.to_owned()).test_lines()
    } else {
        vec![true; lines.len()]
    };
    let mut found = Vec::new();
    for (index, (line, in_test)) in lines.iter().zip(in_test).enumerate() {
        for id in tags(line) {
            let (kind, function) = if in_test {
                (Kind::Test, function_at(&lines, index))
            } else {
                (Kind::Code, None)
            };
            found.push(Citation {
                id: id.to_owned(),
                kind,
                file: path.to_owned(),
                function: function.map(str::to_owned),
            });
        }
    }
    found
}

/// The tags of one line.
fn tags(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find(['[', '"', '\'']) {
        let (opening, after) = rest.split_at(at + 1);
        rest = after;
        if !Standard::ALL
            .into_iter()
            .any(|standard| after.starts_with(standard.prefix()))
        {
            continue;
        }
        if opening.ends_with('[') {
            found.push(after.split(']').next().unwrap_or(after));
        } else if let Some((quoted, _)) = after.split_once(['"', '\''])
            && is_id(quoted)
        {
            found.push(quoted);
        }
    }
    found
}

/// The function that the line of this index belongs to: the one declared below it, if the line is a comment or part
/// of an attribute on top of a function, else the one it stands in.
fn function_at<'a>(lines: &[&'a str], index: usize) -> Option<&'a str> {
    let (above, from) = lines.split_at_checked(index)?;
    let line = from.first()?;
    if is_comment_or_attribute(line.trim()) {
        let below = from
            .iter()
            .find(|line| !is_comment_or_attribute(line.trim()));
        if let Some(name) = below.and_then(|line| declared_function(line)) {
            return Some(name);
        }
    }
    // Outwards: each line less indented than the last such one opens what encloses the tag. The end of a signature
    // that takes several lines opens nothing, its beginning does.
    let mut depth = indentation(line);
    for line in above.iter().rev() {
        let trimmed = line.trim();
        let opens = !trimmed.is_empty() && indentation(line) < depth;
        if !opens || trimmed.starts_with([')', '{']) || trimmed == "where" {
            continue;
        }
        depth = indentation(line);
        if let Some(name) = declared_function(line) {
            return Some(name);
        }
        if trimmed.starts_with(['@', '#']) {
            return from
                .iter()
                .filter(|line| indentation(line) == depth)
                .find_map(|line| declared_function(line));
        }
    }
    None
}

/// The name of the function that a line of Rust, Python, Go or JavaScript declares.
fn declared_function(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let keyword = words.by_ref().find(|word| {
        !matches!(
            *word,
            "pub" | "pub(crate)" | "pub(super)" | "async" | "const" | "unsafe"
        )
    })?;
    if !matches!(keyword, "fn" | "def" | "func" | "function") {
        return None;
    }
    let name = words.next()?.split(['(', '<', ':']).next()?;
    (!name.is_empty()).then_some(name)
}

fn is_comment_or_attribute(trimmed: &str) -> bool {
    ["//", "#", "@", "/*", "*"]
        .iter()
        .any(|mark| trimmed.starts_with(mark))
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The citations of a text as `kind id function`, one per line.
    fn check(path: &str, text: &str, expect: &[&str]) {
        let kind = kind_of(path).expect("a path that is scanned");
        let found: Vec<String> = citations(path, kind, text)
            .into_iter()
            .map(|found| {
                format!(
                    "{:?} {} {}",
                    found.kind,
                    found.id,
                    found.function.as_deref().unwrap_or("-")
                )
            })
            .collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_line_may_list_several_tags() {
        assert_eq!(
            tags("// [MQTT-3.3.1-4][MQTT3-3.3.1-4], [MQTT31-2]: no"),
            ["MQTT-3.3.1-4", "MQTT3-3.3.1-4", "MQTT31-2"]
        );
        assert_eq!(tags("let a = b[0]; // [RFC3629] [MQTT]"), [] as [&str; 0]);
    }

    #[test]
    fn misspelt_tags_are_kept_to_be_reported() {
        assert_eq!(
            tags("[MQTT-3-8.3-4] [MQTT-3.1.2-4, MQTT-3.1.2-5]"),
            ["MQTT-3-8.3-4", "MQTT-3.1.2-4, MQTT-3.1.2-5"]
        );
        assert_eq!(tags("// [MQTT-3.1.2-4"), ["MQTT-3.1.2-4"]);
    }

    #[test]
    fn quoted_ids_count_and_other_quoted_text_does_not() {
        assert_eq!(
            tags(r#"Self::Both => "MQTT-3.3.1-4", 'MQTT31-2'"#),
            ["MQTT-3.3.1-4", "MQTT31-2"]
        );
        assert_eq!(tags(r#"connect("MQTT-client")"#), [] as [&str; 0]);
    }

    #[test]
    fn paths_say_what_counts() {
        for (path, kind) in [
            ("crates/a/src/b.rs", Some(Kind::Code)),
            ("crates/a/src/b/tests.rs", Some(Kind::Test)),
            ("crates/a/src/tests/b.rs", Some(Kind::Test)),
            ("crates/a/tests/b.rs", Some(Kind::Test)),
            ("tests/blackbox/test_a.py", Some(Kind::Test)),
            ("tests/go/a_test.go", Some(Kind::Test)),
            ("crates/a/benches/b.rs", None),
            ("crates/a/README.md", None),
            ("tests/blackbox/package.json", None),
        ] {
            assert_eq!(kind_of(path), kind, "{path}");
        }
        for folder in [".venv", "node_modules", "fuzz", "benches", "xtask"] {
            assert!(is_foreign(folder), "{folder}");
        }
    }

    #[test]
    fn a_test_module_ends_where_it_ends() {
        let text = "\
// [MQTT-1.0.0-1]
fn code() {}

#[cfg(test)]
mod tests {
    #[test]
    fn a() {
        // [MQTT-1.0.0-2]
    }
}

fn more() {
    // [MQTT-1.0.0-3]
}
";
        check(
            "crates/a/src/b.rs",
            text,
            &[
                "Code MQTT-1.0.0-1 -",
                "Test MQTT-1.0.0-2 a",
                "Code MQTT-1.0.0-3 -",
            ],
        );
    }

    #[test]
    fn a_test_module_elsewhere_does_not_make_its_parent_a_test() {
        let text = "\
#[cfg(test)]
mod tests;

#[cfg(test)]
#[expect(unused, reason = \"x\")]
use a::b;

// [MQTT-1.0.0-1]
fn code() {}
";
        check("crates/a/src/b.rs", text, &["Code MQTT-1.0.0-1 -"]);
    }

    #[test]
    fn items_other_than_modules_may_be_for_tests_only() {
        let text = "\
enum Peer {
    #[cfg(test)]
    Scripted,
    Socket, // [MQTT-1.0.0-1]
}

#[cfg(test)]
const CASES: &[&str] = &[
    \"[MQTT-1.0.0-2]\",
];

#[cfg(test)]
fn check(
    input: &str,
) -> bool {
    input == \"[MQTT-1.0.0-3]\"
}

// [MQTT-1.0.0-4]
fn code() {}
";
        check(
            "crates/a/src/b.rs",
            text,
            &[
                "Code MQTT-1.0.0-1 -",
                "Test MQTT-1.0.0-2 -",
                "Test MQTT-1.0.0-3 check",
                "Code MQTT-1.0.0-4 -",
            ],
        );
    }

    #[test]
    fn a_file_for_tests_only_is_one() {
        check(
            "crates/a/src/b.rs",
            "//! Vectors.\n#![cfg(test)]\n// [MQTT-1.0.0-1]\n",
            &["Test MQTT-1.0.0-1 -"],
        );
    }

    #[test]
    fn a_tag_belongs_to_the_function_below_or_around_it() {
        let text = "\
//! Tags for the file: [MQTT-1.0.0-1]

/// [MQTT-1.0.0-2]
#[test]
fn below() {
    if true {
        assert!(false, \"[MQTT-1.0.0-3]\");
    }
    // [MQTT-1.0.0-4] up
    up();
}
";
        check(
            "crates/a/tests/b.rs",
            text,
            &[
                "Test MQTT-1.0.0-1 -",
                "Test MQTT-1.0.0-2 below",
                "Test MQTT-1.0.0-3 below",
                "Test MQTT-1.0.0-4 below",
            ],
        );
    }

    #[test]
    fn python_and_go_name_their_functions_too() {
        let python = "\
class TestWill:
    # [MQTT-1.0.0-1]
    @pytest.mark.slow
    async def test_a(self):
        \"\"\"Says so [MQTT-1.0.0-2].\"\"\"
";
        check(
            "tests/blackbox/test_a.py",
            python,
            &["Test MQTT-1.0.0-1 test_a", "Test MQTT-1.0.0-2 test_a"],
        );
        let go =
            "// TestB shows [MQTT-1.0.0-1].\nfunc TestB(t *testing.T) {\n\t// [MQTT-1.0.0-2]\n}\n";
        check(
            "tests/go/b_test.go",
            go,
            &["Test MQTT-1.0.0-1 TestB", "Test MQTT-1.0.0-2 TestB"],
        );
    }
}
