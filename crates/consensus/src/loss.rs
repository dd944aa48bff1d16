//! What a damaged log has lost of a group.
//!
//! `replay.rs` writes a [`Loss`] beside what is left of the group. It stays until `settle.rs` has decided, at the start of
//! the group, what becomes of the replica: only then it is known how far the tables reach.

use std::fmt;

use crate::encoding::{Reader, put_optional_log_id};
use crate::numbers::EntryIndex;
use crate::types::{LogId, log_id};

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
    pub(crate) first: EntryIndex,
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
        let mut out = self.first.0.to_le_bytes().to_vec();
        let behind = self.behind.map(|(first, last)| log_id(first, last));
        let last = self.last.map(|index| log_id(0, index));
        for pair in [behind, last] {
            put_optional_log_id(pair.as_ref(), &mut out);
        }
        out.push(u8::from(self.is_open));
        put_optional_log_id(self.end.as_ref(), &mut out);
        out
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let first = EntryIndex(reader.u64()?);
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
    pub first: EntryIndex,
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
        let first = first.0;
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
            first: self.first.max(EntryIndex(tables_next)),
            last: self.last.filter(|last| *last >= tables_next),
            is_open: self.is_open,
        })
    }
}
