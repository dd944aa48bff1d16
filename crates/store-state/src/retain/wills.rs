//! Wills that a shard has kept: one that is published again, by the next leader of its session shard, changes
//! nothing. What was published to its topic since then stays.
//!
//! Invariant: at most [`MOST`] are known, those of the last [`KNOWN_MS`].

use std::collections::{BTreeSet, HashMap};

use crate::inbox::Origin;
use crate::touched::Touched;
use crate::{Changes, LoadError, NameHash, SlotRange, Slots, Survey, Table, row, survey};

/// How long a will is known, in ms: it is published again as soon as its session shard has a leader.
pub(super) const KNOWN_MS: u64 = 3_600_000;

/// How many are known: about 6 MiB. Beyond that the oldest is forgotten.
pub(super) const MOST: usize = 65_536;

/// The kind of the rows: the slot of the topic and a hash of the origin, and when it was kept in ms.
pub(super) const WILL: u8 = b'W';

/// The slot of its topic, and a hash of its origin.
type Name = (u16, u64);

/// The wills of a shard.
#[derive(Debug)]
pub(super) struct Wills {
    hash: NameHash,
    kept_ms: HashMap<Name, u64>,
    by_age: BTreeSet<(u64, Name)>,
    touched: Touched<Name>,
}

impl Wills {
    pub(super) fn new(hash: NameHash) -> Self {
        Self {
            hash,
            kept_ms: HashMap::new(),
            by_age: BTreeSet::new(),
            touched: Touched::new(),
        }
    }

    pub(super) fn load(
        hash: NameHash,
        range: SlotRange,
        table: &dyn Table,
    ) -> Result<Self, LoadError> {
        let mut wills = Self::new(hash);
        row::each(table, WILL, range, |key, value| {
            let (name, at) = (name(key)?, row::decode(key, value)?);
            wills.kept_ms.insert(name, at);
            wills.by_age.insert((at, name));
            Ok(())
        })?;
        Ok(wills)
    }

    /// Whether a will for this topic was kept.
    pub(super) fn knows(&self, topic: &str, origin: &Origin) -> bool {
        self.kept_ms.contains_key(&self.name(topic, origin))
    }

    /// A will that is not known is kept; those that were long ago are forgotten.
    pub(super) fn keep(&mut self, topic: &str, origin: &Origin, now_ms: u64) {
        let name = self.name(topic, origin);
        self.kept_ms.insert(name, now_ms);
        self.by_age.insert((now_ms, name));
        self.touched.touch(name, false, size_of::<Name>());
        while let Some(&(at, oldest)) = self.by_age.first()
            && (at + KNOWN_MS <= now_ms || self.by_age.len() > MOST)
        {
            self.by_age.pop_first();
            self.kept_ms.remove(&oldest);
            self.touched.touch(oldest, true, 0);
        }
    }

    /// How many are known.
    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(super) fn unsaved_bytes(&self) -> usize {
        self.touched.bytes()
    }

    pub(super) fn collect(&mut self, changes: &mut Changes) {
        let kept_ms = &self.kept_ms;
        self.touched.collect(changes, |name| {
            let value = kept_ms.get(name).map(row::encode);
            (key(*name), value)
        });
    }

    pub(super) fn saved(&mut self) {
        self.touched.saved();
    }

    pub(super) fn survey(slots: Slots, table: &dyn Table, survey: &mut Survey) {
        survey.each(table, WILL, "wills", |key, value| {
            let (slot, _) = name(key)?;
            row::decode::<u64>(key, value)?;
            let is_own = slots.range.contains(slot);
            survey::ensure(is_own, key, "its slot belongs to another shard")
        });
    }

    fn name(&self, topic: &str, origin: &Origin) -> Name {
        let Origin {
            client,
            incarnation,
            packet_id,
        } = origin;
        let origin = format!("{incarnation} {packet_id} {client}");
        (self.hash.slot_of(topic), self.hash.of(&origin))
    }
}

fn key((slot, hash): Name) -> Vec<u8> {
    row::numbered_key(WILL, slot, "", hash)
}

fn name(key: &[u8]) -> Result<Name, LoadError> {
    let (rest, hash) = row::name_and_number(key)?;
    match key {
        [_, high, low, ..] if rest.is_empty() => Ok((u16::from_be_bytes([*high, *low]), hash)),
        _ => Err(row::damaged(key, "the key has a name")),
    }
}
