//! What groups ask the log's thread to write.

use std::io;

use raft_engine::{Command, LogBatch};
use tokio::sync::oneshot;

use crate::record::{Record, Records};
use crate::types::LogId;

/// Entries of one group that are to be written.
pub(crate) trait Append: Send {
    fn group(&self) -> u64;
    /// Encodes them: once, or again when the write has to be repeated.
    fn records(&self) -> Vec<Record>;
    /// How far the group had agreed by then: written along, never for its own sake.
    fn committed(&self) -> Option<Vec<u8>>;
    /// The index of the first one; `None`: there is none.
    fn first(&self) -> Option<u64>;
    fn last(&self) -> Option<LogId>;
    fn entries(&self) -> usize;
    fn bytes(&self) -> usize;
    fn complete(self: Box<Self>, outcome: io::Result<()>);
}

/// Keys of what is kept beside the entries of a group.
pub(crate) mod key {
    pub(crate) const VOTE: &[u8] = b"vote";
    pub(crate) const COMMITTED: &[u8] = b"committed";
    pub(crate) const PURGED: &[u8] = b"purged";
    pub(crate) const TABLES: &[u8] = b"tables";
    /// Where the log ended that was deleted.
    pub(crate) const DELETED: &[u8] = b"deleted";
    /// The entry of another group that the group's first state comes from.
    pub(crate) const ORIGIN: &[u8] = b"origin";
    /// What the log has lost of the group, until it is decided what becomes of the replica.
    pub(crate) const LOSS: &[u8] = b"loss";
}

/// A change of one group that openraft does not wait for as for entries.
#[derive(Default)]
pub(crate) struct Change {
    pub(crate) group: u64,
    /// First forget the group.
    pub(crate) clean: bool,
    /// Entries that follow each other.
    pub(crate) entries: Vec<Record>,
    pub(crate) puts: Vec<(&'static [u8], Vec<u8>)>,
    /// Forget what is kept under these keys.
    pub(crate) deletes: Vec<&'static [u8]>,
    /// Forget the entries before this index.
    pub(crate) compact_to: Option<u64>,
    pub(crate) done: Option<oneshot::Sender<io::Result<()>>>,
}

pub(crate) enum Request {
    Append(Box<dyn Append>),
    Change(Change),
}

impl Request {
    pub(crate) fn group(&self) -> u64 {
        match self {
            Self::Append(append) => append.group(),
            Self::Change(change) => change.group,
        }
    }

    /// Whether it says something about votes, which must never be forgotten.
    pub(crate) fn is_promise(&self) -> bool {
        match self {
            Self::Append(_) => false,
            Self::Change(change) => {
                let mut keys = change
                    .puts
                    .iter()
                    .map(|(key, _)| *key)
                    .chain(change.deletes.iter().copied());
                keys.any(|key| key == key::VOTE || key == key::DELETED)
            }
        }
    }

    pub(crate) fn entries(&self) -> usize {
        match self {
            Self::Append(append) => append.entries(),
            Self::Change(_) => 0,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Append(append) => append.bytes(),
            Self::Change(_) => 0,
        }
    }

    pub(crate) fn frees(&self) -> bool {
        matches!(self, Self::Change(change) if change.clean || change.compact_to.is_some())
    }

    pub(crate) fn add_to(&self, batch: &mut LogBatch) -> raft_engine::Result<()> {
        match self {
            Self::Append(append) => {
                let group = append.group();
                batch.add_entries::<Records>(group, &append.records())?;
                if let Some(committed) = append.committed() {
                    batch.put(group, key::COMMITTED.to_vec(), committed)?;
                }
            }
            Self::Change(change) => {
                if change.clean {
                    batch.add_command(change.group, Command::Clean);
                }
                if !change.entries.is_empty() {
                    batch.add_entries::<Records>(change.group, &change.entries)?;
                }
                for (key, value) in &change.puts {
                    batch.put(change.group, key.to_vec(), value.clone())?;
                }
                for key in &change.deletes {
                    batch.delete(change.group, key.to_vec());
                }
                if let Some(index) = change.compact_to {
                    batch.add_command(change.group, Command::Compact { index });
                }
            }
        }
        Ok(())
    }
}
