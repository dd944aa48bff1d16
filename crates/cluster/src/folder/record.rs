//! The file `cluster` in the data folder: which cluster this node belongs to, and what it knows of it.
//!
//! ```text
//! "HMQCLUST"   format (4, big-endian)   CRC-32 of the rest (4)   Record, as postcard writes it
//! ```
//!
//! It has a copy beside it (`durable_file`), since the node is no member without it.
//!
//! Invariant: it is replaced as a whole and synced, so there is always an old one or a new one.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{error, fmt};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::members::list::{EVICTED_LIMIT, Place};

/// The file in a data folder that says which cluster its node belongs to.
pub const RECORD: &str = "cluster";
/// The copy of it.
pub(crate) const RECORD_COPY: &str = "cluster.copy";
const FORMAT: u32 = 1;
const SEALED: Sealed = Sealed {
    magic: b"HMQCLUST",
    format: FORMAT,
};

/// What a member keeps.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) cluster: u64,
    pub(crate) env: String,
    /// Whose record it is.
    pub(crate) node: u64,
    /// Signs gossip, together with the secret. All members have it, nobody else.
    pub(crate) gossip_key: [u8; 32],
    pub(crate) evicted: BTreeSet<u64>,
    pub(crate) members: Vec<Place>,
    /// What this node was told when it joined. `None`: it has begun the cluster.
    pub(crate) welcome: Option<Vec<u8>>,
}

/// Why the file `cluster` cannot be used.
#[derive(Debug)]
pub enum RecordError {
    /// It cannot be read or written.
    Io(PathBuf, io::Error),
    /// It holds something else than was written.
    Damaged(PathBuf),
    /// It was written by a later version, in the first of these formats; the second is the latest that is known.
    Newer(PathBuf, u32, u32),
    /// It belongs to a cluster of this other environment.
    OtherEnv(PathBuf, String),
    /// It belongs to this other node: it was copied.
    OtherNode(PathBuf, u64),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Damaged(path) => write!(
                f,
                "{} is damaged: empty the data folder to join as a new node",
                path.display()
            ),
            Self::Newer(path, format, known) => write!(
                f,
                "{} has format {format}; this version knows {known} and older ones",
                path.display()
            ),
            Self::OtherEnv(path, env) => write!(
                f,
                "{} belongs to a cluster of the environment `{env}`; an environment cannot be changed",
                path.display()
            ),
            Self::OtherNode(path, node) => write!(
                f,
                "{} belongs to the node {node:016x}: it was copied from another data folder",
                path.display()
            ),
        }
    }
}

impl error::Error for RecordError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

/// The file beside it with the address at which the node was started last, as text. Only people are told.
pub(crate) const ADDRESS: &str = "cluster.address";

/// Longer than any `host:port`.
const ADDRESS_LIMIT: usize = 512;

/// The file.
#[derive(Debug)]
pub(crate) struct RecordFile {
    path: PathBuf,
}

impl RecordFile {
    pub(crate) fn new(folder: &Path) -> Self {
        let path = folder.join(RECORD);
        Self { path }
    }

    /// `None`: there is no file.
    pub(crate) fn read(&self, node: u64, env: &str) -> Result<Option<Record>, RecordError> {
        let Some(found) = SEALED.read_with_copy(&self.path)? else {
            return Ok(None);
        };
        let record: Record = postcard::from_bytes(&found.body)
            .map_err(|_| RecordError::Damaged(self.path.clone()))?;
        // An earlier version may have emptied the folder of another node, and left the copy.
        if found.is_of_copy && record.node != node {
            return match self.path.exists() {
                true => Err(RecordError::Damaged(self.path.clone())),
                false => Ok(None),
            };
        }
        SEALED.repair(&self.path);
        if record.env != env {
            return Err(RecordError::OtherEnv(self.path.clone(), record.env));
        }
        if record.node != node {
            return Err(RecordError::OtherNode(self.path.clone(), record.node));
        }
        Ok(Some(record))
    }

    /// Replaces the file, and returns when that is on the disk.
    pub(crate) fn write(&self, record: &Record) -> Result<(), RecordError> {
        let body = postcard::to_stdvec(record).expect("a record can be written");
        SEALED.write_with_copy(&self.path, &body)
    }

    /// Notes where the node is from now on. Returns where it was before, if that is known and another place.
    pub(crate) fn note_address(&self, address: &str) -> Result<Option<String>, RecordError> {
        let path = self.path.with_file_name(ADDRESS);
        let before = match fs::read_to_string(&path) {
            Ok(text) => Some(text.trim().chars().take(ADDRESS_LIMIT).collect::<String>()),
            Err(_) => None,
        };
        if before.as_deref() == Some(address) {
            return Ok(None);
        }
        replace(&path, format!("{address}\n").as_bytes())
            .map_err(|error| RecordError::Io(path, error))?;
        Ok(before.filter(|before| !before.is_empty()))
    }
}

/// Evicts all other members of the cluster that the node of this data folder belongs to, and gives them in order: none of
/// them is ever a member again. No process may use the folder. Without the file nothing is done.
///
/// # Errors
/// The file cannot be read or written, or as many nodes have been evicted as can be remembered.
pub fn evict_others(folder: &Path) -> Result<Vec<u64>, RecordError> {
    let file = RecordFile::new(folder);
    let Some(found) = SEALED.read_with_copy(&file.path)? else {
        return Ok(Vec::new());
    };
    let mut record: Record =
        postcard::from_bytes(&found.body).map_err(|_| RecordError::Damaged(file.path.clone()))?;
    let node = record.node;
    let others: BTreeSet<u64> = record.members.iter().map(|place| place.node).collect();
    let others: Vec<u64> = others.into_iter().filter(|other| *other != node).collect();
    record.evicted.extend(&others);
    if record.evicted.len() > EVICTED_LIMIT {
        let full = io::Error::other("as many nodes were evicted as can be remembered");
        return Err(RecordError::Io(file.path, full));
    }
    record.members.retain(|place| place.node == node);
    file.write(&record)?;
    Ok(others)
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}

/// What a file with a copy holds.
pub(crate) struct Found {
    pub(crate) body: Vec<u8>,
    /// The file is damaged or missing.
    is_of_copy: bool,
}

/// A kind of file that shows what it is and whether it is damaged.
pub(crate) struct Sealed {
    pub(crate) magic: &'static [u8; 8],
    pub(crate) format: u32,
}

impl Sealed {
    /// What the file holds. `None`: there is none.
    pub(crate) fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, RecordError> {
        match fs::read(path) {
            Ok(bytes) => self.open(path, &bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RecordError::Io(path.to_owned(), error)),
        }
    }

    /// What the file holds, or its copy, if the file is damaged or missing. `None`: there is neither. Changes nothing.
    pub(crate) fn read_with_copy(&self, path: &Path) -> Result<Option<Found>, RecordError> {
        let found = durable_file::read(path, |bytes| self.is_whole(bytes));
        let found = found.map_err(|error| RecordError::Io(path.to_owned(), error))?;
        let opened = found.map(|found| {
            self.open(path, &found.bytes).map(|body| Found {
                body,
                is_of_copy: found.is_of_copy,
            })
        });
        opened.transpose()
    }

    /// A file of a later format is never taken for a damaged one of this format.
    fn is_whole(&self, bytes: &[u8]) -> bool {
        !matches!(
            self.open(Path::new(""), bytes),
            Err(RecordError::Damaged(_))
        )
    }

    /// Writes the file or its copy again if one of them is damaged or missing.
    pub(crate) fn repair(&self, path: &Path) {
        durable_file::repair(path, |bytes| self.is_whole(bytes));
    }

    fn open(&self, path: &Path, bytes: &[u8]) -> Result<Vec<u8>, RecordError> {
        let damaged = || RecordError::Damaged(path.to_owned());
        let rest = bytes.strip_prefix(self.magic).ok_or_else(damaged)?;
        let (format, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let (sum, body) = rest.split_first_chunk().ok_or_else(damaged)?;
        let format = u32::from_be_bytes(*format);
        if format > self.format {
            return Err(RecordError::Newer(path.to_owned(), format, self.format));
        }
        if format == 0 || crc32fast::hash(body) != u32::from_be_bytes(*sum) {
            return Err(damaged());
        }
        Ok(body.to_owned())
    }

    /// Replaces the file, and returns when that is on the disk.
    pub(crate) fn write(&self, path: &Path, body: &[u8]) -> Result<(), RecordError> {
        let written = replace(path, &self.seal(body));
        written.map_err(|error| RecordError::Io(path.to_owned(), error))
    }

    /// Replaces the file and its copy, and returns when that is on the disk.
    pub(crate) fn write_with_copy(&self, path: &Path, body: &[u8]) -> Result<(), RecordError> {
        let written = durable_file::write(path, &self.seal(body));
        written.map_err(|error| RecordError::Io(path.to_owned(), error))
    }

    fn seal(&self, body: &[u8]) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.format.to_be_bytes());
        bytes.extend(crc32fast::hash(body).to_be_bytes());
        bytes.extend(body);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            cluster: 7,
            env: "Test".to_owned(),
            node: 1,
            gossip_key: [3; 32],
            evicted: BTreeSet::from([9]),
            members: vec![Place {
                node: 2,
                incarnation: 4,
                address: "a:1".to_owned(),
            }],
            welcome: Some(b"hello".to_vec()),
        }
    }

    fn encode(record: &Record) -> Vec<u8> {
        SEALED.seal(&postcard::to_stdvec(record).unwrap())
    }

    fn file() -> (tempfile::TempDir, RecordFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = RecordFile::new(folder.path());
        (folder, file)
    }

    #[test]
    fn a_node_that_has_moved_is_told() {
        let (_folder, file) = file();
        assert_eq!(file.note_address("a:1").unwrap(), None);
        assert_eq!(file.note_address("a:1").unwrap(), None);
        assert_eq!(file.note_address("b:1").unwrap().as_deref(), Some("a:1"));
        assert_eq!(file.note_address("b:1").unwrap(), None);
    }

    #[test]
    fn what_was_written_is_read_and_replaced() {
        let (folder, file) = file();
        assert!(file.read(1, "Test").unwrap().is_none());
        let mut record = record();
        for cluster in [7, 8] {
            record.cluster = cluster;
            file.write(&record).unwrap();
            assert!(file.read(1, "Test").unwrap() == Some(record.clone()));
        }
        let names = fs::read_dir(folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(
            names.collect::<BTreeSet<_>>(),
            [RECORD, RECORD_COPY].map(str::to_owned).into()
        );
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let (_folder, file) = file();
        let bytes = encode(&record());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            for bytes in [&damaged[..], &bytes[..at]] {
                fs::write(&file.path, bytes).unwrap();
                assert!(file.read(1, "Test").is_err(), "{at}");
            }
        }
    }

    #[test]
    fn a_damaged_or_lost_file_is_read_from_its_copy_and_written_again() {
        let (folder, file) = file();
        file.write(&record()).unwrap();
        let whole = fs::read(&file.path).unwrap();
        for name in [RECORD, RECORD_COPY] {
            let damaged = folder.path().join(name);
            // A format that seems to be a later one is refused.
            for at in (0..8).chain(12..whole.len()) {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x10;
                fs::write(&damaged, bytes).unwrap();
                assert!(
                    file.read(1, "Test").unwrap() == Some(record()),
                    "{name} {at}"
                );
                assert_eq!(fs::read(&damaged).unwrap(), whole, "{name} {at}");
            }
            fs::remove_file(&damaged).unwrap();
            assert!(file.read(1, "Test").unwrap() == Some(record()));
            assert_eq!(fs::read(&damaged).unwrap(), whole);
        }
    }

    #[test]
    fn a_copy_of_another_node_is_no_record_of_this_one() {
        let (_folder, file) = file();
        file.write(&record()).unwrap();
        fs::remove_file(&file.path).unwrap();
        assert!(file.read(2, "Test").unwrap().is_none());
        assert!(!file.path.exists());
        fs::write(&file.path, b"x").unwrap();
        let error = file.read(2, "Test").err().unwrap();
        assert!(matches!(error, RecordError::Damaged(_)), "{error}");
    }

    #[test]
    fn records_of_others_are_errors_that_say_so() {
        let (_folder, file) = file();
        file.write(&record()).unwrap();
        let error = file.read(1, "Prod").err().unwrap().to_string();
        assert!(error.contains("environment `Test`"), "{error}");
        let error = file.read(2, "Test").err().unwrap().to_string();
        assert!(error.contains("node 0000000000000001"), "{error}");
        let mut newer = encode(&record());
        newer[11] = 2;
        fs::write(&file.path, newer).unwrap();
        let error = file.read(1, "Test").err().unwrap().to_string();
        assert!(error.contains("format 2"), "{error}");
    }
}
