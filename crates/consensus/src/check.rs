//! Tells a torn last write from damage, before a log is opened.
//!
//! raft-engine cuts a file at the first batch that it cannot read, and takes up files only behind the last gap between their
//! numbers. After a power loss cutting is right: the batch was not synced, and nothing behind it was. But a flipped bit in
//! the middle of a file looks the same to it, and so does a lost end. So all files are read before it sees them, and it
//! is given only what is whole.
//!
//! Cut off is only what was never synced: behind the last whole batch of the newest file of a kind, and behind the end that
//! `ends` names. Everything else that cannot be read, or is not there, is a [`Finding`].
//!
//! Invariant: nothing is changed here. [`Check::cut`] changes no more than a torn write.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::files::Files;
use crate::log_files::{Batches, FILE_HEADER, FileNumber, Kind, LogFile, Part, list, read};

/// What each file of the engine's version 2 begins with: its name, the version, no alignment.
const HEADER: [u8; FILE_HEADER] =
    *b"RAFT-LOG-FILE-HEADER-9986AB3E47F320B394C8E84916EB0ED5\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0";

/// Whether a file begins as those of a log do.
pub(crate) fn has_header(content: &[u8]) -> bool {
    content.get(..FILE_HEADER) == Some(&HEADER[..])
}

/// Something in a log that is damaged or missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: Damage,
}

/// What is wrong with a file of a log. Places are counted in bytes from its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// Its beginning is not that of a log file.
    Header,
    /// Bytes that cannot be read.
    Bytes {
        /// Where they begin.
        from: u64,
        /// The first byte behind them.
        to: u64,
    },
    /// It ends here, and more was synced.
    Short {
        /// Its length.
        len: u64,
        /// What was synced.
        synced: u64,
    },
    /// It is not there.
    Missing,
    /// One bit of a byte is flipped, and a start flips it back: nothing is lost.
    Bit {
        /// The byte.
        at: u64,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match self.what {
            Damage::Header => f.write_str("its header is damaged"),
            Damage::Bytes { from, to } => write!(f, "damaged from byte {from} to {to}"),
            Damage::Short { len, synced } => {
                write!(f, "it ends at byte {len}, and {synced} bytes were synced")
            }
            Damage::Missing => f.write_str("it is missing"),
            Damage::Bit { at } => write!(f, "a bit of byte {at} is flipped; a start flips it back"),
        }
    }
}

/// What was found in the files of a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Check {
    /// Where each file ends that is there, without what is to be cut off.
    pub(crate) ends: BTreeMap<LogFile, u64>,
    /// A newest file whose last write is torn, or which has zeros for writes to come behind the last one, by the bytes of
    /// each.
    torn: BTreeMap<LogFile, u64>,
    /// Newest files that were made and have nothing in them, not even a header.
    unborn: Vec<LogFile>,
    pub(crate) findings: Vec<Finding>,
    /// Oldest files are gone that `ends` names: deleted after it was written, or lost.
    pub(crate) lacks_oldest: bool,
}

impl Check {
    /// Looks at the files in `folder`, of which so much is known to have been synced.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn of(
        files: &dyn Files,
        folder: &Path,
        synced: Option<&BTreeMap<LogFile, u64>>,
    ) -> io::Result<Self> {
        let mut check = Self::default();
        let present = list(folder)?;
        for kind in [Kind::Rewritten, Kind::Appended] {
            let numbers: Vec<FileNumber> = present
                .iter()
                .filter(|file| file.kind == kind)
                .map(|file| file.number)
                .collect();
            check.find_missing(folder, kind, &numbers, synced);
            for number in &numbers {
                let file = LogFile {
                    kind,
                    number: *number,
                };
                let content = read(files, &file.path(folder))?;
                let is_newest = numbers.last() == Some(number);
                let of_file = synced.and_then(|ends| ends.get(&file)).copied();
                check.look_into(folder, file, &content, is_newest, of_file);
            }
        }
        Ok(check)
    }

    fn find_missing(
        &mut self,
        folder: &Path,
        kind: Kind,
        numbers: &[FileNumber],
        synced: Option<&BTreeMap<LogFile, u64>>,
    ) {
        let named = synced.into_iter().flat_map(BTreeMap::keys);
        let named = named.filter(|file| file.kind == kind);
        let named = named.map(|file| file.number);
        let (first, last) = match numbers {
            [] => (u64::MAX, 0),
            [first, .., last] => (first.0, last.0),
            [only] => (only.0, only.0),
        };
        let mut missing = Vec::new();
        for number in named {
            match numbers.contains(&number) {
                true => {}
                false if number.0 < first && !numbers.is_empty() => self.lacks_oldest = true,
                false => missing.push(number),
            }
        }
        let gaps = (first..last).map(FileNumber);
        let gaps = gaps.filter(|number| !numbers.contains(number));
        missing.extend(gaps);
        missing.sort_unstable();
        missing.dedup();
        self.findings
            .extend(missing.into_iter().map(|number| Finding {
                path: LogFile { kind, number }.path(folder),
                what: Damage::Missing,
            }));
    }

    fn look_into(
        &mut self,
        folder: &Path,
        file: LogFile,
        content: &[u8],
        is_newest: bool,
        synced: Option<u64>,
    ) {
        let finding = |what| Finding {
            path: file.path(folder),
            what,
        };
        let mut batches = Batches::new(content, file, synced.unwrap_or(0));
        let parts: Vec<Part> = batches.by_ref().collect();
        let has_batches = parts.iter().any(|part| matches!(part, Part::Batch(_)));
        if !has_header(content) {
            let is_unborn = is_newest && !has_batches && synced.is_none();
            match is_unborn {
                true => {
                    self.unborn.push(file);
                    return;
                }
                false => self.findings.push(finding(Damage::Header)),
            }
        }
        let keeps = |begin: usize, rest: &[Part]| {
            let is_synced = synced.is_some_and(|synced| (begin as u64) < synced);
            let is_followed = rest.iter().any(is_whole);
            !is_newest || is_synced || file.kind == Kind::Appended && is_followed
        };
        let mut end = content.len();
        for (number, part) in parts.iter().enumerate() {
            if is_whole(part) {
                continue;
            }
            let bytes = range(part);
            if !keeps(bytes.start, &parts[number + 1..]) {
                end = bytes.start;
                self.torn.insert(file, (content.len() - end) as u64);
                break;
            }
            let is_rest = number + 1 == parts.len() && is_blank(&content[bytes.clone()]);
            if !is_rest {
                self.findings.push(finding(Damage::Bytes {
                    from: bytes.start as u64,
                    to: bytes.end as u64,
                }));
            } else if is_newest {
                end = bytes.start;
                self.torn.insert(file, bytes.len() as u64);
            } else {
                end = bytes.start;
                let (from, to) = (bytes.start as u64, bytes.end as u64);
                self.findings.push(finding(Damage::Bytes { from, to }));
            }
        }
        if let Some(synced) = synced.filter(|synced| (end as u64) < *synced) {
            let len = end as u64;
            self.findings.push(finding(Damage::Short { len, synced }));
        }
        self.ends.insert(file, end as u64);
    }

    /// Bytes of writes that were not synced, without the zeros for bytes to come.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn torn_bytes(&self, files: &dyn Files, folder: &Path) -> io::Result<u64> {
        let mut bytes = 0;
        for (file, len) in &self.torn {
            let content = read(files, &file.path(folder))?;
            let begin = content.len().saturating_sub(*len as usize);
            let last = content[begin..].iter().rposition(|byte| *byte != 0);
            bytes += last.map_or(0, |last| last as u64 + 1);
        }
        Ok(bytes)
    }

    /// Cuts off what was not synced, so that the log can be opened.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn cut(&self, files: &dyn Files, folder: &Path) -> io::Result<()> {
        for file in self.torn.keys() {
            let end = self.ends.get(file).copied().unwrap_or(0);
            let open = files.open(&file.path(folder), true)?;
            open.set_len(end)?;
            open.sync()?;
        }
        for file in &self.unborn {
            files.delete(&file.path(folder))?;
        }
        Ok(())
    }

    /// The length to which a file is to be cut before the engine reads it, if it is.
    pub(crate) fn cut_len(&self, file: LogFile) -> Option<u64> {
        self.torn.get(&file).and(self.ends.get(&file)).copied()
    }

    /// Whether a file is to be removed before the engine reads it.
    pub(crate) fn is_unborn(&self, file: LogFile) -> bool {
        self.unborn.contains(&file)
    }
}

fn is_whole(part: &Part) -> bool {
    matches!(part, Part::Batch(batch) if batch.is_whole())
}

fn range(part: &Part) -> std::ops::Range<usize> {
    match part {
        Part::Batch(batch) => batch.bytes.clone(),
        Part::Unreadable(bytes) => bytes.clone(),
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
