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
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use route_exchange::NodeId;
use serde::{Deserialize, Serialize};
use store::ShardNumber;
use store_state::session::OfAnotherUser;

use super::Peers;
use super::takeover::{Message, Older, Waiter};
use crate::client_loop::Mail;
use crate::node::Node;

/// How long a CONNECT waits for the leader, in ms.
const PATIENCE_MS: u64 = 1_000;

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
    clients: HashMap<Box<str>, Holder, RandomState>,
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
pub(super) struct Loser {
    pub(super) node: NodeId,
    pub(super) number: u64,
}

/// A client and the number of its connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) shard: ShardNumber,
    pub(crate) client: Box<str>,
    pub(crate) number: u64,
    /// The user that authentication has confirmed the client to be.
    pub(crate) user: Option<Box<str>>,
    /// Whether it gets the client identifier of another user.
    pub(crate) of_another_user: OfAnotherUser,
}

/// Why a CONNECT does not get its client identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// Another user is connected with it, to another node.
    NotOwner,
    /// The client has connected to another node after this CONNECT, which has waited.
    GivenUp,
}

/// What a CONNECT is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Registered {
    /// The number of the connection; 0: it is refused.
    pub(crate) number: u64,
    /// Who has an older one.
    pub(crate) held_by: Option<NodeId>,
    /// The session store has a record of the client.
    pub(crate) is_known: bool,
    /// It is refused: another user has the client, on another node.
    pub(crate) is_anothers: bool,
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
    ) -> Option<Loser> {
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
                let (loser, winner) = if before <= own {
                    (before, own)
                } else {
                    (own, before)
                };
                held.insert(winner);
                is_elsewhere.then_some(Loser {
                    node: loser.node,
                    number: loser.number,
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
            if clients.len() < clients.capacity() / 4 {
                clients.shrink_to_fit();
            }
        }
    }

    /// Nothing is left of a process of a node.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        for shard in self.shards.values_mut() {
            shard.clients.retain(|_, holder| holder.node != node);
        }
    }
}

/// What nodes say to each other about the directory.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum DirectoryMessage {
    /// CONNECTs, by the numbers of the questions.
    Register(Vec<(u64, Registration)>),
    /// The answers. `None`: the sender does not lead.
    Registered(Vec<(u64, Option<Registered>)>),
    /// What the sender has, and another leader may have known.
    Again(Vec<Registration>),
    /// What the sender has no more.
    Forget(Vec<Registration>),
}

/// The directory of this node, and what it has asked others.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    directory: Directory,
    asked: BTreeMap<u64, Asked>,
    last_question: u64,
    /// The leaders that were told of the clients here, with their terms.
    told: BTreeMap<ShardNumber, (NodeId, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    leader: NodeId,
    at_ms: u64,
    waiter: Waiter,
    /// The number of the connection, if nobody gives it a higher one.
    number: u64,
}

impl Asked {
    fn without_leader(self) -> (Waiter, Registered) {
        (self.waiter, Registered::alone(self.number))
    }
}

impl Registered {
    /// Nobody leads who could know of others.
    fn alone(number: u64) -> Self {
        Self {
            number,
            held_by: None,
            is_known: false,
            is_anothers: false,
        }
    }
}

impl Registrations {
    /// `incarnation`: of this node; so no process hears what an earlier one was answered.
    pub(super) fn new(incarnation: u64) -> Self {
        Self {
            last_question: incarnation << 32,
            ..Self::default()
        }
    }

    fn ask(&mut self, asked: Asked) -> u64 {
        self.last_question += 1;
        self.asked.insert(self.last_question, asked);
        self.last_question
    }

    fn answered(&mut self, from: NodeId, question: u64) -> Option<Asked> {
        let is_it = |asked: &&Asked| asked.leader == from;
        self.asked.get(&question).filter(is_it)?;
        self.asked.remove(&question)
    }

    /// Those who have waited for too long; questions are numbered in their order.
    fn take_unanswered(&mut self, now_ms: u64) -> Vec<Asked> {
        let mut unanswered = Vec::new();
        while let Some(first) = self.asked.first_entry()
            && now_ms >= first.get().at_ms + PATIENCE_MS
        {
            unanswered.push(first.remove());
        }
        for asked in &unanswered {
            self.tell_again(asked.leader);
        }
        unanswered
    }

    /// A node may not know which clients are here.
    fn tell_again(&mut self, peer: NodeId) {
        self.told.retain(|_, (leader, _)| *leader != peer);
    }

    fn take_asked_of(&mut self, leader: NodeId) -> Vec<Asked> {
        self.tell_again(leader);
        self.asked
            .extract_if(.., |_, asked| asked.leader == leader)
            .map(|(_, asked)| asked)
            .collect()
    }
}

impl Peers {
    /// Asks who has clients that connect to a loop, by its tokens. Gives back what is known at once; the rest
    /// comes by [`Mail::Registered`].
    pub(crate) fn register(
        &self,
        node: &Node,
        index: usize,
        new: Vec<(u64, Registration)>,
    ) -> Vec<(u64, Registered)> {
        let mut known = Vec::new();
        let mut elsewhere: BTreeMap<NodeId, Vec<(u64, Registration)>> = BTreeMap::new();
        let mut registrations = self.registrations.lock();
        for (token, new) in new {
            match node.store().session_leader(new.shard) {
                None => known.push((token, Registered::alone(new.number))),
                Some((leader, term)) if leader == node.store().node() => {
                    let registered = registrations.directory.answer(node, term, leader, new);
                    known.push((token, registered));
                }
                Some((leader, _)) => {
                    let question = registrations.ask(Asked {
                        leader,
                        at_ms: node.clock.now_ms(),
                        waiter: Waiter { index, token },
                        number: new.number,
                    });
                    elsewhere.entry(leader).or_default().push((question, new));
                }
            }
        }
        drop(registrations);
        for (leader, new) in elsewhere {
            if !self.tell_directory(leader, DirectoryMessage::Register(new)) {
                self.do_not_ask(node, leader);
            }
        }
        known
    }

    /// Clients that are here without a question: another leader has to know, or they are gone.
    pub(crate) fn report(&self, node: &Node, clients: Vec<Registration>, is_gone: bool) {
        let mut elsewhere: BTreeMap<NodeId, Vec<Registration>> = BTreeMap::new();
        let mut here = Vec::new();
        for client in clients {
            match node.store().session_leader(client.shard) {
                Some((leader, _)) if leader == node.store().node() => here.push(client),
                Some((leader, _)) => elsewhere.entry(leader).or_default().push(client),
                // Who leads next begins with nothing, and is told of those who are here then.
                None => {}
            }
        }
        for (leader, clients) in elsewhere {
            let message = if is_gone {
                DirectoryMessage::Forget(clients)
            } else {
                DirectoryMessage::Again(clients)
            };
            self.tell_directory(leader, message);
        }
        let own = node.store().node();
        if is_gone {
            self.forget(node, own, &here);
        } else {
            self.take_over_directory(node, own, here);
        }
    }

    fn forget(&self, node: &Node, from: NodeId, gone: &[Registration]) {
        let mut registrations = self.registrations.lock();
        for gone in gone {
            if let Some(term) = own_term(node, gone.shard) {
                registrations.directory.forget(term, from, gone);
            }
        }
    }

    /// Connections that an earlier leader knew of. Of two of one client, the older one is closed.
    fn take_over_directory(&self, node: &Node, from: NodeId, clients: Vec<Registration>) {
        let mut losers = Vec::new();
        let mut registrations = self.registrations.lock();
        for again in clients {
            let Some(term) = own_term(node, again.shard) else {
                continue;
            };
            let client = again.client.clone();
            let number = again.number;
            let loser = if node.store().knows(&client) {
                // It connects again, and is taken for what it is.
                Some(Loser { node: from, number })
            } else {
                registrations.directory.register_again(term, from, again)
            };
            losers.extend(loser.map(|loser| (client, loser)));
        }
        drop(registrations);
        for (client, loser) in losers {
            let older = Older {
                client,
                epoch: 0,
                number: loser.number + 1,
                resumes: false,
            };
            self.have_closed(node, loser.node, older);
        }
    }

    /// A message about the directory.
    pub(super) fn directory_message(&self, node: &Node, from: NodeId, message: DirectoryMessage) {
        match message {
            DirectoryMessage::Register(new) => {
                let mut registrations = self.registrations.lock();
                let answer = |(question, new): (u64, Registration)| {
                    let term = own_term(node, new.shard);
                    let directory = &mut registrations.directory;
                    let answer = term.map(|term| directory.answer(node, term, from, new));
                    (question, answer)
                };
                let answers = new.into_iter().map(answer).collect();
                drop(registrations);
                // Not sent: who asks does not wait for long.
                self.tell_directory(from, DirectoryMessage::Registered(answers));
            }
            DirectoryMessage::Registered(answers) => {
                let mut registrations = self.registrations.lock();
                let answered = |(question, answer): (u64, Option<Registered>)| {
                    let asked = registrations.answered(from, question)?;
                    let alone = Registered::alone(asked.number);
                    Some((asked.waiter, answer.unwrap_or(alone)))
                };
                let answered: Vec<_> = answers.into_iter().filter_map(answered).collect();
                drop(registrations);
                go_on(node, answered);
            }
            DirectoryMessage::Again(clients) => self.take_over_directory(node, from, clients),
            DirectoryMessage::Forget(clients) => self.forget(node, from, &clients),
        }
    }

    /// What a leader was asked it may never answer: those who wait are let in.
    pub(super) fn do_not_ask(&self, node: &Node, leader: NodeId) {
        let asked = self.registrations.lock().take_asked_of(leader);
        go_on(node, asked.into_iter().map(Asked::without_leader));
    }

    /// Nothing is left of a process of a node.
    pub(super) fn forget_clients(&self, node: &Node, peer: NodeId) {
        self.registrations.lock().directory.forget_node(peer);
        self.do_not_ask(node, peer);
    }

    /// There is a connection to a node anew: what it was told of clients here may be lost.
    pub(super) fn tell_clients_again(&self, peer: NodeId) {
        self.registrations.lock().tell_again(peer);
    }

    /// New leaders are told of the clients that are here; who waits for one that does not answer is let in.
    pub(super) fn keep_registered(&self, node: &Node, now_ms: u64) {
        let Some(store) = node.opened_store() else {
            return;
        };
        let mut registrations = self.registrations.lock();
        let unanswered = registrations.take_unanswered(now_ms);
        let mut new = Vec::new();
        for shard in 0..store.session_shards() {
            let Some(leader) = store.session_leader(shard) else {
                registrations.told.remove(&shard);
                continue;
            };
            if registrations.told.insert(shard, leader) != Some(leader) {
                new.push(shard);
            }
        }
        let leads = |shard| own_term(node, shard).is_some();
        registrations.directory.resign(leads);
        drop(registrations);
        go_on(node, unanswered.into_iter().map(Asked::without_leader));
        if let Some(loops) = node.started_loops().filter(|_| !new.is_empty()) {
            let shards: Arc<[ShardNumber]> = new.into();
            for index in 0..loops.loops() {
                loops.send(index, Mail::RegisterAgain(Arc::clone(&shards)));
            }
        }
    }

    fn tell_directory(&self, to: NodeId, message: DirectoryMessage) -> bool {
        self.links.send(to, Message::Directory(message).encode())
    }
}

impl Directory {
    fn answer(&mut self, node: &Node, term: u64, from: NodeId, new: Registration) -> Registered {
        let is_known = node.store().knows(&new.client);
        // Not registered, not even for the moment until the store refuses it: its owner would find it there.
        let is_of_another = new.of_another_user == OfAnotherUser::Refuse
            && node
                .store()
                .is_of_another_user(&new.client, new.user.as_deref());
        let registered = if is_of_another {
            Err(Refusal::NotOwner)
        } else {
            let now_us = node.cluster_time.at_us(node.clock.now_us());
            self.register(term, from, new, now_us)
        };
        match registered {
            Ok((number, held_by)) => Registered {
                number,
                held_by,
                is_known,
                is_anothers: false,
            },
            Err(refusal) => Registered {
                number: 0,
                held_by: None,
                is_known,
                is_anothers: refusal == Refusal::NotOwner,
            },
        }
    }
}

/// The term in which this node leads a session shard, if it does.
fn own_term(node: &Node, shard: ShardNumber) -> Option<u64> {
    let store = node.store();
    let (leader, term) = store.session_leader(shard)?;
    (leader == store.node()).then_some(term)
}

/// No lock may be held: mail may be worked off on the spot, by this thread.
fn go_on(node: &Node, answered: impl IntoIterator<Item = (Waiter, Registered)>) {
    let mut by_loop: BTreeMap<usize, Vec<(u64, Registered)>> = BTreeMap::new();
    for (waiter, registered) in answered {
        let answers = by_loop.entry(waiter.index).or_default();
        answers.push((waiter.token, registered));
    }
    for (index, answers) in by_loop {
        if let Some(loops) = node.started_loops() {
            loops.send(index, Mail::Registered(answers));
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
            let loser = directory.register_again(1, 8, client(second)).unwrap();
            assert_eq!(
                (loser.node, loser.number),
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

    #[test]
    fn who_is_not_answered_is_let_in() {
        let mut registrations = Registrations::default();
        let asked = |leader, at_ms| Asked {
            leader,
            at_ms,
            waiter: Waiter { index: 0, token: 1 },
            number: 5,
        };
        let first = registrations.ask(asked(7, 0));
        registrations.ask(asked(7, 1));
        registrations.ask(asked(8, 1));
        assert!(registrations.answered(8, first).is_none());
        assert_eq!(registrations.take_unanswered(PATIENCE_MS).len(), 1);
        assert!(registrations.answered(7, first).is_none());
        assert_eq!(registrations.take_asked_of(7).len(), 1);
        assert_eq!(registrations.take_unanswered(PATIENCE_MS + 1).len(), 1);
    }
}
