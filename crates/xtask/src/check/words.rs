//! Words that are not used: the private word for what has a standard term. The table is in GLOSSARY.md, so that whoever
//! writes reads the same as this rule; its third column says where a word is matched:
//!
//! - `all text`: identifiers, comments and literals in `crates/*/src` and `sim/src`, but for this crate's, tests included,
//!   and prose: `docs` and the pages at the root but GLOSSARY.md, which has to name the word, and CHANGELOG.md, which is
//!   about the past.
//! - `names`: names that the source declares, without tests: types, traits, functions, constants, modules, fields and
//!   variants. A name that only contains the word is one: `throne` is in `ThroneOf` and `next_throne`.
//! - `whole names`: declared names that are nothing but the word: `throne` and `Throne`, but not `next_throne`.
//! - `whole types`: the same of names that begin with a capital.
//!
//! The last three are for words that are also ordinary English or standard terms of another field: prose, tests and
//! other crates may use them. ` in ` and names of crates may follow: only these are looked through.
//!
//! Case makes no difference. Only the forms that stand in the table are matched, no others of the same word. A word of
//! several parts is found in one line, whether they are set apart by spaces, hyphens, `_` or capitals.

use std::fs;
use std::path::Path;

use super::finding::Finding;
use crate::source::{self, Crate, SourceFile};

/// Where the table is.
pub(super) const GLOSSARY: &str = "GLOSSARY.md";
const HEADING: &str = "## Words that are not used";

/// Where prose is, beside the pages at the root.
const PROSE: &str = "docs";
/// This crate, whose text is about words.
const NOT_SOURCE: &str = "xtask";
const NOT_PROSE: &[&str] = &[GLOSSARY, "CHANGELOG.md"];

pub(super) fn findings(root: &Path, crates: &[Crate]) -> Result<Vec<Finding>, String> {
    let glossary = fs::read_to_string(root.join(GLOSSARY))
        .map_err(|error| format!("{GLOSSARY}: {error}\n"))?;
    let words = table(&glossary)?;
    let mut found = Vec::new();
    for member in crates.iter().filter(|member| member.name != NOT_SOURCE) {
        for file in &member.source {
            in_source(&words, member, file, &mut found);
        }
    }
    for path in prose(root).map_err(|error| format!("reading {}: {error}\n", root.display()))? {
        let text =
            fs::read_to_string(root.join(&path)).map_err(|error| format!("{path}: {error}\n"))?;
        in_prose(&words, &path, &text, &mut found);
    }
    Ok(found)
}

/// A row of the table, for one of its words.
#[derive(Debug, PartialEq, Eq)]
struct Word {
    /// In small letters.
    parts: Vec<String>,
    instead: String,
    scope: Scope,
    /// Only in these crates; in all, if there is none.
    crates: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    AllText,
    Names,
    WholeNames,
    WholeTypes,
}

fn table(glossary: &str) -> Result<Vec<Word>, String> {
    let (_, section) = glossary
        .split_once(HEADING)
        .ok_or_else(|| format!("{GLOSSARY}: there is no heading `{HEADING}`\n"))?;
    let rows = section
        .lines()
        .filter(|line| line.starts_with('|'))
        // The names of the columns, and the line below them.
        .skip(2);
    let mut words = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [left, instead, matched] = cells.as_slice() else {
            return Err(format!("{GLOSSARY}: three columns are expected: {row}\n"));
        };
        let (scope, crates) = matched.split_once(" in ").unwrap_or((matched, ""));
        let scope = match scope {
            "all text" => Scope::AllText,
            "names" => Scope::Names,
            "whole names" => Scope::WholeNames,
            "whole types" => Scope::WholeTypes,
            other => {
                return Err(format!(
                    "{GLOSSARY}: `{other}` is nowhere to match: {row}\n"
                ));
            }
        };
        let crates: Vec<String> = crates
            .split(", ")
            .filter(|name| !name.is_empty())
            .map(|name| name.trim_matches('`').to_owned())
            .collect();
        for word in left.split(", ") {
            words.push(Word {
                parts: parts(word),
                instead: (*instead).to_owned(),
                scope,
                crates: crates.clone(),
            });
        }
    }
    Ok(words)
}

/// The words that a text or a name is made of, in small letters.
fn parts(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut last = ' ';
    for letter in text.chars() {
        let begins = !letter.is_alphanumeric() || (letter.is_uppercase() && last.is_lowercase());
        if begins && !word.is_empty() {
            found.push(std::mem::take(&mut word));
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
        last = letter;
    }
    if !word.is_empty() {
        found.push(word);
    }
    found
}

impl Word {
    fn is_in(&self, parts: &[String]) -> bool {
        parts
            .windows(self.parts.len())
            .any(|part| part == self.parts)
    }

    /// `name` is the declared one that has the word; empty for other text.
    fn finding(&self, place: &str, path: &str, line: usize, name: &str) -> Finding {
        let name = match name {
            "" => String::new(),
            name => format!(" `{name}`:"),
        };
        Finding {
            rule: format!("word {}", self.parts.join(" ")),
            place: place.to_owned(),
            text: format!("{path}:{line}:{name} say {}", self.instead),
        }
    }
}

fn in_source(words: &[Word], member: &Crate, file: &SourceFile, found: &mut Vec<Finding>) {
    let tests = file.test_lines();
    let names: Vec<(String, usize, Vec<String>)> = source::declared_names(file)
        .into_iter()
        .filter(|(_, line)| tests.get(line - 1) == Some(&false))
        .map(|(name, line)| {
            let parts = parts(&name);
            (name, line, parts)
        })
        .collect();
    let texts: Vec<(usize, Vec<String>)> = file
        .text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, parts(line)))
        .collect();
    for word in words {
        if !word.crates.is_empty() && !word.crates.contains(&member.name) {
            continue;
        }
        if word.scope == Scope::AllText {
            let lines = texts.iter().filter(|(_, parts)| word.is_in(parts));
            found.extend(lines.map(|(line, _)| word.finding(&member.name, &file.path, *line, "")));
        } else {
            let declared = names.iter().filter(|(name, _, parts)| match word.scope {
                Scope::AllText | Scope::Names => word.is_in(parts),
                Scope::WholeNames => *parts == word.parts,
                Scope::WholeTypes => name.starts_with(char::is_uppercase) && *parts == word.parts,
            });
            found.extend(
                declared.map(|(name, line, _)| word.finding(&member.name, &file.path, *line, name)),
            );
        }
    }
}

fn in_prose(words: &[Word], path: &str, text: &str, found: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let parts = parts(line);
        let used = words
            .iter()
            .filter(|word| word.scope == Scope::AllText && word.is_in(&parts));
        found.extend(used.map(|word| word.finding(PROSE, path, index + 1, "")));
    }
}

/// The pages that users and developers read.
fn prose(root: &Path) -> std::io::Result<Vec<String>> {
    let mut pages = source::files_below(root, PROSE, ".md")?;
    let mut at_root: Vec<String> = fs::read_dir(root)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".md") && !NOT_PROSE.contains(&name.as_str()))
        .collect();
    at_root.sort_unstable();
    pages.extend(at_root);
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::{Tree, member};

    /// Where a word is found in a file of the crate `a`, as lines.
    fn check(word: &str, matched: &str, text: &str, expect: &[usize]) {
        let glossary =
            format!("# G\n{HEADING}\n\n| A | B | C |\n|---|---|---|\n| {word} | b | {matched} |\n");
        let words = table(&glossary).expect("a table");
        let member = member(&[("lib.rs", text)]);
        let mut found = Vec::new();
        in_source(
            &words,
            &member,
            member.source.first().expect("a file"),
            &mut found,
        );
        let lines: Vec<usize> = found
            .iter()
            .filter_map(|finding| finding.text.split(':').nth(1)?.parse().ok())
            .collect();
        assert_eq!(lines, expect, "{word} in {matched}");
    }

    const TEXT: &str = "\
// A throne.
struct ThroneRoom {
    throne: u8,
}
fn old_throne(thrones: u8) {
    let throne = \"Throne\";
}
struct Throne;
fn enthrone() {}
#[cfg(test)]
fn throne() {}
";

    #[test]
    fn words_are_matched_where_the_table_says() {
        check("throne", "all text", TEXT, &[1, 2, 3, 5, 6, 8, 11]);
        check("throne", "names", TEXT, &[2, 3, 5, 8]);
        check("throne", "whole names", TEXT, &[3, 8]);
        check("throne", "whole types", TEXT, &[8]);
        check("throne", "names in `b`, `a`", TEXT, &[2, 3, 5, 8]);
        check("throne", "names in `b`", TEXT, &[]);
        check(
            "throne, thrones",
            "all text",
            TEXT,
            &[1, 2, 3, 5, 6, 8, 11, 5],
        );
    }

    #[test]
    fn words_of_several_parts_are_matched_however_they_are_set() {
        let text =
            "// put\n// away\n/// is put away, put-away\nfn put_away() {}\nstruct PutAway;\n";
        check("put away", "all text", text, &[3, 4, 5]);
        check("put away", "names", text, &[4, 5]);
    }

    #[test]
    fn prose_is_docs_and_the_pages_at_the_root() {
        let tree = Tree::new(&[
            (
                GLOSSARY,
                "## Words that are not used\n| A | B | C |\n|---|---|---|\n| throne | head of state | all text |\n| crown | head | names |\n",
            ),
            ("docs/a/b.md", "# A\nThe Throne.\n"),
            ("docs/a/b.csv", "throne\n"),
            ("README.md", "A throne, a crown.\n"),
            ("CHANGELOG.md", "throne\n"),
        ]);
        let found = findings(&tree.0, &[]).expect("a tree");
        let texts: Vec<&str> = found.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "docs/a/b.md:2: say head of state",
                "README.md:1: say head of state"
            ]
        );
    }

    #[test]
    fn a_table_that_cannot_be_read_is_an_error() {
        for rows in ["| a | b |", "| a | b | somewhere |"] {
            let glossary = format!("{HEADING}\n| A | B | C |\n|---|---|---|\n{rows}\n");
            assert!(table(&glossary).is_err(), "{rows}");
        }
        assert!(table("# Glossary\n").is_err());
    }
}
