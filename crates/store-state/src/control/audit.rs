//! The audited changes: the last ones in memory, all that are kept in the tables.
//!
//! Invariant: an entry that the tables may not have yet is in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use ::control::{Audited, ChainHash, EntryNumber, Recorded};

use super::rows::{Chain, EntryBytes, Row};
use crate::{Table, TableError, row};

/// Entries that stay in memory when the tables have them.
const RECENT: usize = if cfg!(test) { 4 } else { 1_000 };

/// Bytes of entries that are kept.
const MOST_BYTES: EntryBytes = EntryBytes(64 * 1_024 * 1_024);

/// The audit.
#[derive(Debug)]
pub(super) struct Audit {
    pub(super) chain: Chain,
    /// The last entries.
    recent: VecDeque<Arc<Recorded>>,
    /// Those before this one are in the tables.
    saved: EntryNumber,
    /// Those before this one are in the tables when the checkpoint is.
    collected: EntryNumber,
}

impl Default for Audit {
    fn default() -> Self {
        Self::load(Chain {
            first: EntryNumber(0),
            next: EntryNumber(0),
            bytes: EntryBytes(0),
            head: ChainHash::EMPTY,
        })
    }
}

impl Audit {
    /// As of the last checkpoint, nothing in memory.
    pub(super) fn load(chain: Chain) -> Self {
        Self {
            chain,
            recent: VecDeque::new(),
            saved: chain.next,
            collected: chain.next,
        }
    }

    /// Adds an entry: its number.
    pub(super) fn add(&mut self, entry: &Audited) -> EntryNumber {
        let recorded = entry.record(self.chain.head);
        let number = self.chain.next;
        self.chain.next = number.next();
        let bytes = recorded.bytes.len() as u64;
        self.chain.bytes.0 = self.chain.bytes.0.saturating_add(bytes);
        self.chain.head = recorded.hash;
        self.recent.push_back(Arc::new(recorded));
        self.forget();
        number
    }

    /// The entry that has to go so that no more than `most` are kept.
    pub(super) fn too_many(&self, most: usize) -> Option<EntryNumber> {
        let Chain {
            first, next, bytes, ..
        } = self.chain;
        let is_too_many = next.0 - first.0 > most as u64 || bytes > MOST_BYTES;
        (first < next && is_too_many).then_some(first)
    }

    /// The first entry is kept no longer.
    pub(super) fn cut(&mut self, table: &dyn Table) -> Result<(), TableError> {
        let first = self.chain.first;
        let entry = self.get(first, table)?;
        self.chain.first = first.next();
        // Damaged tables may say less.
        let bytes = entry.map_or(0, |entry| entry.bytes.len() as u64);
        self.chain.bytes.0 = self.chain.bytes.0.saturating_sub(bytes);
        Ok(())
    }

    /// An entry that is kept.
    pub(super) fn get(
        &self,
        number: EntryNumber,
        table: &dyn Table,
    ) -> Result<Option<Arc<Recorded>>, TableError> {
        if let Some(entry) = self.in_memory(number) {
            return Ok(Some(Arc::clone(entry)));
        }
        let key = Row::Audit(number).key();
        let value = table.get(&key)?;
        let entry = value.map(|value| row::decode(&key, &value)).transpose();
        let entry = entry.map_err(|error| TableError(error.to_string()))?;
        Ok(entry.map(Arc::new))
    }

    /// An entry that is in memory.
    pub(super) fn in_memory(&self, number: EntryNumber) -> Option<&Arc<Recorded>> {
        let first = self.chain.next.0 - self.recent.len() as u64;
        let index = number.0.checked_sub(first)?;
        self.recent.get(usize::try_from(index).ok()?)
    }

    /// A checkpoint begins.
    pub(super) fn begin(&mut self) {
        self.collected = self.chain.next;
    }

    /// The checkpoint is in the tables.
    pub(super) fn saved(&mut self) {
        self.saved = self.collected;
        self.forget();
    }

    fn forget(&mut self) {
        let in_memory = |audit: &Self| EntryNumber(audit.chain.next.0 - audit.recent.len() as u64);
        while self.recent.len() > RECENT && in_memory(self) < self.saved {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use ::control::{By, Means, Revision, Subject, UnixMs};

    use super::*;
    use crate::test_table::TestTable;

    #[test]
    fn the_last_entries_and_those_that_are_not_saved_are_in_memory() {
        let mut audit = Audit::default();
        let mut table = TestTable::default();
        let entry = |revision| Audited {
            revision: Revision(revision),
            at: UnixMs(1),
            by: By {
                means: Means::Token,
                name: "t".into(),
                address: None,
                node: ::control::Node(1),
            },
            subject: Subject::Rules,
            fields: [].into(),
        };
        for revision in 0..9 {
            audit.add(&entry(revision));
        }
        assert_eq!(audit.recent.len(), 9);
        audit.begin();
        for number in (0..9).map(EntryNumber) {
            let recorded = audit.in_memory(number).expect("it is not saved");
            let key = Row::Audit(number).key();
            table.rows.insert(key, row::encode(&**recorded));
        }
        audit.add(&entry(9));
        assert_eq!(audit.recent.len(), 10);
        audit.saved();
        assert_eq!(audit.recent.len(), RECENT);
        for number in (0..10).map(EntryNumber) {
            assert!(audit.get(number, &table).unwrap().is_some(), "{number:?}");
        }
        let bytes = audit.chain.bytes;
        audit.cut(&table).unwrap();
        assert!(audit.chain.bytes < bytes && audit.chain.first == EntryNumber(1));
    }
}
