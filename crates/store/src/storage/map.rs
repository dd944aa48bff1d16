//! Which shards a store begins with.
//!
//! A store begins with as many shards as its settings say, of equal size. How many that were is written
//! down at the first start: afterwards the setting has no effect on what exists.
//!
//! The file `SHARDS` has the number in a line. With another number, names would belong to other shards than those that have their
//! rows, so the file `SHARDS.check` beside it has a checksum of it: in a file of its own, so that earlier versions, which write none
//! and read `SHARDS` as a number, open the folder as well. `SHARDS.copy` has both lines. The two files count as long as they fit each
//! other, the copy if they do not.
//!
//! Deliberately absent: the shards that splits have made of these (`layout.rs`); which shard has a slot (`shard/shards.rs`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use durable_file::{COPY, Repair, UNFINISHED, write_whole};
use store_state::api::ShardNumber;
use store_state::{NameHash, SLOTS, SlotRange};
use xxhash_rust::xxh3::xxh3_64;

/// The file that says how many shards a store was made with.
pub(crate) const FILE: &str = "SHARDS";

/// The checksum of the file with the number.
const CHECK: &str = "SHARDS.check";

/// Whether a name in the folder of a store is that of a file of this module.
pub(crate) fn is_name(name: &str) -> bool {
    let name = name.strip_suffix(UNFINISHED).unwrap_or(name);
    let of_copy = name.strip_suffix(COPY);
    matches!(name, FILE | CHECK) || of_copy == Some(FILE)
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

    /// The map that is written down in the store's folder, or a new one of `initial` shards. A file that is damaged or missing is
    /// written again if the others say what was in it.
    ///
    /// # Errors
    /// The file cannot be read or written, says something else than a number of shards, or does not fit its checksum, and the copy
    /// does not say the number either.
    pub(crate) fn open(folder: &Path, initial: u16, hash: NameHash) -> io::Result<Self> {
        if let Some(found) = find(folder)? {
            found.repair(folder);
            let shards = found.shards.0;
            return Ok(Self { shards, hash });
        }
        let shards = u32::from(initial.max(1));
        let number = format!("{shards}\n");
        // The check first: without the number it means nothing. The copy last: if it is alone, the number was lost.
        write_whole(&folder.join(CHECK), check_of(&number).as_bytes())?;
        write_whole(&folder.join(FILE), number.as_bytes())?;
        write_whole(&copy_of(folder), copied(shards).as_bytes())?;
        Ok(Self { shards, hash })
    }

    /// The map that is written down in the store's folder, if there is one. Nothing is changed.
    ///
    /// # Errors
    /// As of [`ShardMap::open`].
    pub(crate) fn read(folder: &Path, hash: NameHash) -> io::Result<Option<Self>> {
        let found = find(folder)?;
        Ok(found.map(|found| Self {
            shards: found.shards.0,
            hash,
        }))
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

/// How many shards.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ShardCount(u32);

/// The number of shards that the files say, and which of them do not say it.
struct Found {
    shards: ShardCount,
    /// `SHARDS` and `SHARDS.check` do not fit each other, or one is missing.
    lacks_number: bool,
    /// `None`: the copy says the same. `Some(true)`: there is one, and it says something else or is damaged.
    lacks_copy: Option<bool>,
}

impl Found {
    /// Writes what is damaged or missing again. A start goes on if that fails: the number is known.
    fn repair(&self, folder: &Path) {
        let number = format!("{}\n", self.shards.0);
        let (copy, check) = (copy_of(folder), check_of(&number));
        let mut written = Ok(());
        if self.lacks_number {
            let file = folder.join(FILE);
            tracing::warn!(
                file = %file.display(),
                shards = self.shards.0,
                "the file or its checksum was damaged or missing: both are written again from the copy"
            );
            let rewritten = write_whole(&folder.join(CHECK), check.as_bytes());
            written = rewritten.and_then(|()| write_whole(&file, number.as_bytes()));
        }
        if let Some(is_damaged) = self.lacks_copy {
            if is_damaged {
                tracing::warn!(file = %copy.display(), "the copy was damaged or old: it is written again");
            }
            written = written.and(write_whole(&copy, copied(self.shards.0).as_bytes()));
        }
        if let Err(error) = written {
            let folder = folder.display();
            tracing::warn!(%folder, %error, "SHARDS or its copy cannot be written again");
        }
    }
}

/// Reads the files of a store's folder again, and writes those that are damaged or missing.
pub(crate) fn repair(folder: &Path) -> Repair {
    match find(folder) {
        Err(_) => Repair::BothDamaged,
        Ok(None) => Repair::Nothing,
        Ok(Some(found)) => {
            let outcome = match (found.lacks_number, found.lacks_copy) {
                (true, _) => Repair::FileRepaired,
                (false, Some(true)) => Repair::CopyRepaired,
                (false, Some(false)) => Repair::CopyMade,
                (false, None) => Repair::Nothing,
            };
            found.repair(folder);
            outcome
        }
    }
}

/// The file with the number, if it or its checksum is damaged or missing, and the copy is whole.
pub(crate) fn read_from_copy(folder: &Path) -> Option<PathBuf> {
    let found = find(folder).ok()??;
    found.lacks_number.then(|| folder.join(FILE))
}

/// What the files of a store's folder say; `None`: none says anything, as before a first start.
///
/// # Errors
/// As of [`ShardMap::open`].
fn find(folder: &Path) -> io::Result<Option<Found>> {
    let path = folder.join(FILE);
    let check = read_if_there(&folder.join(CHECK));
    let has_check = !matches!(check, Ok(None));
    let number = read_if_there(&path).and_then(|text| {
        let check = check?;
        let shards = text.map(|text| parse(&text, check.as_deref())).transpose();
        shards.map_err(|why| {
            let what = format!("{} is damaged: {why}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    });
    let copy = read_if_there(&copy_of(folder));
    let has_copy = !matches!(copy, Ok(None));
    let copy = copy.ok().flatten().and_then(|text| parse_copy(&text));
    let shards = match (number, copy) {
        // A number without its checksum counts less than a copy, which has one.
        (Ok(Some(number)), Some(copy)) if !has_check && number != copy => copy,
        (Ok(Some(number)), _) => {
            return Ok(Some(Found {
                shards: ShardCount(number),
                lacks_number: !has_check && copy.is_some(),
                lacks_copy: (copy != Some(number)).then_some(has_copy),
            }));
        }
        (Ok(None) | Err(_), Some(copy)) => copy,
        (number, None) => {
            number?;
            return Ok(None);
        }
    };
    Ok(Some(Found {
        shards: ShardCount(shards),
        lacks_number: true,
        lacks_copy: None,
    }))
}

fn copy_of(folder: &Path) -> PathBuf {
    durable_file::copy_of(&folder.join(FILE))
}

/// What the copy has: the lines of both files.
fn copied(shards: u32) -> String {
    let number = format!("{shards}\n");
    let check = check_of(&number);
    number + &check
}

/// The number in a copy; `None`: it is damaged.
fn parse_copy(text: &str) -> Option<u32> {
    let (number, check) = text.split_at_checked(text.find('\n')? + 1)?;
    parse(number, Some(check)).ok()
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

    fn files(at: &Path) -> [PathBuf; 3] {
        [FILE, CHECK, "SHARDS.copy"].map(|name| at.join(name))
    }

    fn contents(at: &Path) -> [String; 3] {
        files(at).map(|file| fs::read_to_string(file).unwrap())
    }

    #[test]
    fn a_changed_number_of_shards_is_refused_with_the_name_of_the_file() {
        let at = tempfile::tempdir().unwrap();
        let [path, check, copy] = files(at.path());
        let map = ShardMap::open(at.path(), 4, HASH).unwrap();
        assert_eq!(map.len(), 4);
        fs::write(&copy, "4\n").unwrap();
        for changed in [&path, &check] {
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
    fn each_flipped_bit_of_one_of_the_files_is_repaired() {
        let at = tempfile::tempdir().unwrap();
        let map = ShardMap::open(at.path(), 4, HASH).unwrap();
        let whole = contents(at.path());
        for (file, text) in files(at.path()).iter().zip(&whole) {
            let mut damages = vec![None];
            for bit in 0..text.len() * 8 {
                let mut bytes = text.clone().into_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                damages.push(Some(bytes));
            }
            damages.extend((0..text.len()).map(|len| Some(text.as_bytes()[..len].to_vec())));
            for damaged in damages {
                match &damaged {
                    None => fs::remove_file(file).unwrap(),
                    Some(bytes) => fs::write(file, bytes).unwrap(),
                }
                let what = format!("{}: {damaged:?}", file.display());
                assert_eq!(
                    ShardMap::read(at.path(), HASH).unwrap(),
                    Some(map),
                    "{what}"
                );
                assert_eq!(ShardMap::open(at.path(), 1, HASH).unwrap(), map, "{what}");
                assert_eq!(contents(at.path()), whole, "{what}");
            }
        }
    }

    #[test]
    fn the_number_counts_if_a_copy_says_another_one() {
        let at = tempfile::tempdir().unwrap();
        ShardMap::open(at.path(), 4, HASH).unwrap();
        let [path, check, copy] = files(at.path());
        fs::write(&path, "8\n").unwrap();
        fs::write(&check, check_of("8\n")).unwrap();
        assert_eq!(ShardMap::open(at.path(), 1, HASH).unwrap().len(), 8);
        assert_eq!(fs::read_to_string(copy).unwrap(), copied(8));
        // Without its checksum nothing says that it is whole.
        fs::remove_file(check).unwrap();
        fs::write(&path, "9\n").unwrap();
        assert_eq!(ShardMap::open(at.path(), 1, HASH).unwrap().len(), 8);
    }

    #[test]
    fn a_folder_of_an_earlier_version_has_no_check() {
        let at = tempfile::tempdir().unwrap();
        let path = at.path().join(FILE);
        fs::write(&path, "16\n").unwrap();
        assert_eq!(ShardMap::open(at.path(), 1, HASH).unwrap().len(), 16);
        let [_, check, copy] = files(at.path());
        // It has none afterwards either, so that only the copy is made.
        assert!(!check.exists());
        fs::remove_file(copy).unwrap();
        for damaged in ["", "0\n", "65537\n", "16\n16\n"] {
            fs::write(&path, damaged).unwrap();
            ShardMap::open(at.path(), 1, HASH).unwrap_err();
        }
    }

    #[test]
    fn a_crash_between_the_two_files_leaves_no_folder_that_cannot_be_opened() {
        let at = tempfile::tempdir().unwrap();
        fs::write(at.path().join(CHECK), check_of("4\n")).unwrap();
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
