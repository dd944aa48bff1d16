//! The levels of the shards of this node, how they are raised, and which replicas cannot be used.

use std::pin::Pin;
use std::sync::Arc;

use store_state::Level;
use store_state::api::{PerStore, ShardNumber, StoreId};

use crate::api::damaged::DamagedReplica;
use crate::peers::known::KnownPeers;
use crate::storage::folder::Folder;

/// The levels of the replicas of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeLevels {
    /// The lowest.
    pub lowest: Level,
    /// The highest. A node that has one knows that the cluster was to be raised to it.
    pub highest: Level,
}

/// A replica of a node that does not serve, or does not follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaFault {
    /// The store.
    pub store: StoreId,
    /// The shard.
    pub shard: ShardNumber,
    /// What is wrong, in 400 characters at most.
    pub why: String,
}

/// The shards of one store, as far as levels go.
pub(super) trait LeveledShards: Send + Sync {
    /// The levels of the replicas here.
    fn levels(&self) -> Vec<Level>;

    /// The lowest of them; that of the folder, if there are none. Cheap.
    fn lowest(&self) -> Level;

    /// The replicas here that do not serve or do not follow.
    fn faults(&self) -> Vec<ReplicaFault>;

    /// The replicas here that are damaged, and what becomes of them.
    fn damaged(&self) -> Vec<DamagedReplica>;

    /// What comparisons have found of the replicas here in the last hour.
    fn differences(&self) -> Vec<ReplicaFault>;

    /// Proposes that the shards led here are raised that are below. Returns for how many it was proposed.
    fn raise(&self, level: Level) -> Pin<Box<dyn Future<Output = usize> + Send + '_>>;
}

/// The shards of a node, as far as levels go.
pub struct Levels {
    pub(super) shards: PerStore<Arc<dyn LeveledShards>>,
    pub(super) known_peers: Arc<KnownPeers>,
    pub(super) folder: Arc<Folder>,
}

impl Levels {
    /// The level of shards of which neither tables nor log say one: what a node that joins is told.
    #[must_use]
    pub fn of_folder(&self) -> Level {
        self.folder.level()
    }

    /// The levels of the replicas here; those of the folder, if there are none.
    #[must_use]
    pub fn here(&self) -> NodeLevels {
        let levels = self.shards.iter().flat_map(|(_, shards)| shards.levels());
        let levels: Vec<Level> = levels.collect();
        let folder = self.folder.level();
        NodeLevels {
            lowest: levels.iter().copied().min().unwrap_or(folder),
            highest: levels.into_iter().max().unwrap_or(folder),
        }
    }

    /// The replicas here that do not serve or do not follow, and why.
    #[must_use]
    pub fn faults(&self) -> Vec<ReplicaFault> {
        let shards = self.shards.iter();
        shards.flat_map(|(_, shards)| shards.faults()).collect()
    }

    /// The replicas here that are damaged, and what makes each whole again.
    #[must_use]
    pub fn damaged(&self) -> Vec<DamagedReplica> {
        let shards = self.shards.iter();
        shards.flat_map(|(_, shards)| shards.damaged()).collect()
    }

    /// The replicas here that were found in the last hour to hold something else than the others, and what became of them.
    #[must_use]
    pub fn differences(&self) -> Vec<ReplicaFault> {
        let shards = self.shards.iter();
        shards
            .flat_map(|(_, shards)| shards.differences())
            .collect()
    }

    /// Whether requests may name sessions by numbers and long identifiers by hashes. Cheap.
    pub(super) fn have_names(&self) -> bool {
        self.known_peers.know_names() && self.may_trim()
    }

    /// Whether the shards of the inbox store take operations that drop queued messages. Cheap.
    #[must_use]
    pub fn may_trim(&self) -> bool {
        self.shards.inbox.lowest() >= Level::SPLITS
    }

    /// Whether the shards of the session store take operations by which an operator ends a session. Cheap.
    #[must_use]
    pub fn may_end(&self) -> bool {
        self.shards.session.lowest() >= Level::SPLITS
    }

    /// Raises the shards that this node leads and that are below a level. Returns how many of them it was proposed for; what has
    /// become of it, [`Levels::here`] tells. Only if every member of the cluster knows the level, also those that are down.
    pub async fn raise(&self, level: Level) -> usize {
        debug_assert!(
            level.is_said() && level <= Level::NEWEST,
            "shards are raised to a level that this program knows"
        );
        let mut proposed = 0;
        for (_, shards) in self.shards.iter() {
            proposed += shards.raise(level).await;
        }
        proposed
    }
}
