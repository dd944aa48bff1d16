//! The three stores, as far as their shards differ.
//!
//! Purpose: the trait [`kind::Kind`] and its implementations for session, inbox and retain; the log entries and Raft groups of
//! the three.
//!
//! Deliberately absent: what operations mean (`store_state`).
//!
//! Read next: `kind.rs`.

pub(crate) mod command;
pub(crate) mod effects;
pub(crate) mod group;
mod inbox;
pub(crate) mod kind;
mod retain;
mod session;
