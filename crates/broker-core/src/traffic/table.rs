//! Names with values, of which a fixed number is kept.

use std::hash::BuildHasher as _;

use hashing::HashBuilder;

use crate::drops::kept;

/// Names that are kept.
pub(super) const NAMES: usize = 256;

/// Values by name, [`NAMES`] at most. Finding one looks at all hashes, which are few and stand side by side.
#[derive(Debug)]
pub(super) struct Table<V> {
    /// Seeded: names are chosen by clients.
    hasher: HashBuilder,
    hashes: Vec<Hash>,
    rows: Vec<(Box<str>, V)>,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            hasher: HashBuilder::default(),
            hashes: Vec::new(),
            rows: Vec::new(),
        }
    }
}

/// That of a name, in one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hash(u64);

/// What a table has of a name.
#[derive(Debug)]
pub(super) enum Slot<'a, V> {
    /// It is there.
    Taken(&'a mut V),
    /// It may be put there.
    Free(Free<'a, V>),
}

/// The place for a name.
#[derive(Debug)]
pub(super) struct Free<'a, V> {
    table: &'a mut Table<V>,
    name: &'a str,
    hash: Hash,
}

impl<V> Table<V> {
    /// Of a name that is too long, the beginning counts.
    pub(super) fn slot<'a>(&'a mut self, name: &'a str) -> Slot<'a, V> {
        let name = kept(name);
        let hash = Hash(self.hasher.hash_one(name));
        let mut hashes = self.hashes.iter().zip(&self.rows);
        let found = hashes.position(|(of, (row, _))| *of == hash && **row == *name);
        match found {
            Some(index) => match self.rows.get_mut(index) {
                Some((_, value)) => Slot::Taken(value),
                None => unreachable!("the row was found just now"),
            },
            None => Slot::Free(Free {
                table: self,
                name,
                hash,
            }),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.rows.iter().map(|(name, value)| (&**name, value))
    }
}

impl<V> Free<'_, V> {
    /// The least value, if the table is full: that of whoever is to make room.
    pub(super) fn least(&self, key: impl Fn(&V) -> u64) -> Option<u64> {
        (self.table.rows.len() >= NAMES)
            .then(|| self.table.rows.iter().map(|(_, value)| key(value)).min())
            .flatten()
    }

    /// Puts the name there, in the place of the least one if the table is full.
    pub(super) fn put(self, value: V, key: impl Fn(&V) -> u64) {
        let Self { table, name, hash } = self;
        let row = (name.into(), value);
        if table.rows.len() < NAMES {
            table.hashes.push(hash);
            table.rows.push(row);
            return;
        }
        let least = table
            .rows
            .iter()
            .enumerate()
            .min_by_key(|(_, (_, v))| key(v));
        let index = least.map_or(0, |(index, _)| index);
        if let (Some(hash_there), Some(row_there)) =
            (table.hashes.get_mut(index), table.rows.get_mut(index))
        {
            (*hash_there, *row_there) = (hash, row);
        }
    }
}
