//! What is kept of the other members' programs: the version of the protocol that each speaks, for a node that is
//! started while some members are down.
//!
//! A cluster writes nothing new before all of its members are known to read it, those that are down included. What a
//! member reads goes with the version of the protocol that it speaks (docs/decisions/0016-peer-protocol.md), and that
//! is told in handshakes only.
//!
//! Kept in the file `cluster.spoken` beside the file `cluster`:
//!
//! ```text
//! "HMQSPOKE"   format (4, big-endian)   CRC-32 of the rest (4)   Kept, as postcard writes it
//! ```
//!
//! Invariants: what is kept is of one start of a member, and counts only while no later one is known: a later start
//! may be of an older program. A file that cannot be used is as good as none, and prevents no start.
//!
//! Deliberately absent: facts that change while a process runs, because the file is synced at each change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::folder::record::{RecordError, Sealed};
use crate::members::list::{Details, INFO_LIMIT, Known, Roster};
use crate::options::Versions;

pub(crate) const SPOKEN: &str = "cluster.spoken";
const SEALED: Sealed = Sealed {
    magic: b"HMQSPOKE",
    format: 1,
};

/// Bytes of the version of a member's program. A longer one is not kept.
///
/// Limit: what is kept of the other members' programs (`cluster.spoken`) | one entry for each member, with {:bytes}
/// of version and {INFO_LIMIT:bytes} of facts; written once a second, and only after a change | what is longer is not
/// kept
const PROGRAM_LIMIT: usize = 256;

/// What the file holds, by the identifier of the member and the incarnation that it is of. A list of members is bounded, and
/// so is this.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept(BTreeMap<(u64, u64), Entry>);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Entry {
    /// The versions of the protocol that it speaks. `None`: there was no handshake, only gossip.
    versions: Option<Versions>,
    /// The version of its program; empty while unknown.
    program: String,
    /// Those of its facts that are asked for.
    info: BTreeMap<String, String>,
}

impl Entry {
    fn of(known: &Known, keys: &[String]) -> Self {
        let Details { version, info, .. } = &known.details;
        let asked_for = info.iter().filter(|(key, _)| keys.contains(key));
        let mut info: BTreeMap<_, _> = asked_for
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let bytes: usize = info
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        // No program of ours tells more.
        if bytes > INFO_LIMIT {
            info.clear();
        }
        let program = match version.len() <= PROGRAM_LIMIT {
            true => version.clone(),
            false => String::new(),
        };
        Self {
            versions: known.spoken.map(|spoken| spoken.versions),
            program,
            info,
        }
    }
}

impl Kept {
    /// What is to be kept of the members. `keys`: of the facts that are asked for.
    pub(crate) fn of(roster: &Roster, keys: &[String]) -> Self {
        let start = |known: &Known| (known.place.node, known.place.incarnation);
        let entries = roster.others();
        let entries = entries.map(|known| (start(known), Entry::of(known, keys)));
        Self(entries.collect())
    }

    /// The newest version that a member speaks, and that of its program.
    #[cfg(test)]
    pub(crate) fn entry(&self, node: u64) -> Option<(u16, String)> {
        let (_, entry) = self.0.iter().find(|((of, _), _)| *of == node)?;
        Some((entry.versions?.newest, entry.program.clone()))
    }

    /// Has a list of members know what is kept of them.
    pub(crate) fn recall(self, roster: &mut Roster) {
        for ((node, incarnation), entry) in self.0 {
            let details = Details {
                version: entry.program,
                info: entry.info,
                ..Details::default()
            };
            roster.recall(node, incarnation, entry.versions, details);
        }
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct SpokenFile {
    path: PathBuf,
    /// What is on the disk. `None`: nothing that can be used.
    kept: Mutex<Option<Kept>>,
}

impl SpokenFile {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            path: folder.join(SPOKEN),
            kept: Mutex::default(),
        }
    }

    /// `None`: there is no file, or it cannot be used, which the log says. It is replaced by the next one then.
    pub(crate) fn read(&self) -> Option<Kept> {
        let read = self.try_read();
        if let Err(error) = &read {
            let reason = match error {
                // The folder is as good as before without this file: nothing has to be emptied.
                RecordError::Damaged(path) => format!("{} is damaged", path.display()),
                error => error.to_string(),
            };
            tracing::warn!(
                reason,
                "the protocol versions of other members are unknown until they are connected"
            );
        }
        let kept = read.ok().flatten();
        self.kept.lock().clone_from(&kept);
        kept
    }

    fn try_read(&self) -> Result<Option<Kept>, RecordError> {
        let body = SEALED.read(&self.path)?;
        let kept = body.map(|body| postcard::from_bytes(&body)).transpose();
        kept.map_err(|_| RecordError::Damaged(self.path.clone()))
    }

    /// Replaces the file if this is not what it holds, and returns when that is on the disk.
    pub(crate) fn keep(&self, next: Kept) -> Result<(), RecordError> {
        let mut kept = self.kept.lock();
        if kept.as_ref() != Some(&next) {
            let body = postcard::to_stdvec(&next).expect("what is kept can be written");
            SEALED.write(&self.path, &body)?;
            *kept = Some(next);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::members::list::{Place, Spoken};

    fn place(node: u64, incarnation: u64) -> Place {
        Place {
            node,
            incarnation,
            address: "a:1".to_owned(),
        }
    }

    /// What gossip tells of a program.
    fn program(version: &str, facts: &[(&str, &str)]) -> Option<Details> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Some(Details {
            version: version.to_owned(),
            info: facts.iter().map(owned).collect(),
            ..Details::default()
        })
    }

    fn up_to(newest: u16) -> Versions {
        Versions { oldest: 1, newest }
    }

    fn keys() -> Vec<String> {
        vec!["name".to_owned()]
    }

    /// The node 1, which has shaken hands with start 5 of node 2 and has only heard of node 3.
    fn roster() -> Roster {
        let mut roster = Roster::new(1, Vec::new(), BTreeSet::new());
        let facts = [("name", "b"), ("connections", "7")];
        roster.learn(place(2, 5), program("1.7", &facts)).unwrap();
        roster.was_spoken(2, 5, up_to(7));
        roster.learn(place(3, 1), program("1.6", &[])).unwrap();
        roster
    }

    /// The same node, started again with a file `cluster` that has these members.
    fn started_again(places: &[Place], kept: &Kept) -> Roster {
        let mut roster = Roster::new(1, places.to_vec(), BTreeSet::new());
        kept.clone().recall(&mut roster);
        roster
    }

    fn version(roster: &Roster, node: u64) -> Option<(u16, bool)> {
        let Spoken { versions, is_kept } = roster.known(node)?.spoken?;
        Some((versions.newest, is_kept))
    }

    #[test]
    fn what_is_kept_is_known_again() {
        let kept = Kept::of(&roster(), &keys());
        let again = started_again(&[place(2, 5), place(3, 1)], &kept);
        assert_eq!(version(&roster(), 2), Some((7, false)));
        assert_eq!(version(&again, 2), Some((7, true)));
        assert_eq!(version(&again, 3), None);
        let details = |node| again.known(node).unwrap().details.clone();
        assert_eq!(Some(details(2)), program("1.7", &[("name", "b")]));
        assert_eq!(details(3).version, "1.6");
        // Nothing has changed that would have to be written.
        assert_eq!(Kept::of(&again, &keys()), kept);
    }

    #[test]
    fn a_later_start_counts_from_when_it_is_heard_of() {
        let kept = Kept::of(&roster(), &keys());
        // The file `cluster` knows of it.
        let again = started_again(&[place(2, 6)], &kept);
        assert_eq!(version(&again, 2), None);
        assert_eq!(again.known(2).unwrap().details, Details::default());
        // Gossip tells of it.
        let mut again = started_again(&[place(2, 5)], &kept);
        again.learn(place(2, 6), program("1.5", &[])).unwrap();
        assert_eq!(version(&again, 2), None);
        // What an earlier start said comes too late.
        again.was_spoken(2, 5, up_to(7));
        assert_eq!(version(&again, 2), None);
        again.was_spoken(2, 6, up_to(5));
        assert_eq!(version(&again, 2), Some((5, false)));
    }

    #[test]
    fn of_two_processes_of_one_start_the_lower_version_counts() {
        for (first, second) in [(7, 5), (5, 7)] {
            let mut roster = Roster::new(1, vec![place(2, 5)], BTreeSet::new());
            roster.was_spoken(2, 5, up_to(first));
            roster.was_spoken(2, 5, up_to(second));
            assert_eq!(version(&roster, 2), Some((5, false)));
        }
    }

    #[test]
    fn nothing_is_kept_of_who_is_no_member() {
        let kept = Kept::of(&roster(), &keys());
        let again = started_again(&[place(3, 1)], &kept);
        assert_eq!(again.others().count(), 1);
        let mut roster = roster();
        roster.evict(2).unwrap();
        roster.was_spoken(2, 5, up_to(7));
        assert_eq!(version(&roster, 2), None);
        assert_eq!(Kept::of(&roster, &keys()).0.len(), 1);
    }

    #[test]
    fn facts_that_nobody_asks_for_change_nothing() {
        let mut roster = roster();
        let before = Kept::of(&roster, &keys());
        let told = |connections| program("1.7", &[("name", "b"), ("connections", connections)]);
        for connections in ["8", "9"] {
            roster.learn(place(2, 5), told(connections)).unwrap();
            assert_eq!(Kept::of(&roster, &keys()), before);
        }
        let renamed = program("1.7", &[("name", "c")]);
        roster.learn(place(2, 5), renamed).unwrap();
        assert_ne!(Kept::of(&roster, &keys()), before);
    }

    #[test]
    fn what_is_too_long_is_not_kept() {
        let mut roster = roster();
        let (fits, long) = ("x".repeat(PROGRAM_LIMIT), "x".repeat(INFO_LIMIT));
        for (version, name, program_bytes, facts) in [
            (&*fits, "b", PROGRAM_LIMIT, 1),
            (&*long, "b", 0, 1),
            ("1.7", &*long, 3, 0),
        ] {
            let told = program(version, &[("name", name)]);
            roster.learn(place(2, 5), told).unwrap();
            let kept = Kept::of(&roster, &keys());
            let entry = &kept.0[&(2, 5)];
            assert_eq!(
                (entry.program.len(), entry.info.len()),
                (program_bytes, facts)
            );
        }
    }

    #[test]
    fn what_was_written_is_read_and_a_damaged_file_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = SpokenFile::new(folder.path());
        assert_eq!(file.read(), None);
        let kept = Kept::of(&roster(), &keys());
        file.keep(kept.clone()).unwrap();
        assert_eq!(file.read(), Some(kept.clone()));
        let bytes = fs::read(&file.path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            for bytes in [&damaged[..], &bytes[..at]] {
                fs::write(&file.path, bytes).unwrap();
                assert_eq!(file.read(), None, "{at}");
            }
        }
        // A later format, with a sum that is right.
        let mut newer = bytes.clone();
        newer[11] = 2;
        fs::write(&file.path, newer).unwrap();
        assert_eq!(file.read(), None);
        file.keep(kept.clone()).unwrap();
        assert_eq!(file.read(), Some(kept.clone()));
        // What has not changed is not written again.
        fs::remove_file(&file.path).unwrap();
        file.keep(kept.clone()).unwrap();
        assert!(!file.path.exists());
        file.keep(Kept::default()).unwrap();
        assert_eq!(file.read(), Some(Kept::default()));
    }
}
