//! Tells a torn tail from damage.
//!
//! raft-engine cuts the last file at the first batch that it cannot read. After a power loss that is right:
//! the batch was not synced, and nothing behind it was written. But a flipped bit in the middle of the file
//! looks the same to it, and all that follows, acknowledged, would be cut off. The difference: one batch
//! at a time is written and synced, so behind a torn one there is never a whole one.
//!
//! Deliberately absent: the last batch itself, which torn or flipped looks the same; the entries within
//! batches, which have a checksum of their own that is verified when they are read.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::Files;
use crate::log::LogError;

/// Suffix of the files that are appended to, after 16 digits.
const APPENDED: &str = ".raftlog";

/// Suffix of the files that hold what was still needed of deleted ones.
const REWRITTEN: &str = ".rewrite";

/// Bytes of a file's header in version 2: magic, version, alignment.
const FILE_HEADER: usize = 53 + 8 + 8;

/// Bytes of a batch's header: length and compression, offset of the footer.
const BATCH_HEADER: usize = 16;

const CHECKSUM: usize = 4;

/// Fails when the newest file of `folder` is damaged elsewhere than at its end.
pub(crate) fn check_newest_file(files: &dyn Files, folder: &Path) -> Result<(), LogError> {
    let failed = |error| LogError::Io {
        path: folder.to_owned(),
        error,
    };
    let Some((sequence, path)) = log_files(folder, APPENDED).map_err(failed)?.pop() else {
        return Ok(());
    };
    let content = read(files, &path).map_err(failed)?;
    match damage(&content, sequence) {
        None => Ok(()),
        Some(offset) => Err(LogError::Damaged { path, offset }),
    }
}

/// All files of a log.
pub(crate) fn all_files(folder: &Path) -> io::Result<impl Iterator<Item = PathBuf>> {
    let files = [log_files(folder, APPENDED)?, log_files(folder, REWRITTEN)?];
    Ok(files.into_iter().flatten().map(|(_, path)| path))
}

/// Bytes behind the last whole batch of the newest file that are not zeros for bytes to come.
pub(crate) fn torn_bytes(files: &dyn Files, folder: &Path) -> io::Result<u64> {
    let Some((sequence, path)) = log_files(folder, APPENDED)?.pop() else {
        return Ok(0);
    };
    let content = read(files, &path)?;
    let whole = whole_until(&content, sequence as u32).min(content.len());
    let torn = content[whole..].iter().rposition(|byte| *byte != 0);
    Ok(torn.map_or(0, |last| last as u64 + 1))
}

/// The first place in files before the newest ones that the engine cannot have liked.
pub(crate) fn find_damage(files: &dyn Files, folder: &Path) -> io::Result<Option<(PathBuf, u64)>> {
    for suffix in [APPENDED, REWRITTEN] {
        let mut older = log_files(folder, suffix)?;
        older.pop();
        for (sequence, path) in older {
            let content = read(files, &path)?;
            let whole = whole_until(&content, sequence as u32);
            if whole < content.len() {
                return Ok(Some((path, whole as u64)));
            }
        }
    }
    Ok(None)
}

/// Where the first broken batch begins that has a whole one somewhere behind it.
fn damage(content: &[u8], sequence: u64) -> Option<u64> {
    // The engine signs checksums with the low half of the file's number.
    let signature = sequence as u32;
    let broken = whole_until(content, signature);
    let mut behind = broken + 1..content.len();
    behind
        .any(|offset| batch_len(content, offset, signature).is_some())
        .then_some(broken as u64)
}

/// Where the first batch begins that is not whole.
fn whole_until(content: &[u8], signature: u32) -> usize {
    let mut offset = FILE_HEADER;
    while let Some(len) = batch_len(content, offset, signature) {
        offset += len;
    }
    offset
}

/// The length of the batch that begins here, when its header and its footer are whole.
fn batch_len(content: &[u8], offset: usize, signature: u32) -> Option<usize> {
    let batch = content.get(offset..)?;
    let (len_and_compression, rest) = batch.split_first_chunk()?;
    let (footer, _) = rest.split_first_chunk()?;
    let len = usize::try_from(u64::from_be_bytes(*len_and_compression) >> 8).ok()?;
    let footer = usize::try_from(u64::from_be_bytes(*footer)).ok()?;
    if footer < BATCH_HEADER || len > batch.len() || footer >= len {
        return None;
    }
    let (items, checksum) = batch[footer..len].split_last_chunk::<CHECKSUM>()?;
    let whole =
        !items.is_empty() && crc32fast::hash(items) == u32::from_le_bytes(*checksum) ^ signature;
    whole.then_some(len)
}

/// Files with this suffix and their numbers, ascending.
fn log_files(folder: &Path, suffix: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        found.extend(sequence(&path, suffix).map(|sequence| (sequence, path)));
    }
    found.sort();
    Ok(found)
}

fn sequence(path: &Path, suffix: &str) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(suffix)?.parse().ok()
}

fn read(files: &dyn Files, path: &Path) -> io::Result<Vec<u8>> {
    let file = files.open(path, false)?;
    let mut content = vec![0; usize::try_from(file.size()?).map_err(io::Error::other)?];
    let mut filled = 0;
    while filled < content.len() {
        match file.read_at(&mut content[filled..], filled as u64)? {
            0 => break,
            len => filled += len,
        }
    }
    content.truncate(filled);
    Ok(content)
}
