//! Which sessions of the shard get a message of a topic.
//!
//! Invariant: a session stands in a match once, however many of its subscriptions match: with the
//! highest QoS and all subscription identifiers of those. Targets are in the order of their inboxes'
//! numbers, the same on all replicas.
//!
//! Deliberately absent: shared subscriptions; who gets a message of a group is decided elsewhere.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use mqtt_proto::QoS;
use mqtt_session::SubscriptionIdSet;
use topic_router::change::{BUCKETS, Bucket, bucket_of_filter, buckets_of_topic};
use topic_router::{Inserted, Router};

use super::{StoredSubscription, publisher_hash};

/// Bytes that the cache holds at most, in each of its two halves.
const CACHE_BYTES: usize = 8 << 20;

/// What a subscription asks for, beside its filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wanted {
    /// Subscription identifier; 0: none.
    id: u32,
    qos: QoS,
    no_local: bool,
    retain_as_published: bool,
}

/// A session that gets a message, once.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The number of its inbox.
    pub(super) inbox: u64,
    pub(super) ids: SubscriptionIdSet,
    pub(super) qos: QoS,
    pub(super) retain_as_published: bool,
    who: Publishers,
}

/// Whose messages a target gets. With overlapping subscriptions of which some are No Local, a session
/// has two targets: one for its own messages and one for all others'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Publishers {
    Anybody,
    Others,
    ItselfOnly,
}

impl Target {
    /// Whether a message of this publisher is for the target, a session of this client.
    pub(super) fn wants(&self, publisher: u64, client: &str) -> bool {
        match self.who {
            Publishers::Anybody => true,
            // [MQTT-3.8.3-3] not to the client that published it, if No Local is set
            Publishers::Others => publisher_hash(client) != publisher,
            Publishers::ItselfOnly => publisher_hash(client) == publisher,
        }
    }
}

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
            router: Router::with_seed(RandomState::default().hash_one(0)),
            changes: vec![0; BUCKETS].into(),
            cache: Cache::default(),
        }
    }

    /// Adds or replaces a subscription of a session.
    pub(super) fn subscribe(&mut self, inbox: u64, subscription: &StoredSubscription) {
        let options = subscription.options;
        let wanted = Wanted {
            id: subscription.id,
            qos: options.qos,
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
        };
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
        let targets = merge(found);
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

/// One target per session and kind of publisher.
fn merge(mut found: Vec<(u64, Wanted)>) -> Arc<[Target]> {
    found.sort_by_key(|(inbox, wanted)| (*inbox, wanted.id));
    let mut targets = Vec::with_capacity(found.len());
    for same in found.chunk_by(|a, b| a.0 == b.0) {
        let no_local = same.iter().filter(|(_, wanted)| wanted.no_local).count();
        if no_local == 0 {
            targets.extend(target(same.iter(), Publishers::Anybody));
        } else {
            targets.extend(target(same.iter(), Publishers::Others));
            targets.extend(target(
                same.iter().filter(|(_, wanted)| !wanted.no_local),
                Publishers::ItselfOnly,
            ));
        }
    }
    targets.into()
}

fn target<'a>(same: impl Iterator<Item = &'a (u64, Wanted)>, who: Publishers) -> Option<Target> {
    let mut merged: Option<Target> = None;
    for (inbox, wanted) in same {
        let target = merged.get_or_insert(Target {
            inbox: *inbox,
            ids: SubscriptionIdSet::None,
            qos: wanted.qos,
            retain_as_published: false,
            who,
        });
        // [MQTT-3.3.4-2] the highest QoS of all matching subscriptions
        target.qos = target.qos.max(wanted.qos);
        target.retain_as_published |= wanted.retain_as_published;
        // [MQTT-3.3.4-3] [MQTT-3.3.4-4] one copy carries the identifiers of all of them
        if wanted.id != 0 {
            target.ids.push(wanted.id);
        }
    }
    merged
}

/// The memory of who gets which topic.
///
/// Two halves: what is found in the old half moves to the young one; when the young half is full, it
/// becomes the old one, and what was in that is forgotten. So topics in use stay, at no cost per use.
#[derive(Debug, Default)]
struct Cache {
    young: HashMap<Box<[u8]>, Cached, RandomState>,
    old: HashMap<Box<[u8]>, Cached, RandomState>,
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
