//! What the inboxes of a shard have in common: bodies, rows to be written and removed, and counts.
//!
//! Invariants: an inbox that is touched has its row written at the next checkpoint, with the rows of its
//! queue that the tables do not have. A row of a queue that is in `gone` or `going` is not queued,
//! whatever the tables say. A row that was queued and taken between two checkpoints stands nowhere.
//!
//! A checkpoint hands out inboxes in parts, as they were when it began. So an inbox is touched *before*
//! it changes: if the checkpoint under way has yet to hand it out, that happens then.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use mqtt_session::ApplicationMessage;

use super::bodies::Bodies;
use super::inbox::Inbox;
use super::inboxes::Inboxes;
use super::longest::{Extent, Longest};
use super::tables::QueueKey;
use super::weight::{REFERENCE, Weight};
use crate::{Changes, Level, SlotRange, Table, TableError, row};

/// Estimated bytes of a row that is to be removed.
const REMOVAL: usize = 64;

/// Estimated bytes of an inbox's row.
const INBOX_ROW: usize = 256;

/// Which checkpoint is next.
#[derive(Clone, Copy, Debug)]
struct Round {
    number: u32,
    /// What rows are written as.
    level: Level,
}

#[derive(Debug)]
pub(super) struct Stock {
    pub(super) bodies: Bodies,
    /// Rows to be removed by the next checkpoint.
    gone: BTreeSet<QueueKey>,
    /// Rows that are being removed.
    going: BTreeSet<QueueKey>,
    /// Counts checkpoints, from 1. Inboxes are touched in a round; those of the last round are due.
    round: Round,
    /// Inboxes whose rows are to be written, each once.
    touched: Vec<u64>,
    /// Inboxes whose queues may hold something: those that do, and some that have changed since they were looked at.
    pub(super) listed: Vec<u64>,
    /// A checkpoint has begun, and has yet to hand out what follows.
    collecting: bool,
    /// Inboxes, some of which were handed out ahead of their turn.
    due: Vec<u64>,
    /// What was handed out ahead of its turn.
    early: Changes,
    /// Rows of inboxes that are to be removed.
    due_ended: BTreeSet<Vec<u8>>,
    /// The last key of `going` that was handed out.
    last_going: Option<QueueKey>,
    /// Inboxes whose rows are being written.
    collected: Vec<u64>,
    /// Rows of inboxes that are gone.
    ended: BTreeSet<Vec<u8>>,
    /// Messages queued in all inboxes; one that several have counts in each.
    pub(super) messages: u64,
    /// Their accounted bytes.
    pub(super) bytes: u64,
    pub(super) longest: Longest,
    /// Inboxes whose queues are full, as far as a message has been dropped for it since the start.
    pub(super) full: usize,
    /// Bytes of the topic filters of all inboxes.
    pub(super) filter_bytes: usize,
    /// Estimated bytes that changed since the last checkpoint began.
    fresh: usize,
    /// Estimated bytes that are being written.
    writing: usize,
}

impl Stock {
    /// A message was queued.
    pub(super) fn queued(&mut self, weight: Weight) {
        self.messages += 1;
        self.bytes += u64::from(weight.bytes);
        self.fresh += weight.unsaved();
    }

    /// A message was dropped because a queue is full.
    pub(super) fn overflowed(&mut self, inbox: &mut Inbox) {
        self.full += usize::from(!std::mem::replace(&mut inbox.is_full, true));
    }

    /// A queue has room, or goes.
    pub(super) fn has_room(&mut self, inbox: &mut Inbox) {
        self.full -= usize::from(std::mem::take(&mut inbox.is_full));
    }

    /// A queued message turned out to be the only one of what was to be a body.
    pub(super) fn unshared(&mut self, bytes: u32) {
        self.fresh += (bytes as usize).saturating_sub(REFERENCE);
    }

    /// Makes the body that so many queued messages refer to.
    pub(super) fn add_body(&mut self, number: u64, message: &Arc<ApplicationMessage>, count: u32) {
        self.bodies.add(number, message, count);
        self.fresh += message.body.heap_len();
    }

    /// A message is not queued any more. `stored`: its row is in the tables, or is being written.
    pub(super) fn taken(
        &mut self,
        key: QueueKey,
        weight: Weight,
        stored: bool,
        table: &dyn Table,
    ) -> Result<(), TableError> {
        if stored {
            self.gone.insert(key);
            self.fresh += REMOVAL;
        } else {
            self.fresh = self.fresh.saturating_sub(weight.unsaved());
        }
        if weight.body != 0 && self.bodies.release(weight.body, key, table)? {
            self.fresh = self.fresh.saturating_sub(weight.bytes as usize);
        }
        self.messages -= 1;
        self.bytes -= u64::from(weight.bytes);
        Ok(())
    }

    /// Whether a row that the tables may have is not queued any more.
    pub(super) fn is_gone(&self, key: QueueKey) -> bool {
        self.gone.contains(&key) || self.going.contains(&key)
    }

    /// Rows are those of this level from now on.
    pub(super) fn raise(&mut self, level: Level) {
        self.round.level = level;
    }

    /// An inbox is about to change.
    pub(super) fn touch(&mut self, inbox: &mut Inbox) {
        self.settle(inbox);
        if inbox.round == 0 {
            inbox.round = self.round.number;
            self.touched.push(inbox.number);
            self.fresh += INBOX_ROW;
        }
        self.list(inbox);
    }

    /// The queue of an inbox may hold something.
    fn list(&mut self, inbox: &mut Inbox) {
        if !std::mem::replace(&mut inbox.is_listed, true) {
            self.listed.push(inbox.number);
        }
    }

    /// An inbox is about to change in memory, or to be removed: the checkpoint under way gets it as it is.
    pub(super) fn settle(&mut self, inbox: &mut Inbox) {
        if inbox.round != 0 && inbox.round != self.round.number {
            inbox.collect(&mut self.early, self.round.level);
            self.collected.push(inbox.number);
        }
    }

    /// An inbox is about to go.
    pub(super) fn end(&mut self, inbox: &mut Inbox) {
        self.settle(inbox);
        if inbox.stored {
            self.ended.insert(inbox.key());
            self.fresh += REMOVAL;
        }
    }

    /// An inbox is to have this row. Whether the tables have that of an earlier one.
    pub(super) fn revive(&mut self, key: &[u8]) -> bool {
        self.ended.remove(key)
    }

    /// Counts an inbox or a legacy that has moved here.
    pub(super) fn count(&mut self, inbox: &Inbox) {
        let filters = inbox.subscriptions.iter();
        self.messages += u64::from(inbox.queue.len());
        self.bytes += inbox.queue.bytes();
        self.full += usize::from(inbox.is_full);
        self.filter_bytes += filters.map(|of| of.filter.len()).sum::<usize>();
    }

    /// Takes out what belongs to the inboxes of the slots from `at` on, which are in `upper`, and which `counted` has
    /// counted. `next_body`: the number of the next body.
    ///
    /// The estimate of bytes that are to be written is not divided: each half has all of it until its next checkpoint.
    ///
    /// # Panics
    /// A checkpoint is under way.
    pub(super) fn split_off(
        &mut self,
        at: u16,
        upper: &Inboxes,
        counted: Self,
        next_body: u64,
    ) -> Self {
        let is_idle = !self.collecting
            && self.due.is_empty()
            && self.due_ended.is_empty()
            && self.early.entries.is_empty()
            && self.going.is_empty()
            && self.collected.is_empty()
            && self.writing == 0;
        assert!(is_idle, "no checkpoint is under way when a shard is split");
        let touched = std::mem::take(&mut self.touched).into_iter();
        let (moved, kept) = touched.partition(|number| upper.has(*number));
        self.touched = kept;
        let listed = std::mem::take(&mut self.listed).into_iter();
        let (upper_listed, kept) = listed.partition(|number| upper.has(*number));
        self.listed = kept;
        let first = QueueKey {
            slot: at,
            inbox: 0,
            sequence: 0,
        };
        let is_upper = |key: &Vec<u8>| row::slot(key).is_some_and(|slot| slot >= at);
        self.messages -= counted.messages;
        self.bytes -= counted.bytes;
        self.full -= counted.full;
        self.filter_bytes -= counted.filter_bytes;
        Self {
            bodies: self.bodies.split(next_body),
            gone: self.gone.split_off(&first),
            round: self.round,
            touched: moved,
            listed: upper_listed,
            ended: self.ended.extract_if(.., is_upper).collect(),
            longest: self.longest.of_child(),
            fresh: self.fresh,
            ..counted
        }
    }

    /// Goes on with counting references to bodies again after a split, in queues of these slots: reads about so many rows.
    /// True: there is nothing left, or nothing before the next checkpoint is in the tables.
    ///
    /// # Errors
    /// The tables cannot be read. It is not tried again before the next start.
    pub(super) fn recount_part(
        &mut self,
        rows: usize,
        range: SlotRange,
        table: &dyn Table,
    ) -> Result<bool, TableError> {
        let (gone, going) = (&self.gone, &self.going);
        let is_gone = |key| gone.contains(&key) || going.contains(&key);
        let done = self.bodies.recount_part(rows, range, is_gone, table)?;
        self.fresh += done.corrected * REMOVAL;
        Ok(done.is_all)
    }

    /// The tables have an inbox.
    pub(super) fn load(&mut self, inbox: &mut Inbox) {
        self.messages += u64::from(inbox.queue.len());
        self.bytes += inbox.queue.bytes();
        if inbox.queue.len() > 0 {
            self.list(inbox);
        }
        self.note_length(inbox);
    }

    /// A queue may be longer than it was, or of another class.
    pub(super) fn note_length(&mut self, inbox: &Inbox) {
        let holds = Extent(inbox.queue.len(), inbox.queue.bytes());
        self.longest.handle_queue(inbox.class, holds);
    }

    pub(super) fn unsaved_bytes(&self) -> usize {
        self.fresh + self.writing
    }

    /// Begins a checkpoint of what is now, unless one has begun: then false.
    pub(super) fn begin(&mut self, changes: &mut Changes) -> bool {
        if self.collecting {
            return false;
        }
        self.collecting = true;
        self.round.number += 1;
        self.writing = std::mem::take(&mut self.fresh);
        self.due = std::mem::take(&mut self.touched);
        self.due_ended = std::mem::take(&mut self.ended);
        self.going = std::mem::take(&mut self.gone);
        self.bodies.collect(changes);
        true
    }

    /// Hands out about so many inboxes, and as many removals. True: those were the last.
    pub(super) fn collect_part(
        &mut self,
        rows: usize,
        inboxes: &mut Inboxes,
        changes: &mut Changes,
    ) -> bool {
        changes.append(&mut self.early);
        for number in last(rows, &mut self.due) {
            if let Some(inbox) = inboxes.any_mut(number)
                && inbox.round != 0
                && inbox.round != self.round.number
            {
                inbox.collect(changes, self.round.level);
                self.collected.push(number);
            }
        }
        for _ in 0..rows {
            let Some(key) = self.due_ended.pop_first() else {
                break;
            };
            changes.delete(key);
        }
        let after = self.last_going.map_or(Unbounded, Excluded);
        let mut going = self.going.range((after, Unbounded));
        for key in going.by_ref().take(rows) {
            changes.delete(key.to_bytes());
            self.last_going = Some(*key);
        }
        let is_all = going.next().is_none() && self.due.is_empty() && self.due_ended.is_empty();
        if is_all {
            self.collecting = false;
            self.last_going = None;
            self.due = Vec::new();
        }
        is_all
    }

    /// The tables have what was handed out: so many queues let go of it. True: those were the last.
    pub(super) fn saved_part(&mut self, rows: usize, inboxes: &mut Inboxes) -> bool {
        for number in last(rows, &mut self.collected) {
            if let Some(inbox) = inboxes.any_mut(number) {
                inbox.queue.saved(inbox.attached.is_some());
            }
        }
        if !self.collected.is_empty() {
            return false;
        }
        self.collected = Vec::new();
        self.going = BTreeSet::new();
        self.bodies.saved();
        self.writing = 0;
        true
    }
}

/// Takes so many numbers off the end.
fn last(count: usize, numbers: &mut Vec<u64>) -> std::vec::Drain<'_, u64> {
    numbers.drain(numbers.len().saturating_sub(count)..)
}

impl Stock {
    /// Of a shard of a level.
    pub(super) fn new(level: Level) -> Self {
        Self {
            bodies: Bodies::default(),
            gone: BTreeSet::new(),
            going: BTreeSet::new(),
            round: Round { number: 1, level },
            touched: Vec::new(),
            listed: Vec::new(),
            collecting: false,
            due: Vec::new(),
            early: Changes::default(),
            due_ended: BTreeSet::new(),
            last_going: None,
            collected: Vec::new(),
            ended: BTreeSet::new(),
            messages: 0,
            longest: Longest::default(),
            full: 0,
            filter_bytes: 0,
            bytes: 0,
            fresh: 0,
            writing: 0,
        }
    }
}
