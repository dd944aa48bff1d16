//! Which shards a store begins with.
//!
//! A store begins with as many shards as its settings say, of equal size. How many that were is written
//! down at the first start: afterwards the setting has no effect on what exists.
//!
//! Deliberately absent: the shards that splits have made of these; which shard has a slot (`shard/shards.rs`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::ops::Bound;
use std::path::Path;

use store_state::api::ShardNumber;
use store_state::{NameHash, SLOTS, SlotRange};

use crate::kinds::group::shard_of_group;
use crate::kinds::kind::Kind;
use crate::storage::folder::create;

/// The file that says how many shards a store was made with.
const FILE: &str = "SHARDS";

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

/// The shards of one store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShardMap {
    shards: u32,
    hash: NameHash,
}

impl ShardMap {
    /// The map that is written down in the store's folder, or a new one of `initial` shards.
    ///
    /// # Errors
    /// The file cannot be read or written, or says something else than a number of shards.
    pub(crate) fn open(folder: &Path, initial: u16, hash: NameHash) -> io::Result<Self> {
        if let Some(map) = Self::read(folder, hash)? {
            return Ok(map);
        }
        let path = folder.join(FILE);
        let shards = u32::from(initial.max(1));
        let temporary = path.with_extension("new");
        let mut file = create(&temporary)?;
        writeln!(file, "{shards}")?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        fs::File::open(folder)?.sync_all()?;
        Ok(Self { shards, hash })
    }

    /// The map that is written down in the store's folder, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or says something else than a number of shards.
    pub(crate) fn read(folder: &Path, hash: NameHash) -> io::Result<Option<Self>> {
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let shards = text.trim().parse().ok().filter(|n| (1..=SLOTS).contains(n));
        let shards = shards.ok_or_else(|| {
            let what = format!("{} is no number of shards", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        Ok(Some(Self { shards, hash }))
    }

    /// By what names are spread over the shards.
    pub(crate) fn hash(self) -> NameHash {
        self.hash
    }

    pub(crate) fn len(self) -> u16 {
        self.shards as u16
    }

    pub(crate) fn range(self, shard: ShardNumber) -> SlotRange {
        SlotRange::part(u32::from(shard), self.shards)
    }

    /// The range of a shard, if the store began with it.
    pub(crate) fn range_of(self, shard: ShardNumber) -> Option<SlotRange> {
        (u32::from(shard) < self.shards).then(|| self.range(shard))
    }

    /// The first slot of a shard: one that the store began with, or one that a split has made, whose number it is.
    pub(crate) fn first_slot(self, shard: ShardNumber) -> u16 {
        if u32::from(shard) < self.shards {
            self.range(shard).first
        } else {
            shard
        }
    }
}

#[cfg(test)]
mod tests {
    use store_state::inbox::InboxMachine;
    use store_state::retain::RetainMachine;

    use super::*;
    use crate::kinds::group::group_of;

    fn base(shards: u32) -> ShardMap {
        ShardMap {
            shards,
            hash: NameHash::with_seed(3),
        }
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
    }
}
