//! The level of a shard: what its replicas write, and what they do with an entry of the log.
//!
//! Purpose: replicas of one shard may run different programs for a while. They stay alike because what is written and done goes by
//! a number in the log, and not by the program: a later level holds for a shard from the entry on that raises it.
//!
//! ```text
//! folder of an earlier program ─► the level of the folder (file `level`)
//!                                  └─► entry `Raise(n)` ─► level row in the shard's tables, children inherit it
//! ```
//!
//! Invariants: a level never changes what it means ([`LEVELS`], `tests/golden`); a shard's level only rises; nothing of a level is
//! written to a folder before its file `FORMAT` has that number.
//!
//! Deliberately absent: who may raise a shard, and when (`store`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::load_error::LoadError;
use crate::row::{damaged, decode, encode};
use crate::table::Table;

/// The key of the row of a shard's tables that holds its level. A shard that was never raised has none: it is at the level of its
/// folder.
pub const LEVEL_KEY: &[u8] = b"V";

/// What the replicas of a shard write and do.
///
/// The numbers go on from those of the formats of data folders, of which there were three before there were levels: the formats 1
/// to 3 belong to the levels 2 and 3, and from 4 on the format of a folder is the highest level of its shards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Level(pub u32);

/// A version of the protocol between nodes (`peer_protocol::VERSIONS`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PeerProtocol(pub u16);

/// What is to be known of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LevelFacts {
    /// The level.
    pub level: Level,
    /// The programs that wrote it before they knew of levels, or the first release that knows it.
    pub programs: &'static str,
    /// The version of the protocol between nodes that a node speaks which knows the level.
    pub protocol: PeerProtocol,
    /// What it changes, for those who decide whether to raise a cluster to it.
    pub changes: &'static str,
}

/// All levels that this program knows, ascending.
pub const LEVELS: &[LevelFacts] = &[
    LevelFacts {
        level: Level::UNGATED,
        programs: "up to commit 95156cc",
        protocol: PeerProtocol(1),
        changes: "sessions, queues and retained messages",
    },
    LevelFacts {
        level: Level::SPLITS,
        programs: "up to commit 3a5c7c6",
        protocol: PeerProtocol(7),
        changes: "an attachment that is said twice keeps its session; sessions are named by numbers and long client identifiers \
                  by hashes; shards can be split; classes of clients, `refuse` with a time, retention and closed queues; \
                  ages of queues",
    },
    LevelFacts {
        level: Level::RAISED,
        programs: "up to commit a880976",
        protocol: PeerProtocol(8),
        changes: "a shard says its level, and its replicas compare what they hold",
    },
    LevelFacts {
        level: Level::LEAVES,
        programs: "up to commit 236a1fe",
        protocol: PeerProtocol(9),
        changes: "what waits with members of shared groups that are away goes to others of their groups; messages of QoS 0 \
                  that a returning session misses are counted",
    },
    LevelFacts {
        level: Level::CONTROL,
        programs: "up to commit 442eb03",
        protocol: PeerProtocol(10),
        changes: "users, groups and rules that change while the cluster runs, in a store of their own",
    },
    LevelFacts {
        level: Level::PEOPLE,
        programs: "up to commit 0c57e1b",
        protocol: PeerProtocol(11),
        changes: "people and keys of the HTTP API that change while the cluster runs; what they do is in the audit",
    },
    LevelFacts {
        level: Level::AGED,
        programs: "up to commit a2c2027",
        protocol: PeerProtocol(12),
        changes: "retained messages have ages, by which rules remove them",
    },
    LevelFacts {
        level: Level::COMPRESSED,
        programs: "0.1.0",
        protocol: PeerProtocol(13),
        changes: "entries of the log are compressed where that saves a third of their bytes",
    },
    #[cfg(feature = "trial-level")]
    LevelFacts {
        level: Level::TRIAL,
        programs: "a build for tests",
        protocol: PeerProtocol(14),
        changes: "one entry, one row and one behaviour, for tests of upgrades",
    },
];

impl Level {
    /// Of programs before any change of the state had a gate.
    pub const UNGATED: Self = Self(2);
    /// Of the last programs without levels.
    pub const SPLITS: Self = Self(3);
    /// The first level that shards say.
    pub const RAISED: Self = Self(4);
    /// The first level at which members of shared groups that are away leave messages to their groups.
    pub const LEAVES: Self = Self(5);
    /// The first level at which the session store can begin the control store.
    pub const CONTROL: Self = Self(6);
    /// The first level at which the control store has people and keys, and notes in its audit.
    pub const PEOPLE: Self = Self(7);
    /// The first level at which retained messages have ages, and rules remove them.
    pub const AGED: Self = Self(8);
    /// The first level at which entries may be compressed.
    pub const COMPRESSED: Self = Self(9);
    /// Of builds for tests, which play the next version.
    pub const TRIAL: Self = Self(10);

    /// The lowest that this program knows.
    pub const OLDEST: Self = Self::UNGATED;
    /// The highest that this program knows.
    pub const NEWEST: Self = LEVELS[LEVELS.len() - 1].level;

    pub(crate) fn newest() -> Self {
        Self::NEWEST
    }

    /// Whether a session that is attached again by its own connection is kept, and messages that may have been sent count as sent
    /// when their session ends.
    pub(crate) fn claims_once(self) -> bool {
        self >= Self::SPLITS
    }

    /// Whether long client identifiers are shortened.
    pub(crate) fn shortens_names(self) -> bool {
        self >= Self::SPLITS
    }

    /// Whether what inboxes are owed stands in rows by the number of the inbox.
    pub(crate) fn owes_by_number(self) -> bool {
        self >= Self::SPLITS
    }

    /// Whether rows of inboxes have classes and ages.
    pub(crate) fn has_classes(self) -> bool {
        self >= Self::SPLITS
    }

    /// The number of the inbox, or legacy, after one.
    pub(crate) fn inbox_after(self, number: u64) -> u64 {
        number + if self.is_trial() { 2 } else { 1 }
    }

    /// Whether sessions skip a number, as only builds for tests do.
    pub(crate) fn is_trial(self) -> bool {
        cfg!(feature = "trial-level") && self >= Self::TRIAL
    }

    /// Whether shards of this level may be split.
    #[must_use]
    pub fn allows_splits(self) -> bool {
        self >= Self::SPLITS
    }

    /// Whether shards of this level say it in a row and by an entry.
    #[must_use]
    pub fn is_said(self) -> bool {
        self >= Self::RAISED
    }

    /// Whether messages of shared groups that wait for sessions that are away may go to others of their groups
    /// ([`RetentionLimit::Away`](crate::inbox::RetentionLimit::Away)).
    #[must_use]
    pub fn leaves_to_groups(self) -> bool {
        self >= Self::LEAVES
    }

    /// Whether sessions that return are given what is passed over until all nodes know their routes: programs before this level
    /// would give it to their clients twice.
    #[must_use]
    pub fn settles_qos0(self) -> bool {
        self >= Self::LEAVES
    }

    /// Whether a shard of this level may begin the control store.
    #[must_use]
    pub fn begins_stores(self) -> bool {
        self >= Self::CONTROL
    }

    /// Whether the control store can have people, keys and notes.
    #[must_use]
    pub fn has_people(self) -> bool {
        self >= Self::PEOPLE
    }

    /// Whether it is kept since when a message has been retained.
    #[must_use]
    pub fn ages_retained(self) -> bool {
        self >= Self::AGED
    }

    /// Whether entries of the log may be compressed.
    #[must_use]
    pub fn compresses(self) -> bool {
        self >= Self::COMPRESSED
    }

    /// What is to be known of it; `None`: this program does not know it.
    #[must_use]
    pub fn facts(self) -> Option<&'static LevelFacts> {
        LEVELS.iter().find(|facts| facts.level == self)
    }

    /// The highest level that a node knows which speaks this version of the protocol between nodes, as far as this program knows.
    #[must_use]
    pub fn of_protocol(version: u16) -> Self {
        let known = LEVELS
            .iter()
            .rev()
            .find(|facts| facts.protocol.0 <= version);
        known.map_or(Self::OLDEST, |facts| facts.level)
    }

    /// The row of the tables.
    #[must_use]
    pub fn to_row(self) -> Vec<u8> {
        encode(&self)
    }

    /// The level that the tables of a shard say; `None`: they say none.
    ///
    /// # Errors
    /// The tables cannot be read, are damaged, or of a level that this program does not know.
    pub fn of_table(table: &dyn Table) -> Result<Option<Self>, LoadError> {
        let row = table.get(LEVEL_KEY)?;
        row.map(|row| Self::of_row(&row)).transpose()
    }

    /// The level that a row says.
    ///
    /// # Errors
    /// It is damaged, or this program does not know it.
    pub fn of_row(row: &[u8]) -> Result<Self, LoadError> {
        let level: Self = decode(LEVEL_KEY, row)?;
        if level > Self::NEWEST {
            return Err(LoadError::Level {
                found: level,
                known: Self::NEWEST,
            });
        }
        if !level.is_said() {
            return Err(damaged(LEVEL_KEY, &format!("no shard says level {level}")));
        }
        Ok(level)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_their_protocols_ascend() {
        assert!(LEVELS.is_sorted_by(|a, b| a.level < b.level && a.protocol < b.protocol));
        assert_eq!(LEVELS.first().map(|facts| facts.level), Some(Level::OLDEST));
        for facts in LEVELS {
            assert_eq!(Level::of_protocol(facts.protocol.0), facts.level);
            assert_eq!(facts.level.facts(), Some(facts));
        }
        assert_eq!(Level::of_protocol(6), Level::UNGATED);
        assert_eq!(Level::of_protocol(u16::MAX), Level::NEWEST);
    }

    #[test]
    fn a_row_says_a_level_that_this_program_knows() {
        let row = Level::NEWEST.to_row();
        assert_eq!(Level::of_row(&row), Ok(Level::NEWEST));
        let later = Level(Level::NEWEST.0 + 1);
        assert_eq!(
            Level::of_row(&later.to_row()).unwrap_err().to_string(),
            format!(
                "the shard is at level {later}, and this program knows the levels up to {}",
                Level::NEWEST
            )
        );
        for wrong in [Level::SPLITS.to_row(), Vec::new(), row[..1].to_vec()] {
            Level::of_row(&wrong).unwrap_err();
        }
    }
}
