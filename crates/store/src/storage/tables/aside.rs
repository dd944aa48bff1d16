//! Damaged tables that were replaced: they are kept for people to look at.
//!
//! A damaged table is moved to `damaged/N-shard-…` in the folder of its store; a higher N is later. Nothing reads it again.
//!
//! Invariant: after each move at most [`KEPT`] tables are kept, of at most [`KEPT_BYTES`] together; the oldest are removed first.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::storage::folder::{make_directory, sync_directory};

/// The folder of the damaged tables, in that of the store.
pub(super) const DAMAGED: &str = "damaged";

/// Damaged tables that are kept for each store.
const KEPT: usize = 3;

/// Bytes of files of all of them.
const KEPT_BYTES: u64 = 1024 * 1024 * 1024;

/// Moves the table in `folder`, which has this name in the folder of the store, to the damaged ones, and removes the oldest of these
/// that are too many.
///
/// # Errors
/// A folder cannot be read or written.
pub(super) fn set_aside(store: &Path, folder: &Path, name: &str) -> io::Result<()> {
    let damaged = store.join(DAMAGED);
    move_to(&damaged, folder, name)?;
    sync_directory(store)?;
    keep_newest(&damaged, KEPT, KEPT_BYTES)
}

fn move_to(damaged: &Path, folder: &Path, name: &str) -> io::Result<()> {
    make_directory(damaged)?;
    let newest = in_order(damaged)?.last().map_or(0, |(number, _)| *number);
    fs::rename(
        folder,
        damaged.join(format!("{}-{name}", newest.saturating_add(1))),
    )?;
    sync_directory(damaged)
}

/// The damaged tables, the oldest first. What people have put there is none.
fn in_order(damaged: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(damaged)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.split_once('-'));
        if let Some(number) = number.and_then(|(number, _)| number.parse().ok()) {
            found.push((number, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes the oldest damaged tables until so many and so many bytes are left.
fn keep_newest(damaged: &Path, most: usize, most_bytes: u64) -> io::Result<()> {
    let (mut kept, mut bytes) = (0, 0);
    for (_, folder) in in_order(damaged)?.into_iter().rev() {
        kept += 1;
        bytes += bytes_of(&folder)?;
        if kept > most || bytes > most_bytes {
            fs::remove_dir_all(&folder)?;
        }
    }
    Ok(())
}

/// Bytes of the files in a folder, and in the folders in it.
fn bytes_of(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += match about.is_dir() {
            true => bytes_of(&entry.path())?,
            false => about.len(),
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(damaged: &Path) -> Vec<String> {
        let found = in_order(damaged).unwrap();
        let name = |(_, path): (u64, PathBuf)| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        found.into_iter().map(name).collect()
    }

    #[test]
    fn the_three_newest_damaged_tables_are_kept() {
        let at = tempfile::tempdir().unwrap();
        for shard in 1..=5 {
            let name = format!("shard-{shard}");
            let folder = at.path().join(&name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("current"), "1").unwrap();
            set_aside(at.path(), &folder, &name).unwrap();
            assert!(!folder.exists(), "it is moved");
        }
        let damaged = at.path().join(DAMAGED);
        assert_eq!(names(&damaged), ["3-shard-3", "4-shard-4", "5-shard-5"]);
        assert!(damaged.join("3-shard-3/current").exists());
    }

    #[test]
    fn damaged_tables_with_too_many_bytes_are_removed_the_oldest_first() {
        let at = tempfile::tempdir().unwrap();
        for number in [9, 10, 11] {
            let tables = at.path().join(format!("{number}-shard-0/tables"));
            fs::create_dir_all(&tables).unwrap();
            fs::write(tables.join("1"), [0; 100]).unwrap();
        }
        fs::write(at.path().join("notes"), "of a person").unwrap();
        keep_newest(at.path(), 3, 250).unwrap();
        assert_eq!(names(at.path()), ["10-shard-0", "11-shard-0"]);
        keep_newest(at.path(), 3, 99).unwrap();
        assert_eq!(names(at.path()), [""; 0]);
        assert!(at.path().join("notes").exists());
    }
}
