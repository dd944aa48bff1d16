//! The queue of one inbox: recent messages in memory, older ones in the tables.
//!
//! Sequences below `first` are *cold*: the tables alone say what is queued there, less what the stock
//! knows to be gone. From `first` on each sequence has a slot.
//!
//! Invariants: what the tables do not have for certain is in memory; the first slot, if any, is of a
//! queued message. What is in memory decides where something is read, never what is answered: replicas
//! that checkpoint at different times agree.

pub(super) mod ages;
mod checkpoint;
mod cold;
mod page;
mod paged;
pub(super) mod trim;

use std::collections::VecDeque;

use mqtt_session::{DropReason, Timestamp};

use self::ages::Ages;
use self::paged::Paged;
use super::Item;
use super::stock::Stock;
use super::tables::{self, QueueKey, QueueRow};
use super::weight::Weight;
use crate::{QueueLimits, Table, TableError};

/// Bytes accounted for a queued message beside those of its body: what a reference and a message take
/// in memory, as with `mqtt_session::Delivery`. A number of the format: replicas must agree on it,
/// whatever program they run.
const MESSAGE_OVERHEAD: usize = 96;

/// Slots that an empty queue keeps until the next checkpoint.
const SPARE_SLOTS: usize = 32;

/// When a message without an expiry expires.
const NEVER: Timestamp = Timestamp(u64::MAX);

/// Bytes accounted for a message in each inbox that has it.
pub(in crate::inbox) fn accounted(item: &Item) -> u32 {
    let bytes = MESSAGE_OVERHEAD + item.message.body.heap_len();
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[derive(Debug)]
pub(in crate::inbox) struct Queue {
    slot: u16,
    inbox: u64,
    slots: VecDeque<Slot>,
    /// The sequence of the first slot; the next one to be given if there is none.
    first: u64,
    /// No message is queued below this.
    head: u64,
    /// The rows below this are in the tables, or are being written.
    written: u64,
    /// Messages queued, in flight ones included, released ones not.
    alive: u32,
    /// Of these, those below `first`.
    cold: u32,
    /// Accounted bytes of those alive.
    bytes: u64,
    /// The highest sequence that may have been sent.
    sent: u64,
    /// The sequences that the client has and for which PUBREL is owed, ascending.
    released: Vec<u64>,
    /// Above `sent` and below this no message is queued.
    unsent: u64,
    /// When the message at `unsent` expires, if one is known to be queued there.
    unsent_expires: Option<Timestamp>,
    paged: Option<Box<Paged>>,
    /// When what is queued came.
    ages: Option<Box<Ages>>,
}

#[derive(Debug)]
enum Slot {
    /// Not queued any more.
    Gone,
    /// In memory, and in the body of this number if that is not 0.
    Held { item: Item, body: u64 },
    /// To be read from the tables.
    Evicted(Weight),
}

impl Slot {
    const fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }

    fn weight(&self) -> Option<Weight> {
        match self {
            Self::Gone => None,
            Self::Held { item, body } => Some(Weight {
                bytes: accounted(item),
                body: *body,
            }),
            Self::Evicted(weight) => Some(*weight),
        }
    }
}

impl Queue {
    /// An empty one. `first`: the next sequence to be given.
    pub(in crate::inbox) fn new(slot: u16, inbox: u64, first: u64) -> Self {
        Self {
            slot,
            inbox,
            slots: VecDeque::new(),
            first,
            head: first,
            written: first,
            alive: 0,
            cold: 0,
            bytes: 0,
            sent: 0,
            released: Vec::new(),
            unsent: first,
            unsent_expires: None,
            paged: None,
            ages: None,
        }
    }

    /// The slot of its client.
    pub(in crate::inbox) fn slot(&self) -> u16 {
        self.slot
    }

    pub(in crate::inbox) fn key(&self, sequence: u64) -> QueueKey {
        QueueKey {
            slot: self.slot,
            inbox: self.inbox,
            sequence,
        }
    }

    /// The next sequence to be given.
    pub(in crate::inbox) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// A bound below which no message is queued.
    pub(in crate::inbox) fn head(&self) -> u64 {
        self.head
    }

    /// Messages queued.
    pub(in crate::inbox) fn len(&self) -> u32 {
        self.alive
    }

    /// Accounted bytes of the messages queued.
    pub(in crate::inbox) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The highest sequence that may have been sent.
    pub(in crate::inbox) fn sent(&self) -> u64 {
        self.sent
    }

    /// Sequences for which PUBREL is owed, ascending.
    pub(in crate::inbox) fn released(&self) -> &[u64] {
        &self.released
    }

    /// When what is queued came; `None`: nothing is queued, or it is not known.
    pub(in crate::inbox) fn ages(&self) -> Option<&Ages> {
        self.ages.as_deref().filter(|_| self.alive > 0)
    }

    /// The limit that one more message of this size would break.
    pub(in crate::inbox) fn broken_limit(
        &self,
        bytes: u32,
        limits: &QueueLimits,
        is_connected: bool,
    ) -> Option<DropReason> {
        let (messages, reason) = limits.most_messages(is_connected);
        if self.alive >= messages {
            return Some(reason);
        }
        (self.bytes + u64::from(bytes) > limits.bytes).then_some(DropReason::QueueFullBytes)
    }

    /// Whether three quarters of a limit for connected clients are used.
    pub(in crate::inbox) fn is_filling(&self, limits: &QueueLimits) -> bool {
        let (messages, _) = limits.most_messages(true);
        u64::from(self.alive) * 4 >= u64::from(messages) * 3
            || self.bytes.saturating_mul(4) >= limits.bytes.saturating_mul(3)
    }

    /// Queues a message under the next sequence. `body`: where others refer to it too, or 0.
    pub(in crate::inbox) fn push(
        &mut self,
        item: Item,
        body: u64,
        now: Timestamp,
        stock: &mut Stock,
    ) {
        let bytes = accounted(&item);
        let (sequence, head) = (self.next(), self.head);
        let ages = self.ages.get_or_insert_default();
        if self.alive == 0 {
            ages.clear();
        }
        ages.queued(sequence, now, head);
        self.alive += 1;
        self.bytes += u64::from(bytes);
        stock.queued(Weight { bytes, body });
        self.slots.push_back(Slot::Held { item, body });
    }

    /// The message just queued is not shared after all.
    pub(in crate::inbox) fn unshare_last(&mut self, stock: &mut Stock) {
        if let Some(Slot::Held { item, body }) = self.slots.back_mut() {
            *body = 0;
            stock.unshared(accounted(item));
        }
    }

    /// Everything up to this sequence may have been sent.
    pub(in crate::inbox) fn mark_sent(&mut self, sequence: u64) {
        self.sent = self.sent.max(sequence.min(self.next() - 1));
        if self.unsent <= self.sent {
            self.unsent = self.sent + 1;
            self.unsent_expires = None;
        }
    }

    /// The connection ended without saying what it had sent: everything that a client can have in flight
    /// may have been.
    pub(in crate::inbox) fn mark_unknown_sent(&mut self) {
        self.mark_sent(self.sent + u64::from(u16::MAX));
    }

    /// PUBREL is owed for a message that was taken from the queue.
    pub(in crate::inbox) fn release(&mut self, sequence: u64) {
        self.mark_sent(sequence);
        if let Err(place) = self.released.binary_search(&sequence) {
            self.released.insert(place, sequence);
        }
    }

    /// Whether PUBREL is owed for a sequence.
    pub(in crate::inbox) fn is_released(&self, sequence: u64) -> bool {
        self.released.binary_search(&sequence).is_ok()
    }

    /// PUBREL is not owed any more. Whether it was.
    pub(in crate::inbox) fn complete(&mut self, sequence: u64) -> bool {
        match self.released.binary_search(&sequence) {
            Ok(place) => {
                self.released.remove(place);
                if self.released.is_empty() {
                    self.released = Vec::new();
                }
                true
            }
            Err(_) => false,
        }
    }

    /// PUBREL is owed for nothing any more: the session has ended.
    pub(in crate::inbox) fn owe_nothing(&mut self) {
        self.released = Vec::new();
    }

    fn slot_index(&self, sequence: u64) -> Option<usize> {
        usize::try_from(sequence.checked_sub(self.first)?).ok()
    }

    /// Reads a queued message.
    pub(in crate::inbox) fn read(
        &self,
        sequence: u64,
        stock: &Stock,
        table: &dyn Table,
    ) -> Result<Item, TableError> {
        let slot = self
            .slot_index(sequence)
            .and_then(|index| self.slots.get(index));
        if let Some(Slot::Held { item, .. }) = slot {
            return Ok(item.clone());
        }
        let row: QueueRow = tables::get(table, &self.key(sequence).to_bytes())?;
        row.into_item(|body| stock.bodies.message(body, table))
    }

    /// Takes a message from the queue. Whether it was queued.
    pub(in crate::inbox) fn take(
        &mut self,
        sequence: u64,
        stock: &mut Stock,
        table: &dyn Table,
    ) -> Result<bool, TableError> {
        let Some(weight) = self.remove(sequence, stock, table)? else {
            return Ok(false);
        };
        self.let_go(sequence, weight, stock, table)?;
        self.raise_head(sequence);
        if sequence == self.unsent {
            self.unsent += 1;
            self.unsent_expires = None;
        }
        Ok(true)
    }

    /// A message is not queued any more.
    fn let_go(
        &mut self,
        sequence: u64,
        weight: Weight,
        stock: &mut Stock,
        table: &dyn Table,
    ) -> Result<(), TableError> {
        let stored = sequence < self.written;
        stock.taken(self.key(sequence), weight, stored, table)?;
        self.alive -= 1;
        self.bytes -= u64::from(weight.bytes);
        Ok(())
    }

    fn remove(
        &mut self,
        sequence: u64,
        stock: &Stock,
        table: &dyn Table,
    ) -> Result<Option<Weight>, TableError> {
        if let Some(index) = self.slot_index(sequence) {
            let Some(slot) = self.slots.get_mut(index) else {
                return Ok(None);
            };
            let weight = std::mem::replace(slot, Slot::Gone).weight();
            self.trim_slots();
            return Ok(weight);
        }
        let weight = self.cold_weight(sequence, stock, table)?;
        self.cold -= u32::from(weight.is_some());
        Ok(weight)
    }

    /// Removes slots at the front that are not queued.
    fn trim_slots(&mut self) {
        while self.slots.front().is_some_and(Slot::is_gone) {
            self.slots.pop_front();
            self.first += 1;
        }
        if self.slots.is_empty() && self.slots.capacity() > SPARE_SLOTS {
            self.slots = VecDeque::new();
        }
    }

    /// `sequence` is not queued any more.
    fn raise_head(&mut self, sequence: u64) {
        if self.cold == 0 {
            self.head = self.first;
        } else if sequence == self.head {
            self.head += 1;
        }
    }
}
