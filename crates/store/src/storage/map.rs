//! Which shards a store begins with.
//!
//! A store begins with as many shards as its settings say, of equal size. How many that were is written
//! down at the first start: afterwards the setting has no effect on what exists.
//!
//! The file `SHARDS` has the number in a line. With another number, names would belong to other shards than those that have their
//! rows, so the file `SHARDS.check` beside it has a checksum of it: in a file of its own, so that earlier versions, which write none
//! and read `SHARDS` as a number, open the folder as well.
//!
//! Deliberately absent: the shards that splits have made of these (`layout.rs`); which shard has a slot (`shard/shards.rs`).

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use store_state::api::ShardNumber;
use store_state::{NameHash, SLOTS, SlotRange};
use xxhash_rust::xxh3::xxh3_64;

use crate::storage::folder::create;

/// The file that says how many shards a store was made with.
const FILE: &str = "SHARDS";

/// The checksum of the file with the number.
const CHECK: &str = "SHARDS.check";

/// Whether a name in the folder of a store is that of a file of this module.
pub(crate) fn is_name(name: &str) -> bool {
    matches!(name, FILE | CHECK)
}

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
    /// The file cannot be read or written, says something else than a number of shards, or does not fit its checksum.
    pub(crate) fn open(folder: &Path, initial: u16, hash: NameHash) -> io::Result<Self> {
        if let Some(map) = Self::read(folder, hash)? {
            return Ok(map);
        }
        let path = folder.join(FILE);
        let shards = u32::from(initial.max(1));
        let number = format!("{shards}\n");
        // The check first: without the number it means nothing.
        for (path, text) in [(&folder.join(CHECK), check_of(&number)), (&path, number)] {
            let temporary = path.with_extension("new");
            let mut file = create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)?;
        }
        fs::File::open(folder)?.sync_all()?;
        Ok(Self { shards, hash })
    }

    /// The map that is written down in the store's folder, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, says something else than a number of shards, or does not fit its checksum.
    pub(crate) fn read(folder: &Path, hash: NameHash) -> io::Result<Option<Self>> {
        let path = folder.join(FILE);
        let text = read_if_there(&path)?;
        let check = read_if_there(&folder.join(CHECK))?;
        let shards = text.map(|text| parse(&text, check.as_deref()));
        let shards = shards.transpose().map_err(|why| {
            let what = format!("{} is damaged: {why}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        Ok(shards.map(|shards| Self { shards, hash }))
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

/// The text of a file; `None`: there is no such file.
fn read_if_there(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let what = format!("{} cannot be read: {error}", path.display());
            Err(io::Error::new(error.kind(), what))
        }
        Ok(text) => Ok(Some(text)),
    }
}

/// What the file of the check has for the text of the other one.
fn check_of(number: &str) -> String {
    format!("{:016x}\n", xxh3_64(number.as_bytes()))
}

/// The number of shards that the file says. `check`: of the file beside it; `None`: an earlier version has made the folder.
///
/// # Errors
/// What is wrong with the files.
fn parse(text: &str, check: Option<&str>) -> Result<u32, &'static str> {
    if check.is_some_and(|check| check != check_of(text)) {
        return Err("it does not fit its checksum, which is in SHARDS.check");
    }
    let shards = text.trim().parse().ok().filter(|n| (1..=SLOTS).contains(n));
    shards.ok_or("it is no number of shards")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: NameHash = NameHash::with_seed(3);

    #[test]
    fn a_changed_number_of_shards_is_refused_with_the_name_of_the_file() {
        let at = tempfile::tempdir().unwrap();
        let path = at.path().join(FILE);
        let map = ShardMap::open(at.path(), 4, HASH).unwrap();
        assert_eq!(map.len(), 4);
        for changed in [&path, &at.path().join(CHECK)] {
            let whole = fs::read(changed).unwrap();
            for bit in 0..whole.len() * 8 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                fs::write(changed, bytes).unwrap();
                let error = ShardMap::open(at.path(), 4, HASH).unwrap_err().to_string();
                assert!(error.contains(path.to_str().unwrap()), "bit {bit}: {error}");
            }
            fs::write(changed, &whole).unwrap();
        }
        assert_eq!(ShardMap::open(at.path(), 1, HASH).unwrap(), map);
        // As an earlier version reads it.
        assert_eq!(fs::read_to_string(&path).unwrap(), "4\n");
    }

    #[test]
    fn a_folder_of_an_earlier_version_has_no_check() {
        let at = tempfile::tempdir().unwrap();
        let path = at.path().join(FILE);
        fs::write(&path, "16\n").unwrap();
        assert_eq!(ShardMap::open(at.path(), 1, HASH).unwrap().len(), 16);
        for damaged in ["", "0\n", "65537\n", "16\n16\n"] {
            fs::write(&path, damaged).unwrap();
            ShardMap::open(at.path(), 1, HASH).unwrap_err();
        }
    }

    #[test]
    fn a_crash_between_the_two_files_leaves_no_folder_that_cannot_be_opened() {
        let at = tempfile::tempdir().unwrap();
        ShardMap::open(at.path(), 4, HASH).unwrap();
        fs::remove_file(at.path().join(FILE)).unwrap();
        assert_eq!(ShardMap::open(at.path(), 8, HASH).unwrap().len(), 8);
        assert_eq!(ShardMap::open(at.path(), 1, HASH).unwrap().len(), 8);
    }

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
