//! The sharded, replicated store: shards, their folders, and the way of a request through them.
//!
//! Purpose: [`Store::open`] recovers what the disk holds and starts the shards; event loops give a [`Store`] requests and get
//! [`Event`](store_state::api::Event)s.
//!
//! ```text
//!  event loop ─► api ─► shard: queue ─► proposer: a batch ─► consensus: log, sync, commit
//!                                                       └─► shard: store-state applies it
//!                                                             ├─► replies, pages: mail to event loops
//!                                                             └─► now and then net changes: storage
//! ```
//!
//! Layers, from the top: `api` (what the broker asks), `node` (threads and the bootstrap of shards), `placement` (who holds
//! replicas), `leadership` (who leads, and how the nodes know), `retention` (what queues hold, and what they lose), `shard` (the queue, batches, replies, checkpoints of one shard),
//! `kinds` (how the three stores differ), `peers` (messages between nodes), `storage` (folder, tables).
//!
//! Invariants: a reply follows the sync of what it answers; requests of one loop to one shard are applied in their order; every
//! queue is bounded, and says so before it is full.
//!
//! Deliberately absent: what an operation means (`store-state`), consensus and its log (`consensus`), packets and sockets.
//!
//! Read next: `api/store.rs`, then `shard/mod.rs`.

mod api;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod kinds;
mod leadership;
mod node;
mod peers;
mod placement;
mod retention;
mod scrub;
mod shard;
#[cfg(feature = "simulation")]
mod simulation;
mod splitting;
mod storage;

pub use api::catching_up::{CatchingUp, LateReplica};
pub use api::control::{AuditPart, BeginError, CONTROL_OPEN_FILES, ControlStore};
pub use api::damaged::DamagedReplica;
pub use api::error::OpenError;
pub use api::inspect::{Holding, Inspection, Look, SessionPage};
pub use api::levels::{Levels, NodeLevels, ReplicaFault};
pub use api::listener::Listener;
pub use api::memory::{InMemory, MemoryOfStore, StoreMemory};
pub use api::options::{Cluster, Options};
pub use api::queues::class_queues;
pub use api::retained_rows::{InTopicOrder, RetainedFound, RetainedLevel, RetainedRows};
pub use api::shard_info::ShardInfo;
pub use api::split::SplitError;
pub use api::splits::Splits;
pub use api::stats::{AWAY_DAYS, DamagedReplicas, ShardStats, StoreStats};
pub use api::store::Store;
pub use consensus::LogStats;
pub use peers::member::{Member, Role};
pub use peers::message::Lead;
pub use peers::network::Peers;
pub use retention::found::{
    ClassQueues, LargeQueue, QueueRates, QueuedBytes, QueuedMessages, WaitingSessions,
};
pub use retention::purge::Purge;
pub use scrub::counters::ScrubStats;
pub use shard::load::{
    Busyness, HalfLoad, HalfSlot, HotSlot, Operations, Percent, Rate, ShardCost, ShardLoad, Total,
};
pub use shard::recovery::{Recovery, RecoveryWait};
#[cfg(feature = "simulation")]
pub use simulation::Replica;
pub use splitting::model::{Played, SCENES, play};
pub use splitting::options::{Density, SplitBy, SplitOptions};
pub use splitting::policy::{Candidate, Hold, NodeView, Verdict, Why};
pub use splitting::script::{
    ScriptAnswer, ScriptCause, ScriptFault, SplitScript, SplitScripts, StandingFault, StoreView,
};
pub use splitting::splitter::{SplitCounts, SplitDecision, built_in};
pub use storage::folder::{Folder, FolderError, Left, empty_if_left, free_bytes, note_left};
pub use storage::recover::{
    Accepted, LostShards, Others, Outcome, Recovered, accept_damage, recover,
};
pub use storage::retained_forecast::{RetainedForecast, forecast_retained};
pub use storage::snapshot::ReceivedBytes;
pub use storage::survey::{
    Finding, LogSurvey, NodeSurvey, ShardLog, ShardSurvey, StoreSurvey, survey,
};
pub use storage::tables::{RowFilter, ShardTable, Tables, TablesError, TablesOptions};
pub use store_state::{FullInbox, Rows, UnixMs};
pub use topic_router::Cursor;
