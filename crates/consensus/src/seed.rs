//! Groups that begin with a state that an entry of another group has made.
//!
//! Purpose: when a shard is split, one entry of its group, the parent, cuts its state in two. The part that is cut
//! off is the first state of a new group, the child. Each replica of the parent seeds the replica of the child on its
//! node, without asking another one: the entry gives the same state and the same members everywhere.
//!
//! The log of a child begins as if everything up to [`seed_id`] had been purged. Its first own entry is the one behind.
//!
//! Invariant: a replica of a child answers nothing before its [`Origin`] is on the disk. Without it, a start would
//! take its first entry for one behind a hole, and a second seed would not know that a vote and a log of the child
//! are there, which have to stay.

use std::fmt;
use std::io;

use crate::encoding::{Reader, encoded};
use crate::group_log::stored;
use crate::mark::seed_id;
use crate::numbers::{EntryIndex, GroupId};
use crate::request::{Change, key};
use crate::wal::Wal;

/// The entry that a seeded group's first state comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The group of the entry.
    pub parent: GroupId,
    /// Its place there.
    pub index: EntryIndex,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} of group {}", self.index.0, self.parent.0)
    }
}

impl Origin {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [self.parent.0.to_le_bytes(), self.index.0.to_le_bytes()].concat()
    }
}

/// The entry that has seeded a group; `None`: the group was not seeded here.
pub(crate) fn origin(wal: &Wal, group: u64) -> io::Result<Option<Origin>> {
    stored(wal, group, key::ORIGIN, |bytes: &mut Reader<'_>| {
        Some(Origin {
            parent: GroupId(bytes.u64()?),
            index: EntryIndex(bytes.u64()?),
        })
    })
}

/// Whether a replica of the group can begin here with what the entry has made: the same entry has seeded it before, or
/// there is no replica and there was none.
///
/// # Errors
/// Another entry has seeded the group, or what is kept of the group is damaged.
pub(crate) fn may_seed(wal: &Wal, group: u64, by: Origin) -> io::Result<bool> {
    if let Some(known) = origin(wal, group)? {
        if known != by {
            let why = format!("group {group} begins with {known}, not with {by}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        return Ok(true);
    }
    let keys = [key::PURGED, key::TABLES, key::DELETED];
    let is_known = keys.iter().any(|key| wal.get(group, key).is_some());
    Ok(!is_known && wal.span(group).is_none())
}

/// Writes down that the group begins with what the entry has made, and waits until that is on the disk. A vote stays,
/// and of a group that was seeded before, everything does. False: as [`may_seed`] says, it cannot.
pub(crate) async fn seed(wal: &Wal, group: u64, by: Origin) -> io::Result<bool> {
    if !may_seed(wal, group, by)? {
        return Ok(false);
    }
    if origin(wal, group)?.is_none() {
        let change = Change {
            group,
            puts: vec![
                (key::PURGED, encoded(&seed_id())),
                (key::ORIGIN, by.encode()),
            ],
            ..Change::default()
        };
        wal.change(change).await?;
    }
    Ok(true)
}
