//! Shared subscriptions: which member of a group gets a message.
//!
//! Members take turns; one without room in its window is passed over while another has some, and one
//! whose client is offline while another's is online. In an ordered group (`$oshare`) the publisher
//! decides instead: all its messages go to the same member, and a change of members moves only the
//! publishers of the member that came or went.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use foldhash::fast::FixedState;
use mqtt_session::Wanted;
use parking_lot::Mutex;

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
}

/// A member of a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Who {
    /// A session that lives as long as its connection.
    Session(SessionKey),
    /// A durable session, connected or not, by its client identifier.
    Durable(Arc<str>),
}

/// A session's membership in a group.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) who: Who,
    pub(crate) wanted: Wanted,
    pub(crate) gauge: Arc<Gauge>,
}

/// The sessions that share the messages of one filter under one name.
#[derive(Debug)]
pub(crate) struct Group {
    number: NonZeroU32,
    /// As in SUBSCRIBE: `$share/name/filter`.
    filter: Box<str>,
    ordered: bool,
    members: Mutex<Members>,
    turn: AtomicUsize,
}

#[derive(Debug, Default)]
struct Members {
    list: Vec<Member>,
    /// What was last handed out, while it is still true.
    shared: Option<Arc<[Member]>>,
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
    pub(crate) fn filter(&self) -> &str {
        &self.filter
    }

    /// Adds a member or replaces its options. True: it was none before.
    pub(crate) fn join(&self, member: Member) -> bool {
        let mut members = self.members.lock();
        members.shared = None;
        match members.list.iter_mut().find(|m| m.who == member.who) {
            Some(known) => {
                *known = member;
                false
            }
            None => {
                members.list.push(member);
                true
            }
        }
    }

    /// Removes a member. False: it was none.
    pub(crate) fn leave(&self, who: &Who) -> bool {
        let mut members = self.members.lock();
        let before = members.list.len();
        members.list.retain(|m| m.who != *who);
        members.shared = None;
        members.list.len() < before
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.lock().list.is_empty()
    }

    pub(crate) fn members(&self) -> Arc<[Member]> {
        let mut members = self.members.lock();
        let Members { list, shared } = &mut *members;
        Arc::clone(shared.get_or_insert_with(|| list.as_slice().into()))
    }

    /// Chooses among the members (as [`Group::members`] gave them), passing over `except`.
    pub(crate) fn choose<'m>(
        &self,
        members: &'m [Member],
        publisher: u64,
        except: Option<&Who>,
    ) -> Option<&'m Member> {
        let chosen = if self.ordered {
            by_publisher(members, publisher, except)
        } else {
            self.by_turn(members, except)
        }?;
        // Until the member's loop shows its room anew, the next choice must know of this one.
        chosen.gauge.room.fetch_sub(1, Ordering::Relaxed);
        Some(chosen)
    }

    fn by_turn<'m>(&self, members: &'m [Member], except: Option<&Who>) -> Option<&'m Member> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut best: Option<(&Member, (bool, i64))> = None;
        for member in members
            .iter()
            .cycle()
            .skip(turn % members.len().max(1))
            .take(members.len())
        {
            if Some(&member.who) == except {
                continue;
            }
            let standing = (member.gauge.is_online(), member.gauge.room());
            if standing.0 && standing.1 > 0 {
                return Some(member);
            }
            if best.is_none_or(|(_, best)| standing > best) {
                best = Some((member, standing));
            }
        }
        best.map(|(member, _)| member)
    }
}

/// Highest random weight: each member draws a number for the publisher, the highest wins; those online
/// before those that are not.
fn by_publisher<'m>(
    members: &'m [Member],
    publisher: u64,
    except: Option<&Who>,
) -> Option<&'m Member> {
    let draw = FixedState::with_seed(publisher);
    members
        .iter()
        .filter(|member| Some(&member.who) != except)
        .max_by_key(|member| (member.gauge.is_online(), draw.hash_one(&member.who)))
}

#[cfg(test)]
mod tests {
    use mqtt_proto::{QoS, RetainHandling, SubscriptionOptions};
    use net::Key;

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
            wanted: Wanted::new(options, 0),
            gauge,
        }
    }

    fn chosen(group: &Group, times: usize) -> Vec<u32> {
        let members = group.members();
        (0..times)
            .filter_map(|_| {
                group.choose(&members, 9, None).map(|m| match m.who {
                    Who::Session(key) => key.key().slot,
                    Who::Durable(_) => u32::MAX,
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
    fn an_offline_member_gets_messages_when_nobody_is_online() {
        let group = Group::new(NonZeroU32::MIN, "$share/g/t".into(), false);
        assert!(group.join(member(1, 0, false)));
        assert!(!group.join(member(1, 0, false)));
        assert_eq!(chosen(&group, 2), [1, 1]);
        let only = member(1, 0, false).who;
        assert!(group.choose(&group.members(), 9, Some(&only)).is_none());
        assert!(group.leave(&only));
        assert!(group.is_empty());
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
                .choose(&members, publisher, None)
                .map(|m| m.who.clone())
        };
        let before: Vec<_> = (0..100).map(of).collect();
        assert_eq!(before, (0..100).map(of).collect::<Vec<_>>());
        let gone = members[2].who.clone();
        group.leave(&gone);
        let members = group.members();
        for (publisher, was) in before.iter().enumerate() {
            let is = group
                .choose(&members, publisher as u64, None)
                .map(|m| m.who.clone());
            assert!(is == *was || *was == Some(gone.clone()));
        }
    }
}
