//! How shards are named.

/// A shard's number within its store.
pub type ShardNumber = u16;
