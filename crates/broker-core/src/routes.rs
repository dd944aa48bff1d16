//! Who gets a message: the route index of this node, and the match cache of each loop.
//!
//! Invariants: a publication that starts after [`Routes::subscribe`] returned finds the subscription,
//! whichever loop it comes in by (P3 within a node).
//!
//! A loop looks up a topic in its own [`MatchCache`] without touching anything that another core
//! writes, except to read four change counters. Only a miss goes to the index, whose read lock is
//! divided per core.
//!
//! In a cluster the index holds what other nodes have told as well ([`Routes::import`]), and what this node
//! wants is told them ([`Routes::export`]). Nodes and shards of which it is not known what they want match
//! everything.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::sync::ShardedLock;
use hashbrown::HashTable;
use hashing::{HashMap, HashSet};
use mqtt_proto::{ProtocolVersion, QoS, SharedKind, SubscriptionFilter, SubscriptionOptions};
use mqtt_session::{Pattern, Subscription, Wanted};
use parking_lot::Mutex;
use peer_protocol::Slot;
use route_exchange::{Change, Exports, Key, NodeId, Receivers, ShardNumber, Value};
use store_state::api::{ShardRef, ShardRefs};
use store_state::inbox::StoredSubscription;
use topic_router::Inserted;
use topic_router::change::{BUCKETS, Bucket, bucket_of_filter, buckets_of_topic};

use crate::key::{Kind, Receiver, SessionKey};
use crate::route_table::RouteTable;
use crate::shared::groups::{By, Gauge, Group, Member, Who};
use crate::sys;

/// What receivers stand with that have their own idea of it.
const NOTHING: Wanted = Wanted {
    id: 0,
    qos: QoS::AtMostOnce,
    no_local: false,
    retain_as_published: false,
    durable: false,
};

/// A session that gets a message. If it is durable, its inbox shard gets what is stored, and only the rest
/// goes to its connection directly.
pub type Target = mqtt_session::Target<SessionKey>;

/// A shared group and its members when the match was made.
type MatchedGroup = (Arc<Group>, Arc<[Member]>);

/// Everybody who gets messages of one topic.
#[derive(Debug)]
pub struct MatchSet {
    /// Sorted by session, so the targets of one loop are neighbours.
    pub targets: Box<[Target]>,
    /// The loops that have targets, and where.
    pub loops: Box<[(usize, Range<usize>)]>,
    /// Shared subscription groups: of each, one member gets the message.
    pub groups: Box<[MatchedGroup]>,
    /// Inbox shards with sessions that match.
    pub shards: Box<[ShardRef]>,
    /// All inbox shards as they were routed to then.
    pub known: ShardRefs,
    /// None of `shards` is known to have any.
    pub unsure: bool,
    /// Of some shards it is not known what they want: groups may have members that are not in here.
    pub lacks_shards: bool,
    /// More inbox shards that may have some, which a cut-off node does not learn (P10).
    pub cut_off: Box<[ShardRef]>,
    /// Inbox shards with sessions that match and are not connected.
    pub detached: Box<[ShardRef]>,
    /// Other nodes with sessions that match, or that may have some.
    pub nodes: Box<[NodeTarget]>,
}

/// Another node that gets a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NodeTarget {
    /// The node.
    pub node: NodeId,
    /// Only if the message is of QoS 0: inboxes get the others.
    pub qos0_only: bool,
    /// It has said that it wants the message; else it is not known what it wants.
    pub known: bool,
}

impl MatchSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
            && self.groups.is_empty()
            && self.shards.is_empty()
            && self.nodes.is_empty()
    }

    /// Whether it is known that no other node, shard or group is to get the messages: only sessions that are connected to
    /// this node, or nobody.
    pub(crate) fn is_direct(&self) -> bool {
        self.groups.is_empty()
            && self.shards.is_empty()
            && self.detached.is_empty()
            && self.nodes.is_empty()
            && self.cut_off.is_empty()
            && !self.lacks_shards
    }

    /// Receivers of all kinds, and members of groups.
    pub(crate) fn len(&self) -> usize {
        let members = self.groups.iter().map(|(_, members)| members.len());
        self.targets.len() + self.shards.len() + self.nodes.len() + members.sum::<usize>()
    }

    /// Estimated bytes, for the limit of the cache.
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.targets.len() * size_of::<Target>()
            + self.loops.len() * size_of::<(usize, Range<usize>)>()
            + (self.shards.len() + self.cut_off.len() + self.detached.len()) * size_of::<ShardRef>()
            + self.nodes.len() * size_of::<NodeTarget>()
            + self
                .groups
                .iter()
                .map(|(_, members)| 64 + members.len() * size_of::<Member>())
                .sum::<usize>()
    }
}

/// The route index of a node.
#[derive(Debug)]
pub struct Routes {
    index: ShardedLock<Index>,
    changes: Box<[AtomicU32]>,
    /// Changes that concern all topics.
    sweeping_changes: AtomicU32,
    /// What this node wants from others; only in a cluster.
    exports: OnceLock<Mutex<Exports>>,
    /// Subscriptions, those in shared groups included.
    subscriptions: AtomicUsize,
}

#[derive(Debug)]
struct Index {
    router: RouteTable,
    groups: HashMap<u32, Arc<Group>>,
    /// A number is not used again: a delivery may name a group that is gone.
    last_group: u32,
    /// The same groups, by the hashes of what SUBSCRIBE names them by; the hasher is that of `groups`.
    named_groups: HashTable<Arc<Group>>,
    /// Numbers of groups that were left by their last known members while there might be others. They go when
    /// there are not.
    left: HashSet<u32>,
    /// Durable sessions that are in groups: of how many, and what they show these.
    durable_members: HashMap<Arc<str>, (u32, Arc<Gauge>)>,
    /// Other nodes, by their slot less one.
    nodes: Vec<Option<NodeId>>,
    unsure: RoutesUnknown,
    /// Of a node that is alone, the inbox shards that have told all that they want.
    told: HashSet<ShardNumber>,
    /// The inbox shards that are routed to: a shard that was split off is not among them before it has told all that it
    /// wants, or nobody tells that for it.
    known: ShardRefs,
}

/// Nodes and shards of which it is not known what they want.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RoutesUnknown {
    /// With whether there is a connection to each.
    pub nodes: Vec<(NodeId, bool)>,
    /// Inbox shards.
    pub shards: Vec<u16>,
    /// Shards of which it is known what they wanted when this node was cut off from most others.
    pub cut_off: Vec<u16>,
}

/// Shards as they are routed to: one that has only begun to tell what it wants counts to the one that it was split off.
fn to_refs(routed: &ShardRefs, numbers: &[u16]) -> Box<[ShardRef]> {
    let refs = numbers
        .iter()
        .filter_map(|number| routed.of_number(*number));
    let mut refs: Vec<ShardRef> = refs.collect();
    refs.sort_unstable();
    refs.dedup();
    refs.into()
}

/// The filter that a SUBSCRIBE names a group by: groups are told apart by kind, name and filter.
fn group_name(kind: SharedKind, name: &str, filter: &str) -> Box<str> {
    match kind {
        SharedKind::Queue => format!("{}{filter}", kind.prefix()),
        SharedKind::Share | SharedKind::OrderedShare => {
            format!("{}{name}/{filter}", kind.prefix())
        }
    }
    .into()
}

/// What a subscription did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Subscribed {
    /// There was none of this session with this filter before.
    pub(crate) new: bool,
    /// The number of the shared group.
    pub(crate) group: Option<u32>,
}

impl Routes {
    /// `seed` protects the hash tables from chosen collisions.
    pub fn with_seed(seed: u64) -> Self {
        Self {
            index: ShardedLock::new(Index {
                router: RouteTable::with_seed(seed),
                groups: HashMap::default(),
                last_group: 0,
                named_groups: HashTable::new(),
                left: HashSet::default(),
                durable_members: HashMap::default(),
                nodes: Vec::new(),
                unsure: RoutesUnknown::default(),
                told: HashSet::default(),
                known: ShardRefs::default(),
            }),
            sweeping_changes: AtomicU32::new(0),
            exports: OnceLock::new(),
            changes: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            subscriptions: AtomicUsize::new(0),
        }
    }

    /// Subscriptions, those in shared groups included.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions.load(Ordering::Relaxed)
    }

    /// What the index takes of the memory in bytes, without what shared groups hold. O(1).
    pub fn bytes(&self) -> usize {
        self.read().router.bytes() + self.changes.len() * size_of::<AtomicU32>()
    }

    /// Patterns of wildcards in all filters, those of other nodes and of absent sessions included: one more is one
    /// more path for each topic to be compared with.
    pub fn patterns(&self) -> usize {
        self.read().router.patterns()
    }

    /// Whether a filter has this pattern.
    pub(crate) fn has_pattern(&self, pattern: &Pattern) -> bool {
        self.read().router.has_pattern(pattern)
    }

    /// Shared groups with members.
    pub fn shared_groups(&self) -> usize {
        self.read().groups.len()
    }

    /// From now on others are told what this node wants. Before the first subscription.
    pub fn export(&self, exports: Exports) {
        // A second time changes nothing.
        let _ = self.exports.set(Mutex::new(exports));
    }

    /// What this node wants from others; only in a cluster.
    pub fn exports(&self) -> Option<&Mutex<Exports>> {
        self.exports.get()
    }

    /// Adds or replaces a session's subscription. `gauge` shows shared groups the session's room.
    pub(crate) fn subscribe(
        &self,
        session: SessionKey,
        filter: SubscriptionFilter<'_>,
        wanted: Wanted,
        gauge: impl FnOnce() -> Arc<Gauge>,
    ) -> Subscribed {
        let mut index = self.write();
        let mut group_name = None;
        let mut replaced = None;
        let subscribed = match filter.shared {
            None => {
                let inserted = index.router.insert(filter.filter, session.into(), wanted);
                if let Inserted::Replaced(before) = inserted {
                    replaced = Some(before);
                }
                Subscribed {
                    new: replaced.is_none(),
                    group: None,
                }
            }
            Some((kind, name)) => {
                let (number, group) = index.group(kind, name, filter.filter, wanted);
                let new = group.join(Member {
                    who: Who::Session(session),
                    by: By::OWN,
                    wanted,
                    gauge: gauge(),
                });
                group_name = Some(group);
                Subscribed {
                    new,
                    group: Some(number),
                }
            }
        };
        self.changed(filter.filter);
        drop(index);
        if subscribed.new {
            self.subscriptions.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(exports) = self.exports().filter(|_| is_exported(filter.filter)) {
            let mut exports = exports.lock();
            match group_name {
                Some(group) if subscribed.new => exports.join(group.filter()),
                Some(_) => {}
                None => {
                    exports.subscribe(filter.filter, receivers(&wanted));
                    if let Some(before) = replaced {
                        exports.unsubscribe(filter.filter, receivers(&before));
                    }
                }
            }
        }
        subscribed
    }

    /// A subscription of a durable session, for what goes to its connection directly.
    pub(crate) fn subscribe_connection(&self, session: SessionKey, stored: &StoredSubscription) {
        if let Ok(filter) = SubscriptionFilter::parse(&stored.filter)
            && filter.shared.is_none()
        {
            let wanted = Wanted::new(stored.options, stored.id).of_durable();
            self.subscribe(session, filter, wanted, Default::default);
        }
    }

    /// Removes subscriptions of a session.
    pub(crate) fn unsubscribe_all(&self, session: SessionKey, subscriptions: &[Subscription]) {
        for subscription in subscriptions {
            if let Ok(filter) = SubscriptionFilter::parse(&subscription.filter) {
                self.unsubscribe(session, filter);
            }
        }
    }

    /// Removes a session's subscription, if it has it.
    pub(crate) fn unsubscribe(&self, session: SessionKey, filter: SubscriptionFilter<'_>) -> bool {
        let mut index = self.write();
        let mut wanted = None;
        let removed = match filter.shared {
            None => {
                wanted = index.router.remove(filter.filter, &session.into());
                wanted.is_some()
            }
            Some((kind, name)) => {
                let who = Who::Session(session);
                let name = group_name(kind, name, filter.filter);
                index.leave(&who, By::OWN, &name, filter.filter)
            }
        };
        if !removed {
            return false;
        }
        self.changed(filter.filter);
        drop(index);
        self.subscriptions.fetch_sub(1, Ordering::Relaxed);
        if let Some(exports) = self.exports().filter(|_| is_exported(filter.filter)) {
            let mut exports = exports.lock();
            match (filter.shared, wanted) {
                (Some((kind, name)), _) => {
                    exports.leave(&group_name(kind, name, filter.filter));
                }
                (None, Some(wanted)) => exports.unsubscribe(filter.filter, receivers(&wanted)),
                (None, None) => {}
            }
        }
        true
    }

    /// Whether any session of an inbox shard that this node leads subscribes to a filter, and whether any
    /// such is not connected.
    pub fn set_shard(&self, shard: u16, filter: &str, any: bool, detached: bool) {
        if let Some(exports) = self.exports() {
            let key = Key::ShardFilter(shard, filter.into());
            let value = any.then_some(Value::Shard { detached });
            if !exports.lock().set_of_shard(key, value) {
                // Its leader says.
                return;
            }
        }
        let mut index = self.write();
        index.set_shard(shard, Slot::OWN, filter, any, detached);
        self.changed(filter);
    }

    /// A session of a shard that this node leads is a member of a shared group, or none any more.
    pub fn set_member(
        &self,
        shard: u16,
        client: &str,
        filter: &str,
        subscription: Option<(SubscriptionOptions, u32)>,
    ) {
        if let Some(exports) = self.exports() {
            let key = Key::Member(shard, client.into(), filter.into());
            let value = subscription.map(|(options, id)| Value::Member {
                options: options.to_byte(),
                id,
            });
            if !exports.lock().set_of_shard(key, value) {
                // Its leader says.
                return;
            }
        }
        let wanted = subscription.map(|(options, id)| Wanted::new(options, id));
        let by = By {
            node: Slot::OWN,
            shard,
        };
        self.member_changed(&mut self.write(), by, client, filter, wanted);
    }

    fn member_changed(
        &self,
        index: &mut Index,
        by: By,
        client: &str,
        filter: &str,
        wanted: Option<Wanted>,
    ) {
        let Ok(filter) = SubscriptionFilter::parse(filter) else {
            return;
        };
        let changed = match wanted {
            Some(wanted) => index.join_durable(by, client, filter, wanted),
            None => index.leave_durable(by, client, filter),
        };
        self.changed(filter.filter);
        match (changed, wanted) {
            (true, Some(_)) => self.subscriptions.fetch_add(1, Ordering::Relaxed),
            (true, None) => self.subscriptions.fetch_sub(1, Ordering::Relaxed),
            (false, _) => 0,
        };
    }

    /// Takes out routes that this node told as the leader of a shard.
    pub fn forget_own(&self, routes: &[Key]) {
        let mut index = self.write();
        for key in routes {
            self.import_one(&mut index, 0, Slot::OWN, key, None);
        }
    }

    /// All that an inbox shard of a node that is alone wants is in the index.
    pub(crate) fn was_told(&self, shard: ShardNumber) {
        self.write().told.insert(shard);
    }

    /// There are these inbox shards on a node that is alone; `shards` is called while nobody else says so. Returns them,
    /// and those that are routed to: those that have told all that they want.
    pub(crate) fn know_shards(&self, shards: impl FnOnce() -> ShardRefs) -> [ShardRefs; 2] {
        let mut index = self.write();
        let all = shards();
        let routed = all.only(|shard| index.told.contains(&shard));
        if index.known != routed {
            index.known = routed.clone();
            self.sweeping_changes.fetch_add(1, Ordering::Release);
        }
        [all, routed]
    }

    /// A shard that this node leads tells no more of members of shared groups that have moved to a shard that was split off:
    /// those that `is_kept` leaves out.
    pub(crate) fn forget_moved(&self, shard: ShardNumber, is_kept: impl Fn(&str) -> bool) {
        let by = By {
            node: Slot::OWN,
            shard,
        };
        let index = self.read();
        let moved: Vec<(Arc<str>, Arc<Group>)> = index
            .groups
            .values()
            .flat_map(|group| {
                group
                    .told_by(by)
                    .map(move |client| (client, Arc::clone(group)))
            })
            .filter(|(client, _)| !is_kept(client))
            .collect();
        drop(index);
        for (client, group) in moved {
            self.set_member(shard, &client, group.filter(), None);
        }
    }

    /// The inbox shards that are routed to.
    pub(crate) fn known_shards(&self) -> ShardRefs {
        self.read().known.clone()
    }

    /// Takes in what another node has told, which inbox shards there are, and which nodes and shards may want any message
    /// from now on; all others want what they have told.
    pub fn import(
        &self,
        node: NodeId,
        changes: &[Change],
        unsure: RoutesUnknown,
        known: &ShardRefs,
    ) {
        let index = self.read();
        let is_news = index.unsure != unsure || index.known != *known;
        drop(index);
        if changes.is_empty() && !is_news {
            return;
        }
        let mut index = self.write();
        if !changes.is_empty() {
            let by = index.slot_of(node);
            for (key, value) in changes {
                self.import_one(&mut index, node, by, key, *value);
            }
        }
        index.unsure = unsure;
        index.known = known.clone();
        if index.unsure.shards.is_empty() {
            index.remove_left_groups();
        }
        drop(index);
        if is_news {
            self.sweeping_changes.fetch_add(1, Ordering::Release);
        }
    }

    fn import_one(
        &self,
        index: &mut Index,
        node: NodeId,
        by: Slot,
        key: &Key,
        value: Option<Value>,
    ) {
        match key {
            Key::Filter(filter) => {
                let all = value.map(|value| matches!(value, Value::Sessions { all: true }));
                index.set(filter, Receiver::node(by), all == Some(true));
                index.set(filter, Receiver::qos0_node(by), all == Some(false));
                self.changed(filter);
            }
            Key::Group(name) => {
                let Ok(filter) = SubscriptionFilter::parse(name) else {
                    return;
                };
                let room = value.map(|value| match value {
                    Value::Group { room } => room,
                    _ => 0,
                });
                index.set_node_of_group(node, by, filter, room);
                self.changed(filter.filter);
            }
            Key::ShardFilter(shard, filter) => {
                let detached = matches!(value, Some(Value::Shard { detached: true }));
                index.set_shard(*shard, by, filter, value.is_some(), detached);
                self.changed(filter);
            }
            Key::Member(shard, client, filter) => {
                let by = By {
                    node: by,
                    shard: *shard,
                };
                let wanted = value.and_then(|value| match value {
                    Value::Member { options, id } => {
                        let options = SubscriptionOptions::from_byte(options, ProtocolVersion::V5);
                        Some(Wanted::new(options.ok()?, id))
                    }
                    _ => None,
                });
                self.member_changed(index, by, client, filter, wanted);
            }
            Key::Lead(_) | Key::Range(_) => {}
        }
    }

    /// A node is gone for good, and so are its routes.
    pub fn forget_node(&self, node: NodeId) {
        let mut index = self.write();
        for slot in &mut index.nodes {
            slot.take_if(|known| *known == node);
        }
    }

    /// The place of another node, which may have told nothing: its clients publish all the same.
    pub fn slot_of(&self, node: NodeId) -> Slot {
        let known = self.read().known_slot(node);
        known.unwrap_or_else(|| self.write().slot_of(node))
    }

    /// The node in a place.
    pub fn node_in(&self, slot: Slot) -> Option<NodeId> {
        let at = usize::from(slot.0).checked_sub(1)?;
        *self.read().nodes.get(at)?
    }

    /// How many nodes and shards may want any message.
    pub fn unsure(&self) -> (usize, usize) {
        let index = self.read();
        let RoutesUnknown {
            nodes,
            shards,
            cut_off,
        } = &index.unsure;
        (nodes.len(), shards.len() + cut_off.len())
    }

    /// Whether there are inbox shards of which it is not known what they want.
    pub fn lacks_shards(&self) -> bool {
        !self.read().unsure.shards.is_empty()
    }

    /// The members of a group that can be given messages now.
    pub fn members(&self, group: &Group) -> Arc<[Member]> {
        self.read().members(group)
    }

    /// The shared groups that sessions connected to this node may be in.
    pub fn groups(&self) -> Vec<Arc<Group>> {
        self.read().groups.values().cloned().collect()
    }

    /// What a durable session shows the groups that it is in.
    pub(crate) fn durable_gauge(&self, client: &str) -> Option<Arc<Gauge>> {
        let index = self.read();
        let (_, gauge) = index.durable_members.get(client)?;
        Some(Arc::clone(gauge))
    }

    /// The group that a subscription with this filter is in.
    pub fn group_of(&self, filter: &str) -> Option<Arc<Group>> {
        self.read().group_of(filter).cloned()
    }

    /// Whether a group, by its subscription, has a member that is connected and has room in its window, as far as this node knows.
    pub fn has_room_in_group(&self, filter: &str) -> bool {
        let group = self.group_of(filter);
        let members = group.map(|group| self.members(&group));
        members.is_some_and(|members| members.iter().any(|member| member.gauge.has_room()))
    }

    /// The group of a number, while it has members.
    pub(crate) fn group(&self, number: u32) -> Option<Arc<Group>> {
        self.read().groups.get(&number).cloned()
    }

    /// Looks up who gets messages of a topic.
    pub fn find(&self, topic: &str) -> MatchSet {
        let index = self.read();
        let mut found: Vec<(SessionKey, Wanted)> = Vec::new();
        let mut groups = Vec::new();
        let mut shards = Vec::new();
        let mut detached = Vec::new();
        let mut nodes = Vec::new();
        let (mut unsure, mut lacks_shards) = (false, false);
        let mut cut_off = Vec::new();
        index
            .router
            .for_each_match(topic, |receiver, wanted| match receiver.kind() {
                Kind::Session(session) => found.push((session, *wanted)),
                Kind::Group(number) => {
                    if let Some(group) = index.groups.get(&number) {
                        groups.push((Arc::clone(group), index.members(group)));
                    }
                }
                Kind::Shard(number) => shards.push(number),
                Kind::Detached(number) => detached.push(number),
                Kind::Node(slot) => nodes.extend(index.target(slot, false)),
                Kind::Qos0Node(slot) => nodes.extend(index.target(slot, true)),
            });
        if is_exported(topic) {
            let matches = |shard: &u16| shards.contains(shard);
            let others = index.unsure.cut_off.iter().copied();
            cut_off.extend(others.filter(|shard| !matches(shard)));
            unsure = shards.is_empty();
            lacks_shards = !index.unsure.shards.is_empty();
            shards.extend_from_slice(&index.unsure.shards);
            detached.extend_from_slice(&index.unsure.shards);
            let connected = index.unsure.nodes.iter().filter(|(_, up)| *up);
            nodes.extend(connected.map(|(node, _)| NodeTarget {
                node: *node,
                qos0_only: false,
                known: false,
            }));
        }
        let known = index.known.clone();
        drop(index);
        // Of one node, the target that gets more comes first.
        nodes.sort_unstable();
        nodes.dedup_by_key(|target| target.node);
        for numbers in [&mut shards, &mut detached] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        let targets = Target::merge(found);
        let mut loops: Vec<(usize, Range<usize>)> = Vec::new();
        for (at, target) in targets.iter().enumerate() {
            let index = target.session.loop_index();
            match loops.last_mut() {
                Some((last, range)) if *last == index => range.end = at + 1,
                _ => loops.push((index, at..at + 1)),
            }
        }
        MatchSet {
            targets: targets.into(),
            loops: loops.into(),
            groups: groups.into(),
            shards: to_refs(&known, &shards),
            unsure,
            lacks_shards,
            cut_off: to_refs(&known, &cut_off),
            detached: to_refs(&known, &detached),
            nodes: nodes.into(),
            known,
        }
    }

    /// A number that changes whenever a change of routes could affect a topic with these buckets.
    fn stamp(&self, buckets: &[Bucket; 3]) -> u32 {
        buckets
            .iter()
            .filter_map(|&bucket| self.changes.get(usize::from(bucket)))
            .chain([&self.sweeping_changes])
            .fold(0, |sum, change| {
                sum.wrapping_add(change.load(Ordering::Acquire))
            })
    }

    fn changed(&self, filter: &str) {
        if let Some(change) = self.changes.get(usize::from(bucket_of_filter(filter))) {
            change.fetch_add(1, Ordering::Release);
        }
    }

    /// How often anything has changed.
    pub fn changes(&self) -> u64 {
        let changes = self.changes.iter();
        changes
            .map(|of| u64::from(of.load(Ordering::Acquire)))
            .sum()
    }

    // A panic in a turn ends the process (panic = abort), so there is no poisoned state to meet.
    fn read(&self) -> crossbeam_utils::sync::ShardedLockReadGuard<'_, Index> {
        self.index
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> crossbeam_utils::sync::ShardedLockWriteGuard<'_, Index> {
        self.index
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Index {
    /// The group with this name and filter, made if there is none.
    fn group(
        &mut self,
        kind: SharedKind,
        name: &str,
        filter: &str,
        wanted: Wanted,
    ) -> (u32, Arc<Group>) {
        let full_name = group_name(kind, name, filter);
        if let Some(group) = self.group_of(&full_name) {
            return (group.number().get(), Arc::clone(group));
        }
        // 4 billion groups come and go before a number is met again; then one in use is passed over.
        let number = loop {
            self.last_group = self.last_group.wrapping_add(1);
            match NonZeroU32::new(self.last_group) {
                Some(number) if !self.groups.contains_key(&number.get()) => break number,
                _ => {}
            }
        };
        let ordered = kind == SharedKind::OrderedShare;
        let hash = self.groups.hasher().hash_one(&*full_name);
        let group = Arc::new(Group::new(number, full_name, ordered));
        let number = number.get();
        self.groups.insert(number, Arc::clone(&group));
        let names = self.groups.hasher();
        self.named_groups
            .insert_unique(hash, Arc::clone(&group), |group| {
                names.hash_one(group.filter())
            });
        self.router.insert(filter, Receiver::group(number), wanted);
        (number, group)
    }

    /// The group that SUBSCRIBE names so.
    fn group_of(&self, name: &str) -> Option<&Arc<Group>> {
        let hash = self.groups.hasher().hash_one(name);
        self.named_groups.find(hash, |group| group.filter() == name)
    }

    /// `filter`: that of the group's name.
    fn leave(&mut self, who: &Who, by: By, name: &str, filter: &str) -> bool {
        let Some(group) = self.group_of(name) else {
            return false;
        };
        let left = group.leave(who, by);
        if group.is_empty() {
            let number = group.number().get();
            if self.unsure.shards.is_empty() {
                self.remove_group(name, filter);
            } else {
                // Messages that its members have not acknowledged name it by its number.
                self.left.insert(number);
            }
        }
        left
    }

    fn remove_group(&mut self, name: &str, filter: &str) {
        let hash = self.groups.hasher().hash_one(name);
        let named = self
            .named_groups
            .find_entry(hash, |group| group.filter() == name);
        if let Ok(named) = named {
            let number = named.remove().0.number().get();
            self.router.remove(filter, &Receiver::group(number));
            self.groups.remove(&number);
        }
    }

    /// All shards are known: groups without known members have none.
    fn remove_left_groups(&mut self) {
        for number in std::mem::take(&mut self.left) {
            if let Some(group) = self.groups.get(&number).cloned()
                && group.is_empty()
                && let Ok(filter) = SubscriptionFilter::parse(group.filter())
            {
                self.remove_group(group.filter(), filter.filter);
            }
        }
    }

    fn set(&mut self, filter: &str, receiver: Receiver, is: bool) {
        if is {
            self.router.insert(filter, receiver, NOTHING);
        } else {
            self.router.remove(filter, &receiver);
        }
    }

    fn set_shard(&mut self, shard: u16, by: Slot, filter: &str, any: bool, detached: bool) {
        self.set(filter, Receiver::shard(shard, by), any);
        self.set(filter, Receiver::detached(shard, by), any && detached);
    }

    /// The members of a group that are connected to another node; `room`: how many of them have some, or
    /// `None`: there are none.
    fn set_node_of_group(
        &mut self,
        node: NodeId,
        by: Slot,
        filter: SubscriptionFilter<'_>,
        room: Option<u32>,
    ) {
        let Some((kind, name)) = filter.shared else {
            return;
        };
        let who = Who::Node(node);
        let Some(room) = room else {
            let name = group_name(kind, name, filter.filter);
            self.leave(&who, By::node(by), &name, filter.filter);
            return;
        };
        let gauge = Arc::new(Gauge::default());
        gauge.show(room.into(), true);
        let (_, group) = self.group(kind, name, filter.filter, NOTHING);
        group.join(Member {
            who,
            by: By::node(by),
            wanted: NOTHING,
            gauge,
        });
    }

    /// A durable session joins a shared group, or changes its options. True: it was not in it, by the word
    /// of this node.
    fn join_durable(
        &mut self,
        by: By,
        client: &str,
        filter: SubscriptionFilter<'_>,
        wanted: Wanted,
    ) -> bool {
        let Some((kind, name)) = filter.shared else {
            return false;
        };
        let (_, group) = self.group(kind, name, filter.filter, wanted);
        let (client, gauge) = match self.durable_members.get_key_value(client) {
            Some((client, (_, gauge))) => (Arc::clone(client), Arc::clone(gauge)),
            None => (client.into(), Arc::default()),
        };
        let new = group.join(Member {
            who: Who::Durable(Arc::clone(&client)),
            by,
            wanted,
            gauge: Arc::clone(&gauge),
        });
        let groups = &mut self.durable_members.entry(client).or_insert((0, gauge)).0;
        *groups += u32::from(new);
        new
    }

    /// A durable session leaves a shared group. True: it was in it, by the word of this node.
    fn leave_durable(&mut self, by: By, client: &str, filter: SubscriptionFilter<'_>) -> bool {
        let Some((kind, name)) = filter.shared else {
            return false;
        };
        let name = group_name(kind, name, filter.filter);
        if !self.leave(&Who::Durable(client.into()), by, &name, filter.filter) {
            return false;
        }
        if let Some((groups, _)) = self.durable_members.get_mut(client) {
            *groups -= 1;
            if *groups == 0 {
                self.durable_members.remove(client);
            }
        }
        true
    }

    fn known_slot(&self, node: NodeId) -> Option<Slot> {
        let at = self.nodes.iter().position(|slot| *slot == Some(node))?;
        u16::try_from(at + 1).ok().map(Slot)
    }

    /// The place of another node. Nodes are fewer than slots: each is a machine.
    fn slot_of(&mut self, node: NodeId) -> Slot {
        if let Some(known) = self.known_slot(node) {
            return known;
        }
        let unused = self.nodes.iter().position(Option::is_none);
        let index = unused.unwrap_or(self.nodes.len());
        match self.nodes.get_mut(index) {
            Some(slot) => *slot = Some(node),
            None => self.nodes.push(Some(node)),
        }
        Slot(u16::try_from(index + 1).expect("a cluster has fewer than 65,535 nodes"))
    }

    /// Those of which it is known that they are members.
    fn members(&self, group: &Group) -> Arc<[Member]> {
        let is_sure = |member: &Member| match member.who {
            Who::Node(node) => self.unsure.nodes.iter().all(|(unsure, _)| *unsure != node),
            _ => true,
        };
        let all = group.members();
        if all.iter().all(is_sure) {
            return all;
        }
        all.iter().filter(|m| is_sure(m)).cloned().collect()
    }

    fn target(&self, slot: Slot, qos0_only: bool) -> Option<NodeTarget> {
        let index = usize::from(slot.0).checked_sub(1)?;
        Some(NodeTarget {
            node: (*self.nodes.get(index)?)?,
            qos0_only,
            known: true,
        })
    }
}

/// Its own topics are said by each node for itself.
fn is_exported(topic_or_filter: &str) -> bool {
    !sys::is_own(topic_or_filter.as_bytes())
}

/// Which messages a session gets directly: not those that its inbox gives it.
fn receivers(wanted: &Wanted) -> Receivers {
    if wanted.durable && wanted.qos > QoS::AtMostOnce {
        Receivers::Qos0
    } else {
        Receivers::All
    }
}

/// Bytes that one loop's cache holds at most, in each of its two halves.
///
/// Limit: a loop's match cache | 2 × {} | the older half is forgotten
const CACHE_BYTES: usize = 16 << 20;

/// One loop's memory of who gets which topic.
///
/// Two halves: what is found in the old half moves to the young one; when the young half is full, it
/// becomes the old one, and what was in that is forgotten. So topics in use stay, at no cost per use.
#[derive(Debug, Default)]
pub struct MatchCache {
    young: HashMap<Box<[u8]>, Cached>,
    old: HashMap<Box<[u8]>, Cached>,
    young_bytes: usize,
    /// As of when it became the old half: topics that have moved to the young one are still in it.
    old_bytes: usize,
    misses: u64,
}

#[derive(Debug)]
struct Cached {
    set: Arc<MatchSet>,
    stamp: u32,
    buckets: [Bucket; 3],
}

impl Cached {
    fn find(topic: &[u8], routes: &Routes) -> Self {
        let topic = std::str::from_utf8(topic).unwrap_or_default();
        let buckets = buckets_of_topic(topic);
        // Read before the index is, so that a change in between makes the entry stale, not wrong.
        let stamp = routes.stamp(&buckets);
        Self {
            set: Arc::new(routes.find(topic)),
            stamp,
            buckets,
        }
    }

    fn is_fresh(&self, routes: &Routes) -> bool {
        self.stamp == routes.stamp(&self.buckets)
    }
}

impl MatchCache {
    /// Who gets messages of a topic (a topic name in UTF-8), as of now.
    pub fn find(&mut self, topic: &[u8], routes: &Routes) -> Arc<MatchSet> {
        if let Some(cached) = self.young.get_mut(topic) {
            if !cached.is_fresh(routes) {
                self.misses += 1;
                self.young_bytes -= cached.set.bytes();
                *cached = Cached::find(topic, routes);
                self.young_bytes += cached.set.bytes();
            }
            let set = Arc::clone(&cached.set);
            self.age();
            return set;
        }
        let old = self.old.remove(topic).filter(|old| old.is_fresh(routes));
        let cached = old.unwrap_or_else(|| {
            self.misses += 1;
            Cached::find(topic, routes)
        });
        let set = Arc::clone(&cached.set);
        self.young_bytes += topic.len() + size_of::<(Box<[u8]>, Cached)>() + set.bytes();
        self.young.insert(topic.into(), cached);
        self.age();
        set
    }

    /// A full young half becomes the old one.
    fn age(&mut self) {
        if self.young_bytes > CACHE_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Topics, and about what they and their free places take.
    pub(crate) fn held(&self) -> (usize, usize) {
        let free = self.young.capacity() - self.young.len() + self.old.capacity() - self.old.len();
        let bytes = self.young_bytes + self.old_bytes + free * size_of::<(Box<[u8]>, Cached)>();
        (self.len(), bytes)
    }

    /// How often the route index had to be asked.
    pub(crate) fn misses(&self) -> u64 {
        self.misses
    }
}

#[cfg(test)]
mod tests {
    use net_api::Key;

    use super::*;

    fn session(slot: u32) -> SessionKey {
        SessionKey::new(
            slot as usize % 2,
            Key {
                slot,
                generation: 0,
            },
        )
    }

    fn subscribe(routes: &Routes, slot: u32, filter: &str) -> Subscribed {
        let filter = SubscriptionFilter::parse(filter).unwrap();
        routes.subscribe(session(slot), filter, NOTHING, Arc::default)
    }

    #[test]
    fn a_node_that_has_told_nothing_has_a_place_of_its_own() {
        let routes = Routes::with_seed(1);
        let slot = routes.slot_of(7);
        assert_ne!(slot, Slot::OWN);
        assert_eq!((routes.node_in(slot), routes.slot_of(7)), (Some(7), slot));
        assert_ne!(routes.slot_of(8), slot);
        routes.forget_node(7);
        assert_eq!((routes.node_in(slot), routes.slot_of(9)), (None, slot));
    }

    #[test]
    fn a_change_of_routes_reaches_a_cached_match_at_once() {
        let routes = Routes::with_seed(1);
        let mut cache = MatchCache::default();
        assert!(cache.find(b"a/b", &routes).is_empty());
        let filters = ["a/b", "a/+", "#", "$share/g/a/b"];
        for (slot, filter) in (1..).zip(filters) {
            assert!(subscribe(&routes, slot, filter).new);
            let set = cache.find(b"a/b", &routes);
            assert_eq!(
                set.targets.len() + set.groups.len(),
                slot as usize,
                "{filter}"
            );
        }
        assert_eq!((routes.subscriptions(), routes.shared_groups()), (4, 1));
        for (slot, filter) in (1..).zip(filters) {
            assert!(routes.unsubscribe(session(slot), SubscriptionFilter::parse(filter).unwrap()));
            assert!(!routes.unsubscribe(session(slot), SubscriptionFilter::parse(filter).unwrap()));
            let set = cache.find(b"a/b", &routes);
            assert_eq!(
                set.targets.len() + set.groups.len(),
                filters.len() - slot as usize,
                "{filter}"
            );
        }
        assert_eq!((routes.subscriptions(), routes.shared_groups()), (0, 0));
    }

    fn shards(refs: &[(ShardNumber, u16)]) -> ShardRefs {
        let to_ref = |&(number, last)| ShardRef { number, last };
        refs.iter().map(to_ref).collect()
    }

    #[test]
    fn what_a_shard_wants_that_has_not_told_all_goes_to_the_one_that_it_was_split_off() {
        let routes = Routes::with_seed(1);
        let mut cache = MatchCache::default();
        let whole = shards(&[(0, u16::MAX)]);
        let halves = shards(&[(0, 299), (300, u16::MAX)]);
        routes.was_told(0);
        assert_eq!(
            routes.know_shards(|| whole.clone()),
            [whole.clone(), whole.clone()]
        );
        routes.set_shard(0, "both", true, true);
        assert_eq!(
            routes.know_shards(|| halves.clone()),
            [halves.clone(), whole.clone()]
        );
        for filter in ["both", "new"] {
            routes.set_shard(300, filter, true, false);
        }
        for topic in ["both", "new"] {
            let set = cache.find(topic.as_bytes(), &routes);
            assert_eq!((&*set.shards, &set.known), (&whole[..], &whole), "{topic}");
        }
        routes.was_told(300);
        assert_eq!(
            routes.know_shards(|| halves.clone()),
            [halves.clone(), halves.clone()]
        );
        let set = cache.find(b"both", &routes);
        assert_eq!((&*set.shards, &set.known), (&halves[..], &halves));
        assert_eq!(*set.detached, halves[..1]);
        assert_eq!(*cache.find(b"new", &routes).shards, halves[1..]);
    }

    #[test]
    fn a_member_that_both_halves_tell_is_one_until_neither_does() {
        let routes = Routes::with_seed(1);
        let filter = "$share/g/a";
        let options = Some((
            SubscriptionOptions::from_byte(1, ProtocolVersion::V5).unwrap(),
            0,
        ));
        for client in ["lower", "upper"] {
            routes.set_member(0, client, filter, options);
        }
        routes.set_member(300, "upper", filter, options);
        let members = || {
            let group = routes.group_of(filter).unwrap();
            let mut members: Vec<String> = routes
                .members(&group)
                .iter()
                .map(|member| format!("{:?} {}", member.who, member.by.shard))
                .collect();
            members.sort();
            members
        };
        assert_eq!(members().len(), 3);
        routes.forget_moved(0, |client| client == "lower");
        assert_eq!(
            members(),
            ["Durable(\"lower\") 0", "Durable(\"upper\") 300"]
        );
        routes.set_member(300, "upper", filter, None);
        assert_eq!(members(), ["Durable(\"lower\") 0"]);
    }

    fn unsubscribe(routes: &Routes, slot: u32, filter: &str) -> bool {
        routes.unsubscribe(session(slot), SubscriptionFilter::parse(filter).unwrap())
    }

    #[test]
    fn groups_are_told_apart_by_kind_name_and_filter() {
        let routes = Routes::with_seed(1);
        let few = ["$queue/g/t", "$oshare/g/t", "$share/g/t", "$share/g/+"];
        let many = (0..1_000).map(|number| format!("$share/{number}/t"));
        let all: Vec<String> = few.map(str::to_owned).into_iter().chain(many).collect();
        for filter in &all {
            assert!(subscribe(&routes, 1, filter).new, "{filter}");
            assert!(!subscribe(&routes, 1, filter).new, "{filter}");
        }
        let number_of = |filter: &str| routes.group_of(filter).map(|group| group.number().get());
        for (number, filter) in (1..).zip(&all) {
            assert_eq!(number_of(filter), Some(number), "{filter}");
            let group = routes.group(number).unwrap();
            assert_eq!(group.filter(), filter);
        }
        assert_eq!(routes.find("g/t").groups.len(), 1);
        assert_eq!(routes.find("t").groups.len(), all.len() - 1);
        for (at, filter) in all.iter().enumerate() {
            assert!(unsubscribe(&routes, 1, filter), "{filter}");
            assert_eq!(number_of(filter), None, "{filter}");
            assert!(!unsubscribe(&routes, 1, filter), "{filter}");
            assert_eq!(routes.shared_groups(), all.len() - at - 1);
        }
        assert!(routes.find("t").is_empty() && routes.find("g/t").is_empty());
    }

    #[test]
    fn targets_of_a_loop_are_neighbours() {
        let routes = Routes::with_seed(1);
        for slot in 0..100 {
            subscribe(&routes, slot, "t");
        }
        let set = routes.find("t");
        assert_eq!(&*set.loops, [(0, 0..50), (1, 50..100)]);
    }

    #[test]
    fn a_cache_forgets_what_is_not_used() {
        let routes = Routes::with_seed(1);
        let mut cache = MatchCache::default();
        let long = "x".repeat(60_000);
        for n in 0..2000 {
            cache.find(format!("{n}{long}").as_bytes(), &routes);
            cache.find(b"used", &routes);
        }
        let bytes = cache.len() * long.len();
        assert!(bytes < 2 * CACHE_BYTES + 2 * long.len(), "{bytes}");
        assert!(cache.young.contains_key(b"used".as_slice()));
    }
}
