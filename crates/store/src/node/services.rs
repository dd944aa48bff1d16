//! What the shards of a node have in common.

use std::num::NonZeroU8;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use consensus::{Log, Network, Nobody};
use histogram::Histogram;
use store_state::api::PerStore;
use tokio::sync::{Semaphore, watch};

use crate::api::listener::Listener;
use crate::kinds::kind::Kind;
use crate::leadership::led_shards::LedShards;
use crate::node::beginnings::Beginnings;
use crate::node::shutdown::Stop;
use crate::node::starts::StoreThreads;
use crate::peers::known::KnownPeers;
use crate::retention::held::HeldQueues;
use crate::retention::retained::held::HeldRetained;
use crate::scrub::counters::ScrubCounters;
use crate::shard::deferred::Backlog;
use crate::storage::folder::Folder;
use crate::storage::tables::Tables;

/// What the shards of a node have in common.
pub(crate) struct NodeServices {
    /// Of the stores.
    pub(crate) tables: PerStore<Arc<Tables>>,
    pub(crate) log: Arc<Log>,
    pub(crate) listener: Arc<dyn Listener>,
    pub(crate) folder: Arc<Folder>,
    pub(crate) stopping: watch::Receiver<Stop>,
    pub(crate) backlog: Backlog,
    /// How long it took to apply batches, or parts of them.
    pub(crate) apply_times: Arc<Histogram>,
    pub(crate) known_peers: Arc<KnownPeers>,
    pub(crate) led_shards: Arc<LedShards>,
    /// What the queues hold that this node keeps.
    pub(crate) held_queues: Arc<HeldQueues>,
    pub(crate) held_retained: Arc<HeldRetained>,
    /// The threads that shards live on.
    pub(crate) threads: StoreThreads,
    /// Shards that are not here are begun here.
    pub(crate) founds: bool,
    /// As of [`Cluster::accepts_folder`](crate::Cluster::accepts_folder).
    pub(crate) accepts_folder: Option<u64>,
    pub(crate) voters: PerStore<Option<NonZeroU8>>,
    pub(crate) replace_after: Duration,
    /// As of [`Options::compare_every`](crate::Options::compare_every).
    pub(crate) compare_every: Duration,
    pub(crate) scrubbed: Arc<ScrubCounters>,
    /// One replica of the node reads its tables at a time, to compare them with those of others.
    pub(crate) comparing: Arc<Semaphore>,
    /// How entries of one store begin another one. Known before any entry is applied.
    pub(crate) beginnings: OnceLock<Box<dyn Beginnings>>,
}

impl NodeServices {
    pub(crate) fn tables_of<M: Kind>(&self) -> &Tables {
        &self.tables[M::STORE]
    }

    pub(crate) fn voters_of<M: Kind>(&self) -> Option<usize> {
        self.voters[M::STORE].map(|voters| voters.get().into())
    }

    pub(crate) fn network(&self) -> Arc<dyn Network> {
        match &self.known_peers.network {
            Some(peers) => Arc::clone(peers) as _,
            None => Arc::new(Nobody),
        }
    }

    /// What is recorded when this node starts, or goes on after it was taken for dead.
    pub(crate) fn node_up<M: Kind>(&self) -> Option<M::Op> {
        let last_alive = self.folder.last_alive_ms();
        let last_alive_ms = last_alive.unwrap_or_else(|| self.listener.now_ms());
        M::node_up(
            self.folder.node(),
            self.known_peers.incarnation(),
            last_alive_ms,
        )
    }
}
