//! Reading a queue in pages.

use super::{Queue, accounted};
use crate::inbox::stock::Stock;
use crate::inbox::{Item, Queued};
use crate::{Table, TableError};

/// A page that is being filled, in ascending order.
struct Page<'a> {
    out: &'a mut Vec<(u64, Queued)>,
    /// Sequences for which PUBREL is owed and that the page has not come to.
    released: &'a [u64],
    items: usize,
    /// Accounted.
    bytes: usize,
    /// After the last one on the page.
    next: u64,
}

impl Page<'_> {
    const fn is_full(&self) -> bool {
        self.items == 0 || self.bytes == 0
    }

    fn add(&mut self, sequence: u64, queued: Queued) {
        self.out.push((sequence, queued));
        self.items -= 1;
        self.next = sequence + 1;
    }

    /// Adds what is released below `sequence`. Whether there is room for more.
    fn come_to(&mut self, sequence: u64) -> bool {
        while let Some((&first, rest)) = self.released.split_first()
            && first < sequence
            && !self.is_full()
        {
            self.add(first, Queued::Released);
            self.released = rest;
        }
        !self.is_full()
    }

    fn add_message(&mut self, sequence: u64, item: Item) {
        self.bytes = self.bytes.saturating_sub(accounted(&item) as usize);
        self.add(sequence, Queued::Message(item));
    }
}

impl Queue {
    /// What is queued or released from `from` on, until there are `max_items` of it or `max_bytes`.
    /// Says where to go on.
    pub(in crate::inbox) fn page(
        &mut self,
        from: u64,
        limits: (usize, usize),
        attached: bool,
        stock: &Stock,
        table: &dyn Table,
        out: &mut Vec<(u64, Queued)>,
    ) -> Result<u64, TableError> {
        let (items, bytes) = limits;
        let rows = self.cold_rows(from..u64::MAX, items, bytes, stock, table)?;
        if attached && !rows.is_empty() {
            let paged = self.paged.get_or_insert_default();
            for (sequence, row) in &rows {
                paged.note(*sequence, row.weight());
            }
        }
        let already = self.released.partition_point(|&released| released < from);
        let mut page = Page {
            out,
            released: &self.released[already..],
            items,
            bytes,
            next: from,
        };
        for (sequence, row) in rows {
            if !page.come_to(sequence) {
                return Ok(page.next);
            }
            let item = row.into_item(|body| stock.bodies.message(body, table))?;
            page.add_message(sequence, item);
        }
        for sequence in from.max(self.first)..self.next() {
            if page.is_full() {
                return Ok(page.next);
            }
            if self.slots[(sequence - self.first) as usize].is_gone() {
                continue;
            }
            if !page.come_to(sequence) {
                return Ok(page.next);
            }
            page.add_message(sequence, self.read(sequence, stock, table)?);
        }
        if page.come_to(self.next()) {
            return Ok(self.next().max(from));
        }
        Ok(page.next)
    }
}
