//! The index from topic names to receivers, and the index of retained topics.
//!
//! Purpose: [`Router`] answers "who subscribes to this topic name?", [`RetainedIndex`] the opposite
//! question, "which topic names does this topic filter select?", and [`change`] tells the holder of a
//! cached answer of the router when to ask again. The rules are those of MQTT 5.0 and 3.1.1 section
//! 4.7, *Topic Names and Topic Filters*, which are the same in both.
//!
//! Invariants: nothing here recurses over the levels of a topic, so depth is limited by memory alone,
//! not by the stack; work per call is bounded by the levels and filters that can match; no input
//! panics. Memory follows the contents down as well as up.
//!
//! Deliberately absent: who the receivers are, what their options mean, shared subscriptions (the
//! caller strips `$share/<group>/` and makes the group a receiver), validation (filters and topic
//! names arrive checked; for others the answer is unspecified), locks, clocks and randomness (the
//! caller gives the seed that protects the hash tables from chosen collisions).
//!
//! Read next: `router`, then `trie` for wildcards, then `retained`.

mod buckets;
mod dense;
mod exact;
mod hashing;
mod inline_vec;
mod level;
mod receivers;
mod retained;
mod router;
mod slab;
mod text;
mod trie;

/// When a cached match may be stale; see [`change::bucket_of_filter`].
pub mod change {
    pub use crate::buckets::{BUCKETS, Bucket, bucket_of_filter, buckets_of_topic};
}

pub use retained::{Cursor, RetainedIndex};
pub use router::{Inserted, Retired, Router};
