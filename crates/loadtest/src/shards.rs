//! The shards of a whole broker, from what each of its nodes tells.
//!
//! Invariant: a shard counts once, however many nodes keep a replica or know of it.
//!
//! Deliberately absent: how a node tells, which is the caller's.

use std::collections::BTreeSet;

use report::{ShardCount, Shards, SplitCount};

use crate::system::Reading;

/// A store's shards, as one node tells of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreShards {
    /// How many the node knows of, those that other nodes lead included.
    pub known: ShardCount,
    /// The numbers of those that it leads.
    pub led: BTreeSet<u16>,
    /// Splits that it has decided on by itself since it was started.
    pub splits: SplitCount,
}

/// All stores' shards, as one node tells of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeShards {
    /// Of sessions.
    pub session: StoreShards,
    /// Of inboxes.
    pub inbox: StoreShards,
    /// Of retained messages.
    pub retain: StoreShards,
}

impl NodeShards {
    /// The stores with their names, in the order to show.
    #[must_use]
    pub fn stores(&self) -> [(&'static str, &StoreShards); 3] {
        [
            ("session", &self.session),
            ("inbox", &self.inbox),
            ("retain", &self.retain),
        ]
    }

    /// The store of the name.
    #[must_use]
    pub fn store_mut(&mut self, name: &str) -> Option<&mut StoreShards> {
        match name {
            "session" => Some(&mut self.session),
            "inbox" => Some(&mut self.inbox),
            "retain" => Some(&mut self.retain),
            _ => None,
        }
    }

    fn splits(&self) -> u64 {
        self.stores().iter().map(|(_, store)| store.splits.0).sum()
    }
}

/// What the nodes have told so far.
#[derive(Clone, Debug, Default)]
pub struct ShardBook {
    /// By node, the splits that it told last; `None` before it tells for the first time.
    splits: Vec<Option<u64>>,
}

impl ShardBook {
    /// Counts the shards, and the splits since the last call that returned some. `None` if no node tells.
    /// `readings` has the nodes in the same order each time, `None` for one that cannot be read.
    ///
    /// Each node knows of all shards, so that those that answer stand in for one that is down.
    pub fn count(&mut self, readings: &[Option<Reading>]) -> Option<Shards> {
        self.splits.resize(readings.len(), None);
        let mut splits = 0;
        let mut told = Vec::new();
        let nodes = readings.iter().map(|r| r.as_ref()?.shards.as_ref());
        let telling = self.splits.iter_mut().zip(nodes);
        for (last, node) in telling.filter_map(|(last, node)| Some((last, node?))) {
            let now = node.splits();
            splits += match *last {
                None => 0,
                Some(before) if before <= now => now - before,
                // The node was started again, and counts from 0.
                Some(_) => now,
            };
            *last = Some(now);
            told.push(node);
        }
        let count = |of: fn(&NodeShards) -> &StoreShards| {
            let stores = || told.iter().map(|node| of(node));
            let led: BTreeSet<u16> = stores().flat_map(|store| &store.led).copied().collect();
            let known = stores().map(|store| store.known.0).max().unwrap_or(0);
            ShardCount(known.max(led.len() as u32))
        };
        (!told.is_empty()).then(|| Shards {
            session: count(|node| &node.session),
            inbox: count(|node| &node.inbox),
            retain: count(|node| &node.retain),
            splits: SplitCount(splits),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a node that knows of so many inbox shards and has made so many splits.
    fn reading(known: u32, led: &[u16], splits: u64) -> Option<Reading> {
        let inbox = StoreShards {
            known: ShardCount(known),
            led: led.iter().copied().collect(),
            splits: SplitCount(splits),
        };
        let shards = NodeShards {
            inbox,
            ..NodeShards::default()
        };
        Some(Reading {
            shards: Some(shards),
            ..Reading::default()
        })
    }

    fn inbox(shards: Option<Shards>) -> Option<(u32, u64)> {
        shards.map(|shards| (shards.inbox.0, shards.splits.0))
    }

    #[test]
    fn shards_count_once_and_splits_are_added() {
        let mut book = ShardBook::default();
        let first = [reading(2, &[0], 3), reading(2, &[1], 1)];
        assert_eq!(inbox(book.count(&first)), Some((2, 0)));
        assert_eq!(inbox(book.count(&first)), Some((2, 0)));
        // Two splits at once, of which each node knows its own only.
        let split = [reading(3, &[0, 900], 4), reading(3, &[1, 800], 2)];
        assert_eq!(inbox(book.count(&split)), Some((4, 2)));
        // While a leader changes, no node names the shard.
        let led_by_none = [reading(4, &[0, 900], 4), reading(4, &[], 2)];
        assert_eq!(inbox(book.count(&led_by_none)), Some((4, 0)));
    }

    #[test]
    fn a_node_that_is_down_or_started_again_hides_no_shards_and_repeats_no_splits() {
        let mut book = ShardBook::default();
        book.count(&[reading(2, &[0], 5), reading(2, &[1], 2)]);
        let one_down = [None, reading(3, &[0, 1, 7], 3)];
        assert_eq!(inbox(book.count(&one_down)), Some((3, 1)));
        assert_eq!(inbox(book.count(&[None, None])), None);
        let again = [reading(3, &[], 1), reading(3, &[0, 1, 7], 3)];
        assert_eq!(inbox(book.count(&again)), Some((3, 1)));
    }

    #[test]
    fn a_process_that_tells_of_no_shards_has_none() {
        let mut book = ShardBook::default();
        assert_eq!(book.count(&[Some(Reading::default())]), None);
        assert_eq!(book.count(&[]), None);
        let beside = [Some(Reading::default()), reading(1, &[0], 0)];
        assert_eq!(inbox(book.count(&beside)), Some((1, 0)));
    }
}
