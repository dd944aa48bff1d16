//! Hash slots: how client identifiers and topics are spread over the shards of a store.

use serde::{Deserialize, Serialize};

/// Slots of each store.
pub const SLOTS: u32 = 65_536;

/// The slot of a client identifier or topic name. The same in all versions and on all machines: the
/// upper bits of XXH3.
#[must_use]
pub fn slot_of(name: &str) -> u16 {
    (xxhash_rust::xxh3::xxh3_64(name.as_bytes()) >> 48) as u16
}

/// A contiguous range of slots: what one shard is responsible for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SlotRange {
    /// The first slot.
    pub first: u16,
    /// The last slot; not below the first.
    pub last: u16,
}

impl SlotRange {
    /// All slots.
    pub const ALL: Self = Self {
        first: 0,
        last: u16::MAX,
    };

    /// Whether a slot is in the range.
    #[must_use]
    pub const fn contains(self, slot: u16) -> bool {
        self.first <= slot && slot <= self.last
    }

    /// The `index`-th of `count` parts of equal size, or as equal as can be.
    ///
    /// # Panics
    /// `index` is not below `count`, or there are more parts than slots.
    #[must_use]
    pub fn part(index: u32, count: u32) -> Self {
        assert!(index < count && count <= SLOTS, "part {index} of {count}");
        let bound = |index: u32| (u64::from(index) * u64::from(SLOTS) / u64::from(count)) as u32;
        Self {
            first: bound(index) as u16,
            last: (bound(index + 1) - 1) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_slots_once() {
        for count in [1, 2, 3, 7, 64, 1000, SLOTS] {
            let mut next = 0;
            for index in 0..count {
                let part = SlotRange::part(index, count);
                assert_eq!(u32::from(part.first), next);
                next = u32::from(part.last) + 1;
            }
            assert_eq!(next, SLOTS);
        }
    }

    #[test]
    fn slots_do_not_change_between_versions() {
        assert_eq!(slot_of(""), 0x2d06);
        assert_eq!(
            slot_of("client-1"),
            (xxhash_rust::xxh3::xxh3_64(b"client-1") >> 48) as u16
        );
    }
}
