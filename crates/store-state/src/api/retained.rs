//! Retained messages, a page at a time.

use std::sync::Arc;

use mqtt_session::ApplicationMessage;
use serde::{Deserialize, Serialize};
use topic_router::Cursor;

use super::ShardNumber;
use crate::wire;

/// A place in the retained messages that a filter selects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RetainedPlace {
    shard: ShardNumber,
    /// The cursor within the shard; empty: its first message.
    cursor: Vec<u8>,
}

impl RetainedPlace {
    /// The first message of a shard.
    #[must_use]
    pub fn first_of(shard: ShardNumber) -> Self {
        Self {
            shard,
            cursor: Vec::new(),
        }
    }

    /// The message of a shard that a cursor stands at.
    #[must_use]
    pub fn at(shard: ShardNumber, cursor: &Cursor) -> Self {
        Self {
            shard,
            cursor: cursor.as_bytes().to_vec(),
        }
    }

    /// The shard.
    #[must_use]
    pub fn shard(&self) -> ShardNumber {
        self.shard
    }

    /// To be kept in an inbox shard.
    #[must_use]
    pub fn to_bytes(&self) -> Box<[u8]> {
        [&self.shard.to_be_bytes()[..], &self.cursor]
            .concat()
            .into()
    }

    /// What [`RetainedPlace::to_bytes`] gave; `None`: it gave no such thing.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (shard, cursor) = bytes.split_first_chunk()?;
        Some(Self {
            shard: ShardNumber::from_be_bytes(*shard),
            cursor: cursor.to_vec(),
        })
    }

    /// The cursor within the shard; `None`: the first message.
    #[must_use]
    pub fn cursor(&self) -> Option<Cursor> {
        (!self.cursor.is_empty()).then(|| Cursor::from_bytes(&self.cursor))
    }
}

/// Retained messages of a filter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RetainedPage {
    /// The messages; there may be none, and yet further pages.
    pub messages: Vec<Retained>,
    /// Where the next page begins; `None`: there is none.
    pub next: Option<RetainedPlace>,
}

/// A retained message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Retained(#[serde(with = "wire::message")] pub Arc<ApplicationMessage>);

/// How many requests each retain shard had been given by a moment. Shards that came later had been given none.
#[derive(Clone, Debug)]
pub struct RetainMark(pub Vec<(ShardNumber, u64)>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        for place in [
            RetainedPlace::first_of(0x0102),
            RetainedPlace::at(7, &Cursor::from_bytes(b"a/b")),
        ] {
            let bytes = place.to_bytes();
            assert_eq!(RetainedPlace::from_bytes(&bytes), Some(place));
        }
        assert_eq!(&*RetainedPlace::first_of(0x0102).to_bytes(), &[1, 2]);
        assert_eq!(RetainedPlace::from_bytes(&[1]), None);
    }
}
