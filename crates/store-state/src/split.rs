//! How the state of a shard is cut in two when the shard is split.
//!
//! Purpose: a split gives the upper slots of a shard, the parent, to a new one, the child. Each replica cuts its own
//! machine in memory when it applies the split.
//!
//! Invariants: the cut is deterministic; afterwards the parent's machine answers as one that never knew the slots of the
//! child, and the child's as one that never knew those of the parent, but for what prevents that something is done twice:
//! that is copied to both.
//!
//! Deliberately absent: the log entry, the child's replicas, tables and leader; where requests go.

use crate::{Machine, SlotRange};

/// A machine that can be cut at a slot.
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

    /// Goes on with what a split has left to be rebuilt: about `entries` entries of it. True: there is nothing left.
    /// To be called between operations; it changes no answer of the machine.
    fn rebuild_part(&mut self, entries: usize, outlet: &mut Self::Outlet) -> bool;

    /// Whether a row of the tables with this key belongs to a shard of this range. Rows that belong to no slot belong to
    /// each.
    fn keeps(key: &[u8], range: SlotRange) -> bool;
}
