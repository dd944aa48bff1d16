//! Clients that connect on a node of a cluster: the directory of the cluster says who else has their
//! identifiers (`peers/directory.rs`).
//!
//! A client is registered before anything else becomes of its CONNECT. It stays so until it is gone, or the
//! session store knows it.

use net_api::Key;
use peer_protocol::Registered;
use store_state::session::TakenFrom;

use crate::clients::LoopIo;
use crate::connect::joining::connect_in;
use crate::connect::registering::Registering;
use crate::connect::taking::Then;
use crate::dispatch::ClientLoop;
use crate::pending::Pending;
use crate::rim::Rim;

impl<R: Rim> ClientLoop<R> {
    /// Asks who else has a client that connects.
    pub(crate) fn register(&mut self, io: &mut impl LoopIo, key: Key) {
        let number = self.came_at_us(key);
        if let Some(registration) =
            Registering::registration(&self.base, &self.clients, key, number)
        {
            let token = self.base.ask(Pending::Register(key)).token;
            self.registering.new.push((token, registration));
            self.flush_peers_soon(io);
        }
    }

    /// At the end of the turn.
    pub(crate) fn flush_registrations(&mut self, io: &mut impl LoopIo) {
        let node = std::sync::Arc::clone(&self.base.node);
        let Some(peers) = node.peers() else {
            return;
        };
        let gone = std::mem::take(&mut self.registering.gone);
        if !gone.is_empty() {
            peers.report(&*node, gone, true);
        }
        let new = std::mem::take(&mut self.registering.new);
        if !new.is_empty() {
            let known = peers.register(&*node, self.base.index, new);
            self.registered(io, known);
        }
    }

    /// The directory has answered.
    pub(crate) fn registered(&mut self, io: &mut impl LoopIo, answers: Vec<(u64, Registered)>) {
        for (token, registered) in answers {
            if let Some(Pending::Register(key)) = self.base.pending.remove(Key::from_bits(token)) {
                let deferred = self.take_deferred_closes(key);
                self.has_registered(io, key, registered);
                for (asker, older) in deferred {
                    self.close_older(io, asker, older, false);
                }
            }
        }
        self.base.stats.pending.set(self.base.pending.len() as u64);
    }

    fn has_registered(&mut self, io: &mut impl LoopIo, key: Key, registered: Registered) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        if registered.is_anothers {
            return self.refuse_another_user(io, key);
        }
        if registered.number == 0 {
            return self.refuse_given_up(io, key);
        }
        client.number = registered.number;
        let Some(joining) = client.rare.get_mut(|of| &mut of.joining) else {
            return self.forget_joining(io, key);
        };
        joining.is_stored |= registered.is_known;
        // Also for a connection that is gone meanwhile: the directory knows of no earlier one any more, so nobody else
        // would close that.
        let from = match registered.held_by {
            Some(node) => TakenFrom::Node { node, will: 0 },
            None => TakenFrom::Nobody,
        };
        self.close_elsewhere(io, key, (0, false), from, Then::Registered);
    }

    /// Nobody else has a client but, maybe, the store.
    pub(crate) fn join_registered(&mut self, io: &mut impl LoopIo, key: Key) {
        let Some(client) = self.clients.get(key) else {
            return;
        };
        let Some(joining) = client
            .rare
            .get()
            .joining
            .as_ref()
            .filter(|_| client.connection.is_some())
        else {
            return self.forget_joining(io, key);
        };
        if !joining.is_stored {
            return self.joined_transient(io, key, None);
        }
        let frame = Box::<[u8]>::from(joining.frame());
        let client_id = Box::<str>::from(client.session.client_id());
        if let Some(connect) = connect_in(&frame) {
            self.join(key, &connect, &client_id);
        }
    }

    /// A client is gone, or the store knows it: the directory forgets it.
    pub(crate) fn unregister(&mut self, io: &mut impl LoopIo, key: Key) {
        let number = self.clients.get(key).map_or(0, |client| client.number);
        if number != 0 {
            let gone = Registering::registration(&self.base, &self.clients, key, number);
            self.registering.gone.extend(gone);
            self.flush_peers_soon(io);
        }
    }
}
