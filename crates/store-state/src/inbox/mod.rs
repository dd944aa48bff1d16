//! The inbox store: one inbox per durable session.

mod op;

pub use op::{
    Attached, Done, InboxDrop, InboxOp, InboxOutlet, InboxReply, Item, Origin, Queued,
    StoredSubscription,
};

/// What a publisher is known by for No Local: 64 bits of its client identifier, never 0.
#[must_use]
pub fn publisher_hash(client: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(client.as_bytes()).max(1)
}
