//! What clients of a loop do when another node leads one of their shards, a part of the clients in each turn
//! (`reopening.rs`): each session opens its inbox there, and the new leader of a session shard is told of the clients
//! that the store does not know.
//!
//! Each visit counts on nothing from an earlier turn: it looks at what the client is now, and asks whoever leads the
//! shard now. If that is not the leader that was meant, another change is on its way, and with it another visit. A
//! client that has connected meanwhile has done all that by itself, and a second time changes nothing: a cursor that
//! is opened again begins where the session is, and what the session has got is not given to it twice; the directory
//! puts the same registration in its own place.

use net_api::Key;
use peer_protocol::Registration;
use store_state::api::Store as _;

use crate::clients::{Client, LoopIo, Timer};
use crate::dispatch::ClientLoop;
use crate::inbox::Inboxes;
use crate::rim::Rim;
use crate::session::reopening::{LeaderChange, SLOTS};

/// Clients for which a shard is asked or told something in one turn, and less than [`SLOTS`] more.
const CLIENTS_PER_TURN: u32 = 256;

/// Slots that are looked at in one turn.
const SLOTS_PER_TURN: u32 = 4_096;

/// Other nodes lead shards. A part of the clients is visited at once, unless a walk is under way.
pub(crate) fn begin<R: Rim>(
    this: &mut ClientLoop<R>,
    io: &mut impl LoopIo,
    changes: impl IntoIterator<Item = LeaderChange>,
) {
    let mut begins = false;
    for change in changes {
        begins |= this.reopening.handle_change(change);
    }
    if begins {
        go_on(this, io);
    }
}

/// Visits a part of the clients.
pub(crate) fn go_on<R: Rim>(this: &mut ClientLoop<R>, io: &mut impl LoopIo) {
    let mut registrations = Vec::new();
    let (mut looked_at, mut concerned) = (0, 0);
    while looked_at < SLOTS_PER_TURN
        && concerned < CLIENTS_PER_TURN
        && let Some(slots) = this.reopening.handle_next(this.clients.slots())
    {
        looked_at += SLOTS;
        let keys: Vec<Key> = slots.filter_map(|slot| this.clients.key_in(slot)).collect();
        for key in keys {
            let registration = registration_again(this, key);
            let is_registered = registration.is_some();
            registrations.extend(registration);
            let is_opened = is_inbox_visited(this, key);
            concerned += u32::from(is_opened || is_registered);
            if is_opened {
                Inboxes::handle_leader(&mut this.base, &mut this.clients, key);
            }
        }
    }
    if let Some(peers) = this.base.node.peers()
        && !registrations.is_empty()
    {
        peers.report(&*this.base.node, registrations, false);
    }
    io.charge(concerned + looked_at / SLOTS);
    if this.reopening.is_under_way() {
        io.arm(io.now_ms(), Timer::Leaders.to_bits());
    }
}

fn online<R: Rim>(this: &ClientLoop<R>, key: Key) -> Option<&Client> {
    let client = this.clients.get(key)?;
    client.connection.is_some().then_some(client)
}

/// Whether a client has an inbox whose shard has another leader.
fn is_inbox_visited<R: Rim>(this: &ClientLoop<R>, key: Key) -> bool {
    let stored = online(this, key).and_then(|client| client.stored.as_ref());
    stored
        .and_then(|stored| stored.inbox())
        .is_some_and(|inbox| {
            let shard = this.base.node.store().inbox_shard(inbox.slot());
            this.reopening
                .is_visited_for(LeaderChange::OfInboxes(shard))
        })
}

/// What the directory is told of a client, if its session shard has another leader and the store does not know the
/// client.
fn registration_again<R: Rim>(this: &ClientLoop<R>, key: Key) -> Option<Registration> {
    this.base.node.peers()?;
    let client = online(this, key)?;
    if client.stored.is_some() || client.rare.get().joining.is_some() {
        return None;
    }
    let shard = this
        .base
        .node
        .store()
        .session_shard(client.session.client_id());
    let change = LeaderChange::OfSessions(shard);
    if !this.reopening.is_visited_for(change) {
        return None;
    }
    this.registration(key, client.number)
}
