//! Which session a client identifier belongs to, and why those that had sessions have gone.
//!
//! Invariant (P5): a client identifier has at most one home in this node. A CONNECT is handled by the
//! loop that is the home; any other loop hands the connection over. So taking over a session is an
//! affair of one loop and needs no agreement between several.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::BuildHasher;
use std::ops::Bound;

use hashing::HashBuilder;
use mqtt_session::Timestamp;
use parking_lot::Mutex;

use super::departures::{Departure, Departures};
use crate::key::SessionKey;

/// Independent parts, so that loops that connect clients at once seldom wait for each other.
const PARTS: usize = 64;

#[derive(Debug)]
pub(crate) struct Registry {
    hasher: HashBuilder,
    parts: [Mutex<Part>; PARTS],
}

/// What is known of the identifiers of one part.
#[derive(Debug, Default)]
struct Part {
    /// In order, so that people can look through the identifiers page by page.
    homes: BTreeMap<Box<str>, SessionKey>,
    departures: Departures,
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
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
            hasher: HashBuilder::default(),
        }
    }

    /// Gives the identifier to a session unless it belongs to one.
    pub(crate) fn claim(&self, client_id: &str, key: SessionKey) -> Claim {
        match self.part(client_id).lock().homes.entry(client_id.into()) {
            Entry::Occupied(taken) => Claim::Taken(*taken.get()),
            Entry::Vacant(free) => {
                free.insert(key);
                Claim::New
            }
        }
    }

    pub(crate) fn find(&self, client_id: &str) -> Option<SessionKey> {
        self.part(client_id).lock().homes.get(client_id).copied()
    }

    /// Gives an identifier that belongs to one session to another one.
    pub(crate) fn hand_on(&self, client_id: &str, from: SessionKey, to: SessionKey) {
        if let Some(home) = self.part(client_id).lock().homes.get_mut(client_id)
            && *home == from
        {
            *home = to;
        }
    }

    /// Frees the identifier, if it belongs to this session.
    pub(crate) fn release(&self, client_id: &str, key: SessionKey) {
        let homes = &mut self.part(client_id).lock().homes;
        if homes.get(client_id) == Some(&key) {
            homes.remove(client_id);
        }
    }

    /// A client's connection has ended.
    pub(crate) fn depart(
        &self,
        at: Timestamp,
        client_id: &str,
        reason: &'static str,
        address: Option<String>,
    ) {
        let mut part = self.part(client_id).lock();
        part.departures.record(at, client_id, reason, address);
    }

    /// The last departure of a client, if it is remembered. Looks at 128 at most.
    pub(crate) fn last_departure(&self, client_id: &str) -> Option<Departure> {
        self.part(client_id).lock().departures.last(client_id)
    }

    /// The first `limit` identifiers, in the order of their bytes, behind `after` that begin with `prefix`. Backpressure the lock of
    /// one part at a time, for at most `limit` entries.
    pub(crate) fn page(
        &self,
        after: Option<&str>,
        prefix: &str,
        limit: usize,
    ) -> Vec<(Box<str>, SessionKey)> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut page: BTreeMap<Box<str>, SessionKey> = BTreeMap::new();
        for part in &self.parts {
            let part = part.lock();
            let range = part.homes.range::<str, _>((start, Bound::Unbounded));
            for (client_id, key) in range.take(limit) {
                let is_full = page.len() == limit;
                let is_behind = || {
                    page.last_key_value()
                        .is_some_and(|(last, _)| client_id > last)
                };
                if !client_id.starts_with(prefix) || is_full && is_behind() {
                    break;
                }
                page.insert(client_id.clone(), *key);
                if is_full {
                    page.pop_last();
                }
            }
        }
        page.into_iter().collect()
    }

    fn part(&self, client_id: &str) -> &Mutex<Part> {
        // The upper bits: the tables inside use the lower ones.
        &self.parts[(self.hasher.hash_one(client_id) >> 58) as usize % PARTS]
    }
}

#[cfg(test)]
mod tests {
    use net_api::Key;

    use super::*;

    #[test]
    fn identifiers_are_listed_in_order_page_by_page() {
        let registry = Registry::new();
        let key = |slot| {
            let generation = 0;
            SessionKey::new(0, Key { slot, generation })
        };
        let mut all: Vec<Box<str>> = (0..1_000).map(|n| format!("c{n}").into()).collect();
        all.extend(["", "b", "d", "c", "c/1", "ü"].map(Box::from));
        for (slot, id) in (0..).zip(&all) {
            assert_eq!(registry.claim(id, key(slot)), Claim::New);
        }
        let slots: BTreeMap<Box<str>, u32> = all.iter().cloned().zip(0..).collect();
        all.sort();
        for (prefix, limit) in [
            ("", 1),
            ("", 7),
            ("", 100),
            ("", 5_000),
            ("c", 9),
            ("c99", 3),
            ("x", 4),
        ] {
            let mut seen: Vec<Box<str>> = Vec::new();
            loop {
                let page = registry.page(seen.last().map(|id| &**id), prefix, limit);
                assert!(page.len() <= limit);
                for (id, home) in &page {
                    assert_eq!(Some(*home), slots.get(id).map(|slot| key(*slot)));
                }
                let is_last = page.len() < limit;
                seen.extend(page.into_iter().map(|(id, _)| id));
                if is_last {
                    break;
                }
            }
            let with_prefix = all.iter().filter(|id| id.starts_with(prefix)).cloned();
            assert_eq!(seen, with_prefix.collect::<Vec<_>>(), "{prefix} {limit}");
        }
        assert!(registry.page(Some("d"), "c", 9).is_empty());
        let first = registry.page(Some("a"), "c", 1);
        assert_eq!(first.first().map(|(id, _)| &**id), Some("c"));
    }

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
