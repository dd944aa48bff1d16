//! Settings of a store.

use std::num::NonZeroU8;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use store_state::Level;
use store_state::api::PerStore;

use crate::peers::network::Peers;
use crate::splitting::options::SplitOptions;
use crate::splitting::script::SplitScripts;
use crate::storage::tables::OPEN_FILES;

/// Settings of the store.
#[derive(Clone)]
pub struct Options {
    /// Folders of the three stores (session, inbox, retain) if they are not in the data folder.
    pub folders: PerStore<Option<PathBuf>>,
    /// Shards that each store begins with.
    pub shards: PerStore<u16>,
    /// Threads that shards live on from the beginning.
    pub threads: usize,
    /// So many at most: others are started when splits have made shards for them.
    pub threads_most: usize,
    /// How the node splits shards by itself.
    pub splits: PerStore<SplitOptions>,
    /// The scripts of stores that are split by script.
    pub split_scripts: SplitScripts,
    /// Replicas of each shard that vote, if the settings say how many.
    pub voters: PerStore<Option<NonZeroU8>>,
    /// The time after which a node that is down is replaced as a voter.
    pub replace_after: Duration,
    /// How often the replicas of a shard are compared that has changed; zero: never.
    pub compare_every: Duration,
    /// How long it takes until all that is on the disk was read again, to find damage; zero: it is not read.
    pub scrub_every: Duration,
    /// Files of the tables of each store that are kept open.
    pub open_files: usize,
    /// The level of shards that say none, for a data folder of which it is not known yet: as the members of the cluster say. `None`:
    /// nobody says it; a new folder is at the newest level.
    pub level: Option<Level>,
    /// The other nodes; `None`: this one is alone.
    pub cluster: Option<Cluster>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            folders: PerStore::default(),
            shards: PerStore::all(1),
            threads: 1,
            threads_most: 1,
            splits: PerStore::all(SplitOptions::default()),
            split_scripts: SplitScripts::default(),
            voters: PerStore::default(),
            replace_after: Duration::from_secs(600),
            compare_every: Duration::from_secs(30),
            scrub_every: Duration::ZERO,
            open_files: OPEN_FILES,
            level: None,
            cluster: None,
        }
    }
}

/// How the store takes part in a cluster.
#[derive(Clone)]
pub struct Cluster {
    /// The way to the other nodes.
    pub peers: Arc<dyn Peers>,
    /// Whether this node founds the cluster. One that has joined waits until it is given shards.
    pub founds: bool,
    /// Somebody has said that the data folder is to be taken as it is, though it may be an old copy: the replicas in it
    /// vote in terms from this one on, in which no replica has voted before. The time in seconds since 1970 is one.
    pub accepts_folder: Option<u64>,
}
