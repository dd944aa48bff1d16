//! Why what the tables hold cannot be used.

use std::fmt;

use crate::level::Level;
use crate::table::TableError;

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
    /// The shard is at a level that this program does not know.
    Level {
        /// The level found.
        found: Level,
        /// The highest known.
        known: Level,
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
            Self::Level { found, known } => write!(
                f,
                "the shard is at level {found}, and this program knows the levels up to {known}"
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
