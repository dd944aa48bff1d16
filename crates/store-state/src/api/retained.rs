//! Retained messages, a page at a time.

use std::fmt;
use std::sync::Arc;

use mqtt_session::ApplicationMessage;
use serde::{Deserialize, Serialize};
use topic_router::Cursor;

use super::ShardNumber;
use crate::slot::SlotRange;
use crate::{row, wire};

/// What stands in the place of a shard's number when parts follow. No store begins with so many shards.
const PARTS: ShardNumber = ShardNumber::MAX;

/// A place in the retained messages that a filter selects: which of them are still to be given.
///
/// The base shards are those that the store began with, whose numbers and ranges are the same on all nodes at all times.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum RetainedPlace {
    /// In the slots of a base shard those from the cursor on, and all in the slots behind it. Places in a store that was never
    /// split have this form, which earlier versions know.
    Base {
        /// The number of the base shard.
        shard: ShardNumber,
        /// `None`: all.
        cursor: Option<Cursor>,
    },
    /// In each part those from its cursor on: shards were split while the messages were given.
    Parts(RetainedParts),
}

/// Ranges of slots, and what is still to be given in each.
///
/// Invariant: there is a range at least; each lies behind the one before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetainedParts(Box<[RetainedPart]>);

/// A range of slots, and what is still to be given of the retained messages there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetainedPart {
    /// The slots.
    pub slots: SlotRange,
    /// The first message, in the order of all possible topics; `None`: all.
    pub cursor: Option<Cursor>,
}

impl RetainedParts {
    /// These parts, which are to be in the order of their slots; adjacent ones that go on behind the same cursor become one.
    /// `None`: there are none, or they overlap.
    #[must_use]
    pub fn new(parts: impl IntoIterator<Item = RetainedPart>) -> Option<Self> {
        let mut joined: Vec<RetainedPart> = Vec::new();
        for part in parts {
            if part.slots.first > part.slots.last {
                return None;
            }
            match joined.last_mut() {
                Some(before) if before.slots.last >= part.slots.first => return None,
                Some(before)
                    if before.slots.last + 1 == part.slots.first
                        && before.cursor == part.cursor =>
                {
                    before.slots.last = part.slots.last;
                }
                _ => joined.push(part),
            }
        }
        (!joined.is_empty()).then(|| Self(joined.into()))
    }

    /// The parts, one at least, in the order of their slots.
    #[must_use]
    pub fn as_slice(&self) -> &[RetainedPart] {
        &self.0
    }
}

impl RetainedPlace {
    /// To be kept in an inbox shard.
    #[must_use]
    pub fn to_bytes(&self) -> Box<[u8]> {
        let Written { shard, cursor } = self.clone().into();
        [&shard.to_be_bytes()[..], &cursor].concat().into()
    }

    /// What [`RetainedPlace::to_bytes`] gave; `None`: it gave no such thing.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (shard, cursor) = bytes.split_first_chunk()?;
        let written = Written {
            shard: ShardNumber::from_be_bytes(*shard),
            cursor: cursor.to_vec(),
        };
        written.try_into().ok()
    }
}

/// A place as nodes send and keep it.
#[derive(Serialize, Deserialize)]
struct Written {
    /// Of a base shard, or [`PARTS`].
    shard: ShardNumber,
    /// The cursor within the base shard, empty for its first message; or the parts.
    cursor: Vec<u8>,
}

/// A part as nodes send and keep it, with its cursor, empty for the first message.
type WrittenPart = (SlotRange, Vec<u8>);

/// Bytes that are no place.
#[derive(Debug)]
struct NoPlace;

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is no place among retained messages")
    }
}

impl From<RetainedPlace> for Written {
    fn from(place: RetainedPlace) -> Self {
        let bytes = |cursor: &Option<Cursor>| {
            let bytes = cursor.as_ref().map(Cursor::as_bytes);
            bytes.unwrap_or_default().to_vec()
        };
        match place {
            RetainedPlace::Base { shard, cursor } => Self {
                shard,
                cursor: bytes(&cursor),
            },
            RetainedPlace::Parts(parts) => {
                let parts = parts.0.iter().map(|part| (part.slots, bytes(&part.cursor)));
                Self {
                    shard: PARTS,
                    cursor: row::encode(&parts.collect::<Vec<WrittenPart>>()),
                }
            }
        }
    }
}

impl TryFrom<Written> for RetainedPlace {
    type Error = NoPlace;

    fn try_from(Written { shard, cursor }: Written) -> Result<Self, NoPlace> {
        let read = |bytes: &[u8]| (!bytes.is_empty()).then(|| Cursor::from_bytes(bytes));
        if shard != PARTS {
            return Ok(Self::Base {
                shard,
                cursor: read(&cursor),
            });
        }
        let parts: Vec<WrittenPart> = row::decode(&[], &cursor).map_err(|_| NoPlace)?;
        let parts = parts.into_iter().map(|(slots, cursor)| RetainedPart {
            slots,
            cursor: read(&cursor),
        });
        let parts = RetainedParts::new(parts).ok_or(NoPlace)?;
        Ok(Self::Parts(parts))
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

    fn cursor(topic: &str) -> Option<Cursor> {
        (!topic.is_empty()).then(|| Cursor::from_bytes(topic.as_bytes()))
    }

    fn part(first: u16, last: u16, topic: &str) -> RetainedPart {
        RetainedPart {
            slots: SlotRange { first, last },
            cursor: cursor(topic),
        }
    }

    fn base(shard: ShardNumber, topic: &str) -> RetainedPlace {
        RetainedPlace::Base {
            shard,
            cursor: cursor(topic),
        }
    }

    fn parts(parts: &[RetainedPart]) -> RetainedPlace {
        RetainedPlace::Parts(RetainedParts::new(parts.to_vec()).unwrap())
    }

    /// Disks hold these bytes, and nodes send them.
    #[test]
    fn a_place_is_read_as_it_was_written() {
        let split = parts(&[part(3, 299, "a/b"), part(300, u16::MAX, "")]);
        let places: [(_, &[u8]); 4] = [
            (base(0x0102, ""), &[1, 2]),
            (base(7, "a/b"), b"\0\x07a/b"),
            (parts(&[part(0, 1, "")]), b"\xff\xff\x01\x01\0\x01\0"),
            (
                split,
                b"\xff\xff\x01\x02\x03\xab\x02\x03a/b\xac\x02\xff\xff\x03\0",
            ),
        ];
        for (place, bytes) in places {
            assert_eq!(&*place.to_bytes(), bytes);
            assert_eq!(RetainedPlace::from_bytes(bytes), Some(place.clone()));
            let sent = postcard::to_stdvec(&place).unwrap();
            let read: RetainedPlace = postcard::from_bytes(&sent).unwrap();
            assert_eq!(read, place);
        }
        // As before there were parts: the number of the shard, and the length of the cursor before it.
        let sent = postcard::to_stdvec(&base(300, "a/b")).unwrap();
        assert_eq!(sent, b"\xac\x02\x03a/b");
    }

    #[test]
    fn what_is_no_place_is_not_read() {
        let no_parts: &[&[u8]] = &[
            b"",
            b"\x01",
            b"\xff\xff",
            // None, one that ends before it begins, two that overlap, and bytes behind the last one.
            b"\xff\xff\x01\0",
            b"\xff\xff\x01\x01\x02\x01\0",
            b"\xff\xff\x01\x02\0\x05\0\x05\x06\0",
            b"\xff\xff\x01\x01\0\x01\0\0",
        ];
        for bytes in no_parts {
            assert_eq!(RetainedPlace::from_bytes(bytes), None, "{bytes:?}");
        }
        let sent = b"\xff\xff\x03\x02\x01\0";
        assert!(postcard::from_bytes::<RetainedPlace>(sent).is_err());
    }

    #[test]
    fn adjacent_parts_that_go_on_behind_the_same_cursor_are_one() {
        let joined = |list: &[RetainedPart]| {
            let parts = RetainedParts::new(list.to_vec());
            parts.map(|parts| parts.as_slice().to_vec())
        };
        assert_eq!(
            joined(&[part(0, 4, "a"), part(5, 7, "a"), part(8, 9, "b")]),
            Some(vec![part(0, 7, "a"), part(8, 9, "b")])
        );
        let apart = [part(0, 4, "a"), part(6, 7, "a")];
        assert_eq!(joined(&apart), Some(apart.to_vec()));
        assert_eq!(joined(&[]), None);
        assert_eq!(joined(&[part(5, 6, ""), part(0, 1, "")]), None);
    }
}
