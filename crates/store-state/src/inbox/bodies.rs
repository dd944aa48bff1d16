//! Messages that several inboxes of the shard have queued, each stored once.
//!
//! Invariants: a body gets all its references when it is made, and only loses them afterwards; when the
//! last one is gone, so is the body. In memory are those that the tables do not have, and those whose
//! count has changed since the last checkpoint; all others are looked up when they lose a reference.
//!
//! When a shard is split, both halves get all bodies and their counts, which are bounds from then on: references of the
//! other half are among them. A body that is counted down to nothing has none in either half, so none is deleted too
//! early. Those without a reference in this half are found when it has counted its own (`recount.rs`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mqtt_session::ApplicationMessage;

use super::recount::Recount;
use super::tables::{self, BodyRow, CountRow, QueueKey};
use crate::{Changes, SlotRange, Table, TableError, row};

/// Changed counts with which no more are corrected before the next checkpoint: it collects all at once, which takes some
/// milliseconds.
const CHANGED_MOST: usize = 8 * 1024;

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
    /// How far they are counted again.
    recount: Recount,
    /// A checkpoint is under way.
    in_checkpoint: bool,
}

/// What a part of a recount has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Recounted {
    /// There is nothing left, or nothing before the next checkpoint is in the tables.
    pub(super) is_all: bool,
    /// Counts that were corrected.
    pub(super) corrected: usize,
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

impl Recounted {
    const NOTHING_LEFT: Self = Self {
        is_all: true,
        corrected: 0,
    };
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

    /// One reference less, that of the message at `key`. Whether that was the last one of a body that never reached the tables.
    pub(super) fn release(
        &mut self,
        number: u64,
        key: QueueKey,
        table: &dyn Table,
    ) -> Result<bool, TableError> {
        if number < self.bound.0 {
            self.recount.released(key, number);
        }
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
        self.recount = Recount::Waiting;
        self.clone()
    }

    /// The tables that this is loaded from have counts of bodies below this number that are bounds.
    pub(super) fn load_bound(&mut self, next: u64) {
        self.bound_below(next);
        if self.bound.0 > 0 {
            self.recount.begin();
        }
    }

    /// Counts of bodies below this number are bounds.
    fn bound_below(&mut self, next: u64) {
        // There is none below the first.
        if next > 1 {
            self.bound.0 = self.bound.0.max(next);
        }
    }

    /// The counts of bodies below this number may be too high; 0: none are.
    pub(super) fn recount_below(&self) -> u64 {
        self.bound.0
    }

    /// Whether counts are to be corrected, now or when the next checkpoint is in the tables.
    pub(super) fn has_bounds_to_correct(&self) -> bool {
        self.bound.0 > 0 && !matches!(self.recount, Recount::Failed)
    }

    /// Goes on with counting again what may be too high: reads about so many rows.
    ///
    /// # Errors
    /// The tables cannot be read. It is not tried again before the next start.
    pub(super) fn recount_part(
        &mut self,
        rows: usize,
        range: SlotRange,
        is_gone: impl Fn(QueueKey) -> bool,
        table: &dyn Table,
    ) -> Result<Recounted, TableError> {
        let done = match &mut self.recount {
            _ if self.bound.0 == 0 => Ok(Recounted::NOTHING_LEFT),
            Recount::Waiting | Recount::Failed => Ok(Recounted::NOTHING_LEFT),
            counting @ Recount::Counting(..) => counting
                .count_part(rows, (range, self.bound.0), is_gone, table)
                .map(|()| Recounted {
                    is_all: false,
                    corrected: 0,
                }),
            Recount::Correcting(..) => self.correct_part(rows, table),
        };
        if done.is_err() {
            self.recount = Recount::Failed;
        }
        done
    }

    /// Corrects about so many counts. Not while a checkpoint is under way: the tables have rows that are being removed.
    fn correct_part(&mut self, rows: usize, table: &dyn Table) -> Result<Recounted, TableError> {
        let Recount::Correcting(next, found) = &mut self.recount else {
            unreachable!("counts are corrected when all references are counted");
        };
        if self.in_checkpoint || self.changed.len() >= CHANGED_MOST {
            return Ok(Recounted::NOTHING_LEFT);
        }
        let (mut counts, mut damage) = (Vec::new(), Ok(()));
        let (from, to) = (tables::count_key(next.0), tables::count_key(self.bound.0));
        table.range(&from, &to, &mut |key, value| {
            if counts.len() == rows {
                return ControlFlow::Break(());
            }
            match (
                tables::number_of(key),
                tables::decode::<CountRow>(key, value),
            ) {
                (Some(number), Ok(count)) => counts.push((number, count)),
                (None, _) => {
                    damage = Err(TableError("a key of a count is of another length".into()))
                }
                (_, Err(error)) => damage = Err(error),
            }
            match damage.is_err() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        damage?;
        let is_all = counts.len() < rows;
        let mut corrected = 0;
        for (number, stored) in counts {
            next.0 = number + 1;
            let found = found.take(number);
            let known = self.held.get(&number).map_or(stored, |body| body.count);
            debug_assert!(found <= known, "a count is a bound");
            if found == known {
                continue;
            }
            corrected += 1;
            let body = self.held.entry(number).or_insert(Body {
                count: stored,
                message: None,
                stored: true,
                changed: false,
            });
            body.count = found;
            if !std::mem::replace(&mut body.changed, true) {
                self.changed.push(number);
            }
        }
        if is_all {
            debug_assert!(found.is_empty(), "what is referred to has a count");
            self.bound = CountBound::default();
            self.recount = Recount::Waiting;
        }
        Ok(Recounted { is_all, corrected })
    }

    pub(super) fn collect(&mut self, changes: &mut Changes) {
        self.in_checkpoint = true;
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
        self.in_checkpoint = false;
        if self.bound.0 > 0 {
            self.recount.begin();
        }
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
