//! Shared subscriptions: which member of a group gets a message.
//!
//! Members take turns; one without room in its window is passed over while another has some, and one
//! whose client is offline while another's is online. The members that are connected to another node stand
//! as one, with the number of those that have room: that node gets a message when no member of this one has
//! room, and chooses among its own. In an ordered group (`$oshare`) the publisher
//! decides instead, by its client identifier: all its messages go to the same member, also after it has
//! reconnected, and a change of members moves only the publishers of the member that came or went.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use foldhash::fast::FixedState;
use hashbrown::hash_map::Entry;
use hashing::HashMap;
use mqtt_proto::QoS;
use mqtt_session::Wanted;
use parking_lot::Mutex;
use peer_protocol::Slot;
use route_exchange::{NodeId, ShardNumber};
use store_state::inbox::Origin;

use crate::key::SessionKey;

/// What a session shows the groups that it is a member of.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    /// Of a durable session: where it is connected; 0: nowhere.
    home: AtomicU64,
    /// How many more messages the client could be sent before it must acknowledge some; below zero:
    /// how many wait.
    room: AtomicI64,
    online: AtomicBool,
}

impl Gauge {
    /// The session's loop says how things stand.
    pub(crate) fn show(&self, room: i64, online: bool) {
        self.room.store(room, Ordering::Relaxed);
        self.online.store(online, Ordering::Relaxed);
    }

    /// A durable session's connection begins, or ends (`None`).
    pub(crate) fn set_home(&self, home: Option<SessionKey>) {
        self.home
            .store(home.map_or(0, SessionKey::to_bits), Ordering::Relaxed);
        if home.is_none() {
            self.show(0, false);
        }
    }

    /// Where a durable session is connected.
    pub(crate) fn home(&self) -> Option<SessionKey> {
        SessionKey::from_bits(self.home.load(Ordering::Relaxed))
    }

    fn room(&self) -> i64 {
        self.room.load(Ordering::Relaxed)
    }

    pub(crate) fn is_online(&self) -> bool {
        self.online.load(Ordering::Relaxed)
    }

    /// Whether the client is connected and could be sent a message now.
    pub(crate) fn has_room(&self) -> bool {
        self.is_online() && self.room() > 0
    }
}

/// A member of a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Who {
    /// A session that lives as long as its connection.
    Session(SessionKey),
    /// A durable session, connected or not, by its client identifier.
    Durable(Arc<str>),
    /// The members that are connected to another node.
    Node(NodeId),
}

impl Who {
    pub(crate) fn is_session(&self) -> bool {
        matches!(self, Self::Session(_))
    }

    pub(crate) fn is_node(&self) -> bool {
        matches!(self, Self::Node(_))
    }
}

/// Who says that a session is a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct By {
    /// The node.
    pub(crate) node: Slot,
    /// The inbox shard that it leads; 0 for sessions that live as long as their connections.
    pub(crate) shard: ShardNumber,
}

impl By {
    /// This node, of its own clients.
    pub(crate) const OWN: Self = Self::node(Slot::OWN);

    /// A node, of clients that are connected to it.
    pub(crate) const fn node(node: Slot) -> Self {
        Self { node, shard: 0 }
    }
}

/// A session's membership in a group.
#[derive(Clone, Debug)]
pub struct Member {
    pub(crate) who: Who,
    /// Who says so. While a shard goes from one leader to another, both may, and so may both halves of one that was split.
    pub(crate) by: By,
    pub(crate) wanted: Wanted,
    pub(crate) gauge: Arc<Gauge>,
}

/// Members of a group as one node counts them. A session that two nodes or both halves of a split shard name counts twice until
/// only one of them does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupCounts {
    /// Sessions that live as long as their connections to this node.
    pub sessions: usize,
    /// Durable sessions, wherever they are.
    pub durable: usize,
    /// Those of them of which a loop has told the group that their clients are connected to this node. A new member of a shard that
    /// another node leads is not among them until it is connected again.
    pub durable_online: usize,
    /// Other nodes with members that live as long as their connections.
    pub nodes: usize,
}

/// The sessions that share the messages of one filter under one name.
#[derive(Debug)]
pub struct Group {
    number: NonZeroU32,
    /// As in SUBSCRIBE: `$share/name/filter`.
    filter: Box<str>,
    ordered: bool,
    members: Mutex<Members>,
    turn: AtomicUsize,
}

/// Members of a group that are kept in one list, as they are handed out: most groups have few.
const FEW: usize = 8;

#[derive(Debug)]
enum Members {
    /// At most [`FEW`]. A change makes a new list.
    Few(Arc<[Member]>),
    Many(Box<Many>),
}

/// A group may have as many members as a node has clients.
#[derive(Debug, Default)]
struct Many {
    list: Vec<Member>,
    /// Where each stands in the list.
    places: HashMap<(Who, By), usize>,
    /// What was last handed out, while it is still true.
    shared: Option<Arc<[Member]>>,
}

impl Default for Members {
    fn default() -> Self {
        Self::Few(Arc::default())
    }
}

impl Members {
    fn list(&self) -> &[Member] {
        match self {
            Self::Few(list) => list,
            Self::Many(many) => &many.list,
        }
    }

    fn join(&mut self, member: Member) -> bool {
        let list = match self {
            Self::Many(many) => return many.join(member),
            Self::Few(list) => list,
        };
        let is = |known: &Member| known.who == member.who && known.by == member.by;
        if let Some(place) = list.iter().position(is) {
            let others = |(at, known): (usize, &Member)| match at == place {
                true => member.clone(),
                false => known.clone(),
            };
            *list = list.iter().enumerate().map(others).collect();
            return false;
        }
        if list.len() < FEW {
            *list = list.iter().cloned().chain([member]).collect();
            return true;
        }
        let mut many = Box::<Many>::default();
        for known in list.iter().cloned().chain([member]) {
            many.join(known);
        }
        *self = Self::Many(many);
        true
    }

    fn leave(&mut self, who: &Who, by: By) -> bool {
        match self {
            Self::Few(list) => {
                let is = |known: &Member| known.who == *who && known.by == by;
                let Some(place) = list.iter().position(is) else {
                    return false;
                };
                let mut members = list.to_vec();
                members.swap_remove(place);
                *list = members.into();
                true
            }
            Self::Many(many) => {
                let left = many.leave(who, by);
                // Not at once below the limit: a member that comes and goes would change the kind each time.
                if many.list.len() <= FEW / 2 {
                    *self = Self::Few(std::mem::take(&mut many.list).into());
                }
                left
            }
        }
    }

    /// All members, as they are handed out.
    fn shared(&mut self) -> Arc<[Member]> {
        match self {
            Self::Few(list) => Arc::clone(list),
            Self::Many(many) => {
                let Many { list, shared, .. } = &mut **many;
                Arc::clone(shared.get_or_insert_with(|| list.as_slice().into()))
            }
        }
    }
}

impl Many {
    fn join(&mut self, member: Member) -> bool {
        self.shared = None;
        match self.places.entry((member.who.clone(), member.by)) {
            Entry::Occupied(place) => {
                if let Some(known) = self.list.get_mut(*place.get()) {
                    *known = member;
                }
                false
            }
            Entry::Vacant(place) => {
                place.insert(self.list.len());
                self.list.push(member);
                true
            }
        }
    }

    fn leave(&mut self, who: &Who, by: By) -> bool {
        let Some(place) = self.places.remove(&(who.clone(), by)) else {
            return false;
        };
        self.shared = None;
        self.list.swap_remove(place);
        if let Some(moved) = self.list.get(place) {
            self.places.insert((moved.who.clone(), moved.by), place);
        }
        true
    }
}

impl Group {
    pub(crate) fn new(number: NonZeroU32, filter: Box<str>, ordered: bool) -> Self {
        Self {
            number,
            filter,
            ordered,
            members: Mutex::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// What deliveries name the group by.
    pub(crate) fn number(&self) -> NonZeroU32 {
        self.number
    }

    /// The subscription that makes sessions members, as in SUBSCRIBE.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Adds a member or replaces its options. True: it was none before.
    pub(crate) fn join(&self, member: Member) -> bool {
        self.members.lock().join(member)
    }

    /// Removes a member. False: it was none.
    pub(crate) fn leave(&self, who: &Who, by: By) -> bool {
        self.members.lock().leave(who, by)
    }

    /// How many members that are connected to this node have room, rounded down to a power of two: so
    /// that it does not change with each message.
    pub fn room(&self) -> u32 {
        let members = self.members.lock();
        let has_room = |m: &&Member| m.who.is_session() && m.gauge.room() > 0;
        let count = members.list().iter().filter(has_room).count();
        count.checked_ilog2().map_or(0, |log| 1 << log)
    }

    /// How many members this node counts.
    pub fn counts(&self) -> GroupCounts {
        let mut counts = GroupCounts::default();
        // As they are handed out: whoever publishes to the group does not wait for the count.
        for member in self.members().iter() {
            match member.who {
                Who::Session(_) => counts.sessions += 1,
                Who::Durable(_) => {
                    counts.durable += 1;
                    counts.durable_online += usize::from(member.gauge.is_online());
                }
                Who::Node(_) => counts.nodes += 1,
            }
        }
        counts
    }

    /// The first `limit` members that live as long as their connections to this node, in the order of keys, behind a key.
    pub fn sessions(&self, after: Option<SessionKey>, limit: usize) -> BTreeSet<SessionKey> {
        let mut first = BTreeSet::new();
        for member in self.members().iter() {
            if let Who::Session(session) = member.who
                && after.is_none_or(|after| session > after)
            {
                first.insert(session);
                if first.len() > limit {
                    first.pop_last();
                }
            }
        }
        first
    }

    /// Client identifiers of the first `limit` durable members behind an identifier, in their order.
    pub fn durable(&self, after: Option<&str>, limit: usize) -> BTreeSet<Arc<str>> {
        let mut first = BTreeSet::new();
        for member in self.members().iter() {
            if let Who::Durable(client) = &member.who
                && after.is_none_or(|after| &**client > after)
            {
                // Both halves of a shard that is split may name a session.
                first.insert(Arc::clone(client));
                if first.len() > limit {
                    first.pop_last();
                }
            }
        }
        first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.lock().list().is_empty()
    }

    pub(crate) fn members(&self) -> Arc<[Member]> {
        self.members.lock().shared()
    }

    /// The durable sessions that are members by the word of `by`.
    pub(crate) fn told_by(&self, by: By) -> impl Iterator<Item = Arc<str>> {
        let members = self.members.lock();
        let told = members.list().iter().filter(|member| member.by == by);
        let clients = told.filter_map(|member| match &member.who {
            Who::Durable(client) => Some(Arc::clone(client)),
            Who::Session(_) | Who::Node(_) => None,
        });
        clients.collect::<Vec<_>>().into_iter()
    }

    /// Chooses among those of the members (as [`Group::members`] gave them) that are admitted.
    pub(crate) fn choose<'m>(
        &self,
        members: &'m [Member],
        publisher_hash: u32,
        admits: impl Fn(&Member) -> bool,
    ) -> Option<&'m Member> {
        let admitted = || members.iter().filter(|member| admits(member));
        if self.ordered {
            return by_publisher(admitted(), publisher_hash);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let chosen = by_turn(members, turn, &admits)
            .or_else(|| by_room_of_nodes(admitted(), turn))
            .or_else(|| best(admitted(), members.len(), turn))?;
        if !chosen.who.is_node() {
            // Until the member's loop shows its room anew, the next choice must know of this one.
            chosen.gauge.room.fetch_sub(1, Ordering::Relaxed);
        }
        Some(chosen)
    }

    /// As [`Group::choose`], for a message that several nodes may publish: they come to the same node or durable
    /// session if they see the same members online. A message of QoS 2 must not come to two members: it comes to one that may be
    /// offline, which all nodes choose that see the same members. `own`: this node. In an ordered group all such messages come to one member, since
    /// stores do not keep who has published a message: so those of one publisher stay in order.
    pub(crate) fn choose_for_all_nodes<'m>(
        &self,
        members: &'m [Member],
        own: NodeId,
        (origin, qos): (&Origin, QoS),
        admits: impl Fn(&Member) -> bool,
    ) -> Option<&'m Member> {
        let seed = match self.ordered {
            true => 0,
            false => FixedState::default().hash_one(origin),
        };
        let draw = FixedState::with_seed(seed);
        // All sessions here are one, as they are to other nodes.
        let seen = |member: &Member| match &member.who {
            Who::Session(_) => Who::Node(own),
            who => who.clone(),
        };
        let is_exact = qos == QoS::ExactlyOnce;
        let drawn = |m: &&Member| (is_exact || m.gauge.is_online(), draw.hash_one(seen(m)));
        let first = members.iter().filter(|m| admits(m)).max_by_key(drawn)?;
        if first.who.is_session() {
            return self.choose(members, 0, |m| m.who.is_session() && admits(m));
        }
        Some(first)
    }
}

/// The next member of this node that is online and has room.
fn by_turn<'m>(
    members: &'m [Member],
    turn: usize,
    admits: &impl Fn(&Member) -> bool,
) -> Option<&'m Member> {
    members
        .iter()
        .cycle()
        .skip(turn % members.len().max(1))
        .take(members.len())
        .find(|m| !m.who.is_node() && admits(m) && m.gauge.is_online() && m.gauge.room() > 0)
}

/// One of the other nodes, each as often as it has members with room.
fn by_room_of_nodes<'m>(
    members: impl Iterator<Item = &'m Member> + Clone,
    turn: usize,
) -> Option<&'m Member> {
    let nodes = members.filter(|m| m.who.is_node());
    let room = |m: &Member| usize::try_from(m.gauge.room()).unwrap_or(0);
    let all: usize = nodes.clone().map(room).sum();
    let mut place = turn.checked_rem(all)?;
    nodes.into_iter().find(|m| {
        let found = place < room(m);
        place = place.saturating_sub(room(m));
        found
    })
}

/// When nobody has room: the one that lacks least, of those that are equal the next.
fn best<'m>(
    members: impl Iterator<Item = &'m Member> + Clone,
    len: usize,
    turn: usize,
) -> Option<&'m Member> {
    let next = turn % len.max(1);
    let (before, from) = (members.clone().take(next), members.skip(next));
    let standing = |m: &&Member| (m.gauge.is_online(), m.gauge.room(), !m.who.is_node());
    // Of equal ones the last is taken.
    let mut in_turn: Vec<&Member> = from.chain(before).collect();
    in_turn.reverse();
    in_turn.into_iter().max_by_key(standing)
}

/// Highest random weight: each member draws a number for the publisher, the highest wins; those online
/// before those that are not.
fn by_publisher<'m>(
    members: impl Iterator<Item = &'m Member>,
    publisher_hash: u32,
) -> Option<&'m Member> {
    let draw = FixedState::with_seed(publisher_hash.into());
    members.max_by_key(|member| (member.gauge.is_online(), draw.hash_one(&member.who)))
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{QoS, RetainHandling, SubscriptionOptions};
    use net_api::Key;

    use super::*;

    fn member(slot: u32, room: i64, online: bool) -> Member {
        let gauge = Arc::new(Gauge::default());
        gauge.show(room, online);
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::SendAtSubscribe,
        };
        let key = Key {
            slot,
            generation: 0,
        };
        Member {
            who: Who::Session(SessionKey::new(0, key)),
            by: By::OWN,
            wanted: Wanted::new(options, 0),
            gauge,
        }
    }

    fn chosen(group: &Group, times: usize) -> Vec<u32> {
        let members = group.members();
        (0..times)
            .filter_map(|_| {
                group.choose(&members, 9, |_| true).map(|m| match m.who {
                    Who::Session(key) => key.key().slot,
                    Who::Durable(_) => u32::MAX,
                    Who::Node(node) => 1_000 + node as u32,
                })
            })
            .collect()
    }

    #[test]
    fn members_take_turns_while_they_have_room() {
        let group = Group::new(NonZeroU32::MIN, "$share/g/t".into(), false);
        group.join(member(1, 2, true));
        group.join(member(2, 100, true));
        group.join(member(3, 100, false));
        let mut got = chosen(&group, 10);
        got.sort_unstable();
        assert_eq!(got, [1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn members_are_counted_by_kind_and_listed_in_order_behind_a_place() {
        let group = Group::new(NonZeroU32::MIN, "$share/g/t".into(), false);
        let key = |slot| {
            let generation = 0;
            SessionKey::new(0, Key { slot, generation })
        };
        // So many that the group keeps them by place.
        for slot in [5, 3, 1, 4, 2] {
            group.join(member(slot, 1, true));
        }
        for (name, shard, home) in [
            ("cyd", 1, None),
            ("ann", 1, Some(key(9))),
            ("ann", 2, Some(key(9))),
            ("bob", 1, None),
        ] {
            let gauge = Arc::new(Gauge::default());
            gauge.set_home(home);
            gauge.show(0, home.is_some());
            group.join(Member {
                who: Who::Durable(name.into()),
                by: By { shard, ..By::OWN },
                gauge,
                ..member(0, 0, false)
            });
        }
        group.join(Member {
            who: Who::Node(7),
            ..member(0, 1, true)
        });
        let counts = GroupCounts {
            sessions: 5,
            durable: 4,
            durable_online: 2,
            nodes: 1,
        };
        assert_eq!(group.counts(), counts);
        let slots = |after, limit| -> Vec<u32> {
            let sessions = group.sessions(after, limit).into_iter();
            sessions.map(|session| session.key().slot).collect()
        };
        assert_eq!(slots(None, 2), [1, 2]);
        assert_eq!(slots(Some(key(2)), 9), [3, 4, 5]);
        let names = |after, limit| -> Vec<String> {
            let durable = group.durable(after, limit).into_iter();
            durable.map(|name| name.to_string()).collect()
        };
        assert_eq!(names(None, 2), ["ann", "bob"]);
        assert_eq!(names(Some("ann"), 9), ["bob", "cyd"]);
    }

    #[test]
    fn an_offline_member_gets_messages_when_nobody_is_online() {
        let group = Group::new(NonZeroU32::MIN, "$share/g/t".into(), false);
        assert!(group.join(member(1, 0, false)));
        assert!(!group.join(member(1, 0, false)));
        assert_eq!(chosen(&group, 2), [1, 1]);
        let only = member(1, 0, false).who;
        let members = group.members();
        assert!(group.choose(&members, 9, |m| m.who != only).is_none());
        assert!(group.leave(&only, By::OWN));
        assert!(group.is_empty());
    }

    #[test]
    fn what_the_broker_publishes_comes_to_one_member_of_an_ordered_group() {
        for ordered in [true, false] {
            let group = Group::new(NonZeroU32::MIN, "$share/g/t".into(), ordered);
            for name in ["ann", "bob", "cyd", "dan"] {
                let who = Who::Durable(name.into());
                group.join(Member {
                    who,
                    ..member(0, 9, true)
                });
            }
            let members = group.members();
            let chosen = (1..=100).map(|incarnation| {
                let origin = Origin {
                    client: "\0left 7/eve".into(),
                    incarnation,
                    packet_id: 0,
                };
                let all = |_: &Member| true;
                let chosen =
                    group.choose_for_all_nodes(&members, 1, (&origin, QoS::AtLeastOnce), all);
                chosen.map(|member| member.who.clone())
            });
            let chosen: BTreeSet<_> = chosen.collect();
            assert_eq!(chosen.len(), if ordered { 1 } else { 4 });
        }
    }

    #[test]
    fn a_message_of_qos_2_comes_to_one_member_whoever_is_online() {
        let chosen = |qos, online: usize| {
            let group = Group::new(NonZeroU32::MIN, "$share/g/t".into(), false);
            for (index, name) in ["ann", "bob", "cyd", "dan"].into_iter().enumerate() {
                let who = Who::Durable(name.into());
                group.join(Member {
                    who,
                    ..member(0, 9, index == online)
                });
            }
            let origin = Origin {
                client: "\0left 7/eve".into(),
                incarnation: 3,
                packet_id: 0,
            };
            let members = group.members();
            let chosen = group.choose_for_all_nodes(&members, 1, (&origin, qos), |_| true);
            chosen.map(|member| member.who.clone())
        };
        let all = |qos| (0..4).map(move |online| chosen(qos, online));
        let distinct = |qos| all(qos).collect::<BTreeSet<_>>().len();
        assert_eq!(distinct(QoS::ExactlyOnce), 1);
        assert_eq!(distinct(QoS::AtLeastOnce), 4);
    }

    fn node(node: NodeId, room: i64) -> Member {
        Member {
            who: Who::Node(node),
            by: By::node(Slot(1)),
            ..member(0, room, true)
        }
    }

    #[test]
    fn other_nodes_get_what_members_here_have_no_room_for() {
        let group = Group::new(NonZeroU32::MIN, "$share/g/t".into(), false);
        group.join(member(1, 2, true));
        group.join(node(7, 1));
        group.join(node(8, 3));
        group.join(node(9, 0));
        let mut got = chosen(&group, 42);
        got.sort_unstable();
        assert_eq!(got[..2], [1, 1]);
        let of = |node: u32| got.iter().filter(|slot| **slot == 1_000 + node).count();
        assert_eq!((of(7), of(8), of(9)), (10, 30, 0));
        assert_eq!(group.room(), 0, "no member here has room");
    }

    #[test]
    fn members_here_get_what_nobody_has_room_for() {
        let group = Group::new(NonZeroU32::MIN, "$share/g/t".into(), false);
        group.join(node(7, 0));
        group.join(member(1, 0, true));
        assert_eq!(chosen(&group, 1), [1]);
        group.leave(&member(1, 0, true).who, By::OWN);
        assert_eq!(chosen(&group, 1), [1_007]);
    }

    #[test]
    fn a_member_by_several_leaders_stays_until_all_say_otherwise() {
        let group = Group::new(NonZeroU32::MIN, "$share/g/t".into(), false);
        let who = Who::Durable("client".into());
        let by = |node, shard| By {
            node: Slot(node),
            shard,
        };
        let all = [by(1, 0), by(2, 0), by(2, 9)];
        for by in all {
            group.join(Member {
                who: who.clone(),
                by,
                ..member(0, 0, false)
            });
        }
        for by in all {
            assert!(!group.is_empty());
            assert!(group.leave(&who, by));
        }
        assert!(group.is_empty());
    }

    /// A group that grows and shrinks has the members of a plain list, in whichever way it keeps them.
    #[test]
    fn members_are_those_that_joined_and_have_not_left() {
        let group = Group::new(NonZeroU32::MIN, "$share/g/t".into(), false);
        let mut expected: Vec<(u32, i64)> = Vec::new();
        let mut check = |slot: u32, room: Option<i64>| {
            let place = expected.iter().position(|(known, _)| *known == slot);
            let who = member(slot, 0, true).who;
            match (room, place) {
                (Some(room), Some(place)) => {
                    assert!(!group.join(member(slot, room, true)));
                    expected[place] = (slot, room);
                }
                (Some(room), None) => {
                    assert!(group.join(member(slot, room, true)));
                    expected.push((slot, room));
                }
                (None, Some(place)) => {
                    assert!(group.leave(&who, By::OWN));
                    expected.swap_remove(place);
                }
                (None, None) => assert!(!group.leave(&who, By::OWN)),
            }
            let found = group.members();
            let found = found.iter().map(|m| match m.who {
                Who::Session(key) => (key.key().slot, m.gauge.room()),
                _ => (u32::MAX, 0),
            });
            assert_eq!(found.collect::<Vec<_>>(), expected);
            assert_eq!(group.is_empty(), expected.is_empty());
        };
        for (round, most) in [FEW / 2, 2 * FEW, 2 * FEW].into_iter().enumerate() {
            let (round, most) = (round as i64, most as u32);
            (0..most).for_each(|slot| check(slot, Some(round)));
            (0..most).for_each(|slot| check(slot, Some(round + 10)));
            (0..most).for_each(|slot| check(slot, None));
            check(0, None);
        }
    }

    #[test]
    fn an_ordered_group_keeps_a_publisher_to_one_member() {
        let group = Group::new(NonZeroU32::MIN, "$share/g/t".into(), true);
        for slot in 0..5 {
            group.join(member(slot, 1, true));
        }
        let members = group.members();
        let of = |publisher| {
            group
                .choose(&members, publisher, |_| true)
                .map(|m| m.who.clone())
        };
        let before: Vec<_> = (0..100).map(of).collect();
        assert_eq!(before, (0..100).map(of).collect::<Vec<_>>());
        let gone = members[2].who.clone();
        group.leave(&gone, By::OWN);
        let members = group.members();
        for (publisher, was) in before.iter().enumerate() {
            let is = group
                .choose(&members, publisher as u32, |_| true)
                .map(|m| m.who.clone());
            assert!(is == *was || *was == Some(gone.clone()));
        }
    }
}
