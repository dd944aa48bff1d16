//! Which nodes hold the replicas of a shard, and which of them leads.
//!
//! Purpose: `rules.rs` is pure and says what to do next; `controller.rs` looks after the replica of this node and, while it
//! leads, `members.rs` does what the rules want. `healing.rs` has the replicas compared, and makes one anew that differs.
//! `mending.rs` makes one anew whose table is damaged.
//!
//! Deliberately absent: the split of a shard (`shard/split.rs`); who is a member of the cluster (`cluster`).
//!
//! Read next: `rules.rs`.

pub(crate) mod controller;
pub(crate) mod healing;
pub(crate) mod members;
pub(crate) mod mending;
pub(crate) mod rules;
