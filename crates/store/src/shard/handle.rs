//! One shard, as all of its tasks and all threads see it.
//!
//! Invariants: the state is changed by the shard's own thread alone; no lock of a shard is held while an event loop is given mail.
//!
//! Read next: `apply.rs` for what changes the state, `worker.rs` for what takes requests.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use consensus::Mark;
use parking_lot::{Mutex, RwLock};
use store_state::api::{Event, LastSlot, ShardNumber};
use store_state::{
    CorrelationId, Descriptor, Level, Limits, LoadError, NameHash, ProposedHere, Request,
    SlotRange, Slots,
};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::api::listener::Listener;
use crate::api::stats::HeldBack;
use crate::kinds::effects::Effects;
use crate::kinds::group::group_of;
use crate::kinds::kind::Kind;
use crate::node::beginnings::Parent;
use crate::shard::comparison::Comparison;
use crate::shard::counters::ShardCounters;
use crate::shard::cursors::InboxCursors;
use crate::shard::damage::Damage;
use crate::shard::fault::Fault;
use crate::shard::load::{
    Busyness, LoadMeter, LoadScale, ShardCost, ShardLoad, SlotWeights, Total,
};
use crate::shard::outbox::{Outbox, SplitOff};
use crate::shard::queue::RequestQueue;
use crate::shard::rebuild::Rebuild;
use crate::shard::recovery::RecoveryStatus;
use crate::shard::request::weigh;
use crate::shard::routing::ShardRouting;
use crate::shard::shards::{Shards, note_level};
use crate::shard::split::{Birth, Seeding};
use crate::shard::unsettled::Unsettled;
use crate::shard::work::Work;
use crate::storage::snapshot::{ReceivedBytes, TableOwner};
use crate::storage::tables::ShardTable;

/// Bytes that only memory and log hold, above which a checkpoint begins.
///
/// Limit: changes that only memory and log hold | {} or {checkpoint::UNSAVED_TIME} | a checkpoint
pub(super) const UNSAVED_BYTES: usize = 32 << 20;

/// Bytes that only memory and log hold, above which no more should be given: the disk does not keep up
/// with checkpoints.
const UNSAVED_MOST: usize = 4 * UNSAVED_BYTES;

/// Bytes of requests that wait for space on the disk, above which no more should be given.
///
/// Limit: requests that wait for space on a full disk | {:bytes} per shard | publishers are not read
const DEFERRED_MOST: usize = 16 << 20;

/// Bytes of work that the leader was sent and has not answered, above which no more should be given.
const SENT_MOST: usize = 16 << 20;

/// How long the tables of a shard, when they are to be replaced, wait for a child that begins with them.
const SEEDING_PATIENCE: Duration = Duration::from_secs(10);

/// One shard, as everybody sees it.
pub(crate) struct Shard<M: Kind> {
    pub(crate) number: ShardNumber,
    /// The range that it began with, if the store did; it may be narrower by now.
    pub(super) base: Option<SlotRange>,
    pub(super) hash: NameHash,
    /// Its level as long as neither its tables nor its log say one.
    folder_level: Level,
    /// All shards of the store, of which it is one.
    shards: Weak<Shards<M>>,
    pub(crate) queue: RequestQueue<Work<M::Op>>,
    /// Event loops take mail.
    pub(super) begun: AtomicBool,
    /// `None`: there is no replica of it here that can be used.
    pub(super) state: RwLock<Option<State<M>>>,
    /// Held while tables are written: they are not replaced meanwhile.
    pub(super) writing: Mutex<()>,
    /// Whether a checkpoint is under way.
    pub(super) in_checkpoint: watch::Sender<bool>,
    /// Told when so much is unsaved that a checkpoint is due.
    pub(super) is_unsaved: Notify,
    /// Shards that were split off and have no tables of their own yet. This shard writes no checkpoint before, is not
    /// replaced and not removed: its log and its tables are what they begin with.
    pub(super) seeding: Seeding,
    /// What the replica here begins with, as its parent's has made it.
    pub(super) birth: Birth<M>,
    /// What splits have left to be made anew.
    pub(super) rebuild: Rebuild,
    /// Whether the replica here holds what the others hold.
    pub(crate) comparison: Comparison,
    /// What is wrong with the replica here.
    pub(crate) fault: Fault,
    /// What is damaged of the replica here, and what makes it whole.
    pub(crate) recovery: RecoveryStatus,
    /// Damage that was met since the shard was opened.
    pub(crate) damage: Damage,
    pub(crate) stats: ShardCounters,
    pub(crate) routing: ShardRouting<M::Op>,
}

/// What the shard's own thread changes.
pub(super) struct State<M: Kind> {
    pub(super) machine: M,
    /// What the shard is responsible for.
    pub(super) descriptor: Descriptor,
    /// What is written, and done with an entry.
    pub(super) level: Level,
    /// The tables do not say the level.
    pub(super) is_level_unsaved: bool,
    /// The tables do not have the descriptor as it is now.
    pub(super) is_descriptor_unsaved: bool,
    pub(super) meter: LoadMeter,
    pub(super) table: Arc<ShardTable>,
    /// The parent, while the table is its: the shard has none of its own before its first checkpoint.
    pub(super) parent: Option<Arc<dyn Parent>>,
    pub(super) effects: Effects,
    pub(super) outbox: Outbox<M::Op>,
    pub(super) unsettled: Unsettled<M>,
    /// How far the machine is; `None` while batches are being applied.
    pub(super) mark: Option<Mark>,
    /// The time of the first change that the tables do not have.
    pub(super) dirty_since: Option<Instant>,
    /// How often tables and machine were replaced.
    pub(super) generation: u64,
}

impl<M: Kind> Shard<M> {
    pub(crate) fn new(
        number: ShardNumber,
        shards: &Arc<Shards<M>>,
        routing: ShardRouting<M::Op>,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            base: shards.base().range_of(number),
            hash: shards.hash(),
            folder_level: shards.folder_level(),
            shards: Arc::downgrade(shards),
            routing,
            queue: RequestQueue::new(),
            begun: AtomicBool::new(false),
            state: RwLock::new(None),
            writing: Mutex::new(()),
            in_checkpoint: watch::Sender::new(false),
            is_unsaved: Notify::new(),
            seeding: Seeding::default(),
            birth: Birth::default(),
            rebuild: Rebuild::default(),
            comparison: Comparison::default(),
            fault: Fault::default(),
            recovery: RecoveryStatus::default(),
            damage: Damage::default(),
            stats: ShardCounters::default(),
        })
    }

    /// Whether the store began with it, and no split has made it.
    pub(crate) fn is_first(&self) -> bool {
        self.base.is_some()
    }

    /// All shards of the store, of which it is one.
    /// `None`: the store itself is gone.
    pub(crate) fn shards(&self) -> Option<Arc<Shards<M>>> {
        self.shards.upgrade()
    }

    /// Gives the shard work.
    pub(crate) fn give(&self, work: Work<M::Op>, bytes: usize) {
        if let Work::Propose { .. } = work {
            self.stats.given.fetch_add(1, Ordering::Relaxed);
        }
        self.queue.put(work, bytes);
    }

    /// Gives the shard work, unless it belongs elsewhere: `belongs` is asked while nobody else gives it any.
    ///
    /// # Errors
    /// It does not, and comes back.
    pub(super) fn give_if(
        &self,
        work: Work<M::Op>,
        bytes: usize,
        is_patient: bool,
        belongs: impl FnOnce() -> bool,
    ) -> Result<(), Work<M::Op>> {
        let is_request = matches!(work, Work::Propose { .. });
        self.queue.put_if(work, bytes, is_patient, || {
            let belongs = belongs();
            if belongs && is_request {
                self.stats.given.fetch_add(1, Ordering::Relaxed);
            }
            belongs
        })
    }

    /// Gives the shard a request that another one was given before it was split.
    pub(super) fn give_at_gate(&self, work: Work<M::Op>, bytes: usize) {
        self.stats.given.fetch_add(1, Ordering::Relaxed);
        self.queue.put_at_gate(work, bytes);
    }

    /// Opens the gate: the shard that it was split off has answered all that this node had asked of it before.
    pub(super) fn open_gate(&self) {
        let given = self.stats.given.load(Ordering::Acquire);
        self.stats.given_at_gate.store(given, Ordering::Release);
        self.queue.open_gate();
    }

    /// Whether all is applied, or refused, that the shards before it were given first.
    pub(crate) fn has_finished_first(&self) -> bool {
        let given = self.stats.given_at_gate.load(Ordering::Acquire);
        !self.queue.is_gated() && self.has_finished(given)
    }

    /// Gives the shard a request that can wait a little.
    pub(crate) fn give_patient(&self, work: Work<M::Op>, bytes: usize) {
        self.stats.given.fetch_add(1, Ordering::Relaxed);
        self.queue.put_patient(work, bytes);
    }

    /// Whether no more should be given for now.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.queue.is_over_limit()
            || self.stats.sent_bytes.load(Ordering::Relaxed) > SENT_MOST
            || self.stats.unsaved_bytes.load(Ordering::Relaxed) > UNSAVED_MOST
            || self.stats.deferred_bytes.load(Ordering::Relaxed) > DEFERRED_MOST
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

    /// The level of the replica here, and what it holds back; `None`: there is none.
    pub(crate) fn standing(&self) -> Option<(Level, HeldBack)> {
        let state = self.state.read();
        let state = state.as_ref()?;
        let count = |held: usize| Total(held as u64);
        let held_back = HeldBack {
            answers: count(state.unsettled.len()),
            queues: count(state.effects.cursors.awaited_inboxes()),
            filters: count(state.effects.cursors.held_filters()),
        };
        Some((state.level, held_back))
    }

    /// What the shard is responsible for; `None`: there is no replica here.
    pub(crate) fn descriptor(&self) -> Option<Descriptor> {
        let state = self.state.read();
        state.as_ref().map(|state| state.descriptor.clone())
    }

    /// The index of the last entry that the replica here has applied; `None`: there is none, or it is applying one.
    pub(crate) fn applied_index(&self) -> Option<u64> {
        self.state.read().as_ref()?.mark.as_ref()?.index()
    }

    /// What the shard has cost.
    pub(crate) fn cost(&self) -> ShardCost {
        self.stats.cost.cost(self.queue.waited())
    }

    /// The load of the shard; `None`: this node has not led it for a second.
    pub(crate) fn load(&self) -> Option<ShardLoad> {
        self.state.read().as_ref()?.meter.load()
    }

    /// How busy the shard has been; `None`: this node has not led it, as it is now, for ten seconds.
    pub(crate) fn busyness(&self) -> Option<Busyness> {
        self.state.read().as_ref()?.meter.busyness()
    }

    /// A second has passed, in which it has used so much more than was counted. To be called on the shard's thread.
    pub(crate) fn roll_load(&self, scale: LoadScale) {
        if let Some(State { meter, effects, .. }) = &mut *self.state.write() {
            let cost = self.routing.is_here().then(|| self.cost());
            meter.roll(cost, &mut effects.weights, scale);
        }
    }

    /// The shard's group in the log.
    pub(crate) fn group(&self) -> u64 {
        group_of::<M>(self.number)
    }

    /// Loads what the tables hold. Returns how far that is.
    pub(crate) fn open(
        &self,
        table: ShardTable,
        listener: &Arc<dyn Listener>,
    ) -> Result<Option<Mark>, String> {
        let bytes = table.mark().map_err(|error| error.to_string())?;
        let mark = match bytes {
            Some(bytes) => Some(Mark::decode(&bytes).map_err(|error| error.to_string())?),
            None => None,
        };
        let (descriptor, level, machine) = self
            .read_tables(&table, mark.is_none())
            .map_err(|error| error.to_string())?;
        let has_to_rebuild = machine.has_to_rebuild();
        machine.loaded(&**listener);
        self.damage.clear();
        *self.state.write() = Some(State {
            machine,
            meter: LoadMeter::new(descriptor.range),
            level,
            is_level_unsaved: false,
            is_descriptor_unsaved: false,
            table: Arc::new(table),
            parent: None,
            effects: Effects {
                shard: self.number,
                listener: Arc::clone(listener),
                cursors: InboxCursors::default(),
                weights: SlotWeights::new(descriptor.range),
                events: Vec::new(),
                attaching: None,
                live: false,
            },
            outbox: Outbox::default(),
            unsettled: Unsettled::default(),
            descriptor,
            mark: mark.clone(),
            dirty_since: None,
            generation: 0,
        });
        note_level(&self.shards);
        if has_to_rebuild {
            self.rebuild.want_more();
        }
        Ok(mark)
    }

    /// What the tables hold. `is_new`: nothing was written to them yet.
    fn read_tables(
        &self,
        table: &ShardTable,
        is_new: bool,
    ) -> Result<(Descriptor, Level, M), LoadError> {
        let written = Descriptor::of_table(table)?;
        let descriptor = match (written, self.base) {
            (Some(written), _) => written,
            (None, Some(base)) => Descriptor::first(base),
            // Its log begins behind what it was split off with: the first that comes is a snapshot, which says.
            (None, None) if is_new => Descriptor::first(SlotRange {
                first: self.number,
                last: u16::MAX,
            }),
            (None, None) => return Err(Descriptor::missing()),
        };
        let level = Level::of_table(table)?.unwrap_or(self.folder_level);
        let slots = Slots {
            range: descriptor.range,
            hash: self.hash,
            level,
        };
        Ok((descriptor, level, M::load(slots, table)?))
    }

    /// Whether the state is still the one that a checkpoint began with.
    pub(super) fn is_of(&self, generation: u64) -> bool {
        let state = self.state.read();
        state
            .as_ref()
            .is_some_and(|state| state.generation == generation)
    }

    /// What the shard holds cannot be used: it serves no longer.
    pub(crate) fn tell_damage(&self, error: &str) {
        tracing::error!(
            store = M::NAME,
            shard = self.number,
            error,
            "a shard does not serve: its data cannot be used"
        );
        self.fault.note(error);
        self.recovery.handle_damage(error);
        self.close();
    }

    /// Serves no longer.
    pub(crate) fn close(&self) {
        self.comparison.handle_replaced();
        *self.state.write() = None;
        // Whoever wrote one has ended, or finds another state.
        self.in_checkpoint.send_replace(false);
    }

    /// Looks at the machine; `None`: the shard does not serve.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&M) -> R) -> Option<R> {
        self.state.read().as_ref().map(|state| look(&state.machine))
    }

    /// Looks at the machine, and at the slots that it has; `None`: the shard does not serve.
    pub(crate) fn look_within<R>(&self, look: impl FnOnce(&M, SlotRange) -> R) -> Option<R> {
        let state = self.state.read();
        let state = state.as_ref()?;
        Some(look(&state.machine, state.descriptor.range))
    }

    /// The limits of a batch that is proposed now, and the level of the shard. The limits are those of the listener, or the
    /// shard's share of them if its slots were given to several shards.
    pub(crate) fn limits(&self, listener: &dyn Listener) -> (Limits, Level) {
        let limits = listener.limits();
        let state = self.state.read();
        let (Some(state), Some(shards)) = (state.as_ref(), self.shards()) else {
            // It is being closed: what is proposed now is not applied here.
            return (limits, self.folder_level);
        };
        let (own, level) = (state.descriptor.range, state.level);
        let limits = state.machine.leave_alone(limits.lowered(level));
        let base = shards.base();
        let share = limits.share(own, base.range(base.of_slot(own.first)));
        (share, level)
    }

    /// What the replica here holds; `None`: there is none.
    #[cfg(feature = "simulation")]
    pub(crate) fn replica(&self) -> Option<crate::simulation::Replica>
    where
        M: crate::simulation::Describe,
    {
        let mut state = self.state.write();
        let State {
            machine,
            descriptor,
            level,
            table,
            parent,
            mark,
            ..
        } = state.as_mut()?;
        Some(crate::simulation::Replica {
            store: M::STORE,
            shard: self.number,
            applied: mark.as_ref()?.index()?,
            descriptor: descriptor.clone(),
            level: *level,
            is_seeding: parent.is_some() || !self.seeding.is_over(),
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
        self.rebuild.release();
        let mut unsettled = Vec::new();
        if let Some(state) = &mut *self.state.write() {
            let State { effects, .. } = state;
            effects.live = false;
            effects.events.clear();
            effects.cursors.clear();
            unsettled = state.unsettled.take(|_| true);
        }
        // Other nodes ask the next leader themselves.
        let own = unsettled
            .into_iter()
            .filter(|request| request.correlation_id.peer == 0);
        for request in own {
            let bytes = weigh(&request.op);
            let must_wait = M::must_wait(&request.op, request.correlation_id);
            self.give(Work::Propose { request, must_wait }, bytes);
        }
    }

    /// Drops the requests of other nodes, sent because this one led: those nodes retry them with the next leader. And what this
    /// node has found as the leader.
    pub(crate) fn drop_forwarded(&self) {
        let dropped = self.queue.remove_if(Work::is_forwarded);
        let requests = dropped
            .iter()
            .filter(|work| matches!(work, Work::Propose { .. }));
        self.stats
            .finished
            .fetch_add(requests.count() as u64, Ordering::Release);
    }

    /// Event loops take what the shard has for them.
    pub(super) fn set_begun(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// Whether event loops take mail.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    pub(super) fn count_unsaved(&self, machine: &M) {
        let unsaved = machine.unsaved_bytes();
        self.stats.unsaved_bytes.store(unsaved, Ordering::Relaxed);
        if unsaved >= UNSAVED_BYTES {
            self.is_unsaved.notify_one();
        }
    }
}

impl<M: Kind> State<M> {
    /// A request is for slots above those of the shard, too, or only for these. `reply`: what it has answered. Whoever
    /// has asked is to send it on; on other replicas than the proposer's, nobody has.
    pub(super) fn split_off(
        &mut self,
        request: &Request<M::Op>,
        proposed_here: ProposedHere,
        reply: Option<Event>,
    ) {
        let last = LastSlot(self.descriptor.range.last);
        let correlation_id = request.correlation_id;
        if correlation_id.peer != 0 {
            let reply = reply.map(Box::new);
            self.reply(correlation_id, |token| Event::SplitOff {
                token,
                reply,
                last,
            });
        } else if proposed_here.0 {
            let must_wait = M::must_wait(&request.op, correlation_id);
            let bytes = weigh(&request.op);
            self.outbox.split_off.push(SplitOff {
                work: Work::Propose {
                    request: request.clone(),
                    must_wait,
                },
                bytes,
                reply,
                last,
            });
        }
    }

    /// A request of whoever waits for it is applied: it is answered, or its answer is held for now.
    pub(super) fn answer(&mut self, request: &Request<M::Op>, answer: Event) {
        let is_awaited = request.correlation_id != CorrelationId::NONE && self.effects.live;
        let answer = if is_awaited {
            self.unsettled.hold(&self.machine, request, answer)
        } else {
            Some(answer)
        };
        if let Some(answer) = answer {
            self.reply(request.correlation_id, |_| answer);
        }
    }

    /// An operation is applied: answers that were held for it go.
    pub(super) fn settle_answers(&mut self, op: &M::Op) {
        for (request, answer) in self.unsettled.settled(&self.machine, op) {
            self.reply(request.correlation_id, |_| answer);
        }
    }

    /// The shard was split: what is held of clients that it does not have any more is asked of the shard that has them.
    pub(super) fn send_on_unsettled(&mut self, hash: NameHash) {
        let last = self.descriptor.range.last;
        let is_childs = |op: &M::Op| M::slot(op, hash).is_some_and(|slot| slot > last);
        for request in self.unsettled.take(is_childs) {
            self.split_off(&request, ProposedHere(true), None);
        }
    }

    pub(super) fn reply(
        &mut self,
        correlation_id: CorrelationId,
        event: impl FnOnce(u64) -> Event,
    ) {
        self.outbox.address(correlation_id, event);
    }
}

impl<M: Kind> TableOwner for Shard<M> {
    fn table(&self) -> Option<Arc<ShardTable>> {
        let state = self.state.read();
        let own = state.as_ref().filter(|state| state.parent.is_none());
        own.map(|state| Arc::clone(&state.table))
    }

    fn has_no_table_yet(&self) -> bool {
        let state = self.state.read();
        state.as_ref().is_some_and(|state| state.parent.is_some())
    }

    fn handle_received(&self, bytes: ReceivedBytes) {
        self.recovery.handle_received(bytes);
    }

    fn is_seeding(&self) -> bool {
        !self.seeding.is_over()
    }

    fn replace(&self, mark: &Mark, replace: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        // A split that was applied while the tables were on their way.
        if !self.seeding.wait_over(SEEDING_PATIENCE) {
            return Err(io::Error::other("a child of the shard has no table yet"));
        }
        let _alone = self.writing.lock();
        replace()?;
        let mut guard = self.state.write();
        let state = guard
            .as_mut()
            .ok_or_else(|| io::Error::other("the shard is closed"))?;
        let (descriptor, level, machine) = self
            .read_tables(&state.table, false)
            .map_err(io::Error::other)?;
        machine.loaded(&*state.effects.listener);
        state.machine = machine;
        state.meter = LoadMeter::new(descriptor.range);
        state.effects.weights = SlotWeights::new(descriptor.range);
        state.descriptor = descriptor;
        state.is_descriptor_unsaved = false;
        state.level = level;
        state.is_level_unsaved = false;
        state.mark = Some(mark.clone());
        state.dirty_since = None;
        state.generation += 1;
        self.comparison.handle_replaced();
        state.effects.cursors.clear();
        if state.machine.has_to_rebuild() {
            self.rebuild.want_more();
        }
        let births = state.descriptor.births.clone();
        drop(guard);
        note_level(&self.shards);
        for birth in births {
            // The splits that were applied elsewhere.
            if let Some(shards) = self.shards() {
                shards.learn(birth.child.0);
            }
        }
        Ok(())
    }
}
