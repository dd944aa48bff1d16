//! Messages between an owner and a receiver of routes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Key, Value};

/// The first byte of each message. A change of what follows is a new number.
const FORMAT: u8 = 1;

/// Any message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// From an owner.
    Batch(Batch),
    /// From a receiver.
    State(State),
}

/// A part of an owner's stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// The stream. A new one begins with a snapshot.
    pub stream: u64,
    /// Counts the batches of a stream, from 1.
    pub sequence: u64,
    /// Routes as they are now; `None`: there is none.
    pub routes: Vec<(Key, Option<Value>)>,
    /// When the snapshot is complete: all changes up to this number have been told.
    pub number: u64,
    /// The snapshot is complete.
    pub complete: bool,
    /// The receiver's beat that this answers.
    pub echo_ms: Option<u64>,
}

/// What a receiver has applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct State {
    /// The stream; 0: none.
    pub stream: u64,
    /// Its last batch that was applied.
    pub sequence: u64,
    /// The number in that.
    pub number: u64,
    /// A stream whose beginning did not come: another is wanted.
    pub missed: Option<u64>,
    /// The receiver's time, which it wants to get back.
    pub beat_ms: Option<u64>,
}

/// A peer has broken the protocol: the connection with it is to be broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The bytes are no message of this format.
    Bytes,
    /// A batch does not follow the one before it.
    Sequence,
    /// A value is none for its key.
    Value,
    /// More is said to be applied than was sent.
    State,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "the bytes are no message about routes",
            Self::Sequence => "a batch of routes does not follow the one before it",
            Self::Value => "a route has a value of another kind",
            Self::State => "more routes are said to be applied than were sent",
        })
    }
}

impl std::error::Error for Malformed {}

impl Message {
    /// Appends the message to bytes.
    #[must_use]
    pub fn encode(&self, mut to: Vec<u8>) -> Vec<u8> {
        to.push(FORMAT);
        // Postcard refuses only a sequence that does not know its length.
        postcard::to_extend(self, to).expect("every sequence in a message knows its length")
    }

    /// # Errors
    /// Bytes that are no message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match bytes.split_first() {
            Some((&FORMAT, rest)) => match postcard::take_from_bytes(rest) {
                Ok((message, [])) => Ok(message),
                _ => Err(Malformed::Bytes),
            },
            _ => Err(Malformed::Bytes),
        }
    }
}
