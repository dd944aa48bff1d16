//! How far sessions lag behind, and messages that are not kept any longer.
//!
//! Purpose: each replica of an inbox shard looks at its queues again and again ([`task`]) and says what it finds ([`found`]) to
//! the node, which adds it up ([`held`]). Whoever leads the shard also proposes what is dropped: messages that are older than
//! their class keeps them, and, if the queues of a class or of the node have too many bytes, the oldest of the largest queues
//! ([`policy`]); and all of a queue that an operator empties ([`purge`]). It also proposes that messages of shared groups which
//! wait for members that are away become legacies ([`away`]).
//!
//! The same for retained messages, which have rules by their topics: `retained/`.
//!
//! Invariants: a message is dropped by an operation that all replicas apply, never by a replica's own look; a message that may
//! have been sent is not dropped.
//!
//! Deliberately absent: limits of single queues, which the machine itself obeys (`store_state`).
//!
//! Read next: `policy.rs`.

mod away;
pub(crate) mod found;
pub(crate) mod held;
mod lag;
mod policy;
pub(crate) mod purge;
pub(crate) mod retained;
pub(crate) mod task;
mod tried;
