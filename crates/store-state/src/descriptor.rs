//! What a shard is responsible for, as its own log says.
//!
//! Purpose: the descriptor of a shard is a part of its state: each split changes it, and nothing else does. What nodes know of it
//! elsewhere is a hint.
//!
//! Invariants: at each version of all of them, the ranges of the shards of a store cover every slot once; a range only gets
//! narrower; a version grows by one at each split.
//!
//! Deliberately absent: leaders, replicas, and where the tables of a shard are.

use serde::{Deserialize, Serialize};

use crate::api::shard::ShardNumber;
use crate::load_error::LoadError;
use crate::row::{damaged, decode_with, encode};
use crate::slot::SlotRange;
use crate::table::Table;

/// The key of the row of a shard's tables that holds the descriptor. Shards that have never been split, and that no split has
/// made, have no such row.
pub const DESCRIPTOR_KEY: &[u8] = b"D";

/// What stands behind the descriptor in the row of a shard that has begun the control store.
const BEGUN: u8 = 1;

/// How often the range of a shard has changed, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShardVersion(pub u64);

impl ShardVersion {
    /// That of a shard that has never been split, and that no split has made.
    pub const FIRST: Self = Self(1);

    /// The one after a split.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What a shard is responsible for, and what it has given away.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its slots.
    pub range: SlotRange,
    /// The version of the shard.
    pub version: ShardVersion,
    /// The shards that splits have made of parts of it, in the order of the splits.
    pub births: Vec<ShardBirth>,
    /// An entry of this shard has begun the control store. Only the first shard of the session store begins it. The row says it
    /// behind what programs wrote that did not know it.
    #[serde(skip)]
    pub has_begun_control: bool,
}

/// A split has made a shard out of the upper part of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardBirth {
    /// The version that the parent has since, and that the child began with.
    pub version: ShardVersion,
    /// The child.
    pub child: ChildShard,
}

/// The number of a shard that a split has made: its first slot. So two splits never choose the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChildShard(pub ShardNumber);

impl Descriptor {
    /// Of a shard that has never been split, and that no split has made.
    #[must_use]
    pub fn first(range: SlotRange) -> Self {
        Self {
            range,
            version: ShardVersion::FIRST,
            births: Vec::new(),
            has_begun_control: false,
        }
    }

    /// Whether the shard can be split at this slot, which would be the first of the child. No shard has the last slot for its
    /// number.
    #[must_use]
    pub fn can_split_at(&self, at: u16) -> bool {
        self.range.first < at && at <= self.range.last && at < u16::MAX
    }

    /// Gives the slots from `at` on away; returns the descriptor of the child.
    ///
    /// # Panics
    /// The shard cannot be split there.
    #[must_use]
    pub fn split_off(&mut self, at: u16) -> Self {
        assert!(self.can_split_at(at), "slot {at} of {:?}", self.range);
        let version = self.version.next();
        let child = Self {
            range: SlotRange {
                first: at,
                last: self.range.last,
            },
            version,
            births: Vec::new(),
            has_begun_control: false,
        };
        self.range.last = at - 1;
        self.version = version;
        self.births.push(ShardBirth {
            version,
            child: ChildShard(at),
        });
        child
    }

    /// The shards that were made of parts of this one since a version.
    pub fn births_since(&self, version: ShardVersion) -> impl Iterator<Item = ShardBirth> + '_ {
        let is_later = move |birth: &ShardBirth| birth.version > version;
        self.births.iter().copied().filter(is_later)
    }

    /// The row of the tables.
    #[must_use]
    pub fn to_row(&self) -> Vec<u8> {
        let mut row = encode(self);
        if self.has_begun_control {
            row.push(BEGUN);
        }
        row
    }

    /// The descriptor that the tables of a shard hold; `None`: they hold none.
    ///
    /// # Errors
    /// The tables cannot be read, or hold what this version does not understand.
    pub fn of_table(table: &dyn Table) -> Result<Option<Self>, LoadError> {
        let row = table.get(DESCRIPTOR_KEY)?;
        row.map(|row| Self::of_row(&row)).transpose()
    }

    /// The descriptor that a row holds.
    ///
    /// # Errors
    /// It is not one that this version understands.
    pub fn of_row(row: &[u8]) -> Result<Self, LoadError> {
        let (mut descriptor, begun): (Self, Option<u8>) = decode_with(DESCRIPTOR_KEY, row)?;
        descriptor.has_begun_control = match begun {
            None => false,
            Some(BEGUN) => true,
            Some(other) => {
                let what = format!("what it has begun is {other}");
                return Err(damaged(DESCRIPTOR_KEY, &what));
            }
        };
        let SlotRange { first, last } = descriptor.range;
        if first > last {
            let what = format!("its range is {first} to {last}");
            return Err(damaged(DESCRIPTOR_KEY, &what));
        }
        Ok(descriptor)
    }

    /// The tables of a shard that a split has made do not say which slots it has.
    #[must_use]
    pub fn missing() -> LoadError {
        damaged(
            DESCRIPTOR_KEY,
            "it is missing, and a split has made the shard",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Changes;
    use crate::test_table::TestTable;

    fn slots(first: u16, last: u16) -> SlotRange {
        SlotRange { first, last }
    }

    #[test]
    fn a_split_leaves_two_ranges_that_cover_the_old_one() {
        let mut parent = Descriptor::first(SlotRange::ALL);
        let can = [0, 1, 65_534, 65_535].map(|at| parent.can_split_at(at));
        assert_eq!(can, [false, true, true, false]);
        let mut child = parent.split_off(4_096);
        let grandchild = child.split_off(65_534);
        let second = parent.split_off(1);
        assert_eq!(
            [&parent, &second, &child, &grandchild].map(|half| half.range),
            [
                slots(0, 0),
                slots(1, 4_095),
                slots(4_096, 65_533),
                slots(65_534, 65_535)
            ]
        );
        assert_eq!(
            [&parent, &second, &child, &grandchild].map(|half| half.version.0),
            [3, 3, 3, 3]
        );
        let children = |version| {
            let births = parent.births_since(ShardVersion(version));
            births.map(|birth| birth.child.0).collect::<Vec<_>>()
        };
        assert_eq!(children(1), [4_096, 1]);
        assert_eq!(children(2), [1]);
        assert_eq!(children(3), [0; 0]);
        assert!(!parent.can_split_at(0) && !grandchild.can_split_at(65_535));
    }

    /// Disks hold these bytes.
    #[test]
    fn a_row_is_read_as_it_was_written() {
        let mut parent = Descriptor::first(SlotRange::ALL);
        let child = parent.split_off(300);
        assert_eq!(parent.to_row(), [1, 0, 0xab, 2, 2, 1, 2, 0xac, 2]);
        assert_eq!(child.to_row(), [1, 0xac, 2, 0xff, 0xff, 3, 2, 0]);
        let mut table = TestTable::default();
        assert_eq!(Descriptor::of_table(&table), Ok(None));
        let mut changes = Changes::default();
        changes.put(DESCRIPTOR_KEY.to_vec(), parent.to_row());
        table.write(&changes);
        assert_eq!(Descriptor::of_table(&table), Ok(Some(parent.clone())));
        parent.has_begun_control = true;
        assert_eq!(parent.to_row(), [1, 0, 0xab, 2, 2, 1, 2, 0xac, 2, 1]);
        assert_eq!(Descriptor::of_row(&parent.to_row()), Ok(parent));
        for wrong in [
            &[][..],
            &[1, 5, 4, 2, 0],
            &[1, 0, 1, 2, 0, 0],
            &[1, 0, 1, 2, 0, 1, 1],
        ] {
            table.rows.insert(DESCRIPTOR_KEY.to_vec(), wrong.to_vec());
            assert!(matches!(
                Descriptor::of_table(&table),
                Err(LoadError::Damaged { .. })
            ));
        }
    }
}
