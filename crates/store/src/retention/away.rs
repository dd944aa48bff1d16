//! Members of shared groups that are away for so long that what waits for them goes to others.
//!
//! Purpose: of the queues that a look tells of, find those whose sessions are members and away for longer than is allowed, and
//! remember how far each was looked through, so that messages which stay there are looked at once.
//!
//! | A queue is told of | Then |
//! |---|---|
//! | its session is in no group, or a node has it | it is forgotten after the look |
//! | it is away, and was not known or had another epoch | it is known, by the time that the replica says or by now |
//! | it is away for longer than is allowed, and not all of it was looked through for a group | it is due for that group |
//! | it is away, and none of these | it stays known |
//!
//! Invariant: only the leader of a shard goes by this, and all that it does is propose. A member that is forgotten, because another
//! node leads or this one was started again, is looked through from its first message on.
//!
//! Deliberately absent: whether a group has a member to go to (the [`Listener`](crate::Listener) says), and what is read and
//! proposed (`task.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::ops::RangeFrom;

use mqtt_session::Timestamp;
use store_state::inbox::inspect::Epoch;
use store_state::inbox::{AwayMember, InboxId, QueueView};

/// Groups that are remembered in a look.
const GROUPS: usize = 16_384;

/// Members of a group that are remembered in a look.
const MEMBERS: usize = 16;

/// The members that are away, of those that a look has told of.
#[derive(Debug, Default)]
pub(super) struct AwayMembers {
    /// By the number of the inbox.
    known: BTreeMap<u64, Known>,
    due: BTreeMap<Box<str>, VecDeque<Due>>,
    /// The group with which the last look ended.
    last: Box<str>,
}

#[derive(Debug)]
struct Known {
    epoch: Epoch,
    since: Timestamp,
    /// The present look has told of it.
    is_told: bool,
    /// By group, the first sequence that was not looked at.
    looked: BTreeMap<Box<str>, u64>,
}

/// A queue that may have messages which others of a group get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Due {
    pub(super) inbox: InboxId,
    pub(super) epoch: Epoch,
    /// The sequences that were not looked at.
    pub(super) unseen: RangeFrom<u64>,
}

impl AwayMembers {
    /// A look begins.
    pub(super) fn handle_look(&mut self) {
        self.due.clear();
        for known in self.known.values_mut() {
            known.is_told = false;
        }
    }

    /// The look tells of a queue. `allowed_ms`: how long a member may be away; `None`: for ever.
    pub(super) fn handle_queue(
        &mut self,
        queue: &QueueView<'_>,
        now: Timestamp,
        allowed_ms: Option<NonZero<u64>>,
    ) {
        if let Some(member) = queue.away_member()
            && let Some(allowed_ms) = allowed_ms
        {
            let (of, next) = ((queue.id(), member), queue.next_sequence());
            self.handle_member(of, next, queue.groups(), (now, allowed_ms));
        }
    }

    fn handle_member<'q>(
        &mut self,
        (inbox, AwayMember { epoch, since }): (InboxId, AwayMember),
        next: u64,
        groups: impl Iterator<Item = &'q str>,
        (now, allowed_ms): (Timestamp, NonZero<u64>),
    ) {
        let new = || Known {
            epoch,
            since: since.unwrap_or(now),
            is_told: true,
            looked: BTreeMap::new(),
        };
        let known = self.known.entry(inbox.number.0).or_insert_with(new);
        if known.epoch != epoch {
            *known = new();
        }
        known.is_told = true;
        let away_ms = now.0.saturating_sub(known.since.0);
        for group in groups.take_while(|_| away_ms > allowed_ms.get()) {
            let from = known.looked.get(group).copied().unwrap_or(0);
            if from >= next || (self.due.len() >= GROUPS && !self.due.contains_key(group)) {
                continue;
            }
            let due = self.due.entry(group.into()).or_default();
            if due.len() < MEMBERS {
                due.push_back(Due {
                    inbox,
                    epoch,
                    unseen: from..,
                });
            }
        }
    }

    /// The look is over: takes out what is due, group by group, those first that had no turn for longest.
    pub(super) fn take_due(&mut self) -> Vec<(Box<str>, VecDeque<Due>)> {
        self.known.retain(|_, known| known.is_told);
        let mut first = std::mem::take(&mut self.due);
        let mut later = first.split_off(&self.last);
        let last = later.remove_entry(&self.last);
        later.into_iter().chain(first).chain(last).collect()
    }

    /// A group had its turn.
    pub(super) fn handle_turn(&mut self, group: &str) {
        self.last = group.into();
    }

    /// Below a sequence, a queue has no messages of a group that others may have.
    pub(super) fn handle_looked(&mut self, inbox: InboxId, group: &str, below: u64) {
        if let Some(known) = self.known.get_mut(&inbox.number.0) {
            known.looked.insert(group.into(), below);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: NonZero<u64> = NonZero::new(1_000).unwrap();

    /// One look, in which these are told of: inbox, epoch, since when it is away, next sequence.
    fn look(
        away: &mut AwayMembers,
        now: u64,
        told: &[(u64, u64, Option<u64>, u64)],
    ) -> Vec<(String, Vec<(u64, u64)>)> {
        away.handle_look();
        for &(inbox, epoch, since, next) in told {
            let member = AwayMember {
                epoch: Epoch(epoch),
                since: since.map(Timestamp),
            };
            let groups = ["$share/a/t", "$share/b/t"].into_iter();
            let queue = (InboxId::new(1, inbox), member);
            away.handle_member(queue, next, groups, (Timestamp(now), ALLOWED));
        }
        let due = away.take_due().into_iter();
        due.map(|(group, due)| {
            let due = due.iter().map(|of| (of.inbox.number.0, of.unseen.start));
            (group.into(), due.collect())
        })
        .collect()
    }

    fn both(due: &[(u64, u64)]) -> Vec<(String, Vec<(u64, u64)>)> {
        ["$share/a/t", "$share/b/t"]
            .map(|group| (group.to_owned(), due.to_vec()))
            .into()
    }

    #[test]
    fn a_member_is_due_when_it_is_away_for_longer_than_allowed() {
        let mut away = AwayMembers::default();
        let told = [(1, 5, Some(4_000), 3), (2, 6, None, 3)];
        assert_eq!(look(&mut away, 5_000, &told), []);
        assert_eq!(look(&mut away, 5_001, &told), both(&[(1, 0)]));
        assert_eq!(look(&mut away, 6_000, &told), both(&[(1, 0)]));
        assert_eq!(look(&mut away, 6_001, &told), both(&[(1, 0), (2, 0)]));
        // The second was back in between.
        let told = [(2, 7, Some(6_500), 3)];
        assert_eq!(look(&mut away, 7_500, &told), []);
        assert_eq!(look(&mut away, 7_501, &told), both(&[(2, 0)]));
    }

    #[test]
    fn what_was_looked_through_is_not_due_until_more_comes() {
        let mut away = AwayMembers::default();
        assert_eq!(
            look(&mut away, 5_000, &[(1, 5, Some(0), 9)]),
            both(&[(1, 0)])
        );
        away.handle_looked(InboxId::new(1, 1), "$share/a/t", 9);
        let only_b = vec![("$share/b/t".to_owned(), vec![(1, 0)])];
        assert_eq!(look(&mut away, 5_000, &[(1, 5, Some(0), 9)]), only_b);
        away.handle_looked(InboxId::new(1, 1), "$share/b/t", 4);
        let due = [("$share/a/t".to_owned(), vec![(1, 9)])];
        let more = look(&mut away, 5_000, &[(1, 5, Some(0), 10)]);
        assert_eq!(more[..1], due);
        assert_eq!(more[1].1, [(1, 4)]);
        // It was emptied, and forgotten.
        assert_eq!(look(&mut away, 5_000, &[]), []);
        assert_eq!(
            look(&mut away, 5_000, &[(1, 5, Some(0), 10)]),
            both(&[(1, 0)])
        );
    }

    #[test]
    fn groups_have_their_turn_one_after_the_other() {
        let mut away = AwayMembers::default();
        let told = [(1, 5, Some(0), 9)];
        let mut first = || {
            let due = look(&mut away, 5_000, &told);
            away.handle_turn(&due[0].0);
            due[0].0.clone()
        };
        let turns = [first(), first(), first()];
        assert_eq!(turns, ["$share/a/t", "$share/b/t", "$share/a/t"]);
    }
}
