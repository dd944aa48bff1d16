//! Writes a new log from what is left of a damaged one, and puts it in its place.
//!
//! The new log is written beside the old one and synced. Then `MENDING` says that the files of the old one are moved to
//! `damaged/N`, then that those of the new one are moved in; a start goes on where a crash has ended this. The old files
//! stay in `damaged`, the last [`KEPT`] of them.
//!
//! Invariant: no file of the old log is removed before the new log is synced, and none of the last one at all.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use raft_engine::LogBatch;

use crate::check::Check;
use crate::disk::Health;
use crate::ends::{self, Count, Ends, EndsFile, GroupEnd, Known};
use crate::engine::{open_engine, to_io};
use crate::files::{Files, PRIVATE_FILE};
use crate::folder::{PRIVATE_FOLDER, sync_folder};
use crate::log_error::LogError;
use crate::log_files::{LogFile, list};
use crate::loss::apart;
use crate::options::LogOptions;
use crate::record::{Record, Records};
use crate::replay::{EntryReader, Left, Remains};

/// Damaged logs that are kept, for people who want to look at them.
const KEPT: usize = 3;

/// About how many bytes of entries are written at once.
const BATCH_BYTES: usize = 1 << 20;

const MARKER: &str = "MENDING";
const NEW_MARKER: &str = "MENDING.new";

/// What `MENDING` says first: the old files are moved out. Behind it stands the number of their folder.
const OUT: &str = "out ";

/// And then: the new ones are moved in.
const IN: &str = "in";

/// The folder in which the new log is written.
fn new_entries(folder: &Path) -> PathBuf {
    folder.join("entries.new")
}

/// Whether a new log is being put in place of a damaged one.
pub(crate) fn goes_on(folder: &Path) -> bool {
    folder.join(MARKER).exists()
}

/// Writes what is left of the log whose files are in `from` into a log in `to`, an empty folder.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn write(
    files: &Arc<dyn Files>,
    from: &Path,
    to: &Path,
    remains: &Remains,
    options: &LogOptions,
) -> Result<(), LogError> {
    let failed = |error: io::Error| LogError::Io {
        path: to.to_owned(),
        error,
    };
    make_folder(to).map_err(failed)?;
    let health = Arc::new(Health::default());
    let engine = open_engine(options, to, files.clone(), &health)
        .map_err(to_io)
        .map_err(failed)?;
    let mut reader = EntryReader::new(&**files, from);
    for left in &remains.groups {
        let [entries, behind] = left.records(&mut reader).map_err(failed)?;
        for mut batch in batches(left, &entries, &behind).map_err(failed)? {
            engine
                .write(&mut batch, false)
                .map_err(to_io)
                .map_err(failed)?;
        }
    }
    engine.sync().map_err(to_io).map_err(failed)?;
    match health.failure() {
        Some(failure) => Err(failed(io::Error::other(failure.to_owned()))),
        None => sync_folder(to).map_err(failed),
    }
}

/// What is written of a group.
fn batches(left: &Left, entries: &[Record], behind: &[Record]) -> io::Result<Vec<LogBatch>> {
    let mut batches = vec![LogBatch::default()];
    let mut bytes = 0;
    let group = left.group.0;
    let all = [(group, entries), (apart(group), behind)];
    for (group, record) in all
        .into_iter()
        .flat_map(|(group, records)| records.iter().map(move |record| (group, record)))
    {
        if bytes >= BATCH_BYTES {
            batches.push(LogBatch::default());
            bytes = 0;
        }
        bytes += record.len();
        if let Some(batch) = batches.last_mut() {
            let added = batch.add_entries::<Records>(group, std::slice::from_ref(record));
            added.map_err(to_io)?;
        }
    }
    if let Some(batch) = batches.last_mut() {
        for (key, value) in &left.values {
            let put = batch.put(group, key.clone(), value.clone());
            put.map_err(to_io)?;
        }
    }
    batches.retain(|batch| !batch.is_empty());
    Ok(batches)
}

/// Puts a new log with what is left in place of the damaged one in the log's folder.
///
/// # Errors
/// A file cannot be read, written or moved.
pub(crate) fn mend(
    files: &Arc<dyn Files>,
    folder: &Path,
    entries: &Path,
    remains: &Remains,
    known: Option<&Known>,
    options: &LogOptions,
) -> Result<(), LogError> {
    let failed = |error| LogError::Io {
        path: folder.to_owned(),
        error,
    };
    let new = new_entries(folder);
    clear(&**files, &new).map_err(failed)?;
    write(files, entries, &new, remains, options)?;
    let number = next_number(&damaged(folder)).map_err(failed)?;
    mark(folder, &format!("{OUT}{number}")).map_err(failed)?;
    // As long as the new log is not in place, this names files that are not there: `go_on` writes it again.
    go_on(files, folder, entries).map_err(failed)?;
    let (count, groups) = match known {
        Some(known) => (known.count, Some(&known.ends.groups)),
        None => (Count::default(), None),
    };
    let check = Check::of(&**files, entries, None).map_err(failed)?;
    let end = |left: &Left| {
        let known = groups.and_then(|groups| groups.get(&left.group.0));
        left.end(known.copied().unwrap_or_default())
    };
    let groups = remains.groups.iter().map(|left| (left.group.0, end(left)));
    let ends = Ends {
        is_orderly: false,
        files: check.ends,
        groups: groups
            .filter(|(_, end)| *end != GroupEnd::default())
            .collect(),
    };
    let written = EndsFile::new(files.clone(), folder, count).write(&ends);
    written.and_then(|()| unmark(folder)).map_err(failed)
}

/// Goes on with what a crash has ended: after this the files of one log are in `entries`, and `ends` is of that one.
///
/// # Errors
/// A file cannot be moved or written.
pub(crate) fn finish(
    files: &Arc<dyn Files>,
    folder: &Path,
    entries: &Path,
) -> Result<(), LogError> {
    let failed = |error| LogError::Io {
        path: folder.to_owned(),
        error,
    };
    if !goes_on(folder) {
        return clear(&**files, &new_entries(folder)).map_err(failed);
    }
    go_on(files, folder, entries).map_err(failed)?;
    let known = ends::read(&**files, folder).map_err(failed)?;
    let Known {
        count, mut ends, ..
    } = known.unwrap_or_default();
    let check = Check::of(&**files, entries, None).map_err(failed)?;
    ends.files = check.ends;
    ends.is_orderly = false;
    let written = EndsFile::new(files.clone(), folder, count).write(&ends);
    written.and_then(|()| unmark(folder)).map_err(failed)
}

/// Moves files as the marker says.
fn go_on(files: &Arc<dyn Files>, folder: &Path, entries: &Path) -> io::Result<()> {
    let said = fs::read_to_string(folder.join(MARKER))?;
    if let Some(number) = said.strip_prefix(OUT) {
        let number: u64 = number.trim().parse().map_err(io::Error::other)?;
        let out = damaged(folder).join(number.to_string());
        make_folder(&out)?;
        move_all(&**files, entries, &out)?;
        forget_oldest(&**files, &damaged(folder), number)?;
        mark(folder, IN)?;
    }
    let new = new_entries(folder);
    if new.is_dir() {
        move_all(&**files, &new, entries)?;
        clear(&**files, &new)?;
    }
    Ok(())
}

fn move_all(files: &dyn Files, from: &Path, to: &Path) -> io::Result<()> {
    for file in list(from)? {
        files.rename(&file.path(from), &file.path(to))?;
    }
    sync_folder(to)?;
    sync_folder(from)
}

/// Makes a folder empty that may not be there, and makes it.
fn clear(files: &dyn Files, folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        for file in list(folder)? {
            files.delete(&file.path(folder))?;
        }
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}

fn damaged(folder: &Path) -> PathBuf {
    folder.join("damaged")
}

fn numbers(damaged: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    if damaged.is_dir() {
        for entry in fs::read_dir(damaged)? {
            let name = entry?.file_name();
            numbers.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn next_number(damaged: &Path) -> io::Result<u64> {
    Ok(numbers(damaged)?.last().map_or(1, |last| last + 1))
}

fn forget_oldest(files: &dyn Files, damaged: &Path, newest: u64) -> io::Result<()> {
    let older: Vec<u64> = numbers(damaged)?
        .into_iter()
        .filter(|number| *number < newest)
        .collect();
    let many = (older.len() + 1).saturating_sub(KEPT);
    for number in older.into_iter().take(many) {
        clear(files, &damaged.join(number.to_string()))?;
    }
    Ok(())
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_FOLDER)
        .create(path)
}

fn mark(folder: &Path, what: &str) -> io::Result<()> {
    let new = folder.join(NEW_MARKER);
    let mut options = fs::File::options();
    options.write(true).create(true).truncate(true);
    let mut file = options.mode(PRIVATE_FILE).open(&new)?;
    file.write_all(what.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, folder.join(MARKER))?;
    sync_folder(folder)
}

fn unmark(folder: &Path) -> io::Result<()> {
    fs::remove_file(folder.join(MARKER))?;
    sync_folder(folder)
}

/// Files that are missing at the front though `ends` names them.
pub(crate) fn missing_oldest(known: &Known, check: &Check) -> Vec<LogFile> {
    let named = known.synced.keys();
    named
        .filter(|file| !check.ends.contains_key(file))
        .copied()
        .collect()
}
