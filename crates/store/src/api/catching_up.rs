//! Which replicas that a node had when it was started have not caught up yet.
//!
//! A replica is here if the log has anything of its group. It has caught up when it has applied what its leader had committed
//! when they met, or leads ([`CatchUp`]), once; one that cannot be used, or that the cluster has removed meanwhile, is not waited for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use consensus::CatchUp;
use parking_lot::Mutex;
use store_state::api::{PerStore, ShardNumber, StoreId};

/// The replicas that have not caught up.
pub struct CatchingUp {
    shards: PerStore<Arc<dyn CatchingUpShards>>,
    waiting: Mutex<BTreeMap<(StoreId, ShardNumber), Seen>>,
}

/// Whether a replica was found to be open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    NotYet,
    Open,
}

impl fmt::Debug for CatchingUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CatchingUp")
    }
}

/// A replica that has not caught up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LateReplica {
    /// The store.
    pub store: StoreId,
    /// The shard.
    pub shard: ShardNumber,
    /// `None`: it is being opened.
    progress: Option<CatchUp>,
}

impl fmt::Display for LateReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, shard, .. } = self;
        write!(f, "the replica of shard {shard} of the {store} store ")?;
        match self.progress {
            None => f.write_str("is being opened"),
            Some(CatchUp::NotMet) => f.write_str("has not heard its leader yet"),
            Some(CatchUp::Behind { entries }) => write!(f, "is behind: {entries} to apply"),
            Some(CatchUp::Done) => f.write_str("has caught up"),
        }
    }
}

/// The shards of one store, as far as catching up goes.
pub(super) trait CatchingUpShards: Send + Sync {
    /// How far the replica here has caught up; `None`: it is being opened. One that is not here, or cannot be used, has nothing
    /// to catch up with.
    fn catch_up(&self, shard: ShardNumber) -> Option<CatchUp>;
}

impl CatchingUp {
    pub(super) fn new(
        shards: PerStore<Arc<dyn CatchingUpShards>>,
        replicas: impl Iterator<Item = (StoreId, ShardNumber)>,
    ) -> Self {
        Self {
            shards,
            waiting: Mutex::new(replicas.map(|id| (id, Seen::NotYet)).collect()),
        }
    }

    /// The replicas of the start that have not caught up yet; one that has is never among them again. Cheap when there are
    /// none.
    #[must_use]
    pub fn late(&self) -> Vec<LateReplica> {
        let mut waiting = self.waiting.lock();
        let mut late = Vec::new();
        waiting.retain(|(store, shard), seen| {
            let progress = self.shards[*store].catch_up(*shard);
            let is_late = match progress {
                Some(CatchUp::Done) => false,
                Some(CatchUp::NotMet | CatchUp::Behind { .. }) => {
                    *seen = Seen::Open;
                    true
                }
                // One that was open and is not any more was removed: other nodes have the shard.
                None => *seen == Seen::NotYet,
            };
            if is_late {
                late.push(LateReplica {
                    store: *store,
                    shard: *shard,
                    progress,
                });
            }
            is_late
        });
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each shard, what its replica says.
    #[derive(Default)]
    struct Replicas(Mutex<BTreeMap<ShardNumber, CatchUp>>);

    impl CatchingUpShards for Replicas {
        fn catch_up(&self, shard: ShardNumber) -> Option<CatchUp> {
            self.0.lock().get(&shard).copied()
        }
    }

    #[test]
    fn replicas_are_late_until_they_have_caught_up_or_are_removed() {
        let replicas = Arc::new(Replicas::default());
        let shards = PerStore::from_fn(|_| Arc::clone(&replicas) as Arc<dyn CatchingUpShards>);
        let here = [0, 1, 2].map(|shard| (StoreId::Inbox, shard));
        let catching_up = CatchingUp::new(shards, here.into_iter());
        let late = || -> Vec<ShardNumber> {
            let late = catching_up.late();
            late.iter().map(|replica| replica.shard).collect()
        };
        let say = |shard, progress| replicas.0.lock().insert(shard, progress);
        assert_eq!(late(), [0, 1, 2]);
        for shard in 0..3 {
            say(shard, CatchUp::NotMet);
        }
        assert_eq!(late(), [0, 1, 2]);
        say(0, CatchUp::Behind { entries: 1 });
        replicas.0.lock().remove(&1);
        say(2, CatchUp::Done);
        assert_eq!(late(), [0]);
        say(0, CatchUp::Done);
        assert_eq!(late(), []);
        // Once.
        say(0, CatchUp::NotMet);
        assert_eq!(late(), []);
    }

    #[test]
    fn a_late_replica_says_why() {
        let late = |progress| LateReplica {
            store: StoreId::Inbox,
            shard: 3,
            progress,
        };
        for (progress, why) in [
            (None, "is being opened"),
            (Some(CatchUp::NotMet), "has not heard its leader yet"),
            (
                Some(CatchUp::Behind { entries: 9 }),
                "is behind: 9 to apply",
            ),
        ] {
            let expected = format!("the replica of shard 3 of the inbox store {why}");
            assert_eq!(late(progress).to_string(), expected);
        }
    }
}
