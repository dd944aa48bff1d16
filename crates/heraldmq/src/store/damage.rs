//! `heraldmq store damage`: damages the data folder of a stopped broker on purpose, in a way that a seed repeats.
//!
//! Invariants: the same seed and the same files give the same damage; a folder that a process uses, and one that no node has made,
//! are refused; exactly one file is changed or removed, and it is synced.
//!
//! Deliberately absent: taking the damage back; folders of stores that are not in the data folder; the files named `LOCK`, which hold
//! nothing. What a broker makes of damage is tried by `tests/damage`.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;

/// The file that says whose a folder is, and how it begins in a data folder.
const FORMAT: &str = "FORMAT";
const DATA_FOLDER: &str = "heraldmq data folder,";

/// Held by a process that uses the folder.
const LOCK: &str = "LOCK";

/// Bytes at the end of what is written in a file that count as its end. The last batch of a log that few clients write to is not
/// longer as a rule.
const END_BYTES: u64 = 512;

/// Bytes at the beginning of a log's file: its header, and the first batch.
const HEAD_BYTES: u64 = 128;

/// Each file counts as if it had so many bytes more, so that short and empty ones are chosen, too.
const WEIGHT_BYTES: u64 = 64;

/// Bytes that [`How::Zero`] writes at most: a page of a disk.
const ZEROED_BYTES: u64 = 4_096;

/// `incarnation` and `alive`: two numbers in 24 bytes each, which begin a page apart.
const SLOTS: [std::ops::Range<u64>; 2] = [0..24, 4_096..4_120];

/// What can be done to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum How {
    /// One bit is flipped.
    Flip,
    /// The end of the file is cut off.
    Cut,
    /// The last 4 KiB of written data become zeros.
    Zero,
    /// The file becomes empty.
    Empty,
    /// The file is removed.
    Lose,
}

/// What a file of a data folder is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileKind {
    /// A file of the log that was appended to.
    Log,
    /// Entries that are still needed from deleted files of the log.
    Rewrite,
    /// A file with rows of a shard's table.
    Table,
    /// A list of the files of a shard's table.
    List,
    /// A short text: formats, the number of shards, which stores were made.
    Text,
    /// A number that is overwritten often: `incarnation`, `alive`.
    Slots,
    /// `ends`, which records how far the log is synced.
    Ends,
    /// What a member of a cluster knows about the cluster.
    Cluster,
    /// Any other file, such as `reserve`.
    Other,
}

impl FileKind {
    /// How often the kind is chosen, in relation to the others that the folder has files of.
    fn weight(self) -> u64 {
        match self {
            Self::Log => 8,
            Self::Table => 4,
            Self::Rewrite => 3,
            Self::List | Self::Text | Self::Slots | Self::Ends | Self::Cluster => 2,
            Self::Other => 1,
        }
    }

    /// That of a file, by its path in the data folder.
    fn of(path: &str) -> Self {
        // A copy is of the same kind as what it is a copy of.
        let path = path.strip_suffix(".copy").unwrap_or(path);
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let extension = Path::new(name).extension().and_then(|e| e.to_str());
        let is_in_shard = folder.rsplit('/').next().is_some_and(is_shard);
        let is_list = name == "current"
            || name
                .strip_prefix('v')
                .is_some_and(|digits| digits.parse::<u64>().is_ok());
        match name {
            _ if extension == Some("raftlog") => Self::Log,
            _ if extension == Some("rewrite") => Self::Rewrite,
            _ if folder.ends_with("/tables") => Self::Table,
            _ if is_in_shard && is_list => Self::List,
            FORMAT | "SHARDS" | "SHARDS.check" | "level" | "founded" => Self::Text,
            _ if extension == Some("made") => Self::Text,
            "incarnation" | "alive" => Self::Slots,
            "ends" => Self::Ends,
            "cluster" => Self::Cluster,
            _ if name.starts_with("cluster.") => Self::Cluster,
            _ => Self::Other,
        }
    }
}

/// Whether a folder is that of a shard's table.
fn is_shard(name: &str) -> bool {
    name.starts_with("shard-")
}

/// What is to be damaged, and how.
#[derive(Clone, Default, Debug, clap::Args)]
pub(super) struct Wishes {
    /// The kind of damage. Without it the seed chooses: a flipped bit in seven of ten cases.
    #[arg(long, value_name = "HOW")]
    kind: Option<How>,
    /// Damage only a file of this kind.
    #[arg(long, value_name = "KIND")]
    files: Option<FileKind>,
    /// Damage only this file; the path is relative to DIR.
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    file: Option<String>,
    /// Damage only the last 512 bytes of written data. In the newest file of the log these usually belong to the last
    /// batch.
    #[arg(long)]
    at_end: bool,
}

/// Bytes from the beginning of a file on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Bytes(u64);

/// A file that may be chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Candidate {
    /// From the data folder on, with `/`.
    path: String,
    /// Its length.
    bytes: Bytes,
    /// Behind its last byte that is not zero.
    written: Bytes,
}

/// What was done to which file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Damage {
    kind: How,
    /// Its path from the data folder on.
    file: String,
    files: FileKind,
    /// Where the flipped bit or the first of the zeros is, or what the file is cut to, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// The bit of the byte, from the least one on.
    #[serde(skip_serializing_if = "Option::is_none")]
    bit: Option<u8>,
    /// The length of the file before.
    bytes: Bytes,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        let Bytes(bytes) = self.bytes;
        let offset = self.offset.unwrap_or_default();
        match self.kind {
            How::Flip => {
                let bit = self.bit.unwrap_or_default();
                write!(
                    f,
                    "{file}: flipped bit {bit} of byte {offset}, of {bytes} bytes"
                )
            }
            How::Cut => write!(f, "{file}: cut to {offset} of {bytes} bytes"),
            How::Zero => write!(f, "{file}: zeros from byte {offset} on, of {bytes} bytes"),
            How::Empty => write!(f, "{file}: emptied, of {bytes} bytes"),
            How::Lose => write!(f, "{file}: removed, of {bytes} bytes"),
        }
    }
}

/// Chooses by the seed and does it.
///
/// # Errors
/// A process uses the folder; no node has made it; no file is as wished; or it cannot be read or written.
pub(super) fn damage(folder: &Path, seed: u64, wishes: &Wishes) -> Result<Damage, Failure> {
    let failed =
        |path: &Path, error: &io::Error| Failure::Runtime(format!("{}: {error}", path.display()));
    let _lock = lock(folder)?;
    let mut candidates = Vec::new();
    collect(folder, "", &mut candidates).map_err(|error| failed(folder, &error))?;
    candidates.sort_by(|a, b| a.path.cmp(&b.path));
    let damage = choose(&candidates, seed, wishes)
        .ok_or_else(|| Failure::Runtime(format!("{}: there is no such file", folder.display())))?;
    let path = folder.join(&damage.file);
    apply(&path, &damage).map_err(|error| failed(&path, &error))?;
    Ok(damage)
}

/// Takes the lock of the folder that nodes respect.
fn lock(folder: &Path) -> Result<File, Failure> {
    let refused = |why: String| Failure::Runtime(format!("folder {} {why}", folder.display()));
    let is_ours = fs::read(folder.join(FORMAT))
        .is_ok_and(|content| content.starts_with(DATA_FOLDER.as_bytes()));
    if !is_ours {
        let why = "is no data folder of HeraldMQ: it has no FORMAT file of one";
        return Err(refused(why.to_owned()));
    }
    let file = OpenOptions::new().write(true).open(folder.join(LOCK));
    let file = file.map_err(|error| refused(format!("cannot be locked: {error}")))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(refused("is in use by another process".to_owned())),
        Err(TryLockError::Error(error)) => Err(refused(format!("cannot be locked: {error}"))),
    }
}

/// All files below a folder but locks; links are not followed.
fn collect(root: &Path, below: &str, found: &mut Vec<Candidate>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name().into_string();
        let name = name.map_err(|_| io::Error::other("the name of a file is not UTF-8"))?;
        let path = match below {
            "" => name.clone(),
            _ => format!("{below}/{name}"),
        };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(root, &path, found)?;
        } else if kind.is_file() && name != LOCK {
            let (bytes, written) = lengths(&entry.path())?;
            found.push(Candidate {
                path,
                bytes: Bytes(bytes),
                written: Bytes(written),
            });
        }
    }
    Ok(())
}

/// The length of a file, and where the zeros at its end begin.
fn lengths(path: &Path) -> io::Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    let (mut bytes, mut written) = (0_u64, 0_u64);
    loop {
        let read = file.read(&mut buffer)?;
        let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else {
            return Ok((bytes, written));
        };
        if let Some(last) = part.iter().rposition(|byte| *byte != 0) {
            written = bytes + last as u64 + 1;
        }
        bytes += read as u64;
    }
}

/// What the seed chooses: a kind of file first, then a file by its bytes, then what is done to it, and where. `None`: no file is
/// as wished.
fn choose(candidates: &[Candidate], seed: u64, wishes: &Wishes) -> Option<Damage> {
    let mut draws = Draws(seed);
    let how = wishes.kind.unwrap_or_else(|| {
        let of = [
            (How::Flip, 14),
            (How::Cut, 2),
            (How::Zero, 2),
            (How::Empty, 1),
            (How::Lose, 1),
        ];
        draws.weighted(&of).unwrap_or(How::Flip)
    });
    // What a file has no bytes for cannot be done to it.
    let least = if how == How::Lose { 0 } else { 1 };
    let suits = |file: &&Candidate| {
        let is_wanted = wishes.file.as_ref().is_none_or(|path| *path == file.path)
            && wishes
                .files
                .is_none_or(|kind| kind == FileKind::of(&file.path));
        is_wanted && file.bytes.0 >= least && (!wishes.at_end || file.written.0 >= least)
    };
    let suited: Vec<&Candidate> = candidates.iter().filter(suits).collect();
    let mut kinds: Vec<FileKind> = suited.iter().map(|file| FileKind::of(&file.path)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kinds: Vec<(FileKind, u64)> = kinds.iter().map(|kind| (*kind, kind.weight())).collect();
    let files = draws.weighted(&kinds)?;
    let weighed: Vec<(&Candidate, u64)> = suited
        .into_iter()
        .filter(|file| FileKind::of(&file.path) == files)
        .map(|file| (file, file.written.0 + WEIGHT_BYTES))
        .collect();
    let file = draws.weighted(&weighed)?;
    let place = place(file, files, wishes.at_end, &mut draws);
    let (offset, bit) = match how {
        How::Flip => (Some(place), Some(draws.below(8) as u8)),
        How::Cut => (Some(place), None),
        How::Zero => (Some(file.written.0.saturating_sub(ZEROED_BYTES)), None),
        How::Empty | How::Lose => (None, None),
    };
    Some(Damage {
        kind: how,
        file: file.path.clone(),
        files,
        offset,
        bit,
        bytes: file.bytes,
    })
}

/// A byte of a file.
fn place(file: &Candidate, kind: FileKind, at_end: bool, draws: &mut Draws) -> u64 {
    let (Bytes(bytes), Bytes(written)) = (file.bytes, file.written);
    let end = written.saturating_sub(END_BYTES)..written;
    let whole = 0..bytes;
    let ranges = match kind {
        _ if at_end => vec![(end, 1)],
        FileKind::Log => vec![
            (0..written, 5),
            (end, 3),
            (written..bytes, 1),
            (0..HEAD_BYTES.min(written), 1),
        ],
        FileKind::Slots => SLOTS.map(|slot| (slot, 1)).to_vec(),
        _ => vec![(whole.clone(), 1)],
    };
    let ranges: Vec<_> = ranges
        .into_iter()
        .filter(|(range, _)| range.start < range.end && range.end <= bytes)
        .collect();
    let range = draws.weighted(&ranges).unwrap_or(whole);
    range.start + draws.below(range.end - range.start)
}

/// Changes the file, and syncs it.
fn apply(path: &Path, damage: &Damage) -> io::Result<()> {
    if damage.kind == How::Lose {
        fs::remove_file(path)?;
        let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
        return File::open(folder)?.sync_all();
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let offset = damage.offset.unwrap_or_default();
    match damage.kind {
        How::Flip => {
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset)?;
            let flipped = byte.map(|byte| byte ^ (1 << damage.bit.unwrap_or_default()));
            file.write_all_at(&flipped, offset)?;
        }
        How::Zero => {
            let zeros = vec![0; (damage.bytes.0 - offset).min(ZEROED_BYTES) as usize];
            file.write_all_at(&zeros, offset)?;
        }
        // An emptied file has no offset.
        How::Cut | How::Empty | How::Lose => file.set_len(offset)?,
    }
    file.sync_all()
}

/// Numbers from a seed, by SplitMix64: the same ones in each version of this program.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// One of these, by its weight; `None` if there is none.
    fn weighted<T: Clone>(&mut self, of: &[(T, u64)]) -> Option<T> {
        let mut drawn = self.below(of.iter().map(|(_, weight)| weight).sum());
        for (value, weight) in of {
            if drawn < *weight {
                return Some(value.clone());
            }
            drawn -= weight;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SEEDS: u64 = 10_000;

    fn candidates() -> Vec<Candidate> {
        let file = |path: &str, bytes, written| Candidate {
            path: path.to_owned(),
            bytes: Bytes(bytes),
            written: Bytes(written),
        };
        vec![
            file("FORMAT", 99, 99),
            file("alive", 4_120, 4_120),
            file("founded", 0, 0),
            file("inbox/SHARDS", 2, 2),
            file("inbox/shard-0000000000000000/current", 25, 25),
            file("inbox/shard-0000000000000000/tables/0", 1_240, 1_240),
            file("inbox/shard-0000000000000000/v1", 345, 345),
            file("log/entries/0000000000000001.raftlog", 2_097_221, 100_000),
            file("log/entries/0000000000000001.rewrite", 69, 69),
        ]
    }

    fn chosen(wishes: &Wishes) -> Vec<Damage> {
        let all = candidates();
        (0..SEEDS)
            .filter_map(|seed| choose(&all, seed, wishes))
            .collect()
    }

    #[test]
    fn the_same_seed_chooses_the_same_damage() {
        let wishes = Wishes::default();
        assert_eq!(chosen(&wishes), chosen(&wishes));
        let first = choose(&candidates(), 1, &wishes).unwrap();
        assert_ne!(Some(first), choose(&candidates(), 2, &wishes));
    }

    #[test]
    fn each_file_each_kind_and_both_ends_of_the_log_are_chosen() {
        let all = chosen(&Wishes::default());
        let files: BTreeSet<_> = all.iter().map(|damage| damage.file.as_str()).collect();
        assert!(
            candidates()
                .iter()
                .all(|file| files.contains(file.path.as_str()))
        );
        for how in How::value_variants() {
            assert!(all.iter().any(|damage| damage.kind == *how), "{how:?}");
        }
        let of_log = || all.iter().filter(|damage| damage.files == FileKind::Log);
        let offsets = || of_log().filter_map(|damage| damage.offset);
        assert!(offsets().any(|at| at < HEAD_BYTES));
        assert!(offsets().any(|at| (100_000 - END_BYTES..100_000).contains(&at)));
        assert!(offsets().any(|at| at >= 100_000));
        let log = of_log().count();
        assert!(log > all.len() / 4 && log < all.len() / 2, "{log}");
    }

    #[test]
    fn places_are_within_their_files() {
        for damage in chosen(&Wishes::default()) {
            assert!(
                damage.offset.is_none_or(|at| at < damage.bytes.0),
                "{damage:?}"
            );
            let is_flip = damage.kind == How::Flip;
            assert_eq!(damage.bit.is_some(), is_flip, "{damage:?}");
            let is_slots = is_flip && damage.files == FileKind::Slots;
            let at = damage.offset.unwrap_or_default();
            assert!(!is_slots || SLOTS.iter().any(|slot| slot.contains(&at)));
        }
    }

    #[test]
    fn wishes_are_granted_or_nothing_is_chosen() {
        let ends = chosen(&Wishes {
            kind: Some(How::Flip),
            files: Some(FileKind::Log),
            at_end: true,
            ..Wishes::default()
        });
        assert_eq!(ends.len(), SEEDS as usize);
        assert!(ends.iter().all(|damage| {
            let at = damage.offset.unwrap();
            damage.kind == How::Flip && (100_000 - END_BYTES..100_000).contains(&at)
        }));
        let named = |file: &str, kind| Wishes {
            file: Some(file.to_owned()),
            kind,
            ..Wishes::default()
        };
        let shards = chosen(&named("inbox/SHARDS", None));
        assert!(
            shards.len() == SEEDS as usize
                && shards.iter().all(|damage| damage.file == "inbox/SHARDS")
        );
        assert!(chosen(&named("inbox/NONE", None)).is_empty());
        // An empty file can be removed, and nothing else.
        assert!(chosen(&named("founded", Some(How::Flip))).is_empty());
        assert_eq!(
            chosen(&named("founded", Some(How::Lose))).len(),
            SEEDS as usize
        );
    }

    #[test]
    fn kinds_of_files_are_told_by_their_paths() {
        for (path, kind) in [
            ("log/entries/0000000000000001.raftlog", FileKind::Log),
            ("log/entries/0000000000000001.rewrite", FileKind::Rewrite),
            ("inbox/shard-0000000000000003/tables/17", FileKind::Table),
            ("inbox/shard-0000000000000003/v12", FileKind::List),
            ("inbox/shard-0000000000000003/current", FileKind::List),
            ("inbox/SHARDS.check", FileKind::Text),
            ("session.made", FileKind::Text),
            ("log/FORMAT", FileKind::Text),
            ("incarnation", FileKind::Slots),
            ("cluster", FileKind::Cluster),
            ("cluster.stamps", FileKind::Cluster),
            ("inbox/FORMAT.copy", FileKind::Text),
            ("cluster.stamps.copy", FileKind::Cluster),
            ("reserve", FileKind::Other),
            ("inbox/shard-0000000000000003/version", FileKind::Other),
        ] {
            assert_eq!(FileKind::of(path), kind, "{path}");
        }
    }

    /// A folder as a node makes it, as far as this command looks at it.
    fn data_folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join(FORMAT),
            "heraldmq data folder, format 5\n",
        )
        .unwrap();
        fs::write(folder.path().join(LOCK), "").unwrap();
        fs::create_dir(folder.path().join("log")).unwrap();
        fs::write(folder.path().join("log/1.raftlog"), [7_u8; 9_000]).unwrap();
        folder
    }

    fn of_log(kind: How) -> Wishes {
        Wishes {
            kind: Some(kind),
            files: Some(FileKind::Log),
            ..Wishes::default()
        }
    }

    #[test]
    fn what_is_said_is_what_was_done() {
        for how in How::value_variants() {
            let folder = data_folder();
            let log = folder.path().join("log/1.raftlog");
            let done = damage(folder.path(), 3, &of_log(*how)).unwrap();
            assert_eq!((done.kind, done.bytes), (*how, Bytes(9_000)));
            let at = done.offset.unwrap_or_default() as usize;
            let mut expected = vec![7_u8; 9_000];
            match how {
                How::Flip => expected[at] ^= 1 << done.bit.unwrap(),
                How::Cut => expected.truncate(at),
                How::Zero => expected[9_000 - 4_096..].fill(0),
                How::Empty => expected.clear(),
                How::Lose => {
                    assert!(!log.exists());
                    continue;
                }
            }
            assert!(fs::read(&log).unwrap() == expected, "{done}");
        }
    }

    #[test]
    fn folders_that_are_in_use_or_no_data_folders_are_refused_and_left_alone() {
        let folder = data_folder();
        let lock = File::open(folder.path().join(LOCK)).unwrap();
        lock.lock_shared().unwrap();
        let refused = |folder: &Path| match damage(folder, 3, &of_log(How::Lose)) {
            Err(Failure::Runtime(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(refused(folder.path()).contains("in use by another process"));
        drop(lock);
        fs::write(folder.path().join(FORMAT), "something else\n").unwrap();
        assert!(refused(folder.path()).contains("no data folder"));
        assert!(folder.path().join("log/1.raftlog").exists());
    }
}
