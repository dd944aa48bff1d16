//! Connections that have sent no CONNECT yet, in the order in which they came.
//!
//! Invariant: there are places for so many. When they run out, the oldest connection of the address that has most of
//! them gives way, so an address may have all places as long as no other needs them, and whoever comes from another
//! address keeps one, however slow its link is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use net_api::{ConnectionId, PeerAddress};

use crate::stats::ClosedBeforeConnect;

/// Of a full list this share is closed at once, so that a flood does not go through all of it for each
/// connection.
const CLOSED_AT_ONCE: usize = 8;

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
            gone = self.give_way(too_many, address_of);
        }
        self.0.push_back(waiting);
        gone
    }

    fn give_way<A: Ord>(
        &mut self,
        too_many: usize,
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
        {
            if let Some(waiting) = self.0.get(place) {
                let why = if held > 1 {
                    ClosedBeforeConnect::Address
                } else {
                    ClosedBeforeConnect::Node
                };
                gone.push((waiting.connection, why));
                places_given.push(place);
            }
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
        let address = |waiting: &Waiting| (waiting.connection.slot % 2 == 0).then_some(());
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
