//! Which sessions of the shard get a message of a topic.
//!
//! Invariant: targets are in the order of their inboxes' numbers, the same on all replicas.
//!
//! When a shard is split, the router stays as it is, as a base of both halves: there is no time to take it apart. Each half
//! moves its inboxes into a router of its own, an inbox that changes first and the others by and by. The generation of
//! an inbox says which router has its subscriptions, all of them; what a base has of other inboxes, which have moved or
//! are in the other half, is no match. So the targets do not depend on how many inboxes a replica has moved.
//!
//! Deliberately absent: shared subscriptions; who gets a message of a group is decided elsewhere.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashing::{HashBuilder, HashMap};
use mqtt_session::Wanted;
use topic_router::change::{BUCKETS, Bucket, bucket_of_filter, buckets_of_topic};
use topic_router::{Inserted, Retired, Router};

use super::StoredSubscription;
use super::filters::Filters;
use super::inbox::{Generation, Inbox};
use super::inboxes::Inboxes;

/// Bytes that the cache holds at most, in each of its two halves.
const CACHE_BYTES: usize = 8 << 20;

/// A session that gets a message, by the number of its inbox.
pub(super) type Target = mqtt_session::Target<u64>;

/// The route index of the shard.
#[derive(Debug)]
pub(super) struct Matching {
    router: Router<u64, Wanted>,
    /// That of the inboxes whose subscriptions are in `router`; counts splits.
    generation: Generation,
    /// Routers of the time before a split, oldest first.
    bases: Vec<Base>,
    /// Inboxes that have yet to be moved, some of which have been, or are gone.
    left: Vec<u64>,
    /// Routers that no half needs any more, and this one has yet to free.
    retired: Vec<Retired<u64, Wanted>>,
    /// Counts changes, by bucket.
    changes: Box<[u32]>,
    cache: Cache,
}

/// A router that does not change any more.
#[derive(Clone, Debug)]
struct Base {
    router: Arc<Router<u64, Wanted>>,
    generation: Generation,
}

impl Matching {
    pub(super) fn new() -> Self {
        Self {
            // Clients must not be able to guess it; nothing that replicas agree on depends on it.
            router: Router::with_seed(HashBuilder::default().hash_one(0)),
            generation: Generation::default(),
            bases: Vec::new(),
            left: Vec::new(),
            retired: Vec::new(),
            changes: vec![0; BUCKETS].into(),
            cache: Cache::default(),
        }
    }

    /// The same for the other half of a shard that is split, which has the inboxes `upper`; this half has `lower`.
    pub(super) fn split_off(&mut self, lower: &Inboxes, upper: &Inboxes) -> Self {
        let mut other = Self::new();
        let seed = HashBuilder::default().hash_one(0);
        let router = std::mem::replace(&mut self.router, Router::with_seed(seed));
        self.bases.push(Base {
            router: Arc::new(router),
            generation: self.generation,
        });
        self.generation.0 += 1;
        other.generation = self.generation;
        other.bases.clone_from(&self.bases);
        self.left = lower.numbers();
        other.left = upper.numbers();
        // What is remembered has inboxes of the other half.
        for change in &mut self.changes {
            *change = change.wrapping_add(1);
        }
        other
    }

    /// An inbox, with the subscriptions that it has, is about to change: they are moved out of a base.
    pub(super) fn take_over(&mut self, inbox: &mut Inbox, filters: &mut Filters) {
        if inbox.generation == self.generation {
            return;
        }
        inbox.generation = self.generation;
        let detached = !inbox.is_attached();
        for subscription in inbox.own_subscriptions() {
            let wanted = Wanted::new(subscription.options, subscription.id).of_durable();
            self.router
                .insert(&subscription.filter, inbox.number, wanted);
            filters.load(&subscription.filter, detached);
        }
    }

    /// Moves inboxes until about so many of them and of their subscriptions are moved, and frees routers that are not
    /// needed any more. True: nothing is left to be done.
    pub(super) fn take_over_part(
        &mut self,
        entries: usize,
        inboxes: &mut Inboxes,
        filters: &mut Filters,
    ) -> bool {
        let mut done = 0;
        while done < entries
            && let Some(number) = self.left.pop()
        {
            done += 1;
            if let Some(inbox) = inboxes.get_mut(number) {
                done += inbox.subscriptions.len();
                self.take_over(inbox, filters);
            }
        }
        if !self.left.is_empty() {
            return false;
        }
        self.left = Vec::new();
        // The half that is done last frees it.
        let bases = std::mem::take(&mut self.bases).into_iter();
        let unused = bases.filter_map(|base| Arc::into_inner(base.router));
        self.retired.extend(unused.map(Router::retire));
        while let Some(retired) = self.retired.last_mut() {
            if done >= entries || !retired.free_part(entries - done) {
                return false;
            }
            self.retired.pop();
        }
        true
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
    pub(super) fn find(&mut self, topic: &[u8], inboxes: &Inboxes) -> Arc<[Target]> {
        if let Some(fresh) = self.cache.get(topic, &self.changes) {
            return fresh;
        }
        let name = std::str::from_utf8(topic).unwrap_or_default();
        let targets = Target::merge(self.matches(name, inboxes)).into();
        let buckets = buckets_of_topic(name);
        self.cache.put(topic, &targets, buckets, &self.changes);
        targets
    }

    /// The inboxes whose subscriptions match, each once, in the order of their numbers; nothing is remembered.
    pub(super) fn look(&self, topic: &str, inboxes: &Inboxes) -> Vec<u64> {
        let found = self.matches(topic, inboxes).into_iter();
        let mut numbers: Vec<u64> = found.map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    fn matches(&self, topic: &str, inboxes: &Inboxes) -> Vec<(u64, Wanted)> {
        let mut found = Vec::new();
        self.router
            .for_each_match(topic, |inbox, wanted| found.push((*inbox, *wanted)));
        for Base { router, generation } in &self.bases {
            router.for_each_match(topic, |number, wanted| {
                let inbox = inboxes.get(*number);
                if inbox.is_some_and(|inbox| inbox.generation == *generation) {
                    found.push((*number, *wanted));
                }
            });
        }
        found
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
