//! Retained messages that are not kept any longer.
//!
//! Purpose: each replica of a retain shard looks at its messages again and again ([`task`]) and says to the node what each rule
//! has ([`held`]). Whoever leads the shard also proposes what is removed ([`look`]): messages that are older than their rule keeps
//! them, and, if a rule has too many or too many bytes, the oldest ones.
//!
//! Invariants: a message is removed by an operation that all replicas apply, and only if it is still the one that was looked at;
//! a node whose rules keep everything does not look.
//!
//! Deliberately absent: messages that expire, and limits beyond which none is taken, which the machine itself obeys
//! (`store_state`).
//!
//! Read next: `look.rs`.

mod ages;
pub(crate) mod held;
pub(crate) mod look;
pub(crate) mod task;
