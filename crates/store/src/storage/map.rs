//! Which shard a client identifier or a topic belongs to.
//!
//! A store begins with as many shards as its settings say, of equal size. How many that were is written
//! down at the first start: afterwards the setting has no effect on what exists.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use store_state::api::ShardNumber;
use store_state::{NameHash, SLOTS, SlotRange, Slots};

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

    /// What a shard is responsible for.
    pub(crate) fn slots(self, shard: ShardNumber) -> Slots {
        Slots {
            range: self.range(shard),
            hash: self.hash,
        }
    }

    /// The shard that a client identifier or topic belongs to.
    pub(crate) fn shard_of(self, name: &str) -> ShardNumber {
        let slot = self.hash.slot_of(name);
        // Parts are as equal as can be: a division finds the right one or the one before it.
        let guess = u64::from(slot) * u64::from(self.shards) / u64::from(SLOTS);
        let mut shard = guess as u16;
        while self.range(shard).last < slot {
            shard += 1;
        }
        shard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_the_shard_whose_range_holds_its_slot() {
        for shards in [1, 2, 3, 7, 100] {
            let hash = NameHash::with_seed(3);
            let map = ShardMap { shards, hash };
            for n in 0..1000 {
                let name = format!("client-{n}");
                assert!(map.range(map.shard_of(&name)).contains(hash.slot_of(&name)));
            }
        }
    }
}
