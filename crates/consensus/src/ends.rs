//! `ends`: where the log ends that is on the disk for certain, in a file of its own.
//!
//! A log alone does not say what it has lost: a torn last write and a lost acknowledged one look the same, and so do a log
//! whose newest file is gone and one that never had it. So the log's thread writes down now and then how far it has
//! synced: the end of each file, and of each group the vote, the last entry and what else may not be forgotten.
//!
//! The file has slots, which are written in turns, each with a count and a checksum: a write that is torn leaves the
//! one before. There are two small ones and, for nodes with many groups, two large ones.
//!
//! Invariants: `ends` never names more than what is synced, so that a power loss is never taken for damage. It is synced
//! before a vote is answered. Before a group's log is made to end earlier than is written here (a follower cuts off what
//! its leader does not have), that is written here.
//!
//! What is appended is written here when nothing has come for a moment ([`DELAY`]), and else after a second
//! ([`LogOptions::ends_interval`]). In between a *hint* says where the newest file ends. It is not synced: it outlives the
//! process, and is as true as the rest, but a power loss may leave an earlier one. So what is lost of the very end is noticed
//! after a crash of the process, and after one of the machine if that is a second old.
//!
//! [`LogOptions::ends_interval`]: crate::LogOptions::ends_interval
//!
//! An earlier version does not know the file, and leaves it as it is: then it names less than there is, and files that
//! are gone. `check.rs` takes that for what it is.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::encoding::{Reader, put_bytes, put_count, put_optional_log_id, put_vote};
use crate::files::{File, Files};
use crate::log_files::{FileNumber, Kind, LogFile};
use crate::request::{Change, Request, key};
use crate::types::{LogId, Vote};

const NAME: &str = "ends";

const MAGIC: &[u8; 8] = b"hmqends1";

/// Bytes of a small slot, with room for about 700 groups: one takes 77 bytes at most.
const SMALL: usize = 64 << 10;

/// Bytes of a large slot, with room for 13,000 groups. Those beyond count as unknown.
const LARGE: usize = 1 << 20;

/// Where the slots begin: two small ones, two large ones.
const SLOTS: [usize; 4] = {
    let small = 4 << 10;
    let large = small + 2 * SMALL;
    [small, small + SMALL, large, large + LARGE]
};

/// Where hints begin, which are written in turns. Each is in a sector of its own.
const HINTS: [usize; 2] = [0, 512];

/// Bytes of a hint: the count of the slot before it, number and end of the newest file, a checksum.
const HINT: usize = 28;

const CHECKSUM: usize = 4;

/// When nothing has been appended for so long, it is written.
pub(crate) const DELAY: Duration = Duration::from_millis(50);

/// What is on the disk for certain.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ends {
    /// The log was closed after this was written: it ends there.
    pub(crate) is_orderly: bool,
    /// How many bytes of each file are synced.
    pub(crate) files: BTreeMap<LogFile, u64>,
    pub(crate) groups: BTreeMap<u64, GroupEnd>,
}

/// What a group has on the disk for certain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct GroupEnd {
    pub(crate) vote: Option<Vote>,
    /// The last entry, also if it is purged by now; or, before the log is made to end earlier, less.
    pub(crate) last: Option<LogId>,
    pub(crate) purged: Option<LogId>,
    /// No vote is given to a replica whose log ends before.
    pub(crate) floor: Option<LogId>,
}

impl GroupEnd {
    /// Takes a request in that is on the disk.
    fn take(&mut self, request: &Request) {
        match request {
            Request::Append(append) => {
                if let Some(last) = append.last() {
                    self.last = Some(last);
                }
            }
            Request::Change(change) => self.change(change),
        }
    }

    fn change(&mut self, change: &Change) {
        if change.clean {
            *self = Self::default();
        }
        for (name, value) in &change.puts {
            let id = || Reader(value).log_id();
            match *name {
                key::VOTE => self.vote = Reader(value).vote(),
                key::PURGED => self.purged = id(),
                key::DELETED => self.floor = id(),
                _ => {}
            }
        }
        if change.deletes.contains(&key::DELETED) {
            self.floor = None;
        }
        if change.deletes.contains(&key::LOSS) {
            // What was lost is given up.
            self.last = None;
        }
        let appended = change.entries.last().and_then(|entry| entry.log_id());
        self.last = appended.or(self.last.max(self.purged));
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.vote.is_some()));
        if let Some(vote) = &self.vote {
            put_vote(vote, out);
        }
        for id in [&self.last, &self.purged, &self.floor] {
            put_optional_log_id(id.as_ref(), out);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let has_vote = reader.flag()?;
        Some(Self {
            vote: match has_vote {
                true => Some(reader.vote()?),
                false => None,
            },
            last: reader.optional_log_id()?,
            purged: reader.optional_log_id()?,
            floor: reader.optional_log_id()?,
        })
    }
}

impl Ends {
    /// Takes in what was written and synced.
    pub(crate) fn note(&mut self, requests: &[Request]) {
        for request in requests {
            let end = self.groups.entry(request.group()).or_default();
            end.take(request);
            if matches!(request, Request::Change(_)) && *end == GroupEnd::default() {
                self.groups.remove(&request.group());
            }
        }
    }

    /// Whether requests make a group's log end before what is noted; then that is taken in already.
    pub(crate) fn lower(&mut self, requests: &[Request]) -> bool {
        if !requests.iter().any(|request| self.may_lower(request)) {
            return false;
        }
        let mut is_lower = false;
        let mut ends: BTreeMap<u64, GroupEnd> = BTreeMap::new();
        for request in requests {
            let group = request.group();
            let noted = self.groups.get(&group).copied().unwrap_or_default();
            ends.entry(group).or_insert(noted).take(request);
        }
        for (group, end) in ends {
            if let Some(noted) = self.groups.get_mut(&group)
                && end.last < noted.last
            {
                noted.last = end.last;
                is_lower = true;
            }
        }
        is_lower
    }

    /// Whether a request may be one for which [`Self::lower`] says so.
    pub(crate) fn may_lower(&self, request: &Request) -> bool {
        match request {
            Request::Append(append) => {
                let noted = self.groups.get(&append.group()).and_then(|end| end.last);
                noted.is_some_and(|last| append.first().is_some_and(|first| first <= last.index))
            }
            Request::Change(change) => change.clean || change.deletes.contains(&key::LOSS),
        }
    }

    fn encode(&self, count: u64) -> Vec<u8> {
        let mut body = vec![u8::from(self.is_orderly)];
        put_count(self.files.len(), &mut body);
        for (file, end) in &self.files {
            body.push(file.kind.encode());
            body.extend_from_slice(&file.number.0.to_le_bytes());
            body.extend_from_slice(&end.to_le_bytes());
        }
        let room = LARGE - MAGIC.len() - 8 - 4 - CHECKSUM;
        let mut groups = Vec::new();
        let mut fitting = 0;
        for (group, end) in &self.groups {
            let len = groups.len();
            groups.extend_from_slice(&group.to_le_bytes());
            end.encode(&mut groups);
            if body.len() + 4 + groups.len() > room {
                // Those that do not fit count as unknown.
                groups.truncate(len);
                break;
            }
            fitting += 1;
        }
        put_count(fitting, &mut body);
        body.extend_from_slice(&groups);

        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&count.to_le_bytes());
        put_bytes(&body, &mut out);
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out
    }

    /// The count of a slot, and what is in it; `None`: it is empty, torn or damaged.
    fn decode(slot: &[u8]) -> Option<(u64, Self)> {
        let mut reader = Reader(slot.strip_prefix(MAGIC)?);
        let count = reader.u64()?;
        let body = reader.bytes()?;
        let checksum = reader.u32()?;
        let len = MAGIC.len() + 8 + 4 + body.len();
        if crc32fast::hash(slot.get(..len)?) != checksum {
            return None;
        }
        Some((count, Self::read(&mut Reader(body))?))
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let is_orderly = reader.flag()?;
        let files = (0..reader.u32()?).map(|_| {
            let kind = Kind::decode(reader.u8()?)?;
            let number = FileNumber(reader.u64()?);
            Some((LogFile { kind, number }, reader.u64()?))
        });
        let files = files.collect::<Option<_>>()?;
        let groups = (0..reader.u32()?).map(|_| Some((reader.u64()?, GroupEnd::read(reader)?)));
        Some(Self {
            is_orderly,
            files,
            groups: groups.collect::<Option<_>>()?,
        })
    }
}

/// Where the file is, in the folder of a log.
fn path(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// How often something was written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Count(u64);

/// What is known of a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Known {
    /// That of the newest whole slot.
    pub(crate) count: Count,
    /// What that says.
    pub(crate) ends: Ends,
    /// How many bytes of each file were synced at the end: at least what the slot says.
    pub(crate) synced: BTreeMap<LogFile, u64>,
}

fn hint(slot: &[u8]) -> Option<(u64, LogFile, u64)> {
    let mut reader = Reader(slot.get(..HINT)?);
    let (count, number, end) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let file = LogFile {
        kind: Kind::Appended,
        number: FileNumber(number),
    };
    (crc32fast::hash(&slot[..HINT - CHECKSUM]) == reader.u32()?).then_some((count, file, end))
}

/// What the file says; `None`: there is none, or nothing whole is in it.
pub(crate) fn read(files: &dyn Files, folder: &Path) -> io::Result<Option<Known>> {
    let content = match crate::log_files::read(files, &path(folder)) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let slots = SLOTS.into_iter().filter_map(|begin| content.get(begin..));
    let newest = slots
        .filter_map(Ends::decode)
        .max_by_key(|(count, _)| *count);
    Ok(newest.map(|(count, ends)| {
        let mut synced = ends.files.clone();
        let hints = HINTS.into_iter().filter_map(|begin| content.get(begin..));
        // One that is older than the slot may be of a log that is no more.
        for (since, file, end) in hints.filter_map(hint) {
            if since >= count {
                let known = synced.entry(file).or_default();
                *known = end.max(*known);
            }
        }
        Known {
            count: Count(count),
            ends,
            synced,
        }
    }))
}

/// The file, for writing.
pub(crate) struct EndsFile {
    files: Arc<dyn Files>,
    path: PathBuf,
    /// Until the first write: the file cannot be made on a full disk.
    file: Option<Box<dyn File>>,
    count: Count,
    hints: Count,
}

impl EndsFile {
    /// `count`: that of the newest slot.
    pub(crate) fn new(files: Arc<dyn Files>, folder: &Path, count: Count) -> Self {
        Self {
            files,
            path: path(folder),
            file: None,
            count,
            hints: Count(0),
        }
    }

    /// Writes down where the newest file ends, unsynced.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn hint(&mut self, (file, end): (LogFile, u64)) -> io::Result<()> {
        let mut bytes = [0; HINT];
        bytes[..8].copy_from_slice(&self.count.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&file.number.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&end.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..HINT - CHECKSUM]);
        bytes[HINT - CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
        self.hints.0 += 1;
        let begin = HINTS[(self.hints.0 % 2) as usize];
        match &self.file {
            None => Ok(()),
            Some(file) => write_all(&**file, &bytes, begin),
        }
    }

    /// Writes and syncs.
    ///
    /// # Errors
    /// The disk refuses; the slot before is as it was.
    pub(crate) fn write(&mut self, ends: &Ends) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(self.open()?),
        };
        let count = self.count.0 + 1;
        let bytes = ends.encode(count);
        let pair = if bytes.len() <= SMALL { 0 } else { 2 };
        write_all(&**file, &bytes, SLOTS[pair + (count % 2) as usize])?;
        file.sync()?;
        self.count = Count(count);
        Ok(())
    }

    fn open(&self) -> io::Result<Box<dyn File>> {
        match self.files.open(&self.path, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = self.files.create(&self.path)?;
                if let Some(folder) = self.path.parent() {
                    std::fs::File::open(folder)?.sync_all()?;
                }
                Ok(file)
            }
            other => other,
        }
    }
}

fn write_all(file: &dyn File, bytes: &[u8], offset: usize) -> io::Result<()> {
    let (mut offset, mut rest) = (offset as u64, bytes);
    while !rest.is_empty() {
        let len = file.write_at(rest, offset)?;
        if len == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        rest = &rest[len..];
        offset += len as u64;
    }
    Ok(())
}
