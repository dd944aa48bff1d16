//! Messages that are not kept any longer, or go to others, are taken from a queue.

use std::ops::Range;

use super::{Queue, Slot};
use crate::inbox::Item;
use crate::inbox::stock::Stock;
use crate::{Table, TableError};

/// A sequence below which no message is queued that cannot have been sent.
pub(in crate::inbox) fn first_unsent(queue: &Queue) -> u64 {
    queue.unsent
}

/// Takes the messages of these sequences, but those that stay; `tell` gets each with its sequence, ascending. Rows of the
/// tables are read in their order, once each.
pub(in crate::inbox) fn take(
    queue: &mut Queue,
    sequences: Range<u64>,
    stock: &mut Stock,
    table: &dyn Table,
    stays: impl Fn(u64, &Item) -> bool,
    mut tell: impl FnMut(u64, Item),
) -> Result<(), TableError> {
    let from = sequences.start;
    let below = sequences.end.min(queue.next());
    if below <= from {
        return Ok(());
    }
    let mut first_kept = None;
    let rows = queue.cold_rows(from..below, usize::MAX, usize::MAX, stock, table)?;
    for (sequence, row) in rows {
        let weight = row.weight();
        let item = row.into_item(|body| stock.bodies.message(body, table))?;
        if stays(sequence, &item) {
            first_kept.get_or_insert(sequence);
            continue;
        }
        if let Some(paged) = &mut queue.paged {
            paged.take(sequence);
        }
        queue.cold -= 1;
        queue.let_go(sequence, weight, stock, table)?;
        tell(sequence, item);
    }
    for sequence in from.max(queue.first)..below {
        let index = (sequence - queue.first) as usize;
        if queue.slots[index].is_gone() {
            continue;
        }
        let item = queue.read(sequence, stock, table)?;
        if stays(sequence, &item) {
            first_kept.get_or_insert(sequence);
            continue;
        }
        let slot = std::mem::replace(&mut queue.slots[index], Slot::Gone);
        if let Some(weight) = slot.weight() {
            queue.let_go(sequence, weight, stock, table)?;
        }
        tell(sequence, item);
    }
    // What begins here was taken up to here.
    let end = first_kept.unwrap_or(below);
    let is_head = queue.head >= from;
    let cold_end = end.min(queue.first);
    queue.trim_slots();
    if queue.cold == 0 {
        queue.head = queue.first;
    } else if is_head {
        queue.head = queue.head.max(cold_end);
    }
    if (from..below).contains(&queue.unsent) {
        queue.unsent = queue.unsent.max(end);
        queue.unsent_expires = None;
    }
    Ok(())
}
