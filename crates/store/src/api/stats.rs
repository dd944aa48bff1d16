//! Figures for the metrics.

use consensus::LogStats;
use store_state::api::PerStore;

use crate::scrub::counters::ScrubStats;
use crate::shard::load::Total;

/// For how long sessions are away that are counted, in days.
pub const AWAY_DAYS: [u32; 2] = [1, 30];

/// What the store counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreStats {
    /// The log's.
    pub log: LogStats,
    /// What was read again to find damage.
    pub scrub: ScrubStats,
    /// Of the session, inbox and retain store.
    pub stores: PerStore<ShardStats>,
    /// Records of the session store.
    pub sessions: u64,
    /// Of these, the connected ones.
    pub connected: u64,
    /// Of these, those whose clients have been away for longer than each of [`AWAY_DAYS`], to the hour.
    pub away: [usize; AWAY_DAYS.len()],
    /// Inboxes.
    pub inboxes: u64,
    /// Inboxes whose queues are full, as far as a message has been dropped for it since this node serves them.
    pub full_queues: usize,
    /// Bytes of the topic filters of all inboxes that are kept here, those of shards that other nodes lead included.
    pub filter_bytes: usize,
    /// Messages queued in them.
    pub queued_messages: u64,
    /// Bytes queued in them.
    pub queued_bytes: u64,
    /// Publications of QoS 0, and of clean sessions of QoS 2, that inbox shards would not record again.
    pub remembered_calls: u64,
    /// Publishers of which they would record nothing that earlier connections have sent.
    pub remembered_fences: u64,
    /// Wills and messages of ended sessions that they would not record again, or have not recorded yet.
    pub remembered_origins: u64,
    /// Retained messages.
    pub retained_messages: u64,
    /// Bytes of these.
    pub retained_bytes: u64,
    /// Wills of which the retain shards remember that they have kept them.
    pub retained_wills: u64,
    /// Wills of connections that were taken over, and that may have been discarded.
    pub held_wills: u64,
}

/// What leaders hold back for a while, for people to look at.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldBack {
    /// Answers to new connections, until wills of older ones are published.
    pub answers: Total,
    /// Connected sessions whose queues are not being read yet.
    pub queues: Total,
    /// Topic filters of such sessions that are announced as those of sessions without a connection.
    pub filters: Total,
}

impl HeldBack {
    pub(crate) fn add(&mut self, other: Self) {
        self.answers.0 += other.answers.0;
        self.queues.0 += other.queues.0;
        self.filters.0 += other.filters.0;
    }
}

/// Replicas of a node whose tables are or were damaged.
#[derive(Clone, Copy, Debug, Default)]
pub struct DamagedReplicas {
    /// Those that are closed, or have not received all again.
    pub hurt: Total,
    /// How often one was made anew.
    pub mended: Total,
}

/// What the shards of one store count.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardStats {
    /// Shards.
    pub shards: u64,
    /// Shards whose replica here cannot be used, and which no other node is known to serve: its tables or its log are damaged.
    pub stopped: u64,
    /// Replicas here with damaged tables, of shards that other nodes serve.
    pub damaged: DamagedReplicas,
    /// Replicas here whose log was damaged, until the others have sent what it may lack.
    pub below_floor: Total,
    /// Batches applied.
    pub batches: u64,
    /// Requests in these.
    pub requests: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests waiting.
    pub waiting: u64,
    /// Deferred requests: they wait for space on the disk.
    pub deferred: u64,
    /// Shards that this node leads.
    pub led: u64,
    /// Requests sent to the nodes that lead their shards, retries included.
    pub forwarded: u64,
    /// Of these, those that are not answered yet.
    pub outstanding: u64,
    /// Forwarded requests of an older leadership, and answers that nobody waited for any more.
    pub stale: u64,
    /// Requests that several shards carry out together since one was split, and shards that were split off and wait until
    /// what was asked before is done.
    pub joined: usize,
    /// What leaders hold back for a while.
    pub held_back: HeldBack,
    /// How often a replica of this node was compared with the others.
    pub compared: Total,
    /// Replicas that were found to hold something else than the others.
    pub differed: Total,
    /// Of these, those that were made anew.
    pub made_anew: Total,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Bytes of these.
    pub checkpoint_bytes: u64,
}
