//! The state machines of the durable store: `session`, `inbox` and `retain`.
//!
//! Purpose: what a shard of each store holds, and what an operation does to it. Every replica applies
//! the same batches in the same order and arrives at the same state.
//!
//! Invariants: applying is deterministic: time and limits come with the batch, nothing is read but the
//! machine itself and its tables, and no decision depends on the order of a hash table; a checkpoint
//! together with the batches after it is the whole state; a message is held once in a shard, whatever
//! the number of its receivers.
//!
//! Deliberately absent: clocks, randomness, threads, locks, files, sockets, consensus, and where a
//! client's network connection is.
//!
//! Read next: [`Machine`] for what the three have in common, then `inbox`.

#![forbid(unsafe_code)]

pub mod api;
mod batch;
pub mod control;
mod descriptor;
pub mod inbox;
mod insertion_map;
mod level;
mod load_error;
mod machine;
mod partition;
pub mod retain;
mod retention;
mod row;
pub mod session;
mod slot;
mod survey;
mod table;
#[cfg(test)]
mod test_parts;
#[cfg(test)]
mod test_replica;
#[cfg(test)]
mod test_table;
mod touched;
pub mod wire;
mod written;

pub use batch::{
    Batch, ClassLimits, CorrelationId, Header, Limits, ProposedHere, QueueLimits, Request,
    Requeued, RoutedUntil,
};
pub use descriptor::{ChildShard, DESCRIPTOR_KEY, Descriptor, ShardBirth, ShardVersion};
pub use insertion_map::InsertionMap;
pub use level::{LEVEL_KEY, LEVELS, Level, LevelFacts, PeerProtocol};
pub use load_error::LoadError;
pub use machine::{Machine, Split};
pub use retention::{QueueRetention, Retention};
pub use slot::{NameHash, SLOTS, SlotRange, Slots};
pub use survey::{FullInbox, Rows, Survey, UnixMs, WrongRow};
pub use table::{Change, Changes, Table, TableError};
pub use written::{Attempts, Written};
