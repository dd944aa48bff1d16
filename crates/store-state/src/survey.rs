//! What the rows of a shard's tables are, and which of them are wrong.
//!
//! Purpose: a machine reads the rows that it needs and refuses at the first that is damaged; a survey
//! reads all, goes on, and compares rows that must agree. For people who look at a store, not for
//! operation.
//!
//! Invariant: what a machine writes has no findings.
//!
//! Deliberately absent: repair. What is wrong was not written by a machine, so nothing here can say what
//! it should be.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::{DESCRIPTOR_KEY, Descriptor, LEVEL_KEY, Level, LoadError, Slots, Table, row};

/// Findings of one shard that are kept; the others are only counted.
const FINDINGS_KEPT: usize = 100;

/// The fullest inboxes that are named.
const FULLEST_NAMED: usize = 10;

/// The kind of the row of a descriptor.
const DESCRIPTOR: u8 = b'D';

/// The kind of the row of a level.
const LEVEL: u8 = b'V';

/// What the tables of one shard hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// The rows, by kind.
    pub rows: Vec<Rows>,
    /// The inboxes with the most queued messages, most first: at most 10, none that is empty.
    pub fullest: Vec<FullInbox>,
    /// What is wrong: the first 100 findings.
    pub findings: Vec<WrongRow>,
    /// How many findings there are in all.
    pub found: u64,
}

/// The rows of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Rows {
    /// What they are.
    pub kind: &'static str,
    /// How many.
    pub rows: u64,
    /// Bytes of their keys and values, before compression.
    pub bytes: u64,
}

/// How much an inbox has queued.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FullInbox {
    /// Whose.
    pub client: String,
    /// Messages queued.
    pub messages: u64,
    /// Their bytes, as limits count them.
    pub bytes: u64,
    /// The time before which none of them came, to a tenth of the age of the oldest; `None`: not known.
    pub oldest_ms: Option<UnixMs>,
}

/// Unix time in ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(transparent)]
pub struct UnixMs(pub u64);

/// A row that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WrongRow {
    /// Its key in hexadecimal digits; `None`: the tables cannot be read from somewhere on.
    pub key: Option<String>,
    /// What is wrong.
    pub what: String,
}

impl Survey {
    /// Visits all rows of a kind, whatever their slots, and counts them. What `visit` finds is noted,
    /// and it goes on with the next row.
    pub(crate) fn each(
        &mut self,
        table: &dyn Table,
        kind: u8,
        name: &'static str,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), LoadError>,
    ) {
        let mut counted = Rows {
            kind: name,
            rows: 0,
            bytes: 0,
        };
        let read = table.range(&[kind], &[kind + 1], &mut |key, value| {
            counted.rows += 1;
            counted.bytes += (key.len() + value.len()) as u64;
            if let Err(error) = visit(key, value) {
                self.note(error);
            }
            ControlFlow::Continue(())
        });
        self.rows.push(counted);
        if let Err(error) = read {
            self.note(error.into());
        }
    }

    /// The machine's own row, if it can be read. Without it there must be no others.
    pub(crate) fn machine(
        &mut self,
        table: &dyn Table,
        mut read: impl FnMut(&[u8], &[u8]) -> Result<(), LoadError>,
    ) {
        self.each(table, b'M', "machine", |key, value| match key {
            b"M" => read(key, value),
            _ => Err(row::damaged(key, "no machine has such a key")),
        });
    }

    /// To be called after all kinds: what is of none of them is wrong, and so is everything if the
    /// machine's own row is missing.
    pub(crate) fn finish(&mut self, table: &dyn Table, mut kinds: Vec<u8>) {
        let others = self.rows.iter().any(|counted| counted.rows > 0);
        if others
            && self
                .rows
                .iter()
                .all(|of| of.kind != "machine" || of.rows == 0)
        {
            self.note(row::damaged(b"M", "it is missing, and there are others"));
        }
        self.descriptor(table);
        self.level(table);
        kinds.extend([b'M', DESCRIPTOR, LEVEL]);
        kinds.sort_unstable();
        let ends = kinds.iter().map(|kind| vec![*kind]).chain([vec![0xFF; 8]]);
        let mut from = Vec::new();
        for (index, to) in ends.enumerate() {
            let read = table.range(&from, &to, &mut |key, _| {
                self.note(row::damaged(key, "rows of this kind are not known"));
                ControlFlow::Continue(())
            });
            if let Err(error) = read {
                self.note(error.into());
            }
            from = kinds.get(index).map_or(to, |kind| vec![kind + 1]);
        }
        self.fullest
            .sort_by(|a, b| (b.messages, &a.client).cmp(&(a.messages, &b.client)));
        self.fullest.truncate(FULLEST_NAMED);
    }

    /// The row that says which slots the shard has: only a shard that a split has made or cut has it.
    fn descriptor(&mut self, table: &dyn Table) {
        self.each(table, DESCRIPTOR, "descriptor", |key, value| match key {
            DESCRIPTOR_KEY => Descriptor::of_row(value).map(drop),
            _ => Err(row::damaged(key, "no descriptor has such a key")),
        });
        self.rows.pop_if(|counted| counted.rows == 0);
    }

    /// The row that says the level of the shard: only a shard that was raised has it.
    fn level(&mut self, table: &dyn Table) {
        self.each(table, LEVEL, "level", |key, value| match key {
            LEVEL_KEY => Level::of_row(value).map(drop),
            _ => Err(row::damaged(key, "no level has such a key")),
        });
        self.rows.pop_if(|counted| counted.rows == 0);
    }

    /// An inbox has messages queued.
    pub(crate) fn note_inbox(&mut self, inbox: FullInbox) {
        if inbox.messages == 0 {
            return;
        }
        self.fullest.push(inbox);
        // Sorted now and then, so that a million inboxes are not all kept.
        if self.fullest.len() >= 100 * FULLEST_NAMED {
            self.fullest
                .select_nth_unstable_by_key(FULLEST_NAMED, |inbox| u64::MAX - inbox.messages);
            self.fullest.truncate(FULLEST_NAMED);
        }
    }

    pub(crate) fn note(&mut self, error: LoadError) {
        self.found += 1;
        if self.findings.len() == FINDINGS_KEPT {
            return;
        }
        self.findings.push(match error {
            LoadError::Damaged { key, what } => WrongRow {
                key: Some(key),
                what,
            },
            other => WrongRow {
                key: None,
                what: other.to_string(),
            },
        });
    }
}

/// Checks that a condition holds of a row.
pub(crate) fn ensure(holds: bool, key: &[u8], what: &str) -> Result<(), LoadError> {
    if holds {
        Ok(())
    } else {
        Err(row::damaged(key, what))
    }
}

/// Checks that a key has the slot of the name in it, and that the slot is in the range.
pub(crate) fn ensure_slot(key: &[u8], name: &str, slots: Slots) -> Result<(), LoadError> {
    let slot = slots.hash.slot_of(name);
    ensure(
        key.get(1..3) == Some(&slot.to_be_bytes()),
        key,
        "its key has the slot of another name",
    )?;
    ensure(
        slots.range.contains(slot),
        key,
        "its slot belongs to another shard",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::InboxMachine;
    use crate::retain::RetainMachine;
    use crate::session::SessionMachine;
    use crate::test_table::TestTable;
    use crate::{Machine, SlotRange};

    fn with(key: &[u8], row: Vec<u8>) -> TestTable {
        let mut table = TestTable::default();
        table.rows.insert(key.to_vec(), row);
        table
    }

    fn check<M: Machine>() {
        let survey = |table: &TestTable| M::survey(Slots::ALL, table);
        let descriptors = |of: &Survey| -> u64 {
            let mut rows = of.rows.iter();
            let counted = rows.find(|rows| rows.kind == "descriptor");
            counted.map_or(0, |rows| rows.rows)
        };
        let none = survey(&TestTable::default());
        assert!(none.rows.iter().all(|rows| rows.kind != "descriptor"));

        let row = Descriptor::first(SlotRange::ALL).to_row();
        let found = survey(&with(DESCRIPTOR_KEY, row.clone()));
        assert_eq!((&*found.findings, descriptors(&found)), (&[][..], 1));

        let found = survey(&with(DESCRIPTOR_KEY, row[1..].to_vec()));
        assert_eq!((found.found, descriptors(&found)), (1, 1));
        let found = survey(&with(b"D2", row));
        assert_eq!(found.findings[0].what, "no descriptor has such a key");
    }

    #[test]
    fn a_descriptor_is_a_row_of_each_machine() {
        check::<SessionMachine>();
        check::<InboxMachine>();
        check::<RetainMachine>();
    }
}
