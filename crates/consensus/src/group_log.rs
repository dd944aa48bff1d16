//! The log of one group, as openraft wants it.
//!
//! Invariant: an entry can be read as soon as it is queued: from the tail until it is written, from the
//! tail or the files afterwards.
//!
//! A truncation changes memory only: the next entry overwrites what it cut off, and nobody is told of
//! a truncation that a crash undoes.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::pin::pin;
use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::command::Command;
use crate::encoding::{Reader, encoded, encoded_vote};
use crate::machine::Positions;
use crate::mark::Mark;
use crate::record::{self, Record};
use crate::request::{Append, Change, Request, key};
use crate::rpc::End;
use crate::seed::{Origin, origin};
use crate::tail::Tail;
use crate::types::{
    Entry, LogId, MAX_NUMBER, Membership, Payload, StoredMembership, TERMS_OF_COPIES, Types, Vote,
    log_id, next_index,
};
use crate::wal::{Wal, unreadable};

/// Entries taken from the tail, and bytes read from files, at a time.
const CHUNK_ENTRIES: u64 = 256;
const CHUNK_BYTES: usize = 1 << 20;

/// The log of one group. A handle: clones are the same log.
pub(crate) struct GroupLog<C: Command> {
    group: u64,
    wal: Arc<Wal>,
    positions: Arc<Positions>,
    state: Arc<Mutex<State<C>>>,
    /// Told of each write.
    written: Arc<Notify>,
    /// As of [`GroupOptions::writes_idle`](crate::GroupOptions::writes_idle).
    writes_idle: bool,
}

struct State<C: Command> {
    vote: Option<Vote>,
    committed: Option<LogId>,
    /// What of it was given to the log's thread.
    committed_queued: Option<LogId>,
    /// The last entry that was deleted from the front.
    purged: Option<LogId>,
    last: Option<LogId>,
    /// Of what is here, the last entry that is on the disk.
    written: Option<LogId>,
    /// The floor: where a log of the group ended that was deleted, or that has lost its end.
    deleted: Option<LogId>,
    /// The entry of another group that the first state comes from.
    origin: Option<Origin>,
    tail: Tail<C>,
    appended_bytes: u64,
    /// How often the log was truncated. Entries queued before a truncation that are written after it
    /// say nothing of those that replaced them.
    truncations: u64,
    /// A write has failed: there will be no other.
    has_failed: bool,
}

impl<C: Command> GroupLog<C> {
    /// Takes up what the files hold. `tail_bytes` bounds the entries kept in memory that are written and,
    /// as `positions` say, applied.
    pub(crate) async fn open(
        group: u64,
        wal: Arc<Wal>,
        positions: Arc<Positions>,
        tail_bytes: usize,
    ) -> io::Result<Self> {
        let vote = stored(&wal, group, key::VOTE, |bytes| bytes.vote())?;
        let mut committed = stored(&wal, group, key::COMMITTED, |bytes| bytes.log_id())?;
        let deleted = deleted(&wal, group)?;
        let origin = origin(&wal, group)?;
        let mut purged = purged(&wal, group)?;
        let mut last = last_entry(&wal, group, purged)?;
        let tables = positions.checkpoint.lock().log_id;
        let begins_anew = has_new_tables(&wal, group, tables)?;
        if begins_anew {
            committed = committed.max(tables);
            (purged, last) = (tables, tables);
        }
        let log = Self {
            group,
            wal,
            positions,
            state: Arc::new(Mutex::new(State {
                vote,
                committed,
                committed_queued: committed,
                purged,
                last,
                written: last,
                deleted,
                origin,
                tail: Tail::new(next_index(last), tail_bytes),
                appended_bytes: 0,
                truncations: 0,
                has_failed: false,
            })),
            written: Arc::default(),
            writes_idle: false,
        };
        if begins_anew || log.holds_only_purged() {
            let afresh = log.state.lock().afresh(group);
            log.wal.change(afresh).await?;
        }
        Ok(log)
    }

    /// The same log, whose entries the group's thread writes when it is idle.
    pub(crate) fn with_idle_writes(self, writes_idle: bool) -> Self {
        Self {
            writes_idle,
            ..self
        }
    }

    /// As of [`Queue::hand_over`](crate::wal::queue::Queue::hand_over).
    pub(crate) fn hand_over(&self) {
        self.wal.queue.hand_over();
    }

    /// The group's number.
    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    /// How far the group's machine is.
    pub(crate) fn positions(&self) -> &Arc<Positions> {
        &self.positions
    }

    /// The first index that is here, and the first that is not yet.
    pub(crate) fn span(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.first(), state.tail.next())
    }

    /// Whether a replica whose log ends there has all that the one here has acknowledged, if that was
    /// deleted or has lost its end.
    pub(crate) fn may_forget_for(&self, last: Option<LogId>) -> bool {
        last >= self.state.lock().deleted
    }

    /// Entries that are in memory, and about how many bytes these take.
    pub(crate) fn in_memory(&self) -> (usize, usize) {
        self.state.lock().tail.held()
    }

    /// Whether the own log may lack what was acknowledged here before it was deleted or lost its end.
    pub(crate) fn is_below_floor(&self) -> bool {
        let state = self.state.lock();
        state.written < state.deleted
    }

    /// Whether what is on the disk here says that a log with this end lacks nothing that was acknowledged here before
    /// the start: a leader of the floor's term or of a later one has told the end since then, and all up to it is
    /// here. Two logs with entries of the same term are the same up to the earlier one of these.
    pub(crate) fn has_all_of(&self, end: &End) -> bool {
        let state = self.state.lock();
        let is_late = state
            .deleted
            .is_none_or(|floor| end.vote.leader_id.term >= floor.leader_id.term);
        let is_here = |last: LogId| {
            let of_same_term = |id: &LogId| id.leader_id.term == last.leader_id.term;
            state.written.filter(of_same_term) >= Some(last)
        };
        is_late && end.last.is_none_or(is_here)
    }

    /// Forgets the floor. In memory first: a crash in between brings it back, which costs a question.
    pub(crate) async fn end_floor(&self) -> io::Result<()> {
        if self.state.lock().deleted.take().is_none() {
            return Ok(());
        }
        let change = Change {
            group: self.group,
            deletes: vec![key::DELETED],
            ..Change::default()
        };
        self.wal.change(change).await
    }

    /// The term of the last entry; 0: there has been none.
    pub(crate) fn last_term(&self) -> u64 {
        let last = self.state.lock().last;
        last.map_or(0, |id| id.leader_id.term)
    }

    /// Bytes of the entries that were appended since the start, about.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.state.lock().appended_bytes
    }

    /// Waits until a committed entry is on this disk too. openraft applies what others have written; tables
    /// that hold it would be ahead of the log after a crash.
    pub(crate) async fn wait_written(&self, index: u64) -> io::Result<()> {
        loop {
            let mut written = pin!(self.written.notified());
            written.as_mut().enable();
            {
                let state = self.state.lock();
                if state.tail.is_written(index) {
                    return Ok(());
                }
                if state.has_failed {
                    return Err(io::Error::other("an entry was not written"));
                }
            }
            written.await;
        }
    }

    /// Writes down that the tables will reach to `end`, wherever the log ends: a snapshot will bring them
    /// there. Until the log is purged up to there, a start would find that they do not belong together.
    pub(crate) async fn expect_tables(&self, end: &LogId) -> io::Result<()> {
        let puts = vec![(key::TABLES, encoded(end))];
        self.change(puts).await
    }

    /// raft-engine may bring back, at a restart, entries that were purged long ago. If nothing but such
    /// are there, the next entry would leave a hole, for which it panics.
    fn holds_only_purged(&self) -> bool {
        let last = self.wal.span(self.group).map(|(_, last)| last);
        last.is_some_and(|last| last < self.state.lock().first())
    }

    /// Writes values and waits until they are on the disk.
    async fn change(&self, puts: Vec<(&'static [u8], Vec<u8>)>) -> io::Result<()> {
        let change = Change {
            group: self.group,
            puts,
            ..Change::default()
        };
        self.wal.change(change).await
    }

    /// Some of the entries from `begin` to before `end`, from the first on; none when there are none.
    fn chunk(&self, begin: u64, end: u64) -> io::Result<Vec<Entry<C>>> {
        let (begin, end) = {
            let state = self.state.lock();
            let begin = begin.max(state.first());
            let end = end.min(state.tail.next());
            if begin >= end {
                return Ok(Vec::new());
            }
            if begin >= state.tail.first() {
                let range = begin..end.min(begin + CHUNK_ENTRIES);
                return Ok(state.tail.entries(range, CHUNK_BYTES));
            }
            (begin, end.min(state.tail.first()))
        };
        let records = self.wal.read(self.group, begin, end, CHUNK_BYTES)?;
        let decoded = records.iter().zip(begin..).map(|(record, index)| {
            let entry: Result<_, String> = record.decode();
            entry.map_err(|why| unreadable(self.group, index, &why))
        });
        decoded.collect()
    }
}

impl<C: Command> State<C> {
    fn first(&self) -> u64 {
        next_index(self.purged)
    }

    /// Forgets all entries that are written: they end before what was purged, and the next one would leave
    /// a hole.
    fn afresh(&self, group: u64) -> Change {
        let vote = self.vote.map(|vote| (key::VOTE, encoded_vote(&vote)));
        let committed = self.committed.map(|id| (key::COMMITTED, encoded(&id)));
        let purged = self.purged.map(|id| (key::PURGED, encoded(&id)));
        let deleted = self.deleted.map(|id| (key::DELETED, encoded(&id)));
        let origin = self.origin.map(|origin| (key::ORIGIN, origin.encode()));
        let puts = [vote, committed, purged, deleted, origin];
        Change {
            group,
            clean: true,
            puts: puts.into_iter().flatten().collect(),
            ..Change::default()
        }
    }
}

impl<C: Command> Clone for GroupLog<C> {
    fn clone(&self) -> Self {
        Self {
            group: self.group,
            wal: self.wal.clone(),
            positions: self.positions.clone(),
            state: self.state.clone(),
            written: self.written.clone(),
            writes_idle: self.writes_idle,
        }
    }
}

impl<C: Command> RaftLogReader<Types<C>> for GroupLog<C> {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<Entry<C>>> {
        let (mut begin, end) = limits(&range);
        let mut entries = Vec::new();
        loop {
            let chunk = self.chunk(begin, end)?;
            let Some(last) = chunk.last() else {
                return Ok(entries);
            };
            begin = last.log_id.index + 1;
            entries.extend(chunk);
        }
    }

    /// Reads as it goes, so that a long log is never in memory as a whole.
    async fn entries_stream<R>(
        &mut self,
        range: R,
    ) -> impl Stream<Item = io::Result<Entry<C>>> + OptionalSend
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (begin, end) = limits(&range);
        let start = (self.clone(), begin, Vec::new().into_iter());
        stream::try_unfold(start, move |(log, begin, mut chunk)| async move {
            if chunk.len() == 0 {
                chunk = log.chunk(begin, end)?.into_iter();
            }
            Ok(chunk.next().map(|entry: Entry<C>| {
                let next = entry.log_id.index + 1;
                (entry, (log, next, chunk))
            }))
        })
    }

    /// As much as goes to another replica at once.
    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry<C>>> {
        self.chunk(start, end)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.state.lock().vote)
    }
}

impl<C: Command> RaftLogStorage<Types<C>> for GroupLog<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types<C>>> {
        let state = self.state.lock();
        Ok(LogState {
            last_purged_log_id: state.purged,
            last_log_id: state.last,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let puts = vec![(key::VOTE, encoded_vote(vote))];
        self.change(puts).await?;
        self.state.lock().vote = Some(*vote);
        Ok(())
    }

    /// Is written with the entries that are appended next.
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.state.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.state.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<Types<C>>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry<C>> = entries.into_iter().collect();
        let bytes = entries.iter().map(record::len_hint).sum();
        self.wal.reserve(bytes).await?;
        let mut state = self.state.lock();
        state.appended_bytes += bytes as u64;
        for entry in &entries {
            state.last = Some(entry.log_id);
            state.tail.push(entry.clone());
        }
        let committed = (state.committed != state.committed_queued)
            .then_some(state.committed)
            .flatten();
        state.committed_queued = state.committed;
        let appended = Appended {
            log: self.clone(),
            entries,
            bytes,
            committed,
            truncations: state.truncations,
            flushed,
        };
        drop(state);
        let request = Request::Append(Box::new(appended));
        match self.writes_idle {
            true => self.wal.push_held(request),
            false => self.wal.push(request),
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.truncations += 1;
        state.last = state.last.min(last);
        state.written = state.written.min(last);
        state.tail.truncate(last.map_or(0, |id| id.index + 1));
        Ok(())
    }

    /// Does not wait: a crash that forgets it leaves more than is needed, or tables that were expected.
    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let mut state = self.state.lock();
        let leaves_hole = state.tail.next() <= upto.index;
        state.purged = Some(upto);
        state.tail.purge(upto.index + 1);
        let change = if leaves_hole {
            state.last = Some(upto);
            state.written = Some(upto);
            state.committed = state.committed.max(Some(upto));
            state.committed_queued = state.committed;
            state.afresh(self.group)
        } else {
            Change {
                group: self.group,
                puts: vec![(key::PURGED, encoded(&upto))],
                compact_to: Some(upto.index + 1),
                ..Change::default()
            }
        };
        drop(state);
        self.wal.push(Request::Change(change));
        Ok(())
    }
}

/// Entries on their way to the disk.
struct Appended<C: Command> {
    log: GroupLog<C>,
    entries: Vec<Entry<C>>,
    bytes: usize,
    committed: Option<LogId>,
    truncations: u64,
    flushed: IOFlushed<Types<C>>,
}

impl<C: Command> Append for Appended<C> {
    fn group(&self) -> u64 {
        self.log.group
    }

    fn records(&self) -> Vec<Record> {
        self.entries.iter().map(Record::encode).collect()
    }

    fn committed(&self) -> Option<Vec<u8>> {
        self.committed.as_ref().map(encoded)
    }

    fn first(&self) -> Option<u64> {
        self.entries.first().map(|entry| entry.log_id.index)
    }

    fn last(&self) -> Option<LogId> {
        self.entries.last().map(|entry| entry.log_id)
    }

    fn entries(&self) -> usize {
        self.entries.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn complete(self: Box<Self>, outcome: io::Result<()>) {
        let unapplied = self.log.positions.applied.lock().next_index();
        let mut state = self.log.state.lock();
        match (&outcome, self.entries.last()) {
            (Ok(()), Some(last)) if state.truncations == self.truncations => {
                state.tail.written(last.log_id.index + 1, unapplied);
                state.written = Some(last.log_id);
            }
            (Ok(()), _) => {}
            (Err(_), _) => state.has_failed = true,
        }
        drop(state);
        self.log.written.notify_waiters();
        self.flushed.io_completed(outcome);
    }
}

/// The first index of a group that the files hold, and the first that they do not hold yet.
pub(crate) fn span(wal: &Wal, group: u64) -> io::Result<Range<u64>> {
    let purged = purged(wal, group)?;
    let last = last_entry(wal, group, purged)?;
    Ok(next_index(purged)..next_index(last))
}

/// Reads entries of a group in their order and visits those that are commands, with their index.
///
/// # Errors
/// The first entry that is missing or cannot be read; those before it have been visited.
pub(crate) fn commands<C: Command>(
    wal: &Wal,
    group: u64,
    range: Range<u64>,
    mut visit: impl FnMut(u64, &C),
) -> io::Result<()> {
    let mut next = range.start;
    while next < range.end {
        let chunk = wal.read(group, next, range.end, CHUNK_BYTES);
        // A damaged entry hides those before it: alone they can be read.
        let records = match chunk {
            Ok(records) => records,
            Err(_) => wal.read(group, next, next + 1, 0)?,
        };
        if records.is_empty() {
            return Err(unreadable(group, next, "it is missing"));
        }
        for record in records {
            let entry: Result<Entry<C>, _> = record.decode();
            let entry = entry.map_err(|why| unreadable(group, next, &why))?;
            if entry.log_id.index != next {
                let why = format!("entry {} is in its place", entry.log_id.index);
                return Err(unreadable(group, next, &why));
            }
            if let Payload::Normal(command) = &entry.payload {
                visit(next, command);
            }
            next += 1;
        }
    }
    Ok(())
}

/// The entries of a range, all in memory: a start with a damaged log reads them.
///
/// # Errors
/// One of them is missing or cannot be read.
pub(crate) fn records_between(wal: &Wal, group: u64, range: Range<u64>) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut next = range.start;
    while next < range.end {
        let chunk = wal.read(group, next, range.end, CHUNK_BYTES)?;
        if chunk.is_empty() {
            return Err(unreadable(group, next, "it is missing"));
        }
        next += chunk.len() as u64;
        records.extend(chunk);
    }
    Ok(records)
}

/// Whether the tables of a group, which reach to `tables`, are of a snapshot that the log was told of, and
/// the log does not have their last entry: what it has is of no use then.
pub(crate) fn has_new_tables(wal: &Wal, group: u64, tables: Option<LogId>) -> io::Result<bool> {
    let expected = stored(wal, group, key::TABLES, |bytes| bytes.log_id())?;
    let Some(end) = tables.filter(|_| tables == expected) else {
        return Ok(false);
    };
    let purged = purged(wal, group)?;
    if next_index(last_entry(wal, group, purged)?) <= end.index {
        return Ok(true);
    }
    if next_index(purged) > end.index {
        return Ok(false);
    }
    let records = wal.read(group, end.index, end.index + 1, 0)?;
    Ok(records.first().and_then(Record::log_id) != Some(end))
}

/// Appends that `node` alone is the voter of a group that nobody serves, whose tables reach to `tables`.
/// Gives the entry's index.
pub(crate) async fn append_sole_voter(
    wal: &Wal,
    group: u64,
    node: u64,
    tables: Option<LogId>,
) -> io::Result<u64> {
    let vote = stored(wal, group, key::VOTE, |bytes| bytes.vote())?;
    let clean = has_new_tables(wal, group, tables)?;
    let (last, purged) = if clean {
        (tables, tables.map(|id| (key::PURGED, encoded(&id))))
    } else {
        (last_entry(wal, group, purged(wal, group)?)?, None)
    };
    let voted = vote.map_or(0, |vote| vote.leader_id.term);
    let term = voted.max(last.map_or(0, |id| id.leader_id.term)) + 1;
    let entry = log_id(term, next_index(last));
    let membership = Membership::new_with_defaults(vec![BTreeSet::from([node])], []);
    let vote = (key::VOTE, encoded_vote(&Vote::new(term, node)));
    let change = Change {
        group,
        clean,
        entries: vec![Record::of_membership(&entry, &membership)],
        puts: purged.into_iter().chain([vote]).collect(),
        ..Change::default()
    };
    wal.change(change).await?;
    Ok(entry.index)
}

/// Votes of `node` in a group that nobody serves are for later terms than before from now on.
pub(crate) async fn leave_terms_behind(
    wal: &Wal,
    group: u64,
    node: u64,
    term: u64,
) -> io::Result<()> {
    let vote = stored(wal, group, key::VOTE, |bytes| bytes.vote())?;
    let last = last_entry(wal, group, purged(wal, group)?)?;
    let voted = vote.map_or(0, |vote| vote.leader_id.term);
    let known = voted.max(last.map_or(0, |id| id.leader_id.term));
    let term = term.max(known.saturating_add(TERMS_OF_COPIES));
    let change = Change {
        group,
        puts: vec![(key::VOTE, encoded_vote(&Vote::new(term, node)))],
        ..Change::default()
    };
    wal.change(change).await
}

/// Begins a group anew that has no replica here: it is to have tables that reach to the mark, and no entry before. The
/// mark is later than all that is known here of the lost group, and its term is at least `term`.
pub(crate) async fn begin_anew(wal: &Wal, group: u64, node: u64, term: u64) -> io::Result<Mark> {
    let vote = stored(wal, group, key::VOTE, |bytes| bytes.vote())?;
    let tables = stored(wal, group, key::TABLES, |bytes| bytes.log_id())?;
    let ended = tables.max(deleted(wal, group)?);
    let voted = vote.map_or(0, |vote| vote.leader_id.term);
    let known = voted.max(ended.map_or(0, |id| id.leader_id.term));
    let term = term.max(known.saturating_add(TERMS_OF_COPIES));
    // A floor of a whole term says nothing of an index. The term is later in any case.
    let index = ended.map_or(0, |id| (id.index + 1) % (MAX_NUMBER + 1));
    let begin = log_id(term, index);
    let change = Change {
        group,
        puts: vec![(key::TABLES, encoded(&begin))],
        ..Change::default()
    };
    wal.change(change).await?;
    let membership = Membership::new_with_defaults(vec![BTreeSet::from([node])], []);
    Ok(Mark {
        log_id: Some(begin),
        membership: Arc::new(StoredMembership::new(Some(begin), membership)),
    })
}

/// Forgets everything of a group that nobody serves but the vote and where its log ended, also that it was seeded.
pub(crate) async fn delete(wal: &Wal, group: u64, floor: Option<LogId>) -> io::Result<()> {
    let last = last_id(wal, group)?;
    let tables = stored(wal, group, key::TABLES, |bytes| bytes.log_id())?;
    let end = last.max(tables).max(deleted(wal, group)?).max(floor);
    let end = end.map(|id| (key::DELETED, encoded(&id)));
    let vote = wal.get(group, key::VOTE).map(|vote| (key::VOTE, vote));
    let change = Change {
        group,
        clean: true,
        puts: vote.into_iter().chain(end).collect(),
        ..Change::default()
    };
    wal.change(change).await
}

/// The last entry of a group, or the one that was purged last.
pub(crate) fn last_id(wal: &Wal, group: u64) -> io::Result<Option<LogId>> {
    last_entry(wal, group, purged(wal, group)?)
}

/// The last entry that was deleted from the front.
pub(crate) fn purged(wal: &Wal, group: u64) -> io::Result<Option<LogId>> {
    stored(wal, group, key::PURGED, |bytes| bytes.log_id())
}

/// Where the log of a group ended when it was deleted or lost its end.
pub(crate) fn deleted(wal: &Wal, group: u64) -> io::Result<Option<LogId>> {
    stored(wal, group, key::DELETED, |bytes| bytes.log_id())
}

/// The last entry of a group: at least the one that was purged last.
fn last_entry(wal: &Wal, group: u64, purged: Option<LogId>) -> io::Result<Option<LogId>> {
    let Some((first, last)) = wal.span(group) else {
        return Ok(purged);
    };
    let expected = purged.map_or(0, |id| id.index + 1);
    if first > expected {
        let why = format!("entries before {first} are missing");
        return Err(unreadable(group, expected, &why));
    }
    if last < expected {
        return Ok(purged);
    }
    let records = wal.read(group, last, last + 1, 0)?;
    let last_id = records.first().and_then(Record::log_id);
    last_id
        .map(Some)
        .ok_or_else(|| unreadable(group, last, "the last entry is too short"))
}

/// What is kept under a key of a group.
pub(crate) fn stored<T>(
    wal: &Wal,
    group: u64,
    key: &[u8],
    read: impl Fn(&mut Reader<'_>) -> Option<T>,
) -> io::Result<Option<T>> {
    let Some(bytes) = wal.get(group, key) else {
        return Ok(None);
    };
    let value = read(&mut Reader(&bytes));
    value.map(Some).ok_or_else(|| {
        let name = String::from_utf8_lossy(key);
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("group {group}: its {name} position is damaged"),
        )
    })
}

/// The first index of a range, and the first behind it.
fn limits(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let begin = match range.start_bound() {
        Bound::Included(begin) => *begin,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (begin, end)
}

#[cfg(test)]
mod tests;
