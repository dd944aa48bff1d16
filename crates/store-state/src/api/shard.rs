//! How shards are named.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A shard's number within its store.
pub type ShardNumber = u16;

/// A hash slot of a store: which shard has it changes when shards are split, and it does not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
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

    /// These shards without those that `is_kept` leaves out, whose slots go to the one before; the first one stays. The
    /// same object if none is left out.
    #[must_use]
    pub fn only(&self, is_kept: impl Fn(ShardNumber) -> bool) -> Self {
        let mut kept: Vec<ShardRef> = Vec::with_capacity(self.0.len());
        for shard in self.0.iter() {
            match kept.last_mut() {
                Some(before) if !is_kept(shard.number) => before.last = shard.last,
                _ => kept.push(*shard),
            }
        }
        if kept.len() == self.0.len() {
            return self.clone();
        }
        Self(kept.into())
    }

    /// Whether a shard is among these, with the same last slot.
    #[must_use]
    pub fn has(&self, shard: ShardRef) -> bool {
        self.of_slot(Slot(shard.last)) == Some(shard)
    }

    /// Whether a shard of this number is among these.
    #[must_use]
    pub fn has_number(&self, number: ShardNumber) -> bool {
        let known = self.of_number(number);
        known.is_some_and(|shard| shard.number == number)
    }

    /// A shard of this number; if none is known, the one that its first slot is counted to: a shard that was split off has
    /// the number of its first slot.
    #[must_use]
    pub fn of_number(&self, number: ShardNumber) -> Option<ShardRef> {
        let by_slot = self.of_slot(Slot(number));
        if by_slot.is_some_and(|shard| shard.number == number) {
            return by_slot;
        }
        let known = self.0.iter().find(|shard| shard.number == number);
        known.copied().or(by_slot)
    }

    /// The shards that another one was split off: those before one that begins with the slot of its number. A store begins
    /// with shards that do not, but for the first.
    pub fn split(&self) -> impl Iterator<Item = ShardRef> + '_ {
        self.0.windows(2).filter_map(|pair| match pair {
            [shard, next] => (shard.last.checked_add(1) == Some(next.number)).then_some(*shard),
            _ => None,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(refs: &[(ShardNumber, u16)]) -> ShardRefs {
        let to_ref = |&(number, last)| ShardRef { number, last };
        refs.iter().map(to_ref).collect()
    }

    /// A store that began with two shards, of which both were split.
    fn four() -> ShardRefs {
        shards(&[(0, 99), (100, 32_767), (1, 39_999), (40_000, u16::MAX)])
    }

    #[test]
    fn who_is_left_out_counts_to_the_one_before() {
        let all = four();
        assert!(all.only(|_| true).is_same(&all));
        let left = all.only(|shard| shard != 100);
        assert_eq!(
            left,
            shards(&[(0, 32_767), (1, 39_999), (40_000, u16::MAX)])
        );
        assert_eq!(
            all.only(|_| false),
            shards(&[(0, u16::MAX)]),
            "the first stays"
        );
        let of = |number| left.of_number(number).map(|shard| shard.number);
        assert_eq!(
            [0, 100, 1, 40_000].map(of),
            [Some(0), Some(0), Some(1), Some(40_000)]
        );
        assert!(left.has_number(1) && !left.has_number(100));
        assert_eq!([0, 1].map(|at| left.has(all[at])), [false, false]);
        assert_eq!([2, 3].map(|at| left.has(all[at])), [true, true]);
    }

    #[test]
    fn a_child_begins_with_the_slot_of_its_number() {
        let all = four();
        assert!(all.split().eq([all[0], all[2]]));
        assert_eq!(shards(&[(0, 32_767), (1, u16::MAX)]).split().count(), 0);
    }
}
