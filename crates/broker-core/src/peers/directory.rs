//! Who of the cluster has a client that the session store does not know (P5, P10): a clean session without a
//! will.
//!
//! The leader of the client's session shard knows it, in memory only. A CONNECT asks it, and is told which node
//! has the client; that one is asked to close the older connection (`takeover.rs`). Where nobody leads, or does
//! not answer, clients are let in at once. When another node leads, all tell it what they have; of two
//! connections of a client, the later one stays.
//!
//! Connections are numbered by the time of their CONNECT in µs, or higher, so that later ones have higher
//! numbers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use peer_protocol::Registration;
use route_exchange::NodeId;
use store_state::api::ShardNumber;
use store_state::session::OfAnotherUser;

/// A CONNECT that came so long ago, in µs, may have been given up: its client may have connected to another node since.
/// The clocks of nodes differ by less.
const WAITED_US: u64 = 1_000_000;

/// The clients of the shards that this node leads.
#[derive(Debug, Default)]
pub(super) struct Directory {
    shards: BTreeMap<ShardNumber, Shard>,
}

#[derive(Debug, Default)]
struct Shard {
    term: u64,
    clients: BTreeMap<Box<str>, Holder>,
}

/// The connection that has a client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Holder {
    number: u64,
    node: NodeId,
    /// As in [`Registration`].
    user: Option<Box<str>>,
}

/// A connection that is not its client's latest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StaleConnection {
    pub(super) node: NodeId,
    pub(super) number: u64,
}

/// Why a CONNECT does not get its client identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// Another user is connected with it, to another node.
    NotOwner,
    /// The client has connected to another node after this CONNECT, which has waited.
    GivenUp,
}

impl Directory {
    /// The clients of a shard that this node leads. In another term nothing is left.
    fn shard(&mut self, number: ShardNumber, term: u64) -> &mut Shard {
        let shard = self.shards.entry(number).or_default();
        if shard.term != term {
            *shard = Shard {
                term,
                ..Shard::default()
            };
        }
        shard
    }

    /// Another node leads a shard.
    pub(super) fn resign(&mut self, leads: impl Fn(ShardNumber) -> bool) {
        self.shards.retain(|shard, _| leads(*shard));
    }

    /// Shards were split: clients that another shard has now are forgotten here, and told to that one's leader.
    pub(super) fn forget_moved(&mut self, shard_of: impl Fn(&str) -> ShardNumber) {
        for (number, shard) in &mut self.shards {
            shard
                .clients
                .retain(|client, _| shard_of(client) == *number);
        }
    }

    /// A CONNECT: its connection is later than all that are known, unless it has waited. The answer: its number, and
    /// who had the client. `now_us`: the cluster's time.
    ///
    /// # Errors
    /// Another user has it, and keeps it; or the client has a later connection.
    pub(super) fn register(
        &mut self,
        term: u64,
        node: NodeId,
        new: Registration,
        now_us: u64,
    ) -> Result<(u64, Option<NodeId>), Refusal> {
        let Registration {
            client,
            user,
            of_another_user,
            ..
        } = new;
        let clients = &mut self.shard(new.shard, term).clients;
        // What the same node had, it has no more: it would not ask.
        let elsewhere = clients.get(&client).filter(|before| before.node != node);
        let is_anothers = elsewhere.is_some_and(|b| b.user.is_some() && b.user != user);
        if is_anothers && of_another_user == OfAnotherUser::Refuse {
            return Err(Refusal::NotOwner);
        }
        let has_waited = new.number.saturating_add(WAITED_US) <= now_us;
        if has_waited && elsewhere.is_some_and(|before| before.number > new.number) {
            return Err(Refusal::GivenUp);
        }
        let held_by = elsewhere.map(|before| before.node);
        let before = clients.get(&client).map_or(0, |before| before.number + 1);
        let number = before.max(new.number);
        clients.insert(client, Holder { number, node, user });
        Ok((number, held_by))
    }

    /// A connection that an earlier leader knew of, or none did. Of two of a client, the one that is to be closed.
    pub(super) fn register_again(
        &mut self,
        term: u64,
        node: NodeId,
        again: Registration,
    ) -> Option<StaleConnection> {
        let own = Holder {
            number: again.number,
            node,
            user: again.user,
        };
        match self.shard(again.shard, term).clients.entry(again.client) {
            Entry::Vacant(free) => {
                free.insert(own);
                None
            }
            Entry::Occupied(mut held) => {
                let before = held.get().clone();
                let is_elsewhere = before.node != node;
                let (stale, winner) = if before <= own {
                    (before, own)
                } else {
                    (own, before)
                };
                held.insert(winner);
                is_elsewhere.then_some(StaleConnection {
                    node: stale.node,
                    number: stale.number,
                })
            }
        }
    }

    /// A connection is closed, or the store knows its client now.
    pub(super) fn forget(&mut self, term: u64, node: NodeId, gone: &Registration) {
        let clients = &mut self.shard(gone.shard, term).clients;
        let is_it = |holder: &Holder| holder.node == node && holder.number <= gone.number;
        if clients.get(&gone.client).is_some_and(is_it) {
            clients.remove(&gone.client);
        }
    }

    /// Nothing is left of a process of a node.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        for shard in self.shards.values_mut() {
            shard.clients.retain(|_, holder| holder.node != node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u64) -> Registration {
        Registration {
            shard: 3,
            client: "c".into(),
            number,
            user: None,
            of_another_user: OfAnotherUser::Refuse,
        }
    }

    #[test]
    fn another_user_on_another_node_is_refused_unless_set_otherwise() {
        let by = |user: Option<&str>, of_another_user| Registration {
            user: user.map(Box::from),
            of_another_user,
            ..client(1)
        };
        let (refuse, discard) = (OfAnotherUser::Refuse, OfAnotherUser::Discard);
        let mut directory = Directory::default();
        let mut register = |node, user, other| directory.register(1, node, by(user, other), 1).ok();
        assert_eq!(register(7, None, refuse), Some((1, None)));
        // Nobody in particular had it.
        assert_eq!(register(8, Some("ann"), refuse), Some((2, Some(7))));
        assert_eq!(register(7, Some("bob"), refuse), None);
        assert_eq!(register(7, None, refuse), None);
        assert_eq!(register(7, Some("ann"), refuse), Some((3, Some(8))));
        // Her connection is gone, as that node knows.
        assert_eq!(register(7, Some("bob"), refuse), Some((4, None)));
        assert_eq!(register(8, Some("ann"), discard), Some((5, Some(7))));
    }

    #[test]
    fn a_connect_is_later_than_all_that_are_known() {
        let mut directory = Directory::default();
        assert_eq!(directory.register(1, 7, client(100), 0), Ok((100, None)));
        // Its clock is behind.
        assert_eq!(directory.register(1, 8, client(50), 0), Ok((101, Some(7))));
        assert_eq!(directory.register(1, 8, client(200), 0), Ok((200, None)));
    }

    #[test]
    fn a_connect_that_has_waited_takes_no_client_from_a_later_one() {
        let mut directory = Directory::default();
        let now = 10 * WAITED_US;
        assert_eq!(directory.register(1, 7, client(now), now), Ok((now, None)));
        let earlier = client(now - WAITED_US);
        let refused = directory.register(1, 8, earlier.clone(), now);
        assert_eq!(refused, Err(Refusal::GivenUp));
        // The clock of its node may be behind.
        let just = directory.register(1, 8, client(now - WAITED_US + 1), now);
        assert_eq!(just, Ok((now + 1, Some(7))));
        // Of two that came to one node, the node itself knows the later one.
        let same = directory.register(1, 8, earlier.clone(), now);
        assert_eq!(same, Ok((now + 2, None)));
        directory.forget(1, 8, &client(now + 2));
        assert_eq!(
            directory.register(1, 8, earlier.clone(), now),
            Ok((earlier.number, None))
        );
    }

    #[test]
    fn who_is_gone_has_the_client_no_more_unless_it_is_back() {
        let mut directory = Directory::default();
        directory.register(1, 7, client(1), 0).unwrap();
        directory.register(1, 7, client(2), 0).unwrap();
        directory.forget(1, 7, &client(1));
        directory.forget(1, 8, &client(2));
        assert_eq!(directory.register(1, 8, client(3), 0), Ok((3, Some(7))));
        directory.forget(1, 8, &client(3));
        assert_eq!(directory.register(1, 7, client(4), 0), Ok((4, None)));
    }

    #[test]
    fn of_two_connections_the_later_one_stays() {
        for (first, second) in [(1, 2), (2, 1)] {
            let mut directory = Directory::default();
            assert_eq!(directory.register_again(1, 7, client(first)), None);
            assert_eq!(directory.register_again(1, 7, client(first)), None);
            let stale = directory.register_again(1, 8, client(second)).unwrap();
            assert_eq!(
                (stale.node, stale.number),
                (if first < second { 7 } else { 8 }, 1)
            );
            let later = if first < second { 8 } else { 7 };
            assert_eq!(directory.register(1, 9, client(0), 0), Ok((3, Some(later))));
        }
    }

    #[test]
    fn another_term_begins_with_nothing() {
        let mut directory = Directory::default();
        directory.register(1, 7, client(1), 0).unwrap();
        assert_eq!(directory.register(2, 8, client(1), 0), Ok((1, None)));
        directory.resign(|_| false);
        assert_eq!(directory.register(2, 9, client(1), 0), Ok((1, None)));
        directory.forget_node(9);
        assert_eq!(directory.register(2, 7, client(1), 0), Ok((1, None)));
    }
}
