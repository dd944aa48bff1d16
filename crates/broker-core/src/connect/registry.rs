//! Which session a client identifier belongs to.
//!
//! Invariant (P5): a client identifier has at most one home in this node. A CONNECT is handled by the
//! loop that is the home; any other loop hands the connection over. So taking over a session is an
//! affair of one loop and needs no agreement between several.

use std::hash::BuildHasher;

use hashbrown::hash_map::Entry;
use hashing::{HashBuilder, HashMap};
use parking_lot::Mutex;

use crate::key::SessionKey;

/// Independent parts, so that loops that connect clients at once seldom wait for each other.
const PARTS: usize = 64;

#[derive(Debug)]
pub(crate) struct Registry {
    hasher: HashBuilder,
    parts: [Mutex<HashMap<Box<str>, SessionKey>>; PARTS],
}

/// What a claim found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// Nobody had the identifier; it now belongs to the claimed key.
    New,
    /// A session has it.
    Taken(SessionKey),
}

impl Registry {
    pub(crate) fn new() -> Self {
        let hasher = HashBuilder::default();
        Self {
            parts: std::array::from_fn(|_| Mutex::new(HashMap::with_hasher(hasher.clone()))),
            hasher,
        }
    }

    /// Gives the identifier to a session unless it belongs to one.
    pub(crate) fn claim(&self, client_id: &str, key: SessionKey) -> Claim {
        match self.part(client_id).lock().entry(client_id.into()) {
            Entry::Occupied(taken) => Claim::Taken(*taken.get()),
            Entry::Vacant(free) => {
                free.insert(key);
                Claim::New
            }
        }
    }

    pub(crate) fn find(&self, client_id: &str) -> Option<SessionKey> {
        self.part(client_id).lock().get(client_id).copied()
    }

    /// Gives an identifier that belongs to one session to another one.
    pub(crate) fn hand_on(&self, client_id: &str, from: SessionKey, to: SessionKey) {
        if let Some(home) = self.part(client_id).lock().get_mut(client_id)
            && *home == from
        {
            *home = to;
        }
    }

    /// Frees the identifier, if it belongs to this session.
    pub(crate) fn release(&self, client_id: &str, key: SessionKey) {
        let mut part = self.part(client_id).lock();
        if part.get(client_id) == Some(&key) {
            part.remove(client_id);
            if part.len() < part.capacity() / 4 {
                part.shrink_to_fit();
            }
        }
    }

    fn part(&self, client_id: &str) -> &Mutex<HashMap<Box<str>, SessionKey>> {
        // The upper bits: the tables inside use the lower ones.
        &self.parts[(self.hasher.hash_one(client_id) >> 58) as usize % PARTS]
    }
}

#[cfg(test)]
mod tests {
    use net_api::Key;

    use super::*;

    #[test]
    fn an_identifier_has_one_home_until_that_home_releases_it() {
        let registry = Registry::new();
        let first = SessionKey::new(
            0,
            Key {
                slot: 1,
                generation: 0,
            },
        );
        let second = SessionKey::new(
            1,
            Key {
                slot: 1,
                generation: 0,
            },
        );
        assert_eq!(registry.claim("a", first), Claim::New);
        assert_eq!(registry.claim("a", second), Claim::Taken(first));
        registry.release("a", second);
        registry.hand_on("a", second, first);
        assert_eq!(registry.find("a"), Some(first));
        registry.hand_on("a", first, second);
        assert_eq!(registry.find("a"), Some(second));
        registry.hand_on("a", second, first);
        registry.release("a", first);
        assert_eq!(registry.claim("a", second), Claim::New);
    }
}
