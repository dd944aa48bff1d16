//! The bytes of questions and answers: JSON.
//!
//! Invariant: bytes that do not fit are never taken for something else. Those with a name that only a later version knows are told apart
//! from those that no version writes.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Answer, CpuProfile, Question};

/// A question with the time that is left for its answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// In ms.
    pub budget_ms: u64,
    /// What is asked.
    pub question: Question,
}

/// Why bytes are no question and no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// A question, an answer, or one of a fixed set of words in it, has a name that this version does not know.
    Unknown,
    /// They are not JSON, or what they have under a known name is of another type, or incomplete.
    IllFormed,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "it is of a later version",
            Self::IllFormed => "it is ill-formed",
        })
    }
}

impl std::error::Error for Unreadable {}

impl Asked {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        write(self)
    }

    /// Reads what a node asks.
    ///
    /// # Errors
    /// Why it cannot be answered.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        read(bytes)
    }
}

impl Answer {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        write(self)
    }

    /// Reads what a node answers.
    ///
    /// # Errors
    /// Why it says nothing.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        read(bytes)
    }
}

impl CpuProfile {
    /// As JSON, which is sent in parts.
    #[must_use]
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("questions and answers are JSON")
    }

    /// Reads what the parts are together.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(text: &str) -> Result<Self, Unreadable> {
        read(text.as_bytes())
    }
}

fn write(what: &impl Serialize) -> Vec<u8> {
    // Each map has keys that are strings, and nothing refuses to be written.
    serde_json::to_vec(what).expect("questions and answers are JSON")
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    serde_json::from_slice(bytes).map_err(|error| why(&error))
}

/// serde has no code for an unknown name, only this sentence. What a client chooses is never at its beginning.
fn why(error: &serde_json::Error) -> Unreadable {
    match error.is_data() && error.to_string().starts_with("unknown variant ") {
        true => Unreadable::Unknown,
        false => Unreadable::IllFormed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_version_says_is_told_apart_from_what_none_does() {
        use Unreadable::{IllFormed, Unknown};
        for (text, why) in [
            // Answers, alone and with content; a kind of answer below one; a word in one.
            (r#""later""#, Unknown),
            (r#"{"later":{"a":1}}"#, Unknown),
            (r#"{"messages":"later"}"#, Unknown),
            (r#"{"messages":{"later":[1]}}"#, Unknown),
            (r#"{"change":{"Err":{"Later":"x"}}}"#, Unknown),
            (r#"{"change_subscription":"later"}"#, Unknown),
            ("", IllFormed),
            ("\u{0}", IllFormed),
            ("{", IllFormed),
            ("null", IllFormed),
            ("[]", IllFormed),
            (r#"{"queues":{"unknown variant ":"1"}}"#, IllFormed),
            (r#"{"queues":"unknown variant `later`"}"#, IllFormed),
            (r#"{"clients":{"rows":[]}}"#, IllFormed),
            (r#"{"busy":1}"#, IllFormed),
            (r#""busy" 1"#, IllFormed),
            (r#"{"busy":null,"failed":null}"#, IllFormed),
        ] {
            assert_eq!(Answer::decode(text.as_bytes()), Err(why), "{text}");
        }
        for (text, why) in [
            (r#"{"budget_ms":5,"question":"later"}"#, Unknown),
            (r#"{"budget_ms":5,"question":{"later":{"a":1}}}"#, Unknown),
            (
                r#"{"budget_ms":5,"question":{"messages":{"later":1}}}"#,
                Unknown,
            ),
            (r#"{"budget_ms":5}"#, IllFormed),
            (r#"{"budget_ms":-5,"question":"health"}"#, IllFormed),
            (r#"{"budget_ms":5,"question":{"client":{}}}"#, IllFormed),
        ] {
            assert_eq!(Asked::decode(text.as_bytes()), Err(why), "{text}");
        }
    }
}
