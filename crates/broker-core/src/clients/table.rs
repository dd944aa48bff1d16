//! The table of a loop's clients.

use mqtt_session::Timestamp;
use net_api::{Arena, Key};

use super::{Client, LoopIo, Timer};

/// A session's deadline that is further away is looked at again after this time, in ms.
const TIMER_HORIZON_MS: u64 = 10 * 60 * 1000;

/// The clients of one loop, by key.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    arena: Arena<Client>,
}

impl Clients {
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Client> {
        self.arena.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Client> {
        self.arena.get_mut(key)
    }

    /// The key that the next client gets.
    pub(crate) fn next_key(&self) -> Key {
        self.arena.next_key()
    }

    /// The key of the client in a place of the table.
    pub(crate) fn key_in(&self, slot: u32) -> Option<Key> {
        self.arena.key_in(slot)
    }

    /// Places of the table, free ones included: every key's slot is below this. It never falls.
    pub(crate) fn slots(&self) -> u32 {
        self.arena.slots()
    }

    pub(crate) fn insert(&mut self, client: Client) -> Key {
        self.arena.insert(client)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Client> {
        self.arena.remove(key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        self.arena.keys()
    }

    /// Those that have a connection. Cost: a look at each client.
    pub(crate) fn online(&self) -> Vec<Key> {
        let is_online = |key: &Key| self.get(*key).is_some_and(|c| c.connection.is_some());
        self.keys().filter(is_online).collect()
    }

    /// The identifier of a client; empty if it is gone.
    pub(crate) fn client_id(&self, key: Key) -> &str {
        self.get(key)
            .map_or("", |client| client.session.client_id())
    }

    /// The user that authentication has confirmed a client to be.
    pub(crate) fn user_of(&self, key: Key) -> Option<Box<str>> {
        self.get(key)?.confirmed_user().map(Box::from)
    }

    /// Arms the loop for the session's next deadline, unless it is armed for an earlier time already.
    pub(crate) fn arm_deadline(&mut self, io: &mut impl LoopIo, key: Key) {
        let Some(client) = self.get_mut(key) else {
            return;
        };
        if let Some(Timestamp(at)) = client.session.poll_deadline() {
            // Timers cannot be taken back. A distant one would outlive the reason for it by days.
            let at = at.min(io.now_ms() + TIMER_HORIZON_MS);
            if client.armed_ms != 0 && client.armed_ms <= at {
                return;
            }
            client.armed_ms = at;
            io.arm(at, Timer::Session(key).to_bits());
        }
    }

    /// Shows the session's shared groups how much it can take.
    pub(crate) fn show_room(&mut self, key: Key) {
        if let Some(client) = self.get_mut(key)
            && let Some(gauge) = &client.rare.get().gauge
        {
            let session = &client.session;
            let free = i64::from(session.window()) - session.in_flight() as i64;
            gauge.show(free - session.queue_len() as i64, session.is_online());
        }
    }
}
