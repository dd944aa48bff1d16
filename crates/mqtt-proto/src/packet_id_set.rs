//! Sets of packet identifiers.
//!
//! Invariants: pages are sorted by number, and none is empty. Memory is in proportion to what is in the set, and
//! at most 10 KiB; adding, removing and finding an identifier looks at no other one.

use crate::PacketId;

/// Identifiers of a page: those that have the upper byte in common.
const PAGE: usize = 256;
const WORDS: usize = PAGE / 64;

/// Packet identifiers, each once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketIdSet {
    pages: Vec<Page>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Page {
    number: u8,
    ids: [u64; WORDS],
}

/// Where an identifier stands: its page, the word in that, its bit in the word.
const fn place(id: PacketId) -> (u8, usize, u64) {
    let [page, low] = id.get().to_be_bytes();
    (page, low as usize / 64, 1 << (low % 64))
}

impl Page {
    fn ids(&self) -> impl Iterator<Item = PacketId> {
        let number = self.number;
        (0u8..).zip(self.ids).flat_map(move |(word, mut bits)| {
            std::iter::from_fn(move || {
                let low = (bits != 0).then(|| word * 64 + bits.trailing_zeros() as u8)?;
                bits &= bits - 1;
                PacketId::new(u16::from_be_bytes([number, low]))
            })
        })
    }
}

impl PacketIdSet {
    /// No identifiers.
    #[must_use]
    pub const fn new() -> Self {
        Self { pages: Vec::new() }
    }

    fn find(&self, number: u8) -> Result<usize, usize> {
        self.pages.binary_search_by_key(&number, |page| page.number)
    }

    /// Adds an identifier. False: it was there.
    pub fn insert(&mut self, id: PacketId) -> bool {
        let (number, word, bit) = place(id);
        let index = self.find(number).unwrap_or_else(|index| {
            if self.pages.is_empty() {
                // Most sets have one page at most.
                self.pages.reserve_exact(1);
            }
            let ids = [0; WORDS];
            self.pages.insert(index, Page { number, ids });
            index
        });
        let word = self.pages.get_mut(index).and_then(|p| p.ids.get_mut(word));
        word.is_some_and(|word| {
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        })
    }

    /// Removes an identifier. False: it was not there.
    pub fn remove(&mut self, id: PacketId) -> bool {
        let (number, word, bit) = place(id);
        let Ok(index) = self.find(number) else {
            return false;
        };
        let Some(page) = self.pages.get_mut(index) else {
            return false;
        };
        let found = page.ids.get_mut(word).is_some_and(|word| {
            let found = *word & bit != 0;
            *word &= !bit;
            found
        });
        if page.ids == [0; WORDS] {
            self.pages.remove(index);
        }
        found
    }

    /// Whether an identifier is in the set.
    #[must_use]
    pub fn contains(&self, id: PacketId) -> bool {
        let (number, word, bit) = place(id);
        let page = self.find(number).ok().and_then(|at| self.pages.get(at));
        let word = page.and_then(|page| page.ids.get(word));
        word.is_some_and(|word| word & bit != 0)
    }

    /// Whether all identifiers of another set are in this one. Looks at no single identifier.
    #[must_use]
    pub fn contains_all(&self, other: &Self) -> bool {
        other.pages.iter().all(|theirs| {
            let ours = self.find(theirs.number).ok();
            let ours = ours.and_then(|index| self.pages.get(index));
            let pairs = |ours: &Page| ours.ids.into_iter().zip(theirs.ids);
            ours.is_some_and(|ours| pairs(ours).all(|(ours, theirs)| theirs & !ours == 0))
        })
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let words = self.pages.iter().flat_map(|page| page.ids);
        words.map(|word| word.count_ones() as usize).sum()
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = PacketId> {
        self.pages.iter().flat_map(Page::ids)
    }

    /// Those with this upper byte, ascending.
    pub fn of_page(&self, number: u8) -> impl Iterator<Item = PacketId> {
        let page = self.find(number).ok().and_then(|at| self.pages.get(at));
        page.into_iter().flat_map(Page::ids)
    }

    /// The upper bytes of all of them, ascending, each once.
    pub fn pages(&self) -> impl Iterator<Item = u8> {
        self.pages.iter().map(|page| page.number)
    }

    /// Bytes that it has allocated.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Page>()
    }

    /// Frees what it does not need.
    pub fn shrink_to_fit(&mut self) {
        self.pages.shrink_to_fit();
    }
}

impl Extend<PacketId> for PacketIdSet {
    fn extend<I: IntoIterator<Item = PacketId>>(&mut self, ids: I) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl FromIterator<PacketId> for PacketIdSet {
    fn from_iter<I: IntoIterator<Item = PacketId>>(ids: I) -> Self {
        let mut set = Self::new();
        set.extend(ids);
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn id(id: u16) -> PacketId {
        PacketId::new(id).unwrap()
    }

    #[test]
    fn memory_is_in_proportion() {
        let mut set = PacketIdSet::new();
        assert_eq!(set.heap_bytes(), 0);
        set.insert(id(1));
        assert_eq!(set.heap_bytes(), size_of::<Page>());
        set.extend((1..=u16::MAX).map(id));
        set.shrink_to_fit();
        assert_eq!(set.len(), 65_535);
        assert!(set.heap_bytes() <= 10 * 1024);
        for n in 1..=u16::MAX {
            assert!(set.remove(id(n)));
        }
        set.shrink_to_fit();
        assert_eq!(set.heap_bytes(), 0);
    }

    fn ids() -> impl Strategy<Value = Vec<(bool, u16)>> {
        let id = prop_oneof![1..=520u16, 65_000..=u16::MAX, 1..=u16::MAX];
        prop::collection::vec((any::<bool>(), id), 0..200)
    }

    proptest! {
        #[test]
        fn it_does_as_a_sorted_set_does(steps in ids(), other in ids()) {
            let (mut set, mut model) = (PacketIdSet::new(), BTreeSet::new());
            for (is_added, n) in steps {
                if is_added {
                    prop_assert_eq!(set.insert(id(n)), model.insert(id(n)));
                } else {
                    prop_assert_eq!(set.remove(id(n)), model.remove(&id(n)));
                }
                prop_assert_eq!(set.contains(id(n)), is_added);
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
            let by_page = set.pages().flat_map(|page| set.of_page(page));
            prop_assert!(by_page.eq(model.iter().copied()));
            let other: BTreeSet<_> = other.into_iter().map(|(_, n)| id(n)).collect();
            let all: PacketIdSet = other.iter().copied().collect();
            prop_assert_eq!(set.contains_all(&all), model.is_superset(&other));
            prop_assert!(set.contains_all(&set.clone()) && set.contains_all(&PacketIdSet::new()));
        }
    }
}
