//! The inbox store: one inbox per durable session.
//!
//! Purpose: which messages each session has to get, and what its client has to be told after it
//! reconnects, whatever happened to the broker in between.
//!
//! Invariants: a queued message is queued until its client is done with it, or somebody else of its shared
//! group has it, or the outlet is told why it is not; sequences of an inbox are given once each, in the order
//! in which messages were queued; a message is stored once in the shard, however many sessions have it queued.
//!
//! Deliberately absent: packet identifiers and windows (the session of a connected client has them),
//! who of a shared group gets a message, what is retained, and the life and end of sessions, which is
//! the session store's.
//!
//! Read next: `op` for what can be asked, `machine` for the parts, `queue` for what is in memory and
//! what in the tables.

mod acknowledge;
mod attach;
mod bodies;
mod calls;
mod checkpoint;
mod ending;
mod fences;
mod filters;
#[expect(
    clippy::module_inception,
    reason = "the store is named after what it holds"
)]
mod inbox;
mod inboxes;
pub mod inspect;
mod legacy;
mod longest;
mod machine;
mod matching;
mod members;
mod name;
mod op;
mod origins;
mod owed;
mod publish;
mod publishing;
mod queue;
mod recount;
mod retention;
mod split;
mod stock;
mod subscribe;
mod subscriptions;
mod survey;
mod tables;
#[cfg(test)]
mod tests;
mod weight;

pub use machine::{InboxCounts, InboxMachine, clients};
pub use name::{ClientName, InboxId, InboxNumber, SessionName, Slot};
pub use op::{
    Attached, Call, Caller, Done, InboxDrop, InboxOp, InboxOutlet, InboxReply, Item, Origin, Owed,
    Progress, Queued, RetentionLimit, StoredSubscription,
};
pub use retention::{AwayMember, QueuePass, QueueView, leave_alone};
pub use tables::{agreed, each_stored, level_shown};

/// What a publisher is known by for No Local: 64 bits of its client identifier, never 0.
#[must_use]
pub fn publisher_hash(client: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(client.as_bytes()).max(1)
}
