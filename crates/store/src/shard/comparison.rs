//! Replicas of a shard are compared: by a digest of their tables as of the same entry of the log.
//!
//! ```text
//! entry `Compare` is applied ─► a checkpoint of what is applied before it ─► its tables are read, a little at a time ─► digest
//!                                                                                  to each node that has a replica ◄──┘
//! ```
//!
//! Each replica knows the digests of the others, and goes by what a majority of the voters has. One that has something else differs:
//! it is made anew from what the leader sends (`placement/healing.rs`).
//!
//! A replica leaves a comparison out if a checkpoint is under way when the entry comes, or the tables are not its own yet: there will be
//! another one.
//!
//! Invariant: a digest is of the rows as of an entry, and of nothing that was applied later.
//!
//! Deliberately absent: when replicas are compared (`placement/healing.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::shard::collected::Checkpoint;
use crate::storage::digest::{Digest, Holds, LogIndex};
use crate::storage::tables::TableReader;

/// How long people are told what was found.
const NOTED: Duration = Duration::from_secs(3_600);

/// How far the comparison of a replica is.
pub(crate) struct Comparison(Mutex<Inner>);

struct Inner {
    stage: Stage,
    /// The checkpoint of the last comparison that could begin, until somebody writes it. What it has collected is nowhere else: it is
    /// written also if another comparison has come meanwhile.
    checkpoint: Option<Box<Checkpoint>>,
    /// The last entry that compares replicas.
    last: Option<LogIndex>,
    own: Option<Holds>,
    /// What other nodes have said last of their replicas. Only nodes with a link to this one are heard.
    others: BTreeMap<u64, Holds>,
    /// What was found, and when.
    noted: Option<(Instant, String)>,
    /// A replica elsewhere has stopped since the last entry that compares, and waits until the others confirm what they have.
    is_waited_for: bool,
    /// The same, until the leader takes it.
    is_asked: bool,
}

/// | stage | input | then |
/// |---|---|---|
/// | any | an entry that compares | `Begun`: its checkpoint waits to be written |
/// | any | the same, and no checkpoint can begin | `LeftOut` |
/// | `LeftOut` | it is looked at | `Idle`; the other nodes are told |
/// | `Begun` | the checkpoint is taken | `Writing` |
/// | `Writing` | it is written | `Written`: its tables wait to be read |
/// | `Written` | the tables are taken | `Reading` |
/// | `Reading` | they are read | `Idle`, with a digest |
/// | any | the replica is another one, or the checkpoint is not written | `Idle`, without one |
///
/// What comes of an earlier comparison finds another stage, or another entry, and does nothing.
enum Stage {
    Idle,
    LeftOut,
    Begun,
    Writing,
    Written(Box<TableReader>, LogIndex),
    Reading,
}

/// Tables that are to be read.
pub(crate) struct ToRead {
    pub(crate) reader: Box<TableReader>,
    /// The last entry whose effects they have.
    pub(crate) applied: LogIndex,
    /// The entry that compares.
    pub(crate) entry: LogIndex,
}

/// How far a comparison is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Last {
    /// The entry that compares.
    pub(crate) entry: LogIndex,
    /// All nodes that were named have said something.
    pub(crate) is_over: bool,
    /// And each has a digest.
    pub(crate) is_complete: bool,
}

/// What the digests say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Too few are there.
    Unknown,
    /// The replica holds what a majority holds.
    Agrees,
    /// It holds something else than a majority, which has this.
    Differs { own: Digest, majority: Digest },
    /// All voters have said what they hold, and there is no majority that holds the same.
    NoMajority,
}

impl Default for Comparison {
    fn default() -> Self {
        Self(Mutex::new(Inner {
            stage: Stage::Idle,
            checkpoint: None,
            last: None,
            own: None,
            others: BTreeMap::new(),
            noted: None,
            is_waited_for: false,
            is_asked: false,
        }))
    }
}

impl Comparison {
    /// An entry that compares is applied. `checkpoint`: of what was applied before it; `None`: it cannot begin.
    pub(super) fn handle_entry(&self, entry: LogIndex, checkpoint: Option<Checkpoint>) {
        let mut inner = self.0.lock();
        inner.last = Some(entry);
        inner.is_waited_for = false;
        // Whoever has begun to read does that in vain.
        inner.stage = match checkpoint {
            Some(begun) => {
                assert!(
                    inner.checkpoint.is_none(),
                    "no checkpoint begins while another one is under way"
                );
                inner.checkpoint = Some(Box::new(begun));
                Stage::Begun
            }
            None => Stage::LeftOut,
        };
    }

    /// The checkpoint that waits to be written.
    pub(super) fn take_checkpoint(&self) -> Option<Checkpoint> {
        let mut inner = self.0.lock();
        let checkpoint = inner.checkpoint.take()?;
        if matches!(inner.stage, Stage::Begun) {
            inner.stage = Stage::Writing;
        }
        Some(*checkpoint)
    }

    /// It is written, and this reads the tables as of then; `None`: it is not written, or they cannot be read.
    pub(super) fn handle_written(&self, tables: Option<(TableReader, LogIndex)>) {
        let mut inner = self.0.lock();
        if matches!(inner.stage, Stage::Writing) {
            inner.stage = tables.map_or(Stage::LeftOut, |(reader, applied)| {
                Stage::Written(Box::new(reader), applied)
            });
        }
    }

    /// The tables that wait to be read.
    pub(crate) fn take_tables(&self) -> Option<ToRead> {
        let mut inner = self.0.lock();
        let entry = inner.last?;
        match std::mem::replace(&mut inner.stage, Stage::Reading) {
            Stage::Written(reader, applied) => Some(ToRead {
                reader,
                applied,
                entry,
            }),
            other => {
                inner.stage = other;
                None
            }
        }
    }

    /// Whether the comparison is left out, which the other nodes are to be told.
    pub(crate) fn take_left_out(&self) -> Option<Holds> {
        let mut inner = self.0.lock();
        let entry = inner.last?;
        matches!(inner.stage, Stage::LeftOut).then(|| {
            let holds = Holds {
                entry,
                digest: None,
                is_stopping: false,
            };
            inner.stage = Stage::Idle;
            inner.own = Some(holds);
            holds
        })
    }

    /// The tables are read, for this entry; without a digest, they could not be. `Some`: the other nodes are to be told.
    pub(crate) fn handle_read(&self, entry: LogIndex, digest: Option<Digest>) -> Option<Holds> {
        let mut inner = self.0.lock();
        if !matches!(inner.stage, Stage::Reading) || inner.last != Some(entry) {
            return None;
        }
        inner.stage = Stage::Idle;
        let holds = Holds {
            entry,
            digest,
            is_stopping: false,
        };
        inner.own = Some(holds);
        Some(holds)
    }

    /// What another node says of its replica.
    pub(crate) fn handle_other(&self, node: u64, holds: Holds) {
        let mut inner = self.0.lock();
        inner.is_waited_for |= holds.is_stopping;
        inner.is_asked |= holds.is_stopping;
        inner.others.insert(node, holds);
    }

    /// Whether a replica elsewhere waits for the next entry that compares: it is left out here then, since tables may take long to
    /// be read, and the entry itself confirms what the other replica waits for.
    pub(super) fn is_waited_for(&self) -> bool {
        self.0.lock().is_waited_for
    }

    /// Whether a replica elsewhere has stopped since this was asked: the leader is to put an entry that compares into the log.
    pub(crate) fn take_asked(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_asked)
    }

    /// What the other nodes are told before the replica here stops, to be made anew.
    pub(crate) fn stopping(&self) -> Holds {
        Holds {
            entry: self.0.lock().last.unwrap_or_default(),
            digest: None,
            is_stopping: true,
        }
    }

    /// The replica here is another one, or there is none: what was found out of it says nothing.
    pub(crate) fn handle_replaced(&self) {
        let mut inner = self.0.lock();
        inner.stage = Stage::Idle;
        inner.checkpoint = None;
        inner.own = None;
    }

    /// What the digests say of the replica here, of the node `own`.
    pub(crate) fn verdict(&self, own: u64, voters: &BTreeSet<u64>) -> Verdict {
        let inner = self.0.lock();
        let Some(here) = inner.own.and_then(|holds| holds.digest) else {
            return Verdict::Unknown;
        };
        let of = |node: &u64| match *node == own {
            true => Some(&here),
            false => inner.others.get(node)?.digest.as_ref(),
        };
        let of_same = |node| of(node).filter(|digest| digest.applied == here.applied);
        let told: Vec<&Digest> = voters.iter().filter_map(of_same).collect();
        let majority = voters.len() / 2 + 1;
        let count = |digest: &Digest| told.iter().filter(|told| **told == digest).count();
        match told.iter().find(|digest| count(digest) >= majority) {
            Some(digest) if **digest == here => Verdict::Agrees,
            Some(digest) => Verdict::Differs {
                own: here,
                majority: **digest,
            },
            None if told.len() == voters.len() && !told.is_empty() => Verdict::NoMajority,
            None => Verdict::Unknown,
        }
    }

    /// Whether the replica of another node holds something else than the majority, to which the one of the node `own` belongs.
    pub(crate) fn differs(&self, node: u64, own: u64, voters: &BTreeSet<u64>) -> bool {
        if self.verdict(own, voters) != Verdict::Agrees {
            return false;
        }
        let inner = self.0.lock();
        let here = inner.own.and_then(|holds| holds.digest);
        let there = inner.others.get(&node).and_then(|holds| holds.digest);
        let both = here.zip(there);
        both.is_some_and(|(here, there)| here.applied == there.applied && here != there)
    }

    /// The voters that hold what a majority holds.
    pub(crate) fn majority(&self, own: u64, voters: &BTreeSet<u64>) -> Vec<u64> {
        let majority = match self.verdict(own, voters) {
            Verdict::Differs { majority, .. } => Some(majority),
            Verdict::Unknown | Verdict::Agrees | Verdict::NoMajority => None,
        };
        let inner = self.0.lock();
        let holds = |node: &&u64| {
            let of = inner.others.get(node);
            majority.is_some() && of.is_some_and(|holds| holds.digest == majority)
        };
        voters.iter().filter(holds).copied().collect()
    }

    /// Whether a majority of the voters has applied an entry that compares which is this one or a later one, without the replica of the
    /// node `own`: what is committed up to there is in their logs or tables, synced.
    pub(crate) fn is_passed(&self, index: LogIndex, own: u64, voters: &BTreeSet<u64>) -> bool {
        self.passed(index, own, voters) > voters.len() / 2
    }

    /// As [`is_passed`](Self::is_passed), for voters as a leader has told them. An even number of them may be two sets of which one
    /// replaces the other: then all have to have passed the entry.
    pub(crate) fn is_kept(&self, index: LogIndex, own: u64, voters: &BTreeSet<u64>) -> bool {
        let least = match voters.len() % 2 {
            0 => voters.len().saturating_sub(1),
            _ => voters.len() / 2 + 1,
        };
        least > 0 && self.passed(index, own, voters) >= least
    }

    /// Voters other than `own` that have applied an entry that compares which is this one or a later one.
    fn passed(&self, index: LogIndex, own: u64, voters: &BTreeSet<u64>) -> usize {
        let inner = self.0.lock();
        let has_passed = |node: &&u64| {
            let said = inner.others.get(node).filter(|_| **node != own);
            said.is_some_and(|holds| holds.entry >= index && !holds.is_stopping)
        };
        voters.iter().filter(has_passed).count()
    }

    /// Something was found that people are to know, for [`NOTED`].
    pub(crate) fn note(&self, what: &str) {
        self.0.lock().noted = Some((Instant::now(), what.to_owned()));
    }

    /// What was found.
    pub(crate) fn noted(&self) -> Option<String> {
        let inner = self.0.lock();
        let recent = inner.noted.as_ref().filter(|(at, _)| at.elapsed() < NOTED);
        recent.map(|(_, what)| what.clone())
    }

    /// The comparison that was last; `None`: there was none. `own`: this node.
    pub(crate) fn last(&self, own: u64, nodes: impl Iterator<Item = u64>) -> Option<Last> {
        let inner = self.0.lock();
        let entry = inner.last?;
        let of = |node: u64| match node == own {
            true => inner.own.as_ref(),
            false => inner.others.get(&node),
        };
        // Nobody waits for one that stops.
        let has_said = |holds: &&Holds| holds.entry == entry || holds.is_stopping;
        let said = nodes.map(|node| of(node).filter(has_said));
        let said: Vec<_> = said.collect();
        Some(Last {
            entry,
            is_over: said.iter().all(Option::is_some),
            is_complete: said
                .iter()
                .all(|said| said.is_some_and(|holds| holds.digest.is_some())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 1;

    fn verdict(own: Option<Digest>, others: &[(u64, Digest)], voters: &[u64]) -> Verdict {
        let comparison = Comparison::default();
        comparison.0.lock().own = own.map(|digest| Holds::at(11, Some(digest)));
        for (node, digest) in others {
            comparison.handle_other(*node, Holds::at(11, Some(*digest)));
        }
        comparison.verdict(OWN, &voters.iter().copied().collect())
    }

    #[test]
    fn a_majority_of_the_voters_at_the_same_entry_decides() {
        let [a, b, c] = [1, 2, 3].map(|content| Digest::of(9, content));
        let later = Digest::of(10, 1);
        let voters = [OWN, 2, 3];
        let differs = Verdict::Differs {
            own: b,
            majority: a,
        };
        for (own, others, voters, expected) in [
            (None, &[(2, a), (3, a)][..], &voters[..], Verdict::Unknown),
            (Some(a), &[], &voters, Verdict::Unknown),
            (Some(a), &[(2, a)], &voters, Verdict::Agrees),
            (Some(b), &[(2, a)], &voters, Verdict::Unknown),
            (Some(b), &[(2, a), (3, a)], &voters, differs),
            (Some(a), &[(2, a), (3, b)], &voters, Verdict::Agrees),
            (Some(a), &[(2, b), (3, c)], &voters, Verdict::NoMajority),
            (Some(b), &[(2, later), (3, a)], &voters, Verdict::Unknown),
            // Of two that differ, nobody can say which is right.
            (Some(b), &[(2, a)], &[OWN, 2], Verdict::NoMajority),
            // One that only listens goes by the voters.
            (Some(b), &[(2, a), (3, a)], &[2, 3, 4], differs),
            (Some(a), &[], &[OWN], Verdict::Agrees),
        ] {
            assert_eq!(verdict(own, others, voters), expected, "{own:?} {others:?}");
        }
    }

    #[test]
    fn another_replica_differs_if_a_majority_holds_what_is_here() {
        let [a, b] = [1, 2].map(|content| Digest::of(9, content));
        let voters = [OWN, 2, 3].into();
        let differs = |own, others: &[(u64, Digest)]| {
            let comparison = Comparison::default();
            comparison.0.lock().own = Some(Holds::at(11, Some(own)));
            for (node, digest) in others {
                comparison.handle_other(*node, Holds::at(11, Some(*digest)));
            }
            comparison.differs(3, OWN, &voters)
        };
        assert!(differs(a, &[(2, a), (3, b)]));
        assert!(!differs(a, &[(2, a), (3, a)]));
        assert!(!differs(a, &[(2, a)]), "it has said nothing");
        assert!(!differs(a, &[(2, a), (3, Digest::of(8, 2))]), "of before");
        assert!(!differs(b, &[(2, a), (3, a)]), "the one here differs");
        assert!(!differs(a, &[(3, b)]), "nobody knows who is right");
    }

    #[test]
    fn an_entry_is_passed_when_a_majority_has_applied_a_later_one() {
        let comparison = Comparison::default();
        let voters = [OWN, 2, 3].into();
        let passed = |index| comparison.is_passed(LogIndex(index), OWN, &voters);
        comparison.0.lock().own = Some(Holds::at(9, None));
        comparison.handle_other(2, Holds::at(9, None));
        comparison.handle_other(4, Holds::at(9, None));
        assert!(!passed(1), "one voter is no majority");
        comparison.handle_other(3, Holds::at(7, Some(Digest::of(6, 1))));
        assert_eq!([6, 7, 8].map(passed), [true, true, false]);
        comparison.handle_other(3, comparison.stopping());
        assert!(!passed(6), "one that stops is to be made anew itself");
    }

    #[test]
    fn a_comparison_without_checkpoint_is_left_out() {
        let comparison = Comparison::default();
        comparison.handle_entry(LogIndex(5), None);
        assert!(comparison.take_checkpoint().is_none() && comparison.take_tables().is_none());
        let digest = Some(Digest::of(4, 1));
        assert_eq!(comparison.handle_read(LogIndex(5), digest), None);
        let left_out = Some(Holds::at(5, None));
        assert_eq!(comparison.take_left_out(), left_out);
        assert_eq!(comparison.take_left_out(), None);
        assert_eq!(comparison.verdict(OWN, &[OWN].into()), Verdict::Unknown);
    }

    #[test]
    fn what_comes_of_an_earlier_comparison_counts_for_nothing() {
        let comparison = Comparison::default();
        comparison.0.lock().stage = Stage::Reading;
        comparison.0.lock().last = Some(LogIndex(5));
        let digest = Some(Digest::of(4, 1));
        assert_eq!(comparison.handle_read(LogIndex(3), digest), None);
        comparison.handle_replaced();
        assert_eq!(comparison.handle_read(LogIndex(5), digest), None);
        comparison.0.lock().stage = Stage::Reading;
        let holds = Holds::at(5, digest);
        assert_eq!(comparison.handle_read(LogIndex(5), digest), Some(holds));
    }

    #[test]
    fn a_comparison_is_over_when_all_have_said_something_for_its_entry() {
        let comparison = Comparison::default();
        let last = || comparison.last(OWN, [OWN, 2, 3].into_iter());
        let expected = |is_over, is_complete| {
            Some(Last {
                entry: LogIndex(5),
                is_over,
                is_complete,
            })
        };
        assert_eq!(last(), None);
        comparison.handle_entry(LogIndex(5), None);
        comparison.0.lock().own = Some(Holds::at(5, Some(Digest::of(4, 1))));
        comparison.handle_other(2, Holds::at(5, Some(Digest::of(4, 2))));
        comparison.handle_other(3, Holds::at(3, Some(Digest::of(2, 1))));
        assert_eq!(last(), expected(false, false));
        comparison.handle_other(3, Holds::at(5, None));
        assert_eq!(last(), expected(true, false));
        comparison.handle_other(3, Holds::at(5, Some(Digest::of(4, 2))));
        assert_eq!(last(), expected(true, true));
        comparison.handle_other(3, comparison.stopping());
        assert_eq!(last(), expected(true, false));
        comparison.handle_replaced();
        assert_eq!(last(), expected(false, false));
    }
}
