//! Connections that have sent no CONNECT yet, in the order in which they came.
//!
//! Invariant: there are places for so many. When they run out, the oldest connection of the address that has most of
//! them gives way, so an address may have all places as long as no other needs them, and whoever comes from another
//! address keeps one, however slow its link is. Who has just come is left
//! alone, since its CONNECT may be there and nobody has looked yet: so many as [`JUST_COME`] may be beyond the places,
//! until the next one comes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use net_api::{ConnectionId, PeerAddress};

use crate::stats::ClosedBeforeConnect;

/// Of a full list this share is closed at once, so that a flood does not go through all of it for each
/// connection.
const CLOSED_AT_ONCE: usize = 8;

/// Connections that may be beyond the places because they have just come: those that a loop accepts at once.
const JUST_COME: usize = 256;

/// Connections in the order of their arrival. Those that have got further are dropped from it when it is
/// full.
#[derive(Default, Debug)]
pub(crate) struct AwaitingConnect(pub(super) VecDeque<Waiting>);

/// A connection whose CONNECT is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(super) connection: ConnectionId,
    /// Its peer when it came. Behind a proxy this is the proxy, until that says whom it connects for.
    pub(super) came_from: Option<PeerAddress>,
    /// When it came.
    pub(super) came_in: Turn,
}

/// The number of a turn of an event loop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Turn(pub(super) u64);

impl Turn {
    /// Whether what came in a turn has not been read in a later one, as far as this one knows.
    fn is_soon_after(self, came_in: Self) -> bool {
        self.0.saturating_sub(came_in.0) < 2
    }
}

impl AwaitingConnect {
    /// Takes a connection in. Returns those that are to be closed. `address_of`: what a connection counts as; `None`:
    /// nobody knows, and it counts alone.
    pub(super) fn push<A: Ord>(
        &mut self,
        waiting: Waiting,
        limit: usize,
        is_unheard: impl Fn(ConnectionId) -> bool,
        address_of: impl Fn(&Waiting) -> Option<A>,
    ) -> Vec<(ConnectionId, ClosedBeforeConnect)> {
        let mut gone = Vec::new();
        if self.0.len() >= limit {
            self.0.retain(|waiting| is_unheard(waiting.connection));
            let room = limit.div_ceil(CLOSED_AT_ONCE);
            let too_many = (self.0.len() + room).saturating_sub(limit);
            let spares_new = self.0.len() < limit.saturating_add(JUST_COME);
            let spared = |of: &Waiting| spares_new && waiting.came_in.is_soon_after(of.came_in);
            gone = self.give_way(too_many, spared, address_of);
        }
        self.0.push_back(waiting);
        gone
    }

    fn give_way<A: Ord>(
        &mut self,
        too_many: usize,
        spared: impl Fn(&Waiting) -> bool,
        address_of: impl Fn(&Waiting) -> Option<A>,
    ) -> Vec<(ConnectionId, ClosedBeforeConnect)> {
        if too_many == 0 {
            return Vec::new();
        }
        // Each address by the places of its connections in the list; the first is the oldest.
        let mut addresses: Vec<VecDeque<usize>> = Vec::new();
        let mut known = BTreeMap::new();
        for (place, waiting) in self.0.iter().enumerate() {
            let number = match address_of(waiting) {
                Some(address) => *known.entry(address).or_insert(addresses.len()),
                None => addresses.len(),
            };
            match addresses.get_mut(number) {
                Some(places) => places.push_back(place),
                None => addresses.push(VecDeque::from([place])),
            }
        }
        let rank = |places: VecDeque<usize>| {
            let oldest = places.front().copied();
            (places.len(), Reverse(oldest), places)
        };
        let mut by_number: BinaryHeap<_> = addresses.into_iter().map(rank).collect();
        let mut places_given = Vec::new();
        let mut gone = Vec::new();
        while gone.len() < too_many
            && let Some((held, _, mut places)) = by_number.pop()
            && let Some(place) = places.pop_front()
            // Those of its address that came later have just come, too.
            && let Some(waiting) = self.0.get(place)
            && !spared(waiting)
        {
            let why = if held > 1 {
                ClosedBeforeConnect::Address
            } else {
                ClosedBeforeConnect::Node
            };
            gone.push((waiting.connection, why));
            places_given.push(place);
            by_number.push(rank(places));
        }
        places_given.sort_unstable();
        let mut given = places_given.into_iter().peekable();
        let mut place = 0;
        self.0.retain(|_| {
            let stays = given.next_if_eq(&place).is_none();
            place += 1;
            stays
        });
        gone
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn waiting(slot: u32) -> Waiting {
        Waiting {
            connection: ConnectionId {
                slot,
                generation: 0,
            },
            came_from: Some(PeerAddress::Unix),
            came_in: Turn(u64::from(2 * slot)),
        }
    }

    fn slots(gone: &[(ConnectionId, ClosedBeforeConnect)]) -> Vec<u32> {
        gone.iter().map(|(connection, _)| connection.slot).collect()
    }

    fn push(awaiting: &mut AwaitingConnect, slot: u32, limit: usize, addresses: u32) -> Vec<u32> {
        let address = |waiting: &Waiting| Some(waiting.connection.slot % addresses);
        slots(&awaiting.push(waiting(slot), limit, |_| true, address))
    }

    #[test]
    fn the_oldest_are_closed() {
        let mut awaiting = AwaitingConnect::default();
        for slot in 0..16 {
            assert!(push(&mut awaiting, slot, 16, 1).is_empty());
        }
        assert_eq!(push(&mut awaiting, 16, 16, 1), [0, 1]);
        assert!(push(&mut awaiting, 17, 16, 1).is_empty());
        assert_eq!(push(&mut awaiting, 18, 16, 1), [2, 3]);
    }

    #[test]
    fn the_address_with_most_gives_way() {
        let mut awaiting = AwaitingConnect::default();
        // One connection of address 0, and then only such of address 1.
        let address = |waiting: &Waiting| Some(waiting.connection.slot.min(1));
        for slot in 0..2_000 {
            for (gone, why) in awaiting.push(waiting(slot), 16, |_| true, address) {
                assert!(gone.slot > 0 && why == ClosedBeforeConnect::Address);
            }
        }
        assert!(awaiting.0.contains(&waiting(0)) && awaiting.0.contains(&waiting(1_999)));
    }

    #[test]
    fn addresses_with_as_many_give_way_by_age() {
        let mut awaiting = AwaitingConnect::default();
        for slot in 0..16 {
            push(&mut awaiting, slot, 16, 2);
        }
        assert_eq!(push(&mut awaiting, 16, 16, 2), [0, 1]);
    }

    #[test]
    fn whose_address_is_not_known_counts_alone() {
        let mut awaiting = AwaitingConnect::default();
        let address = |waiting: &Waiting| waiting.connection.slot.is_multiple_of(2).then_some(());
        for slot in 0..16 {
            awaiting.push(waiting(slot), 16, |_| true, address);
        }
        let gone = awaiting.push(waiting(16), 16, |_| true, address);
        assert_eq!(slots(&gone), [0, 2]);
        let alone = |_: &Waiting| None::<()>;
        for slot in 17..30 {
            awaiting.push(waiting(slot), 16, |_| true, alone);
        }
        let gone: Vec<_> = (30..34)
            .flat_map(|slot| awaiting.push(waiting(slot), 16, |_| true, alone))
            .collect();
        assert!(
            !gone.is_empty()
                && gone
                    .iter()
                    .all(|(_, why)| *why == ClosedBeforeConnect::Node)
        );
    }

    #[test]
    fn who_has_just_come_is_left_alone() {
        let mut awaiting = AwaitingConnect::default();
        let in_turn = |turn, slot| Waiting {
            came_in: Turn(turn),
            ..waiting(slot)
        };
        let address = |_: &Waiting| Some(());
        for slot in 0..200 {
            let gone = awaiting.push(in_turn(7, slot), 16, |_| true, address);
            assert!(gone.is_empty());
        }
        assert!(
            awaiting
                .push(in_turn(8, 300), 16, |_| true, address)
                .is_empty()
        );
        let gone = awaiting.push(in_turn(9, 301), 16, |_| true, address);
        assert_eq!(gone.len(), 201 + 2 - 16);
        assert!(awaiting.0.contains(&in_turn(8, 300)));
        for slot in 400..2_000 {
            awaiting.push(in_turn(9, slot), 16, |_| true, address);
            assert!(awaiting.0.len() <= 16 + JUST_COME);
        }
    }

    #[test]
    fn a_crowd_that_has_just_come_closes_nobody_else() {
        let mut awaiting = AwaitingConnect::default();
        let address = |waiting: &Waiting| Some(waiting.connection.slot.min(1));
        let in_turn = |turn, slot| Waiting {
            came_in: Turn(turn),
            ..waiting(slot)
        };
        for slot in 0..100 {
            let turn = if slot == 0 { 1 } else { 9 };
            let gone = awaiting.push(in_turn(turn, slot), 16, |_| true, address);
            assert!(gone.is_empty(), "{slot}");
        }
        let gone = awaiting.push(in_turn(11, 100), 16, |_| true, address);
        assert_eq!(gone.len(), 100 + 2 - 16);
        assert!(awaiting.0.contains(&in_turn(1, 0)));
    }

    #[test]
    fn who_was_heard_is_left_alone() {
        let mut awaiting = AwaitingConnect::default();
        for slot in 0..10_000 {
            let is_unheard = |connection: ConnectionId| connection.slot == 0;
            let gone = awaiting.push(waiting(slot), 16, is_unheard, |_| Some(()));
            assert!(gone.is_empty() && awaiting.0.len() <= 16);
        }
    }

    #[test]
    fn no_more_than_the_limit_stay_open() {
        for (limit, addresses) in (1..40).flat_map(|limit| [(limit, 1), (limit, 3), (limit, 999)]) {
            let (mut awaiting, mut open) = (AwaitingConnect::default(), HashSet::new());
            for slot in 0..200 {
                open.insert(slot);
                for gone in push(&mut awaiting, slot, limit, addresses) {
                    assert!(open.remove(&gone));
                }
                assert!(open.len() <= limit && open.contains(&slot), "{limit}");
                let listed: HashSet<_> = awaiting.0.iter().map(|of| of.connection.slot).collect();
                assert_eq!(listed, open);
            }
        }
    }
}
