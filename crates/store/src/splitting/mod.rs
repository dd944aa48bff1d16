//! When a shard is split by itself, and where.
//!
//! ```text
//!  each second: shards led here, threads, other nodes ─► splitter ─► a policy's verdict for each shard ─► at most one split
//! ```
//!
//! Purpose: `splitter.rs` keeps what is under way, cooldowns and the last decisions; the policies are pure; `task.rs` looks at the
//! node each second and asks for what was decided. `script.rs`: policies from outside of this crate. `model.rs`: a cluster in numbers that
//! plays a policy.
//!
//! Deliberately absent: how a shard is split (`shard/split.rs`) and what is asked before (`api/split.rs`); which node leads the
//! halves (`placement`); the language of scripts (`split-script`).
//!
//! Read next: `policy.rs`.

pub(crate) mod as_bifromq;
pub(crate) mod by_load;
pub(crate) mod model;
pub(crate) mod options;
pub(crate) mod policy;
pub(crate) mod script;
pub(crate) mod splitter;
pub(crate) mod task;
