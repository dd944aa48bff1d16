//! `limits`: docs/reference/limits.md, a table of every limit, from marks where the limits are declared.
//!
//! A mark is a paragraph of the comment above a declaration, in `///` or, above an option of the configuration, whose doc
//! comments go to another page, in `//`:
//!
//! ```text
//! /// Limit: WHAT IS BOUNDED | AT THE LIMIT
//! /// Limit: WHAT IS BOUNDED | BY | AT THE LIMIT
//! ```
//!
//! The limit of a mark of two parts is the constant below it. In a mark of three parts these placeholders stand for values:
//!
//! - `{}`: the constant below the mark.
//! - `{NAME}`: a constant of the file, else the only one of that name in the crate. `{part::NAME}`: the only one of that
//!   name whose path has the part as a folder or file.
//! - `{NAME.0}`: a part of a constant that is a tuple.
//! - `{:bytes}`, `{NAME:bytes}`: the same as a size. Constants whose name has `BYTES` or ends with `_MS` or `_US`, and those of
//!   type `Duration`, are written as sizes and times anyway.
//! - `{limits.session.queueBytes}`: an option of the configuration, as a link. It has to be in the reference of options.
//!
//! `limits --page` writes the page, and so does `check --update`; `check` says when the page is out of date or a mark cannot be
//! read. A tree without the page has none to keep.
//!
//! Deliberately absent: limits of code that is for tests only; a judgement of which constants need a mark.

mod mark;
mod page;
mod value;

use std::fs;
use std::path::Path;

use crate::source::{self, Crate};
use mark::Mark;
use value::Constants;

/// Where the page is.
pub(crate) const PAGE: &str = "docs/reference/limits.md";
/// Where the options are, which marks may name.
const OPTIONS: &str = "docs/reference/configuration.md";

/// A row of the page.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// The file of the mark.
    path: String,
    /// The first option that the mark names, if it stands in the configuration; else the file. Decides on the heading.
    place: String,
    what: String,
    by: String,
    at_limit: String,
}

/// A mark that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) path: String,
    /// From 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The page of a checkout, or the marks that cannot be read.
pub(crate) fn page(root: &Path, crates: &[Crate]) -> Result<String, Vec<Mistake>> {
    let options = options(&fs::read_to_string(root.join(OPTIONS)).unwrap_or_default());
    let constants = Constants::of(crates);
    let mut rows = Vec::new();
    let mut mistakes = Vec::new();
    for file in crates.iter().flat_map(|member| &member.source) {
        for mark in mark::marks(&file.path, &file.text, &file.test_lines()) {
            match row(&mark, &constants, &options) {
                Ok(row) => rows.push(row),
                Err(text) => mistakes.push(Mistake {
                    path: mark.path,
                    line: mark.line,
                    text,
                }),
            }
        }
    }
    if mistakes.is_empty() {
        Ok(page::render(&rows))
    } else {
        Err(mistakes)
    }
}

/// Writes the page. `Err`: files cannot be read or written, or marks cannot be read.
pub(crate) fn write_page(root: &Path) -> Result<String, String> {
    let crates =
        source::crates(root).map_err(|error| format!("reading {}: {error}\n", root.display()))?;
    let text = page(root, &crates).map_err(|mistakes| {
        mistakes
            .iter()
            .map(|mistake| format!("{}:{}: {}\n", mistake.path, mistake.line, mistake.text))
            .collect::<String>()
    })?;
    let path = root.join(PAGE);
    fs::write(&path, text).map_err(|error| format!("{}: {error}\n", path.display()))?;
    Ok(format!("{PAGE} is written\n"))
}

fn row(mark: &Mark, constants: &Constants<'_>, options: &[String]) -> Result<Row, String> {
    let parts: Vec<&str> = mark.text.split(" | ").map(str::trim).collect();
    let (what, by, at_limit) = match parts.as_slice() {
        [what, at_limit] => (*what, "{}", *at_limit),
        [what, by, at_limit] => (*what, *by, *at_limit),
        _ => {
            return Err(
                "a mark is `Limit: WHAT | AT THE LIMIT` or `Limit: WHAT | BY | AT THE LIMIT`"
                    .to_owned(),
            );
        }
    };
    let fill = |text: &str| {
        placeholders(text, |name| {
            if is_option(name) {
                return option_link(name, options);
            }
            constants.show(name, &mark.path, mark.constant.as_deref())
        })
    };
    let named = by
        .split('{')
        .filter_map(|part| part.split('}').next())
        .find(|name| is_option(name));
    Ok(Row {
        path: mark.path.clone(),
        place: match named {
            Some(option) if mark.path.starts_with("crates/config/") => option.to_owned(),
            _ => mark.path.clone(),
        },
        what: fill(what)?,
        by: fill(by)?,
        at_limit: fill(at_limit)?,
    })
}

/// Replaces each `{…}`.
fn placeholders(
    text: &str,
    show: impl Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind
            .split_once('}')
            .ok_or_else(|| format!("`{{` has no `}}`: {text}"))?;
        filled.push_str(before);
        filled.push_str(&show(name)?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Constants are written in capitals, options begin with a small letter and have a dot and no `::`.
fn is_option(name: &str) -> bool {
    name.contains('.') && !name.contains("::") && name.starts_with(char::is_lowercase)
}

fn option_link(option: &str, options: &[String]) -> Result<String, String> {
    let group = options
        .contains(&option.to_owned())
        .then(|| option.rsplit_once('.'))
        .flatten()
        .map(|(group, _)| group)
        .ok_or_else(|| format!("{OPTIONS} has no option `{option}`"))?;
    let anchor: String = group
        .chars()
        .filter(|letter| letter.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect();
    Ok(format!("[`{option}`](configuration.md#{anchor})"))
}

/// The paths of all options in their reference: headings are groups, rows are keys.
fn options(reference: &str) -> Vec<String> {
    let mut group = "";
    let mut found = Vec::new();
    for line in reference.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            group = heading.trim_matches('`');
        } else if let Some((key, _)) = line.strip_prefix("| `").and_then(|row| row.split_once('`'))
        {
            found.push(format!("{group}.{key}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixture::{Tree, member};

    const REFERENCE: &str =
        "## `limits.session`\n\n| Key | Default |\n|---|---|\n| `queueBytes` | `1` |\n";

    fn rows(text: &str) -> Result<String, Vec<Mistake>> {
        let tree = Tree::new(&[(OPTIONS, REFERENCE)]);
        page(&tree.0, &[member(&[("lib.rs", text)])])
    }

    fn check(text: &str, row: &str) {
        let page = rows(text).expect("marks that can be read");
        assert!(page.lines().any(|line| line == row), "{row}\n{page}");
    }

    #[test]
    fn a_mark_becomes_a_row() {
        check(
            "/// Places.\n///\n/// Limit: places | wait\npub(crate) const A: usize = 16_384;\n",
            "| places | 16,384 | wait | `crates/a/src/lib.rs` |",
        );
        check(
            "/// Limit: places of\n/// a loop | {} or {B_BYTES}, for {C_MS} |\n/// wait\n#[x]\nconst A: usize = 1 << 4;\nconst B_BYTES: u64 = 8 * 1024 * 1024;\nconst C_MS: u64 = 1_500;\n",
            "| places of a loop | 16 or 8 MiB, for 1.5 s | wait | `crates/a/src/lib.rs` |",
        );
        check(
            "// Limit: a queue | {limits.session.queueBytes} | dropped\nfn a() {}\n",
            "| a queue | [`limits.session.queueBytes`](configuration.md#limitssession) | dropped | `crates/a/src/lib.rs` |",
        );
    }

    #[test]
    fn a_mark_that_cannot_be_read_is_a_mistake() {
        for text in [
            "/// Limit: places\nconst A: u8 = 1;\n",
            "/// Limit: places | {B} | wait\nconst A: u8 = 1;\n",
            "/// Limit: places | wait\nfn a() {}\n",
            "/// Limit: places | {A | wait\nconst A: u8 = 1;\n",
            "/// Limit: places | {limits.session.queues} | wait\nconst A: u8 = 1;\n",
        ] {
            let mistakes = rows(text).expect_err(text);
            let lines: Vec<usize> = mistakes.iter().map(|mistake| mistake.line).collect();
            assert_eq!(lines, [1], "{text}");
        }
    }

    #[test]
    fn marks_in_tests_are_no_limits() {
        let page = rows(
            "#[cfg(test)]\nmod tests {\n    /// Limit: places | wait\n    const A: u8 = 1;\n}\n",
        );
        assert!(!page.expect("no marks").contains("places"));
    }
}
