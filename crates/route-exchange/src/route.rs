//! What routes are.

use serde::{Deserialize, Serialize};

/// A node.
pub type NodeId = u64;

/// An inbox shard.
pub type ShardNumber = u16;

/// What a route is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Key {
    /// Sessions that are connected to the owner and subscribe to this filter.
    Filter(Box<str>),
    /// Sessions that are connected to the owner and in this shared group, named as in SUBSCRIBE.
    Group(Box<str>),
    /// The owner leads this inbox shard.
    Lead(ShardNumber),
    /// Sessions of an inbox shard that the owner leads, and a filter that they subscribe to.
    ShardFilter(ShardNumber, Box<str>),
    /// A session of an inbox shard that the owner leads, by its client identifier, and the shared group that
    /// it is in.
    Member(ShardNumber, Box<str>, Box<str>),
    /// What a shard that the owner leads, and that was split, is responsible for.
    Range(ShardNumber),
}

/// What a route says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Value {
    /// Of a filter. `all`: messages of each QoS are wanted; else those of QoS 0 only, because inboxes get the
    /// others.
    Sessions {
        /// See above.
        all: bool,
    },
    /// Of a group.
    Group {
        /// How many members have room for more messages, roughly.
        room: u32,
    },
    /// Of a lead. Another term, or none, ends all routes of the shard that this owner told before.
    Lead {
        /// The highest one wins.
        term: u64,
        /// All routes of the shard have been told.
        complete: bool,
    },
    /// Of a shard's filter.
    Shard {
        /// Sessions that are not connected are among those that subscribe.
        detached: bool,
    },
    /// Of a member.
    Member {
        /// The options byte of the subscription.
        options: u8,
        /// The subscription identifier; 0: none.
        id: u32,
    },
    /// Of a shard that was split. The shards that were split off it begin behind `last`, and are told of by their own
    /// leaders.
    Range {
        /// The last slot that the shard has.
        last: u16,
        /// What the owner tells of the shard still goes for these slots, too: as of the split. Whoever had all routes of
        /// the shard before may go by them until somebody leads the next one.
        covers: bool,
    },
}

impl Key {
    /// Whether a value is one for this key.
    pub(crate) fn takes(&self, value: &Value) -> bool {
        matches!(
            (self, value),
            (Self::Filter(_), Value::Sessions { .. })
                | (Self::Group(_), Value::Group { .. })
                | (Self::Lead(_), Value::Lead { .. })
                | (Self::ShardFilter(..), Value::Shard { .. })
                | (Self::Member(..), Value::Member { .. })
                | (Self::Range(_), Value::Range { .. })
        )
    }

    /// Bytes on the wire, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let text = match self {
            Self::Filter(text) | Self::Group(text) | Self::ShardFilter(_, text) => text.len(),
            Self::Lead(_) | Self::Range(_) => 0,
            Self::Member(_, client, filter) => client.len() + filter.len(),
        };
        text + 16
    }

    /// Where the routes of a shard are, in the order of keys: from each first to before its second.
    pub(crate) fn of_shard(shard: ShardNumber) -> [(Self, Self); 2] {
        let filters = |from| Self::ShardFilter(from, "".into());
        let members = |from| Self::Member(from, "".into(), "".into());
        match shard.checked_add(1) {
            Some(next) => [
                (filters(shard), filters(next)),
                (members(shard), members(next)),
            ],
            // There are fewer shards than numbers; the last number is none.
            None => [
                (filters(shard), filters(shard)),
                (members(shard), members(shard)),
            ],
        }
    }
}
