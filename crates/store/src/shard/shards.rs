//! The shards of one store: which there are, and which has a slot.
//!
//! The set grows while the node runs. As each slot belongs to exactly one shard, and the number of a shard says which is its first
//! slot, the set alone says which shard has a slot: the one with the last first slot that is not behind it.
//!
//! Invariants: shards stand in the order of their first slots; a shard that is here stays; whoever has loaded the set sees one
//! that does not change.
//!
//! Deliberately absent: the range of a shard, which it says itself (`store_state::Descriptor`).

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use store_state::NameHash;
use store_state::api::ShardNumber;
use tokio::sync::mpsc;

use crate::kinds::kind::Kind;
use crate::shard::handle::Shard;
use crate::storage::map::ShardMap;

/// The shards of one store.
pub(crate) struct Shards<M: Kind> {
    /// Those that the store began with.
    base: ShardMap,
    known: ArcSwap<KnownShards<M>>,
    /// Held while one is added.
    adding: Mutex<()>,
}

/// The shards of one store at a moment, of which there is at least one.
pub(crate) struct KnownShards<M: Kind> {
    shards: Box<[ShardPlace<M>]>,
    numbers: Arc<[ShardNumber]>,
}

/// A shard, and where its range begins.
pub(crate) struct ShardPlace<M: Kind> {
    pub(crate) shard: Arc<Shard<M>>,
    /// Tells its replica controller that a replica is wanted here.
    pub(crate) invite: mpsc::Sender<()>,
    first: FirstSlot,
}

/// The first slot of a shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FirstSlot(u16);

impl<M: Kind> Clone for ShardPlace<M> {
    fn clone(&self) -> Self {
        Self {
            shard: Arc::clone(&self.shard),
            invite: self.invite.clone(),
            first: self.first,
        }
    }
}

impl<M: Kind> Shards<M> {
    /// There is none yet: those that the store began with are to be added before a slot is looked up.
    pub(crate) fn new(base: ShardMap) -> Self {
        Self {
            base,
            known: ArcSwap::from_pointee(KnownShards::of(Vec::new())),
            adding: Mutex::new(()),
        }
    }

    /// Those that the store began with.
    pub(crate) fn base(&self) -> ShardMap {
        self.base
    }

    /// By what names are spread over the shards.
    pub(crate) fn hash(&self) -> NameHash {
        self.base.hash()
    }

    /// The shards as they are now. Cheap.
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<KnownShards<M>>> {
        self.known.load()
    }

    /// A shard, if it is known.
    pub(crate) fn get(&self, number: ShardNumber) -> Option<Arc<Shard<M>>> {
        let known = self.known.load();
        let place = known.get(number, self.base)?;
        Some(Arc::clone(&place.shard))
    }

    /// The number of the shard that has a slot.
    pub(crate) fn of_slot(&self, slot: u16) -> ShardNumber {
        self.known.load().of_slot(slot).shard.number
    }

    /// Adds a shard; false: it is here already. Costs a copy of the set.
    pub(crate) fn add(&self, shard: Arc<Shard<M>>, invite: mpsc::Sender<()>) -> bool {
        let _alone = self.adding.lock();
        let known = self.known.load();
        let first = FirstSlot(self.base.first_slot(shard.number));
        let place = known
            .shards
            .binary_search_by_key(&first, |place| place.first);
        if let Err(at) = place {
            let mut places = known.shards.to_vec();
            places.insert(
                at,
                ShardPlace {
                    shard,
                    invite,
                    first,
                },
            );
            self.known.store(Arc::new(KnownShards::of(places)));
        }
        place.is_err()
    }
}

impl<M: Kind> KnownShards<M> {
    fn of(places: Vec<ShardPlace<M>>) -> Self {
        let numbers = places.iter().map(|place| place.shard.number);
        Self {
            numbers: numbers.collect(),
            shards: places.into(),
        }
    }

    /// The shards, in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Shard<M>>> {
        self.shards.iter().map(|place| &place.shard)
    }

    /// Their numbers.
    pub(crate) fn numbers(&self) -> &Arc<[ShardNumber]> {
        &self.numbers
    }

    /// A shard of a store that began with `base`, if it is known.
    pub(crate) fn get(&self, number: ShardNumber, base: ShardMap) -> Option<&ShardPlace<M>> {
        let first = FirstSlot(base.first_slot(number));
        let at = self
            .shards
            .binary_search_by_key(&first, |place| place.first);
        let place = self.shards.get(at.ok()?)?;
        (place.shard.number == number).then_some(place)
    }

    /// The shard that has a slot.
    fn of_slot(&self, slot: u16) -> &ShardPlace<M> {
        let behind = self
            .shards
            .partition_point(|place| place.first <= FirstSlot(slot));
        let place = behind.checked_sub(1).and_then(|at| self.shards.get(at));
        place.expect("the shards that the store began with cover all slots")
    }
}

#[cfg(test)]
mod tests {
    use store_state::session::SessionMachine;

    use super::*;
    use crate::shard::routing::ShardRouting;

    fn shards(base: u16) -> Shards<SessionMachine> {
        let folder = tempfile::tempdir().unwrap();
        let map = ShardMap::open(folder.path(), base, NameHash::with_seed(3)).unwrap();
        let shards = Shards::new(map);
        for number in 0..base {
            assert!(add(&shards, number));
        }
        shards
    }

    fn add(shards: &Shards<SessionMachine>, number: ShardNumber) -> bool {
        let base = shards.base();
        let range = (number < base.len()).then(|| base.range(number));
        let shard = Shard::new(number, range, base.hash(), ShardRouting::new(1, None));
        shards.add(shard, mpsc::channel(1).0)
    }

    #[test]
    fn each_slot_has_the_shard_whose_range_holds_it() {
        for base in [1, 2, 3, 7, 100] {
            let shards = shards(base);
            for slot in 0..=u16::MAX {
                let number = shards.of_slot(slot);
                assert!(shards.base().range(number).contains(slot));
            }
            assert!(shards.load().numbers().iter().copied().eq(0..base));
        }
    }

    #[test]
    fn a_shard_that_a_split_has_made_takes_the_slots_from_its_number_on() {
        let shards = shards(3);
        let before = shards.load();
        for number in [60_000, 30_000, 65_534, 30_001] {
            assert!(shards.get(number).is_none());
            assert!(add(&shards, number));
            assert!(!add(&shards, number), "it is here already");
        }
        let of = [
            (0, 0),
            (21_844, 0),
            (21_845, 1),
            (29_999, 1),
            (30_000, 30_000),
            (30_001, 30_001),
            (43_689, 30_001),
            (43_690, 2),
            (59_999, 2),
            (65_533, 60_000),
            (65_535, 65_534),
        ];
        for (slot, number) in of {
            assert_eq!(shards.of_slot(slot), number, "slot {slot}");
        }
        assert_eq!(
            **shards.load().numbers(),
            [0, 1, 30_000, 30_001, 2, 60_000, 65_534]
        );
        assert_eq!(**before.numbers(), [0, 1, 2]);
        for number in [0, 1, 2, 30_000, 65_534] {
            assert_eq!(shards.get(number).unwrap().number, number);
        }
        // The first slot of another one is no number of a shard.
        assert!(shards.get(21_845).is_none() && shards.get(5).is_none());
    }

    #[test]
    fn threads_that_add_at_once_lose_nothing() {
        let shards = Arc::new(shards(1));
        let threads = (0..4_u16).map(|thread| {
            let shards = Arc::clone(&shards);
            std::thread::spawn(move || {
                let mut added = 0;
                for n in 1..100 {
                    // Two threads of four add the same.
                    let number = n * 4 + thread / 2;
                    added += u32::from(add(&shards, number));
                    assert_eq!(shards.of_slot(number), number);
                }
                added
            })
        });
        let threads: Vec<_> = threads.collect();
        let added = threads.into_iter().map(|thread| thread.join().unwrap());
        assert_eq!(added.sum::<u32>(), 2 * 99);
        let numbers = Arc::clone(shards.load().numbers());
        assert!(numbers.is_sorted() && numbers.len() == 1 + 2 * 99);
    }
}
