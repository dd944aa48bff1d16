//! Which rows of the tables may have to be written at the next checkpoint.
//!
//! Invariant: for a machine that holds all its rows in memory, a row is in the tables exactly if it
//! existed at the last checkpoint. So noting whether it existed when it was first touched since then
//! says whether the tables have it.
//!
//! Deliberately absent: the rows. What a row is in the end, the machine looks up when it is asked.

use std::hash::Hash;

use hashbrown::{HashMap, hash_map::Entry};

use crate::Changes;

/// The rows touched since the last checkpoint, in no order.
#[derive(Debug)]
pub(crate) struct Touched<K> {
    rows: HashMap<K, Touch>,
    /// Of all `rows`.
    bytes: usize,
    /// Of those that are being written.
    collected: usize,
}

#[derive(Debug)]
struct Touch {
    in_tables: bool,
    bytes: usize,
}

/// Estimated for each touched row beside its own bytes.
const OVERHEAD: usize = 64;

impl<K: Eq + Hash> Touched<K> {
    pub(crate) fn new() -> Self {
        Self {
            rows: HashMap::new(),
            bytes: 0,
            collected: 0,
        }
    }

    /// A row is about to change: whether it exists until now, and its estimated bytes afterwards.
    pub(crate) fn touch(&mut self, key: K, exists: bool, bytes: usize) {
        let bytes = bytes + OVERHEAD;
        self.bytes += bytes;
        match self.rows.entry(key) {
            Entry::Occupied(mut touch) => {
                self.bytes -= std::mem::replace(&mut touch.get_mut().bytes, bytes);
            }
            Entry::Vacant(place) => {
                place.insert(Touch {
                    in_tables: exists,
                    bytes,
                });
            }
        }
    }

    /// Begins a checkpoint: `row` says the key in the tables, and the value if the row exists.
    pub(crate) fn collect(
        &mut self,
        changes: &mut Changes,
        row: impl Fn(&K) -> (Vec<u8>, Option<Vec<u8>>),
    ) {
        self.collected = std::mem::take(&mut self.bytes);
        for (key, touch) in std::mem::take(&mut self.rows) {
            match (row(&key), touch.in_tables) {
                ((key, Some(value)), _) => changes.put(key, value),
                ((key, None), true) => changes.delete(key),
                ((_, None), false) => {}
            }
        }
    }

    /// What was collected is in the tables.
    pub(crate) fn saved(&mut self) {
        self.collected = 0;
    }

    /// Estimated bytes that the tables do not have yet.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.collected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_changes_only() {
        let mut touched = Touched::new();
        for (name, exists) in [("came and went", false), ("came", false), ("went", true)] {
            touched.touch(name, exists, 1);
            touched.touch(name, !exists, 1);
        }
        touched.touch("changed", true, 1);
        let mut changes = Changes::default();
        touched.collect(&mut changes, |name| {
            let exists = ["came", "changed"].contains(name);
            (name.as_bytes().to_vec(), exists.then(|| b"value".to_vec()))
        });
        let value = || Some(b"value".to_vec());
        let expected = [
            (b"came".to_vec(), value()),
            (b"changed".to_vec(), value()),
            (b"went".to_vec(), None),
        ];
        changes.entries.sort();
        assert_eq!(changes.entries, expected);
        let mut changes = Changes::default();
        touched.collect(&mut changes, |_| (Vec::new(), None));
        assert_eq!(changes.entries, []);
    }

    #[test]
    fn bytes_are_those_of_the_last_touch_and_stay_until_saved() {
        let mut touched = Touched::new();
        touched.touch("a", false, 1_000);
        touched.touch("a", true, 10);
        assert_eq!(touched.bytes(), 10 + OVERHEAD);
        touched.collect(&mut Changes::default(), |_| (Vec::new(), None));
        touched.touch("b", false, 20);
        assert_eq!(touched.bytes(), 30 + 2 * OVERHEAD);
        touched.saved();
        assert_eq!(touched.bytes(), 20 + OVERHEAD);
    }
}
