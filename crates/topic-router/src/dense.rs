//! A list without gaps, and the hash index that finds its items by number.
//!
//! Invariant: items live in chunks of equal size and only the last one may be partly filled, so growth
//! never copies the list and never doubles its memory. The hash table holds four-byte numbers, so the
//! free slots that doubling leaves in it (half of them at worst) cost 5 bytes each, not a whole entry.

use hashbrown::HashTable;

/// Items per chunk; a power of two, so that addressing is shift and mask.
const CHUNK: usize = 1024;

/// A list that is appended to and removed from by moving the last item into the gap.
#[derive(Debug)]
pub(crate) struct Dense<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Dense<T> {
    pub(crate) fn new() -> Self {
        Dense { chunks: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks
            .last()
            .map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    pub(crate) fn push(&mut self, item: T) -> u32 {
        let number = u32::try_from(self.len()).expect("an index holds fewer than 2^32 filters");
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => {
                // Only the first chunk comes here without room: it grows by doubling, so that a small
                // index stays small.
                last.push(item);
            }
            before => {
                let room = if before.is_some() { CHUNK } else { 4 };
                let mut chunk = Vec::with_capacity(room);
                chunk.push(item);
                self.chunks.push(chunk);
            }
        }
        number
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> &T {
        let number = number as usize;
        &self.chunks[number / CHUNK][number % CHUNK]
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        let number = number as usize;
        &mut self.chunks[number / CHUNK][number % CHUNK]
    }

    /// Removes an item; the last item takes its number.
    pub(crate) fn swap_remove(&mut self, number: u32) -> T {
        let chunk = self
            .chunks
            .last_mut()
            .expect("a numbered item stands in a chunk");
        let last = chunk.pop().expect("no chunk is empty");
        if chunk.is_empty() {
            self.chunks.pop();
            if self.chunks.len() * 4 < self.chunks.capacity() {
                self.chunks.shrink_to(self.chunks.len() * 2);
            }
        }
        if number as usize == self.len() {
            last
        } else {
            core::mem::replace(self.get_mut(number), last)
        }
    }

    /// Drops the last items, up to a chunk of them. How many there were; 0: none are left.
    pub(crate) fn drop_last(&mut self) -> usize {
        self.chunks.pop().map_or(0, |chunk| chunk.len())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// Heap memory held, in bytes, without that of the items.
    pub(crate) fn heap_bytes(&self) -> usize {
        let full = self.chunks.len().saturating_sub(1) * CHUNK;
        let last = self.chunks.last().map_or(0, Vec::capacity);
        (full + last) * size_of::<T>() + self.chunks.capacity() * size_of::<Vec<T>>()
    }
}

/// Finds numbers by the hash of what they number.
#[derive(Debug)]
pub(crate) struct Index {
    table: HashTable<u32>,
}

impl Index {
    pub(crate) fn new() -> Self {
        Index {
            table: HashTable::new(),
        }
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        self.table.find(hash, |&number| is(number)).copied()
    }

    /// Adds a number. `all` lists every number with its hash, this one not included; it is asked for
    /// only when the table must grow.
    pub(crate) fn insert<I: Iterator<Item = (u32, u64)>>(
        &mut self,
        hash: u64,
        number: u32,
        all: impl FnOnce() -> I,
    ) {
        if self.table.len() == self.table.capacity() {
            // An eighth more than full: always a table of at least that much room, even if graves of
            // removed numbers, not numbers, have filled this one.
            self.rebuild(self.table.len() + self.table.len() / 8 + 1, all());
        }
        self.table
            .insert_unique(hash, number, |_| unreachable!("the table has room"));
    }

    /// Removes a number. `all` lists every remaining number with its hash.
    pub(crate) fn remove<I: Iterator<Item = (u32, u64)>>(
        &mut self,
        hash: u64,
        number: u32,
        all: impl FnOnce() -> I,
    ) {
        if let Ok(entry) = self.table.find_entry(hash, |&n| n == number) {
            entry.remove();
        }
        // By buckets, since graves take capacity but hold nothing.
        if self.table.len() * 5 < self.table.num_buckets() {
            self.rebuild(self.table.len() * 2, all());
        }
    }

    /// Puts `new` in the place of `old`, which has the same hash.
    pub(crate) fn renumber(&mut self, hash: u64, old: u32, new: u32) {
        *self
            .table
            .find_mut(hash, |&n| n == old)
            .expect("an item stands in its index") = new;
    }

    /// Fills a new table in the order of the numbers: reading the items in sequence is several times
    /// faster than in the order of a table, which is what its own growth would do.
    fn rebuild(&mut self, capacity: usize, all: impl Iterator<Item = (u32, u64)>) {
        let mut table = HashTable::with_capacity(capacity);
        all.for_each(|(number, hash)| {
            table.insert_unique(hash, number, |_| unreachable!("the table has room"));
        });
        self.table = table;
    }

    /// Heap memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.table.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_moves_the_last_item_and_frees_chunks() {
        let mut list = Dense::new();
        (0..5000u32).for_each(|i| assert_eq!(list.push(i), i));
        let full = list.heap_bytes();
        assert_eq!(list.swap_remove(10), 10);
        assert_eq!((*list.get(10), list.len()), (4999, 4999));
        assert_eq!(list.swap_remove(4998), 4998, "the last item moves nowhere");
        for _ in 0..4998 {
            list.swap_remove(0);
        }
        assert_eq!(list.len(), 0);
        assert!(list.heap_bytes() < full / 100);
    }

    #[test]
    fn index_follows_growth_churn_and_shrinking() {
        let hash = |n: u32| u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut index = Index::new();
        for n in 0..10_000u32 {
            index.insert(hash(n), n, || (0..n).map(|n| (n, hash(n))));
        }
        let full = index.heap_bytes();
        for n in 0..10_000u32 {
            assert_eq!(index.find(hash(n), |m| m == n), Some(n));
            index.remove(hash(n), n, || (n + 1..10_000).map(|n| (n, hash(n))));
            assert_eq!(index.find(hash(n), |m| m == n), None);
        }
        assert!(index.heap_bytes() < full / 100);
    }
}
