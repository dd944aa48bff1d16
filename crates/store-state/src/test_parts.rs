//! Parts of a shard that splits cut, for tests: each is a machine with its table and its log.

use std::fmt::Debug;

use proptest::prelude::*;

use crate::test_table::TestTable;
use crate::{Changes, Header, Machine, NameHash, SlotRange, Slots, Split, Table};

/// Of a cluster with a seed.
pub(crate) const HASH: NameHash = NameHash::with_seed(0x5EED);

/// Applies an operation and gives back the reply and all that is told.
type Apply<M, Told> = fn(&mut M, &Header, &<M as Machine>::Op, &dyn Table) -> Told;

/// All that a machine holds.
type Describe<M> = fn(&M) -> String;

/// What a log has.
#[derive(Clone)]
enum Entry<Op, Told> {
    /// With what came of it.
    Op(Header, Op, Told),
    Split {
        at: u16,
        /// The part is the child of the split, not the parent.
        is_child: bool,
    },
}

/// A part of a shard, or a whole one.
pub(crate) struct Part<M: Split, Told> {
    pub(crate) range: SlotRange,
    pub(crate) machine: M,
    /// As of the last checkpoint of the part, or of what it was cut from.
    pub(crate) table: TestTable,
    /// The range at that checkpoint.
    saved: SlotRange,
    /// What came after that checkpoint.
    log: Vec<Entry<M::Op, Told>>,
    apply: Apply<M, Told>,
    describe: Describe<M>,
}

impl<M: Split, Told: Clone + PartialEq + Debug> Part<M, Told> {
    pub(crate) fn whole(apply: Apply<M, Told>, describe: Describe<M>) -> Self {
        let table = TestTable::default();
        let range = SlotRange::ALL;
        Self {
            range,
            machine: load(range, &table),
            table,
            saved: range,
            log: Vec::new(),
            apply,
            describe,
        }
    }

    /// Whether an operation is for this part.
    pub(crate) fn takes(&self, op: &M::Op) -> bool {
        M::slot(op, HASH).is_none_or(|slot| self.range.contains(slot))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.range.contains(HASH.slot_of(name))
    }

    pub(crate) fn apply(&mut self, header: &Header, op: &M::Op) -> Told {
        let outcome = (self.apply)(&mut self.machine, header, op, &self.table);
        let entry = Entry::Op(header.clone(), op.clone(), outcome.clone());
        self.log.push(entry);
        outcome
    }

    /// Cuts it and gives back the child. Both are what a start makes of the tables and the log.
    pub(crate) fn split_off(&mut self, at: u16) -> Self {
        let unsaved = self.machine.unsaved_bytes();
        let machine = self.machine.split_off(at);
        assert_eq!(
            self.machine.unsaved_bytes() + machine.unsaved_bytes(),
            unsaved
        );
        let logged = |is_child| {
            let entry = Entry::Split { at, is_child };
            [&self.log[..], &[entry]].concat()
        };
        let child = Self {
            range: SlotRange {
                first: at,
                last: self.range.last,
            },
            machine,
            table: self.table.clone(),
            saved: self.saved,
            log: logged(true),
            ..*self
        };
        self.log = logged(false);
        self.range.last = at - 1;
        for part in [&*self, &child] {
            part.check_start();
        }
        child
    }

    /// A checkpoint: the tables have what the machine has, and nothing else that is not another part's.
    pub(crate) fn checkpoint(&mut self) {
        let mut anew = self.check_start();
        let mut changes = sorted_changes(&mut self.machine);
        assert_eq!(changes.entries, sorted_changes(&mut anew).entries);
        assert_eq!(self.machine.unsaved_bytes(), 0);
        for (key, _) in &changes.entries {
            assert!(M::keeps(key, self.range), "{key:?} is another part's");
        }
        self.table.write(&changes);
        changes.entries.clear();
        self.saved = self.range;
        self.log.clear();
        let own = self.rows();
        let slots = slots(self.range);
        assert_eq!(M::survey(slots, &own).findings, []);
        assert_eq!(
            self.state(&load(self.range, &own)),
            self.state(&self.machine)
        );
        self.check_start();
    }

    /// Loses the memory.
    pub(crate) fn restart(&mut self) {
        self.machine = self.start();
    }

    /// The rows of the table that are not another part's.
    pub(crate) fn rows(&self) -> TestTable {
        let mut own = self.table.clone();
        own.rows.retain(|key, _| M::keeps(key, self.range));
        own
    }

    /// What a start makes of the table, which may have rows of other parts, and of the log.
    fn start(&self) -> M {
        let mut machine: M = load(self.saved, &self.table);
        for entry in &self.log {
            match entry {
                Entry::Op(header, op, outcome) => {
                    let again = (self.apply)(&mut machine, header, op, &self.table);
                    assert_eq!(again, *outcome, "applied again: {op:?}");
                }
                Entry::Split { at, is_child } => {
                    let child = machine.split_off(*at);
                    if *is_child {
                        machine = child;
                    }
                }
            }
        }
        machine
    }

    fn check_start(&self) -> M {
        let machine = self.start();
        assert_eq!(self.state(&machine), self.state(&self.machine));
        machine
    }

    fn state(&self, machine: &M) -> String {
        (self.describe)(machine)
    }
}

fn slots(range: SlotRange) -> Slots {
    Slots {
        range,
        hash: HASH,
        level: crate::Level::NEWEST,
    }
}

fn load<M: Machine>(range: SlotRange, table: &TestTable) -> M {
    M::load(slots(range), table).unwrap()
}

fn sorted_changes<M: Machine>(machine: &mut M) -> Changes {
    let mut changes = Changes::default();
    machine.collect(&mut changes);
    machine.saved();
    changes.entries.sort();
    changes
}

/// Where a part is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// The n-th part keeps one slot.
    Second(usize),
    /// The n-th part gives one slot away.
    Last(usize),
    /// The first slot of the child is that of the n-th name, or the one after it.
    Name(usize, u16),
    /// Anywhere.
    At(u16),
}

impl Cut {
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            1 => any::<usize>().prop_map(Self::Second),
            1 => any::<usize>().prop_map(Self::Last),
            4 => (any::<usize>(), 0..2u16).prop_map(|(n, more)| Self::Name(n, more)),
            1 => any::<u16>().prop_map(Self::At),
        ]
    }

    /// Which of the parts is cut, and the first slot of its child; `None`: it has one slot only.
    pub(crate) fn of(
        self,
        ranges: impl Iterator<Item = SlotRange>,
        names: &[&str],
    ) -> Option<(usize, u16)> {
        let ranges: Vec<_> = ranges.collect();
        let with = |slot: u16| ranges.iter().position(|range| range.contains(slot));
        let (part, at) = match self {
            Self::Second(n) => {
                let part = n % ranges.len();
                (part, ranges[part].first.checked_add(1)?)
            }
            Self::Last(n) => {
                let part = n % ranges.len();
                (part, ranges[part].last)
            }
            Self::Name(n, more) => {
                let at = HASH.slot_of(names[n % names.len()]).checked_add(more)?;
                (with(at)?, at)
            }
            Self::At(at) => (with(at)?, at),
        };
        let SlotRange { first, last } = ranges[part];
        (first < at && at <= last).then_some((part, at))
    }
}
