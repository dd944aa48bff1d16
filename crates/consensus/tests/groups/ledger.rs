//! A state machine that keeps what it is given, and a node to run it in.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use consensus::simulation::SimulatedDisk;
use consensus::{
    Applied, Birth, Command, CorruptCommand, Encoded, Group, GroupOptions, Log, LogError,
    LogOptions, Mark, Members, Nobody, SnapshotReader, SnapshotWriter, StartError, StateMachine,
    Tables,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Nothing here takes that long; a test that hangs fails instead.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A number, and bytes that make it as large as one likes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Note(pub(crate) Arc<(u64, Vec<u8>)>);

impl Note {
    pub(crate) fn new(number: u64, size: usize) -> Self {
        Self(Arc::new((number, vec![number as u8; size])))
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.0
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "note {}", self.number())
    }
}

impl Command for Note {
    fn encoded(&self) -> Encoded {
        let number = self.number().to_le_bytes();
        [&number[..], &self.0.1].concat().into()
    }

    fn decode(bytes: &Bytes) -> Result<Self, CorruptCommand> {
        let (number, rest) = bytes
            .split_first_chunk()
            .ok_or_else(|| CorruptCommand("too short".to_owned()))?;
        let note = (u64::from_le_bytes(*number), rest.to_vec());
        Ok(Self(Arc::new(note)))
    }

    fn encoded_len_hint(&self) -> usize {
        8 + self.0.1.len()
    }
}

/// What a ledger has seen.
#[derive(Clone, Default, Debug)]
pub(crate) struct Pages {
    pub(crate) notes: Vec<Note>,
    /// How many of them came in snapshots.
    pub(crate) installed: usize,
    pub(crate) last_index: Option<u64>,
    pub(crate) flushes: u64,
    /// Parts in which a note is applied beside the last one.
    pub(crate) parts_of_each: usize,
    /// Parts of the next note that are applied.
    pub(crate) parts: usize,
    /// The members before each note that was applied since the start.
    pub(crate) members: Vec<Members>,
    /// While it is closed no note from this number on is applied.
    pub(crate) gate: Option<watch::Receiver<bool>>,
    pub(crate) gated_from: u64,
    /// How often the gate was found closed.
    pub(crate) waits: usize,
    /// What it was seeded with; no table holds it.
    pub(crate) seed: Option<Mark>,
    /// Where what splits off goes.
    pub(crate) births: Option<mpsc::UnboundedSender<Seed>>,
    /// With all notes at that moment: what tables would hold.
    pub(crate) checkpoint: Option<(Mark, usize)>,
    /// As of the last flush: a checkpoint holds nothing that was applied after it.
    flushed: (Mark, usize),
}

impl Pages {
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.notes.iter().map(Note::number).collect()
    }
}

/// The note that splits a ledger: another one begins with a copy of all notes before it.
pub(crate) const SPLIT: u64 = u64::MAX;

/// What splits off.
#[derive(Clone, Debug)]
pub(crate) struct Seed {
    pub(crate) index: u64,
    pub(crate) members: Members,
    pub(crate) notes: Vec<Note>,
}

/// A state machine whose pages others can read. Clones are the same ledger.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Pages>>);

impl Ledger {
    pub(crate) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn seeded(seed: Seed) -> Self {
        let mark = Mark::seed(&seed.members);
        Self(Arc::new(Mutex::new(Pages {
            last_index: mark.index(),
            flushed: (mark.clone(), seed.notes.len()),
            notes: seed.notes,
            seed: Some(mark),
            ..Pages::default()
        })))
    }

    /// What is left of it after a crash: the last checkpoint.
    pub(crate) fn after_crash(&self) -> Self {
        let checkpoint = self.pages().checkpoint.clone();
        let notes = match &checkpoint {
            Some((_, count)) => self.pages().notes[..*count].to_vec(),
            None => Vec::new(),
        };
        let flushed = match &checkpoint {
            Some((mark, _)) => mark.clone(),
            None => Mark::default(),
        };
        Self(Arc::new(Mutex::new(Pages {
            last_index: flushed.index(),
            flushed: (flushed, notes.len()),
            notes,
            checkpoint,
            ..Pages::default()
        })))
    }

    /// Writes a checkpoint, as tables would, and says how far it reaches.
    pub(crate) fn checkpoint(&self) -> Mark {
        let mut pages = self.pages();
        let (flushed, count) = &pages.flushed;
        let mark = Mark::decode(&flushed.encode()).expect("it was just encoded");
        pages.checkpoint = Some((mark.clone(), *count));
        mark
    }
}

impl Ledger {
    /// What the last checkpoint reaches.
    pub(crate) fn durable_mark(&self) -> Mark {
        self.durable().expect("there was a checkpoint")
    }

    /// Waits until the gate was found closed.
    pub(crate) async fn found_closed(&self) {
        let asked = async {
            while self.pages().waits == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, asked).await.expect("it is asked");
    }
}

impl StateMachine<Note> for Ledger {
    fn durable(&self) -> Option<Mark> {
        let pages = self.pages();
        let checkpoint = pages.checkpoint.as_ref().map(|(mark, _)| mark);
        checkpoint.or(pages.seed.as_ref()).cloned()
    }

    fn tables(&self) -> Arc<dyn Tables> {
        Arc::new(self.clone())
    }

    fn apply(&mut self, index: u64, before: &Mark, note: &Note, from: usize) -> Applied {
        let mut pages = self.pages();
        assert!(pages.last_index < Some(index), "{index} was applied before");
        assert_eq!(before.index(), index.checked_sub(1), "a state in between");
        assert_eq!(pages.parts, from, "a part comes after the one before it");
        if note.number() >= pages.gated_from
            && let Some(mut gate) = pages.gate.clone().filter(|gate| !*gate.borrow())
        {
            pages.waits += 1;
            return Applied::Wait(Box::pin(async move {
                // When nobody can open it any more, it stays closed.
                if gate.wait_for(|open| *open).await.is_err() {
                    std::future::pending().await
                }
            }));
        }
        if from < pages.parts_of_each {
            pages.parts += 1;
            return Applied::GoOn(pages.parts);
        }
        pages.parts = 0;
        pages.last_index = Some(index);
        pages.members.push(before.members());
        if note.number() == SPLIT
            && let Some(births) = &pages.births
        {
            let seed = Seed {
                index,
                members: before.members(),
                notes: pages.notes.clone(),
            };
            // A test that has ended takes none.
            drop(births.send(seed));
        }
        pages.notes.push(note.clone());
        Applied::Done
    }

    fn flush(&mut self, applied: &Mark) {
        let mut pages = self.pages();
        assert!(applied.index() >= pages.last_index);
        pages.flushed = (applied.clone(), pages.notes.len());
        pages.flushes += 1;
    }
}

impl Tables for Ledger {
    fn read(&self) -> io::Result<Option<Box<dyn SnapshotReader>>> {
        let pages = self.pages();
        Ok(pages.checkpoint.as_ref().map(|(mark, count)| {
            let copy = Copy {
                mark: mark.clone(),
                notes: Vec::from(&pages.notes[..*count]).into_iter(),
            };
            Box::new(copy) as _
        }))
    }

    fn receive(&self) -> io::Result<Box<dyn SnapshotWriter>> {
        Ok(Box::new(Received {
            ledger: self.clone(),
            notes: Vec::new(),
        }))
    }
}

/// A ledger as of a checkpoint, note by note.
struct Copy {
    mark: Mark,
    notes: std::vec::IntoIter<Note>,
}

impl SnapshotReader for Copy {
    fn mark(&self) -> Mark {
        self.mark.clone()
    }

    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.notes.next().map(|note| note.encoded().to_vec()))
    }
}

/// What is not yet a ledger's.
struct Received {
    ledger: Ledger,
    notes: Vec<Note>,
}

impl SnapshotWriter for Received {
    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        let note = Note::decode(&Bytes::copy_from_slice(chunk));
        self.notes.push(note.map_err(io::Error::other)?);
        Ok(())
    }

    fn finish(self: Box<Self>, mark: &Mark) -> io::Result<()> {
        let mut pages = self.ledger.pages();
        pages.installed = self.notes.len();
        pages.checkpoint = Some((mark.clone(), self.notes.len()));
        pages.flushed = (mark.clone(), self.notes.len());
        pages.last_index = mark.index();
        pages.notes = self.notes;
        Ok(())
    }
}

/// A folder that is removed in the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "herald-consensus-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        // In memory where there is such a place: folders are synced for real, several times a test.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let path = parent.join(name);
        std::fs::create_dir(&path).expect("a folder for the test");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn options(&self) -> LogOptions {
        LogOptions::new(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is the operating system's to clean.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().build().expect("a runtime")
}

pub(crate) fn open(options: &LogOptions, disk: &SimulatedDisk) -> Result<Log, LogError> {
    Log::open_with(options, Arc::new(disk.clone()))
}

/// Starts group 1 on node 1 and waits until it serves.
pub(crate) async fn start(log: &Log, ledger: &Ledger) -> Group<Note> {
    let group = try_start(1, log, ledger).await.expect("the group starts");
    group.recovered().await.expect("it recovers");
    group
}

pub(crate) async fn try_start(
    id: u64,
    log: &Log,
    ledger: &Ledger,
) -> Result<Group<Note>, StartError> {
    start_alone(id, 1, log, ledger, &GroupOptions::default()).await
}

/// Starts a group of one voter.
pub(crate) async fn start_alone(
    id: u64,
    node: u64,
    log: &Log,
    ledger: &Ledger,
    options: &GroupOptions,
) -> Result<Group<Note>, StartError> {
    let (ledger, network) = (ledger.clone(), Arc::new(Nobody));
    Group::start(id, node, log, ledger, network, Birth::Alone, options).await
}

/// Proposes these numbers together and waits for all.
pub(crate) async fn write(
    group: &Group<Note>,
    numbers: impl IntoIterator<Item = u64>,
    size: usize,
) {
    let mut proposals = Vec::new();
    for number in numbers {
        let proposed = group.propose(Note::new(number, size)).await;
        proposals.push(proposed.expect("it is taken"));
    }
    for proposal in proposals {
        proposal.await.expect("it is applied");
    }
}
