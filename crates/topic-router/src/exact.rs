//! Filters without wildcards: a flat hash table keyed by the whole filter.
//!
//! Invariant: an entry never has zero receivers. An entry with one receiver and up to 22 bytes of
//! filter is 48 bytes, with the index 54–60, and owns no allocation.

use crate::dense::{Dense, Index};
use crate::hashing::Hashing;
use crate::receivers::Receivers;
use crate::text::Text;

/// Filters that match only the topic name they equal.
#[derive(Debug)]
pub(crate) struct Exact<R, O> {
    entries: Dense<Entry<R, O>>,
    index: Index,
    /// Heap memory of the entries, in bytes.
    heap: usize,
}

#[derive(Debug)]
struct Entry<R, O> {
    filter: Text,
    receivers: Receivers<R, O>,
}

impl<R: Copy + Ord, O: Copy> Exact<R, O> {
    pub(crate) fn new() -> Self {
        Exact {
            entries: Dense::new(),
            index: Index::new(),
            heap: 0,
        }
    }

    /// The receivers of the filter that equals this topic name.
    #[inline]
    pub(crate) fn get(&self, hashing: &Hashing, topic: &[u8]) -> Option<&Receivers<R, O>> {
        if self.entries.len() == 0 {
            return None;
        }
        let number = self.find(hashing.name(topic), topic)?;
        Some(&self.entries.get(number).receivers)
    }

    pub(crate) fn insert(
        &mut self,
        hashing: &Hashing,
        filter: &[u8],
        receiver: R,
        options: O,
    ) -> Option<O> {
        let hash = hashing.name(filter);
        if let Some(number) = self.find(hash, filter) {
            let receivers = &mut self.entries.get_mut(number).receivers;
            let before = receivers.heap_bytes();
            let old = receivers.insert(receiver, options);
            self.heap = self.heap - before + receivers.heap_bytes();
            return old;
        }
        let filter = Text::new(filter);
        self.heap += filter.heap_bytes();
        self.index.insert(hash, self.entries.len() as u32, || {
            hashes(&self.entries, hashing)
        });
        self.entries.push(Entry {
            filter,
            receivers: Receivers::One(receiver, options),
        });
        None
    }

    pub(crate) fn remove(&mut self, hashing: &Hashing, filter: &[u8], receiver: &R) -> Option<O> {
        let hash = hashing.name(filter);
        let number = self.find(hash, filter)?;
        let receivers = &mut self.entries.get_mut(number).receivers;
        let before = receivers.heap_bytes();
        let options = receivers.remove(receiver)?;
        self.heap = self.heap - before + receivers.heap_bytes();
        if receivers.is_none() {
            self.remove_entry(hashing, hash, number);
        }
        Some(options)
    }

    fn remove_entry(&mut self, hashing: &Hashing, hash: u64, number: u32) {
        let last = self.entries.len() as u32 - 1;
        let hash_of_last = hashing.name(self.entries.get(last).filter.as_bytes());
        let removed = self.entries.swap_remove(number);
        self.heap -= removed.filter.heap_bytes();
        self.index.remove(hash, number, || {
            // While the last entry is not renumbered, the index must know it by its old number.
            hashes(&self.entries, hashing)
                .map(move |(n, hash)| (if n == number { last } else { n }, hash))
        });
        if number != last {
            self.index.renumber(hash_of_last, last, number);
        }
    }

    fn find(&self, hash: u64, filter: &[u8]) -> Option<u32> {
        self.index.find(hash, |number| {
            self.entries.get(number).filter.as_bytes() == filter
        })
    }

    /// Drops some filters of an index that is not used any more. How many; 0: none are left.
    pub(crate) fn drop_last(&mut self) -> usize {
        self.entries.drop_last()
    }

    /// Heap memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.heap_bytes() + self.index.heap_bytes() + self.heap
    }
}

fn hashes<R, O>(
    entries: &Dense<Entry<R, O>>,
    hashing: &Hashing,
) -> impl Iterator<Item = (u32, u64)> {
    entries
        .iter()
        .zip(0..)
        .map(|(entry, number)| (number, hashing.name(entry.filter.as_bytes())))
}
