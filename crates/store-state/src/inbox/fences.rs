//! Which connections of publishers are over, so that what is still on its way from them comes too late.
//!
//! A node that cannot reach a shard's leader keeps what its clients have published. Meanwhile a client goes on at
//! another node: it publishes the same again, and releases it. When the first node reaches the leader, the origin is
//! forgotten and its copy would happen a second time; or be taken for the next publication with that packet
//! identifier, which would then be lost. So the first release of each connection raises the publisher's fence in every
//! shard, and what an earlier connection sent is refused.
//!
//! Invariants: a fence is not lowered while it is known. It is known for [`FENCE_MS`] after it was raised, longer than a
//! node keeps a request that is not answered; at most [`FENCES`] are known, and beyond that the one that was raised
//! first is forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashing::HashMap;
use serde::{Deserialize, Serialize};

use super::name::{self, ClientName, Naming};
use super::tables::FENCE;
use crate::touched::Touched;
use crate::{Changes, row};

/// How long a fence is known, in ms.
pub(super) const FENCE_MS: u64 = 60_000;

/// How many a shard knows.
///
/// Limit: publishers of QoS 2 of which an inbox shard knows which connections are over, so that what these have sent
/// comes too late | {inbox::FENCE_MS} from the first release of a connection; {} | the oldest is forgotten: what is
/// on its way from an earlier connection may be queued twice
pub(super) const FENCES: usize = 100_000;

/// Those of a shard. Each half of a shard that is split has all of them.
#[derive(Debug)]
pub(super) struct Fences {
    naming: Naming,
    publishers: HashMap<Arc<str>, Fence>,
    /// When they were raised, in ms.
    raised: BTreeSet<(u64, Arc<str>)>,
    touched: Touched<Arc<str>>,
}

/// The value of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Fence {
    /// Connections with a lower epoch are over.
    pub(super) epoch: u64,
    /// When it was raised, Unix time in ms.
    pub(super) raised_ms: u64,
}

impl Fences {
    pub(super) fn new(naming: Naming) -> Self {
        Self {
            naming,
            publishers: HashMap::default(),
            raised: BTreeSet::new(),
            touched: Touched::new(),
        }
    }

    /// The same for the other half of a shard that is split: each fence was raised in all shards.
    ///
    /// # Panics
    /// A checkpoint is under way.
    pub(super) fn split(&self) -> Self {
        Self {
            naming: self.naming,
            publishers: self.publishers.clone(),
            raised: self.raised.clone(),
            touched: self.touched.split(),
        }
    }

    /// Whether a later connection of the publisher has released something.
    pub(super) fn is_over(&self, publisher: &ClientName, epoch: u64) -> bool {
        let name = self.naming.name_of(publisher.as_str());
        let fence = self.publishers.get(&*name);
        fence.is_some_and(|fence| epoch < fence.epoch)
    }

    /// A connection has released something. False: it is over.
    pub(super) fn raise(&mut self, publisher: &ClientName, epoch: u64, now_ms: u64) -> bool {
        let publisher = &*self.naming.name_of(publisher.as_str());
        let known = self.publishers.get_key_value(publisher);
        let known = known.map(|(name, fence)| (Arc::clone(name), *fence));
        let name = match known {
            Some((_, fence)) if epoch <= fence.epoch => return epoch == fence.epoch,
            Some((name, fence)) => {
                self.raised.remove(&(fence.raised_ms, Arc::clone(&name)));
                self.touch(&name, true);
                name
            }
            None => {
                let name = publisher.into();
                self.touch(&name, false);
                name
            }
        };
        self.insert(
            name,
            Fence {
                epoch,
                raised_ms: now_ms,
            },
        );
        while self.publishers.len() > FENCES {
            self.forget_first();
        }
        true
    }

    /// Forgets those that were raised long enough ago.
    pub(super) fn pass_time(&mut self, now_ms: u64) {
        let is_due = |(raised_ms, _): &(u64, Arc<str>)| raised_ms + FENCE_MS <= now_ms;
        while self.raised.first().is_some_and(is_due) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, name)) = self.raised.pop_first() {
            self.publishers.remove(&name);
            self.touch(&name, true);
        }
    }

    /// A row of the tables. One by a long identifier, of an earlier version, is written anew at the next checkpoint.
    pub(super) fn load(&mut self, publisher: &str, fence: Fence) {
        let name = self.naming.name_of(publisher).into();
        if self.naming.is_long(publisher) {
            self.touch(&publisher.into(), true);
            self.touch(&name, false);
        }
        self.insert(name, fence);
    }

    /// Clients are named so from now on: rows by long identifiers are written anew at the next checkpoint.
    pub(super) fn rename(&mut self, naming: Naming) {
        self.naming = naming;
        let long = self.publishers.iter();
        let long = long.filter(|(publisher, _)| naming.is_long(publisher));
        let long: Vec<_> = long.map(|(of, fence)| (Arc::clone(of), *fence)).collect();
        for (publisher, fence) in long {
            self.raised
                .remove(&(fence.raised_ms, Arc::clone(&publisher)));
            self.publishers.remove(&publisher);
            self.load(&publisher, fence);
        }
    }

    fn insert(&mut self, publisher: Arc<str>, fence: Fence) {
        self.raised
            .insert((fence.raised_ms, Arc::clone(&publisher)));
        self.publishers.insert(publisher, fence);
    }

    pub(super) fn len(&self) -> usize {
        self.publishers.len()
    }

    fn touch(&mut self, publisher: &Arc<str>, existed: bool) {
        self.touched
            .touch(Arc::clone(publisher), existed, 32 + publisher.len());
    }

    pub(super) fn collect(&mut self, changes: &mut Changes) {
        let (publishers, hash) = (&self.publishers, self.naming.hash);
        self.touched.collect(changes, |name| {
            let key = row::key(FENCE, name::slot_of(name, hash), name);
            (key, publishers.get(name).map(row::encode))
        });
    }

    pub(super) fn saved(&mut self) {
        self.touched.saved();
    }

    pub(super) fn unsaved_bytes(&self) -> usize {
        self.touched.bytes()
    }
}
