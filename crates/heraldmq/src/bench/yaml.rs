//! Files that a person writes: from YAML to typed values, or to one sentence that names file, line and key.
//!
//! Invariant: size, depth, number of nodes and replayed anchors are limited before anything is kept.
//!
//! Deliberately absent: what the keys mean; `workload_file.rs` and `suite/file.rs` say so by their types.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

use crate::failure::Failure;

/// A file is no longer than this, in bytes.
const LONGEST: u64 = 1 << 20;

/// Reads a file.
///
/// # Errors
/// It cannot be read, or is not what `T` takes.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let mut text = String::new();
    let file = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
    match file {
        Err(error) => Err(Failure::Runtime(format!("{}: {error}", path.display()))),
        Ok(length) if length as u64 > LONGEST => {
            let message = format!("{}: longer than {LONGEST} bytes", path.display());
            Err(Failure::Usage(message))
        }
        Ok(_) => parse(&text).map_err(|wrong| Failure::Usage(format!("{}{wrong}", path.display()))),
    }
}

/// Reads a text. What is wrong begins with `:LINE: KEY: `, as far as there are such, to stand behind the name
/// of the file.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 16,
            flow_nesting_limit: 16,
            max_nodes: 50_000,
            max_events: 200_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_recorded_anchor_events: 50_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 50_000,
            max_replay_stack_depth: 8,
        },
        with_snippet: false,
        // Otherwise a file with a hundred lines of comments in a row would be refused.
        emit_comments: false,
    };
    let mut key = String::new();
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        serde_path_to_error::deserialize(yaml).map_err(|error| {
            key = error.path().to_string();
            error.into_inner()
        })
    });
    read.map_err(|error| wrong(&error, &key))
}

fn wrong(error: &Error, key: &str) -> String {
    // What is wrong with the file as a whole has no line, and no key.
    let line = error
        .location()
        .map(|location| format!(":{}", location.line()));
    let key = Some(key).filter(|key| !matches!(*key, "" | "." | "?"));
    let key = key.map(|key| format!(": {key}"));
    let place = [line, key].into_iter().flatten().collect::<String>();
    format!("{place}: {}", statement(error))
}

fn statement(error: &Error) -> String {
    match error {
        Error::SerdeUnknownField {
            field, expected, ..
        } => unknown(field, expected),
        Error::SerdeMissingField { field, .. } => format!("`{field}` is missing"),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("`{key}` stands here twice"),
        // What was written may be part of it, control characters too.
        error => UserMessageFormatter
            .format_message(error)
            .split_whitespace()
            .map(|word| word.chars().filter(|c| !c.is_control()).collect::<String>())
            .collect::<Vec<_>>()
            .join(" "),
    }
}

fn unknown(key: &str, known: &[&str]) -> String {
    let key: String = key.chars().take(64).collect();
    let distance = |name: &&&str| strsim::damerau_levenshtein(&key.to_lowercase(), name);
    match known.iter().min_by_key(distance) {
        Some(nearest) => format!(
            "unknown key {key:?}; the nearest is `{nearest}`, all are {}",
            known.join(", ")
        ),
        None => format!("unknown key {key:?}; there are none here"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(deny_unknown_fields)]
    struct Document {
        title: String,
        #[serde(default)]
        items: Vec<Item>,
    }

    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(deny_unknown_fields)]
    struct Item {
        width: u32,
        height: Option<u32>,
    }

    #[test]
    fn what_is_wrong_names_line_and_key() {
        for (text, expected) in [
            (
                "title: a\nitems:\n- width: 1\n  heigth: 2\n",
                ":4: items[0].heigth: unknown key \"heigth\"; the nearest is `height`, all are width, height",
            ),
            (
                "title: a\nitems:\n- height: 1\n",
                ":3: items[0]: `width` is missing",
            ),
            ("title: a\ntitle: b\n", ":2: `title` stands here twice"),
            ("items: []\n", ":1: `title` is missing"),
        ] {
            assert_eq!(parse::<Document>(text), Err(expected.to_owned()), "{text}");
        }
        for (text, line) in [
            ("title: a\nitems:\n- width: x\n", ":3: items[0].width: "),
            ("title: a\nitems: 5\n", ":2: items: "),
            ("title: a\nitems: [\n", ":"),
            ("", ":1: "),
        ] {
            let error = parse::<Document>(text).unwrap_err();
            assert!(error.starts_with(line), "{text}: {error}");
        }
    }

    #[test]
    fn a_bomb_of_anchors_is_refused() {
        let mut text = "title: a\na0: &a0 [x, x]\n".to_owned();
        for level in 1..30 {
            let before = level - 1;
            text += &format!("a{level}: &a{level} [*a{before}, *a{before}]\n");
        }
        assert!(parse::<serde::de::IgnoredAny>(&text).is_err());
    }

    #[test]
    fn a_file_that_is_too_long_or_not_there_is_named() {
        let folder = std::env::temp_dir().join(format!("heraldmq-yaml-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("long.yml");
        fs::write(&path, "#".repeat(LONGEST as usize + 1)).unwrap();
        let long = read::<Document>(&path);
        let none = read::<Document>(&folder.join("none.yml"));
        fs::remove_dir_all(&folder).unwrap();
        let names = |outcome: &Result<Document, Failure>, name: &str| match outcome {
            Err(Failure::Usage(message) | Failure::Runtime(message)) => message.contains(name),
            _ => false,
        };
        assert!(names(&long, "long.yml: longer"), "{long:?}");
        assert!(names(&none, "none.yml"), "{none:?}");
    }
}
