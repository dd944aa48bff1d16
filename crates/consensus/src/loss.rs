//! What a damaged log has lost of a group, and what becomes of the replica.
//!
//! `replay.rs` writes a [`Loss`] beside what is left of the group. It stays until it is decided, at the start of the group,
//! what it means: only then it is known how far the tables reach and who else votes.
//!
//! - What is lost is in the tables: nothing is missing.
//! - The replica decides alone: it does not start. [`Log::accept_loss`](crate::Log::accept_loss) goes on with what is left.
//! - Others vote as well: the replica goes on below a floor. It keeps its vote, and votes for nobody whose log ends before
//!   the floor, which is at least what it may have acknowledged; the others send what is missing.
//!
//! Invariants: a decision is one synced change. Before it, a start decides the same again.

use std::fmt;
use std::io;

use crate::encoding::{Reader, put_optional_log_id};
use crate::floor::{Shortened, floor_of, shorten};
use crate::group::{Birth, StartError};
use crate::group_log::{deleted, encoded, last_id, next_index, purged, records_between, stored};
use crate::mark::Mark;
use crate::record::Record;
use crate::standing::Members;
use crate::types::{LogId, Vote, log_id};
use crate::wal::{Change, Wal, key};

/// The number under which the entries of a group are kept that stand behind a hole.
const APART: u64 = 1 << 63;

/// The group whose number stands for the entries of `group` behind a hole.
pub(crate) fn apart(group: u64) -> u64 {
    group | APART
}

/// The group of entries apart.
pub(crate) fn of_apart(apart: u64) -> u64 {
    apart & !APART
}

/// Whether it is the number of a group, and not of entries apart.
pub(crate) fn is_group(group: u64) -> bool {
    group & APART == 0
}

/// What a log has lost of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Loss {
    /// The first entry that is missing.
    pub(crate) first: u64,
    /// The first and the last entry of those that stand apart, behind the hole; `None`: none is there.
    pub(crate) behind: Option<(u64, u64)>,
    /// The last entry that is known to have been there; `None`: none is known behind the first missing one.
    pub(crate) last: Option<u64>,
    /// Whether there may have been more.
    pub(crate) is_open: bool,
    /// Where the log certainly ended.
    pub(crate) end: Option<LogId>,
}

impl Loss {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.first.to_le_bytes().to_vec();
        let behind = self.behind.map(|(first, last)| log_id(first, last));
        let last = self.last.map(|index| log_id(0, index));
        for pair in [behind, last] {
            put_optional_log_id(pair.as_ref(), &mut out);
        }
        out.push(u8::from(self.is_open));
        put_optional_log_id(self.end.as_ref(), &mut out);
        out
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let first = reader.u64()?;
        let behind = reader.optional_log_id()?;
        let last = reader.optional_log_id()?;
        Some(Self {
            first,
            behind: behind.map(|pair| (pair.leader_id.term, pair.index)),
            last: last.map(|pair| pair.index),
            is_open: reader.flag()?,
            end: reader.optional_log_id()?,
        })
    }
}

/// The entries that a replica lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The first one.
    pub first: u64,
    /// The last one that is known to be lost; `None`: it is not known whether any is.
    pub last: Option<u64>,
    /// Whether there may have been more behind it.
    pub is_open: bool,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            first,
            last,
            is_open,
        } = *self;
        match last {
            None => write!(f, "entries may be missing from {first} on"),
            Some(last) if last == first => write!(f, "entry {first} is missing"),
            Some(last) => write!(f, "entries {first} to {last} are missing"),
        }?;
        match (last, is_open) {
            (Some(last), true) => write!(f, ", and more may be behind {last}"),
            _ => Ok(()),
        }
    }
}

/// What is left of a replica is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing is lost but what the tables hold. The log goes on with the entries that stand apart.
    GoesOnApart,
    /// Nothing is lost but what the tables hold. The log begins anew where they end.
    BeginsAnew,
    /// What is missing is in no table here.
    Lacks(Missing),
}

impl Loss {
    /// What a replica is good for whose tables hold all before `tables_next`.
    pub(crate) fn judge(&self, tables_next: u64) -> Verdict {
        if let Some((begin, end)) = self.behind
            && begin <= tables_next
            && !self.is_open
            && self.last <= Some(end)
        {
            return Verdict::GoesOnApart;
        }
        if !self.is_open && self.last.is_none_or(|last| last < tables_next) {
            return Verdict::BeginsAnew;
        }
        Verdict::Lacks(Missing {
            first: self.first.max(tables_next),
            last: self.last.filter(|last| *last >= tables_next),
            is_open: self.is_open,
        })
    }
}

/// What the log has lost of a group, if that is not decided yet.
pub(crate) fn loss(wal: &Wal, group: u64) -> io::Result<Option<Loss>> {
    stored(wal, group, key::LOSS, Loss::read)
}

/// Decides what becomes of a replica with a loss, if it has one. `Some`: this is missing, and the replica goes on below a
/// floor.
///
/// # Errors
/// The replica decides alone and lacks entries; or the log cannot be read or written.
pub(crate) async fn settle(
    wal: &Wal,
    group: u64,
    node: u64,
    birth: Birth,
    tables: &Mark,
) -> Result<Option<Missing>, StartError> {
    let Some(loss) = loss(wal, group).map_err(StartError::Log)? else {
        return Ok(None);
    };
    let missing = match loss.judge(tables.next_index()) {
        Verdict::GoesOnApart => {
            let (begin, end) = wal.span(apart(group)).unwrap_or((0, 0));
            let from = begin.max(tables.next_index());
            let records = records_between(wal, apart(group), from..end + 1);
            let records = records.map_err(StartError::Log)?;
            begin_anew(wal, group, tables, records).await
        }
        Verdict::BeginsAnew => begin_anew(wal, group, tables, Vec::new()).await,
        Verdict::Lacks(missing) => {
            let members = members(wal, group, tables).map_err(StartError::Log)?;
            let is_unknown = members.voters.is_empty() && birth == Birth::Alone;
            if members.is_sole_voter(node) || is_unknown {
                return Err(StartError::Lost(missing));
            }
            let floor = floor(wal, group, &loss).map_err(StartError::Log)?;
            go_on(wal, group, tables, Some(floor))
                .await
                .map_err(StartError::Log)?;
            return Ok(Some(missing));
        }
    };
    missing.map_err(StartError::Log)?;
    Ok(None)
}

/// What a replica lacks whose loss is not settled; `None`: nothing.
pub(crate) fn missing(wal: &Wal, group: u64, tables: &Mark) -> io::Result<Option<Missing>> {
    let verdict = loss(wal, group)?.map(|loss| loss.judge(tables.next_index()));
    Ok(match verdict {
        Some(Verdict::Lacks(missing)) => Some(missing),
        Some(Verdict::GoesOnApart | Verdict::BeginsAnew) | None => None,
    })
}

/// Goes on with what is left of a replica. Gives what it lacks from now on; `None`: nothing.
pub(crate) async fn accept(wal: &Wal, group: u64, tables: &Mark) -> io::Result<Option<Missing>> {
    let missing = missing(wal, group, tables)?;
    if missing.is_some() {
        go_on(wal, group, tables, None).await?;
    }
    Ok(missing)
}

/// The members of a group as far as they are known here.
pub(crate) fn members(wal: &Wal, group: u64, tables: &Mark) -> io::Result<Members> {
    let mut members = tables.members();
    if let Some((begin, end)) = wal.span(group) {
        let begin = begin.max(tables.next_index());
        for record in records_between(wal, group, begin..end + 1)? {
            if let Some(membership) = record.membership() {
                members = Members::of(&membership);
            }
        }
    }
    Ok(members)
}

/// The end that a log must have whose owner gets a vote.
fn floor(wal: &Wal, group: u64, loss: &Loss) -> io::Result<LogId> {
    let vote: Option<Vote> = stored(wal, group, key::VOTE, |bytes| bytes.vote())?;
    let last = last_id(wal, group)?.max(deleted(wal, group)?);
    let term = vote
        .map_or(0, |vote| vote.leader_id.term)
        .max(last.map_or(0, |id| id.leader_id.term));
    let floor = loss.end.unwrap_or_else(|| floor_of(term));
    Ok(deleted(wal, group)?.map_or(floor, |deleted| deleted.max(floor)))
}

/// The entries before the hole stay, unless the tables reach beyond them.
async fn go_on(wal: &Wal, group: u64, tables: &Mark, floor: Option<LogId>) -> io::Result<()> {
    let last = last_id(wal, group)?;
    let begins_anew = next_index(last) < tables.next_index() || purged(wal, group)? > tables.log_id;
    let cut = Shortened {
        last: if begins_anew { tables.log_id } else { last },
        begins_anew,
        vote: None,
        floor,
    };
    shorten(wal, group, cut).await?;
    forget_apart(wal, group).await
}

/// The log begins where the tables end, with these entries. The vote stays, and the floor.
async fn begin_anew(wal: &Wal, group: u64, tables: &Mark, entries: Vec<Record>) -> io::Result<()> {
    let floor = deleted(wal, group)?;
    let mut puts: Vec<(&'static [u8], Vec<u8>)> = Vec::new();
    puts.extend(wal.get(group, key::VOTE).map(|vote| (key::VOTE, vote)));
    if let Some(end) = &tables.log_id {
        puts.extend([key::PURGED, key::COMMITTED].map(|key| (key, encoded(end))));
    }
    puts.extend(floor.map(|id| (key::DELETED, encoded(&id))));
    let change = Change {
        group,
        clean: true,
        entries,
        puts,
        ..Change::default()
    };
    wal.change(change).await?;
    forget_apart(wal, group).await
}

async fn forget_apart(wal: &Wal, group: u64) -> io::Result<()> {
    if wal.span(apart(group)).is_none() {
        return Ok(());
    }
    let change = Change {
        group: apart(group),
        clean: true,
        ..Change::default()
    };
    wal.change(change).await
}
