//! What becomes of a replica whose log was damaged, decided when its group starts.
//!
//! - What is lost is in the tables: nothing is missing.
//! - The replica decides alone: it does not start. [`Log::accept_loss`](crate::Log::accept_loss) goes on with what is left.
//! - Others vote as well: the replica goes on below a floor (`floor.rs`). It keeps its vote, and votes for nobody whose log ends
//!   before the floor, which is at least what it may have acknowledged; the others send what is missing.
//!
//! Invariants: a decision is one synced change. Before it, a start decides the same again.

use std::io;

use crate::encoding::encoded;
use crate::group_log::{delete, deleted, last_id, purged, records_between, stored};
use crate::loss::{Loss, Missing, Verdict, apart};
use crate::mark::Mark;
use crate::numbers::GroupId;
use crate::record::Record;
use crate::request::{Change, key};
use crate::shorten::{Shortened, floor_of};
use crate::standing::Members;
use crate::types::{LogId, Vote, next_index};
use crate::wal::Wal;

/// The replica of a group that has not been started.
pub(crate) struct Unsettled<'a> {
    pub(crate) wal: &'a Wal,
    pub(crate) group: GroupId,
    /// How far its tables reach.
    pub(crate) tables: &'a Mark,
}

/// What has been decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// Nothing is missing.
    Whole,
    /// This is missing. The replica goes on below a floor.
    BelowFloor(Missing),
    /// This is missing, and nobody else can have it. Nothing was changed.
    Lost(Missing),
}

impl Unsettled<'_> {
    /// What the log has lost, if it is not decided yet what that means.
    pub(crate) fn loss(&self) -> io::Result<Option<Loss>> {
        stored(self.wal, self.group.0, key::LOSS, Loss::read)
    }

    /// Decides what becomes of the replica on `node`. `or_alone`: if no members are known, there are no others.
    ///
    /// # Errors
    /// The log cannot be read or written.
    pub(crate) async fn settle(&self, node: u64, or_alone: bool) -> io::Result<Settled> {
        match self.loss()?.map(|loss| (loss, self.judge(&loss))) {
            None => Ok(Settled::Whole),
            Some((_, Verdict::GoesOnApart)) => {
                let apart = apart(self.group.0);
                let (begin, end) = self.wal.span(apart).unwrap_or((0, 0));
                let from = begin.max(self.tables.next_index());
                let entries = records_between(self.wal, apart, from..end + 1)?;
                self.begin_anew(entries).await?;
                Ok(Settled::Whole)
            }
            Some((_, Verdict::BeginsAnew)) => {
                self.begin_anew(Vec::new()).await?;
                Ok(Settled::Whole)
            }
            Some((loss, Verdict::Lacks(missing))) => {
                let members = self.members()?;
                if members.is_sole_voter(node) || members.voters.is_empty() && or_alone {
                    return Ok(Settled::Lost(missing));
                }
                self.go_on(Some(self.floor(&loss)?)).await?;
                Ok(Settled::BelowFloor(missing))
            }
        }
    }

    /// Deletes the group but for its vote and the end that its log may have had.
    ///
    /// # Errors
    /// The log cannot be read or written.
    pub(crate) async fn delete(&self) -> io::Result<()> {
        // What is left of a damaged log may end before what was acknowledged here.
        let floor = self.loss()?.map(|loss| self.floor(&loss)).transpose()?;
        delete(self.wal, self.group.0, floor).await
    }

    /// The index of the last entry that there was, as far as it is known.
    ///
    /// # Errors
    /// What is kept of the group is damaged.
    pub(crate) fn last_index(&self) -> io::Result<Option<u64>> {
        let last = last_id(self.wal, self.group.0)?.map(|id| id.index);
        let loss = self.loss()?;
        let lost = loss.and_then(|loss| loss.last.max(loss.behind.map(|(_, last)| last)));
        Ok(last.max(lost))
    }

    fn judge(&self, loss: &Loss) -> Verdict {
        loss.judge(self.tables.next_index())
    }

    /// What the replica lacks; `None`: nothing, or that is decided already.
    pub(crate) fn missing(&self) -> io::Result<Option<Missing>> {
        let verdict = self.loss()?.map(|loss| self.judge(&loss));
        Ok(match verdict {
            Some(Verdict::Lacks(missing)) => Some(missing),
            Some(Verdict::GoesOnApart | Verdict::BeginsAnew) | None => None,
        })
    }

    /// Goes on with what is left. Gives what the replica lacks from now on; `None`: nothing.
    pub(crate) async fn accept(&self) -> io::Result<Option<Missing>> {
        let missing = self.missing()?;
        if missing.is_some() {
            self.go_on(None).await?;
        }
        Ok(missing)
    }

    /// The members as far as they are known here.
    pub(crate) fn members(&self) -> io::Result<Members> {
        let mut members = self.tables.members();
        if let Some((begin, end)) = self.wal.span(self.group.0) {
            let begin = begin.max(self.tables.next_index());
            for record in records_between(self.wal, self.group.0, begin..end + 1)? {
                if let Some(membership) = record.membership() {
                    members = Members::of(&membership);
                }
            }
        }
        Ok(members)
    }

    /// The end that a log must have whose owner gets a vote.
    fn floor(&self, loss: &Loss) -> io::Result<LogId> {
        let vote: Option<Vote> = stored(self.wal, self.group.0, key::VOTE, |bytes| bytes.vote())?;
        let deleted = deleted(self.wal, self.group.0)?;
        let last = last_id(self.wal, self.group.0)?.max(deleted);
        let voted = vote.map_or(0, |vote| vote.leader_id.term);
        let term = voted.max(last.map_or(0, |id| id.leader_id.term));
        let floor = loss.end.unwrap_or_else(|| floor_of(term));
        Ok(deleted.map_or(floor, |deleted| deleted.max(floor)))
    }

    /// The entries before the hole stay, unless the tables reach beyond them.
    async fn go_on(&self, floor: Option<LogId>) -> io::Result<()> {
        let last = last_id(self.wal, self.group.0)?;
        let tables = self.tables.log_id;
        let begins_anew =
            next_index(last) < self.tables.next_index() || purged(self.wal, self.group.0)? > tables;
        let cut = Shortened {
            last: if begins_anew { tables } else { last },
            begins_anew,
            vote: None,
            floor,
        };
        cut.write(self.wal, self.group.0).await?;
        self.forget_apart().await
    }

    /// The log begins where the tables end, with these entries. The vote stays, the floor and the origin.
    async fn begin_anew(&self, entries: Vec<Record>) -> io::Result<()> {
        let kept = [key::VOTE, key::DELETED, key::ORIGIN];
        let kept = kept
            .into_iter()
            .filter_map(|key| Some((key, self.wal.get(self.group.0, key)?)));
        let mut puts: Vec<(&'static [u8], Vec<u8>)> = kept.collect();
        if let Some(end) = &self.tables.log_id {
            puts.extend([key::PURGED, key::COMMITTED].map(|key| (key, encoded(end))));
        }
        let change = Change {
            group: self.group.0,
            clean: true,
            entries,
            puts,
            ..Change::default()
        };
        self.wal.change(change).await?;
        self.forget_apart().await
    }

    async fn forget_apart(&self) -> io::Result<()> {
        let apart = apart(self.group.0);
        match self.wal.span(apart) {
            None => Ok(()),
            Some(_) => {
                let change = Change {
                    group: apart,
                    clean: true,
                    ..Change::default()
                };
                self.wal.change(change).await
            }
        }
    }
}
