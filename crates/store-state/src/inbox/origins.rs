//! Publications that happened once and must not happen again.
//!
//! Invariants: an origin is known from the publication until it is released, its publisher's session has
//! ended, or a later session of the publisher is heard of. That last does not hold for what the broker
//! publishes, wills and messages of legacies: it does so after the session is over. These are known for
//! [`LINGER_MS`] more after their release: if the shard that keeps them changed its leader, two nodes may
//! have published them, and one of them be late.
//!
//! A publication reaches a shard in several parts: once for the sessions that match, and once for each
//! shared group that has chosen a session of this shard. Each part happens once for itself.

use std::collections::BTreeSet;

use hashbrown::hash_map::EntryRef;
use hashbrown::{HashMap, HashSet};
use mqtt_proto::PacketId;

use super::Origin;
use super::tables::{ORIGINS, OriginsRow, RELEASED, ReleasedRow};
use crate::{Changes, NameHash, row};

/// The part of a publication that goes to the sessions that match.
pub(super) const MATCHING: u64 = 0;

/// The part of a publication that goes to a shared group, by its filter, or to one session.
pub(super) fn part_for(hash: NameHash, name: &str) -> u64 {
    hash.of(name).max(1)
}

/// How long what the broker publishes is known after its release, in ms: longer than a request to another
/// node is waited for.
pub(super) const LINGER_MS: u64 = 60_000;

/// Incarnation, packet identifier (0: the broker's), part.
pub(super) type Entry = (u64, u16, u64);

/// Estimated bytes of a publisher whose origins have changed.
pub(super) const PUBLISHER_BYTES: usize = 128;

/// Origins by publisher.
#[derive(Debug, Default)]
pub(super) struct Origins {
    publishers: HashMap<Box<str>, Publisher>,
    /// Those whose rows are to be written, each once.
    changed: Vec<Box<str>>,
    /// Those of which what the broker published is released, by the time of the release in ms. Some may be
    /// forgotten since.
    released: BTreeSet<(u64, Box<str>)>,
}

#[derive(Debug, Default)]
struct Publisher {
    /// Sorted.
    entries: OriginsRow,
    /// What the broker published, and is released.
    released: ReleasedRow,
    /// Its row of entries is in the tables, or is being written.
    stored: bool,
    /// That of released ones is.
    stored_released: bool,
    /// It is in `changed`.
    changed: bool,
}

impl Origins {
    pub(super) fn knows(&self, origin: &Origin, part: u64) -> bool {
        let entry = (origin.incarnation, origin.packet_id, part);
        self.publishers
            .get(&origin.client)
            .is_some_and(|publisher| publisher.entries.binary_search(&entry).is_ok())
    }

    /// Remembers an origin that is not known. What older incarnations published is forgotten.
    pub(super) fn remember(&mut self, origin: &Origin, part: u64) {
        let publisher = match self.publishers.entry_ref(&*origin.client) {
            EntryRef::Occupied(known) => known.into_mut(),
            EntryRef::Vacant(place) => {
                place.insert_with_key(origin.client.clone(), Publisher::default())
            }
        };
        let Origin {
            incarnation,
            packet_id,
            ..
        } = *origin;
        publisher
            .entries
            .retain(|entry| !is_before(entry, incarnation));
        let entry = (incarnation, packet_id, part);
        if let Err(place) = publisher.entries.binary_search(&entry) {
            publisher.entries.insert(place, entry);
        }
        publisher.touch(&origin.client, &mut self.changed);
    }

    /// The publisher is done with a packet identifier, or what the broker published is recorded.
    pub(super) fn release(&mut self, origin: &Origin, now_ms: u64) {
        let released = (origin.incarnation, origin.packet_id);
        if origin.is_of_broker() {
            self.linger(&origin.client, |of| of == origin.incarnation, now_ms);
            return;
        }
        self.remove(&origin.client, |&(incarnation, packet_id, _)| {
            (incarnation, packet_id) == released
        });
    }

    /// Releases what the broker published in incarnations that `is_done` selects.
    fn linger(&mut self, client: &str, is_done: impl Fn(u64) -> bool, now_ms: u64) {
        let Some(publisher) = self.publishers.get_mut(client) else {
            return;
        };
        let Publisher {
            entries, released, ..
        } = publisher;
        let before = released.len();
        let known: HashSet<u64> = released.iter().map(|(of, _)| *of).collect();
        let mut done: Vec<u64> = entries
            .iter()
            .filter(|entry| is_of_broker(entry) && is_done(entry.0) && !known.contains(&entry.0))
            .map(|entry| entry.0)
            .collect();
        // Entries are sorted.
        done.dedup();
        released.extend(done.into_iter().map(|of| (of, now_ms)));
        if released.len() > before {
            self.released.insert((now_ms, client.into()));
            publisher.touch(client, &mut self.changed);
        }
    }

    /// Forgets what was released long enough ago.
    pub(super) fn pass_time(&mut self, now_ms: u64) {
        let is_over = |at: u64| at + LINGER_MS <= now_ms;
        while self.released.first().is_some_and(|(at, _)| is_over(*at))
            && let Some((_, client)) = self.released.pop_first()
        {
            let Some(publisher) = self.publishers.get_mut(&client) else {
                continue;
            };
            let Publisher {
                entries, released, ..
            } = publisher;
            let over = released.extract_if(.., |(_, at)| is_over(*at));
            let over: HashSet<u64> = over.map(|(of, _)| of).collect();
            entries.retain(|entry| !is_of_broker(entry) || !over.contains(&entry.0));
            publisher.touch(&client, &mut self.changed);
        }
    }

    /// A session of the publisher has begun.
    pub(super) fn begin(&mut self, client: &str, incarnation: u64) {
        self.remove(client, |entry| is_before(entry, incarnation));
    }

    /// The publisher's session has ended.
    pub(super) fn forget(&mut self, client: &str, incarnation: u64, now_ms: u64) {
        self.remove(client, |entry| {
            entry.0 <= incarnation && !is_of_broker(entry)
        });
        self.linger(client, |of| of <= incarnation, now_ms);
    }

    /// The packet identifiers that a session has not released.
    pub(super) fn received(&self, client: &str, incarnation: u64) -> Vec<PacketId> {
        let Some(publisher) = self.publishers.get(client) else {
            return Vec::new();
        };
        let mut received: Vec<PacketId> = publisher
            .entries
            .iter()
            .filter(|entry| entry.0 == incarnation)
            .filter_map(|entry| PacketId::new(entry.1))
            .collect();
        received.dedup();
        received
    }

    fn remove(&mut self, client: &str, is_over: impl Fn(&Entry) -> bool) {
        let Some(publisher) = self.publishers.get_mut(client) else {
            return;
        };
        let before = publisher.entries.len();
        publisher.entries.retain(|entry| !is_over(entry));
        if publisher.entries.len() < before {
            publisher.touch(client, &mut self.changed);
        }
    }

    pub(super) fn load(&mut self, client: &str, entries: OriginsRow) {
        let publisher = Publisher {
            entries,
            stored: true,
            ..Publisher::default()
        };
        self.publishers.insert(client.into(), publisher);
    }

    /// After the entries.
    pub(super) fn load_released(&mut self, client: &str, released: ReleasedRow) {
        if let Some(publisher) = self.publishers.get_mut(client) {
            let times = released.iter().map(|(_, at)| (*at, client.into()));
            self.released.extend(times);
            publisher.released = released;
            publisher.stored_released = true;
        }
    }

    pub(super) fn collect(&mut self, hash: NameHash, changes: &mut Changes) {
        for client in std::mem::take(&mut self.changed) {
            let Some(publisher) = self.publishers.get_mut(&client) else {
                continue;
            };
            publisher.changed = false;
            let Publisher {
                entries,
                released,
                stored,
                stored_released,
                ..
            } = publisher;
            let of_entries = (!entries.is_empty()).then(|| row::encode(entries));
            let of_released = (!released.is_empty()).then(|| row::encode(released));
            let is_empty = of_entries.is_none();
            let slot = hash.slot_of(&client);
            write(
                changes,
                row::key(ORIGINS, slot, &client),
                of_entries,
                stored,
            );
            write(
                changes,
                row::key(RELEASED, slot, &client),
                of_released,
                stored_released,
            );
            if is_empty {
                self.publishers.remove(&client);
            }
        }
    }

    pub(super) fn unsaved_bytes(&self) -> usize {
        self.changed.len() * PUBLISHER_BYTES
    }
}

impl Publisher {
    fn touch(&mut self, client: &str, changed: &mut Vec<Box<str>>) {
        if !self.changed {
            self.changed = true;
            changed.push(client.into());
        }
    }
}

/// `stored`: whether the row is in the tables, before and after.
fn write(changes: &mut Changes, key: Vec<u8>, row: Option<Vec<u8>>, stored: &mut bool) {
    let was_stored = std::mem::replace(stored, row.is_some());
    match row {
        Some(row) => changes.put(key, row),
        None if was_stored => changes.delete(key),
        None => {}
    }
}

fn is_of_broker(&(_, packet_id, _): &Entry) -> bool {
    packet_id == 0
}

/// Whether a publication of a client is of an older session.
fn is_before(entry: &Entry, incarnation: u64) -> bool {
    entry.0 < incarnation && !is_of_broker(entry)
}
