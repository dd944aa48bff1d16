//! The shards of one store: which there are, and which has a slot.
//!
//! The set grows while the node runs. As each slot belongs to exactly one shard, and the number of a shard says which is its first
//! slot, the set alone says which shard has a slot: the one with the last first slot that is not behind it.
//!
//! Invariants: shards stand in the order of their first slots; a shard that is here stays; whoever has loaded the set sees one
//! that does not change.
//!
//! Deliberately absent: the range of a shard, which it says itself (`store_state::Descriptor`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use store_state::api::{Event, Failure, LastSlot, ShardNumber, ShardRef, ShardRefs};
use store_state::{CorrelationId, Level, NameHash, Request, RoutedUntil};
use tokio::sync::mpsc;

use crate::api::listener::Listener;
use crate::kinds::kind::Kind;
use crate::shard::handle::Shard;
use crate::shard::joins::{Joined, Joins};
use crate::shard::outbox::{Outbox, SplitOff, give};
use crate::shard::work::Work;
use crate::storage::map::ShardMap;

/// Shards of a store that a node serves at most.
const SHARDS_MOST: usize = 4_096;

/// The shards of one store.
pub(crate) struct Shards<M: Kind> {
    /// Those that the store began with.
    base: ShardMap,
    folder_level: Level,
    lowest_level: AtomicU32,
    known: ArcSwap<KnownShards<M>>,
    /// Held while one is added.
    adding: Mutex<()>,
    /// What several of them have been asked together.
    joins: Mutex<Joins>,
    /// Makes a shard that this node has just learned of.
    make: OnceLock<Maker<M>>,
}

/// Makes a shard of a store.
pub(crate) type Maker<M> = Box<dyn Fn(&Arc<Shards<M>>, ShardNumber) -> MadeShard<M> + Send + Sync>;

/// A shard that is not among those of its store yet.
pub(crate) struct MadeShard<M: Kind> {
    pub(crate) shard: Arc<Shard<M>>,
    pub(crate) invite: mpsc::Sender<()>,
    /// Has a thread of the store serve it.
    pub(crate) start: Box<dyn FnOnce() + Send>,
}

/// Where work has gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Given {
    /// There is no such shard.
    Nowhere,
    /// To a shard.
    Taken,
    /// To a shard that should be given no more for now.
    OverLimit,
}

impl Given {
    fn to<M: Kind>(shard: &Shard<M>) -> Self {
        match shard.is_over_limit() {
            true => Self::OverLimit,
            false => Self::Taken,
        }
    }
}

/// What is asked of all slots of a shard.
#[derive(Clone)]
pub(crate) enum Ask<O> {
    Propose {
        op: O,
        must_wait: bool,
        /// It can wait for other work.
        is_patient: bool,
    },
    Barrier,
}

impl<O> Ask<O> {
    /// What has come back.
    fn again(work: Work<O>, is_patient: bool) -> Self {
        match work {
            Work::Propose { request, must_wait } => Self::Propose {
                op: request.op,
                must_wait,
                is_patient,
            },
            Work::Barrier(..) | Work::Read(..) | Work::Page(_) | Work::Stop(_) => Self::Barrier,
        }
    }

    fn is_patient(&self) -> bool {
        matches!(
            self,
            Self::Propose {
                is_patient: true,
                ..
            }
        )
    }
}

/// The shards of one store at a moment, of which there is at least one.
pub(crate) struct KnownShards<M: Kind> {
    shards: Box<[ShardPlace<M>]>,
    refs: ShardRefs,
}

/// A shard, and where its range begins.
pub(crate) struct ShardPlace<M: Kind> {
    pub(crate) shard: Arc<Shard<M>>,
    /// Tells its replica controller that a replica is wanted here.
    pub(crate) invite: mpsc::Sender<()>,
    first: FirstSlot,
}

/// The first slot of a shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FirstSlot(u16);

impl<M: Kind> Clone for ShardPlace<M> {
    fn clone(&self) -> Self {
        Self {
            shard: Arc::clone(&self.shard),
            invite: self.invite.clone(),
            first: self.first,
        }
    }
}

/// A replica of these shards may have another level.
pub(super) fn note_level<M: Kind>(shards: &Weak<Shards<M>>) {
    // None: the store is gone.
    if let Some(shards) = shards.upgrade() {
        let known = shards.load();
        let levels = known.iter().filter_map(|shard| Some(shard.standing()?.0));
        let lowest = levels.min().unwrap_or(shards.folder_level);
        shards.lowest_level.store(lowest.0, Ordering::Relaxed);
    }
}

impl<M: Kind> Shards<M> {
    /// There is none yet: those that the store began with are to be added before a slot is looked up.
    pub(crate) fn new(base: ShardMap, folder_level: Level) -> Self {
        Self {
            base,
            folder_level,
            lowest_level: AtomicU32::new(folder_level.0),
            known: ArcSwap::from_pointee(KnownShards::of(Vec::new())),
            adding: Mutex::new(()),
            joins: Mutex::default(),
            make: OnceLock::new(),
        }
    }

    /// Says how a shard is made; once.
    pub(crate) fn set_maker(&self, make: Maker<M>) {
        let is_set = self.make.set(make).is_ok();
        debug_assert!(is_set, "the shards of a store have one maker");
    }

    /// Those that the store began with.
    pub(crate) fn base(&self) -> ShardMap {
        self.base
    }

    /// By what names are spread over the shards.
    pub(crate) fn hash(&self) -> NameHash {
        self.base.hash()
    }

    /// The level of shards of which neither tables nor log say one.
    pub(crate) fn folder_level(&self) -> Level {
        self.folder_level
    }

    /// The lowest level of the replicas here; that of the folder, if there are none. Cheap.
    pub(crate) fn lowest_level(&self) -> Level {
        Level(self.lowest_level.load(Ordering::Relaxed))
    }

    /// The shards as they are now. Cheap.
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<KnownShards<M>>> {
        self.known.load()
    }

    /// A shard, if it is known.
    pub(crate) fn get(&self, number: ShardNumber) -> Option<Arc<Shard<M>>> {
        let known = self.known.load();
        let place = known.get(number, self.base)?;
        Some(Arc::clone(&place.shard))
    }

    /// The number of the shard that has a slot.
    pub(crate) fn of_slot(&self, slot: u16) -> ShardNumber {
        self.known.load().of_slot(slot).shard.number
    }

    /// The shards that a split may have made this one of, directly or not, the nearest first: those with the slots below, up to
    /// the one that the store began with.
    pub(crate) fn ancestors(&self, number: ShardNumber) -> Vec<Arc<Shard<M>>> {
        let known = self.known.load();
        let first = FirstSlot(self.base.first_slot(number));
        let below = known.shards.partition_point(|place| place.first < first);
        let mut ancestors = Vec::new();
        for place in known.shards.iter().take(below).rev() {
            ancestors.push(Arc::clone(&place.shard));
            if place.shard.is_first() {
                break;
            }
        }
        ancestors
    }

    /// Whether there is no room for one more.
    pub(crate) fn are_most(&self) -> bool {
        self.known.load().shards.len() >= SHARDS_MOST
    }

    /// How many requests wait for several shards, and shards for what was asked before they were split off.
    pub(crate) fn joined(&self) -> usize {
        self.joins.lock().len()
    }

    /// The last slot that a shard has, as far as this node knows.
    pub(crate) fn last_of(&self, number: ShardNumber) -> LastSlot {
        let known = self.known.load();
        LastSlot(known.last_of(self.base.first_slot(number)))
    }

    /// A shard as this node knows it now.
    pub(crate) fn to_ref(&self, number: ShardNumber) -> ShardRef {
        ShardRef {
            number,
            last: self.last_of(number).0,
        }
    }

    /// What requests to a shard say that it was taken to have.
    fn until(&self, number: ShardNumber, last: LastSlot) -> RoutedUntil {
        match self.base.range_of(number) {
            Some(range) if range.last == last.0 => RoutedUntil::FIRST,
            _ => RoutedUntil::slot(last.0),
        }
    }

    /// Adds a shard that the store began with, or that this node had something of when it started; it is served from now on.
    pub(crate) fn add_first(self: &Arc<Self>, number: ShardNumber) {
        let _alone = self.adding.lock();
        if let Some(made) = self.make(number, FirstSlot(self.base.first_slot(number))) {
            self.known.store(self.with(&made));
            (made.start)();
        }
    }

    /// There is a shard with this first slot, as another one or its replica has said: it is split off the one that had
    /// the slot as far as this node knew, and gets nothing until that has answered all that it was asked before.
    /// False: it was known already.
    pub(crate) fn learn(self: &Arc<Self>, first: u16) -> bool {
        let _alone = self.adding.lock();
        let made = self.make(first, FirstSlot(first));
        if let Some(made) = made {
            let parent = Arc::clone(&self.known.load().of_slot(first).shard);
            tracing::info!(
                store = M::NAME,
                shard = parent.number,
                child = first,
                "a shard is split"
            );
            made.shard.queue.close_gate();
            let known = self.with(&made);
            let gate = self.joins.lock().wait_at_gate(made.shard.number);
            let nothing_more = LastSlot(0);
            parent
                .queue
                .put_behind(Work::Barrier(gate, nothing_more), || {
                    self.known.store(known);
                });
            if parent.has_begun() {
                // The store has begun before it could know of the child; else it does when it begins.
                made.shard.set_begun();
            }
            (made.start)();
            return true;
        }
        false
    }

    /// `None`: the shard is known, or too many are.
    fn make(self: &Arc<Self>, number: ShardNumber, first: FirstSlot) -> Option<MadeShard<M>> {
        let known = self.known.load();
        let place = known
            .shards
            .binary_search_by_key(&first, |place| place.first);
        if place.is_ok() {
            return None;
        }
        if self.are_most() {
            tracing::error!(
                store = M::NAME,
                shard = number,
                "this node has no room for another shard, and does not serve it"
            );
            return None;
        }
        let make = self.make.get();
        Some(make.expect("the maker is set before there is a shard")(
            self, number,
        ))
    }

    /// The shards with one more.
    fn with(&self, made: &MadeShard<M>) -> Arc<KnownShards<M>> {
        let first = FirstSlot(self.base.first_slot(made.shard.number));
        let mut places = self.known.load().shards.to_vec();
        let at = places.partition_point(|place| place.first < first);
        places.insert(
            at,
            ShardPlace {
                shard: Arc::clone(&made.shard),
                invite: made.invite.clone(),
                first,
            },
        );
        Arc::new(KnownShards::of(places))
    }

    fn is_current(&self, known: &Arc<KnownShards<M>>) -> bool {
        Arc::ptr_eq(&self.known.load(), known)
    }

    /// Gives work to the shard that has a slot.
    pub(crate) fn give_to_slot(
        &self,
        slot: u16,
        mut work: Work<M::Op>,
        bytes: usize,
        is_patient: bool,
    ) -> Given {
        loop {
            let known = self.known.load();
            let shard = &known.of_slot(slot).shard;
            match shard.give_if(work, bytes, is_patient, || self.is_current(&known)) {
                Ok(()) => return Given::to(shard),
                Err(back) => work = back,
            }
        }
    }

    /// Gives a request that concerns all slots to a shard, for those that it was known to have; if there are several that have
    /// them by now, to each.
    pub(crate) fn give_to_all(
        &self,
        shard: ShardRef,
        correlation_id: CorrelationId,
        mut ask: Ask<M::Op>,
        bytes: usize,
    ) -> Given {
        loop {
            let known = self.known.load();
            let Some(place) = known.get(shard.number, self.base) else {
                return Given::Nowhere;
            };
            let last = shard.last.max(place.first.0);
            if known.last_of(place.first.0) < last {
                let pieces = known.pieces(shard, self.base);
                let correlation_id = self.joins.lock().join(correlation_id, pieces.len());
                let given = pieces
                    .into_iter()
                    .map(|piece| self.give_to_all(piece, correlation_id, ask.clone(), bytes));
                return given.max().unwrap_or(Given::Nowhere);
            }
            let is_patient = ask.is_patient();
            let work = self.work(shard.number, LastSlot(last), correlation_id, ask);
            let belongs = || self.is_current(&known);
            match place.shard.give_if(work, bytes, is_patient, belongs) {
                Ok(()) => return Given::to(&place.shard),
                Err(back) => ask = Ask::again(back, is_patient),
            }
        }
    }

    fn work(
        &self,
        number: ShardNumber,
        last: LastSlot,
        correlation_id: CorrelationId,
        ask: Ask<M::Op>,
    ) -> Work<M::Op> {
        match ask {
            Ask::Barrier => Work::Barrier(correlation_id, last),
            Ask::Propose { op, must_wait, .. } => Work::Propose {
                request: Request {
                    until: self.until(number, last),
                    correlation_id,
                    op,
                },
                must_wait,
            },
        }
    }

    /// Takes up what a shard has not done, or not all of, since it does not have the slots any more; and answers to what the
    /// store itself waits for.
    pub(super) fn send_on(
        self: &Arc<Self>,
        listener: &dyn Listener,
        from: ShardNumber,
        own: Vec<Event>,
        split_off: Vec<SplitOff<M::Op>>,
    ) {
        for moved in split_off {
            self.send_one_on(listener, from, moved);
        }
        for answer in own {
            self.answered(listener, answer);
        }
    }

    fn send_one_on(
        self: &Arc<Self>,
        listener: &dyn Listener,
        from: ShardNumber,
        moved: SplitOff<M::Op>,
    ) {
        let SplitOff {
            work,
            bytes,
            reply,
            last,
        } = moved;
        let Some(next) = last.0.checked_add(1) else {
            // A peer may say anything. Nothing lies behind the last slot of all.
            return self.answer(listener, &work, Event::failed(Failure::Stopped));
        };
        self.learn(next);
        if self.of_slot(next) == from {
            // Too many shards are known, so that the next one is not: it would come back for ever.
            return self.answer(listener, &work, Event::failed(Failure::Stopped));
        }
        match work {
            Work::Propose { request, must_wait } => {
                if let Some(slot) = M::slot(&request.op, self.hash()) {
                    if slot < next {
                        let work = Work::Propose { request, must_wait };
                        return self.answer(listener, &work, Event::failed(Failure::Stopped));
                    }
                    let work = Work::Propose { request, must_wait };
                    let known = self.known.load();
                    known.of_slot(slot).shard.give_at_gate(work, bytes);
                    return;
                }
                let was_last = self
                    .base
                    .range_of(from)
                    .map_or(u16::MAX, |range| range.last);
                let until = request.until.last(was_last);
                if until < next {
                    // It was not asked for more than it has.
                    let work = Work::Propose { request, must_wait };
                    let answer = reply.unwrap_or(Event::failed(Failure::Stopped)(0));
                    return self.answer(listener, &work, |token| with_token(answer, token));
                }
                let ask = Ask::Propose {
                    op: request.op,
                    must_wait,
                    is_patient: false,
                };
                self.send_rest_on(
                    listener,
                    (next, until),
                    request.correlation_id,
                    reply,
                    &ask,
                    bytes,
                );
            }
            Work::Barrier(correlation_id, until) => {
                self.send_rest_on(
                    listener,
                    (next, until.0),
                    correlation_id,
                    reply,
                    &Ask::Barrier,
                    0,
                );
            }
            Work::Page(request) => {
                let slot = request.wanted.first_slot(self.base);
                let work = Work::Page(request);
                match slot.filter(|slot| *slot >= next) {
                    // Behind all that this node has asked of it so far.
                    Some(slot) => self.known.load().of_slot(slot).shard.give(work, bytes),
                    // Only a peer that says anything answers so.
                    None => self.answer(listener, &work, Event::failed(Failure::Stopped)),
                }
            }
            work @ (Work::Read(..) | Work::Stop(_)) => {
                // Only a peer that says anything answers so.
                self.answer(listener, &work, Event::failed(Failure::Stopped));
            }
        }
    }

    /// Gives what a shard has answered for its slots to those that have the rest of them.
    fn send_rest_on(
        self: &Arc<Self>,
        listener: &dyn Listener,
        (first, last): (u16, u16),
        correlation_id: CorrelationId,
        reply: Option<Event>,
        ask: &Ask<M::Op>,
        bytes: usize,
    ) {
        let known = self.known.load_full();
        let number = known.of_slot(first).shard.number;
        let pieces = known.pieces(ShardRef { number, last }, self.base);
        let count = pieces.len();
        let correlation_id = self.joins.lock().join(correlation_id, count + 1);
        for piece in pieces {
            let work = self.work(
                piece.number,
                LastSlot(piece.last),
                correlation_id,
                ask.clone(),
            );
            if let Some(place) = known.get(piece.number, self.base) {
                match ask {
                    // Behind all that this node has asked of it so far.
                    Ask::Barrier => place.shard.give(work, bytes),
                    Ask::Propose { .. } => place.shard.give_at_gate(work, bytes),
                }
            }
        }
        if correlation_id != CorrelationId::NONE {
            let reply = reply.unwrap_or(Event::passed(0));
            self.answered(listener, with_token(reply, correlation_id.token));
        }
    }

    fn answer(
        self: &Arc<Self>,
        listener: &dyn Listener,
        work: &Work<M::Op>,
        event: impl FnOnce(u64) -> Event,
    ) {
        let mut outbox = Outbox::<M::Op>::default();
        outbox.address(work.correlation_id(), event);
        give(listener, outbox.loops);
        for answer in outbox.own {
            self.answered(listener, answer);
        }
    }

    /// An answer has come to what the store itself waits for.
    fn answered(self: &Arc<Self>, listener: &dyn Listener, answer: Event) {
        let done = self.joins.lock().answered(answer);
        match done {
            // Others have yet to answer.
            Joined::Waiting => {}
            Joined::Stale => {
                debug_assert!(false, "what the store asks is answered once");
            }
            Joined::Answer(correlation_id, answer) => {
                let mut outbox = Outbox::<M::Op>::default();
                outbox.address(correlation_id, |token| with_token(answer, token));
                give(listener, outbox.loops);
                for answer in outbox.own {
                    self.answered(listener, answer);
                }
            }
            Joined::Gate { child, is_passed } => {
                let child = self.get(child);
                debug_assert!(child.is_some(), "a gate is that of a shard that is here");
                if let Some(child) = child {
                    if !is_passed {
                        child.refuse_waiting(listener);
                    }
                    child.open_gate();
                }
            }
        }
    }
}

impl<M: Kind> KnownShards<M> {
    fn of(places: Vec<ShardPlace<M>>) -> Self {
        let next = places
            .iter()
            .skip(1)
            .map(|place| place.first.0.saturating_sub(1));
        let lasts = next.chain([u16::MAX]);
        let to_ref = |(place, last): (&ShardPlace<M>, u16)| ShardRef {
            number: place.shard.number,
            last,
        };
        Self {
            refs: places.iter().zip(lasts).map(to_ref).collect(),
            shards: places.into(),
        }
    }

    /// The shards, in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Shard<M>>> {
        self.shards.iter().map(|place| &place.shard)
    }

    /// The same, as whoever routes a request knows them.
    pub(crate) fn refs(&self) -> &ShardRefs {
        &self.refs
    }

    /// The last slot of the shard with this first one.
    fn last_of(&self, first: u16) -> u16 {
        let behind = self
            .shards
            .partition_point(|place| place.first <= FirstSlot(first));
        let next = self.shards.get(behind);
        next.map_or(u16::MAX, |next| next.first.0.saturating_sub(1))
    }

    /// The shards that have the slots by now that a shard was known to have; none: it is not known.
    fn pieces(&self, shard: ShardRef, base: ShardMap) -> Vec<ShardRef> {
        if self.get(shard.number, base).is_none() {
            return Vec::new();
        }
        let first = base.first_slot(shard.number);
        let is_within = |place: &&ShardPlace<M>| {
            place.first >= FirstSlot(first) && place.first <= FirstSlot(shard.last.max(first))
        };
        let places = self.shards.iter().filter(is_within);
        let piece = |place: &ShardPlace<M>| ShardRef {
            number: place.shard.number,
            last: self.last_of(place.first.0).min(shard.last.max(first)),
        };
        places.map(piece).collect()
    }

    /// A shard of a store that began with `base`, if it is known.
    pub(crate) fn get(&self, number: ShardNumber, base: ShardMap) -> Option<&ShardPlace<M>> {
        let first = FirstSlot(base.first_slot(number));
        let at = self
            .shards
            .binary_search_by_key(&first, |place| place.first);
        let place = self.shards.get(at.ok()?)?;
        (place.shard.number == number).then_some(place)
    }

    /// The shard that has a slot.
    fn of_slot(&self, slot: u16) -> &ShardPlace<M> {
        let behind = self
            .shards
            .partition_point(|place| place.first <= FirstSlot(slot));
        let place = behind.checked_sub(1).and_then(|at| self.shards.get(at));
        place.expect("the shards that the store began with cover all slots")
    }
}

/// An answer, for whoever knows its request by this token.
fn with_token(mut answer: Event, token: u64) -> Event {
    if let Some(known) = answer.token_mut() {
        *known = token;
    }
    answer
}

#[cfg(test)]
mod tests;
