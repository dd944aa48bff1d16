//! Consensus applies committed batches to a shard.
//!
//! Invariants: batches are applied in the order of the log; a batch that takes long is applied in parts, with nothing in between;
//! replies leave only after their batch is applied; a batch that meets damage in the tables, and those behind it, are never applied.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use consensus::{Applied, Mark, StateMachine, Tables};
use histogram::Micros;
use store_state::api::{Event, Failure, StoreId};
use store_state::{Batch, Request, SlotRange};
use tokio::time::Instant;

use crate::api::listener::Listener;
use crate::kinds::command::Command;
use crate::kinds::kind::Kind;
use crate::node::services::NodeServices;
use crate::shard::damage::never_applied;
use crate::shard::handle::{Shard, State};
use crate::shard::load::Effort;
use crate::storage::digest::LogIndex;
use crate::storage::snapshot::ShardTables;

/// How long a batch is applied before others of the thread have their turn: heartbeats, other shards.
///
/// Limit: applying of batches without a turn for others of the thread | {}, or one part of an operation | goes on
/// after heartbeats and other shards
const TURN: Duration = Duration::from_millis(2);

impl<M: Kind> Shard<M> {
    /// Carries out a batch, or a part of it: from the request at `from` on, for [`TURN`], or for one part of a
    /// long operation. `Some`: where to go on; nothing else may be applied before. If the tables are damaged, the shard has no
    /// state afterwards.
    fn apply(&self, batch: &Batch<M::Op>, from: usize) -> Option<usize> {
        let mut guard = self.state.write();
        let state = guard.as_mut()?;
        let turn = Instant::now();
        state.mark = None;
        state.dirty_since.get_or_insert(turn);
        for (number, request) in batch.requests.iter().enumerate().skip(from) {
            let Request {
                until,
                correlation_id,
                op,
            } = request;
            let is_awaited = !batch.requeued.is_set();
            let slot = M::slot(op, self.hash);
            let SlotRange { first, last } = state.descriptor.range;
            match slot {
                Some(slot) if slot > last => {
                    if is_awaited {
                        state.split_off(request, batch.proposed_here, None);
                    }
                    continue;
                }
                Some(slot) if slot < first => {
                    // Whoever has asked went by no shards of this store: a range only gets narrower, from above.
                    if is_awaited {
                        state.reply(*correlation_id, Event::failed(Failure::Moved));
                    }
                    continue;
                }
                _ => {}
            }
            let State {
                machine,
                table,
                effects,
                ..
            } = state;
            if let Some(slot) = slot {
                effects.weights.add(slot, M::bytes(op));
            }
            let applied = M::with_outlet(effects, |outlet| {
                machine.apply_part(&batch.header, op, &**table, outlet)
            });
            match applied {
                Ok(Some(reply)) if is_awaited => {
                    let was_last = self.base.map_or(u16::MAX, |base| base.last);
                    if slot.is_none() && until.last(was_last) > last {
                        let reply = M::event(correlation_id.token, reply);
                        state.split_off(request, batch.proposed_here, Some(reply));
                    } else {
                        state.answer(request, M::event(correlation_id.token, reply));
                    }
                }
                // Whoever asked asks again.
                Ok(Some(_)) => {}
                Ok(None) => return Some(number),
                Err(error) => {
                    // Half of a state is no state: what follows cannot be applied either.
                    self.damage.meet(guard, &error);
                    return None;
                }
            }
            state.settle_answers(op);
            if turn.elapsed() >= TURN && number + 1 < batch.requests.len() {
                return Some(number + 1);
            }
        }
        self.stats.batches.fetch_add(1, Ordering::Relaxed);
        let requests = batch.requests.len() as u64;
        self.stats.requests.fetch_add(requests, Ordering::Relaxed);
        None
    }
}

/// The shard as consensus sees it.
pub(crate) struct Replica<M: Kind> {
    pub(crate) shard: Arc<Shard<M>>,
    pub(crate) listener: Arc<dyn Listener>,
    pub(crate) services: Arc<NodeServices>,
    pub(crate) durable: Option<Mark>,
}

impl<M: Kind> Replica<M> {
    /// An entry that compares replicas is applied: begins a checkpoint of what was applied `before`, unless that has to wait.
    fn compare(&self, entry: LogIndex, before: &Mark) {
        let shard = &self.shard;
        // Nobody writes checkpoints while a start applies what is in the log, and a split in it would wait for this one.
        let is_served = shard.routing.group.borrow().is_some();
        let is_free = is_served
            && !shard.comparison.is_waited_for()
            && shard.seeding.is_over()
            && !*shard.in_checkpoint.borrow();
        let mut state = shard.state.write();
        let state = state.as_mut().filter(|state| {
            // What a split has left to be made anew, some replicas have done, and others not.
            let is_whole = shard.rebuild.is_done() && !state.machine.has_to_rebuild();
            is_free && is_whole && state.parent.is_none() && before.index().is_some()
        });
        let checkpoint = state.map(|state| state.begin_checkpoint(before.clone()));
        if checkpoint.is_some() {
            shard.in_checkpoint.send_replace(true);
        }
        shard.comparison.handle_entry(entry, checkpoint);
        shard.is_unsaved.notify_one();
    }
}

impl<M: Kind> StateMachine<Command> for Replica<M> {
    fn durable(&self) -> Option<Mark> {
        self.durable.clone()
    }

    fn tables(&self) -> Arc<dyn Tables> {
        Arc::new(ShardTables {
            shard: Arc::clone(&self.shard),
            folder: Arc::clone(&self.services.folder),
        })
    }

    fn apply(&mut self, index: u64, before: &Mark, command: &Command, from: usize) -> Applied {
        if self.shard.damage.is_found() {
            return never_applied();
        }
        if let Command::Split(store, split) = command
            && *store == M::STORE
        {
            return self.shard.split(&self.services, index, before, split);
        }
        if let Command::Raise(store, level) = command
            && *store == M::STORE
        {
            return self.raise(*level);
        }
        if let Command::Compare(store) = command
            && *store == M::STORE
        {
            self.compare(LogIndex(index), before);
            return Applied::Done;
        }
        if let Command::Begin(StoreId::Control) = command
            && M::STORE == StoreId::Session
        {
            return self.begin_control(index, before);
        }
        let Some(batch) = M::batch(command) else {
            self.listener.failed(&format!(
                "the log of shard {} of the {} store holds {command}",
                self.shard.number,
                M::NAME
            ));
            return Applied::Done;
        };
        let begun = Instant::now();
        let cost = &self.shard.stats.cost;
        let next = cost.during(Effort::Apply, &*self.listener, || {
            self.shard.apply(batch, from)
        });
        let took = Micros::from(begun.elapsed());
        self.services.apply_times.record_shared(took);
        if self.shard.damage.is_found() {
            return never_applied();
        }
        next.map_or(Applied::Done, Applied::GoOn)
    }

    fn flush(&mut self, applied: &Mark) {
        if let Some(state) = &mut *self.shard.state.write() {
            state.mark = Some(applied.clone());
            self.shard.count_unsaved(&state.machine);
        }
        self.shard.rebuild.applied();
        self.shard.send_out(&*self.listener);
    }
}
