//! Questions for retained messages.

use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};
use serde::{Deserialize, Serialize};
use store_state::Ticket;
use store_state::retain::PageBudget;
use topic_router::Cursor;

use crate::ShardNumber;

/// A place in the retained messages that a filter selects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RetainedPlace {
    pub(crate) shard: ShardNumber,
    /// The cursor within the shard; empty: its first message.
    pub(crate) cursor: Vec<u8>,
}

impl RetainedPlace {
    /// The first message of a shard.
    pub(crate) fn first_of(shard: ShardNumber) -> Self {
        Self {
            shard,
            cursor: Vec::new(),
        }
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

    pub(crate) fn cursor(&self) -> Option<Cursor> {
        (!self.cursor.is_empty()).then(|| Cursor::from_bytes(&self.cursor))
    }
}

/// What had been given to the retain store by a moment, by shard.
#[derive(Clone, Debug)]
pub struct RetainMark(pub(crate) Vec<u64>);

/// A page, and where the shard goes on with the next one.
pub(crate) type Page = (Vec<Arc<ApplicationMessage>>, Option<Cursor>);

/// What a shard is asked for.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    pub(crate) ticket: Ticket,
    pub(crate) wanted: Wanted,
}

/// A page of retained messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) filter: Box<str>,
    pub(crate) place: RetainedPlace,
    /// The last shard that can have messages of the filter.
    pub(crate) last_shard: ShardNumber,
    /// Messages at most.
    pub(crate) limit: u32,
    /// Unix time in ms.
    pub(crate) now_ms: u64,
}

/// Bytes of messages on a page that another node may be sent; the last message may exceed them.
const PAGE_BYTES: usize = 256 * 1024;

/// What the thread of a shard does at once to find messages: a quarter of a millisecond.
const PAGE_WORK: usize = 4096;

impl Wanted {
    /// What the page may hold and cost.
    pub(crate) fn budget(&self) -> PageBudget {
        PageBudget {
            messages: self.limit as usize,
            bytes: PAGE_BYTES,
            work: PAGE_WORK,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.now_ms)
    }

    /// Where to go on when the shard has said where it goes on.
    pub(crate) fn next(&self, cursor: Option<Cursor>) -> Option<RetainedPlace> {
        let shard = self.place.shard;
        match cursor {
            Some(cursor) => Some(RetainedPlace {
                shard,
                cursor: cursor.as_bytes().to_vec(),
            }),
            None => (shard < self.last_shard).then(|| RetainedPlace::first_of(shard + 1)),
        }
    }
}
