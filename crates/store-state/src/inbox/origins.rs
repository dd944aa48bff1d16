//! Publications that happened once and must not happen again.
//!
//! Invariants: an origin is known from the publication until it is released, its publisher's session has
//! ended, or a later session of the publisher is heard of. That last does not hold for wills: the will of
//! a session is published after the session is over.
//!
//! A publication reaches a shard in several parts: once for the sessions that match, and once for each
//! shared group that has chosen a session of this shard. Each part happens once for itself.

use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use mqtt_proto::PacketId;

use super::Origin;
use super::tables::{ORIGINS, OriginsRow};
use crate::{Changes, row};

/// The part of a publication that goes to the sessions that match.
pub(super) const MATCHING: u64 = 0;

/// The part of a publication that goes to a shared group, by its filter, or to one session.
pub(super) fn part_for(name: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name.as_bytes()).max(1)
}

/// Incarnation, packet identifier (0: the will), part.
pub(super) type Entry = (u64, u16, u64);

/// Estimated bytes of a publisher whose origins have changed.
pub(super) const PUBLISHER_BYTES: usize = 128;

/// Origins by publisher.
#[derive(Debug, Default)]
pub(super) struct Origins {
    publishers: HashMap<Box<str>, Publisher>,
    /// Those whose rows are to be written, each once.
    changed: Vec<Box<str>>,
}

#[derive(Debug, Default)]
struct Publisher {
    /// Sorted.
    entries: OriginsRow,
    /// Its row is in the tables, or is being written.
    stored: bool,
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
        if !publisher.changed {
            publisher.changed = true;
            self.changed.push(origin.client.clone());
        }
    }

    /// The publisher is done with a packet identifier.
    pub(super) fn release(&mut self, origin: &Origin) {
        let released = (origin.incarnation, origin.packet_id);
        self.remove(&origin.client, |&(incarnation, packet_id, _)| {
            (incarnation, packet_id) == released
        });
    }

    /// A session of the publisher has begun.
    pub(super) fn begin(&mut self, client: &str, incarnation: u64) {
        self.remove(client, |entry| is_before(entry, incarnation));
    }

    /// The publisher's session has ended, and its will is published.
    pub(super) fn forget(&mut self, client: &str, incarnation: u64) {
        self.remove(client, |entry| entry.0 <= incarnation);
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
        if publisher.entries.len() < before && !publisher.changed {
            publisher.changed = true;
            self.changed.push(client.into());
        }
    }

    pub(super) fn load(&mut self, client: &str, entries: OriginsRow) {
        let publisher = Publisher {
            entries,
            stored: true,
            changed: false,
        };
        self.publishers.insert(client.into(), publisher);
    }

    pub(super) fn collect(&mut self, changes: &mut Changes) {
        for client in std::mem::take(&mut self.changed) {
            let Some(publisher) = self.publishers.get_mut(&client) else {
                continue;
            };
            let key = row::key(ORIGINS, &client);
            if !publisher.entries.is_empty() {
                changes.put(key, row::encode(&publisher.entries));
                publisher.stored = true;
                publisher.changed = false;
                continue;
            }
            if publisher.stored {
                changes.delete(key);
            }
            self.publishers.remove(&client);
        }
    }

    pub(super) fn unsaved_bytes(&self) -> usize {
        self.changed.len() * PUBLISHER_BYTES
    }
}

/// Whether a publication, not a will, is of an older session.
fn is_before(&(of, packet_id, _): &Entry, incarnation: u64) -> bool {
    of < incarnation && packet_id != 0
}
