//! Publications that happened once and must not happen again.
//!
//! Invariants: an origin is known from the publication until it is released, its publisher's session has
//! ended, or a later session of the publisher is heard of. That last does not hold for what the broker
//! publishes, wills and messages of legacies: it does so after the session is over. These are known for
//! [`LINGER_MS`] more after their release: if the shard that keeps them changed its leader, two nodes may
//! have published them, and one of them be late. At most [`LINGER_MOST`] are known for so long; beyond that,
//! the one that was released first is forgotten.
//!
//! A publication reaches a shard in several parts: once for the sessions that match, and once for each
//! shared group that has chosen a session of this shard. Each part happens once for itself.
//!
//! What an operation costs, in memory and in rows to be written, does not grow with the origins that it does
//! not concern: identifiers of a client are written in pages, what the broker published one by one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashing::HashMap;
use mqtt_proto::PacketId;
use mqtt_session::PacketIdSet;

use super::Origin;
use super::name::{self, ClientName, Naming};
use super::tables::{
    BROKERS, BrokersRow, ORIGINS, OriginsRow, PAGE, PageRow, RELEASED, ReleasedRow,
};
use crate::touched::Touched;
use crate::{Changes, NameHash, row};

/// The part of a publication that goes to the sessions that match.
pub(super) const MATCHING: u64 = 0;

/// No part: stands with those of a publication that a session has refused because its queue was full.
const REFUSED: u64 = u64::MAX;

/// The part of a publication that goes to a shared group, by its filter, or to one session.
pub(super) fn part_for(hash: NameHash, name: &str) -> u64 {
    hash.of(name).clamp(MATCHING + 1, REFUSED - 1)
}

/// How long what the broker publishes is known after its release, in ms: longer than a request to another
/// node is waited for.
pub(super) const LINGER_MS: u64 = 60_000;

/// How many publications of the broker are known after their release.
///
/// Limit: what an inbox shard remembers of wills and legacies that it has | until {LINGER_MS} after all shards have
/// them; {} such ones | what was released first is forgotten
pub(super) const LINGER_MOST: usize = 100_000;

/// Origins by publisher. Each half of a shard that is split has all of them: a publisher may have its slot in one half,
/// and have published to inboxes of the other.
#[derive(Debug)]
pub(super) struct Origins {
    naming: Naming,
    publishers: HashMap<Arc<str>, Publisher>,
    /// What the broker published and is released: when, in ms, for whom, in which incarnation.
    released: BTreeSet<(u64, Arc<str>, u64)>,
    /// What the broker published and is not released.
    open: usize,
    touched: Touched<Row>,
    /// Rows of the layout before this one that are to be removed: others say the same.
    superseded: Vec<Vec<u8>>,
}

/// A row of a publisher, in the tables.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Row {
    publisher: Arc<str>,
    incarnation: u64,
    of: RowOf,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum RowOf {
    /// Packet identifiers with this upper byte.
    Page(u8),
    Broker,
}

#[derive(Clone, Debug, Default)]
struct Publisher {
    /// Its sessions, by incarnation, ascending. Most publishers have one.
    sessions: Vec<(u64, Received)>,
    /// What the broker published for it and is not released: the parts, by incarnation.
    open: BTreeMap<u64, BTreeSet<u64>>,
    /// What the broker published for it and is released: the parts, and when, in ms.
    released: BTreeMap<u64, (BTreeSet<u64>, u64)>,
}

/// What a session has published and not released. No identifier without a part.
#[derive(Clone, Debug, Default)]
struct Received {
    /// Publications that went to the sessions that match.
    matching: PacketIdSet,
    /// Other parts.
    parts: BTreeSet<(PacketId, u64)>,
}

impl Received {
    fn knows(&self, id: PacketId, part: u64) -> bool {
        if part == MATCHING {
            self.matching.contains(id)
        } else {
            self.parts.contains(&(id, part))
        }
    }

    fn insert(&mut self, id: PacketId, part: u64) {
        if part == MATCHING {
            self.matching.insert(id);
        } else {
            self.parts.insert((id, part));
        }
    }

    /// False: it was not there.
    fn remove(&mut self, id: PacketId) -> bool {
        let others = self.parts.extract_if((id, 0)..=(id, u64::MAX), |_| true);
        (others.count() > 0) | self.matching.remove(id)
    }

    fn is_empty(&self) -> bool {
        self.matching.is_empty() && self.parts.is_empty()
    }

    /// The other parts of a page.
    fn parts_of(&self, page: u8) -> impl Iterator<Item = (PacketId, u64)> {
        let first = PacketId::new(u16::from(page) << 8).unwrap_or(PacketId::FIRST);
        let parts = self.parts.range((first, 0)..);
        parts
            .copied()
            .take_while(move |(id, _)| page_of(*id) == page)
    }

    fn has_page(&self, page: u8) -> bool {
        self.matching.of_page(page).next().is_some() || self.parts_of(page).next().is_some()
    }

    fn pages(&self) -> BTreeSet<u8> {
        let parts = self.parts.iter().map(|(id, _)| page_of(*id));
        self.matching.pages().chain(parts).collect()
    }

    fn row(&self, page: u8) -> PageRow {
        let matching = self.matching.of_page(page).map(|id| (id, MATCHING));
        let mut row: PageRow = matching
            .chain(self.parts_of(page))
            .map(|(id, part)| (id.get(), part))
            .collect();
        row.sort_unstable();
        row
    }
}

/// The page of rows that a packet identifier stands in.
pub(super) fn page_of(id: PacketId) -> u8 {
    let [page, _] = id.get().to_be_bytes();
    page
}

impl Publisher {
    fn session(&mut self, incarnation: u64) -> Option<&mut Received> {
        let place = self.place(incarnation).ok()?;
        self.sessions.get_mut(place).map(|(_, received)| received)
    }

    fn place(&self, incarnation: u64) -> Result<usize, usize> {
        self.sessions
            .binary_search_by_key(&incarnation, |(of, _)| *of)
    }

    fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.open.is_empty() && self.released.is_empty()
    }

    /// The value of a row.
    fn row(&self, incarnation: u64, of: RowOf) -> Option<Vec<u8>> {
        match of {
            RowOf::Page(page) => {
                let place = self.place(incarnation).ok()?;
                let (_, received) = self.sessions.get(place)?;
                Some(received.row(page))
                    .filter(|row| !row.is_empty())
                    .map(|row| row::encode(&row))
            }
            RowOf::Broker => {
                let open = self.open.get(&incarnation).map(|parts| (parts, 0));
                let released = || {
                    self.released
                        .get(&incarnation)
                        .map(|(parts, at)| (parts, *at))
                };
                let (parts, released_ms) = open.or_else(released)?;
                let parts = parts.iter().copied().collect();
                Some(row::encode(&BrokersRow { parts, released_ms }))
            }
        }
    }
}

impl Row {
    fn key(&self, hash: NameHash) -> Vec<u8> {
        let slot = name::slot_of(&self.publisher, hash);
        match self.of {
            RowOf::Page(page) => {
                let mut key = row::numbered_key(PAGE, slot, &self.publisher, self.incarnation);
                key.push(page);
                key
            }
            RowOf::Broker => row::numbered_key(BROKERS, slot, &self.publisher, self.incarnation),
        }
    }
}

impl Origins {
    pub(super) fn new(naming: Naming) -> Self {
        Self {
            naming,
            publishers: HashMap::default(),
            released: BTreeSet::new(),
            open: 0,
            touched: Touched::new(),
            superseded: Vec::new(),
        }
    }

    /// The same for the other half of a shard that is split.
    ///
    /// # Panics
    /// A checkpoint is under way.
    pub(super) fn split(&self) -> Self {
        Self {
            naming: self.naming,
            publishers: self.publishers.clone(),
            released: self.released.clone(),
            open: self.open,
            touched: self.touched.split(),
            superseded: self.superseded.clone(),
        }
    }

    /// What a publisher is known by: that of requests of earlier versions may be long.
    fn name<'a>(&self, client: &'a ClientName) -> Cow<'a, str> {
        self.naming.name_of(client.as_str())
    }

    pub(super) fn knows(&self, origin: &Origin, part: u64) -> bool {
        let Some(publisher) = self.publishers.get(&*self.name(&origin.client)) else {
            return false;
        };
        let incarnation = origin.incarnation;
        match PacketId::new(origin.packet_id) {
            Some(id) => {
                let place = publisher.place(incarnation).ok();
                let session = place.and_then(|place| publisher.sessions.get(place));
                session.is_some_and(|(_, received)| received.knows(id, part))
            }
            None => {
                let open = publisher.open.get(&incarnation);
                let released = || publisher.released.get(&incarnation).map(|(parts, _)| parts);
                open.or_else(released)
                    .is_some_and(|parts| parts.contains(&part))
            }
        }
    }

    /// Remembers an origin that is not known. What older incarnations published is forgotten.
    fn remember(&mut self, origin: &Origin, part: u64) {
        let name = self.name(&origin.client);
        let (client, incarnation) = (&*name, origin.incarnation);
        self.forget_before(client, incarnation);
        let name = match self.publishers.get_key_value(client) {
            Some((name, _)) => Arc::clone(name),
            None => client.into(),
        };
        let publisher = self.publishers.entry(Arc::clone(&name)).or_default();
        let (of, existed) = if let Some(id) = PacketId::new(origin.packet_id) {
            let place = publisher.place(incarnation).unwrap_or_else(|place| {
                publisher
                    .sessions
                    .insert(place, (incarnation, Received::default()));
                place
            });
            let page = page_of(id);
            let mut existed = false;
            if let Some((_, received)) = publisher.sessions.get_mut(place) {
                existed = received.has_page(page);
                received.insert(id, part);
            }
            (RowOf::Page(page), existed)
        } else if let Some((parts, _)) = publisher.released.get_mut(&incarnation) {
            parts.insert(part);
            (RowOf::Broker, true)
        } else {
            let parts = publisher.open.entry(incarnation).or_default();
            let existed = !parts.is_empty();
            parts.insert(part);
            self.open += usize::from(!existed);
            (RowOf::Broker, existed)
        };
        self.touch(&name, incarnation, of, existed);
    }

    /// Remembers a part of a publication, and whether it was refused: who asks again because the answer was lost must
    /// not take it for kept.
    pub(super) fn remember_outcome(&mut self, origin: &Origin, part: u64, was_refused: bool) {
        self.remember(origin, part);
        if was_refused && !origin.is_of_broker() {
            self.remember(origin, REFUSED);
        }
    }

    /// How many sessions refused a publication, as far as it is known: none or one.
    pub(super) fn refused_before(&self, origin: &Origin) -> u32 {
        u32::from(self.knows(origin, REFUSED))
    }

    /// The publisher is done with a packet identifier, or what the broker published is recorded.
    pub(super) fn release(&mut self, origin: &Origin, now_ms: u64) {
        let name = self.name(&origin.client);
        let (client, incarnation) = (&*name, origin.incarnation);
        let Some(id) = PacketId::new(origin.packet_id) else {
            return self.linger(client, incarnation..=incarnation, now_ms);
        };
        let Some((name, publisher)) = self.known(client) else {
            return;
        };
        let was_there = publisher
            .session(incarnation)
            .is_some_and(|received| received.remove(id));
        if was_there {
            publisher
                .sessions
                .retain(|(_, received)| !received.is_empty());
            self.touch(&name, incarnation, RowOf::Page(page_of(id)), true);
            self.tidy(client);
        }
    }

    fn known(&mut self, client: &str) -> Option<(Arc<str>, &mut Publisher)> {
        let (name, _) = self.publishers.get_key_value(client)?;
        let name = Arc::clone(name);
        let publisher = self.publishers.get_mut(client)?;
        Some((name, publisher))
    }

    /// Releases what the broker published in these incarnations.
    fn linger(&mut self, client: &str, done: std::ops::RangeInclusive<u64>, now_ms: u64) {
        let Some((name, publisher)) = self.known(client) else {
            return;
        };
        let done: Vec<_> = publisher.open.extract_if(done, |_, _| true).collect();
        for (incarnation, parts) in done {
            if let Some(publisher) = self.publishers.get_mut(client) {
                publisher.released.insert(incarnation, (parts, now_ms));
            }
            self.open -= 1;
            self.released
                .insert((now_ms, Arc::clone(&name), incarnation));
            self.touch(&name, incarnation, RowOf::Broker, true);
        }
        while self.released.len() > LINGER_MOST {
            self.forget_released();
        }
    }

    /// Forgets what was released long enough ago.
    pub(super) fn pass_time(&mut self, now_ms: u64) {
        let is_over = |(at, ..): &(u64, Arc<str>, u64)| at + LINGER_MS <= now_ms;
        while self.released.first().is_some_and(is_over) {
            self.forget_released();
        }
    }

    /// Forgets what was released first.
    fn forget_released(&mut self) {
        let Some((_, name, incarnation)) = self.released.pop_first() else {
            return;
        };
        if let Some(publisher) = self.publishers.get_mut(&name) {
            publisher.released.remove(&incarnation);
            self.touch(&name, incarnation, RowOf::Broker, true);
            self.tidy(&name);
        }
    }

    /// A session of the publisher, by its name, has begun.
    pub(super) fn begin(&mut self, client: &str, incarnation: u64) {
        self.forget_before(client, incarnation);
    }

    /// The publisher's session has ended.
    pub(super) fn forget(&mut self, client: &ClientName, incarnation: u64, now_ms: u64) {
        let client = &*self.name(client);
        self.forget_sessions(client, |of| of <= incarnation);
        self.linger(client, 0..=incarnation, now_ms);
    }

    fn forget_before(&mut self, client: &str, incarnation: u64) {
        self.forget_sessions(client, |of| of < incarnation);
    }

    /// Forgets sessions of a publisher; `is_over` is true up to an incarnation.
    fn forget_sessions(&mut self, client: &str, is_over: impl Fn(u64) -> bool) {
        let Some((name, publisher)) = self.known(client) else {
            return;
        };
        let over = publisher.sessions.partition_point(|(of, _)| is_over(*of));
        if over == 0 {
            return;
        }
        let over: Vec<_> = publisher.sessions.drain(..over).collect();
        for (incarnation, received) in over {
            for page in received.pages() {
                self.touch(&name, incarnation, RowOf::Page(page), true);
            }
        }
        self.tidy(client);
    }

    /// The packet identifiers that a session of a publisher, by its name, has not released.
    pub(super) fn received(&self, client: &str, incarnation: u64) -> PacketIdSet {
        let Some(publisher) = self.publishers.get(client) else {
            return PacketIdSet::new();
        };
        let place = publisher.place(incarnation).ok();
        let Some((_, session)) = place.and_then(|place| publisher.sessions.get(place)) else {
            return PacketIdSet::new();
        };
        let mut received = session.matching.clone();
        received.extend(session.parts.iter().map(|(id, _)| *id));
        received
    }

    /// What the broker published and is not released, and what is and is known still.
    pub(super) fn of_broker(&self) -> (usize, usize) {
        (self.open, self.released.len())
    }

    fn touch(&mut self, publisher: &Arc<str>, incarnation: u64, of: RowOf, existed: bool) {
        let row = Row {
            publisher: Arc::clone(publisher),
            incarnation,
            of,
        };
        // An estimate: rows are of a few identifiers or of some hundred bytes.
        self.touched.touch(row, existed, 128 + publisher.len());
    }

    /// Lets go of a publisher of which nothing is known any more.
    fn tidy(&mut self, client: &str) {
        if self.publishers.get(client).is_some_and(Publisher::is_empty) {
            self.publishers.remove(client);
        }
    }

    fn publisher(&mut self, client: &str) -> (Arc<str>, &mut Publisher) {
        let name: Arc<str> = match self.publishers.get_key_value(client) {
            Some((name, _)) => Arc::clone(name),
            None => client.into(),
        };
        let publisher = self.publishers.entry(Arc::clone(&name)).or_default();
        (name, publisher)
    }

    /// A page of a publisher, by its identifier if an earlier version has written it: then it is written anew at the
    /// next checkpoint.
    pub(super) fn load_page(&mut self, client: &str, incarnation: u64, row: &PageRow) {
        let short = self.naming.name_of(client);
        if self.naming.is_long(client) {
            let pages: BTreeSet<u8> = row
                .iter()
                .filter_map(|(id, _)| PacketId::new(*id))
                .map(page_of)
                .collect();
            for page in pages {
                self.rename(client, &short, incarnation, RowOf::Page(page));
            }
        }
        let (_, publisher) = self.publisher(&short);
        let place = publisher.place(incarnation).unwrap_or_else(|place| {
            publisher
                .sessions
                .insert(place, (incarnation, Received::default()));
            place
        });
        if let Some((_, received)) = publisher.sessions.get_mut(place) {
            for (id, part) in row {
                if let Some(id) = PacketId::new(*id) {
                    received.insert(id, *part);
                }
            }
        }
    }

    /// What the broker published, likewise.
    pub(super) fn load_of_broker(&mut self, client: &str, incarnation: u64, row: BrokersRow) {
        let short = self.naming.name_of(client);
        if self.naming.is_long(client) {
            self.rename(client, &short, incarnation, RowOf::Broker);
        }
        let (name, publisher) = self.publisher(&short);
        let parts = row.parts.into_iter().collect();
        if row.released_ms == 0 {
            publisher.open.insert(incarnation, parts);
            self.open += 1;
        } else {
            let released = (parts, row.released_ms);
            publisher.released.insert(incarnation, released);
            self.released.insert((row.released_ms, name, incarnation));
        }
    }

    /// The row of a long identifier is to be removed, and one of its name is to be written.
    fn rename(&mut self, client: &str, name: &str, incarnation: u64, of: RowOf) {
        self.touch(&client.into(), incarnation, of, true);
        self.touch(&name.into(), incarnation, of, false);
    }

    /// Clients are named so from now on: rows by long identifiers are written anew at the next checkpoint.
    pub(super) fn rename_all(&mut self, naming: Naming) {
        self.naming = naming;
        let long = self
            .publishers
            .extract_if(|client, _| naming.is_long(client));
        for (client, publisher) in long.collect::<Vec<_>>() {
            let short: Arc<str> = naming.name_of(&client).into();
            for (incarnation, received) in &publisher.sessions {
                for page in received.pages() {
                    self.rename(&client, &short, *incarnation, RowOf::Page(page));
                }
            }
            for incarnation in publisher.open.keys().chain(publisher.released.keys()) {
                self.rename(&client, &short, *incarnation, RowOf::Broker);
            }
            for (incarnation, (_, at)) in &publisher.released {
                self.released
                    .remove(&(*at, Arc::clone(&client), *incarnation));
                self.released
                    .insert((*at, Arc::clone(&short), *incarnation));
            }
            self.publishers.insert(short, publisher);
        }
    }

    /// A row of the layout before this one. It is written anew at the next checkpoint.
    pub(super) fn load_superseded(&mut self, client: &str, entries: OriginsRow) {
        self.superseded
            .push(row::key(ORIGINS, self.naming.hash.slot_of(client), client));
        let short = self.naming.name_of(client);
        for (incarnation, packet_id, part) in entries {
            let (name, publisher) = self.publisher(&short);
            let of = if let Some(id) = PacketId::new(packet_id) {
                let page = page_of(id);
                let place = publisher.place(incarnation).unwrap_or_else(|place| {
                    publisher
                        .sessions
                        .insert(place, (incarnation, Received::default()));
                    place
                });
                if let Some((_, received)) = publisher.sessions.get_mut(place) {
                    received.insert(id, part);
                }
                RowOf::Page(page)
            } else {
                let parts = publisher.open.entry(incarnation).or_default();
                let is_new = parts.is_empty();
                parts.insert(part);
                self.open += usize::from(is_new);
                RowOf::Broker
            };
            self.touch(&name, incarnation, of, false);
        }
    }

    /// The same of what was released. After the entries.
    pub(super) fn load_superseded_released(&mut self, client: &str, released: ReleasedRow) {
        self.superseded
            .push(row::key(RELEASED, self.naming.hash.slot_of(client), client));
        let short = self.naming.name_of(client);
        for (incarnation, at) in released {
            self.linger(&short, incarnation..=incarnation, at);
        }
    }

    pub(super) fn collect(&mut self, changes: &mut Changes) {
        for key in std::mem::take(&mut self.superseded) {
            changes.delete(key);
        }
        let publishers = &self.publishers;
        let hash = self.naming.hash;
        self.touched.collect(changes, |row| {
            let publisher = publishers.get(&row.publisher);
            let value = publisher.and_then(|publisher| publisher.row(row.incarnation, row.of));
            (row.key(hash), value)
        });
    }

    pub(super) fn saved(&mut self) {
        self.touched.saved();
    }

    pub(super) fn unsaved_bytes(&self) -> usize {
        self.touched.bytes()
    }
}
