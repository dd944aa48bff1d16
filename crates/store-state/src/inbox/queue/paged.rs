//! What pages have read from the tables, for the acknowledgements that follow.
//!
//! Invariant: what is noted here is queued, and below the queue's first slot.

use std::collections::VecDeque;

use crate::inbox::weight::Weight;

/// Messages noted at most; the oldest make room.
const NOTED: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Paged {
    /// Ascending.
    rows: VecDeque<(u64, Weight)>,
}

impl Paged {
    /// A page has read a message. Pages that go back are not noted.
    pub(super) fn note(&mut self, sequence: u64, weight: Weight) {
        if self.rows.back().is_some_and(|&(last, _)| last >= sequence) {
            return;
        }
        if self.rows.len() == NOTED {
            self.rows.pop_front();
        }
        self.rows.push_back((sequence, weight));
    }

    /// What was noted of a message, which is not queued any more.
    pub(super) fn take(&mut self, sequence: u64) -> Option<Weight> {
        let found = self.rows.binary_search_by_key(&sequence, |&(of, _)| of);
        self.rows.remove(found.ok()?).map(|(_, weight)| weight)
    }
}
