//! What a queue finds in the tables: rows of sequences below its first slot.

use std::ops::{ControlFlow, Range};

use mqtt_session::Timestamp;

use super::{NEVER, Queue, Slot};
use crate::inbox::Item;
use crate::inbox::stock::Stock;
use crate::inbox::tables::{self, QueueRow};
use crate::inbox::weight::Weight;
use crate::{Table, TableError};

impl Queue {
    /// What a message below `first` weighs, if it is queued.
    pub(super) fn cold_weight(
        &mut self,
        sequence: u64,
        stock: &Stock,
        table: &dyn Table,
    ) -> Result<Option<Weight>, TableError> {
        if self.cold == 0 || sequence < self.head {
            return Ok(None);
        }
        if let Some(weight) = self.paged.as_mut().and_then(|paged| paged.take(sequence)) {
            return Ok(Some(weight));
        }
        let key = self.key(sequence);
        if stock.is_gone(key) {
            return Ok(None);
        }
        let row: Option<QueueRow> = tables::find(table, &key.to_bytes())?;
        Ok(row.map(|row| row.weight()))
    }

    /// The lowest sequence that is queued or released, or the next one to be given.
    pub(in crate::inbox) fn lowest(
        &mut self,
        stock: &Stock,
        table: &dyn Table,
    ) -> Result<u64, TableError> {
        if self.cold > 0 {
            self.head = self.first_cold(self.head, stock, table)?;
        }
        let released = self.released.first().copied();
        let queued = if self.cold > 0 { self.head } else { self.first };
        Ok(released.map_or(queued, |released| released.min(queued)))
    }

    /// The lowest queued sequence from `from` on that is cold, or `first`.
    fn first_cold(&self, from: u64, stock: &Stock, table: &dyn Table) -> Result<u64, TableError> {
        let mut found = self.first;
        let (from, to) = (self.key(from), self.key(self.first));
        table.range(&from.to_bytes(), &to.to_bytes(), &mut |key, _| {
            let sequence = tables::sequence(key);
            if stock.is_gone(self.key(sequence)) {
                return ControlFlow::Continue(());
            }
            found = sequence;
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// The oldest message that cannot have been sent, and when it expires.
    pub(in crate::inbox) fn oldest_unsent(
        &mut self,
        stock: &Stock,
        table: &dyn Table,
    ) -> Result<Option<(u64, Timestamp)>, TableError> {
        if let Some(expires) = self.unsent_expires {
            return Ok(Some((self.unsent, expires)));
        }
        self.unsent = self.find_unsent(stock, table)?;
        if self.unsent == self.next() {
            return Ok(None);
        }
        let item = self.read(self.unsent, stock, table)?;
        let expires = item.message.expires_at.unwrap_or(NEVER);
        self.unsent_expires = Some(expires);
        Ok(Some((self.unsent, expires)))
    }

    fn find_unsent(&self, stock: &Stock, table: &dyn Table) -> Result<u64, TableError> {
        let from = self.unsent.max(self.head);
        if self.cold > 0 && from < self.first {
            let found = self.first_cold(from, stock, table)?;
            if found < self.first {
                return Ok(found);
            }
        }
        let from = from.max(self.first);
        let slots = self.slots.range((from - self.first) as usize..);
        Ok(from + slots.take_while(|slot| slot.is_gone()).count() as u64)
    }

    /// Takes messages from `from` on from the queue, but those that `stays` says, which is asked in order: of so many
    /// messages or bytes at most (accounted; the last message may exceed them). Where to go on; `None`: that was all.
    pub(in crate::inbox) fn retain_part(
        &mut self,
        from: u64,
        (mut items, mut bytes): (usize, usize),
        stock: &mut Stock,
        table: &dyn Table,
        mut stays: impl FnMut(u64, &Item) -> bool,
    ) -> Result<Option<u64>, TableError> {
        self.paged = None;
        let mut next = from;
        for (sequence, row) in self.cold_rows(from..u64::MAX, items, bytes, stock, table)? {
            let weight = row.weight();
            let item = row.into_item(|body| stock.bodies.message(body, table))?;
            if !stays(sequence, &item) {
                self.cold -= 1;
                self.let_go(sequence, weight, stock, table)?;
            }
            next = sequence + 1;
            items -= 1;
            bytes = bytes.saturating_sub(weight.bytes as usize);
        }
        if items > 0 && bytes > 0 {
            next = next.max(self.first);
        }
        while items > 0 && bytes > 0 && next < self.next() {
            let (sequence, index) = (next, (next - self.first) as usize);
            next += 1;
            let Some(weight) = self.slots[index].weight() else {
                continue;
            };
            if !stays(sequence, &self.read(sequence, stock, table)?) {
                self.slots[index] = Slot::Gone;
                self.let_go(sequence, weight, stock, table)?;
            }
            items -= 1;
            bytes = bytes.saturating_sub(weight.bytes as usize);
        }
        self.trim_slots();
        Ok((next < self.next()).then_some(next))
    }

    /// The rows of queued messages of these sequences below `first`, until there are `max_items` or `max_bytes`.
    pub(super) fn cold_rows(
        &self,
        Range { start, end }: Range<u64>,
        max_items: usize,
        max_bytes: usize,
        stock: &Stock,
        table: &dyn Table,
    ) -> Result<Vec<(u64, QueueRow)>, TableError> {
        let mut rows = Vec::new();
        let (start, end) = (start.max(self.head), end.min(self.first));
        if self.cold == 0 || start >= end || max_items == 0 {
            return Ok(rows);
        }
        let mut bytes = 0;
        let mut damage = Ok(());
        let (from, to) = (self.key(start), self.key(end));
        table.range(&from.to_bytes(), &to.to_bytes(), &mut |key, value| {
            let sequence = tables::sequence(key);
            if stock.is_gone(self.key(sequence)) {
                return ControlFlow::Continue(());
            }
            match tables::decode::<QueueRow>(key, value) {
                Ok(row) => {
                    bytes += row.weight().bytes as usize;
                    rows.push((sequence, row));
                }
                Err(error) => damage = Err(error),
            }
            if damage.is_err() || rows.len() == max_items || bytes >= max_bytes {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        damage.map(|()| rows)
    }
}
