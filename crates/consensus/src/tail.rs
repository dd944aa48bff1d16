//! The newest entries of a group, decoded.
//!
//! Invariants: they are consecutive and reach to the end of the log; what is not yet written is among
//! them, since it can be read nowhere else, and so is what is not yet applied: it is given to the state
//! machine as it was proposed, with what is never written. What is both is dropped from the front beyond a
//! number of bytes.

use std::collections::VecDeque;
use std::ops::Range;

use crate::command::Command;
use crate::record;
use crate::types::Entry;

/// What an entry takes in memory, as a multiple of what it is written as: the command, and the bytes that it keeps of itself.
const IN_MEMORY: usize = 2;

pub(crate) struct Tail<C: Command> {
    first: u64,
    entries: VecDeque<Kept<C>>,
    /// As they are written.
    bytes: usize,
    /// In memory.
    max_bytes: usize,
    /// The first index that is not known to be written.
    unwritten: u64,
}

struct Kept<C: Command> {
    entry: Entry<C>,
    bytes: usize,
}

impl<C: Command> Tail<C> {
    /// Empty; the next entry has the index `next`.
    pub(crate) fn new(next: u64, max_bytes: usize) -> Self {
        Self {
            first: next,
            entries: VecDeque::new(),
            bytes: 0,
            max_bytes,
            unwritten: next,
        }
    }

    /// The index of the oldest entry, or of the next one when there is none.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The index of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Whether this entry, or one after it, is known to be written.
    pub(crate) fn is_written(&self, index: u64) -> bool {
        index < self.unwritten
    }

    /// How many entries there are, and about how many bytes these take.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    pub(crate) fn push(&mut self, entry: Entry<C>) {
        assert_eq!(entry.log_id.index, self.next(), "a hole in the log");
        let bytes = record::len_hint(&entry);
        self.bytes += bytes;
        self.entries.push_back(Kept { entry, bytes });
    }

    /// Clones of the first entries in this range, which the caller has taken from `first` and `next`: at
    /// least one, then no more than about `max_bytes`.
    pub(crate) fn entries(&self, range: Range<u64>, max_bytes: usize) -> Vec<Entry<C>> {
        let begin = (range.start - self.first) as usize;
        let end = (range.end - self.first) as usize;
        let mut bytes = 0;
        let kept = self.entries.range(begin..end).take_while(|kept| {
            let is_first = bytes == 0;
            bytes += kept.bytes;
            is_first || bytes <= max_bytes
        });
        kept.map(|kept| kept.entry.clone()).collect()
    }

    /// All before `next` is written, and all before `unapplied` is applied.
    pub(crate) fn written(&mut self, next: u64, unapplied: u64) {
        self.unwritten = self.unwritten.max(next.min(self.next()));
        let needed = self.unwritten.min(unapplied);
        while IN_MEMORY * self.bytes > self.max_bytes && self.first < needed {
            self.drop_first();
        }
    }

    /// Drops the entries from `next` on.
    pub(crate) fn truncate(&mut self, next: u64) {
        while self.next() > next
            && let Some(kept) = self.entries.pop_back()
        {
            self.bytes -= kept.bytes;
        }
        self.first = self.first.min(next);
        self.unwritten = self.unwritten.min(next);
    }

    /// Drops the entries before `next`.
    pub(crate) fn purge(&mut self, next: u64) {
        while self.first < next && !self.entries.is_empty() {
            self.drop_first();
        }
        if self.entries.is_empty() {
            self.first = self.first.max(next);
            self.unwritten = self.unwritten.max(next);
        }
    }

    fn drop_first(&mut self) {
        if let Some(kept) = self.entries.pop_front() {
            self.bytes -= kept.bytes;
            self.first += 1;
        }
    }
}
