//! Which rows of the tables may have to be written at the next checkpoint.
//!
//! Invariant: for a machine that holds all its rows in memory, a row is in the tables exactly if it
//! existed at the last checkpoint. So noting whether it existed when it was first touched since then
//! says whether the tables have it.
//!
//! Deliberately absent: the rows. What a row is in the end, the machine looks up when it is asked.

use std::hash::Hash;

use hashbrown::{Equivalent, hash_map::Entry};
use hashing::HashMap;

use crate::{Changes, partition};

/// The rows touched since the last checkpoint, in no order.
///
/// A checkpoint hands them out in parts, as they were when it began: [`Touched::settle`] is to be called
/// before a row changes, and hands it out ahead of its turn.
#[derive(Debug)]
pub(crate) struct Touched<K> {
    rows: HashMap<K, Touch>,
    /// The keys of `rows`.
    keys: Vec<K>,
    /// Of all `rows`.
    bytes: usize,
    /// Rows that the checkpoint has yet to hand out.
    due: HashMap<K, Touch>,
    /// The keys of `due`, and some that were handed out ahead of their turn.
    due_keys: Vec<K>,
    /// What was handed out ahead of its turn.
    early: Changes,
    /// Of those that are being written.
    collected: usize,
    /// A checkpoint has begun, and its rows are not in the tables yet.
    in_checkpoint: bool,
}

#[derive(Clone, Copy, Debug)]
struct Touch {
    in_tables: bool,
    bytes: usize,
}

/// Estimated for each touched row beside its own bytes.
const OVERHEAD: usize = 64;

/// A key in the tables, and the value if the row exists.
type Row = (Vec<u8>, Option<Vec<u8>>);

impl<K: Clone + Eq + Hash> Touched<K> {
    pub(crate) fn new() -> Self {
        Self {
            rows: HashMap::default(),
            keys: Vec::new(),
            bytes: 0,
            due: HashMap::default(),
            due_keys: Vec::new(),
            early: Changes::default(),
            collected: 0,
            in_checkpoint: false,
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
                self.keys.push(place.key().clone());
                place.insert(Touch {
                    in_tables: exists,
                    bytes,
                });
            }
        }
    }

    /// The same rows, for another half that writes them as well.
    ///
    /// # Panics
    /// A checkpoint is under way.
    pub(crate) fn split(&self) -> Self {
        assert!(!self.in_checkpoint, "no split within a checkpoint");
        Self {
            rows: self.rows.clone(),
            keys: self.keys.clone(),
            bytes: self.bytes,
            ..Self::new()
        }
    }

    /// Begins a checkpoint of the rows as they are now.
    pub(crate) fn begin(&mut self) {
        self.in_checkpoint = true;
        self.collected = std::mem::take(&mut self.bytes);
        self.due = std::mem::take(&mut self.rows);
        self.due_keys = std::mem::take(&mut self.keys);
    }

    /// A row is about to change: it is handed out now if the checkpoint has yet to do so.
    pub(crate) fn settle(
        &mut self,
        key: &(impl Equivalent<K> + Hash + ?Sized),
        row: impl Fn(&K) -> Row,
    ) {
        if let Some((key, touch)) = self.due.remove_entry(key) {
            touch.hand_out(row(&key), &mut self.early);
        }
    }

    /// Hands out about so many rows. True: those were the last.
    pub(crate) fn collect_part(
        &mut self,
        rows: usize,
        changes: &mut Changes,
        row: impl Fn(&K) -> Row,
    ) -> bool {
        changes.append(&mut self.early);
        let first = self.due_keys.len().saturating_sub(rows);
        for key in self.due_keys.drain(first..) {
            if let Some(touch) = self.due.remove(&key) {
                touch.hand_out(row(&key), changes);
            }
        }
        let is_all = self.due_keys.is_empty();
        if is_all {
            self.due = HashMap::default();
            self.due_keys = Vec::new();
        }
        is_all
    }

    /// Begins a checkpoint and hands out all rows.
    pub(crate) fn collect(&mut self, changes: &mut Changes, row: impl Fn(&K) -> Row) {
        self.begin();
        self.collect_part(usize::MAX, changes, row);
    }

    /// What was collected is in the tables.
    pub(crate) fn saved(&mut self) {
        self.collected = 0;
        self.in_checkpoint = false;
    }

    /// Takes out the rows that belong to the child of a split. The child's tables have the rows that the tables of the
    /// whole had.
    ///
    /// # Panics
    /// A checkpoint is under way: the tables that the child gets do not have its rows.
    pub(crate) fn split_off(&mut self, is_childs: impl Fn(&K) -> bool) -> Self {
        assert!(!self.in_checkpoint, "no split within a checkpoint");
        let mut child = Self::new();
        child.rows = partition::hash_map(&mut self.rows, &is_childs);
        child.keys = self.keys.extract_if(.., |key| is_childs(key)).collect();
        child.bytes = child.rows.values().map(|touch| touch.bytes).sum();
        self.bytes -= child.bytes;
        child
    }

    /// Estimated bytes that the tables do not have yet.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.collected
    }
}

impl Touch {
    /// Nothing is to be written of a row that came and went.
    fn hand_out(&self, row: Row, changes: &mut Changes) {
        match (row, self.in_tables) {
            ((key, Some(value)), _) => changes.put(key, value),
            ((key, None), true) => changes.delete(key),
            ((_, None), false) => {}
        }
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
    fn a_checkpoint_in_parts_is_of_the_moment_when_it_began() {
        let mut touched = Touched::new();
        for name in ["first", "second", "third"] {
            touched.touch(name, false, 1);
        }
        let row = |value: u8| move |name: &&str| (name.as_bytes().to_vec(), Some(vec![value]));
        touched.begin();
        let mut changes = Changes::default();
        assert!(!touched.collect_part(1, &mut changes, row(1)));
        for name in ["first", "second", "third"] {
            touched.settle(&name, row(1));
            touched.touch(name, true, 1);
        }
        while !touched.collect_part(1, &mut changes, row(2)) {}
        let of = |name: &str, value| (name.as_bytes().to_vec(), Some(vec![value]));
        changes.entries.sort();
        assert_eq!(
            changes.entries,
            [of("first", 1), of("second", 1), of("third", 1)]
        );
        touched.saved();
        let mut next = Changes::default();
        touched.collect(&mut next, row(2));
        assert_eq!(next.entries.len(), 3);
    }

    #[test]
    fn each_half_of_a_split_hands_out_its_own_rows() {
        let mut touched = Touched::new();
        for (name, exists) in [("a new", false), ("a gone", true), ("b new", false)] {
            touched.touch(name, exists, 10);
        }
        touched.touch("b gone", true, 0);
        let mut child = touched.split_off(|name| name.starts_with('b'));
        assert_eq!(touched.bytes(), 20 + 2 * OVERHEAD);
        assert_eq!(child.bytes(), 10 + 2 * OVERHEAD);
        for (half, new, gone) in [
            (&mut touched, "a new", "a gone"),
            (&mut child, "b new", "b gone"),
        ] {
            let mut changes = Changes::default();
            half.collect(&mut changes, |name| {
                let value = name.ends_with("new").then(|| b"value".to_vec());
                (name.as_bytes().to_vec(), value)
            });
            changes.entries.sort();
            let gone = (gone.as_bytes().to_vec(), None);
            let new = (new.as_bytes().to_vec(), Some(b"value".to_vec()));
            assert_eq!(changes.entries, [gone, new]);
        }
    }

    #[test]
    #[should_panic(expected = "no split within a checkpoint")]
    fn a_split_waits_for_the_tables() {
        let mut touched = Touched::<u8>::new();
        touched.collect(&mut Changes::default(), |_| (Vec::new(), None));
        let _ = touched.split_off(|_| true);
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
