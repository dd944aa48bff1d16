//! Which shards of a store a node may have something of when it starts.
//!
//! Deliberately absent: the shards that the store began with (`map.rs`); those that come while the node runs (`shard/shards.rs`).

use std::collections::BTreeMap;
use std::ops::Bound;

use store_state::SlotRange;
use store_state::api::ShardNumber;

use crate::kinds::group::shard_of_group;
use crate::kinds::kind::Kind;
use crate::storage::map::ShardMap;

/// The shards of a store that a node may have something of: those that it began with, and those that splits have made and that
/// have a group in the log here. A table alone is no shard's: a child is in the log before it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ShardLayout {
    /// By their first slots, of which the lowest is 0.
    by_first: BTreeMap<u16, ShardNumber>,
}

impl ShardLayout {
    pub(crate) fn new<M: Kind>(base: ShardMap, groups: &[u64]) -> Self {
        let groups = groups
            .iter()
            .filter_map(|group| shard_of_group(*group))
            .filter(|(store, _)| *store == M::STORE)
            .map(|(_, number)| number);
        let numbers = (0..base.len()).chain(groups);
        let mut by_first = BTreeMap::new();
        for number in numbers {
            // No split makes a shard with the first slot of another one: such a group is no shard's.
            by_first.entry(base.first_slot(number)).or_insert(number);
        }
        Self { by_first }
    }

    /// The shards, in the order of their slots.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = ShardNumber> + '_ {
        self.by_first.values().copied()
    }

    /// Whether splits have made one of them.
    pub(crate) fn has_children(&self, base: ShardMap) -> bool {
        self.numbers().any(|number| number >= base.len())
    }

    /// Whether it is one of them.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.numbers().any(|known| u64::from(known) == number)
    }

    /// The slots of a shard, if it and those behind it are all there are.
    pub(crate) fn range(&self, number: ShardNumber, base: ShardMap) -> SlotRange {
        let first = base.first_slot(number);
        let behind = (Bound::Excluded(first), Bound::Unbounded);
        let next = self.by_first.range(behind).next();
        let last = next.map_or(u16::MAX, |(next, _)| next - 1);
        SlotRange { first, last }
    }

    /// The shard that has a slot.
    pub(crate) fn of_slot(&self, slot: u16) -> ShardNumber {
        let last = self.by_first.range(..=slot).next_back();
        *last.expect("a shard begins with slot 0").1
    }
}

#[cfg(test)]
mod tests {
    use store_state::NameHash;
    use store_state::inbox::InboxMachine;
    use store_state::retain::RetainMachine;

    use super::*;
    use crate::kinds::group::group_of;

    fn base(shards: u32) -> ShardMap {
        ShardMap::of(shards, NameHash::with_seed(3))
    }

    #[test]
    fn a_layout_has_all_that_the_node_has_something_of() {
        let groups = [
            group_of::<InboxMachine>(1),
            group_of::<InboxMachine>(20_000),
            group_of::<InboxMachine>(40_000),
            group_of::<RetainMachine>(50_000),
        ];
        let layout = ShardLayout::new::<InboxMachine>(base(2), &groups);
        assert!(layout.numbers().eq([0, 20_000, 1, 40_000]));
        assert!(layout.has_children(base(2)));
        assert!(layout.has(40_000) && !layout.has(50_000) && !layout.has(65_536));
        let range = |number| {
            let SlotRange { first, last } = layout.range(number, base(2));
            (first, last)
        };
        assert_eq!(range(0), (0, 19_999));
        assert_eq!(range(20_000), (20_000, 32_767));
        assert_eq!(range(1), (32_768, 39_999));
        assert_eq!(range(40_000), (40_000, 65_535));
        for number in layout.numbers() {
            let (first, last) = range(number);
            assert_eq!([first, last].map(|slot| layout.of_slot(slot)), [number; 2]);
        }
        // Not a shard: another one has its first slot.
        let layout = ShardLayout::new::<InboxMachine>(base(2), &[group_of::<InboxMachine>(32_768)]);
        assert!(layout.numbers().eq([0, 1]));
        assert!(!layout.has_children(base(2)));
    }
}
