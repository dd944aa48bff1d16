//! The log and its writers: what all groups want to write becomes one synced write.
//!
//! The log's thread writes what is queued, and does what is due beside. An append of a group whose thread has nothing else to do
//! is written by that thread itself (`Writer::write_idle`): to wake the log's thread and to be woken by it costs more than
//! the write. It does so only while syncs are quick, and leaves everything but the plain case to the log's thread.
//!
//! Invariants: what one group queues is written in that order. At any time at most one write is not
//! synced, on which `check.rs` relies. A request is answered once, with success only after the
//! sync. How far the log is synced is written into `ends` as that file's head says.
//! When the disk is full, or the system lacks files or memory, the write is tried again until there is room, and nothing
//! overtakes it; after any other failure everything is refused.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use histogram::Snapshot;
use parking_lot::{Mutex, RwLock};
use raft_engine::{Engine, LogBatch};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::disk::{Disk, Health, is_full, is_scarce};
use crate::engine::to_io;
use crate::folder::Folder;
use crate::options::LogOptions;
use crate::record::{Record, Records};
use crate::recorder::Recorder;
use crate::request::{Change, Request};
use crate::stats::LogStats;
use queue::Queue;

pub(crate) mod queue;

/// How long a write waits for space at first; each time twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// And how long at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Bytes of a block, as `stat` counts them.
const BLOCK: u64 = 512;

/// Whether the log can be appended to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// It can.
    Working,
    /// The disk is full. What was proposed waits for space, and new proposals are refused.
    Full,
    /// A write or a sync failed. Nothing is acknowledged any more: the process should end, and start
    /// again when the disk is in order.
    Failed(Arc<str>),
}

/// What groups and the log's thread share.
pub(crate) struct Wal {
    engine: Engine<Disk>,
    // After the engine, so that the folder is unlocked when its files are closed.
    pub(crate) folder: Option<Folder>,
    pub(crate) health: Arc<Health>,
    /// raft-engine 0.4 reports entries as missing when it deletes files while they are read.
    deletion: RwLock<()>,
    overdue: Mutex<Vec<u64>>,
    /// What is to be written. Requests are put in by [`Wal::push`].
    pub(crate) queue: Queue,
    queue_bytes: usize,
    room: Semaphore,
    condition: watch::Sender<Condition>,
}

impl Wal {
    /// `folder`: what stays locked as long as this lives.
    pub(crate) fn new(
        engine: Engine<Disk>,
        folder: Option<Folder>,
        health: Arc<Health>,
        options: &LogOptions,
    ) -> Self {
        // A semaphore counts to u32::MAX per request; nobody queues 4 GB.
        let queue_bytes = options.queue_bytes.clamp(1, u32::MAX as usize);
        Self {
            engine,
            folder,
            health,
            deletion: RwLock::new(()),
            overdue: Mutex::default(),
            queue: Queue::default(),
            queue_bytes,
            room: Semaphore::new(queue_bytes),
            condition: watch::Sender::new(Condition::Working),
        }
    }

    pub(crate) fn stats(&self) -> LogStats {
        LogStats {
            disk_bytes: self.disk_bytes(),
            ..self.health.counters.read()
        }
    }

    pub(crate) fn sync_times(&self) -> Snapshot {
        self.health.counters.sync_times()
    }

    /// What the files take on the disk. The engine itself counts each of them as full.
    fn disk_bytes(&self) -> u64 {
        let files = fs::read_dir(self.engine.path()).into_iter().flatten();
        // Files may be deleted meanwhile.
        let found = files.filter_map(|file| file.and_then(|file| file.metadata()).ok());
        found.map(|file| file.blocks() * BLOCK).sum()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Condition> {
        self.condition.subscribe()
    }

    pub(crate) fn condition(&self) -> Condition {
        self.condition.borrow().clone()
    }

    /// Groups that have something in the log, also entries apart ([`crate::loss::apart`]).
    pub(crate) fn group_ids(&self) -> Vec<u64> {
        self.engine.raft_groups()
    }

    pub(crate) fn overdue(&self) -> Vec<u64> {
        self.overdue.lock().clone()
    }

    /// The indices of the first and the last entry of a group.
    pub(crate) fn span(&self, group: u64) -> Option<(u64, u64)> {
        let first = self.engine.first_index(group)?;
        Some((first, self.engine.last_index(group)?))
    }

    pub(crate) fn get(&self, group: u64, key: &[u8]) -> Option<Vec<u8>> {
        self.engine.get(group, key)
    }

    /// Written entries from `begin` to before `end`: at least one, then no more than `max_bytes`.
    ///
    /// In a thread of its own, since raft-engine keeps the last block that a thread has read, by file
    /// number and offset, and takes it for that of any other log, or of this one opened again. Reading
    /// is rare: at the start of a group, and for replicas that are far behind.
    pub(crate) fn read(
        &self,
        group: u64,
        begin: u64,
        end: u64,
        max_bytes: usize,
    ) -> io::Result<Vec<Record>> {
        std::thread::scope(|scope| {
            let read = || self.read_here(group, begin, end, max_bytes);
            let thread = std::thread::Builder::new().name("log-read".to_owned());
            let outcome = thread.spawn_scoped(scope, read)?.join();
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn read_here(
        &self,
        group: u64,
        begin: u64,
        end: u64,
        max_bytes: usize,
    ) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        let _undeleted = self.deletion.read();
        self.engine
            .fetch_entries_to::<Records>(group, begin, end, Some(max_bytes), &mut records)
            .map_err(|error| unreadable(group, begin, &error.to_string()))?;
        Ok(records)
    }

    /// Waits until there is room to queue this many bytes. [`Append::complete`] gives it back.
    pub(crate) async fn reserve(&self, bytes: usize) -> io::Result<()> {
        match self.room.acquire_many(self.permits(bytes)).await {
            Ok(room) => {
                room.forget();
                Ok(())
            }
            Err(_) => Err(self.refusal()),
        }
    }

    /// Queues a change and waits until it is on the disk.
    pub(crate) async fn change(&self, change: Change) -> io::Result<()> {
        let (done, written) = oneshot::channel();
        self.push(Request::Change(Change {
            done: Some(done),
            ..change
        }));
        written
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the log ended")))
    }

    /// Queues a request. When the log is closed it is answered at once.
    pub(crate) fn push(&self, request: Request) {
        self.enqueue(request, false);
    }

    /// Queues a request that the calling thread writes before it sleeps, if it has nothing else to do until then and the disk
    /// is quick.
    pub(crate) fn push_held(&self, request: Request) {
        self.enqueue(request, self.health.is_quick());
    }

    fn enqueue(&self, request: Request, may_hold: bool) {
        self.health.counters.asked();
        if let Request::Append(append) = &request {
            let counters = &self.health.counters;
            counters.queued(append.entries(), append.bytes());
        }
        if let Err(request) = self.queue.put(request, may_hold) {
            self.answer(request, Err(self.refusal()));
        }
    }

    /// Refuses what comes from now on.
    pub(crate) fn close(&self) {
        self.room.close();
        self.queue.close();
    }

    fn permits(&self, bytes: usize) -> u32 {
        bytes.min(self.queue_bytes) as u32
    }

    fn answer(&self, request: Request, outcome: io::Result<()>) {
        match request {
            Request::Append(append) => {
                self.health.counters.left(append.entries(), append.bytes());
                self.room.add_permits(self.permits(append.bytes()) as usize);
                append.complete(outcome);
            }
            Request::Change(change) => {
                if let Some(done) = change.done {
                    // Who asked may be gone.
                    drop(done.send(outcome));
                }
            }
        }
        self.health.counters.answered();
    }

    /// What requests hear after a failure or after the end.
    fn refusal(&self) -> io::Error {
        match self.condition() {
            Condition::Failed(why) => io::Error::other(format!("the log failed: {why}")),
            Condition::Working | Condition::Full => io::Error::other("the log is closed"),
        }
    }

    fn fail(&self, why: &str) {
        tracing::error!(why, "the log failed and acknowledges nothing from now on");
        self.condition.send_replace(Condition::Failed(why.into()));
        self.close();
    }

    fn set(&self, condition: Condition) {
        self.condition.send_if_modified(|current| {
            let changes = *current != condition;
            if changes {
                *current = condition;
            }
            changes
        });
    }
}

/// What writes: in the log's thread, or in that of a group.
pub(crate) struct Writer {
    wal: Arc<Wal>,
    batch: LogBatch,
    batch_bytes: usize,
    purge_interval: Duration,
    /// When files are looked through for deletion: entries were purged since the last time.
    purge_at: Option<Instant>,
    /// Bytes written since the last time, and so many that it is done before.
    written: u64,
    purge_bytes: u64,
    ends: Recorder,
}

impl Writer {
    pub(crate) fn new(wal: Arc<Wal>, options: &LogOptions, ends: Recorder) -> Self {
        Self {
            wal,
            ends,
            batch: LogBatch::default(),
            batch_bytes: options.batch_bytes,
            purge_interval: options.purge_interval,
            purge_at: None,
            written: 0,
            purge_bytes: options.file_bytes,
        }
    }

    /// The log's thread, until the log is closed and all is answered.
    pub(crate) fn run(writer: &Mutex<Self>) {
        let wal = {
            let mut writer = writer.lock();
            writer.begin_ends();
            writer.wal.clone()
        };
        loop {
            let due = writer.lock().due();
            wal.queue.sleep(due);
            let mut writer = writer.lock();
            let Some(requests) = wal.queue.next(writer.batch_bytes) else {
                return writer.end_orderly();
            };
            // Others may have written meanwhile, so that what was due then is due later.
            let is_idle = requests.is_empty()
                && writer
                    .ends
                    .idle_due()
                    .is_some_and(|due| due <= Instant::now());
            if !requests.is_empty() {
                writer.serve(requests);
            }
            if writer.is_deletion_due() {
                writer.delete_files();
            } else if writer.ends.is_due(is_idle) {
                writer.write_ends();
            }
        }
    }

    /// The thread of a group is about to sleep: writes what is queued, unless the log's thread does, or has to.
    pub(crate) fn write_idle(writer: &Mutex<Self>, wal: &Wal) {
        if !wal.queue.holds() {
            return;
        }
        let Some(mut writer) = writer.try_lock() else {
            return wal.queue.hand_over();
        };
        let requests = wal.queue.take_held(writer.batch_bytes);
        if requests.is_empty() {
            // The log's thread has taken them, or they were refused: the log has failed.
            return;
        }
        if !writer.can_write_idle(&requests) {
            return wal.queue.put_back(requests);
        }
        match writer.write_once(&requests) {
            // On a full disk the log's thread waits, and tries again.
            Err(error) if is_full(&error) || is_scarce(&error) => {
                return wal.queue.put_back(requests);
            }
            written => {
                let written = written.map(|()| writer.ends.note(&requests, &wal.health));
                writer.answer(requests, written);
            }
        }
        wal.queue.expect(writer.due());
    }

    /// Whether requests are appends behind all others, of which nothing has to be written down before they are answered.
    fn can_write_idle(&self, requests: &[Request]) -> bool {
        let is_plain = |request: &Request| {
            matches!(request, Request::Append(_)) && !self.ends.may_lower(request)
        };
        !self.ends.is_wanted_at_once()
            && self.wal.condition() == Condition::Working
            && requests.iter().all(is_plain)
    }

    /// Before anything is appended: from here on the log has not ended orderly.
    fn begin_ends(&mut self) {
        self.ends.plan(Instant::now());
        self.write_ends();
    }

    /// Nothing is appended any more.
    fn end_orderly(&mut self) {
        let has_failed = matches!(self.wal.condition(), Condition::Failed(_));
        if !has_failed && let Err(error) = self.ends.write(&self.wal.health, true) {
            tracing::warn!(%error, "the end of the log cannot be recorded: the next start may take damage for more than it is");
        }
    }

    /// Writes down how far the log is synced. On a full disk that is tried again later.
    fn write_ends(&mut self) {
        match self.ends.write(&self.wal.health, false) {
            Ok(()) => {}
            Err(error) if is_full(&error) || is_scarce(&error) => {
                self.ends.postpone(Instant::now());
            }
            Err(error) => {
                self.wal.fail(&format!(
                    "the end of the log cannot be written down: {error}"
                ));
                self.refuse(Vec::new());
            }
        }
    }

    /// The same, before anything goes on; on a full disk it waits until there is room or the log is closed.
    fn write_ends_now(&mut self) -> io::Result<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.ends.write(&self.wal.health, false) {
                Err(error) if is_full(&error) || is_scarce(&error) => {
                    if is_full(&error) {
                        self.wal.set(Condition::Full);
                    }
                    if self.wal.queue.closes_within(pause) {
                        return Err(error);
                    }
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                Ok(()) => {
                    self.wal.set(Condition::Working);
                    return Ok(());
                }
                other => return other,
            }
        }
    }

    /// After a while, or when another file is full: at a hundred megabytes a second, a while would be a gigabyte.
    fn is_deletion_due(&self) -> bool {
        let is_due = |at: Instant| self.written >= self.purge_bytes || at <= Instant::now();
        self.purge_at.is_some_and(is_due)
    }

    /// The same as a task, which takes this long to write. On a full disk it blocks.
    #[cfg(feature = "simulation")]
    pub(crate) async fn run_within(mut self, write_time: Duration) {
        self.begin_ends();
        loop {
            let Some(requests) = self.wal.queue.next(self.batch_bytes) else {
                return self.end_orderly();
            };
            if !requests.is_empty() {
                tokio::time::sleep(write_time).await;
                self.serve(requests);
                if self.purge_at.is_some() {
                    self.delete_files();
                }
            } else if self.ends.is_due(true) {
                self.write_ends();
            } else {
                self.wal.queue.notified().await;
            }
        }
    }

    /// When something is to be done though nothing is asked.
    fn due(&self) -> Option<Instant> {
        let ends = self.ends.idle_due();
        let purge_at = match self.written >= self.purge_bytes {
            true => self.purge_at.map(|_| Instant::now()),
            false => self.purge_at,
        };
        purge_at.into_iter().chain(ends).min()
    }

    fn serve(&mut self, requests: Vec<Request>) {
        let written = self.write_all(&requests);
        self.answer(requests, written);
    }

    /// Answers requests that were written, or have failed.
    fn answer(&mut self, requests: Vec<Request>, written: io::Result<()>) {
        match written {
            Ok(()) => {
                let entries = requests.iter().map(Request::entries).sum();
                self.wal.health.counters.committed(entries);
                let bytes: usize = requests.iter().map(Request::bytes).sum();
                self.written += bytes as u64;
                self.plan_deletion(&requests);
                for request in requests {
                    self.wal.answer(request, Ok(()));
                }
            }
            Err(error) => {
                if !is_full(&error) && !is_scarce(&error) {
                    self.wal.fail(&error.to_string());
                }
                self.refuse(requests);
            }
        }
    }

    /// Writes and syncs, and writes down how far that goes as far as it has to be there before anything is answered.
    fn write_all(&mut self, requests: &[Request]) -> io::Result<()> {
        if self.ends.lower(requests) {
            self.write_ends_now()?;
        }
        self.write(requests)?;
        self.ends.note(requests, &self.wal.health);
        if self.ends.is_wanted_at_once() || requests.iter().any(Request::is_promise) {
            self.write_ends_now()?;
        }
        Ok(())
    }

    /// Answers these and all that wait: the log is closed.
    fn refuse(&self, requests: Vec<Request>) {
        let waiting = self.wal.queue.take_all();
        for request in requests.into_iter().chain(waiting) {
            self.wal.answer(request, Err(self.wal.refusal()));
        }
    }

    /// Writes and syncs; while the disk is full, or the system lacks files or memory, again and again until the log is
    /// closed.
    fn write(&mut self, requests: &[Request]) -> io::Result<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.write_once(requests) {
                Ok(()) => {
                    self.wal.set(Condition::Working);
                    return Ok(());
                }
                Err(error) if is_full(&error) || is_scarce(&error) => {
                    if is_full(&error) {
                        self.wal.set(Condition::Full);
                    } else if self.wal.health.counters.waited_for_files() {
                        tracing::error!(%error, "the log waits: the system has no files or memory for it");
                    }
                    if self.wal.queue.closes_within(pause) {
                        return Err(error);
                    }
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn write_once(&mut self, requests: &[Request]) -> io::Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        for request in requests {
            request.add_to(&mut batch).map_err(to_io)?;
        }
        // The engine panics where it does not know how to go on, and that ends the process, as any panic does.
        // Failures of the disk are not among these: `disk.rs` keeps them from it.
        self.wal.engine.write(&mut batch, true).map_err(to_io)?;
        if let Some(failure) = self.wal.health.failure() {
            return Err(io::Error::other(failure.to_owned()));
        }
        self.batch = batch;
        Ok(())
    }

    fn plan_deletion(&mut self, requests: &[Request]) {
        if self.purge_at.is_none() && requests.iter().any(Request::frees) {
            self.purge_at = Some(Instant::now() + self.purge_interval);
        }
    }

    fn delete_files(&mut self) {
        self.purge_at = None;
        self.written = 0;
        let deleted = {
            let _reads_wait = self.wal.deletion.write();
            self.wal.engine.purge_expired_files()
        };
        match deleted {
            Ok(overdue) => *self.wal.overdue.lock() = overdue,
            // Nothing is lost but space; the next purge tries again.
            Err(error) => tracing::warn!(%error, "log files could not be deleted"),
        }
        self.write_ends();
        if let Some(failure) = self.wal.health.failure() {
            self.wal.fail(failure);
            self.refuse(Vec::new());
        }
    }
}

/// What a group says when an entry of its cannot be read.
pub(crate) fn unreadable(group: u64, index: u64, why: &str) -> io::Error {
    let message = format!("group {group}: its log is damaged at or after entry {index}: {why}");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests;
