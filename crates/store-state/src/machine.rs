//! What the three machines have in common.

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};

use crate::{Changes, Header, SlotRange, Table, TableError};

/// The state of one shard of one store.
///
/// A checkpoint happens in two steps, so that the shard goes on while the disk is written:
/// [`Machine::collect`] hands out the net changes, and when these are synced, [`Machine::saved`] lets go
/// of what can be read from the tables again. In between, the machine must not count on the tables
/// having the new state, nor on their having the old one.
pub trait Machine: Sized + Send + 'static {
    /// What it can be asked to do.
    type Op: Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What it answers.
    type Reply: Send + 'static;
    /// Who is told what an operation brings about beside its reply.
    type Outlet: ?Sized;

    /// A new machine, or the one that the tables hold as of the last checkpoint.
    ///
    /// # Errors
    /// The tables cannot be read, or hold what this version does not understand.
    fn load(range: SlotRange, table: &dyn Table) -> Result<Self, LoadError>;

    /// The slot that must be in the shard's range for this operation; `None`: every shard takes it.
    fn slot(op: &Self::Op) -> Option<u16>;

    /// Does what is asked.
    ///
    /// # Errors
    /// The tables cannot be read. Nothing may be applied afterwards.
    fn apply(
        &mut self,
        header: &Header,
        op: &Self::Op,
        table: &dyn Table,
        outlet: &mut Self::Outlet,
    ) -> Result<Self::Reply, TableError>;

    /// Estimated bytes that only memory and the log hold.
    fn unsaved_bytes(&self) -> usize;

    /// Begins a checkpoint: the net changes since the last one. Not called again before `saved`.
    fn collect(&mut self, changes: &mut Changes);

    /// What `collect` handed out is in the tables, synced.
    fn saved(&mut self);
}

/// Why a machine cannot be loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// The tables cannot be read.
    Table(TableError),
    /// A record is not what it should be.
    Damaged {
        /// The key in hexadecimal digits.
        key: String,
        /// What is wrong with it.
        what: String,
    },
    /// The tables were written in a format that this version does not know.
    Format {
        /// The number found.
        found: u32,
        /// The number known.
        known: u32,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(error) => error.fmt(f),
            Self::Damaged { key, what } => write!(f, "the record {key} is damaged: {what}"),
            Self::Format { found, known } => write!(
                f,
                "the tables have format {found}, and this version knows format {known}"
            ),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<TableError> for LoadError {
    fn from(error: TableError) -> Self {
        Self::Table(error)
    }
}
