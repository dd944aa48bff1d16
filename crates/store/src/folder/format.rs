//! The `FORMAT` file: what a folder holds, of which node, in which format.
//!
//! Three lines of text, so that people can read it:
//!
//! ```text
//! heraldmq data folder, format 1
//! node 9f3c6a5e01b2d847
//! check 5d1e0c7a9b3f2846
//! ```
//!
//! Invariant: the first line of every later format has the same form, so that its number can be told.

use std::path::Path;
use std::{fs, io};

use xxhash_rust::xxh3::xxh3_64;

use super::{FolderError, durable};

/// The format this program reads and writes.
pub(crate) const FORMAT: u32 = 1;
/// The name of the file.
pub(super) const FORMAT_FILE: &str = "FORMAT";

/// Reads which node a folder belongs to; `None` if there is no `FORMAT` file.
///
/// # Errors
/// It cannot be read, is damaged, of a newer format, or of a folder of another kind than `what`.
pub(super) fn read(folder: &Path, what: &str) -> Result<Option<u64>, FolderError> {
    let path = folder.join(FORMAT_FILE);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|reason| FolderError::io(&path, reason))?,
    };
    let damaged = || FolderError::Damaged { path: path.clone() };
    let text = str::from_utf8(&bytes).map_err(|_| damaged())?;
    let (found_what, format) = first_line(text).ok_or_else(damaged)?;
    if format > FORMAT {
        return Err(FolderError::Newer {
            folder: folder.to_owned(),
            found: format,
            known: FORMAT,
        });
    }
    let node = node_line(text).ok_or_else(damaged)?;
    if text != render(found_what, node) {
        return Err(damaged());
    }
    if found_what != what {
        return Err(FolderError::OtherKind {
            folder: folder.to_owned(),
            found: found_what.to_owned(),
            wanted: what.to_owned(),
        });
    }
    Ok(Some(node))
}

/// Writes the file; it is on disk at return.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(folder: &Path, what: &str, node: u64) -> Result<(), FolderError> {
    let path = folder.join(FORMAT_FILE);
    durable::write_whole(&path, render(what, node).as_bytes())
        .map_err(|reason| FolderError::io(&path, reason))
}

fn render(what: &str, node: u64) -> String {
    let lines = format!("heraldmq {what}, format {FORMAT}\nnode {node:016x}\n");
    let check = xxh3_64(lines.as_bytes());
    format!("{lines}check {check:016x}\n")
}

/// What the folder is, and its format.
fn first_line(text: &str) -> Option<(&str, u32)> {
    let line = text.lines().next()?;
    let (what, format) = line.strip_prefix("heraldmq ")?.split_once(", format ")?;
    Some((what, format.parse().ok()?))
}

fn node_line(text: &str) -> Option<u64> {
    let digits = text.lines().nth(1)?.strip_prefix("node ")?;
    u64::from_str_radix(digits, 16).ok()
}
