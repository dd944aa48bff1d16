//! Shards whose leader has changed: a loop visits all its clients for them, a part in each turn.
//!
//! The walk goes around the slots of the loop's clients. A change is done when the walk has been all the way around since
//! the change. So each client is visited once after the last change of its shard, however many changes come, and shards
//! that change one after the other share the visits.
//!
//! | state | input | then |
//! |---|---|---|
//! | idle | a leader changes | under way from the current slot, until the walk is back there |
//! | under way | the leader of another shard changes | that change too is done when the walk is back at the current slot |
//! | under way | the leader of the same shard changes | that change begins again at the current slot |
//! | under way | the next slots are asked for | those behind the current one; behind the last one, the first |
//! | under way | the walk has been around for all changes | idle |
//!
//! Slots that are added meanwhile have clients that came after the changes. They have asked the new leader by themselves;
//! a visit to them changes nothing.
//!
//! Invariant: there are at most as many changes as there are shards.
//!
//! Deliberately absent: what a visit does (`mod.rs`).

use std::collections::BTreeMap;
use std::ops::Range;

use store_state::api::ShardNumber;

/// Slots that are asked for at once: a page of the arena.
pub(super) const SLOTS: u32 = 64;

/// Another node leads a shard, or one leads it anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LeaderChange {
    /// An inbox shard: it knows no cursors of sessions.
    OfInboxes(ShardNumber),
    /// A session shard: its directory knows no clients.
    OfSessions(ShardNumber),
}

/// How far the walk is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Position {
    lap: Lap,
    slot: Slot,
}

/// How often the walk has been at the first slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Lap(u64);

/// The next slot to visit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Slot(u32);

/// The walk around the clients of a loop.
#[derive(Debug, Default)]
pub(super) struct Walk {
    position: Position,
    /// Where the walk has been all the way around for a change.
    ends: BTreeMap<LeaderChange, Position>,
}

impl Walk {
    /// A leader has changed. Whether the walk begins by that: it was idle.
    pub(super) fn handle_change(&mut self, change: LeaderChange) -> bool {
        let begins = !self.is_under_way();
        let Position {
            lap: Lap(lap),
            slot,
        } = self.position;
        let lap = Lap(lap + 1);
        self.ends.insert(change, Position { lap, slot });
        begins
    }

    /// The slots that are to be visited next, of as many as there are. `None`: the walk is idle.
    pub(super) fn handle_next(&mut self, slots: u32) -> Option<Range<u32>> {
        self.ends.retain(|_, end| *end > self.position);
        if self.ends.is_empty() {
            return None;
        }
        let Position {
            lap: Lap(lap),
            slot: Slot(slot),
        } = self.position;
        let end = slot.saturating_add(SLOTS).min(slots);
        self.position = if end < slots {
            Position {
                lap: Lap(lap),
                slot: Slot(end),
            }
        } else {
            Position {
                lap: Lap(lap + 1),
                slot: Slot(0),
            }
        };
        Some(slot..end)
    }

    /// Whether the slots that were asked for last are visited for a change.
    pub(super) fn is_visited_for(&self, change: LeaderChange) -> bool {
        self.ends.contains_key(&change)
    }

    /// Whether there are slots left to visit.
    pub(super) fn is_under_way(&self) -> bool {
        self.ends.values().any(|end| *end > self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LeaderChange = LeaderChange::OfInboxes(3);
    const B: LeaderChange = LeaderChange::OfSessions(3);

    /// Visits so many parts; the slots that are visited for a change.
    fn visit(walk: &mut Walk, change: LeaderChange, slots: u32, parts: usize) -> Vec<u32> {
        let mut visited = Vec::new();
        for _ in 0..parts {
            let Some(part) = walk.handle_next(slots) else {
                assert!(!walk.is_under_way());
                break;
            };
            assert!(part.len() <= SLOTS as usize);
            if walk.is_visited_for(change) {
                visited.extend(part);
            }
        }
        visited
    }

    #[test]
    fn all_slots_are_visited_once() {
        for slots in [0, 1, SLOTS - 1, SLOTS, SLOTS + 1, 10 * SLOTS, 1_000] {
            let mut walk = Walk::default();
            // Wherever it begins.
            for _ in 0..2 {
                assert!(walk.handle_change(A));
                let visited = visit(&mut walk, A, slots, usize::MAX);
                assert!(visited.into_iter().eq(0..slots), "{slots}");
                assert!(!walk.is_under_way());
                assert!(!walk.is_visited_for(A));
            }
        }
    }

    #[test]
    fn a_change_of_the_same_shard_begins_again_where_the_walk_is() {
        let mut walk = Walk::default();
        assert!(walk.handle_change(A));
        let slots = 5 * SLOTS;
        assert!(visit(&mut walk, A, slots, 2).into_iter().eq(0..2 * SLOTS));
        assert!(!walk.handle_change(A));
        let visited = visit(&mut walk, A, slots, usize::MAX);
        let expected = (2 * SLOTS..slots).chain(0..2 * SLOTS);
        assert!(visited.into_iter().eq(expected));
    }

    #[test]
    fn a_change_of_another_shard_is_done_in_the_same_walk() {
        let mut walk = Walk::default();
        let slots = 5 * SLOTS;
        assert!(walk.handle_change(A));
        visit(&mut walk, A, slots, 2);
        assert!(!walk.handle_change(B));
        let visited = visit(&mut walk, B, slots, 3);
        assert!(visited.into_iter().eq(2 * SLOTS..slots));
        // The first change is done, and not visited for any more.
        assert!(walk.is_under_way());
        assert_eq!(visit(&mut walk, A, slots, 1), [0; 0]);
        let visited = visit(&mut walk, B, slots, usize::MAX);
        assert!(visited.into_iter().eq(SLOTS..2 * SLOTS));
        assert!(walk.handle_change(B));
    }

    #[test]
    fn changes_that_never_cease_keep_nobody_waiting() {
        let mut walk = Walk::default();
        let slots = 3 * SLOTS;
        let mut visited = Vec::new();
        for _ in 0..3 {
            walk.handle_change(A);
            visited.extend(visit(&mut walk, A, slots, 1));
        }
        assert!(visited.into_iter().eq(0..slots));
    }

    #[test]
    fn slots_that_are_added_meanwhile_leave_out_none_of_the_others() {
        let mut walk = Walk::default();
        walk.handle_change(A);
        visit(&mut walk, A, 4 * SLOTS, 2);
        walk.handle_change(A);
        let mut visited = visit(&mut walk, A, 8 * SLOTS, 3);
        visited.extend(visit(&mut walk, A, 9 * SLOTS, usize::MAX));
        visited.sort_unstable();
        assert!(visited.into_iter().eq(0..9 * SLOTS));
    }
}
