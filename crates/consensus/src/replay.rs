//! Reads a damaged log batch by batch, and says of each group what is left and what may be missing.
//!
//! The engine takes up a log as a whole or not at all. Here what the whole batches say is taken up in their order, and each
//! group is held against what `ends` says of it:
//! - entries that follow each other from the front are its log;
//! - entries behind a hole are kept apart: they count when the group's tables turn out to reach beyond the hole;
//! - a group that has less than `ends` says, or that may have had more than is left, carries a [`Loss`].
//!
//! What becomes of a group with a loss is decided when it starts (`settle.rs`), because only then it is known how far its tables
//! reach and who votes.
//!
//! Invariant: no group is without a loss that has, in a place that was synced, lost anything it needs.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::check::{Check, Damage};
use crate::encoding::{Reader, encoded, encoded_vote};
use crate::ends::{Ends, GroupEnd, Known};
use crate::files::Files;
use crate::log_files::{Batch, Batches, Item, Kind, LogFile, Part, What, read};
use crate::loss::Loss;
use crate::numbers::{EntryIndex, GroupId};
use crate::record::Record;
use crate::request::key;
use crate::types::{LogId, TERMS_OF_COPIES, Vote, next_index};

/// The key of raft-engine's own under which it marks batches that count only together.
const ATOMIC: &[u8] = b"__\x01";

const ATOMIC_BEGIN: u8 = 0;
const ATOMIC_END: u8 = 2;

/// A place in a log, in the order of the batches.
type Place = (LogFile, u64);

/// Where an entry is.
#[derive(Clone, Debug)]
struct EntryAt {
    file: LogFile,
    bytes: Range<u64>,
}

/// What the batches say of a group.
#[derive(Clone, Debug, Default)]
struct Contents {
    entries: BTreeMap<u64, EntryAt>,
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The last of the entries that cannot be read, though their batch says that they were there, unless it was written again.
    unreadable: Option<u64>,
    /// The newest batch that has entries of the group.
    newest: Option<Place>,
}

impl Contents {
    fn take(&mut self, file: LogFile, batch: &Batch, what: What) {
        match what {
            What::Entries { first, at } => {
                drop(self.entries.split_off(&first));
                self.unreadable = self.unreadable.filter(|last| *last < first);
                self.newest = Some((file, batch.bytes.start as u64));
                if !batch.has_whole_entries {
                    let last = (first + at.len() as u64).checked_sub(1);
                    self.unreadable = last.filter(|_| !at.is_empty()).max(self.unreadable);
                    return;
                }
                for (index, at) in (first..).zip(at) {
                    let begin = batch.entries.start as u64;
                    let bytes = begin + u64::from(at.start)..begin + u64::from(at.end);
                    self.entries.insert(index, EntryAt { file, bytes });
                }
            }
            What::Clean => *self = Self::default(),
            What::Compact { index } => self.entries = self.entries.split_off(&index),
            What::Put { key, value } => drop(self.values.insert(key, value)),
            What::Delete { key } => drop(self.values.remove(&key)),
        }
    }

    fn id(&self, key: &[u8]) -> Option<LogId> {
        self.values
            .get(key)
            .and_then(|value| Reader(value).log_id())
    }

    fn vote(&self) -> Option<Vote> {
        self.values
            .get(key::VOTE)
            .and_then(|value| Reader(value).vote())
    }
}

/// Items of batches that count only together.
type Together = Vec<(LogFile, Batch, Vec<Item>)>;

/// What the batches of a log say.
#[derive(Debug, Default)]
struct Replay {
    groups: BTreeMap<u64, Contents>,
    atomic: BTreeMap<u64, Together>,
    /// The last place where a batch was lost that `ends` does not cover, or may have been.
    uncovered: Option<Place>,
}

impl Replay {
    fn take(&mut self, file: LogFile, batch: Batch, items: Vec<Item>) {
        let mark = match file.kind {
            Kind::Rewritten => items.iter().find_map(atomic_mark),
            Kind::Appended => None,
        };
        match mark {
            None => self.apply(file, &batch, items),
            Some((id, ATOMIC_BEGIN)) => drop(self.atomic.insert(id, vec![(file, batch, items)])),
            Some((id, mark)) => {
                // One whose beginning is lost does not count: what it moves is in older files still.
                if let Some(begun) = self.atomic.get_mut(&id) {
                    begun.push((file, batch, items));
                }
                if mark == ATOMIC_END {
                    for (file, batch, items) in self.atomic.remove(&id).unwrap_or_default() {
                        self.apply(file, &batch, items);
                    }
                }
            }
        }
    }

    fn apply(&mut self, file: LogFile, batch: &Batch, items: Vec<Item>) {
        for item in items {
            if atomic_mark(&item).is_none() {
                let contents = self.groups.entry(item.group.0).or_default();
                contents.take(file, batch, item.what);
            }
        }
    }

    fn lost(&mut self, place: Place, known: Option<&Ends>) {
        let synced = known.and_then(|ends| ends.files.get(&place.0));
        if synced.is_none_or(|synced| place.1 >= *synced) {
            self.uncovered = self.uncovered.max(Some(place));
        }
    }
}

fn atomic_mark(item: &Item) -> Option<(u64, u8)> {
    match &item.what {
        What::Put { key, value } if key == ATOMIC => Some((item.group.0, *value.first()?)),
        _ => None,
    }
}

/// What is left of a group.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) group: GroupId,
    /// What is kept beside the entries, as it is to be written.
    pub(crate) values: BTreeMap<Vec<u8>, Vec<u8>>,
    last: Option<LogId>,
    /// Entries that follow each other from the front.
    entries: Vec<EntryAt>,
    /// Those that follow each other up to the last one, behind a hole; none without a hole.
    apart: Vec<EntryAt>,
    pub(crate) loss: Option<Loss>,
}

/// What is left of a log.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    pub(crate) groups: Vec<Left>,
}

impl Remains {
    /// Reads what is left in `folder`.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn read(
        files: &dyn Files,
        folder: &Path,
        check: &Check,
        known: Option<&Known>,
    ) -> io::Result<Self> {
        let synced = known.map(|known| &known.synced);
        let known = known.map(|known| &known.ends);
        let mut replay = Replay::default();
        for finding in &check.findings {
            let begin = match finding.what {
                Damage::Missing => 0,
                Damage::Short { len, .. } => len,
                // What is in their place is met below.
                Damage::Header | Damage::Bytes { .. } | Damage::Bit { .. } => continue,
            };
            if let Some(file) = LogFile::named(&finding.path) {
                replay.lost((file, begin), known);
            }
        }
        for (file, end) in &check.ends {
            let mut content = read(files, &file.path(folder))?;
            content.truncate(usize::try_from(*end).unwrap_or(usize::MAX));
            let synced = synced.and_then(|ends| ends.get(file)).copied();
            for part in Batches::new(&content, *file, synced.unwrap_or(0)) {
                let place = |bytes: &Range<usize>| (*file, bytes.start as u64);
                match part {
                    Part::Unreadable(bytes) => replay.lost(place(&bytes), known),
                    Part::Batch(batch) => match batch.items(&content) {
                        Some(items) => replay.take(*file, batch, items),
                        None => replay.lost(place(&batch.bytes), known),
                    },
                }
            }
        }
        Ok(judge(replay, files, folder, known))
    }

    /// Whether any group has lost anything.
    pub(crate) fn has_loss(&self) -> bool {
        self.groups.iter().any(|left| left.loss.is_some())
    }
}

impl Left {
    /// What `ends` is to say of the group; `known`: what it said before.
    pub(crate) fn end(&self, known: GroupEnd) -> GroupEnd {
        let value = |key: &[u8]| self.values.get(key);
        let id = |key: &[u8]| value(key).and_then(|value| Reader(value).log_id());
        GroupEnd {
            vote: value(key::VOTE).and_then(|value| Reader(value).vote()),
            last: known.last.max(self.last),
            purged: id(key::PURGED),
            floor: id(key::DELETED),
        }
    }

    /// Reads entries: those that follow each other from the front, and those apart.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn records(&self, reader: &mut EntryReader<'_>) -> io::Result<[Vec<Record>; 2]> {
        let mut read = |entries: &[EntryAt]| -> io::Result<Vec<Record>> {
            entries.iter().map(|at| reader.record(at)).collect()
        };
        Ok([read(&self.entries)?, read(&self.apart)?])
    }
}

/// Reads entries where they are.
pub(crate) struct EntryReader<'a> {
    files: &'a dyn Files,
    folder: PathBuf,
    content: Option<(LogFile, Vec<u8>)>,
}

impl<'a> EntryReader<'a> {
    pub(crate) fn new(files: &'a dyn Files, folder: &Path) -> Self {
        Self {
            files,
            folder: folder.to_owned(),
            content: None,
        }
    }

    fn record(&mut self, at: &EntryAt) -> io::Result<Record> {
        let content = match &self.content {
            Some((file, content)) if *file == at.file => content,
            _ => {
                let content = read(self.files, &at.file.path(&self.folder))?;
                &self.content.insert((at.file, content)).1
            }
        };
        let bytes = content.get(at.bytes.start as usize..at.bytes.end as usize);
        bytes.map(Record::from_bytes).ok_or_else(|| {
            let path = at.file.path(&self.folder);
            io::Error::other(format!("{}: it has become shorter", path.display()))
        })
    }
}

fn judge(mut replay: Replay, files: &dyn Files, folder: &Path, known: Option<&Ends>) -> Remains {
    let mut reader = EntryReader::new(files, folder);
    let uncovered = replay.uncovered;
    if let Some(known) = known {
        for group in known.groups.keys() {
            replay.groups.entry(*group).or_default();
        }
    }
    let groups = std::mem::take(&mut replay.groups).into_iter();
    let judged = groups.map(|(group, contents)| {
        let end = known.and_then(|ends| ends.groups.get(&group).copied());
        let is_exact = known.is_some_and(|ends| ends.is_orderly);
        judge_group(group, contents, end, is_exact, uncovered, &mut reader)
    });
    Remains {
        groups: judged.collect(),
    }
}

fn judge_group(
    group: u64,
    contents: Contents,
    end: Option<GroupEnd>,
    is_exact: bool,
    uncovered: Option<Place>,
    reader: &mut EntryReader<'_>,
) -> Left {
    let known = end.unwrap_or_default();
    let purged = contents.id(key::PURGED).max(known.purged);
    let floor = contents.id(key::DELETED).max(known.floor);
    let mut vote = contents.vote();
    if known
        .vote
        .is_some_and(|known| vote.is_none_or(|vote| vote < known))
    {
        vote = known.vote;
    }
    let is_unknown = end.is_none() && uncovered.is_some();
    if is_unknown && let Some(vote) = &mut vote {
        // It may have voted since: votes for later terms only say nothing against that.
        let term = vote.leader_id.term.saturating_add(TERMS_OF_COPIES);
        *vote = Vote::new(term, vote.leader_id.voted_for);
    }

    let first = next_index(purged);
    let mut runs: Vec<(u64, Vec<EntryAt>)> = Vec::new();
    for (index, at) in contents.entries.range(first..) {
        match runs.last_mut() {
            Some((begin, run)) if *begin + run.len() as u64 == *index => run.push(at.clone()),
            _ => runs.push((*index, vec![at.clone()])),
        }
    }
    let has_front = runs.first().is_some_and(|(begin, _)| *begin == first);
    let entries = match has_front {
        true => runs.remove(0).1,
        false => Vec::new(),
    };
    let (behind, apart) = match runs.pop() {
        None => (None, Vec::new()),
        Some((begin, run)) => (Some((begin, begin + run.len() as u64 - 1)), run),
    };
    let last = match entries.last() {
        None => purged,
        Some(at) => reader.record(at).ok().and_then(|record| record.log_id()),
    };
    let reach = behind.map(|(_, end)| end).max(last.map(|id| id.index));
    let is_short = last < known.last && reach < known.last.map(|id| id.index);
    // A batch that is lost may have held its entries, unless later ones go on where the log here ends.
    let may_be_short =
        uncovered.is_some() && contents.newest < uncovered && !is_gone(&contents, floor);
    let unreadable = contents
        .unreadable
        .filter(|index| reach.is_none_or(|reach| reach < *index));
    let is_hurt = behind.is_some() || unreadable.is_some() || is_short || may_be_short;
    let loss = is_hurt.then(|| {
        let known_last = known.last.filter(|_| is_short).map(|id| id.index);
        Loss {
            first: EntryIndex(next_index(last)),
            behind,
            last: known_last.max(unreadable).max(behind.map(|(_, end)| end)),
            is_open: is_short && !is_exact || may_be_short,
            end: known.last.filter(|_| is_exact),
        }
    });

    let mut values = contents.values;
    let mut put = |key: &[u8], value: Option<Vec<u8>>| {
        if let Some(value) = value {
            values.insert(key.to_vec(), value);
        }
    };
    put(key::VOTE, vote.as_ref().map(encoded_vote));
    put(key::PURGED, purged.as_ref().map(encoded));
    put(key::DELETED, floor.as_ref().map(encoded));
    put(key::LOSS, loss.as_ref().map(Loss::encode));
    Left {
        group: GroupId(group),
        values,
        last,
        entries,
        apart,
        loss,
    }
}

/// Whether the replica of a group was deleted here: there is nothing to lose but its vote and its floor.
fn is_gone(contents: &Contents, floor: Option<LogId>) -> bool {
    floor.is_some() && contents.entries.is_empty() && contents.id(key::PURGED).is_none()
}
