//! What is wrong with the text of a rule, and where.

use std::fmt;

use jaq_core::compile::Undefined;
use jaq_core::load::{self, Error, lex, span};

/// A text is no rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompileError {
    /// As in the configuration.
    key: &'static str,
    why: String,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

impl std::error::Error for CompileError {}

impl CompileError {
    pub(crate) fn too_long(key: &'static str, found: usize) -> Self {
        let most = crate::LONGEST;
        Self {
            key,
            why: format!("expected at most {most} bytes, found {found}"),
        }
    }

    /// The first thing that is no jq.
    pub(crate) fn load(key: &'static str, text: &str, errors: &load::Errors<&str, ()>) -> Self {
        let first = errors.iter().map(|(_, error)| error).next();
        let why = match first {
            Some(Error::Lex(errors)) => errors.first().map(|(expected, at)| match expected {
                lex::Expect::Delim(open) => {
                    format!("{}: `{open}` is not closed", place(text, open))
                }
                expected => wanted(text, expected.as_str(), at),
            }),
            Some(Error::Parse(errors)) => {
                let first = errors.first();
                first.map(|(expected, at)| wanted(text, expected.as_str(), at))
            }
            Some(Error::Io(errors)) => {
                let first = errors.first();
                first.map(|(at, why)| format!("{}: {at}: {why}", place(text, at)))
            }
            None => None,
        };
        Self::new(key, why)
    }

    /// The first name that nothing has.
    pub(crate) fn undefined(
        key: &'static str,
        text: &str,
        errors: &load::Errors<&str, (), Vec<(&str, Undefined)>>,
    ) -> Self {
        let first = errors.iter().flat_map(|(_, errors)| errors).next();
        let why = first.map(|(name, what)| {
            let place = place(text, name);
            match what {
                Undefined::Filter(0) => format!("{place}: there is no function {name}"),
                Undefined::Filter(count) => {
                    format!("{place}: there is no function {name} of {count} arguments")
                }
                what => format!("{place}: there is no {} {name}", what.as_str()),
            }
        });
        Self::new(key, why)
    }

    fn new(key: &'static str, why: Option<String>) -> Self {
        let why = why.unwrap_or_else(|| "not a program in the language jq".to_owned());
        Self { key, why }
    }
}

fn wanted(text: &str, expected: &str, at: &str) -> String {
    let place = place(text, at);
    let found = match at.chars().next() {
        None => "the end".to_owned(),
        Some(_) => {
            let most = at.floor_char_boundary(20);
            format!("`{}`", &at[..most])
        }
    };
    format!("{place}: expected {expected}, found {found}")
}

/// Where a part of the text stands. What is not in it, as in a definition of jq, stands at its start.
fn place(text: &str, part: &str) -> String {
    let range = text.as_bytes().as_ptr_range();
    let is_within = range.contains(&part.as_ptr()) || range.end == part.as_ptr();
    let start = if is_within { span(text, part).start } else { 0 };
    let before = text.get(..start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap_or_default();
    let column = last.chars().count() + 1;
    format!("line {line}, column {column}")
}
