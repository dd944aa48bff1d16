//! Sessions with many subscriptions whose connections have just ended, and sessions that were sent QoS 0.
//!
//! To take all subscriptions of a session out of the routes and to put them in again costs by their number, and a
//! client can have that done by a CONNECT of a few bytes. So the routes of such a session stay for a while after
//! its connection has ended, and its inbox stays attached: it lingers. A later connection to this node takes both
//! over as they are. What comes by these routes meanwhile, messages of QoS 0, goes to the inbox. If messages of QoS 0 came
//! by the last connection, more are likely to be on their way, from this node or another one: then a session with few
//! subscriptions lingers, too.
//!
//! The routes are under the key of an entry of the loop's clients: the one whose connection came first. The entry
//! stays when that connection ends; later connections have entries of their own, so that nothing that was asked
//! for one connection is answered to another.
//!
//! | call | when | costs |
//! |---|---|---|
//! | [`Linger::lingers`], [`Linger::handle_end_of_connection`] | a connection ends, in this order | nothing by subscription |
//! | [`Linger::handle_unjoined`] | the inbox was attached for a connection that is gone | as to attach it, if it does not linger yet |
//! | [`Linger::handle_successor`] | a client connects while the routes are held | nothing |
//! | [`Linger::take`] | it has joined | nothing by subscription |
//! | [`Linger::handle_gone`], [`Linger::handle_no_use`] | it is refused, or has no use for the routes | the routes, for the second |
//! | [`Linger::led_to`] | a message came by the routes | a question to the shard, while nobody is connected |
//! | [`Linger::handle_timer`], [`Linger::handle_answer`] | – | the routes of one session at a time |
//! | [`Linger::handle_later_elsewhere`], [`Linger::handle_fence`], [`Linger::handle_shutdown`] | the session is not this node's any more | as the end of each |
//!
//! Invariants: while nobody is connected, the client identifier belongs to the entry that holds the routes. The
//! store takes messages from there only as long as no later connection has attached the inbox, whichever node that
//! is on. The subscriptions of an entry are those of the inbox; a session that may have others does not linger.
//!
//! Deliberately absent: who may have the session. A connection that wants it claims it as any other does, and
//! takes the routes over when the inbox has been attached for it; if it is refused, they stay as they were.
//!
//! Where to read next: `begin.rs`, `late.rs`, `over.rs`.

pub(crate) mod asked;
mod begin;
mod kept;
mod late;
mod over;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use mqtt_session::TakenSubscriptions;
use net_api::Key;
use store_state::inbox::Attached;

pub(crate) use self::kept::{Kept, Lingering};
pub(crate) use self::late::Led;
use crate::clients::{Clients, LoopIo, Timer};
use crate::inbox::Epoch;
use crate::key::SessionKey;
use crate::rim::Rim;
use crate::share::{FILTER, units};
use crate::turn::{Base, Effect, Turn};

/// The sessions of a loop that linger.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    /// Those that nobody is connected for.
    count: usize,
    /// Whose time is over. Their routes are taken out one after the other, each when its inbox is detached.
    over: VecDeque<Key>,
    /// The one whose inbox is being detached.
    ending: Option<Key>,
    /// Bytes of messages on their way to inboxes.
    late_bytes: usize,
}

impl Linger {
    fn lingering(clients: &Clients, key: Key) -> Option<&Lingering> {
        match clients.get(key)?.rare.get().kept.as_deref() {
            Some(Kept::Here(lingering)) => Some(lingering),
            _ => None,
        }
    }

    fn lingering_mut(clients: &mut Clients, key: Key) -> Option<&mut Lingering> {
        let kept = clients.get_mut(key)?.rare.get_mut(|of| &mut of.kept)?;
        match &mut **kept {
            Kept::Here(lingering) => Some(lingering),
            Kept::By(_) => None,
        }
    }

    /// The entry that holds the routes of a client, if that is another one.
    fn holder_for(clients: &Clients, key: Key) -> Option<Key> {
        match clients.get(key)?.rare.get().kept.as_deref() {
            Some(Kept::By(holder)) => Some(*holder),
            _ => None,
        }
    }

    /// Whether an entry only holds routes, and no connection has taken them over or is about to.
    pub(crate) fn is_lingering(clients: &Clients, key: Key) -> bool {
        Self::lingering(clients, key).is_some_and(|lingering| lingering.successor.is_none())
    }

    /// The key that routes of a session's own subscriptions are under.
    pub(crate) fn route_key<R: Rim>(base: &Base<R>, clients: &Clients, key: Key) -> SessionKey {
        base.session_key(Self::holder_for(clients, key).unwrap_or(key))
    }

    /// The key that the client publishes under whose routes are under a key.
    pub(crate) fn behind_route<R: Rim>(
        base: &Base<R>,
        clients: &Clients,
        routes: SessionKey,
    ) -> SessionKey {
        match Self::lingering(clients, routes.key()) {
            Some(lingering) => base.session_key(lingering.successor.unwrap_or(lingering.last)),
            None => routes,
        }
    }

    /// Routes what goes to the connection of a client with a durable session.
    pub(crate) fn route_all<R: Rim, Io: LoopIo>(
        turn: &mut Turn<'_, R, Io>,
        key: Key,
        attached: &Attached,
    ) {
        let session_key = turn.base.session_key(key);
        let count = attached.subscriptions.len();
        turn.io.charge(units(count).saturating_mul(FILTER));
        for stored in &attached.subscriptions {
            let routes = &turn.base.node.routes;
            routes.subscribe_connection(session_key, stored);
        }
        if turn.base.node.peers().is_some() && count > 0 {
            turn.base.add(Effect::TellPeers);
        }
    }

    /// A client that connects is to have the routes that another entry holds.
    pub(crate) fn handle_successor(clients: &mut Clients, holder: Key, successor: Key) {
        let lingering = Self::lingering_mut(clients, holder);
        let lingering = lingering.expect("who follows has found the entry that holds the routes");
        lingering.successor = Some(successor);
        if let Some(client) = clients.get_mut(successor) {
            let kept = Kept::By(holder);
            client.rare.set(|of| &mut of.kept, Some(Box::new(kept)));
        }
    }

    /// The epoch that the inbox of a client lingers since, as far as this loop knows, and whether it knows what
    /// the subscriptions owe.
    pub(crate) fn left_by(clients: &Clients, key: Key) -> Option<(Epoch, bool)> {
        let lingering = Self::lingering(clients, Self::holder_for(clients, key)?)?;
        Some((lingering.epoch, lingering.replay.is_some()))
    }

    /// The subscriptions that routes are held for. The client has joined, and takes both over, and the replay.
    pub(crate) fn take<R: Rim>(
        &mut self,
        base: &Base<R>,
        clients: &mut Clients,
        key: Key,
    ) -> Option<TakenSubscriptions> {
        let holder = Self::holder_for(clients, key)?;
        let lingering = Self::lingering_mut(clients, holder)?;
        let taken = lingering.subscriptions.take()?;
        let replay = lingering.replay.take();
        if let Some(client) = clients.get_mut(key) {
            client.rare.set(|of| &mut of.replay, replay);
        }
        self.count(base, -1);
        Some(taken)
    }

    /// A client is gone. If it was refused, or gave up, the routes stay as long as they would have without it.
    pub(crate) fn handle_gone<R: Rim, Io: LoopIo>(&mut self, turn: &mut Turn<'_, R, Io>, key: Key) {
        let Some(holder) = Self::holder_for(turn.clients, key) else {
            return;
        };
        match Self::lingering_mut(turn.clients, holder) {
            Some(lingering) if lingering.subscriptions.is_some() => {
                lingering.successor = None;
                Self::arm(turn, holder);
                Self::hand_back(turn.base, turn.clients, key, holder);
                if let Some(client) = turn.clients.get_mut(key) {
                    client.rare.take(|of| &mut of.kept);
                }
            }
            _ => self.handle_no_use(turn, key),
        }
    }

    /// A client has no use for the routes that another entry holds.
    pub(crate) fn handle_no_use<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        key: Key,
    ) {
        if let Some(holder) = Self::holder_for(turn.clients, key) {
            if let Some(client) = turn.clients.get_mut(key) {
                client.rare.take(|of| &mut of.kept);
            }
            self.end(turn, holder);
        }
    }

    fn count<R: Rim>(&mut self, base: &Base<R>, more: isize) {
        self.count = self.count.saturating_add_signed(more);
        base.stats.lingering.set(self.count as u64);
    }

    /// The client identifier belongs to the entry that holds the routes again.
    fn hand_back<R: Rim>(base: &Base<R>, clients: &Clients, key: Key, holder: Key) {
        if let Some(client) = clients.get(key) {
            let (from, to) = (base.session_key(key), base.session_key(holder));
            let client_id = client.session.client_id();
            base.node.registry.hand_on(client_id, from, to);
        }
    }

    /// Arms the loop for the end of a lingering. Timers cannot be taken back: one for each connection that ends
    /// would be many.
    fn arm<R: Rim, Io: LoopIo>(turn: &mut Turn<'_, R, Io>, holder: Key) {
        let now = turn.io.now_ms();
        if let Some(lingering) = Self::lingering_mut(turn.clients, holder) {
            let at = lingering.until_ms.max(now);
            if lingering.armed_ms == 0 || at < lingering.armed_ms {
                lingering.armed_ms = at;
                turn.io.arm(at, Timer::Linger(holder).to_bits());
            }
        }
    }
}
