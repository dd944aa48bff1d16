//! What was done at this node and is in the audit without a change of a record: it waits here for the control store.
//!
//! Invariants: notes wait in the order in which they were made, [`MOST`] of them and [`MOST_SUMS`] sums at most; what is lost is
//! counted, and the count is a note. A batch keeps its identifier until the store has it, also over a restart, so it is in the audit
//! once. While the store has not begun there is no audit, and nothing is kept; while a node does not know whether it has, notes wait.
//!
//! Deliberately absent: how a batch gets into the store (`audit_sending.rs`), and what is noted (`admin`).

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use admin::Often;
use control::{Address, AuditNote, By, ChangeId, Field, Means, Node as NodeNumber, UnixMs};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::json_file;

/// Notes that wait, at most.
const MOST: usize = 4_096;
/// Sums that are counted within a minute, at most; what is further counted goes to one of all others.
const MOST_SUMS: usize = 256;
/// Notes of one operation.
const BATCH: usize = 256;

/// The file in the data folder of notes that the store does not have.
const FILE: &str = "audit.pending";
/// What becomes of the file if it cannot be read.
const DAMAGED: &str = "audit.pending.damaged";

/// Notes under the identifier by which the store recognises them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) id: ChangeId,
    pub(crate) notes: Vec<AuditNote>,
}

/// How often something was done, or how many notes there are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
struct Many(u64);

/// What the file holds.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
struct Pending {
    /// What was sent, and perhaps has arrived.
    batch: Option<Batch>,
    /// What comes behind it.
    queue: VecDeque<AuditNote>,
    /// Notes that found no place behind these.
    lost: Many,
}

/// The notes of a node.
#[derive(Debug)]
pub(crate) struct AuditNotes {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Default, Debug)]
struct Inner {
    pending: Pending,
    sums: HashMap<Often, Many>,
    /// Sums that found no place.
    other_sums: Many,
    /// The file has something.
    is_written: bool,
}

impl AuditNotes {
    /// With what the process before has left in the folder. A file that cannot be read is put aside.
    pub(crate) fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let pending: Pending = json_file::read(&path).unwrap_or_else(|error| {
            let aside = folder.join(DAMAGED);
            let is_aside = std::fs::rename(&path, &aside).is_ok();
            tracing::error!(
                %error,
                path = %path.display(),
                aside = is_aside.then(|| aside.display().to_string()),
                "notes for the audit cannot be read; the audit goes on without them"
            );
            Pending::default()
        });
        let is_written = pending != Pending::default();
        let inner = Mutex::new(Inner {
            pending,
            is_written,
            ..Inner::default()
        });
        Self { path, inner }
    }

    /// Adds a note. One that the store would refuse, with all others of its batch, is counted as lost.
    pub(crate) fn handle_note(&self, note: AuditNote) {
        if let Err(error) = note.check() {
            tracing::warn!(%error, action = &*note.action, "a note for the audit cannot be kept");
            self.inner.lock().pending.lost.0 += 1;
            return;
        }
        let Pending { queue, lost, .. } = &mut self.inner.lock().pending;
        match queue.len() < MOST {
            true => queue.push_back(note),
            false => lost.0 += 1,
        }
    }

    /// Counts something.
    pub(crate) fn handle_often(&self, often: Often) {
        let mut inner = self.inner.lock();
        let has_place = inner.sums.len() < MOST_SUMS || inner.sums.contains_key(&often);
        match has_place {
            true => inner.sums.entry(often).or_default().0 += 1,
            false => inner.other_sums.0 += 1,
        }
    }

    /// A minute is over: sums become notes.
    pub(crate) fn handle_minute(&self, node: NodeNumber, at: UnixMs) {
        let (sums, others) = {
            let mut inner = self.inner.lock();
            (
                std::mem::take(&mut inner.sums),
                std::mem::take(&mut inner.other_sums),
            )
        };
        let mut sums: Vec<(Often, Many)> = sums.into_iter().collect();
        sums.sort_by(|(a, _), (b, _)| (&a.action, &a.name).cmp(&(&b.action, &b.name)));
        for (often, count) in sums {
            let by = By {
                means: often.means,
                name: often.name.into(),
                address: often.address.map(|text| Address(text.into())),
                node,
            };
            self.handle_note(counted(by, at, &often.action, count));
        }
        if others.0 > 0 {
            self.handle_note(counted(of_node(node), at, "others", others));
        }
    }

    /// The batch that goes to the store next. `id`: the identifier of a new one.
    pub(crate) fn next(
        &self,
        node: NodeNumber,
        at: UnixMs,
        id: impl FnOnce() -> ChangeId,
    ) -> Option<Batch> {
        let Pending { batch, queue, lost } = &mut self.inner.lock().pending;
        if batch.is_none() {
            let count = queue.len().min(BATCH);
            let mut notes: Vec<AuditNote> = queue.drain(..count).collect();
            if queue.is_empty() && lost.0 > 0 {
                let lost = std::mem::take(lost);
                notes.push(counted(of_node(node), at, "audit.lost", lost));
            }
            let notes = Some(notes).filter(|notes| !notes.is_empty());
            *batch = notes.map(|notes| Batch { id: id(), notes });
        }
        batch.clone()
    }

    /// The store has the batch, or never takes it.
    pub(crate) fn handle_sent(&self, id: ChangeId) {
        let mut inner = self.inner.lock();
        if inner
            .pending
            .batch
            .as_ref()
            .is_some_and(|batch| batch.id == id)
        {
            inner.pending.batch = None;
        }
    }

    /// There is no audit, as far as this node knows. What the file has was noted when there was one, and there still is: it waits.
    pub(crate) fn handle_unused(&self) {
        let mut inner = self.inner.lock();
        if inner.is_written {
            return;
        }
        inner.pending = Pending::default();
        inner.sums.clear();
        inner.other_sums = Many::default();
    }

    /// Writes what the store does not have to the file, if there is any, and what the file has is no longer so.
    pub(crate) fn keep(&self) {
        let pending = {
            let mut inner = self.inner.lock();
            let is_empty = inner.pending == Pending::default();
            if is_empty && !inner.is_written {
                return;
            }
            inner.is_written = !is_empty;
            inner.pending.clone()
        };
        if let Err(error) = json_file::write(&self.path, &pending) {
            tracing::warn!(%error, "notes for the audit are not written to the data folder");
        }
    }

    /// Whether the file has something.
    pub(crate) fn is_written(&self) -> bool {
        self.inner.lock().is_written
    }

    /// The node stops.
    pub(crate) fn handle_stop(&self, node: NodeNumber, at: UnixMs) {
        self.handle_minute(node, at);
        self.keep();
    }
}

fn of_node(node: NodeNumber) -> By {
    By {
        means: Means::Node,
        name: "".into(),
        address: None,
        node,
    }
}

fn counted(by: By, at: UnixMs, action: &str, Many(count): Many) -> AuditNote {
    let count = Field {
        name: "count".into(),
        before: None,
        after: Some(count.to_string().into()),
    };
    AuditNote {
        at,
        by,
        action: action.into(),
        target: "".into(),
        fields: [count].into(),
    }
}

#[cfg(test)]
mod tests {
    use control::{Count, Incarnation};

    use super::*;

    const NODE: NodeNumber = NodeNumber(7);

    fn id(count: u64) -> ChangeId {
        ChangeId {
            node: NODE,
            incarnation: Incarnation(1),
            count: Count(count),
        }
    }

    fn note(target: &str) -> AuditNote {
        AuditNote {
            at: UnixMs(1),
            by: of_node(NODE),
            action: "bans.add".into(),
            target: target.into(),
            fields: [].into(),
        }
    }

    fn next(notes: &AuditNotes, count: u64) -> Option<(u64, Vec<String>)> {
        let batch = notes.next(NODE, UnixMs(1), || id(count))?;
        let said = |note: &AuditNote| {
            let count = note.fields.first().and_then(|field| field.after.as_deref());
            format!("{} {}{}", note.action, note.target, count.unwrap_or(""))
        };
        Some((batch.id.count.0, batch.notes.iter().map(said).collect()))
    }

    #[test]
    fn a_batch_stays_the_same_until_the_store_has_it_also_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let notes = AuditNotes::open(folder.path());
        assert_eq!(next(&notes, 1), None);
        notes.keep();
        assert!(!folder.path().join(FILE).exists());
        notes.handle_note(note("a"));
        let first = next(&notes, 1);
        assert_eq!(first, Some((1, vec!["bans.add a".to_owned()])));
        notes.handle_note(note("b"));
        assert_eq!(next(&notes, 2), first);
        notes.handle_stop(NODE, UnixMs(1));
        let notes = AuditNotes::open(folder.path());
        assert_eq!(next(&notes, 3), first);
        notes.handle_sent(id(2));
        assert_eq!(next(&notes, 3), first);
        notes.handle_sent(id(1));
        assert_eq!(next(&notes, 3), Some((3, vec!["bans.add b".to_owned()])));
        notes.handle_sent(id(3));
        notes.keep();
        let notes = AuditNotes::open(folder.path());
        assert_eq!(next(&notes, 4), None);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "[1").unwrap();
        let notes = AuditNotes::open(folder.path());
        assert_eq!(next(&notes, 1), None);
        let aside = std::fs::read_to_string(folder.path().join(DAMAGED));
        assert_eq!(aside.unwrap(), "[1");
        assert!(!folder.path().join(FILE).exists());
    }

    #[test]
    fn what_finds_no_place_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let notes = AuditNotes::open(folder.path());
        for _ in 0..MOST + 3 {
            notes.handle_note(note("a"));
        }
        let mut all = Vec::new();
        for count in 1.. {
            let Some((id_count, said)) = next(&notes, count) else {
                break;
            };
            assert!(said.len() <= BATCH + 1);
            all.extend(said);
            notes.handle_sent(id(id_count));
        }
        assert_eq!(all.len(), MOST + 1);
        assert_eq!(all[MOST], "audit.lost 3");
        notes.handle_note(note(&"x".repeat(2_000)));
        assert_eq!(next(&notes, 9), Some((9, vec!["audit.lost 1".to_owned()])));
        notes.handle_sent(id(9));
        notes.handle_note(note("a"));
        notes.handle_unused();
        assert_eq!(next(&notes, 1), None);
    }

    #[test]
    fn what_the_file_has_waits_until_the_node_knows_that_there_is_an_audit() {
        let folder = tempfile::tempdir().unwrap();
        let notes = AuditNotes::open(folder.path());
        notes.handle_note(note("a"));
        assert!(next(&notes, 1).is_some());
        notes.keep();
        let notes = AuditNotes::open(folder.path());
        notes.handle_note(note("b"));
        notes.handle_unused();
        assert_eq!(next(&notes, 9), Some((1, vec!["bans.add a".to_owned()])));
        notes.handle_sent(id(1));
        assert_eq!(next(&notes, 2), Some((2, vec!["bans.add b".to_owned()])));
        notes.handle_sent(id(2));
        notes.keep();
        notes.handle_note(note("c"));
        notes.handle_unused();
        assert_eq!(next(&notes, 3), None);
    }

    #[test]
    fn what_is_done_often_is_one_note_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let notes = AuditNotes::open(folder.path());
        let often = |name: String| Often {
            action: "publish".to_owned(),
            name,
            means: Means::Key,
            address: None,
        };
        for _ in 0..5 {
            notes.handle_often(often("ci".to_owned()));
        }
        for number in 0..MOST_SUMS + 1 {
            notes.handle_often(often(format!("k{number}")));
        }
        assert_eq!(next(&notes, 1), None);
        notes.handle_minute(NODE, UnixMs(1));
        let mut all = Vec::new();
        while let Some((count, said)) = next(&notes, 1) {
            all.extend(said);
            notes.handle_sent(id(count));
        }
        assert_eq!(all.len(), MOST_SUMS + 1);
        assert_eq!(all[0], "publish 5");
        assert_eq!(all[MOST_SUMS], "others 2");
    }
}
