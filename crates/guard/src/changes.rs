//! What is known of the bans of a cluster beyond those that count: which were lifted, and a hash of all by which nodes
//! find out whether they know the same.
//!
//! Invariant: of two changes for one subject the later one counts, whichever a node is told first. So nodes that know
//! the same changes have the same bans.
//!
//! Deliberately absent: how changes get to other nodes (`broker/src/cluster_bans.rs`).

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::ban::{Ban, LiftedRecord, Subject};

/// Parts of the hash, by subject: nodes that differ tell each other only of parts that do.
pub const PARTS: usize = 256;

/// The most lifted bans that are remembered. Beyond it the one that was lifted first is forgotten.
///
/// Limit: lifted bans that a node of a cluster remembers, for nodes that are down | {} | the oldest is forgotten: a
/// node that was down since before it was lifted brings it back
const MOST: usize = 100_000;

/// That there is a ban, or none any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It was made.
    Banned(Ban),
    /// It was lifted, or has ended.
    Lifted(Lifted),
}

/// A ban that was lifted or has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "LiftedRecord", into = "LiftedRecord")]
pub struct Lifted {
    /// Whom it concerned.
    pub subject: Subject,
    /// When it was lifted, and its number; of one that has ended, when it was made.
    pub version: Version,
}

/// Time in ms of Unix time, and number of a ban: of two changes for one subject the one with the later time counts, and
/// of these the one with the higher number.
pub type Version = (u64, u64);

impl Change {
    /// Whom it concerns.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        match self {
            Self::Banned(ban) => &ban.subject,
            Self::Lifted(lifted) => &lifted.subject,
        }
    }

    pub(crate) fn version(&self) -> Version {
        match self {
            Self::Banned(ban) => ban.version(),
            Self::Lifted(lifted) => lifted.version,
        }
    }
}

/// Lifted bans, and the hash of all changes.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    lifted: HashMap<Subject, Version>,
    /// The same in the order in which they are forgotten; the hash tells those of one version apart.
    oldest: BTreeMap<(Version, u64), Subject>,
    digest: [u64; PARTS],
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            lifted: HashMap::new(),
            oldest: BTreeMap::new(),
            digest: [0; PARTS],
        }
    }
}

impl Changes {
    /// A ban is there from now on, or is there no more.
    pub(crate) fn toggle(&mut self, subject: &Subject, version: Version) {
        if let Some(part) = self.digest.get_mut(part_of(subject)) {
            *part ^= hash(subject, version);
        }
    }

    /// A ban was lifted. What was known of its subject is forgotten.
    pub(crate) fn lift(&mut self, subject: Subject, version: Version) {
        self.forget(&subject);
        self.toggle(&subject, version);
        self.lifted.insert(subject.clone(), version);
        self.oldest
            .insert((version, hash(&subject, version)), subject);
        if self.lifted.len() > MOST
            && let Some((_, subject)) = self.oldest.pop_first()
        {
            self.forget(&subject);
        }
    }

    /// The subject is banned again.
    pub(crate) fn forget(&mut self, subject: &Subject) {
        if let Some(version) = self.lifted.remove(subject) {
            self.toggle(subject, version);
            self.oldest.remove(&(version, hash(subject, version)));
        }
    }

    /// What is known of a subject that is not banned.
    pub(crate) fn version(&self, subject: &Subject) -> Option<Version> {
        self.lifted.get(subject).copied()
    }

    pub(crate) fn lifted(&self) -> impl Iterator<Item = Lifted> {
        self.lifted.iter().map(|(subject, &version)| Lifted {
            subject: subject.clone(),
            version,
        })
    }

    pub(crate) fn digest(&self) -> &[u64; PARTS] {
        &self.digest
    }
}

/// Which part of the hash a subject belongs to.
pub(crate) fn part_of(subject: &Subject) -> usize {
    usize::from(hash(subject, (0, 0)).to_be_bytes()[0])
}

/// The same on all nodes, of whatever version: FNV-1a, mixed as `MurmurHash3` ends.
fn hash(subject: &Subject, (at_ms, id): Version) -> u64 {
    let (kind, name) = match subject {
        Subject::Client(name) => (1, name.to_string()),
        Subject::User(name) => (2, name.to_string()),
        Subject::Address(network) => (3, network.to_string()),
    };
    let numbers = [at_ms.to_le_bytes(), id.to_le_bytes()];
    let bytes = [kind].into_iter().chain(name.into_bytes());
    let bytes = bytes.chain(numbers.into_iter().flatten());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}
