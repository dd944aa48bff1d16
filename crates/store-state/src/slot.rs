//! Hash slots: how client identifiers and topics are spread over the shards of a store.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::level::Level;

/// Slots of each store.
pub const SLOTS: u32 = 65_536;

/// The hash of names that replicas and nodes agree on: XXH3 with a seed, the same in all versions and on all
/// machines of a cluster. Who does not know the seed cannot choose names that all have the slots of one shard, or
/// the same hash.
///
/// The default is the seed 0, by which clusters go on that began when there was none. A seed is told to members of
/// the cluster only, and shows in no output.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct NameHash {
    seed: u64,
}

impl NameHash {
    /// By the seed of a cluster.
    #[must_use]
    pub const fn with_seed(seed: u64) -> Self {
        Self { seed }
    }

    /// The hash of a name.
    #[must_use]
    pub fn of(self, name: &str) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), self.seed)
    }

    /// The slot of a client identifier or topic name: the upper bits.
    #[must_use]
    pub fn slot_of(self, name: &str) -> u16 {
        (self.of(name) >> 48) as u16
    }
}

impl fmt::Debug for NameHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameHash")
    }
}

/// What one shard is responsible for: the names whose slots are in its range; and its level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slots {
    /// Its slots.
    pub range: SlotRange,
    /// Which slot a name has.
    pub hash: NameHash,
    /// What is written of it, and done with it.
    pub level: Level,
}

impl Slots {
    /// All names, by the seed 0, at the newest level.
    pub const ALL: Self = Self {
        range: SlotRange::ALL,
        hash: NameHash::with_seed(0),
        level: Level::NEWEST,
    };
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

    /// Whether all slots of another range are in this one.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
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
        let unseeded = NameHash::default();
        assert_eq!(unseeded.slot_of(""), 0x2d06);
        assert_eq!(
            unseeded.slot_of("client-1"),
            (xxhash_rust::xxh3::xxh3_64(b"client-1") >> 48) as u16
        );
    }

    /// An attacker who tries names on a cluster of his own finds nothing that holds for another one.
    #[test]
    fn names_of_one_slot_under_one_seed_are_spread_under_another() {
        let (own, other) = (NameHash::with_seed(1), NameHash::with_seed(2));
        let chosen: Vec<String> = (0..1_000_000)
            .map(|number| format!("c{number}"))
            .filter(|name| own.slot_of(name) < 1_024)
            .collect();
        let hits = chosen.iter().filter(|name| other.slot_of(name) < 1_024);
        // One in 64, give or take.
        let (hits, chosen) = (hits.count(), chosen.len());
        assert!(
            chosen > 10_000 && hits * 32 < chosen && hits * 128 > chosen,
            "{hits} of {chosen}"
        );
        assert!(!format!("{:?}", NameHash::with_seed(0xABCD)).contains(char::is_numeric));
    }
}
