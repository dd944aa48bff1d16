//! Which shards a store begins with.
//!
//! A store begins with as many shards as its settings say, of equal size. How many that were is written
//! down at the first start: afterwards the setting has no effect on what exists.
//!
//! Deliberately absent: the shards that splits have made of these (`layout.rs`); which shard has a slot (`shard/shards.rs`).

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use store_state::api::ShardNumber;
use store_state::{NameHash, SLOTS, SlotRange};

use crate::storage::folder::create;

/// The file that says how many shards a store was made with.
const FILE: &str = "SHARDS";

/// The shards of one store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShardMap {
    shards: u32,
    hash: NameHash,
}

impl ShardMap {
    /// Of so many shards.
    #[cfg(test)]
    pub(crate) fn of(shards: u32, hash: NameHash) -> Self {
        Self { shards, hash }
    }

    /// The map that is written down in the store's folder, or a new one of `initial` shards.
    ///
    /// # Errors
    /// The file cannot be read or written, or says something else than a number of shards.
    pub(crate) fn open(folder: &Path, initial: u16, hash: NameHash) -> io::Result<Self> {
        if let Some(map) = Self::read(folder, hash)? {
            return Ok(map);
        }
        let path = folder.join(FILE);
        let shards = u32::from(initial.max(1));
        let temporary = path.with_extension("new");
        let mut file = create(&temporary)?;
        writeln!(file, "{shards}")?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        fs::File::open(folder)?.sync_all()?;
        Ok(Self { shards, hash })
    }

    /// The map that is written down in the store's folder, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or says something else than a number of shards.
    pub(crate) fn read(folder: &Path, hash: NameHash) -> io::Result<Option<Self>> {
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let shards = text.trim().parse().ok().filter(|n| (1..=SLOTS).contains(n));
        let shards = shards.ok_or_else(|| {
            let what = format!("{} is no number of shards", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        Ok(Some(Self { shards, hash }))
    }

    /// By what names are spread over the shards.
    pub(crate) fn hash(self) -> NameHash {
        self.hash
    }

    pub(crate) fn len(self) -> u16 {
        self.shards as u16
    }

    pub(crate) fn range(self, shard: ShardNumber) -> SlotRange {
        SlotRange::part(u32::from(shard), self.shards)
    }

    /// The range of a shard, if the store began with it.
    pub(crate) fn range_of(self, shard: ShardNumber) -> Option<SlotRange> {
        (u32::from(shard) < self.shards).then(|| self.range(shard))
    }

    /// The shard that had a slot when the store began.
    pub(crate) fn of_slot(self, slot: u16) -> ShardNumber {
        let behind = (u64::from(slot) + 1) * u64::from(self.shards);
        ((behind - 1) / u64::from(SLOTS)) as ShardNumber
    }

    /// The first slot of a shard: one that the store began with, or one that a split has made, whose number it is.
    pub(crate) fn first_slot(self, shard: ShardNumber) -> u16 {
        if u32::from(shard) < self.shards {
            self.range(shard).first
        } else {
            shard
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_was_one_shards_when_the_store_began() {
        for shards in [1, 2, 3, 7, 1_000, 65_535] {
            let base = ShardMap::of(shards, NameHash::with_seed(3));
            for slot in 0..=u16::MAX {
                let number = base.of_slot(slot);
                assert!(base.range(number).contains(slot), "{slot} of {shards}");
            }
        }
    }
}
