//! The journal that the preloaded library writes (`shim/powerloss.c`), read back.

use std::io;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

const MAGIC: u32 = 0x4c52_5750;
const HEADER: usize = 48;

/// One operation on a file or name, in the order of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    /// Of the file or folder.
    pub(super) inode: u64,
    pub(super) operation: Operation,
}

/// Paths are relative to the folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Write {
        offset: u64,
        size_before: u64,
        /// What stood there; shorter than `new` where the file ended.
        old: Vec<u8>,
        new: Vec<u8>,
    },
    Resize {
        size: u64,
        size_before: u64,
        /// What was cut off.
        old: Vec<u8>,
    },
    Create(PathBuf),
    MakeFolder(PathBuf),
    Rename(PathBuf, PathBuf),
    Unlink(PathBuf),
    RemoveFolder(PathBuf),
    /// What was done before the record of this number is durable, as far as it concerns this inode.
    Sync(u64),
}

/// Why a journal cannot be used.
#[derive(Debug)]
pub enum JournalError {
    /// It cannot be read.
    Io(io::Error),
    /// It is not what the library writes.
    Malformed(usize),
    /// The process did something that the library does not follow.
    Missed(String),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the journal of the shim cannot be read: {error}"),
            Self::Malformed(at) => write!(f, "the journal of the shim is malformed at byte {at}"),
            Self::Missed(what) => write!(f, "the shim cannot follow {what}"),
        }
    }
}

impl std::error::Error for JournalError {}

/// All records; none if the process never touched the folder. The last one is left out if the process
/// was killed while it wrote it: the operation did not happen.
pub(super) fn read(path: &Path) -> Result<Vec<Record>, JournalError> {
    match fs::read(path) {
        Ok(bytes) => parse(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(JournalError::Io(error)),
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<Record>, JournalError> {
    let mut records = Vec::new();
    let mut rest = bytes;
    while let Some((header, body)) = rest.split_first_chunk::<HEADER>() {
        let at = bytes.len() - rest.len();
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&header[8 * index..8 * index + 8]);
            u64::from_le_bytes(word)
        };
        if word(0) as u32 != MAGIC {
            return Err(JournalError::Malformed(at));
        }
        let lengths = (word(4) as usize, word(5) as usize);
        let Some((first, body)) = body.split_at_checked(lengths.0) else {
            break;
        };
        let Some((second, body)) = body.split_at_checked(lengths.1) else {
            break;
        };
        let operation = match (word(0) >> 32) as u32 {
            1 => Operation::Write {
                offset: word(2),
                size_before: word(3),
                old: first.to_vec(),
                new: second.to_vec(),
            },
            2 => Operation::Resize {
                size: word(2),
                size_before: word(3),
                old: first.to_vec(),
            },
            3 => Operation::Create(path(first)),
            4 => Operation::MakeFolder(path(first)),
            5 => Operation::Rename(path(first), path(second)),
            6 => Operation::Unlink(path(first)),
            7 => Operation::RemoveFolder(path(first)),
            8 => Operation::Sync(word(2)),
            9 => return Err(JournalError::Missed(String::from_utf8_lossy(first).into())),
            _ => return Err(JournalError::Malformed(at)),
        };
        records.push(Record {
            inode: word(1),
            operation,
        });
        rest = body;
    }
    Ok(records)
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: [u64; 3], first: &[u8], second: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend(kind.to_le_bytes());
        for word in words {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend((first.len() as u64).to_le_bytes());
        bytes.extend((second.len() as u64).to_le_bytes());
        bytes.extend(first);
        bytes.extend(second);
        bytes
    }

    #[test]
    fn records_are_read_and_half_of_one_is_left_out() {
        let mut bytes = record(3, [7, 0, 0], b"a/b", b"");
        bytes.extend(record(1, [7, 2, 5], b"old", b"newer"));
        bytes.extend(record(8, [7, 2, 0], b"", b""));
        let expected = [
            Operation::Create("a/b".into()),
            Operation::Write {
                offset: 2,
                size_before: 5,
                old: b"old".to_vec(),
                new: b"newer".to_vec(),
            },
            Operation::Sync(2),
        ]
        .map(|operation| Record {
            inode: 7,
            operation,
        });
        assert_eq!(parse(&bytes).unwrap(), expected);
        bytes.extend(&record(1, [7, 2, 5], b"old", b"newer")[..50]);
        assert_eq!(parse(&bytes).unwrap(), expected);
    }

    #[test]
    fn what_the_shim_cannot_follow_is_an_error() {
        let missed = parse(&record(9, [7, 0, 0], b"a mapping", b""));
        assert!(matches!(missed, Err(JournalError::Missed(what)) if what == "a mapping"));
        assert!(matches!(
            parse(&[0; HEADER]),
            Err(JournalError::Malformed(0))
        ));
    }
}
