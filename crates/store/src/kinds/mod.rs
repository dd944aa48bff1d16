//! The stores, as far as their shards differ.
//!
//! Purpose: the trait [`kind::Kind`] and its implementations for session, inbox, retain and control; the log entries and Raft groups
//! of all.
//!
//! Deliberately absent: what operations mean (`store_state`).
//!
//! Read next: `kind.rs`.

pub(crate) mod command;
mod compressed;
mod control;
pub(crate) mod effects;
pub(crate) mod group;
mod inbox;
pub(crate) mod kind;
mod retain;
mod session;
