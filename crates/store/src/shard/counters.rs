//! What a shard counts.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use crate::shard::load::CostCounters;

/// What a shard counts.
#[derive(Debug, Default)]
pub(crate) struct ShardCounters {
    /// What it costs.
    pub(crate) cost: CostCounters,
    /// Batches applied.
    pub(crate) batches: AtomicU64,
    /// Requests in these.
    pub(crate) requests: AtomicU64,
    /// Checkpoints written.
    pub(crate) checkpoints: AtomicU64,
    /// Bytes of these.
    pub(crate) checkpoint_bytes: AtomicU64,
    /// Bytes that only memory and log hold, about.
    pub(crate) unsaved_bytes: AtomicUsize,
    /// How often it was found out what the replica here holds, to compare it.
    pub(crate) compared: AtomicU64,
    /// How often the replica here was found to hold something else than others.
    pub(crate) differed: AtomicU64,
    /// How often it was made anew for that.
    pub(crate) healed: AtomicU64,
    /// The replica here is damaged, other nodes serve the shard, and it does not have all of it again.
    pub(crate) is_hurt: AtomicBool,
    /// How often the replica here was made anew since its table was damaged.
    pub(crate) mended: AtomicU64,
    /// Requests refused.
    pub(crate) refused: AtomicU64,
    /// Requests given by event loops.
    pub(super) given: AtomicU64,
    /// Those given when the gate was opened.
    pub(super) given_at_gate: AtomicU64,
    /// Of these, those applied or refused.
    pub(crate) finished: AtomicU64,
    /// Requests that wait for space on the disk.
    pub(crate) deferred: AtomicUsize,
    /// Bytes of these, about.
    pub(crate) deferred_bytes: AtomicUsize,
    /// Requests sent to the node that leads, retries included.
    pub(crate) forwarded: AtomicU64,
    /// Forwarded requests of an older leadership, and answers that nobody waits for any more.
    pub(crate) stale: AtomicU64,
    /// Bytes of work that was sent to the leader and is not answered, about.
    pub(crate) sent_bytes: AtomicUsize,
}
