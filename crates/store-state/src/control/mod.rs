//! The control store: users, groups and rules that change while a cluster runs, and the audit of their changes.
//!
//! Purpose: what the one shard of the store holds, and what a change does to it.
//!
//! Invariants: an operation is done whole or not at all, and once, however often it comes; every change of a record has an
//! audited entry in the same operation; groups that are named exist. Replicas with the same log have the same records and the
//! same head of the audit.
//!
//! Deliberately absent: what rules mean and whether a password is right; nodes compile what they need.
//!
//! Read next: [`ControlMachine`].

mod audit;
mod machine;
mod op;
mod records;
mod rows;
#[cfg(test)]
mod tests;

pub use machine::ControlMachine;
pub use op::{ControlOp, ControlOutlet, ControlReply};
