//! One shard: its machine, and the tasks around it.
//!
//! The *proposer* (`proposer.rs`) takes requests from the queue and makes batches of them. Consensus hands committed batches to [`Replica`], which applies them and sends replies
//! and pages to the event loops. The *checkpointer* now and then writes net changes to the tables, so
//! that the log can be purged. All run on one thread.
//!
//! Invariants: a reply leaves only after its batch is committed and synced; pages and replies leave in
//! the order of the batches; no lock of a shard is held while an event loop is given mail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use consensus::{Group, Mark, StateMachine};
use parking_lot::{RwLock, RwLockWriteGuard};
use store_state::{Batch, Changes, Request, SlotRange, Ticket};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::command::Command;
use crate::kind::{Effects, Kind};
use crate::node::Stop;
use crate::queue::RequestQueue;
use crate::readers::{Read, Readers};
use crate::{Event, Failure, Listener, MAP_VERSION, ShardNumber, ShardTable};

/// Bytes that only memory and log hold, above which a checkpoint begins.
const UNSAVED_BYTES: usize = 32 << 20;

/// Bytes that only memory and log hold, above which no more should be given: the disk does not keep up
/// with checkpoints.
const UNSAVED_MOST: usize = 4 * UNSAVED_BYTES;

/// Bytes of requests that wait for space on the disk, above which no more should be given.
const OWED_MOST: usize = 16 << 20;

/// Rows of a checkpoint that are collected, or let go of, before the shard does something else: about a
/// millisecond.
const ROWS_AT_ONCE: usize = 1024;

/// Age of a change that only memory and log hold, at which a checkpoint begins.
const UNSAVED_TIME: Duration = Duration::from_secs(10);

/// How often is looked whether a checkpoint is due.
const CHECKPOINT_LOOK: Duration = Duration::from_secs(1);

/// Time until a checkpoint that could not be written is tried again.
const CHECKPOINT_RETRY: Duration = Duration::from_secs(1);

/// Messages and bytes read from an inbox at once.
const PAGE: u32 = 128;
const PAGE_BYTES: usize = 256 * 1024;

/// What a shard can be given to do.
#[derive(Debug)]
pub(crate) enum Work<O> {
    /// To be agreed on, synced and applied.
    Propose {
        request: Request<O>,
        /// On a full disk it waits, and is not refused.
        must_wait: bool,
    },
    /// To be read.
    Read(Read),
    /// To be answered when all that was given before is applied.
    Barrier(Ticket),
    /// The last: to be told when all that was given before is applied.
    Stop(oneshot::Sender<()>),
}

/// One shard, as everybody sees it.
pub(crate) struct Shard<M: Kind> {
    pub(crate) number: ShardNumber,
    pub(crate) range: SlotRange,
    pub(crate) queue: RequestQueue<Work<M::Op>>,
    /// Event loops take mail.
    begun: AtomicBool,
    /// `None`: it does not serve.
    state: RwLock<Option<State<M>>>,
    pub(crate) stats: ShardStats,
}

/// What a shard counts.
#[derive(Debug, Default)]
pub(crate) struct ShardStats {
    /// Batches applied.
    pub(crate) batches: AtomicU64,
    /// Requests in these.
    pub(crate) requests: AtomicU64,
    /// Checkpoints written.
    pub(crate) checkpoints: AtomicU64,
    /// Bytes of these.
    pub(crate) checkpoint_bytes: AtomicU64,
    /// Bytes that only memory and log hold, about.
    unsaved_bytes: AtomicUsize,
    /// Requests refused.
    pub(crate) refused: AtomicU64,
    /// Requests given by event loops.
    given: AtomicU64,
    /// Of these, those applied or refused.
    pub(crate) finished: AtomicU64,
    /// Requests that wait for space on the disk.
    pub(crate) owed: AtomicUsize,
    /// Bytes of these, about.
    pub(crate) owed_bytes: AtomicUsize,
}

/// What the shard's own thread changes.
struct State<M> {
    machine: M,
    table: Arc<ShardTable>,
    effects: Effects,
    /// What the next mail brings each event loop.
    outbox: Vec<Vec<Event>>,
    /// How far the machine is; `None` while batches are being applied.
    mark: Option<Mark>,
    /// The time of the first change that the tables do not have.
    dirty_since: Option<Instant>,
}

/// The group of a shard in the log.
pub(crate) fn group_of<M: Kind>(shard: ShardNumber) -> u64 {
    (M::NUMBER << 32) | (u64::from(shard) + 1)
}

impl<M: Kind> Shard<M> {
    pub(crate) fn new(number: ShardNumber, range: SlotRange) -> Arc<Self> {
        Arc::new(Self {
            number,
            range,
            queue: RequestQueue::new(),
            begun: AtomicBool::new(false),
            state: RwLock::new(None),
            stats: ShardStats::default(),
        })
    }

    /// Gives the shard work.
    pub(crate) fn give(&self, work: Work<M::Op>, bytes: usize) {
        if let Work::Propose { .. } = work {
            self.stats.given.fetch_add(1, Ordering::Relaxed);
        }
        self.queue.put(work, bytes);
    }

    /// Gives the shard a request that can wait a little.
    pub(crate) fn give_patient(&self, work: Work<M::Op>, bytes: usize) {
        self.stats.given.fetch_add(1, Ordering::Relaxed);
        self.queue.put_patient(work, bytes);
    }

    /// Whether no more should be given for now.
    pub(crate) fn is_crowded(&self) -> bool {
        self.queue.is_crowded()
            || self.stats.unsaved_bytes.load(Ordering::Relaxed) > UNSAVED_MOST
            || self.stats.owed_bytes.load(Ordering::Relaxed) > OWED_MOST
    }

    /// Whether everything that was given is applied.
    pub(crate) fn is_idle(&self) -> bool {
        // In this order: what is finished meanwhile was given before.
        let finished = self.stats.finished.load(Ordering::Acquire);
        self.stats.given.load(Ordering::Acquire) <= finished
    }

    /// The shard's group in the log.
    pub(crate) fn group(&self) -> u64 {
        group_of::<M>(self.number)
    }

    /// Loads what the tables hold. Returns how far that is.
    pub(crate) fn load(
        &self,
        table: ShardTable,
        listener: &Arc<dyn Listener>,
    ) -> Result<Option<Mark>, String> {
        let bytes = table.mark().map_err(|error| error.to_string())?;
        let mark = match bytes {
            Some(bytes) => Some(Mark::decode(&bytes).map_err(|error| error.to_string())?),
            None => None,
        };
        let machine = M::load(self.range, &table).map_err(|error| error.to_string())?;
        *self.state.write() = Some(State {
            machine,
            table: Arc::new(table),
            effects: Effects {
                shard: self.number,
                listener: Arc::clone(listener),
                readers: Readers::default(),
                events: Vec::new(),
                live: false,
            },
            outbox: Vec::new(),
            mark: mark.clone(),
            dirty_since: None,
        });
        Ok(mark)
    }

    /// Its table; `None`: it does not serve.
    fn table(&self) -> Option<Arc<ShardTable>> {
        let state = self.state.read();
        state.as_ref().map(|state| Arc::clone(&state.table))
    }

    /// Serves no longer.
    pub(crate) fn close(&self) {
        *self.state.write() = None;
    }

    /// Looks at the machine; `None`: the shard does not serve.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&M) -> R) -> Option<R> {
        self.state.read().as_ref().map(|state| look(&state.machine))
    }

    /// Everything that happened before the start is applied: calls `tell` with the machine and its
    /// outlet, which hears of all that happens from now on.
    pub(crate) fn live(&self, tell: impl FnOnce(&mut M, &mut M::Outlet)) {
        if let Some(state) = &mut *self.state.write() {
            let State {
                machine, effects, ..
            } = state;
            effects.live = true;
            M::with_outlet(effects, |outlet| tell(machine, outlet));
        }
    }

    /// Event loops take mail from now on: sends out what was found at the start.
    pub(crate) fn begin(&self, listener: &dyn Listener) {
        self.begun.store(true, Ordering::Release);
        self.send_out(listener);
    }

    fn apply(&self, listener: &dyn Listener, batch: &Batch<M::Op>) {
        let mut state = self.state.write();
        let Some(state) = &mut *state else {
            return;
        };
        state.mark = None;
        state.dirty_since.get_or_insert_with(Instant::now);
        self.stats.batches.fetch_add(1, Ordering::Relaxed);
        self.stats
            .requests
            .fetch_add(batch.requests.len() as u64, Ordering::Relaxed);
        for Request {
            map_version,
            ticket,
            op,
        } in &batch.requests
        {
            let moved = *map_version != MAP_VERSION
                || M::slot(op).is_some_and(|slot| !self.range.contains(slot));
            if moved {
                state.reply(*ticket, Event::failed(Failure::Moved));
                continue;
            }
            let State {
                machine,
                table,
                effects,
                ..
            } = &mut *state;
            let applied = M::with_outlet(effects, |outlet| {
                machine.apply(&batch.header, op, &**table, outlet)
            });
            match applied {
                Ok(reply) => state.reply(*ticket, |token| M::event(token, reply)),
                Err(error) => {
                    // Half of a state is no state: what follows cannot be applied either.
                    listener.failed(&format!(
                        "shard {} of the {} store: {error}",
                        self.number,
                        M::NAME
                    ));
                    return;
                }
            }
        }
    }

    /// Sends out replies and pages.
    fn send_out(&self, listener: &dyn Listener) {
        if !self.begun.load(Ordering::Acquire) {
            return;
        }
        let (outbox, unaddressed) = {
            let mut state = self.state.write();
            let Some(state) = &mut *state else {
                return;
            };
            let State {
                effects, outbox, ..
            } = &mut *state;
            effects
                .readers
                .take_pages(|loop_index, event| put(outbox, loop_index, event));
            (
                std::mem::take(&mut state.outbox),
                std::mem::take(&mut state.effects.events),
            )
        };
        give(listener, outbox);
        if !unaddressed.is_empty() {
            // Whichever loop: what is to be done can be done by any.
            listener.mail(usize::from(self.number) % listener.loops(), unaddressed);
        }
    }

    /// Does what readers ask.
    pub(crate) fn read(&self, listener: &dyn Listener, asked: &[Read]) {
        if let Some(state) = &mut *self.state.write() {
            for read in asked {
                let Some(mut want) = state.effects.readers.ask(*read) else {
                    continue;
                };
                loop {
                    let (inbox, from, credit) = want;
                    let mut items = Vec::new();
                    let page = M::page(
                        &mut state.machine,
                        inbox,
                        from,
                        credit.min(PAGE),
                        PAGE_BYTES,
                        &*state.table,
                        &mut items,
                    );
                    match page {
                        Ok((next, end)) => state.effects.readers.read(inbox, items, next, end),
                        Err(error) => {
                            tracing::error!(
                                store = M::NAME,
                                shard = self.number,
                                %error,
                                "an inbox cannot be read"
                            );
                            break;
                        }
                    }
                    match state.effects.readers.wants(inbox) {
                        Some((next, credit)) => want = (inbox, next, credit),
                        None => break,
                    }
                }
            }
        }
        self.send_out(listener);
    }

    /// Tells that barriers are passed.
    pub(crate) fn pass(&self, listener: &dyn Listener, barriers: &[Ticket]) {
        let mut outbox = Vec::new();
        for ticket in barriers {
            address(&mut outbox, *ticket, Event::passed);
        }
        give(listener, outbox);
    }

    /// Refuses requests.
    pub(crate) fn refuse(
        &self,
        listener: &dyn Listener,
        requests: &[Request<M::Op>],
        failure: Failure,
    ) {
        let count = requests.len() as u64;
        self.stats.finished.fetch_add(count, Ordering::Release);
        self.stats.refused.fetch_add(count, Ordering::Relaxed);
        let mut outbox = Vec::new();
        for request in requests {
            if request.ticket == Ticket::NONE {
                M::lost(&request.op, listener);
            }
            address(&mut outbox, request.ticket, Event::failed(failure));
        }
        give(listener, outbox);
    }

    /// Refuses whatever is asked.
    pub(crate) fn refuse_work(
        &self,
        listener: &dyn Listener,
        work: impl Iterator<Item = Work<M::Op>>,
    ) {
        let mut requests = Vec::new();
        let mut barriers = Vec::new();
        for work in work {
            match work {
                Work::Propose { request, .. } => requests.push(request),
                Work::Barrier(ticket) => barriers.push(ticket),
                Work::Read(_) => {}
                Work::Stop(done) => {
                    let _ = done.send(());
                }
            }
        }
        self.pass(listener, &barriers);
        self.refuse(listener, &requests, Failure::Stopped);
    }

    /// Begins to collect the net changes since the last checkpoint, if it is time for one.
    fn begin_checkpoint(&self, now: bool) -> Option<Checkpoint> {
        let mut state = self.state.write();
        let state = state.as_mut()?;
        let since = state.dirty_since?;
        let due = now
            || since.elapsed() >= UNSAVED_TIME
            || state.machine.unsaved_bytes() >= UNSAVED_BYTES;
        if !due {
            return None;
        }
        let mark = state.mark.clone()?;
        let mut changes = Changes::default();
        let is_all = state.machine.collect_part(ROWS_AT_ONCE, &mut changes);
        state.dirty_since = None;
        Some(Checkpoint {
            changes,
            is_all,
            mark,
            table: Arc::clone(&state.table),
        })
    }

    /// Collects more of them: as they were when the checkpoint began.
    fn go_on_with(&self, checkpoint: &mut Checkpoint) {
        let mut state = self.state.write();
        match &mut *state {
            Some(state) => {
                let changes = &mut checkpoint.changes;
                checkpoint.is_all = state.machine.collect_part(ROWS_AT_ONCE, changes);
            }
            None => checkpoint.is_all = true,
        }
        // Event loops that wait for a look come before the next part.
        RwLockWriteGuard::unlock_fair(state);
    }

    /// Lets go of some of what the tables have. True: that was all.
    fn end_checkpoint(&self) -> bool {
        let mut state = self.state.write();
        let is_all = match &mut *state {
            Some(state) => {
                let is_all = state.machine.saved_part(ROWS_AT_ONCE);
                self.count_unsaved(&state.machine);
                is_all
            }
            None => true,
        };
        RwLockWriteGuard::unlock_fair(state);
        is_all
    }

    fn count_unsaved(&self, machine: &M) {
        self.stats
            .unsaved_bytes
            .store(machine.unsaved_bytes(), Ordering::Relaxed);
    }
}

/// The net changes since the last checkpoint, while they are collected and written.
struct Checkpoint {
    changes: Changes,
    /// All are collected.
    is_all: bool,
    /// How far they reach.
    mark: Mark,
    table: Arc<ShardTable>,
}

impl<M: Kind> State<M> {
    fn reply(&mut self, ticket: Ticket, event: impl FnOnce(u64) -> Event) {
        address(&mut self.outbox, ticket, event);
    }
}

/// Puts a reply into the mail for the loop that waits for it.
fn address(outbox: &mut Vec<Vec<Event>>, ticket: Ticket, event: impl FnOnce(u64) -> Event) {
    if let Some(loop_index) = ticket.loop_number.checked_sub(1) {
        put(outbox, loop_index, event(ticket.token));
    }
}

fn put(outbox: &mut Vec<Vec<Event>>, loop_index: u16, event: Event) {
    let index = usize::from(loop_index);
    if outbox.len() <= index {
        outbox.resize_with(index + 1, Vec::new);
    }
    if let Some(events) = outbox.get_mut(index) {
        events.push(event);
    }
}

/// The shard as consensus sees it.
pub(crate) struct Replica<M: Kind> {
    pub(crate) shard: Arc<Shard<M>>,
    pub(crate) listener: Arc<dyn Listener>,
    pub(crate) durable: Option<Mark>,
}

impl<M: Kind> StateMachine<Command> for Replica<M> {
    fn durable(&self) -> Option<Mark> {
        self.durable.clone()
    }

    fn apply(&mut self, _: u64, command: &Command) {
        match M::batch(command) {
            Some(batch) => self.shard.apply(&*self.listener, batch),
            None => self.listener.failed(&format!(
                "the log of shard {} of the {} store holds {command}",
                self.shard.number,
                M::NAME
            )),
        }
    }

    fn flush(&mut self, applied: &Mark) {
        if let Some(state) = &mut *self.shard.state.write() {
            state.mark = Some(applied.clone());
            self.shard.count_unsaved(&state.machine);
        }
        self.shard.send_out(&*self.listener);
    }
}

/// Gives event loops their mail.
fn give(listener: &dyn Listener, outbox: Vec<Vec<Event>>) {
    for (loop_index, events) in outbox.into_iter().enumerate() {
        if !events.is_empty() {
            listener.mail(loop_index, events);
        }
    }
}

/// What became of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    /// The tables have all that was applied when it began.
    Whole,
    /// None was due.
    Nothing,
    /// It cannot be written, and nobody waits any longer. There must be no other one in this process: it
    /// would lack what this one collected.
    GivenUp,
}

/// Writes checkpoints, and maintains the tables, until `stopping` says to end. Returns what became of the
/// last checkpoint.
pub(crate) async fn checkpoint<M: Kind>(
    shard: Arc<Shard<M>>,
    group: Arc<Group<Command>>,
    mut stopping: watch::Receiver<Stop>,
) -> Written {
    let mut look = tokio::time::interval(CHECKPOINT_LOOK);
    let mut maintenance = None;
    let mut is_due = true;
    loop {
        tokio::select! {
            _ = look.tick() => {}
            _ = stopping.wait_for(|stop| *stop != Stop::No) => return Written::Nothing,
        }
        match write_checkpoint(&shard, &group, &stopping).await {
            Written::Whole => is_due = true,
            Written::Nothing => {}
            Written::GivenUp => return Written::GivenUp,
        }
        // It takes seconds for gigabytes. Checkpoints go on meanwhile, or memory and log would grow.
        let is_idle = maintenance.as_ref().is_none_or(JoinHandle::is_finished);
        if is_due
            && is_idle
            && let Some(table) = shard.table()
        {
            is_due = false;
            maintenance = Some(tokio::task::spawn_blocking(move || maintain::<M>(&table)));
        }
    }
}

fn maintain<M: Kind>(table: &ShardTable) {
    if let Err(error) = table.maintain() {
        tracing::error!(
            store = M::NAME,
            %error,
            "tables cannot be maintained; they hold what they should, in more space"
        );
    }
}

/// Writes a checkpoint if one is due, or at any rate when the shard ends. Tries until it is written, or
/// once when the shard ends.
pub(crate) async fn write_checkpoint<M: Kind>(
    shard: &Shard<M>,
    group: &Group<Command>,
    stopping: &watch::Receiver<Stop>,
) -> Written {
    // An error: the store itself is gone.
    let is_last = || *stopping.borrow() != Stop::No || stopping.has_changed().is_err();
    let Some(mut checkpoint) = shard.begin_checkpoint(is_last()) else {
        return Written::Nothing;
    };
    while !checkpoint.is_all {
        tokio::task::yield_now().await;
        shard.go_on_with(&mut checkpoint);
    }
    let Checkpoint {
        changes,
        mark,
        table,
        ..
    } = checkpoint;
    let bytes = changes.bytes as u64;
    let mut changes = Some(changes);
    let mut is_told = false;
    while let Some(unwritten) = changes.take() {
        let (table, encoded) = (Arc::clone(&table), mark.encode());
        // The disk is written elsewhere, and the memory given back: the shard goes on meanwhile.
        let written = tokio::task::spawn_blocking(move || {
            let outcome = table.write(&unwritten, &encoded);
            outcome.map_err(|error| (error, unwritten))
        });
        match written.await {
            Ok(Ok(())) => break,
            Ok(Err((error, unwritten))) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::error!(
                        store = M::NAME,
                        shard = shard.number,
                        %error,
                        "a checkpoint cannot be written; the log keeps what it would hold"
                    );
                }
                changes = Some(unwritten);
            }
            Err(_) => return Written::GivenUp,
        }
        if is_last() {
            return Written::GivenUp;
        }
        let mut stopping = stopping.clone();
        tokio::select! {
            () = tokio::time::sleep(CHECKPOINT_RETRY) => {}
            _ = stopping.wait_for(|stop| *stop != Stop::No) => {}
        }
    }
    shard.stats.checkpoints.fetch_add(1, Ordering::Relaxed);
    shard
        .stats
        .checkpoint_bytes
        .fetch_add(bytes, Ordering::Relaxed);
    while !shard.end_checkpoint() {
        tokio::task::yield_now().await;
    }
    group.checkpointed(mark).await;
    Written::Whole
}
