//! A table that strangers fill: bounded, the least recently seen forgotten.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZero;

use lru::LruCache;
use parking_lot::Mutex;

/// Independent parts, so that loops seldom wait for each other. Each forgets for itself: under a flood, what
/// is remembered is what was seen last in its part.
const PARTS: usize = 16;

pub(crate) struct Tracked<K, V> {
    hasher: RandomState,
    parts: [Mutex<LruCache<K, V>>; PARTS],
}

impl<K: Hash + Eq, V: Default> Tracked<K, V> {
    /// Remembers about `limit` entries at most.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = NonZero::new(limit.div_ceil(PARTS)).unwrap_or(NonZero::<usize>::MIN);
        Self {
            hasher: RandomState::new(),
            parts: std::array::from_fn(|_| Mutex::new(LruCache::sparse(limit))),
        }
    }

    /// Changes an entry, which begins with the default.
    pub(crate) fn with<R>(&self, key: K, change: impl FnOnce(&mut V) -> R) -> R {
        let mut part = self.part(&key).lock();
        change(part.get_or_insert_mut(key, V::default))
    }

    /// Changes an entry if there is one.
    pub(crate) fn change<R>(&self, key: &K, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.part(key).lock().get_mut(key).map(change)
    }

    /// Whether something holds for an entry. It does not if there is none.
    pub(crate) fn look(&self, key: &K, holds: impl FnOnce(&V) -> bool) -> bool {
        self.part(key).lock().get(key).is_some_and(holds)
    }

    /// Changes an entry if there is one, and forgets it if it then says nothing.
    pub(crate) fn settle(
        &self,
        key: &K,
        change: impl FnOnce(&mut V),
        says_nothing: fn(&V) -> bool,
    ) {
        let mut part = self.part(key).lock();
        if let Some(value) = part.get_mut(key) {
            change(value);
            if says_nothing(value) {
                part.pop(key);
            }
        }
    }

    /// Forgets an entry.
    pub(crate) fn forget(&self, key: &K) {
        self.part(key).lock().pop(key);
    }

    /// Changes all entries.
    pub(crate) fn change_all(&self, mut change: impl FnMut(&mut V)) {
        for part in &self.parts {
            part.lock().iter_mut().for_each(|(_, value)| change(value));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }

    fn part(&self, key: &K) -> &Mutex<LruCache<K, V>> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }
}

impl<K: Hash + Eq, V: Default> fmt::Debug for Tracked<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tracked({})", self.len())
    }
}
