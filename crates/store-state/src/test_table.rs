//! A table in memory, for tests.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::{Changes, Table, TableError};

/// Sorted keys and values.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestTable {
    /// What it holds.
    pub(crate) rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl TestTable {
    /// Writes what a checkpoint hands out, and checks that these are net changes.
    pub(crate) fn write(&mut self, changes: &Changes) {
        let mut keys: Vec<_> = changes.entries.iter().map(|(key, _)| key).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), changes.entries.len(), "a key stands once");
        for (key, value) in &changes.entries {
            match value {
                Some(value) => {
                    self.rows.insert(key.clone(), value.clone());
                }
                None => assert!(
                    self.rows.remove(key).is_some(),
                    "what is removed was written"
                ),
            }
        }
    }

    /// Moves a value to another key.
    pub(crate) fn rename(&mut self, from: &[u8], to: Vec<u8>) {
        let value = self.rows.remove(from).expect("the row is there");
        self.rows.insert(to, value);
    }

    /// The keys of a kind, in order.
    pub(crate) fn keys_of(&self, kind: u8) -> Vec<Vec<u8>> {
        let keys = self.rows.keys().filter(|key| key[0] == kind);
        keys.cloned().collect()
    }

    /// The number of rows of a kind.
    pub(crate) fn rows_of(&self, kind: u8) -> usize {
        self.rows.keys().filter(|key| key[0] == kind).count()
    }
}

impl Table for TestTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        Ok(self.rows.get(key).cloned())
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TableError> {
        for (key, value) in self.rows.range(from.to_vec()..to.to_vec()) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}
