//! What the shards of a node have in common: services, threads, the bootstrap of each shard, the end.
//!
//! Deliberately absent: what a single shard does (`shard`), and what callers see (`api`).
//!
//! Read next: `threads.rs`, then `bootstrap.rs`.

pub(crate) mod alive;
pub(crate) mod beginnings;
pub(crate) mod bootstrap;
pub(crate) mod disk;
pub(crate) mod services;
pub(crate) mod shutdown;
pub(crate) mod starts;
pub(crate) mod thread_load;
pub(crate) mod threads;
