//! After a split: how many references to the bodies of before each half has.
//!
//! Both halves get all bodies, with counts that have the references of the other half in them. Each half reads the rows of
//! its own queues in parts and counts; then it corrects the counts that its tables have. Bodies without any reference go.
//!
//! Invariants: a message that refers to a body of before the split is in the tables when counting begins, so that the rows
//! have all of them; no reference to such a body is added later. A reference that is lost is taken off if its row has been
//! read, and not counted if its row has yet to be read. So the counts are exact at the end, whatever happens in between.
//!
//! Deliberately absent: a record of how far it is. A start counts from the beginning again.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::tables::{self, QueueKey};
use crate::{SlotRange, Table, TableError};

/// Bytes of rows that are read at once at most, the last row apart.
const READ_BYTES: usize = 64 * 1024;

/// How far a half has counted.
#[derive(Clone, Debug, Default)]
pub(super) enum Recount {
    /// There is nothing to be counted, or the next checkpoint must be in the tables first.
    #[default]
    Waiting,
    /// The rows of queues before this one are read.
    Counting(QueueKey, References),
    /// All are read. The counts of bodies before this one are right.
    Correcting(NextBody, References),
    /// The tables could not be read: the counts stay bounds until the next start.
    Failed,
}

/// The number of the next body to be looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NextBody(pub(super) u64);

/// References by body, of which there is one at least. About 20 bytes each.
#[derive(Clone, Debug, Default)]
pub(super) struct References(BTreeMap<u64, u32>);

impl References {
    fn add(&mut self, body: u64) {
        *self.0.entry(body).or_default() += 1;
    }

    fn remove(&mut self, body: u64) {
        let count = self.0.get_mut(&body);
        let count = count.expect("a reference that is lost was counted");
        *count -= 1;
        if *count == 0 {
            self.0.remove(&body);
        }
    }

    /// Takes out what is counted for a body.
    pub(super) fn take(&mut self, body: u64) -> u32 {
        self.0.remove(&body).unwrap_or(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Recount {
    /// The tables have all messages of before the split.
    pub(super) fn begin(&mut self) {
        if matches!(self, Self::Waiting) {
            let first = QueueKey {
                slot: 0,
                inbox: 0,
                sequence: 0,
            };
            *self = Self::Counting(first, References::default());
        }
    }

    /// A message that refers to a body of before the split is not queued any more.
    pub(super) fn released(&mut self, key: QueueKey, body: u64) {
        match self {
            Self::Counting(next, found) if key < *next => found.remove(body),
            Self::Correcting(next, found) if body >= next.0 => found.remove(body),
            _ => {}
        }
    }

    /// Counts the references in about so many rows of the queues of these slots to bodies below a number. `is_gone` says
    /// which rows are not queued any more.
    pub(super) fn count_part(
        &mut self,
        rows: usize,
        (range, below): (SlotRange, u64),
        is_gone: impl Fn(QueueKey) -> bool,
        table: &dyn Table,
    ) -> Result<(), TableError> {
        let Self::Counting(next, found) = self else {
            unreachable!("rows are read while references are counted");
        };
        let (first, end) = tables::queues_of(range);
        let from = next.to_bytes().max(first);
        let (mut left, mut bytes) = (rows, 0);
        let (mut stopped_at, mut damage) = (None, Ok(()));
        table.range(&from, &end, &mut |key, value| {
            let row = tables::queued_at(key).and_then(|place| {
                let is_last = left == 0 || bytes >= READ_BYTES;
                match is_last {
                    true => stopped_at = Some(place),
                    false if is_gone(place) => {}
                    false => match tables::body_of(key, value)? {
                        0 => {}
                        body if body < below => found.add(body),
                        _ => {}
                    },
                }
                Ok(())
            });
            left = left.saturating_sub(1);
            bytes += value.len();
            damage = row;
            match stopped_at.is_some() || damage.is_err() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        damage?;
        match stopped_at {
            Some(place) => *next = place,
            None => *self = Self::Correcting(NextBody::default(), std::mem::take(found)),
        }
        Ok(())
    }
}
