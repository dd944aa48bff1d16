//! What is checked of a table's folder before it is opened.
//!
//! Purpose: `lsm-tree` 3.1 writes a checksum of the list of files into `current`, but does not compare it,
//! and takes a folder without `current` for a new one. Both would turn damage into missing records. And it
//! asks for memory for as many sections as a sorted file says it has before it checks that number: one
//! flipped bit, and the process ends for want of 80 GB.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use super::TablesError;

/// The length of `current`: number of the list, checksum, kind of checksum.
const CURRENT_BYTES: usize = 8 + 16 + 1;

/// Compares the list of files with its checksum, and refuses a folder that has lost its list.
///
/// # Errors
/// The folder is damaged or cannot be read.
pub(super) fn check(folder: &Path) -> Result<(), TablesError> {
    let damaged = |reason: &str| TablesError::Damaged {
        folder: folder.to_owned(),
        reason: reason.to_owned(),
    };
    let io = |reason: io::Error| TablesError::io(folder, &reason);
    let current = match fs::read(folder.join("current")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match holds_files(&folder.join("tables")).map_err(io)? {
                false => Ok(()),
                true => Err(damaged("the file `current` is missing")),
            };
        }
        read => read.map_err(io)?,
    };
    List::of(folder, current)?;
    for entry in fs::read_dir(folder.join("tables")).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if has_absurd_sections(&path).map_err(io)? {
            let reason = format!("{} has no table of contents", path.display());
            return Err(damaged(&reason));
        }
    }
    Ok(())
}

/// The list of the files that count.
pub(super) struct List {
    /// The name of its file.
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    /// The file that points to it.
    pub(super) current: Vec<u8>,
}

impl List {
    /// Whether it has this number.
    pub(super) fn is_of(&self, number: u64) -> bool {
        self.name == name_of(number)
    }

    fn of(folder: &Path, current: Vec<u8>) -> Result<Self, TablesError> {
        let damaged = |reason: String| TablesError::Damaged {
            folder: folder.to_owned(),
            reason,
        };
        let Some((number, checksum)) = parse(&current) else {
            return Err(damaged("the file `current` cannot be understood".into()));
        };
        let name = name_of(number);
        let read = fs::read(folder.join(&name));
        let bytes = read.map_err(|reason| TablesError::io(folder, &reason))?;
        if xxh3_128(&bytes) != checksum {
            return Err(damaged(format!("the file `{name}` fails its checksum")));
        }
        Ok(Self {
            name,
            bytes,
            current,
        })
    }
}

fn name_of(number: u64) -> String {
    format!("v{number}")
}

/// The list of a table that may be changed at the same time; `None`: it was replaced while it was read.
///
/// # Errors
/// The folder is damaged or cannot be read.
pub(super) fn read_list(folder: &Path) -> Result<Option<List>, TablesError> {
    let read = || {
        let current = fs::read(folder.join("current"));
        current.map_err(|reason| TablesError::io(folder, &reason))
    };
    let current = read()?;
    match List::of(folder, current.clone()) {
        Err(error) => match read()? == current {
            true => Err(error),
            false => Ok(None),
        },
        list => list.map(Some),
    }
}

/// The end of a sorted file: magic 4, version 1, kind of checksum 1, checksum 16, position and length of
/// the table of contents 8 each. That table begins with magic 4 and number of sections 4.
const TRAILER_BYTES: usize = 38;
const POSITION_AT: usize = 22;
/// More sections than any sorted file has.
const SECTIONS_MOST: u32 = 64;

/// Whether a sorted file names so many sections that opening it is no good. One that is cut off or
/// otherwise damaged is left to `lsm-tree`, which knows whether it counts.
fn has_absurd_sections(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let mut trailer = [0; TRAILER_BYTES];
    let Some(end) = file.metadata()?.len().checked_sub(TRAILER_BYTES as u64) else {
        return Ok(false);
    };
    file.read_exact_at(&mut trailer, end)?;
    let mut position = [0; 8];
    position.copy_from_slice(&trailer[POSITION_AT..POSITION_AT + 8]);
    let position = u64::from_le_bytes(position);
    if position.saturating_add(8) > end {
        return Ok(false);
    }
    let (mut magic, mut sections) = ([0; 4], [0; 4]);
    file.read_exact_at(&mut magic, position)?;
    file.read_exact_at(&mut sections, position + 4)?;
    Ok(magic == *b"TOC!" && u32::from_le_bytes(sections) > SECTIONS_MOST)
}

/// Number and checksum of the list; the kind of checksum is always 0, xxh3 of 128 bits.
fn parse(current: &[u8]) -> Option<(u64, u128)> {
    let current: &[u8; CURRENT_BYTES] = current.try_into().ok()?;
    let (list, rest) = current.split_first_chunk::<8>()?;
    let (checksum, kind) = rest.split_first_chunk::<16>()?;
    (kind == [0]).then(|| (u64::from_le_bytes(*list), u128::from_le_bytes(*checksum)))
}

fn holds_files(tables: &Path) -> io::Result<bool> {
    match fs::read_dir(tables) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        entries => Ok(entries?.next().is_some()),
    }
}
