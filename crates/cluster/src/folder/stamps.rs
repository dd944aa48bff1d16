//! What tells a data folder from an old copy of it.
//!
//! Each start of a node adds a stamp with a random mark to its folder, and counts it up while it runs and when it
//! stops. Whoever meets a node remembers its newest stamp, and refuses the node from then on if its folder does
//! not have that stamp: the folder was copied before, and lacks what the node has acknowledged since then.
//!
//! Kept in the file `cluster.stamps` beside the file `cluster`, which earlier versions replace without what they
//! do not know:
//!
//! ```text
//! "HMQSTAMP"   format (4, big-endian)   CRC-32 of the rest (4)   Stamps, as postcard writes them
//! ```
//!
//! Invariants: a stamp is synced before anybody is told of it. A stamp that a member may remember stays in the
//! history. What is remembered of a node only grows newer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::folder::record::{RecordError, Sealed};

pub(crate) const STAMPS: &str = "cluster.stamps";
/// The copy of the file: without the stamps the folder would seem to be of an earlier version.
pub(crate) const STAMPS_COPY: &str = "cluster.stamps.copy";
const SEALED: Sealed = Sealed {
    magic: b"HMQSTAMP",
    format: 1,
};

/// Starts that stay in the history, whether or not a member is known to remember them. A member may remember one
/// without this node having heard so; it is refused by mistake only after as many starts that such a member has
/// missed.
///
/// Limit: stamps of a data folder, by which old copies are recognised | {} starts, and 2 for each member | older ones
/// are forgotten
const STARTS: usize = 64;

/// Stamps that a history of another node may have: those of [`STARTS`], and two for each member.
const HISTORY_LIMIT: usize = 256;

/// One start of a node, and how far it has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) incarnation: u64,
    /// How often it was counted up.
    pub(crate) count: u64,
    /// Random: two copies of a folder that are started as often differ in it.
    pub(crate) mark: u64,
}

/// The stamps of a folder, the newest last.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct History(Vec<Stamp>);

/// What is remembered of another node; its history must have both.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Seen {
    /// What the node itself has shown.
    shown: Option<Stamp>,
    /// What another member remembers, if that is newer.
    told: Option<Stamp>,
}

/// What the file holds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stamps {
    history: History,
    /// The marks of this node's stamps that each member remembers, as far as is known.
    remembered: BTreeMap<u64, BTreeSet<u64>>,
    /// The other nodes.
    seen: BTreeMap<u64, Seen>,
    /// The other members are gone for good: nobody is waited for.
    is_alone: bool,
    /// What was remembered of the other nodes until somebody had all folders taken as they are.
    #[serde(skip)]
    before_acceptance: BTreeMap<u64, Seen>,
    /// A folder was taken that is older than that.
    #[serde(skip)]
    has_taken_older: bool,
}

/// A node's data folder is older than what is remembered of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OldFolder {
    /// The start that it does not know of.
    pub(crate) incarnation: u64,
}

impl History {
    fn newest(&self) -> Option<Stamp> {
        self.0.last().copied()
    }

    /// Whether the folder was there when the stamp was made. How far a process has come that still runs is not
    /// asked: what it has said may come after what it says later.
    fn has(&self, stamp: Stamp) -> bool {
        let newest = self.newest().map(|newest| newest.mark);
        self.0.iter().any(|known| {
            (known.incarnation, known.mark) == (stamp.incarnation, stamp.mark)
                && (known.count >= stamp.count || newest == Some(known.mark))
        })
    }

    pub(crate) fn is_too_long(&self) -> bool {
        self.0.len() > HISTORY_LIMIT
    }
}

impl Seen {
    fn stamps(&self) -> impl Iterator<Item = Stamp> {
        [self.shown, self.told].into_iter().flatten()
    }
}

impl Stamps {
    /// This node was started. Returns whether it is the first time.
    pub(crate) fn begin(&mut self, incarnation: u64, mark: u64) -> bool {
        let is_first = self.history.0.is_empty();
        self.history.0.push(Stamp {
            incarnation,
            count: 0,
            mark,
        });
        let marks: BTreeSet<u64> = self.remembered.values().flatten().copied().collect();
        let mut older = self.history.0.len().saturating_sub(STARTS);
        self.history.0.retain(|stamp| {
            let is_recent = older == 0;
            older = older.saturating_sub(1);
            is_recent || marks.contains(&stamp.mark)
        });
        is_first
    }

    /// This node has come further.
    pub(crate) fn advance(&mut self) {
        if let Some(newest) = self.history.0.last_mut() {
            newest.count += 1;
        }
    }

    /// This node's.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    pub(crate) fn set_alone(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
    }

    /// Forgets what is remembered of the others: their folders are taken as they are.
    pub(crate) fn forget_others(&mut self) {
        self.before_acceptance = std::mem::take(&mut self.seen);
    }

    /// Whether a folder was taken that is older than what was remembered before.
    pub(crate) fn has_taken_older(&self) -> bool {
        self.has_taken_older
    }

    /// Whether the folder of another node is as new as what is remembered of it.
    pub(crate) fn check(&self, node: u64, history: &History) -> Result<(), OldFolder> {
        let seen = self.seen.get(&node);
        let mut stamps = seen.into_iter().flat_map(Seen::stamps);
        match stamps.find(|stamp| !history.has(*stamp)) {
            None => Ok(()),
            Some(Stamp { incarnation, .. }) => Err(OldFolder { incarnation }),
        }
    }

    /// Remembers a node whose folder was found to be new enough. Nodes of earlier versions have no history.
    pub(crate) fn saw(&mut self, node: u64, history: &History) {
        let Some(newest) = history.newest() else {
            return;
        };
        let before = self.before_acceptance.get(&node);
        self.has_taken_older |=
            before.is_some_and(|seen| seen.stamps().any(|stamp| !history.has(stamp)));
        let seen = self.seen.entry(node).or_default();
        if seen.shown.is_none_or(|shown| shown <= newest) {
            seen.shown = Some(newest);
        }
        if seen.told <= seen.shown {
            seen.told = None;
        }
    }

    /// Another member remembers this of a node. A history has to have both what was shown and what was told: who
    /// tells may have been shown a folder that others would have refused.
    pub(crate) fn was_told(&mut self, node: u64, stamp: Stamp) {
        let seen = self.seen.entry(node).or_default();
        if seen.stamps().all(|known| known < stamp) {
            seen.told = Some(stamp);
        }
    }

    /// A member remembers these stamps of this node.
    pub(crate) fn is_remembered(&mut self, by: u64, stamps: &[Stamp]) {
        let known = |mark: &u64| self.history.0.iter().any(|known| known.mark == *mark);
        let marks = stamps.iter().map(|stamp| stamp.mark).filter(known);
        let marks: BTreeSet<u64> = marks.collect();
        if !marks.is_empty() {
            self.remembered.insert(by, marks);
        }
    }

    /// What is remembered of all nodes but this one.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (u64, Vec<Stamp>)> {
        let seen = self.seen.iter();
        seen.map(|(node, seen)| (*node, seen.stamps().collect()))
    }

    /// The incarnation of the latest start of another node that is remembered.
    pub(crate) fn newest_start(&self, node: u64) -> Option<u64> {
        let stamps = self.seen.get(&node)?.stamps();
        stamps.map(|stamp| stamp.incarnation).max()
    }

    /// Forgets nodes that are no members.
    pub(crate) fn retain(&mut self, is_member: impl Fn(u64) -> bool) {
        self.remembered.retain(|node, _| is_member(*node));
        self.seen.retain(|node, _| is_member(*node));
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct StampFile {
    path: PathBuf,
    /// What this process has written last.
    kept: Mutex<Option<Stamps>>,
    /// The history in it: what others are shown. On a full disk the folder may not get further.
    synced_history: Mutex<History>,
}

impl StampFile {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            path: folder.join(STAMPS),
            kept: Mutex::default(),
            synced_history: Mutex::default(),
        }
    }

    /// Without a file there is nothing yet: an earlier version wrote the folder.
    pub(crate) fn read(&self) -> Result<Stamps, RecordError> {
        SEALED.repair(&self.path);
        let found = SEALED.read_with_copy(&self.path)?;
        let stamps = found.map(|found| postcard::from_bytes(&found.body));
        let stamps = stamps.transpose();
        let stamps = stamps.map_err(|_| RecordError::Damaged(self.path.clone()))?;
        Ok(stamps.unwrap_or_default())
    }

    /// The history of this node that is on the disk; empty before the first [`StampFile::keep`].
    pub(crate) fn synced_history(&self) -> History {
        self.synced_history.lock().clone()
    }

    /// Replaces the file if the stamps have changed since the last time, and returns when that is on the disk.
    pub(crate) fn keep(&self, stamps: impl FnOnce() -> Stamps) -> Result<(), RecordError> {
        // Who waits here for another one to write may find that it has written this as well.
        let mut kept = self.kept.lock();
        let next = stamps();
        if kept.as_ref() != Some(&next) {
            self.write(&next)?;
            *self.synced_history.lock() = next.history().clone();
            *kept = Some(next);
        }
        Ok(())
    }

    /// Replaces the file, and returns when that is on the disk.
    pub(crate) fn write(&self, stamps: &Stamps) -> Result<(), RecordError> {
        let body = postcard::to_stdvec(stamps).expect("stamps can be written");
        SEALED.write_with_copy(&self.path, &body)
    }
}

/// From the next start on this node waits for no other one to confirm its data folder, which no process uses: the
/// others are gone for good. That ends when a majority of the members has confirmed it.
///
/// # Errors
/// The file cannot be read or written.
pub fn go_on_alone(folder: &Path) -> Result<(), RecordError> {
    let file = StampFile::new(folder);
    let mut stamps = file.read()?;
    stamps.set_alone(true);
    file.write(&stamps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: u64 = 3;

    fn started(times: u64) -> Stamps {
        let mut stamps = Stamps::default();
        for incarnation in 1..=times {
            stamps.begin(incarnation, 1000 + incarnation);
        }
        stamps
    }

    /// What another node thinks of it, and remembers if it is good.
    fn meet(other: &mut Stamps, node: &Stamps) -> Result<(), OldFolder> {
        other.check(NODE, node.history())?;
        other.saw(NODE, node.history());
        Ok(())
    }

    #[test]
    fn a_copy_is_refused_at_every_start_and_the_folder_is_not() {
        let (mut node, mut other) = (started(2), Stamps::default());
        meet(&mut other, &node).unwrap();
        let mut copy = node.clone();
        for incarnation in 3..6 {
            node.begin(incarnation, 2000 + incarnation);
            meet(&mut other, &node).unwrap();
        }
        // Also when it was started as often, or more often.
        for incarnation in 3..200 {
            copy.begin(incarnation, 3000 + incarnation);
            let newest = OldFolder { incarnation: 5 };
            assert_eq!(meet(&mut other, &copy), Err(newest), "{incarnation}");
            meet(&mut other, &node).unwrap();
        }
    }

    #[test]
    fn a_copy_of_a_running_node_is_refused_once_the_node_has_come_further() {
        let (mut node, mut other) = (started(1), Stamps::default());
        let mut copy = node.clone();
        let shown_earlier = node.clone();
        node.advance();
        meet(&mut other, &node).unwrap();
        // The process itself: what it said before comes later.
        meet(&mut other, &shown_earlier).unwrap();
        copy.begin(2, 7);
        assert_eq!(meet(&mut other, &copy), Err(OldFolder { incarnation: 1 }));
        node.begin(2, 8);
        meet(&mut other, &node).unwrap();
    }

    #[test]
    fn of_two_copies_the_first_is_taken() {
        let mut other = Stamps::default();
        let (mut one, mut two) = (started(2), started(2));
        one.begin(3, 1);
        two.begin(3, 2);
        meet(&mut other, &one).unwrap();
        assert_eq!(meet(&mut other, &two), Err(OldFolder { incarnation: 3 }));
    }

    #[test]
    fn what_others_tell_is_asked_for_as_well() {
        let (mut node, mut absent) = (started(1), Stamps::default());
        meet(&mut absent, &node).unwrap();
        let mut copy = node.clone();
        node.begin(2, 20);
        absent.was_told(NODE, node.history().newest().unwrap());
        copy.begin(2, 30);
        assert_eq!(meet(&mut absent, &copy), Err(OldFolder { incarnation: 2 }));
        // Older news changes nothing.
        absent.was_told(NODE, started(1).history().newest().unwrap());
        meet(&mut absent, &node).unwrap();
        assert_eq!(absent.seen().next().unwrap().1.len(), 1);
        // Who tells was shown a copy: what was shown here counts still.
        copy.begin(3, 40);
        absent.was_told(NODE, copy.history().newest().unwrap());
        assert_eq!(meet(&mut absent, &copy), Err(OldFolder { incarnation: 2 }));
    }

    #[test]
    fn a_history_is_bounded_and_has_what_members_remember() {
        let (mut node, mut absent) = (started(1), Stamps::default());
        meet(&mut absent, &node).unwrap();
        let remembered: Vec<_> = absent.seen().next().unwrap().1;
        node.is_remembered(7, &remembered);
        for incarnation in 2..500 {
            node.begin(incarnation, 1000 + incarnation);
        }
        assert_eq!(node.history().0.len(), STARTS + 1);
        meet(&mut absent, &node).unwrap();
        // It is a member no longer.
        node.retain(|_| false);
        node.begin(500, 1);
        assert_eq!(node.history().0.len(), STARTS);
    }

    #[test]
    fn folders_of_earlier_versions_are_taken_until_they_have_stamps() {
        let (mut other, earlier) = (Stamps::default(), Stamps::default());
        meet(&mut other, &earlier).unwrap();
        meet(&mut other, &started(1)).unwrap();
        assert_eq!(
            meet(&mut other, &earlier),
            Err(OldFolder { incarnation: 1 })
        );
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = StampFile::new(folder.path());
        assert_eq!(file.read().unwrap(), Stamps::default());
        let mut stamps = started(3);
        stamps.is_remembered(1, &stamps.history().0.clone());
        stamps.was_told(2, stamps.history().newest().unwrap());
        file.write(&stamps).unwrap();
        assert_eq!(file.read().unwrap(), stamps);
        go_on_alone(folder.path()).unwrap();
        assert!(file.read().unwrap().is_alone());
    }
}
