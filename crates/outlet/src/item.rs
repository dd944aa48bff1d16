//! A message of an outlet's session, and where it stands there.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::properties::StandardProperties;

/// Unix time, or a span of time, in ms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Milliseconds(pub u64);

impl Milliseconds {
    /// The time after a span.
    #[must_use]
    pub fn after(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// The number of an attempt, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The first one.
    pub const FIRST: Self = Self(1);

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Messages, or attempts, since the start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Total(pub u64);

impl std::ops::AddAssign<usize> for Total {
    fn add_assign(&mut self, more: usize) {
        self.0 += more as u64;
    }
}

/// Which queue of a session of that name: another one after the session has ended and begun again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Incarnation(pub u64);

/// The place of a message in its queue, ascending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sequence(pub u64);

/// Where a message stands in the queue of its session. Within one incarnation of the queue, sequences ascend and never come
/// again; positions of two incarnations say nothing of each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Position {
    /// Of the queue.
    pub incarnation: Incarnation,
    /// Of the message.
    pub sequence: Sequence,
}

impl Position {
    /// Whether a target that has everything up to here has the message at `other`.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.incarnation == other.incarnation && other.sequence <= self.sequence
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.incarnation.0, self.sequence.0)
    }
}

/// A text is no position: not two decimal numbers with a point between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParsePositionError;

impl fmt::Display for ParsePositionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a position, which is two numbers with a point between them")
    }
}

impl std::error::Error for ParsePositionError {}

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, ParsePositionError> {
        let (incarnation, sequence) = text.split_once('.').ok_or(ParsePositionError)?;
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok();
            number.filter(|_| is_plain).ok_or(ParsePositionError)
        };
        Ok(Self {
            incarnation: Incarnation(number(incarnation)?),
            sequence: Sequence(number(sequence)?),
        })
    }
}

/// A message as an outlet got it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Where it stands in the session's queue; `None`: in none, as messages of QoS 0.
    pub position: Option<Position>,
    /// Its topic.
    pub topic: Box<str>,
    /// Its payload.
    pub payload: Bytes,
    /// 0 to 2.
    pub qos: u8,
    /// Whether it was retained.
    pub retain: bool,
    /// When the outlet got it.
    pub received: Milliseconds,
    /// Its User Properties (MQTT 5.0 §3.3.2.3.7), in their order.
    pub properties: Vec<(Box<str>, Box<str>)>,
    /// Its other properties.
    pub standard: StandardProperties,
}

impl Item {
    /// What it takes in memory, about, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let properties = self.properties.iter();
        let properties = properties.map(|(name, value)| name.len() + value.len() + 32);
        size_of::<Self>()
            + self.topic.len()
            + self.payload.len()
            + properties.sum::<usize>()
            + self.standard.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_two_numbers() {
        let position: Position = "7.42".parse().unwrap();
        assert_eq!(
            (position.incarnation, position.sequence),
            (Incarnation(7), Sequence(42))
        );
        assert_eq!(position.to_string(), "7.42");
        for wrong in [
            "",
            "7",
            "7.",
            ".42",
            "7.4.2",
            "-7.42",
            "+7.42",
            "7.18446744073709551616",
        ] {
            wrong.parse::<Position>().unwrap_err();
        }
    }

    #[test]
    fn a_position_covers_those_before_it_in_its_own_incarnation() {
        let at = |incarnation, sequence| Position {
            incarnation: Incarnation(incarnation),
            sequence: Sequence(sequence),
        };
        assert!(at(1, 5).covers(at(1, 5)) && at(1, 5).covers(at(1, 4)));
        assert!(!at(1, 5).covers(at(1, 6)));
        assert!(!at(2, 5).covers(at(1, 4)) && !at(1, 5).covers(at(2, 4)));
    }
}
