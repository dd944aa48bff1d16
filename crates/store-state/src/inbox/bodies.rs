//! Messages that several inboxes of the shard have queued, each stored once.
//!
//! Invariants: a body gets all its references when it is made, and only loses them afterwards; when the
//! last one is gone, so is the body. In memory are those that the tables do not have, and those whose
//! count has changed since the last checkpoint; all others are looked up when they lose a reference.
//!
//! When a shard is split, both halves get all bodies and their counts, which are bounds from then on: references of the
//! other half are among them. A body that is counted down to nothing has none in either half, so none is deleted too
//! early; one that both halves referred to stays in the tables when it has none any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use mqtt_session::ApplicationMessage;

use super::tables::{self, BodyRow, CountRow};
use crate::{Changes, Table, TableError, row};

/// The counts of bodies below this number may be too high: the shard has been split, and the other half had references
/// too. 0: none are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct CountBound(u64);

/// Bodies by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Bodies {
    held: BTreeMap<u64, Body>,
    /// Those whose rows are to be written, each once.
    changed: Vec<u64>,
    /// Those whose rows are being written.
    collected: Vec<u64>,
    /// Which counts may be too high.
    bound: CountBound,
}

#[derive(Clone, Debug)]
struct Body {
    /// How many refer to it.
    count: CountRow,
    /// `None`: it is in the tables.
    message: Option<Arc<ApplicationMessage>>,
    /// Its rows are in the tables, or are being written.
    stored: bool,
    /// It is in `changed`.
    changed: bool,
}

impl Bodies {
    /// A body under a number that was never used. `count` is at least 1.
    pub(super) fn add(&mut self, number: u64, message: &Arc<ApplicationMessage>, count: u32) {
        let body = Body {
            count,
            message: Some(Arc::clone(message)),
            stored: false,
            changed: true,
        };
        self.held.insert(number, body);
        self.changed.push(number);
    }

    /// The message of a body.
    pub(super) fn message(
        &self,
        number: u64,
        table: &dyn Table,
    ) -> Result<Arc<ApplicationMessage>, TableError> {
        let held = self.held.get(&number);
        match held.and_then(|body| body.message.as_ref()) {
            Some(message) => Ok(Arc::clone(message)),
            None => tables::get(table, &tables::body_key(number)).map(|BodyRow(message)| message),
        }
    }

    /// One reference less. Whether that was the last one of a body that never reached the tables.
    pub(super) fn release(&mut self, number: u64, table: &dyn Table) -> Result<bool, TableError> {
        let body = match self.held.entry(number) {
            std::collections::btree_map::Entry::Occupied(body) => body.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => place.insert(Body {
                count: tables::get(table, &tables::count_key(number))?,
                message: None,
                stored: true,
                changed: false,
            }),
        };
        body.count = body.count.saturating_sub(1);
        if body.count == 0 && !body.stored {
            self.held.remove(&number);
            return Ok(true);
        }
        if !body.changed {
            body.changed = true;
            self.changed.push(number);
        }
        Ok(false)
    }

    /// The same for the other half of a shard that is split. `next`: the number of the next body.
    ///
    /// # Panics
    /// A checkpoint is under way.
    pub(super) fn split(&mut self, next: u64) -> Self {
        assert!(
            self.collected.is_empty(),
            "no checkpoint is under way when a shard is split"
        );
        self.bound_below(next);
        self.clone()
    }

    /// Counts of bodies below this number are bounds.
    pub(super) fn bound_below(&mut self, next: u64) {
        // There is none below the first.
        if next > 1 {
            self.bound.0 = self.bound.0.max(next);
        }
    }

    /// The counts of bodies below this number may be too high; 0: none are.
    pub(super) fn recount_below(&self) -> u64 {
        self.bound.0
    }

    pub(super) fn collect(&mut self, changes: &mut Changes) {
        for number in std::mem::take(&mut self.changed) {
            // Gone again before the tables had it.
            let Some(body) = self.held.get_mut(&number) else {
                continue;
            };
            if body.count == 0 {
                changes.delete(tables::body_key(number));
                changes.delete(tables::count_key(number));
                self.held.remove(&number);
                continue;
            }
            if let (false, Some(message)) = (body.stored, &body.message) {
                let row = BodyRow(Arc::clone(message));
                changes.put(tables::body_key(number), row::encode(&row));
            }
            changes.put(tables::count_key(number), row::encode(&body.count));
            body.stored = true;
            body.changed = false;
            self.collected.push(number);
        }
    }

    pub(super) fn saved(&mut self) {
        for number in std::mem::take(&mut self.collected) {
            if let Some(body) = self.held.get_mut(&number) {
                if body.changed {
                    body.message = None;
                } else {
                    self.held.remove(&number);
                }
            }
        }
    }
}
