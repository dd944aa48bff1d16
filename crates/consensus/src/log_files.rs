//! The files of a log, by kind and number, and what is in them, batch by batch.
//!
//! raft-engine writes batches: a header (length, place of the footer), the entries of all groups with their checksum, and a
//! footer that says what the entries are and what else has changed, with its own checksum. A batch does not know its
//! place: whether one is whole is told from its bytes and the number of its file.
//!
//! Invariant: [`Batches`] never takes bytes of an entry for a batch: behind damage it goes on only where whole batches follow
//! each other without a gap to the end of what is written. An entry holds what a client has sent, which may look like a
//! batch.
//!
//! Deliberately absent: what the batches mean for a group (`replay.rs`), what may be missing (`check.rs`).

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::files::Files;
use crate::numbers::GroupId;

/// Bytes of a file's header in version 2: magic, version, alignment.
pub(crate) const FILE_HEADER: usize = 53 + 8 + 8;

/// Bytes of a batch's header: length and compression, offset of the footer.
pub(crate) const BATCH_HEADER: usize = 16;

/// Bytes of a checksum, behind what it is of.
pub(crate) const CHECKSUM: usize = 4;

/// What is looked for behind damage costs so many times the bytes of a file at most: beyond, the rest of the file counts as
/// damaged.
const MOST_SEARCHED: usize = 64;

/// What a file of a log holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// What was still needed of deleted files.
    Rewritten,
    /// What was appended.
    Appended,
}

impl Kind {
    fn suffix(self) -> &'static str {
        match self {
            Self::Rewritten => ".rewrite",
            Self::Appended => ".raftlog",
        }
    }

    pub(crate) fn encode(self) -> u8 {
        match self {
            Self::Rewritten => 0,
            Self::Appended => 1,
        }
    }

    pub(crate) fn decode(byte: u8) -> Option<Self> {
        [Self::Rewritten, Self::Appended]
            .into_iter()
            .find(|kind| kind.encode() == byte)
    }
}

/// A file of a log. Ordered as they are read: what was rewritten first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LogFile {
    pub(crate) kind: Kind,
    pub(crate) number: FileNumber,
}

/// The number of a file among those of its kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FileNumber(pub(crate) u64);

impl FileNumber {
    /// The engine signs checksums with the low half of the number.
    pub(crate) fn signature(self) -> u32 {
        self.0 as u32
    }
}

impl LogFile {
    /// The file with this name, if a log has files with such names.
    pub(crate) fn named(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        [Kind::Rewritten, Kind::Appended]
            .into_iter()
            .find_map(|kind| {
                let number = name.strip_suffix(kind.suffix())?.parse().ok()?;
                Some(Self {
                    kind,
                    number: FileNumber(number),
                })
            })
    }

    /// Where it is in a folder.
    pub(crate) fn path(self, folder: &Path) -> PathBuf {
        folder.join(format!("{:016}{}", self.number.0, self.kind.suffix()))
    }
}

/// All files of a log, in their order.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<LogFile>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        found.extend(LogFile::named(&entry?.path()));
    }
    found.sort();
    Ok(found)
}

/// The bytes of a file.
pub(crate) fn read(files: &dyn Files, path: &Path) -> io::Result<Vec<u8>> {
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

/// A batch whose footer is whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    pub(crate) bytes: Range<usize>,
    /// The entries of all groups, without their checksum.
    pub(crate) entries: Range<usize>,
    /// Whether the checksum of the entries is right.
    pub(crate) has_whole_entries: bool,
    /// What is in the footer, without its checksum.
    items: Range<usize>,
}

impl Batch {
    pub(crate) fn is_whole(&self) -> bool {
        self.has_whole_entries
    }

    /// What the footer says; `None`: it makes no sense.
    pub(crate) fn items(&self, content: &[u8]) -> Option<Vec<Item>> {
        let mut reader = Footer {
            bytes: content.get(self.items.clone())?,
            entries: EntryBytes(0),
        };
        let count = reader.number()?;
        let items: Option<Vec<Item>> = (0..count).map(|_| reader.item()).collect();
        items.filter(|_| reader.bytes.is_empty())
    }
}

/// The batch that begins here, if its header and its footer are whole.
pub(crate) fn batch_at(content: &[u8], offset: usize, signature: u32) -> Option<Batch> {
    let batch = content.get(offset..)?;
    let Range {
        start: footer,
        end: len,
    } = said_batch(batch)?.items;
    let (items, checksum) = batch[footer..len].split_last_chunk::<CHECKSUM>()?;
    if items.is_empty() || crc32fast::hash(items) != u32::from_le_bytes(*checksum) ^ signature {
        return None;
    }
    let (entries, has_whole_entries) = match batch[BATCH_HEADER..footer].split_last_chunk() {
        None => (0, footer == BATCH_HEADER),
        Some((entries, checksum)) => {
            let is_right = crc32fast::hash(entries) == u32::from_le_bytes(*checksum);
            (entries.len(), is_right)
        }
    };
    let begin = offset + BATCH_HEADER;
    Some(Batch {
        bytes: offset..offset + len,
        entries: begin..begin + entries,
        has_whole_entries,
        items: offset + footer..offset + len - CHECKSUM,
    })
}

/// Where the parts of a batch are, each with its checksum, as its header says. No checksum is compared.
pub(crate) struct SaidBatch {
    /// The entries of all groups. `None`: there are none.
    pub(crate) entries: Option<Range<usize>>,
    /// The footer.
    pub(crate) items: Range<usize>,
}

/// Where the parts of the batch are that these bytes begin with; `None`: its header makes no sense, or it is longer.
pub(crate) fn said_batch(batch: &[u8]) -> Option<SaidBatch> {
    let (len_and_compression, rest) = batch.split_first_chunk()?;
    let (footer, _) = rest.split_first_chunk()?;
    let len_and_compression = u64::from_be_bytes(*len_and_compression);
    let len = usize::try_from(len_and_compression >> 8).ok()?;
    let footer = usize::try_from(u64::from_be_bytes(*footer)).ok()?;
    // Batches are never compressed (`log.rs`).
    let is_possible = len_and_compression & 0xff == 0 && footer >= BATCH_HEADER && footer < len;
    if !is_possible || len > batch.len() {
        return None;
    }
    Some(SaidBatch {
        entries: (footer > BATCH_HEADER).then_some(BATCH_HEADER..footer),
        items: footer..len,
    })
}

/// The length that a batch says it has, whole or not.
pub(crate) fn said_len(content: &[u8], offset: usize) -> Option<usize> {
    let (len_and_compression, _) = content.get(offset..)?.split_first_chunk()?;
    usize::try_from(u64::from_be_bytes(*len_and_compression) >> 8).ok()
}

/// A part of a file, in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// A batch whose footer is whole.
    Batch(Batch),
    /// Bytes in which no batch can be read: zeros that were reserved, what a write has left that was not synced, or
    /// damage.
    Unreadable(Range<usize>),
}

/// How many bytes.
struct Budget(usize);

/// The parts of a file behind its header.
pub(crate) struct Batches<'a> {
    content: &'a [u8],
    file: LogFile,
    /// Where what was certainly written ends.
    written: usize,
    offset: usize,
    /// Bytes that may still be looked at behind damage.
    budget: Budget,
}

impl<'a> Batches<'a> {
    /// `written`: bytes of the file that were synced for certain.
    pub(crate) fn new(content: &'a [u8], file: LogFile, written: u64) -> Self {
        Self {
            content,
            file,
            written: usize::try_from(written).unwrap_or(usize::MAX),
            offset: FILE_HEADER,
            budget: Budget(content.len().saturating_mul(MOST_SEARCHED)),
        }
    }

    /// Where batches go on behind one that begins at `broken` and cannot be read.
    fn resume(&mut self, broken: usize) -> Option<usize> {
        let said = said_len(self.content, broken).and_then(|len| broken.checked_add(len));
        let first_possible = broken + BATCH_HEADER;
        if let Some(next) = said.filter(|next| *next > first_possible && self.leads_to_end(*next)) {
            return Some(next);
        }
        (broken + 1..self.content.len()).find(|offset| self.leads_to_end(*offset))
    }

    /// Whether whole batches follow each other from here to the end of what is written. One at least.
    fn leads_to_end(&mut self, begin: usize) -> bool {
        let mut offset = begin;
        while self.budget.0 > 0
            && let Some(batch) = batch_at(self.content, offset, self.file.number.signature())
        {
            let looked_at = batch.bytes.end - batch.entries.end;
            self.budget.0 = self.budget.0.saturating_sub(looked_at);
            offset = batch.bytes.end;
        }
        let is_end = || {
            let rest = self.content.get(offset..).unwrap_or_default();
            offset >= self.written && rest.iter().all(|byte| *byte == 0)
        };
        offset > begin && (offset == self.content.len() || is_end())
    }
}

impl Iterator for Batches<'_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let begin = self.offset;
        if begin >= self.content.len() {
            return None;
        }
        if let Some(batch) = batch_at(self.content, begin, self.file.number.signature()) {
            self.offset = batch.bytes.end;
            return Some(Part::Batch(batch));
        }
        self.offset = self.resume(begin).unwrap_or(self.content.len());
        Some(Part::Unreadable(begin..self.offset))
    }
}

/// A change of a group in a footer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub(crate) group: GroupId,
    pub(crate) what: What,
}

/// What a footer says of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// Entries from this index on, each with where it is in the entries of the batch.
    Entries { first: u64, at: Vec<Range<u32>> },
    /// The group is forgotten.
    Clean,
    /// The entries before this index are.
    Compact { index: u64 },
    /// A value is written.
    Put { key: Vec<u8>, value: Vec<u8> },
    /// And removed.
    Delete { key: Vec<u8> },
}

/// How many bytes of entries.
#[derive(Clone, Copy)]
struct EntryBytes(u32);

/// A footer that is being read.
struct Footer<'a> {
    bytes: &'a [u8],
    /// Bytes of the entries that were named so far.
    entries: EntryBytes,
}

impl Footer<'_> {
    fn item(&mut self) -> Option<Item> {
        let group = GroupId(self.number()?);
        let what = match self.byte()? {
            1 => self.entries()?,
            2 => match self.byte()? {
                1 => What::Clean,
                2 => What::Compact {
                    index: self.number()?,
                },
                _ => return None,
            },
            3 => match self.byte()? {
                1 => What::Put {
                    key: self.bytes()?,
                    value: self.bytes()?,
                },
                2 => What::Delete { key: self.bytes()? },
                _ => return None,
            },
            _ => return None,
        };
        Some(Item { group, what })
    }

    fn entries(&mut self) -> Option<What> {
        let count = self.number()?;
        let first = if count > 0 { self.number()? } else { 0 };
        let at = (0..count).map(|_| {
            let begin = self.entries.0;
            let end = u32::try_from(self.number()?).ok()?;
            self.entries = EntryBytes(end);
            (begin <= end).then_some(begin..end)
        });
        Some(What::Entries {
            first,
            at: at.collect::<Option<_>>()?,
        })
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*byte)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(bytes.to_vec())
    }

    /// A number of seven bits a byte, the low ones first.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}
