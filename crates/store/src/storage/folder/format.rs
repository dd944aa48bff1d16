//! The `FORMAT` file: what a folder holds, of which node, in which format.
//!
//! A few lines of text, so that people can read it:
//!
//! ```text
//! heraldmq data folder, format 2
//! node 9f3c6a5e01b2d847
//! names 01b2d8479f3c6a5e
//! check 5d1e0c7a9b3f2846
//! ```
//!
//! The third line is the seed of the hash of names, which is a secret of the cluster. Format 1, which the folders of
//! the stores still have, is without it: then it is 0. A data folder has format 3, which is written like format 2, once a
//! shard was split in it: programs that know of no splits would take half of a shard for the whole. From 4 on the number is the
//! highest level of its shards (`store_state::Level`), and all else is as in format 2.
//!
//! The file has a copy (`durable_file`), since nothing in the folder can be used without it.
//!
//! Invariant: the first line of every later format has the same form, so that its number can be told, and the last line is a checksum of
//! those before it.

use std::path::{Path, PathBuf};

use durable_file::Repair;
use xxhash_rust::xxh3::xxh3_64;

use store_state::Level;

use super::FolderError;

/// The newest format this program knows.
const NEWEST: u32 = Level::NEWEST.0;
/// The format of data folders in which shards were split.
pub(super) const SPLIT: u32 = 3;
/// The format of data folders in which no shard was split.
pub(super) const SEEDED: u32 = 2;
/// The format of folders that have no seed.
pub(super) const UNSEEDED: u32 = 1;
/// The name of the file.
pub(super) const FORMAT_FILE: &str = "FORMAT";

/// What the file says beside the kind of the folder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) format: u32,
    /// Which node it belongs to.
    pub(super) node: u64,
    /// The seed of the hash of names; 0 in folders of the first format.
    pub(super) seed: u64,
}

/// Reads what a folder is, from the copy if the file is damaged or missing; `None` if there is no `FORMAT` file. Changes nothing.
///
/// # Errors
/// It cannot be read, is damaged, of a newer format, or of a folder of another kind than `what`.
pub(super) fn read(folder: &Path, what: &str) -> Result<Option<Label>, FolderError> {
    let path = folder.join(FORMAT_FILE);
    let found = durable_file::read(&path, is_whole);
    let bytes = match found.map_err(|reason| FolderError::io(&path, reason))? {
        None => return Ok(None),
        Some(found) => found.bytes,
    };
    let damaged = || FolderError::Damaged { path: path.clone() };
    let text = str::from_utf8(&bytes).map_err(|_| damaged())?;
    let (found_what, format) = first_line(text).ok_or_else(damaged)?;
    if format > NEWEST {
        return Err(FolderError::Newer {
            folder: folder.to_owned(),
            found: format,
            known: NEWEST,
        });
    }
    let line = |number, name| number_in_line(text, number, name).ok_or_else(damaged);
    let label = Label {
        format,
        node: line(1, "node")?,
        seed: if format == UNSEEDED {
            0
        } else {
            line(2, "names")?
        },
    };
    if text != render(found_what, label) {
        return Err(damaged());
    }
    if found_what != what {
        return Err(FolderError::OtherKind {
            folder: folder.to_owned(),
            found: found_what.to_owned(),
            wanted: what.to_owned(),
        });
    }
    Ok(Some(label))
}

/// Whether the folder has the file, or its copy.
pub(super) fn is_there(folder: &Path) -> bool {
    let path = folder.join(FORMAT_FILE);
    path.exists() || durable_file::copy_of(&path).exists()
}

/// Writes the file or its copy again if one of them is damaged or missing. The folder is this process's.
pub(super) fn repair(folder: &Path) -> Repair {
    durable_file::repair(&folder.join(FORMAT_FILE), is_whole)
}

/// The file, if it is damaged or missing, and its copy is whole.
pub(super) fn read_from_copy(folder: &Path) -> Option<PathBuf> {
    let path = folder.join(FORMAT_FILE);
    let found = durable_file::read(&path, is_whole).ok()??;
    found.is_of_copy.then_some(path)
}

/// Whether the bytes of a file are those that were written. A folder of a newer format is never taken for one of an older format,
/// whatever its copy says.
fn is_whole(bytes: &[u8]) -> bool {
    let text = str::from_utf8(bytes).ok();
    if text
        .and_then(first_line)
        .is_some_and(|(_, format)| format > NEWEST)
    {
        return true;
    }
    let lines = text.and_then(|text| text.rfind("check ").and_then(|at| text.get(..at)));
    lines.is_some_and(|lines| format!("{lines}{}", check_line(lines)).as_bytes() == bytes)
}

fn check_line(lines: &str) -> String {
    format!("check {:016x}\n", xxh3_64(lines.as_bytes()))
}

/// Writes the file and its copy; they are on disk at return.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(folder: &Path, what: &str, label: Label) -> Result<(), FolderError> {
    let path = folder.join(FORMAT_FILE);
    durable_file::write(&path, render(what, label).as_bytes())
        .map_err(|reason| FolderError::io(&path, reason))
}

fn render(what: &str, label: Label) -> String {
    let Label { format, node, seed } = label;
    let mut lines = format!("heraldmq {what}, format {format}\nnode {node:016x}\n");
    if format != UNSEEDED {
        lines += &format!("names {seed:016x}\n");
    }
    lines += &check_line(&lines);
    lines
}

/// What the folder is, and its format.
fn first_line(text: &str) -> Option<(&str, u32)> {
    let line = text.lines().next()?;
    let (what, format) = line.strip_prefix("heraldmq ")?.split_once(", format ")?;
    Some((what, format.parse().ok()?))
}

fn number_in_line(text: &str, line: usize, name: &str) -> Option<u64> {
    let digits = text.lines().nth(line)?.strip_prefix(name)?;
    u64::from_str_radix(digits.strip_prefix(' ')?, 16).ok()
}
