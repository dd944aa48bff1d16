//! What the three machines have in common.

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Changes, Header, Level, LoadError, NameHash, SlotRange, Slots, Survey, Table, TableError,
};

/// The state of one shard of one store.
///
/// A checkpoint happens in two steps, so that the shard goes on while the disk is written:
/// [`Machine::collect_part`] hands out the net changes, and when these are synced,
/// [`Machine::saved_part`] lets go of what can be read from the tables again. In between, the machine
/// must not count on the tables having the new state, nor on their having the old one.
///
/// Both steps are done in parts, since a million rows take most of a second; operations may be applied
/// between two parts.
pub trait Machine: Sized + Send + 'static {
    /// What it can be asked to do.
    type Op: Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What it answers.
    type Reply: Send + 'static;
    /// Who is told what an operation brings about beside its reply.
    type Outlet: ?Sized;

    /// A new machine, or the one that the tables hold as of the last checkpoint.
    ///
    /// # Errors
    /// The tables cannot be read, or hold what this version does not understand.
    fn load(slots: Slots, table: &dyn Table) -> Result<Self, LoadError>;

    /// The shard is at this level from now on, which is above the one it had. To be called between operations, and not within a
    /// checkpoint. Rows of the levels before are read at this one, too; those that this one would write elsewhere are written
    /// anew by the next checkpoint.
    fn raise(&mut self, _level: Level) {}

    /// Whether logs of this level cannot have all operations: then each is given to [`Machine::lowered`] before it is proposed.
    fn is_lowered(level: Level) -> bool {
        level < Level::SPLITS
    }

    /// The operation as a log of this level can have it, which does the same as far as that level can; `None`: no log of that level has
    /// anything like it.
    fn lowered(&self, op: Self::Op, _level: Level) -> Option<Self::Op> {
        Some(op)
    }

    /// The slot that must be in the shard's range for this operation; `None`: every shard takes it.
    fn slot(op: &Self::Op, hash: NameHash) -> Option<u16>;

    /// Does what is asked, or a part of it: an operation that concerns very many sessions at once, or very many messages of one,
    /// takes some of them in each part, so that whoever calls can do something else in between. `None`: it is not done;
    /// the same operation is to be given again, before any other. In between, a checkpoint under way may go on and
    /// what is there may be read; no checkpoint begins.
    ///
    /// # Errors
    /// The tables cannot be read. Nothing may be applied afterwards.
    fn apply_part(
        &mut self,
        header: &Header,
        op: &Self::Op,
        table: &dyn Table,
        outlet: &mut Self::Outlet,
    ) -> Result<Option<Self::Reply>, TableError>;

    /// All of [`Machine::apply_part`] at once.
    ///
    /// # Errors
    /// As of [`Machine::apply_part`].
    fn apply(
        &mut self,
        header: &Header,
        op: &Self::Op,
        table: &dyn Table,
        outlet: &mut Self::Outlet,
    ) -> Result<Self::Reply, TableError> {
        loop {
            if let Some(reply) = self.apply_part(header, op, table, outlet)? {
                return Ok(reply);
            }
        }
    }

    /// Estimated bytes that only memory and the log hold.
    fn unsaved_bytes(&self) -> usize;

    /// Begins a checkpoint, or goes on with it: hands out about `rows` of the net changes between the
    /// last one and the first call. True: that was all, and the next call comes after that of
    /// `saved_part` that says the same.
    fn collect_part(&mut self, rows: usize, changes: &mut Changes) -> bool;

    /// What was handed out is in the tables, synced: looks after about `rows` of it. True: that was all.
    fn saved_part(&mut self, rows: usize) -> bool;

    /// All of [`Machine::collect_part`] at once.
    fn collect(&mut self, changes: &mut Changes) {
        while !self.collect_part(usize::MAX, changes) {}
    }

    /// All of [`Machine::saved_part`] at once.
    fn saved(&mut self) {
        while !self.saved_part(usize::MAX) {}
    }

    /// Reads all rows of the tables and says what they are and what is wrong with them.
    fn survey(slots: Slots, table: &dyn Table) -> Survey;
}

/// A machine that can be cut at a slot: a split gives the upper slots of a shard, the parent, to a new one, the child, and each
/// replica cuts its own machine in memory when it applies the split.
///
/// The cut is deterministic. Afterwards the parent's machine answers as one that never knew the slots of the child, and the
/// child's as one that never knew those of the parent, but for what prevents that something is done twice: that is copied to
/// both.
pub trait Split: Machine {
    /// Cuts the machine: what belongs to the slots from `at` on leaves it, and is the machine that is returned.
    ///
    /// Both are whole when this returns, and answer at once. What can only be counted or indexed anew by looking at
    /// everything is left to [`Split::rebuild_part`]: replicas agree on every answer, however far each has rebuilt.
    /// The tables of both halves hold the rows of before; rows that the checkpoint before did not have are written by the
    /// half that they belong to.
    ///
    /// # Panics
    /// `at` is not above the first slot and within the range; an operation is not done, or a checkpoint is under way.
    #[must_use]
    fn split_off(&mut self, at: u16) -> Self;

    /// Goes on with what a split has left to be rebuilt: about `entries` entries of it. True: there is nothing left, or
    /// nothing before the next checkpoint is saved ([`Split::has_to_rebuild`]). To be called between operations; it changes
    /// no answer of the machine, but may change rows, which the next checkpoint has. By default all is whole at once.
    ///
    /// # Errors
    /// The tables cannot be read. The machine is as before, and does not try again before it is loaded or split again.
    fn rebuild_part(
        &mut self,
        _entries: usize,
        _table: &dyn Table,
        _outlet: &mut Self::Outlet,
    ) -> Result<bool, TableError> {
        Ok(true)
    }

    /// Whether [`Split::rebuild_part`] is to be called when the machine is loaded, and each time a checkpoint is saved.
    fn has_to_rebuild(&self) -> bool {
        false
    }

    /// Whether a row of the tables with this key belongs to a shard of this range. Rows that belong to no slot belong to
    /// each.
    fn keeps(key: &[u8], range: SlotRange) -> bool;
}
