//! Things that are done in any order and answered in the order in which they were asked for.
//!
//! Invariant: what it costs to find one does not grow with those that wait. A few are looked through; of more,
//! an index says where they stand.

use std::collections::{BTreeMap, VecDeque};

/// So many are looked through.
const FEW: usize = 32;

/// What waits, oldest first, each found by a key, and whether it is done. Of one key, one at most is not done.
#[derive(Debug)]
pub(crate) struct InOrder<K, T = ()> {
    waiting: VecDeque<Waiting<K, T>>,
    /// How many have left.
    gone: u64,
    /// Of what waits, if that is more than a few; else empty.
    index: BTreeMap<K, Found>,
}

#[derive(Debug)]
struct Waiting<K, T> {
    key: K,
    item: T,
    done: bool,
}

/// What waits under one key.
#[derive(Debug, Default)]
struct Found {
    count: u32,
    /// The one that is not done, counted as [`InOrder::gone`] is.
    open: Option<u64>,
}

impl<K, T> Default for InOrder<K, T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            gone: 0,
            index: BTreeMap::new(),
        }
    }
}

impl<K: Copy + Ord, T> InOrder<K, T> {
    /// `done`: it only waits for those before it.
    pub(crate) fn push(&mut self, key: K, item: T, done: bool) {
        self.waiting.push_back(Waiting { key, item, done });
        if !self.index.is_empty() {
            self.note(self.waiting.len() - 1);
        } else if self.waiting.len() > FEW {
            for at in 0..self.waiting.len() {
                self.note(at);
            }
        }
    }

    fn note(&mut self, at: usize) {
        if let Some(waiting) = self.waiting.get(at) {
            let found = self.index.entry(waiting.key).or_default();
            found.count += 1;
            if !waiting.done {
                found.open = Some(self.gone + at as u64);
            }
        }
    }

    /// Whether anything waits under a key, done or not.
    pub(crate) fn contains(&self, key: K) -> bool {
        if self.index.is_empty() {
            self.waiting.iter().any(|waiting| waiting.key == key)
        } else {
            self.index.contains_key(&key)
        }
    }

    /// What waits under a key and is not done.
    pub(crate) fn open(&self, key: K) -> Option<&T> {
        let at = self.place(key)?;
        self.waiting.get(at).map(|waiting| &waiting.item)
    }

    fn place(&self, key: K) -> Option<usize> {
        if self.index.is_empty() {
            let is_it = |waiting: &Waiting<K, T>| waiting.key == key && !waiting.done;
            return self.waiting.iter().position(is_it);
        }
        let open = self.index.get(&key)?.open?;
        usize::try_from(open - self.gone).ok()
    }

    /// What waits under a key is done, and `change` is made to it. False: nothing waits that was not done.
    pub(crate) fn complete(&mut self, key: K, change: impl FnOnce(&mut T)) -> bool {
        let place = self.place(key);
        let Some(waiting) = place.and_then(|at| self.waiting.get_mut(at)) else {
            return false;
        };
        waiting.done = true;
        change(&mut waiting.item);
        if let Some(found) = self.index.get_mut(&key) {
            found.open = None;
        }
        true
    }

    /// Takes the oldest if it is done.
    pub(crate) fn pop_done(&mut self) -> Option<(K, T)> {
        let Waiting { key, item, .. } = self.waiting.pop_front_if(|waiting| waiting.done)?;
        self.gone += 1;
        if let Some(found) = self.index.get_mut(&key) {
            found.count -= 1;
            if found.count == 0 {
                self.index.remove(&key);
            }
        }
        if self.waiting.len() <= FEW / 2 {
            self.index = BTreeMap::new();
        }
        Some((key, item))
    }

    /// Takes all, oldest first; with each, whether it is done.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (K, T, bool)> + use<K, T> {
        let all = std::mem::take(self).waiting.into_iter();
        all.map(|waiting| (waiting.key, waiting.item, waiting.done))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Waiting<K, T>>()
            + self.index.len() * size_of::<(K, Found)>()
    }

    /// Frees what a drained queue keeps.
    pub(crate) fn shrink(&mut self) {
        self.waiting.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_leave_in_the_order_of_the_questions() {
        let mut in_order = InOrder::default();
        in_order.push(3, 'a', false);
        in_order.push(1, 'b', false);
        assert!(in_order.complete(1, |item| *item = 'c'));
        assert!(!in_order.complete(2, |_| {}));
        assert!(!in_order.complete(1, |_| {}), "it is done");
        assert_eq!(in_order.pop_done(), None);
        assert!(in_order.contains(1) && !in_order.contains(2));
        assert_eq!((in_order.open(3), in_order.open(1)), (Some(&'a'), None));
        in_order.complete(3, |_| {});
        assert_eq!(in_order.pop_done(), Some((3, 'a')));
        assert_eq!(in_order.pop_done(), Some((1, 'c')));
        assert_eq!(in_order.pop_done(), None);
    }

    #[test]
    fn many_are_found_as_few_are() {
        let mut in_order = InOrder::default();
        for key in 0..1_000u32 {
            in_order.push(key % 500, key, key < 500);
        }
        assert!(in_order.index.len() == 500, "they are not looked through");
        for key in (0..500).rev() {
            assert_eq!(in_order.open(key), Some(&(key + 500)));
            assert!(in_order.complete(key, |item| *item += 1));
            assert!(in_order.open(key).is_none() && in_order.contains(key));
        }
        for key in 0..1_000 {
            let item = if key < 500 { key } else { key + 1 };
            assert!(in_order.contains(key % 500));
            assert_eq!(in_order.pop_done(), Some((key % 500, item)));
            assert_eq!(in_order.contains(key % 500), key < 500);
        }
        assert!(in_order.is_empty() && in_order.index.is_empty());
    }
}
