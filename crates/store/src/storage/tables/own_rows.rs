//! Which rows of a table belong to its shard.
//!
//! Purpose: the tables of both halves of a split begin with all rows that their shard had before. The descriptor among a
//! table's rows says which slots are its own. Scans and snapshots leave the other rows out, and merging removes them.
//!
//! Invariants: rows go only after the descriptor that gives them away is on disk. A range never gets wider, so that a row
//! that has become foreign stays it. A table without a descriptor, or with one that cannot be understood, loses no row.
//!
//! Deliberately absent: what rows mean; a record of which files have foreign rows: a look at the ends of the range tells.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use lsm_tree::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};
use store_state::{Descriptor, SlotRange};

use super::RECORD;

/// Whether the row with a key belongs to a shard of a range of slots. The first byte of a key is its kind; rows of kinds that
/// belong to slots have the slot in the next two bytes.
pub type RowFilter = fn(&[u8], SlotRange) -> bool;

/// Which rows of a table belong to its shard; changes when a descriptor is written.
#[derive(Clone)]
pub(super) struct OwnRows {
    keeps: RowFilter,
    /// First slot << 16 | last slot.
    range: Arc<AtomicU32>,
    /// There may be foreign rows that have to be removed.
    may_have_foreign: Arc<AtomicBool>,
}

impl OwnRows {
    /// All of them.
    pub(super) fn new(keeps: RowFilter) -> Self {
        Self {
            keeps,
            range: Arc::new(AtomicU32::new(packed(SlotRange::ALL))),
            may_have_foreign: Arc::default(),
        }
    }

    /// A descriptor is on disk.
    pub(super) fn narrow(&self, row: &[u8]) {
        let range = range_of(row);
        self.range.store(packed(range), Relaxed);
        self.may_have_foreign
            .store(range != SlotRange::ALL, Relaxed);
    }

    /// As of now.
    pub(super) fn now(&self) -> OwnedRange {
        let packed = self.range.load(Relaxed);
        OwnedRange {
            keeps: self.keeps,
            range: SlotRange {
                first: (packed >> 16) as u16,
                last: (packed & 0xFFFF) as u16,
            },
        }
    }

    /// As a descriptor says.
    pub(super) fn of(&self, row: Option<&[u8]>) -> OwnedRange {
        OwnedRange {
            keeps: self.keeps,
            range: row.map_or(SlotRange::ALL, range_of),
        }
    }

    /// Whether there may be foreign rows, since the last call. The caller removes them.
    pub(super) fn take_may_have_foreign(&self) -> bool {
        self.may_have_foreign.swap(false, Relaxed)
    }

    /// The caller has left some.
    pub(super) fn set_may_have_foreign(&self) {
        self.may_have_foreign.store(true, Relaxed);
    }

    /// Makes the filters through which a tree merges.
    pub(super) fn filter_factory(&self) -> Arc<dyn Factory> {
        Arc::new(Filters(self.clone()))
    }
}

impl fmt::Debug for OwnRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnRows").finish_non_exhaustive()
    }
}

fn packed(range: SlotRange) -> u32 {
    u32::from(range.first) << 16 | u32::from(range.last)
}

/// A descriptor that cannot be understood gives nothing away. Who loads the table refuses it.
fn range_of(row: &[u8]) -> SlotRange {
    Descriptor::of_row(row).map_or(SlotRange::ALL, |descriptor| descriptor.range)
}

/// Which rows belong to a shard.
#[derive(Clone, Copy)]
pub(super) struct OwnedRange {
    keeps: RowFilter,
    range: SlotRange,
}

impl OwnedRange {
    /// Whether the row with this key of the tree belongs to another shard.
    pub(super) fn is_foreign(&self, stored_key: &[u8]) -> bool {
        if self.range == SlotRange::ALL {
            return false;
        }
        match stored_key {
            [RECORD, key @ ..] => !(self.keeps)(key, self.range),
            _ => false,
        }
    }

    /// The keys of the tree between which all rows belong to other shards.
    pub(super) fn foreign_spans(self) -> impl Iterator<Item = Range<Vec<u8>>> {
        let SlotRange { first, last } = self.range;
        let below = first.checked_sub(1).map(|before| (before, 0, Some(first)));
        let above = last.checked_add(1).map(|after| (after, after, None));
        let sides = [below, above].into_iter().flatten();
        let at = |kind: u8, slot: u16| [&[RECORD, kind][..], &slot.to_be_bytes()].concat();
        let kinds = 0..u8::MAX;
        kinds.flat_map(move |kind| {
            sides.clone().filter_map(move |(outside, from, to)| {
                let to = to.map_or_else(|| vec![RECORD, kind + 1], |to| at(kind, to));
                self.is_foreign(&at(kind, outside))
                    .then(|| at(kind, from)..to)
            })
        })
    }
}

struct Filters(OwnRows);

impl Factory for Filters {
    fn name(&self) -> &str {
        "own rows"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(Filter(self.0.now()))
    }
}

struct Filter(OwnedRange);

impl CompactionFilter for Filter {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        if self.0.is_foreign(item.key()) {
            // Older values of the key may come to light in files that are not merged: they are as foreign.
            Ok(Verdict::Destroy)
        } else {
            Ok(Verdict::Keep)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(first: u16, last: u16) -> OwnedRange {
        OwnedRange {
            keeps: |key, range| match key {
                [b'Q' | b'S', high, low, ..] => range.contains(u16::from_be_bytes([*high, *low])),
                _ => true,
            },
            range: SlotRange { first, last },
        }
    }

    #[test]
    fn spans_are_on_both_sides_of_the_range_for_each_kind_with_slots() {
        let spans = |first, last| of(first, last).foreign_spans().collect::<Vec<_>>();
        let key = |kind, slot: u16| [&[RECORD, kind][..], &slot.to_be_bytes()].concat();
        assert_eq!(spans(0, u16::MAX), []);
        assert_eq!(
            spans(0, 0x2ff),
            [b'Q', b'S'].map(|kind| key(kind, 0x300)..vec![RECORD, kind + 1])
        );
        assert_eq!(
            spans(0x300, u16::MAX),
            [b'Q', b'S'].map(|kind| key(kind, 0)..key(kind, 0x300))
        );
        assert_eq!(spans(1, 2).len(), 4);
        for span in spans(1, 2) {
            assert!(of(1, 2).is_foreign(&span.start) && !span.is_empty());
        }
    }

    #[test]
    fn the_mark_and_rows_without_slot_are_nobody_elses() {
        let own = of(7, 7);
        assert!(!own.is_foreign(super::super::MARK));
        assert!(!own.is_foreign(&[RECORD, b'M', 0, 0]));
        assert!(!own.is_foreign(&[RECORD, b'Q', 0, 7]) && own.is_foreign(&[RECORD, b'Q', 0, 8]));
    }
}
