//! What a shard knows for a time, so that what comes late or again changes nothing.
//!
//! Wills: one that is published again, by the next leader of its session shard, changes nothing; what was published to
//! its topic since then stays.
//!
//! Fences: a node that cannot reach a shard's leader keeps what its clients have published. Meanwhile a client goes on
//! at another node, publishes the same again and then something else. When the first node reaches the leader, its copy
//! would replace the later message. So the first retained message of each connection raises the publisher's fence, and
//! what an earlier connection sent is refused.
//!
//! Invariant: at most [`MOST`] of each are known, those of the last [`WILLS_MS`] or [`FENCES_MS`].

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ConnectionNumber, PublisherHash};
use crate::inbox::Origin;
use crate::touched::Touched;
use crate::{
    Changes, LoadError, NameHash, SlotRange, Slots, Survey, Table, partition, row, survey,
};

/// How long a will is known, in ms: it is published again as soon as its session shard has a leader.
///
/// Limit: wills that a retain shard remembers to have kept | {}, {MOST} | the oldest is forgotten: published again,
/// it replaces what came since
pub(super) const WILLS_MS: u64 = 3_600_000;

/// How long a fence is known, in ms: longer than a node keeps a request that is not answered.
pub(super) const FENCES_MS: u64 = 60_000;

/// How many are known: about 6 MiB. Beyond that the oldest is forgotten.
pub(super) const MOST: usize = 65_536;

/// The kind of the rows of wills: the slot of the topic and a hash of the origin, and when it was kept in ms.
pub(super) const WILL: u8 = b'W';

/// The kind of the rows of fences: the slot of the topic and a hash of the publisher; when it was raised in ms, and the
/// number of the connection.
pub(super) const FENCE: u8 = b'F';

/// The slot of a topic, and a hash of an origin or a publisher.
type Name = (u16, u64);

/// Things of one kind that a shard knows for a time.
#[derive(Debug)]
struct Recent<V> {
    kind: u8,
    by_name: HashMap<Name, (u64, V)>,
    by_age: BTreeSet<(u64, Name)>,
    touched: Touched<Name>,
}

impl<V: Copy + Serialize + DeserializeOwned> Recent<V> {
    fn new(kind: u8) -> Self {
        Self {
            kind,
            by_name: HashMap::new(),
            by_age: BTreeSet::new(),
            touched: Touched::new(),
        }
    }

    fn load(&mut self, range: SlotRange, table: &dyn Table) -> Result<(), LoadError> {
        row::each(table, self.kind, range, |key, value| {
            let (name, (at_ms, value)) = (name(key)?, row::decode(key, value)?);
            self.by_name.insert(name, (at_ms, value));
            self.by_age.insert((at_ms, name));
            Ok(())
        })
    }

    fn known_ms(&self) -> u64 {
        match self.kind {
            WILL => WILLS_MS,
            _ => FENCES_MS,
        }
    }

    fn get(&self, name: Name) -> Option<V> {
        self.by_name.get(&name).map(|(_, value)| *value)
    }

    /// Keeps something in the place of what has its name; what was kept long ago is forgotten.
    fn keep(&mut self, name: Name, value: V, now_ms: u64) {
        let replaced = self.by_name.insert(name, (now_ms, value));
        if let Some((at_ms, _)) = replaced {
            self.by_age.remove(&(at_ms, name));
        }
        self.by_age.insert((now_ms, name));
        let bytes = size_of::<Name>() + size_of::<V>();
        self.touched.touch(name, replaced.is_some(), bytes);
        while let Some(&(at_ms, oldest)) = self.by_age.first()
            && (at_ms + self.known_ms() <= now_ms || self.by_age.len() > MOST)
        {
            self.by_age.pop_first();
            self.by_name.remove(&oldest);
            self.touched.touch(oldest, true, 0);
        }
    }

    /// Takes out what belongs to the slots from `at` on.
    fn split_off(&mut self, at: u16) -> Self {
        let is_childs = |(slot, _): &Name| *slot >= at;
        Self {
            kind: self.kind,
            by_name: self.by_name.extract_if(|name, _| is_childs(name)).collect(),
            by_age: partition::set(&mut self.by_age, |(_, name)| is_childs(name)),
            touched: self.touched.split_off(is_childs),
        }
    }

    fn collect(&mut self, changes: &mut Changes) {
        let (kind, by_name) = (self.kind, &self.by_name);
        self.touched.collect(changes, |name| {
            let value = by_name.get(name).map(row::encode);
            (key(kind, *name), value)
        });
    }

    fn survey(kind: u8, what: &'static str, slots: Slots, table: &dyn Table, survey: &mut Survey) {
        survey.each(table, kind, what, |key, value| {
            let (slot, _) = name(key)?;
            row::decode::<(u64, V)>(key, value)?;
            let is_own = slots.range.contains(slot);
            survey::ensure(is_own, key, "its slot belongs to another shard")
        });
    }
}

/// What a shard knows of wills and of publishers' connections.
#[derive(Debug)]
pub(super) struct Known {
    hash: NameHash,
    wills: Recent<()>,
    fences: Recent<ConnectionNumber>,
}

impl Known {
    pub(super) fn new(hash: NameHash) -> Self {
        Self {
            hash,
            wills: Recent::new(WILL),
            fences: Recent::new(FENCE),
        }
    }

    pub(super) fn load(
        hash: NameHash,
        range: SlotRange,
        table: &dyn Table,
    ) -> Result<Self, LoadError> {
        let mut known = Self::new(hash);
        known.wills.load(range, table)?;
        known.fences.load(range, table)?;
        Ok(known)
    }

    /// Takes out what belongs to the slots from `at` on.
    pub(super) fn split_off(&mut self, at: u16) -> Self {
        Self {
            hash: self.hash,
            wills: self.wills.split_off(at),
            fences: self.fences.split_off(at),
        }
    }

    /// Whether a will for this topic was kept.
    pub(super) fn has_will(&self, topic: &str, origin: &Origin) -> bool {
        self.wills.get(self.name_of_will(topic, origin)).is_some()
    }

    /// A will that is not known is kept.
    pub(super) fn keep_will(&mut self, topic: &str, origin: &Origin, now_ms: u64) {
        self.wills
            .keep(self.name_of_will(topic, origin), (), now_ms);
    }

    /// A connection of a publisher has sent a message for a topic. False: a later one has done so, here or for another
    /// topic of its slot.
    pub(super) fn raise_fence(
        &mut self,
        topic: &str,
        publisher: PublisherHash,
        connection: ConnectionNumber,
        now_ms: u64,
    ) -> bool {
        let name = (self.hash.slot_of(topic), publisher.0);
        let fence = self.fences.get(name);
        if fence.is_none_or(|fence| fence < connection) {
            self.fences.keep(name, connection, now_ms);
        }
        fence.is_none_or(|fence| fence <= connection)
    }

    /// How many wills are known.
    pub(super) fn wills(&self) -> usize {
        self.wills.by_age.len()
    }

    /// How many fences are known.
    pub(super) fn fences(&self) -> usize {
        self.fences.by_age.len()
    }

    pub(super) fn unsaved_bytes(&self) -> usize {
        self.wills.touched.bytes() + self.fences.touched.bytes()
    }

    pub(super) fn collect(&mut self, changes: &mut Changes) {
        self.wills.collect(changes);
        self.fences.collect(changes);
    }

    pub(super) fn saved(&mut self) {
        self.wills.touched.saved();
        self.fences.touched.saved();
    }

    pub(super) fn survey(slots: Slots, table: &dyn Table, survey: &mut Survey) {
        Recent::<()>::survey(WILL, "wills", slots, table, survey);
        Recent::<ConnectionNumber>::survey(FENCE, "fences", slots, table, survey);
    }

    fn name_of_will(&self, topic: &str, origin: &Origin) -> Name {
        let Origin {
            client,
            incarnation,
            packet_id,
        } = origin;
        let origin = format!("{incarnation} {packet_id} {client}");
        (self.hash.slot_of(topic), self.hash.of(&origin))
    }
}

fn key(kind: u8, (slot, hash): Name) -> Vec<u8> {
    row::numbered_key(kind, slot, "", hash)
}

fn name(key: &[u8]) -> Result<Name, LoadError> {
    let (rest, hash) = row::name_and_number(key)?;
    match key {
        [_, high, low, ..] if rest.is_empty() => Ok((u16::from_be_bytes([*high, *low]), hash)),
        _ => Err(row::damaged(key, "the key has a name")),
    }
}
