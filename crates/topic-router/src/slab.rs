//! Items with numbers that stay the same as long as the item lives.
//!
//! Invariant: a chunk without live items holds no memory; new items go to the lowest chunk with room,
//! so that the upper chunks empty and memory follows the contents down.

use std::collections::BTreeSet;

/// Items per chunk: small enough that chunks do become empty, large enough that their heads (40 bytes)
/// do not count.
const CHUNK: usize = 256;

/// A store of numbered items.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// The chunks with room.
    open: BTreeSet<u32>,
    len: usize,
    capacity: usize,
}

#[derive(Debug)]
struct Chunk<T> {
    slots: Vec<Slot<T>>,
    /// The head of the list of vacant slots; `slots.len()` if there is none.
    vacant: u32,
    live: u32,
}

#[derive(Debug)]
enum Slot<T> {
    Vacant { next: u32 },
    Live(T),
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab {
            chunks: Vec::new(),
            open: BTreeSet::new(),
            len: 0,
            capacity: 0,
        }
    }

    /// Drops the items with the highest numbers, up to a chunk of them, of a store that is not used any more. How many
    /// there were room for; 0: none are left.
    pub(crate) fn drop_last(&mut self) -> usize {
        self.chunks.pop().map_or(0, |_| CHUNK)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn insert(&mut self, item: T) -> u32 {
        let at = *self.open.first().unwrap_or(&(self.chunks.len() as u32));
        if at as usize == self.chunks.len() {
            // The highest number is left free for the caller's use.
            assert!(
                at < u32::MAX / CHUNK as u32,
                "an index holds fewer than 2^32 nodes"
            );
            self.chunks.push(Chunk {
                slots: Vec::new(),
                vacant: 0,
                live: 0,
            });
            self.open.insert(at);
        }
        let chunk = &mut self.chunks[at as usize];
        let slot = chunk.vacant as usize;
        match chunk.slots.get_mut(slot) {
            Some(place) => {
                let Slot::Vacant { next } = *place else {
                    panic!("the list of vacant slots names vacant slots only")
                };
                chunk.vacant = next;
                *place = Slot::Live(item);
            }
            None => {
                if slot == chunk.slots.capacity() {
                    // The first chunk grows by doubling, so that a small index stays small.
                    let more = if at > 0 { CHUNK } else { slot.max(4) };
                    chunk.slots.reserve_exact(more);
                    self.capacity += chunk.slots.capacity() - slot;
                }
                chunk.slots.push(Slot::Live(item));
                chunk.vacant += 1;
            }
        }
        chunk.live += 1;
        if chunk.live as usize == CHUNK {
            self.open.remove(&at);
        }
        self.len += 1;
        at * CHUNK as u32 + slot as u32
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> &T {
        match &self.chunks[number as usize / CHUNK].slots[number as usize % CHUNK] {
            Slot::Live(item) => item,
            Slot::Vacant { .. } => panic!("numbers of removed items are not used"),
        }
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        match &mut self.chunks[number as usize / CHUNK].slots[number as usize % CHUNK] {
            Slot::Live(item) => item,
            Slot::Vacant { .. } => panic!("numbers of removed items are not used"),
        }
    }

    pub(crate) fn remove(&mut self, number: u32) -> T {
        let at = number / CHUNK as u32;
        let chunk = &mut self.chunks[at as usize];
        let vacant = Slot::Vacant { next: chunk.vacant };
        let slot = core::mem::replace(&mut chunk.slots[number as usize % CHUNK], vacant);
        let Slot::Live(item) = slot else {
            panic!("an item is removed once")
        };
        chunk.vacant = number % CHUNK as u32;
        chunk.live -= 1;
        self.len -= 1;
        if chunk.live == 0 {
            self.capacity -= chunk.slots.capacity();
            *chunk = Chunk {
                slots: Vec::new(),
                vacant: 0,
                live: 0,
            };
        }
        if self.len == 0 {
            // An emptied tree set would keep a node.
            *self = Self::new();
            return item;
        }
        self.open.insert(at);
        while self.chunks.pop_if(|last| last.live == 0).is_some() {
            self.open.remove(&(self.chunks.len() as u32));
        }
        if self.chunks.len() * 4 < self.chunks.capacity() {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
        item
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.chunks.iter().enumerate().flat_map(|(at, chunk)| {
            chunk
                .slots
                .iter()
                .enumerate()
                .filter_map(move |(slot, content)| match content {
                    Slot::Live(item) => Some(((at * CHUNK + slot) as u32, item)),
                    Slot::Vacant { .. } => None,
                })
        })
    }

    /// Heap memory held, in bytes, without that of the items and of the short list of open chunks.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.capacity * size_of::<Slot<T>>() + self.chunks.capacity() * size_of::<Chunk<T>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_and_memory_returns() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..2000).map(|i| slab.insert(i)).collect();
        let full = slab.heap_bytes();
        for (i, &number) in numbers.iter().enumerate().filter(|(i, _)| i % 3 != 0) {
            assert_eq!(slab.remove(number), i);
        }
        for (i, &number) in numbers.iter().enumerate().filter(|(i, _)| i % 3 == 0) {
            assert_eq!(*slab.get(number), i);
        }
        assert!(slab.insert(7) < 256, "the lowest chunk is filled first");
        assert_eq!(slab.iter().count(), 668);
        let live: Vec<u32> = slab.iter().map(|(number, _)| number).collect();
        for number in live {
            slab.remove(number);
        }
        assert!(slab.is_empty() && slab.open.is_empty());
        assert!(slab.heap_bytes() < full / 100);
    }
}
