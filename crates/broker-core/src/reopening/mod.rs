//! What clients of a loop do when another node leads one of their shards, a part of the clients in each turn
//! (`walk.rs`): each session opens its inbox there, and the new leader of a session shard is told of the clients
//! that the store does not know.
//!
//! Each visit counts on nothing from an earlier turn: it looks at what the client is now, and asks whoever leads the
//! shard now. If that is not the leader that was meant, another change is on its way, and with it another visit. A
//! client that has connected meanwhile has done all that by itself, and a second time changes nothing: a cursor that
//! is opened again begins where the session is, and what the session has got is not given to it twice; the directory
//! puts the same registration in its own place.
//!
//! | call | when | costs |
//! |---|---|---|
//! | [`Reopening::handle_leaders`] | shards have other leaders | as the next, unless a walk is under way |
//! | [`Reopening::handle_timer`] | while a walk is under way | a look at some thousand clients; a question for some hundred |
//!
//! Invariant: each client is visited once after the last change of its shard.

#[cfg(test)]
mod tests;
mod walk;

use net_api::Key;
use peer_protocol::Registration;
use store_state::api::Store as _;

pub(crate) use self::walk::LeaderChange;
use self::walk::{SLOTS, Walk};
use crate::clients::{Client, LoopIo, Timer};
use crate::connect::registering::Registering;
use crate::inbox::Inboxes;
use crate::rim::Rim;
use crate::turn::{Base, Turn};

/// Clients for which a shard is asked or told something in one turn, and less than [`SLOTS`] more.
///
/// Limit: clients of a loop that open their inboxes at a new leader, or are told to a new leader of their session
/// shard, in a turn | {}, and less than {walk::SLOTS} more; {SLOTS_PER_TURN} slots are looked at | the rest in the
/// next turn; their queues keep what comes
const CLIENTS_PER_TURN: u32 = 256;

/// Slots that are looked at in one turn.
const SLOTS_PER_TURN: u32 = 4_096;

/// Shards that another node leads, until all clients have been visited for them.
#[derive(Debug, Default)]
pub(crate) struct Reopening {
    walk: Walk,
}

impl Reopening {
    /// Other nodes lead shards. A part of the clients is visited at once, unless a walk is under way.
    pub(crate) fn handle_leaders<R: Rim, Io: LoopIo>(
        &mut self,
        turn: &mut Turn<'_, R, Io>,
        changes: impl IntoIterator<Item = LeaderChange>,
    ) {
        let mut begins = false;
        for change in changes {
            begins |= self.walk.handle_change(change);
        }
        if begins {
            self.handle_timer(turn);
        }
    }

    /// Visits a part of the clients.
    pub(crate) fn handle_timer<R: Rim, Io: LoopIo>(&mut self, turn: &mut Turn<'_, R, Io>) {
        let mut registrations = Vec::new();
        let (mut looked_at, mut concerned) = (0, 0);
        while looked_at < SLOTS_PER_TURN
            && concerned < CLIENTS_PER_TURN
            && let Some(slots) = self.walk.handle_next(turn.clients.slots())
        {
            looked_at += SLOTS;
            let keys: Vec<Key> = slots.filter_map(|slot| turn.clients.key_in(slot)).collect();
            for key in keys {
                let registration = self.registration_again(turn, key);
                let is_registered = registration.is_some();
                registrations.extend(registration);
                let client = online(turn, key);
                let is_opened = client.is_some_and(|of| self.is_inbox_visited(turn.base, of));
                concerned += u32::from(is_opened || is_registered);
                if is_opened {
                    Inboxes::handle_leader(turn.base, turn.clients, key);
                }
            }
        }
        if let Some(peers) = turn.base.node.peers()
            && !registrations.is_empty()
        {
            peers.report(&*turn.base.node, registrations, false);
        }
        turn.io.charge(concerned + looked_at / SLOTS);
        if self.walk.is_under_way() {
            turn.io.arm(turn.io.now_ms(), Timer::Leaders.to_bits());
        }
    }

    /// Whether a client has an inbox whose shard has another leader.
    fn is_inbox_visited<R: Rim>(&self, base: &Base<R>, client: &Client) -> bool {
        let inbox = client.stored.as_ref().and_then(|stored| stored.inbox());
        inbox.is_some_and(|inbox| {
            let shard = base.node.store().inbox_shard(inbox.slot());
            self.walk.is_visited_for(LeaderChange::OfInboxes(shard))
        })
    }

    /// What the directory is told of a client, if its session shard has another leader and the store does not know the
    /// client.
    fn registration_again<R: Rim, Io: LoopIo>(
        &self,
        turn: &Turn<'_, R, Io>,
        key: Key,
    ) -> Option<Registration> {
        turn.base.node.peers()?;
        let client = online(turn, key)?;
        if client.stored.is_some() || client.rare.get().joining.is_some() {
            return None;
        }
        let store = turn.base.node.store();
        let shard = store.session_shard(client.session.client_id());
        let change = LeaderChange::OfSessions(shard);
        if !self.walk.is_visited_for(change) {
            return None;
        }
        Registering::registration(turn.base, turn.clients, key, client.number)
    }
}

fn online<'a, R: Rim, Io: LoopIo>(turn: &'a Turn<'_, R, Io>, key: Key) -> Option<&'a Client> {
    let client = turn.clients.get(key)?;
    client.connection.is_some().then_some(client)
}
