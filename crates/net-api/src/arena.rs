//! A paged arena with generations.
//!
//! Invariant: a key handed out by [`Arena::insert`] finds its value until that value is removed, and
//! never finds another one that later moved into the same slot. Pages are never moved or merged, so
//! growth copies nothing and wastes at most one page — unlike a doubling vector, which at a million
//! connections would hold room for another million.

/// Values per page. Small enough that a broker with a handful of clients stays small.
const PAGE: usize = 64;

/// Where a value stands in an [`Arena`], and which of the slot's successive values it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Key {
    /// Index of the slot.
    pub slot: u32,
    /// Counts the values that the slot has held; wraps at [`Key::GENERATIONS`].
    pub generation: u32,
}

impl Key {
    /// Generations are kept below this, so that a key fits 56 bits beside a loop's number.
    pub const GENERATIONS: u32 = 1 << 24;

    /// The key as one number: generation above, slot below.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The inverse of [`Key::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self {
            slot: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

#[derive(Debug)]
enum Content<T> {
    Occupied(T),
    /// The next free slot, if any.
    Free(Option<u32>),
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    content: Content<T>,
}

/// A map from [`Key`]s that it chooses to values.
#[derive(Debug)]
pub struct Arena<T> {
    pages: Vec<Vec<Slot<T>>>,
    free: Option<u32>,
    len: usize,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            free: None,
            len: 0,
        }
    }
}

impl<T> Arena<T> {
    /// How many values it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key that the next [`Arena::insert`] will return.
    #[must_use]
    pub fn next_key(&self) -> Key {
        match self.free {
            Some(slot) => {
                let generation = self.slot(slot).map_or(0, |s| s.generation);
                Key { slot, generation }
            }
            None => Key {
                slot: self.slots(),
                generation: 0,
            },
        }
    }

    /// Keeps a value.
    pub fn insert(&mut self, value: T) -> Key {
        let key = self.next_key();
        self.len += 1;
        if self.free.is_some() {
            if let Some(slot) = self.slot_mut(key.slot) {
                let before = std::mem::replace(&mut slot.content, Content::Occupied(value));
                if let Content::Free(next) = before {
                    self.free = next;
                }
            }
            return key;
        }
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        if let Some(page) = self.pages.last_mut() {
            page.push(Slot {
                generation: 0,
                content: Content::Occupied(value),
            });
        }
        key
    }

    /// The value of a key, unless it has been removed.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        match self.slot(key.slot)? {
            Slot {
                generation,
                content: Content::Occupied(value),
            } if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    /// The value of a key, unless it has been removed.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slot_mut(key.slot)? {
            Slot {
                generation,
                content: Content::Occupied(value),
            } if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    /// The key of the value in a slot, if there is one.
    #[must_use]
    pub fn key_in(&self, slot: u32) -> Option<Key> {
        match self.slot(slot)? {
            Slot {
                generation,
                content: Content::Occupied(_),
            } => Some(Key {
                slot,
                generation: *generation,
            }),
            Slot { .. } => None,
        }
    }

    /// Takes a value out. Its key finds nothing from now on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let next = self.free;
        let slot = self.slot_mut(key.slot)?;
        let before = std::mem::replace(&mut slot.content, Content::Free(next));
        slot.generation = (slot.generation + 1) % Key::GENERATIONS;
        self.free = Some(key.slot);
        self.len -= 1;
        match before {
            Content::Occupied(value) => Some(value),
            Content::Free(_) => None,
        }
    }

    /// The keys of all values, in no stated order.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.pages
            .iter()
            .flatten()
            .enumerate()
            .filter_map(|(index, slot)| match slot.content {
                Content::Occupied(_) => Some(Key {
                    slot: u32::try_from(index).ok()?,
                    generation: slot.generation,
                }),
                Content::Free(_) => None,
            })
    }

    /// How many slots there are, free ones included: every key's slot is below this. It never falls.
    #[must_use]
    pub fn slots(&self) -> u32 {
        let full = self.pages.len().saturating_sub(1) * PAGE;
        u32::try_from(full + self.pages.last().map_or(0, Vec::len)).unwrap_or(u32::MAX)
    }

    fn slot(&self, slot: u32) -> Option<&Slot<T>> {
        self.pages
            .get(slot as usize / PAGE)?
            .get(slot as usize % PAGE)
    }

    fn slot_mut(&mut self, slot: u32) -> Option<&mut Slot<T>> {
        self.pages
            .get_mut(slot as usize / PAGE)?
            .get_mut(slot as usize % PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_never_finds_its_successor() {
        let mut arena = Arena::default();
        let keys: Vec<Key> = (0..200).map(|n| arena.insert(n)).collect();
        assert_eq!(arena.len(), 200);
        assert_eq!(arena.remove(keys[70]), Some(70));
        assert_eq!(arena.remove(keys[70]), None);
        let expected = arena.next_key();
        let successor = arena.insert(1000);
        assert_eq!(successor, expected);
        assert_eq!(successor.slot, keys[70].slot);
        assert_eq!(arena.get(keys[70]), None);
        assert_eq!(arena.get(successor), Some(&1000));
        assert_eq!(arena.keys().count(), 200);
        assert_eq!(arena.slots(), 200);
        let by_slot = (0..arena.slots()).filter_map(|slot| arena.key_in(slot));
        assert!(by_slot.eq(arena.keys()));
        assert_eq!(Key::from_bits(successor.to_bits()), successor);
    }
}
