//! A replica for tests: a machine with its table and log, which can crash.

use crate::test_table::TestTable;
use crate::{Changes, Header, Machine, NameHash, SlotRange, Slots, Table};

/// Of a cluster with a seed.
const SLOTS: Slots = Slots {
    range: SlotRange::ALL,
    hash: NameHash::with_seed(0x5EED),
    level: crate::Level::NEWEST,
};

/// Applies an operation and puts down the reply and all that is told.
type Apply<M> = fn(&mut M, &Header, &<M as Machine>::Op, &dyn Table) -> String;

/// One replica of a shard.
pub(crate) struct Replica<M: Machine> {
    pub(crate) machine: M,
    pub(crate) table: TestTable,
    /// What was applied since the checkpoint that the table holds, as a log has it, and what came of it.
    log: Vec<(Header, Vec<u8>, String)>,
    /// A checkpoint that is being written, and how much of the log it covers. What it has yet to be
    /// handed out comes row by row, between operations.
    collected: Option<(Changes, usize)>,
    /// The checkpoint has all of it.
    is_all: bool,
    apply: Apply<M>,
}

impl<M: Machine> Replica<M> {
    pub(crate) fn new(apply: Apply<M>) -> Self {
        let table = TestTable::default();
        Self {
            machine: M::load(SLOTS, &table).unwrap(),
            table,
            log: Vec::new(),
            collected: None,
            is_all: true,
            apply,
        }
    }

    pub(crate) fn apply(&mut self, header: &Header, op: &M::Op) -> String {
        let outcome = (self.apply)(&mut self.machine, header, op, &self.table);
        let written = postcard::to_stdvec(op).unwrap();
        self.log.push((header.clone(), written, outcome.clone()));
        self.collect_row();
        outcome
    }

    /// Begins a checkpoint if none is being written.
    pub(crate) fn collect(&mut self) {
        if self.collected.is_none() {
            self.collected = Some((Changes::default(), self.log.len()));
            self.is_all = false;
            self.collect_row();
        }
    }

    fn collect_row(&mut self) {
        if let Some((changes, _)) = &mut self.collected
            && !self.is_all
        {
            self.is_all = self.machine.collect_part(1, changes);
        }
    }

    /// Ends the checkpoint that is being written, if any.
    pub(crate) fn saved(&mut self) {
        if self.write() {
            while !self.machine.saved_part(1) {}
        }
    }

    /// Loses the memory. A checkpoint that is being written is in the table, or not. All that comes
    /// after it is applied again, and the same must come of it.
    pub(crate) fn crash(&mut self, written: bool) {
        if written {
            self.write();
        }
        self.collected = None;
        self.is_all = true;
        self.machine = M::load(SLOTS, &self.table).unwrap();
        for (header, op, outcome) in &self.log {
            let op = postcard::from_bytes(op).unwrap();
            let again = (self.apply)(&mut self.machine, header, &op, &self.table);
            assert_eq!(again, *outcome, "applied again: {op:?}");
        }
    }

    fn write(&mut self) -> bool {
        while !self.is_all {
            self.collect_row();
        }
        let Some((changes, covered)) = self.collected.take() else {
            return false;
        };
        self.table.write(&changes);
        let survey = M::survey(SLOTS, &self.table);
        assert_eq!(survey.findings, [], "what a machine writes is right");
        self.log.drain(..covered);
        true
    }
}
