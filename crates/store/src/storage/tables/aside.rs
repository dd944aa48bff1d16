//! Damaged tables that were replaced: they are kept for people to look at.
//!
//! A damaged table is moved to `damaged/N-shard-…` in the folder of its store; a higher N is later. Nothing reads it again.
//!
//! Invariant: after each move at most [`KEPT`] tables are kept, of at most [`KEPT_BYTES`] together; the oldest are removed first.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Tables, TablesError, folder_of};
use crate::storage::folder::{make_directory, sync_directory};

/// The folder of the damaged tables, in that of the store.
pub(super) const DAMAGED: &str = "damaged";

/// Damaged tables that are kept for each store.
const KEPT: usize = 3;

/// Bytes of files of all of them.
const KEPT_BYTES: u64 = 1024 * 1024 * 1024;

impl Tables {
    /// Moves the table of a shard to the damaged ones, if there is one, and removes the oldest of these that are too many.
    ///
    /// # Errors
    /// A handle to it is still held, or the folder of the store cannot be read or written.
    pub(crate) fn set_aside(&self, id: u64) -> Result<(), TablesError> {
        let open = self.open.lock();
        let name = folder_of(id);
        let folder = self.folder.join(&name);
        if open.get(&id).is_some_and(|shard| shard.strong_count() > 0) {
            return Err(TablesError::StillOpen { folder });
        }
        if !folder.exists() {
            return Ok(());
        }
        let damaged = self.folder.join(DAMAGED);
        let moved = move_to(&damaged, &folder, &name).and_then(|()| sync_directory(&self.folder));
        moved.map_err(|reason| TablesError::io(&folder, &reason))?;
        drop(open);
        keep_newest(&damaged, KEPT, KEPT_BYTES).map_err(|reason| TablesError::io(&damaged, &reason))
    }
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
    use store_state::Changes;

    use super::super::TablesOptions;
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
        let tables = Tables::open(at.path(), TablesOptions::default()).unwrap();
        for shard in 1..=5 {
            let table = tables.shard(shard).unwrap();
            table.write(&Changes::default(), b"mark").unwrap();
            let in_use = tables.set_aside(shard);
            assert!(matches!(in_use, Err(TablesError::StillOpen { .. })));
            drop(table);
            tables.set_aside(shard).unwrap();
            assert_eq!(tables.shards().unwrap(), [], "it is moved");
            tables.set_aside(shard).unwrap();
        }
        let damaged = at.path().join(DAMAGED);
        let expected = [
            "3-shard-0000000000000003",
            "4-shard-0000000000000004",
            "5-shard-0000000000000005",
        ];
        assert_eq!(names(&damaged), expected);
        // They survive the next start, and are no tables of a shard.
        drop(tables);
        let tables = Tables::open(at.path(), TablesOptions::default()).unwrap();
        assert_eq!(tables.shards().unwrap(), []);
        assert_eq!(names(&damaged), expected);
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
