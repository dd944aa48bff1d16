//! How shards are named.

use std::ops::Deref;
use std::sync::Arc;

/// A shard's number within its store.
pub type ShardNumber = u16;

/// A hash slot of a store: which shard has it changes when shards are split, and it does not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u16);

/// All shards of a store as they were known at a moment, in the order of their slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardRefs(Arc<[ShardRef]>);

impl Default for ShardRefs {
    /// Nothing is known of any.
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl FromIterator<ShardRef> for ShardRefs {
    fn from_iter<I: IntoIterator<Item = ShardRef>>(shards: I) -> Self {
        Self(shards.into_iter().collect())
    }
}

impl Deref for ShardRefs {
    type Target = [ShardRef];

    fn deref(&self) -> &[ShardRef] {
        &self.0
    }
}

impl ShardRefs {
    /// Whether these are the same, without a look at each.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The shard that has a slot, if any is known.
    #[must_use]
    pub fn of_slot(&self, slot: Slot) -> Option<ShardRef> {
        let at = self.0.partition_point(|shard| shard.last < slot.0);
        self.0.get(at).copied()
    }
}

/// A shard as it was known when a request was routed to it: its number, and the last of its slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardRef {
    /// The number.
    pub number: ShardNumber,
    /// The last slot that it was known to have.
    pub last: ShardNumber,
}
