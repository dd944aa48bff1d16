//! The sharded, replicated store: shards, their folders, and the way of a request through them.
//!
//! Purpose: [`Store::open`] recovers what the disk holds and starts the shards; event loops give a
//! [`Store`] requests and get [`Event`]s.
//!
//! ```text
//!  event loop ─► queue.rs ─► proposer.rs: a batch ─► consensus: log, sync, commit
//!                                                   └─► shard.rs: store-state applies it
//!                                                         ├─► replies, pages: mail to event loops
//!                                                         └─► now and then net changes: tables.rs
//! ```
//!
//! Invariants: a reply follows the sync of what it answers; requests of one loop to one shard are
//! applied in their order; every queue is bounded, and says so before it is full.
//!
//! Deliberately absent: what an operation means (`store-state`), consensus and its log (`consensus`),
//! packets and sockets.

mod command;
mod event;
mod folder;
mod forward;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod keeper;
mod kind;
mod later;
mod map;
mod neighbours;
mod node;
mod outstanding;
mod peers;
mod placement;
mod proposer;
mod queue;
mod readers;
mod recover;
mod retained;
mod server;
mod shard;
#[cfg(feature = "simulation")]
mod simulation;
mod size;
mod snapshot;
mod starting;
mod survey;
mod tables;

pub use consensus::LogStats;
pub use event::{Event, Failure};
pub use folder::{Folder, FolderError, free_bytes};
pub use map::ShardNumber;
pub use neighbours::{Member, Role};
pub use node::{Cluster, OpenError, Options, ShardStats, Store, StoreStats};
pub use peers::{Lead, Peers};
pub use readers::Read;
pub use recover::{Recovered, recover};
pub use retained::{RetainMark, Retained, RetainedPage, RetainedPlace};
#[cfg(feature = "simulation")]
pub use simulation::Replica;
pub use size::REQUEST_LIMIT;
pub use store_state::{FullInbox, Rows};
pub use survey::{Finding, LogSurvey, NodeSurvey, ShardLog, ShardSurvey, StoreSurvey, survey};
pub use tables::{ShardTable, Tables, TablesError, TablesOptions};

use mqtt_session::ApplicationMessage;
use store_state::Limits;
use store_state::inbox::{InboxDrop, StoredSubscription};

/// The version of the shard map. It changes when shards split; until they do there is one.
pub(crate) const MAP_VERSION: u64 = 1;

/// Who is told what the store brings about. Called by the shards' threads.
pub trait Listener: Send + Sync + 'static {
    /// Events for an event loop.
    fn mail(&self, loop_index: usize, events: Vec<Event>);

    /// How many event loops there are.
    fn loops(&self) -> usize;

    /// Whether any session of an inbox shard subscribes to a filter, and whether any such is detached.
    fn filter(&self, shard: ShardNumber, filter: &str, any: bool, detached: bool);

    /// A session has joined a shared group, or left it (`None`).
    fn member(
        &self,
        shard: ShardNumber,
        client: &str,
        filter: &str,
        subscription: Option<&StoredSubscription>,
    );

    /// A node leads an inbox shard from now on, in this Raft term; `None`: this one leads it no more. If it
    /// is this node, all that the shard has to tell of filters and members follows.
    fn inbox_leader(&self, _shard: ShardNumber, _node: Option<u64>, _term: u64) {}

    /// All that an inbox shard had to tell when this node began to lead it has been told.
    fn inbox_announced(&self, _shard: ShardNumber) {}

    /// A message was dropped.
    fn dropped(&self, drop: &InboxDrop<'_>);

    /// A message that nobody waits for was not stored; `client`: the session it was for, if it was for
    /// one.
    fn lost(&self, client: &str, message: &ApplicationMessage);

    /// The store cannot go on: nothing may be acknowledged any more, and the process is to end.
    fn failed(&self, what: &str);

    /// Unix time in ms, by which messages expire and sessions end. On the nodes of a cluster about the same, and it may
    /// be set back.
    fn now_ms(&self) -> u64;

    /// Unix time in ms by a clock of this process that is never set: the one of [`Member::last_heard_ms`].
    fn clock_ms(&self) -> u64 {
        self.now_ms()
    }

    /// The limits in force.
    fn limits(&self) -> Limits;
}
