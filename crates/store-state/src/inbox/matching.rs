//! Which sessions of the shard get a message of a topic.
//!
//! Invariant: targets are in the order of their inboxes' numbers, the same on all replicas.
//!
//! Deliberately absent: shared subscriptions; who gets a message of a group is decided elsewhere.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashing::{HashBuilder, HashMap};
use mqtt_session::Wanted;
use topic_router::change::{BUCKETS, Bucket, bucket_of_filter, buckets_of_topic};
use topic_router::{Inserted, Router};

use super::StoredSubscription;

/// Bytes that the cache holds at most, in each of its two halves.
const CACHE_BYTES: usize = 8 << 20;

/// A session that gets a message, by the number of its inbox.
pub(super) type Target = mqtt_session::Target<u64>;

/// The route index of the shard.
#[derive(Debug)]
pub(super) struct Matching {
    router: Router<u64, Wanted>,
    /// Counts changes, by bucket.
    changes: Box<[u32]>,
    cache: Cache,
}

impl Matching {
    pub(super) fn new() -> Self {
        Self {
            // Clients must not be able to guess it; nothing that replicas agree on depends on it.
            router: Router::with_seed(HashBuilder::default().hash_one(0)),
            changes: vec![0; BUCKETS].into(),
            cache: Cache::default(),
        }
    }

    /// Adds or replaces a subscription of a session.
    pub(super) fn subscribe(&mut self, inbox: u64, subscription: &StoredSubscription) {
        let wanted = Wanted::new(subscription.options, subscription.id).of_durable();
        let filter = &*subscription.filter;
        if self.router.insert(filter, inbox, wanted) != Inserted::Replaced(wanted) {
            self.changed(filter);
        }
    }

    pub(super) fn unsubscribe(&mut self, inbox: u64, filter: &str) {
        self.router.remove(filter, &inbox);
        self.changed(filter);
    }

    /// Who gets messages of a topic (a topic name in UTF-8).
    pub(super) fn find(&mut self, topic: &[u8]) -> Arc<[Target]> {
        if let Some(fresh) = self.cache.get(topic, &self.changes) {
            return fresh;
        }
        let name = std::str::from_utf8(topic).unwrap_or_default();
        let mut found = Vec::new();
        self.router
            .for_each_match(name, |inbox, wanted| found.push((*inbox, *wanted)));
        let targets = Target::merge(found).into();
        let buckets = buckets_of_topic(name);
        self.cache.put(topic, &targets, buckets, &self.changes);
        targets
    }

    fn changed(&mut self, filter: &str) {
        if let Some(change) = self.changes.get_mut(usize::from(bucket_of_filter(filter))) {
            *change = change.wrapping_add(1);
        }
    }
}

/// The memory of who gets which topic.
///
/// Two halves: what is found in the old half moves to the young one; when the young half is full, it
/// becomes the old one, and what was in that is forgotten. So topics in use stay, at no cost per use.
#[derive(Debug, Default)]
struct Cache {
    young: HashMap<Box<[u8]>, Cached>,
    old: HashMap<Box<[u8]>, Cached>,
    young_bytes: usize,
}

#[derive(Debug)]
struct Cached {
    targets: Arc<[Target]>,
    buckets: [Bucket; 3],
    stamp: u32,
}

impl Cached {
    fn is_fresh(&self, changes: &[u32]) -> bool {
        self.stamp == stamp(self.buckets, changes)
    }

    fn bytes(&self, topic: &[u8]) -> usize {
        topic.len() + size_of::<(Box<[u8]>, Self)>() + size_of_val(&*self.targets)
    }
}

/// A number that changes whenever a change of routes could affect a topic with these buckets.
fn stamp(buckets: [Bucket; 3], changes: &[u32]) -> u32 {
    buckets
        .into_iter()
        .filter_map(|bucket| changes.get(usize::from(bucket)))
        .fold(0, |sum, change| sum.wrapping_add(*change))
}

impl Cache {
    fn get(&mut self, topic: &[u8], changes: &[u32]) -> Option<Arc<[Target]>> {
        if let Some(cached) = self.young.get(topic) {
            return cached
                .is_fresh(changes)
                .then(|| Arc::clone(&cached.targets));
        }
        let cached = self.old.remove(topic).filter(|old| old.is_fresh(changes))?;
        let targets = Arc::clone(&cached.targets);
        self.insert(topic, cached);
        Some(targets)
    }

    fn put(
        &mut self,
        topic: &[u8],
        targets: &Arc<[Target]>,
        buckets: [Bucket; 3],
        changes: &[u32],
    ) {
        let cached = Cached {
            targets: Arc::clone(targets),
            buckets,
            stamp: stamp(buckets, changes),
        };
        self.insert(topic, cached);
    }

    fn insert(&mut self, topic: &[u8], cached: Cached) {
        self.young_bytes += cached.bytes(topic);
        if let Some(stale) = self.young.insert(topic.into(), cached) {
            self.young_bytes -= stale.bytes(topic);
        }
        if self.young_bytes > CACHE_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}
