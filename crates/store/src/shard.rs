//! One shard: its machine, and the tasks around it.
//!
//! The *server* (`server.rs`) takes requests from the queue. If this node leads the shard, the *proposer*
//! (`proposer.rs`) makes batches of them; if another does, they are sent there (`outstanding.rs`).
//! Consensus hands committed batches to [`Replica`], which applies them and, if it leads, sends replies
//! and pages to the event loops. The *checkpointer* now and then writes net changes to the tables, so
//! that the log can be purged. All run on one thread.
//!
//! Invariants: a reply leaves only after its batch is committed and synced; pages and replies leave in
//! the order of the batches; no lock of a shard is held while an event loop is given mail.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use consensus::{Group, Mark, StateMachine, Tables, blocking};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use serde::{Deserialize, Serialize};
use store_state::{Batch, Changes, Request, Slots, Ticket};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::command::Command;
use crate::kind::{Effects, Kind};
use crate::node::Stop;
use crate::outstanding::Outstanding;
use crate::peers::{Mail, Message, Peers};
use crate::queue::RequestQueue;
use crate::readers::{Read, Readers};
use crate::retained::PageRequest;
use crate::size::REQUEST_LIMIT;
use crate::snapshot::ShardTables;
use crate::{Event, Failure, Listener, MAP_VERSION, ShardNumber, ShardTable};

/// Bytes that only memory and log hold, above which a checkpoint begins.
const UNSAVED_BYTES: usize = 32 << 20;

/// Bytes that only memory and log hold, above which no more should be given: the disk does not keep up
/// with checkpoints.
const UNSAVED_MOST: usize = 4 * UNSAVED_BYTES;

/// Bytes of requests that wait for space on the disk, above which no more should be given.
const OWED_MOST: usize = 16 << 20;

/// Bytes of work that the leader was sent and has not answered, above which no more should be given.
const SENT_MOST: usize = 16 << 20;

/// Rows of a checkpoint that are collected, or let go of, before the shard does something else: about a
/// millisecond.
const ROWS_AT_ONCE: usize = 1024;

/// How long a batch is applied before others of the thread have their turn: heartbeats, other shards.
const TURN: Duration = Duration::from_millis(2);

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
    /// To be read, by an event loop of a node (0: this one).
    Read(u64, Read),
    /// To be answered when all that was given before is applied.
    Barrier(Ticket),
    /// To be answered with retained messages, when all that was given before is applied.
    Page(PageRequest),
    /// The last: to be told when all that was given before is applied.
    Stop(oneshot::Sender<()>),
}

impl<O> Work<O> {
    /// Whether another node has sent it.
    fn is_foreign(&self) -> bool {
        let peer = match self {
            Self::Propose { request, .. } => request.ticket.peer,
            Self::Read(peer, _) => *peer,
            Self::Barrier(ticket) => ticket.peer,
            Self::Page(request) => request.ticket.peer,
            Self::Stop(_) => 0,
        };
        peer != 0
    }
}

/// One shard, as everybody sees it.
pub(crate) struct Shard<M: Kind> {
    pub(crate) number: ShardNumber,
    pub(crate) slots: Slots,
    pub(crate) queue: RequestQueue<Work<M::Op>>,
    /// Event loops take mail.
    begun: AtomicBool,
    /// `None`: there is no replica of it here that can be used.
    state: RwLock<Option<State<M>>>,
    /// Held while tables are written: they are not replaced meanwhile.
    writing: Mutex<()>,
    pub(crate) stats: ShardStats,
    pub(crate) place: Place<M::Op>,
}

/// Where a shard is served, as this node knows it.
pub(crate) struct Place<O> {
    /// This node.
    pub(crate) node: u64,
    /// The other nodes; `None`: there are none.
    pub(crate) peers: Option<Arc<dyn Peers>>,
    /// Who leads.
    pub(crate) seat: watch::Sender<Seat>,
    /// What the leader was sent and has not answered.
    pub(crate) sent: Mutex<Outstanding<Work<O>>>,
    /// The replica here.
    pub(crate) group: watch::Sender<Option<Arc<Group<Command>>>>,
    /// What it is to do.
    pub(crate) duty: watch::Sender<Duty>,
}

/// What the replica of this node is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Duty {
    /// To serve: it leads, and a majority hears it.
    pub(crate) leads: bool,
    /// The term that it leads in.
    pub(crate) term: u64,
}

/// An unbroken time in which a node serves a shard; later ones are greater. What came in an earlier one is
/// forgotten, and has to be said again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reign {
    /// The Raft term that it leads in.
    pub(crate) term: u64,
    /// It may have stopped serving in that term, and begun again.
    pub(crate) attempt: u64,
}

/// Who leads a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seat {
    /// The node; 0: nobody is known to.
    pub(crate) leader: u64,
    pub(crate) reign: Reign,
    /// Whether the leader can be sent something.
    pub(crate) is_reachable: bool,
    /// Changes when what was sent to the leader, or by it, may be lost.
    pub(crate) way: u64,
}

impl<O> Place<O> {
    pub(crate) fn new(node: u64, peers: Option<Arc<dyn Peers>>) -> Self {
        Self {
            node,
            peers,
            seat: watch::Sender::default(),
            sent: Mutex::new(Outstanding::new()),
            group: watch::Sender::new(None),
            duty: watch::Sender::default(),
        }
    }

    /// Whether the shard is served here.
    pub(crate) fn is_here(&self) -> bool {
        self.seat.borrow().leader == self.node
    }
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
    /// Requests sent to the node that leads, also again.
    pub(crate) forwarded: AtomicU64,
    /// Bytes of work that was sent to the leader and is not answered, about.
    pub(crate) sent_bytes: AtomicUsize,
}

/// What the shard's own thread changes.
struct State<M> {
    machine: M,
    table: Arc<ShardTable>,
    effects: Effects,
    outbox: Outbox,
    /// How far the machine is; `None` while batches are being applied.
    mark: Option<Mark>,
    /// The time of the first change that the tables do not have.
    dirty_since: Option<Instant>,
    /// How often tables and machine were replaced.
    generation: u64,
}

/// The group of a shard in the log.
pub(crate) fn group_of<M: Kind>(shard: ShardNumber) -> u64 {
    (M::NUMBER << 32) | (u64::from(shard) + 1)
}

impl<M: Kind> Shard<M> {
    pub(crate) fn new(number: ShardNumber, slots: Slots, place: Place<M::Op>) -> Arc<Self> {
        Arc::new(Self {
            number,
            slots,
            place,
            queue: RequestQueue::new(),
            begun: AtomicBool::new(false),
            state: RwLock::new(None),
            writing: Mutex::new(()),
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
            || self.stats.sent_bytes.load(Ordering::Relaxed) > SENT_MOST
            || self.stats.unsaved_bytes.load(Ordering::Relaxed) > UNSAVED_MOST
            || self.stats.owed_bytes.load(Ordering::Relaxed) > OWED_MOST
    }

    /// Whether everything that was given is applied.
    pub(crate) fn is_idle(&self) -> bool {
        // In this order: what is finished meanwhile was given before.
        let finished = self.stats.finished.load(Ordering::Acquire);
        self.stats.given.load(Ordering::Acquire) <= finished
    }

    /// Requests given so far.
    pub(crate) fn given(&self) -> u64 {
        self.stats.given.load(Ordering::Acquire)
    }

    /// Whether so many of these are applied, or refused.
    pub(crate) fn has_finished(&self, given: u64) -> bool {
        self.stats.finished.load(Ordering::Acquire) >= given
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
        let machine = M::load(self.slots, &table).map_err(|error| error.to_string())?;
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
            outbox: Outbox::default(),
            mark: mark.clone(),
            dirty_since: None,
            generation: 0,
        });
        Ok(mark)
    }

    /// Another replica's state takes the place of this one's: `replace` does it to the tables.
    pub(crate) fn replace(
        &self,
        mark: &Mark,
        replace: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let _alone = self.writing.lock();
        replace()?;
        let mut state = self.state.write();
        let state = state
            .as_mut()
            .ok_or_else(|| io::Error::other("the shard is closed"))?;
        state.machine = M::load(self.slots, &*state.table).map_err(io::Error::other)?;
        state.mark = Some(mark.clone());
        state.dirty_since = None;
        state.generation += 1;
        state.effects.readers.clear();
        Ok(())
    }

    /// Whether the state is still the one that a checkpoint began with.
    fn is_of(&self, generation: u64) -> bool {
        let state = self.state.read();
        state
            .as_ref()
            .is_some_and(|state| state.generation == generation)
    }

    /// Its table; `None`: it does not serve.
    pub(crate) fn table(&self) -> Option<Arc<ShardTable>> {
        let state = self.state.read();
        state.as_ref().map(|state| Arc::clone(&state.table))
    }

    /// What the shard holds cannot be used: it serves no longer.
    pub(crate) fn tell_damage(&self, error: &str) {
        tracing::error!(
            store = M::NAME,
            shard = self.number,
            error,
            "a shard does not serve: what it holds cannot be used"
        );
        self.close();
    }

    /// Serves no longer.
    pub(crate) fn close(&self) {
        *self.state.write() = None;
    }

    /// Looks at the machine; `None`: the shard does not serve.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&M) -> R) -> Option<R> {
        self.state.read().as_ref().map(|state| look(&state.machine))
    }

    /// What the replica here holds; `None`: there is none.
    #[cfg(feature = "simulation")]
    pub(crate) fn replica(&self) -> Option<crate::Replica>
    where
        M: crate::simulation::Describe,
    {
        let mut state = self.state.write();
        let State {
            machine,
            table,
            mark,
            ..
        } = state.as_mut()?;
        Some(crate::Replica {
            store: M::NUMBER as u8,
            shard: self.number,
            applied: mark.as_ref()?.index()?,
            unfinished: machine.unfinished(),
            content: machine.describe(&**table),
        })
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

    /// Another replica leads from now on, or none.
    pub(crate) fn quiet(&self) {
        if let Some(State { effects, .. }) = &mut *self.state.write() {
            effects.live = false;
            effects.events.clear();
            effects.readers.clear();
        }
    }

    /// Drops what other nodes have sent because this one led: they say it again to whoever leads now.
    pub(crate) fn drop_foreign(&self) {
        let dropped = self.queue.remove_if(Work::is_foreign);
        let requests = dropped
            .iter()
            .filter(|work| matches!(work, Work::Propose { .. }));
        self.stats
            .finished
            .fetch_add(requests.count() as u64, Ordering::Release);
    }

    /// Event loops take mail from now on: sends out what was found at the start.
    pub(crate) fn begin(&self, listener: &dyn Listener) {
        self.begun.store(true, Ordering::Release);
        self.send_out(listener);
    }

    /// Whether event loops take mail.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Carries out a batch, or a part of it: from the request at `from` on, for [`TURN`], or for one part of a
    /// long operation. `Some`: where to go on; nothing else may be applied before.
    fn apply(&self, listener: &dyn Listener, batch: &Batch<M::Op>, from: usize) -> Option<usize> {
        let mut state = self.state.write();
        let state = state.as_mut()?;
        let turn = Instant::now();
        state.mark = None;
        state.dirty_since.get_or_insert(turn);
        for (number, request) in batch.requests.iter().enumerate().skip(from) {
            let Request {
                map_version,
                ticket,
                op,
            } = request;
            let ticket = if batch.given_up.is_set() {
                &Ticket::NONE
            } else {
                ticket
            };
            let moved = *map_version != MAP_VERSION
                || M::slot(op, self.slots.hash)
                    .is_some_and(|slot| !self.slots.range.contains(slot));
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
                machine.apply_part(&batch.header, op, &**table, outlet)
            });
            match applied {
                Ok(Some(reply)) => state.reply(*ticket, |token| M::event(token, reply)),
                Ok(None) => return Some(number),
                Err(error) => {
                    // Half of a state is no state: what follows cannot be applied either.
                    listener.failed(&format!(
                        "shard {} of the {} store: {error}",
                        self.number,
                        M::NAME
                    ));
                    return None;
                }
            }
            if turn.elapsed() >= TURN && number + 1 < batch.requests.len() {
                return Some(number + 1);
            }
        }
        self.stats.batches.fetch_add(1, Ordering::Relaxed);
        let requests = batch.requests.len() as u64;
        self.stats.requests.fetch_add(requests, Ordering::Relaxed);
        None
    }

    /// Sends out replies and pages.
    pub(crate) fn send_out(&self, listener: &dyn Listener) {
        if !self.has_begun() {
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
                .take_pages(|peer, loop_index, event| outbox.put(peer, loop_index, event));
            (
                std::mem::take(&mut state.outbox),
                std::mem::take(&mut state.effects.events),
            )
        };
        // Before the answers: who hears one can rely on it that what it brought about is in the mail.
        if !unaddressed.is_empty() {
            // Whichever loop: what is to be done can be done by any.
            listener.mail(usize::from(self.number) % listener.loops(), unaddressed);
        }
        self.give_out(listener, outbox);
    }

    /// Sends out mail.
    fn give_out(&self, listener: &dyn Listener, outbox: Outbox) {
        give(listener, outbox.loops);
        let Some(peers) = &self.place.peers else {
            return;
        };
        for (peer, mail) in outbox.peers {
            for mut mail in mail.parts() {
                mail.store = M::NUMBER as u8;
                mail.shard = self.number;
                peers.send(peer, Message::Mail(mail).encode());
            }
        }
    }

    /// Does what readers ask.
    pub(crate) fn read(&self, listener: &dyn Listener, asked: &[(u64, Read)]) {
        if let Some(state) = &mut *self.state.write() {
            for (peer, read) in asked {
                let Some(mut want) = state.effects.readers.ask(*peer, *read) else {
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
        let mut outbox = Outbox::default();
        for ticket in barriers {
            outbox.address(*ticket, Event::passed);
        }
        self.give_out(listener, outbox);
    }

    /// Answers a question for pages of retained messages.
    pub(crate) fn answer_page(&self, listener: &dyn Listener, request: &PageRequest) {
        let wanted = &request.wanted;
        let pages = self
            .look(|machine| {
                wanted.pages(|selection, budget| machine.retained(selection, budget, wanted.now()))
            })
            .flatten();
        let mut outbox = Outbox::default();
        outbox.address(request.ticket, |token| match pages {
            Some(pages) => Event::Retained { token, pages },
            None => Event::Failed {
                token,
                failure: Failure::Stopped,
            },
        });
        self.give_out(listener, outbox);
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
        let mut outbox = Outbox::default();
        for request in requests {
            if request.ticket == Ticket::NONE {
                M::lost(&request.op, listener);
            }
            outbox.address(request.ticket, Event::failed(failure));
        }
        self.give_out(listener, outbox);
    }

    /// Refuses requests that are too long for a batch, so that the others go on.
    pub(crate) fn refuse_too_long(&self, listener: &dyn Listener, requests: &[Request<M::Op>]) {
        if !requests.is_empty() {
            tracing::error!(
                store = M::NAME,
                shard = self.number,
                requests = requests.len(),
                limit = REQUEST_LIMIT,
                "what is to be kept is too long; it is refused"
            );
            self.refuse(listener, requests, Failure::TooLong);
        }
    }

    /// Refuses whatever is asked.
    pub(crate) fn refuse_work(
        &self,
        listener: &dyn Listener,
        work: impl Iterator<Item = Work<M::Op>>,
    ) {
        let mut requests = Vec::new();
        let mut outbox = Outbox::default();
        for work in work {
            match work {
                Work::Propose { request, .. } => requests.push(request),
                Work::Barrier(ticket) => outbox.address(ticket, Event::passed),
                Work::Page(PageRequest { ticket, .. }) => {
                    outbox.address(ticket, Event::failed(Failure::Stopped));
                }
                Work::Read(..) => {}
                Work::Stop(done) => {
                    let _ = done.send(());
                }
            }
        }
        self.give_out(listener, outbox);
        self.refuse(listener, &requests, Failure::Stopped);
    }

    /// Counts requests that wait for a leader, as those that wait for space are.
    pub(crate) fn count_owed(&self, kept: &[(usize, Work<M::Op>)]) {
        let bytes = kept.iter().map(|(bytes, _)| bytes).sum();
        self.stats.owed.store(kept.len(), Ordering::Relaxed);
        self.stats.owed_bytes.store(bytes, Ordering::Relaxed);
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
            generation: state.generation,
        })
    }

    /// Collects more of them: as they were when the checkpoint began.
    fn go_on_with(&self, checkpoint: &mut Checkpoint) {
        let mut state = self.state.write();
        match &mut *state {
            Some(state) if state.generation == checkpoint.generation => {
                let changes = &mut checkpoint.changes;
                checkpoint.is_all = state.machine.collect_part(ROWS_AT_ONCE, changes);
            }
            _ => checkpoint.is_all = true,
        }
        // Event loops that wait for a look come before the next part.
        RwLockWriteGuard::unlock_fair(state);
    }

    /// Lets go of some of what the tables have. True: that was all.
    fn end_checkpoint(&self, generation: u64) -> bool {
        let mut state = self.state.write();
        let is_all = match &mut *state {
            Some(state) if state.generation == generation => {
                let is_all = state.machine.saved_part(ROWS_AT_ONCE);
                self.count_unsaved(&state.machine);
                is_all
            }
            _ => true,
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
    /// Of the state.
    generation: u64,
}

impl<M: Kind> State<M> {
    fn reply(&mut self, ticket: Ticket, event: impl FnOnce(u64) -> Event) {
        self.outbox.address(ticket, event);
    }
}

/// What the next mail brings.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// By event loop.
    pub(crate) loops: Vec<Vec<Event>>,
    /// Other nodes, of which there are few.
    peers: Vec<(u64, Mail)>,
}

impl Outbox {
    /// Puts in a reply, for whoever waits for it.
    pub(crate) fn address(&mut self, ticket: Ticket, event: impl FnOnce(u64) -> Event) {
        if ticket.peer != 0 {
            self.mail(ticket.peer).answers.push(event(ticket.token));
        } else if let Some(loop_index) = ticket.loop_number.checked_sub(1) {
            self.put(0, loop_index, event(ticket.token));
        }
    }

    /// Puts in an event for a loop of a node (0: this one).
    pub(crate) fn put(&mut self, peer: u64, loop_index: u16, event: Event) {
        if peer != 0 {
            self.mail(peer).pages.push((loop_index, event));
            return;
        }
        let index = usize::from(loop_index);
        if self.loops.len() <= index {
            self.loops.resize_with(index + 1, Vec::new);
        }
        if let Some(events) = self.loops.get_mut(index) {
            events.push(event);
        }
    }

    fn mail(&mut self, peer: u64) -> &mut Mail {
        let known = self.peers.iter().position(|(known, _)| *known == peer);
        let at = known.unwrap_or_else(|| {
            self.peers.push((peer, Mail::default()));
            self.peers.len() - 1
        });
        &mut self.peers[at].1
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

    fn tables(&self) -> Arc<dyn Tables> {
        Arc::new(ShardTables(Arc::clone(&self.shard)))
    }

    fn apply(&mut self, _: u64, command: &Command, from: usize) -> Option<usize> {
        let Some(batch) = M::batch(command) else {
            self.listener.failed(&format!(
                "the log of shard {} of the {} store holds {command}",
                self.shard.number,
                M::NAME
            ));
            return None;
        };
        self.shard.apply(&*self.listener, batch, from)
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
pub(crate) fn give(listener: &dyn Listener, outbox: Vec<Vec<Event>>) {
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
            maintenance = Some(tokio::spawn(async move {
                // An error: the store ends.
                let _ = blocking(move || maintain::<M>(&table)).await;
            }));
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
    shard: &Arc<Shard<M>>,
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
        generation,
        ..
    } = checkpoint;
    let bytes = changes.bytes as u64;
    let mut changes = Some(changes);
    let mut is_told = false;
    while let Some(unwritten) = changes.take() {
        let (table, encoded) = (Arc::clone(&table), mark.encode());
        let of = Arc::clone(shard);
        // The disk is written elsewhere, and the memory given back: the shard goes on meanwhile.
        let written = blocking(move || {
            let _alone = of.writing.lock();
            if !of.is_of(generation) {
                return Ok(false);
            }
            let outcome = table.write(&unwritten, &encoded);
            outcome.map(|()| true).map_err(|error| (error, unwritten))
        });
        match written.await {
            Ok(Ok(true)) => break,
            Ok(Ok(false)) => return Written::Nothing,
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
    while !shard.end_checkpoint(generation) {
        tokio::task::yield_now().await;
    }
    if shard.is_of(generation) {
        group.checkpointed(mark).await;
    }
    Written::Whole
}
