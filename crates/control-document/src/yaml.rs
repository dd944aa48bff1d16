//! The document as YAML.
//!
//! Invariants: reading takes memory in proportion to the text, because aliases are refused; an error has nothing that could be a hash.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde_saphyr::{Localizer, Location, RenderOptions, UserMessageFormatter};

use crate::document::Document;

/// Characters of base64 or hexadecimal digits in a row that could be a hash.
const LONGEST_WORD: usize = 32;

/// Why a text is no document. It has no hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotRead {
    /// The line, from 1; 0: not known.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for NotRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for NotRead {}

impl Document {
    /// Reads a document of YAML or JSON. The caller limits the length of the text.
    ///
    /// # Errors
    /// The first place that is wrong: no YAML, another format, an unknown field, a value of another type, an anchor or an alias.
    pub fn parse(text: &str) -> Result<Self, NotRead> {
        let length = text.len().saturating_add(64);
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: 8,
                flow_nesting_limit: 8,
                // Without aliases, there are no more of them than bytes.
                max_nodes: length,
                max_events: length.saturating_mul(4),
                max_total_scalar_bytes: length,
                max_aliases: 0,
                max_anchors: 0,
                max_merge_keys: 0,
                max_recorded_anchor_events: 0,
                max_recorded_anchor_bytes: 0,
                max_documents: 1,
            },
            with_snippet: false,
            // Otherwise a file with a hundred lines of comments in a row would be refused.
            emit_comments: false,
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| NotRead {
            line: error.location().map_or(0, line),
            what: without_hashes(one_line(&error)),
        })
    }

    /// The document as YAML.
    #[must_use]
    pub fn yaml(&self) -> String {
        yaml(self)
    }
}

/// A part of a document as YAML.
pub(crate) fn yaml(part: &impl Serialize) -> String {
    serde_saphyr::to_string(part).expect("lists of fields with texts are YAML")
}

fn line(location: Location) -> usize {
    usize::try_from(location.line()).unwrap_or(usize::MAX)
}

/// The words of the library without the position, on one line.
fn one_line(error: &serde_saphyr::Error) -> String {
    struct WithoutPosition;
    impl Localizer for WithoutPosition {
        fn attach_location<'a>(&self, base: Cow<'a, str>, _: Location) -> Cow<'a, str> {
            base
        }
    }
    let formatter = UserMessageFormatter.with_localizer(&WithoutPosition);
    let text = error.render_with_options(RenderOptions::new(&formatter));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The words, unless there could be a hash or a secret among them.
fn without_hashes(words: String) -> String {
    let is_of_hash = |c: char| c.is_ascii_alphanumeric() || "+/=_-.$".contains(c);
    let mut runs = words.split(|c: char| !is_of_hash(c));
    match words.contains('$') || runs.any(|run| run.len() >= LONGEST_WORD) {
        true => "there is a value where another one is expected".to_owned(),
        false => words,
    }
}

#[cfg(test)]
mod tests;
