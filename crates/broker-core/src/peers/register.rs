//! Who of the cluster has a client that connects (`directory.rs`): this node's questions, and its answers.
//!
//! Where nobody leads, or does not answer, clients are let in at once. When another node leads, all tell it what they
//! have.

use std::collections::BTreeMap;
use std::sync::Arc;

use peer_protocol::{DirectoryMessage, Older, Registered, Registration, Takeover, in_parts};
use route_exchange::NodeId;
use store_state::api::{ShardNumber, Store};
use store_state::session::OfAnotherUser;

use super::directory::{Directory, Refusal, StaleConnection};
use super::event::PeerEvent;
use super::registrations::Asked;
use super::takeovers::Waiter;
use super::{Links, Peers, ThisNode};

impl<L: Links> Peers<L> {
    /// Asks who has clients that connect to a loop, by its tokens. Gives back what is known at once; the rest
    /// comes by [`PeerEvent::Registered`].
    pub(crate) fn register(
        &self,
        node: &impl ThisNode,
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
                    let registered = answer(&mut registrations.directory, node, term, leader, new);
                    known.push((token, registered));
                }
                Some((leader, _)) => {
                    let question = registrations.ask(Asked {
                        leader,
                        at_ms: node.now_ms(),
                        waiter: Waiter { index, token },
                        number: new.number,
                    });
                    elsewhere.entry(leader).or_default().push((question, new));
                }
            }
        }
        drop(registrations);
        for (leader, new) in elsewhere {
            for part in in_parts(new, |(_, new)| new) {
                if !self.tell_directory(leader, DirectoryMessage::Register(part)) {
                    self.do_not_ask(node, leader);
                }
            }
        }
        known
    }

    /// Clients that are here without a question: another leader has to know, or they are gone.
    pub(crate) fn report(&self, node: &impl ThisNode, clients: Vec<Registration>, is_gone: bool) {
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
            for part in in_parts(clients, |client| client) {
                let message = if is_gone {
                    DirectoryMessage::Forget(part)
                } else {
                    DirectoryMessage::Again(part)
                };
                self.tell_directory(leader, message);
            }
        }
        let own = node.store().node();
        if is_gone {
            self.forget(node, own, &here);
        } else {
            self.take_over_directory(node, own, here);
        }
    }

    fn forget(&self, node: &impl ThisNode, from: NodeId, gone: &[Registration]) {
        let mut registrations = self.registrations.lock();
        for gone in gone {
            if let Some(term) = node.own_term(gone.shard) {
                registrations.directory.forget(term, from, gone);
            }
        }
    }

    /// Connections that an earlier leader knew of. Of two of one client, the older one is closed.
    fn take_over_directory(&self, node: &impl ThisNode, from: NodeId, clients: Vec<Registration>) {
        let mut to_close = Vec::new();
        let mut registrations = self.registrations.lock();
        for mut again in clients {
            again.shard = node.store().session_shard(&again.client);
            let Some(term) = node.own_term(again.shard) else {
                continue;
            };
            let client = again.client.clone();
            let number = again.number;
            let stale = if node.store().knows(&client) {
                // It connects again, and is taken for what it is.
                Some(StaleConnection { node: from, number })
            } else {
                registrations.directory.register_again(term, from, again)
            };
            to_close.extend(stale.map(|stale| (client, stale)));
        }
        drop(registrations);
        for (client, stale) in to_close {
            let older = Older {
                client,
                epoch: 0,
                number: stale.number + 1,
                resumes: false,
            };
            self.have_closed(node, stale.node, older);
        }
    }

    /// A message about the directory.
    pub(super) fn directory_message(
        &self,
        node: &impl ThisNode,
        from: NodeId,
        message: DirectoryMessage,
    ) {
        match message {
            DirectoryMessage::Register(new) => {
                let mut registrations = self.registrations.lock();
                let answered = |(question, mut new): (u64, Registration)| {
                    // Who asks may not know yet that a shard is split, and is let in if another node leads this one.
                    new.shard = node.store().session_shard(&new.client);
                    let term = node.own_term(new.shard);
                    let directory = &mut registrations.directory;
                    let answer = term.map(|term| answer(directory, node, term, from, new));
                    (question, answer)
                };
                let answers = new.into_iter().map(answered).collect();
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
    pub(super) fn do_not_ask(&self, node: &impl ThisNode, leader: NodeId) {
        let asked = self.registrations.lock().take_asked_of(leader);
        go_on(node, asked.into_iter().map(Asked::without_leader));
    }

    /// Nothing is left of a process of a node.
    pub(super) fn forget_clients(&self, node: &impl ThisNode, peer: NodeId) {
        self.registrations.lock().directory.forget_node(peer);
        self.do_not_ask(node, peer);
    }

    /// There is a connection to a node anew: what it was told of clients here may be lost.
    pub(super) fn tell_clients_again(&self, peer: NodeId) {
        self.registrations.lock().tell_again(peer);
    }

    /// New leaders are told of the clients that are here; who waits for one that does not answer is let in.
    pub(super) fn keep_registered(&self, node: &impl ThisNode, now_ms: u64) {
        let Some(store) = node.opened_store() else {
            return;
        };
        let mut registrations = self.registrations.lock();
        let unanswered = registrations.take_unanswered(now_ms);
        let mut new = Vec::new();
        for shard in store.session_shards().iter().map(|shard| shard.number) {
            let Some(leader) = store.session_leader(shard) else {
                registrations.told.remove(&shard);
                continue;
            };
            if registrations.told.insert(shard, leader) != Some(leader) {
                new.push(shard);
            }
        }
        let leads = |shard| node.own_term(shard).is_some();
        registrations.directory.resign(leads);
        let shards = store.session_shards();
        if !registrations.shards.is_same(&shards) {
            registrations.shards = shards;
            let shard_of = |client: &str| store.session_shard(client);
            registrations.directory.forget_moved(shard_of);
        }
        drop(registrations);
        go_on(node, unanswered.into_iter().map(Asked::without_leader));
        if !new.is_empty() {
            let shards: Arc<[ShardNumber]> = new.into();
            for index in 0..node.loops() {
                node.tell_loop(index, PeerEvent::RegisterAgain(Arc::clone(&shards)));
            }
        }
    }

    fn tell_directory(&self, to: NodeId, message: DirectoryMessage) -> bool {
        self.send(to, Takeover::Directory(message))
    }
}

/// The answer of the directory to a CONNECT.
fn answer(
    directory: &mut Directory,
    node: &impl ThisNode,
    term: u64,
    from: NodeId,
    new: Registration,
) -> Registered {
    let is_known = node.store().knows(&new.client);
    // Not registered, not even for the moment until the store refuses it: its owner would find it there.
    let is_of_another = new.of_another_user == OfAnotherUser::Refuse
        && node
            .store()
            .is_of_another_user(&new.client, new.user.as_deref());
    let registered = if is_of_another {
        Err(Refusal::NotOwner)
    } else {
        let now_us = node.cluster_now_us();
        directory.register(term, from, new, now_us)
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

/// No lock may be held: mail may be worked off on the spot, by this thread.
fn go_on(node: &impl ThisNode, answered: impl IntoIterator<Item = (Waiter, Registered)>) {
    let mut by_loop: BTreeMap<usize, Vec<(u64, Registered)>> = BTreeMap::new();
    for (waiter, registered) in answered {
        let answers = by_loop.entry(waiter.index).or_default();
        answers.push((waiter.token, registered));
    }
    for (index, answers) in by_loop {
        node.tell_loop(index, PeerEvent::Registered(answers));
    }
}
