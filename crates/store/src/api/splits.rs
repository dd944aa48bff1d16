//! Splits of the shards of a node, by hand and by itself.
//!
//! Deliberately absent: what is asked before (`split.rs`); which shard is split next (`splitting`).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use store_state::ChildShard;
use store_state::api::{PerStore, ShardNumber, StoreId};
use store_state::inbox::InboxMachine;
use store_state::retain::RetainMachine;
use store_state::session::SessionMachine;
use tokio::time::{Instant, sleep, timeout};

use crate::api::shard_set::ShardSet;
use crate::api::split::{AskedSplit, Asking, SplitError, SplitId};
use crate::peers::known::KnownPeers;
use crate::splitting::script::SplitScripts;
use crate::splitting::splitter::{SplitCounts, SplitDecision, Splitter};

/// How long a split waits for the end of the one before, and for the leader of the child: both come within some milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often is looked whether the split before is over.
const LOOK: Duration = Duration::from_millis(5);

/// The splits of a node.
pub struct Splits {
    pub(super) session: Arc<ShardSet<SessionMachine>>,
    pub(super) inbox: Arc<ShardSet<InboxMachine>>,
    pub(super) retain: Arc<ShardSet<RetainMachine>>,
    pub(super) known_peers: Arc<KnownPeers>,
    pub(super) asked: AskedSplit,
    /// Decides about those that the node makes by itself.
    pub(crate) splitter: Mutex<Splitter>,
}

impl Splits {
    /// Splits a shard, as [`Lead`](crate::Lead) names it, that this node leads: the slots from `at` on get a shard of their own,
    /// whose number `at` is. Returns when the replica here has split it and the child has a leader, or after two seconds if it
    /// gets none. Within a runtime that has timers.
    ///
    /// # Errors
    /// Nothing is split, but for [`SplitError::Unknown`].
    pub async fn split(
        &self,
        store: StoreId,
        shard: ShardNumber,
        at: u16,
    ) -> Result<(), SplitError> {
        let split = SplitId {
            store,
            parent: shard,
            child: ChildShard(at),
        };
        let mut asking = self.begin(split).await?;
        match store {
            StoreId::Session => self.session.split(shard, at, &self.known_peers).await,
            StoreId::Inbox => self.inbox.split(shard, at, &self.known_peers).await,
            StoreId::Retain => self.retain.split(shard, at, &self.known_peers).await,
            StoreId::Control => Err(SplitError::NeverSplit),
        }?;
        asking.is_done = true;
        let is_led = async {
            match store {
                StoreId::Session => self.session.is_led(at).await,
                StoreId::Inbox => self.inbox.is_led(at).await,
                StoreId::Retain => self.retain.is_led(at).await,
                StoreId::Control => {}
            }
        };
        // An error: it has none yet, and the split is done all the same.
        let _ = timeout(PATIENCE, is_led).await;
        Ok(())
    }

    /// What this node has decided last about splits of the shards that it leads.
    #[must_use]
    pub fn decisions(&self) -> Vec<SplitDecision> {
        self.splitter.lock().decisions(Instant::now())
    }

    /// The splits that this node has decided on, by store.
    #[must_use]
    pub fn counts(&self) -> PerStore<SplitCounts> {
        self.splitter.lock().counts()
    }

    /// The scripts that decide about splits.
    #[must_use]
    pub fn scripts(&self) -> SplitScripts {
        self.splitter.lock().scripts().clone()
    }

    /// Waits for the end of the last split, if that comes soon.
    async fn begin(&self, split: SplitId) -> Result<Asking<'_>, SplitError> {
        let end = Instant::now() + PATIENCE;
        loop {
            let begun = self.asked.begin(split, |earlier| self.is_over(earlier));
            if begun.is_ok() || Instant::now() >= end {
                return begun;
            }
            sleep(LOOK).await;
        }
    }

    /// Whether the child of a split has a leader, and tables here.
    fn is_over(&self, split: SplitId) -> bool {
        match split.store {
            StoreId::Session => self.session.is_split_over(split),
            StoreId::Inbox => self.inbox.is_split_over(split),
            StoreId::Retain => self.retain.is_split_over(split),
            StoreId::Control => true,
        }
    }
}
