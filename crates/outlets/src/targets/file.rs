//! Messages are appended to a file, each once.
//!
//! After each batch the file is synced, and what counts of it is noted and synced beside it ([`Noted`]); opening cuts the file to
//! that. A file that somebody has moved away or cut is not cut again: what follows goes to the file of that name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outlet::{Delivery, Item, OpenError, Position, Refusal};
use rustix::fs::FlockOperation;

use crate::epoch::Epoch;
use crate::record::Record;
use crate::targets::noted::{Count, Inode, Length, Noted};

#[derive(Debug)]
pub(crate) struct FileTarget {
    path: PathBuf,
    side_path: PathBuf,
    record: Record,
    open: Option<Open>,
}

/// The file and what is noted of it. The note is locked, so that there is one at a time.
#[derive(Debug)]
struct Open {
    file: File,
    side: File,
    noted: Noted,
}

impl FileTarget {
    pub(crate) fn new(path: &Path, record: Option<&str>) -> Result<Self, String> {
        let mut side_path = path.as_os_str().to_owned();
        side_path.push(".position");
        Ok(Self {
            path: path.to_owned(),
            side_path: side_path.into(),
            record: Record::new(record).map_err(|error| error.to_string())?,
            open: None,
        })
    }

    pub(crate) fn open(&mut self, epoch: Epoch) -> Result<Option<Position>, OpenError> {
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| OpenError::Retry(format!("{path}: {error}").into())
        };
        // The lock of the one before goes with it.
        self.open = None;
        let side = open(&self.side_path).map_err(failed(&self.side_path))?;
        rustix::fs::flock(&side, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let path = self.side_path.display();
            OpenError::Retry(format!("{path}: another process writes this file").into())
        })?;
        let before = Noted::read(&side).map_err(failed(&self.side_path))?;
        if before.is_some_and(|before| before.epoch > epoch) {
            return Err(OpenError::Fenced);
        }
        let file = open(&self.path).map_err(failed(&self.path))?;
        let noted = begin(&file, &side, before, epoch).map_err(failed(&self.path))?;
        // The names have to outlive a power loss, too.
        for path in [&self.path, &self.side_path] {
            sync_folder(path).map_err(failed(path))?;
        }
        let position = noted.position;
        self.open = Some(Open { file, side, noted });
        Ok(position)
    }

    pub(crate) fn deliver(&mut self, batch: &[Arc<Item>]) -> Delivery {
        let mut bytes = Vec::new();
        let mut refused = None;
        let mut written = 0;
        for item in batch {
            if let Err(why) = self.record.write(item, &mut bytes) {
                refused = Some(why);
                break;
            }
            bytes.push(b'\n');
            written += 1;
        }
        let appended = self.append(&bytes, batch.get(..written).unwrap_or_default());
        match (appended, refused) {
            (Err(why), _) => Delivery::Retry { after: None, why },
            (Ok(()), None) => Delivery::All,
            (Ok(()), Some(why)) => Delivery::Refused {
                which: Refusal::At(written),
                why,
            },
        }
    }

    fn append(&mut self, bytes: &[u8], batch: &[Arc<Item>]) -> Result<(), Arc<str>> {
        let path = self.path.display().to_string();
        let failed = |error: io::Error| Arc::from(format!("{path}: {error}"));
        let Some(open) = &mut self.open else {
            return Err(failed(io::ErrorKind::NotFound.into()));
        };
        if bytes.is_empty() {
            return Ok(());
        }
        open.follow(&self.path).map_err(failed)?;
        let positions = batch.iter().rev().find_map(|item| item.position);
        open.append(bytes, positions).map_err(failed)
    }

    pub(crate) fn probe(&mut self) -> Result<String, String> {
        let path = &self.path;
        let folder = folder(path);
        let about = std::fs::metadata(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        if !about.is_dir() {
            return Err(format!("{} is no folder", folder.display()));
        }
        let opened = OpenOptions::new().append(true).open(path);
        match opened {
            Ok(_) => Ok(format!("{} can be written", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(format!("{} will be made", path.display()))
            }
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }
}

impl Open {
    /// Goes on in the file that has the name now, if that is another one.
    fn follow(&mut self, path: &Path) -> io::Result<()> {
        let is_same = match std::fs::metadata(path) {
            Ok(about) => Inode(about.ino()) == self.noted.inode,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        let length = Length(self.file.metadata()?.len());
        if is_same && length == self.noted.length {
            return Ok(());
        }
        self.file = open(path)?;
        sync_folder(path)?;
        self.noted = begin(&self.file, &self.side, Some(self.noted), self.noted.epoch)?;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8], position: Option<Position>) -> io::Result<()> {
        self.file.write_all_at(bytes, self.noted.length.0)?;
        self.file.sync_data()?;
        let noted = Noted {
            count: Count(self.noted.count.0 + 1),
            length: Length(self.noted.length.0 + bytes.len() as u64),
            position: position.or(self.noted.position),
            ..self.noted
        };
        noted.write(&self.side)?;
        self.noted = noted;
        Ok(())
    }
}

/// Notes where a file begins to be written: it is cut to what counts of it. What somebody has cut off stays so.
fn begin(file: &File, side: &File, before: Option<Noted>, epoch: Epoch) -> io::Result<Noted> {
    let about = file.metadata()?;
    let (inode, mut length) = (Inode(about.ino()), Length(about.len()));
    if let Some(before) = before
        && before.inode == inode
        && before.length.0 < length.0
    {
        length = before.length;
        file.set_len(length.0)?;
        file.sync_all()?;
    }
    let noted = Noted {
        count: Count(before.map_or(0, |before| before.count.0) + 1),
        epoch,
        inode,
        length,
        position: before.and_then(|before| before.position),
    };
    noted.write(side)?;
    Ok(noted)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use outlet::{Incarnation, Milliseconds, Sequence, StandardProperties};

    use super::*;

    fn item(sequence: u64) -> Arc<Item> {
        Arc::new(Item {
            position: Some(Position {
                incarnation: Incarnation(1),
                sequence: Sequence(sequence),
            }),
            topic: "a".into(),
            payload: Bytes::from(sequence.to_string()),
            qos: 1,
            retain: false,
            received: Milliseconds(0),
            properties: Vec::new(),
            standard: StandardProperties::default(),
        })
    }

    fn target(folder: &Path) -> FileTarget {
        FileTarget::new(&folder.join("out"), Some("${payload}")).unwrap()
    }

    fn content(folder: &Path) -> String {
        std::fs::read_to_string(folder.join("out")).unwrap()
    }

    #[test]
    fn what_was_written_and_not_noted_is_cut_and_written_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut first = target(folder);
        assert_eq!(first.open(Epoch(1)), Ok(None));
        assert_eq!(first.deliver(&[item(1), item(2)]), Delivery::All);
        let noted = std::fs::read(folder.join("out.position")).unwrap();
        assert_eq!(first.deliver(&[item(3)]), Delivery::All);
        drop(first);
        // The power fails after the write of 3 and before its note: one of its two lines is the older one then.
        std::fs::write(folder.join("out.position"), noted).unwrap();
        let mut second = target(folder);
        assert_eq!(second.open(Epoch(2)), Ok(item(2).position));
        assert_eq!(content(folder), "1\n2\n");
        assert_eq!(second.deliver(&[item(3)]), Delivery::All);
        assert_eq!(content(folder), "1\n2\n3\n");
        drop(second);
        assert_eq!(target(folder).open(Epoch(3)), Ok(item(3).position));
        assert_eq!(content(folder), "1\n2\n3\n");
    }

    #[test]
    fn one_process_writes_at_a_time_and_an_older_one_never_again() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut later = target(folder);
        assert_eq!(later.open(Epoch(2)), Ok(None));
        let mut older = target(folder);
        assert!(matches!(older.open(Epoch(1)), Err(OpenError::Retry(_))));
        drop(later);
        assert_eq!(older.open(Epoch(1)), Err(OpenError::Fenced));
        assert_eq!(target(folder).open(Epoch(2)), Ok(None));
    }

    #[test]
    fn a_message_without_a_piece_is_refused_and_those_before_it_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let path = folder.join("out");
        let mut target = FileTarget::new(&path, Some("${property.unit}")).unwrap();
        assert_eq!(target.open(Epoch(1)), Ok(None));
        let with = |sequence| {
            let properties = vec![("unit".into(), "K".into())];
            Arc::new(Item {
                properties,
                ..Item::clone(&item(sequence))
            })
        };
        let delivery = target.deliver(&[with(1), item(2), with(3)]);
        let Delivery::Refused { which, why } = delivery else {
            panic!("{delivery:?}");
        };
        assert_eq!(which, Refusal::At(1));
        assert!(why.contains("property.unit"), "{why}");
        assert_eq!(content(folder), "K\n");
    }

    #[test]
    fn a_file_that_is_moved_or_cut_by_others_is_not_cut_again() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut target = target(folder);
        assert_eq!(target.open(Epoch(1)), Ok(None));
        assert_eq!(target.deliver(&[item(1)]), Delivery::All);
        std::fs::rename(folder.join("out"), folder.join("old")).unwrap();
        assert_eq!(target.deliver(&[item(2)]), Delivery::All);
        assert_eq!(content(folder), "2\n");
        assert_eq!(std::fs::read_to_string(folder.join("old")).unwrap(), "1\n");
        std::fs::write(folder.join("out"), "").unwrap();
        assert_eq!(target.deliver(&[item(3)]), Delivery::All);
        assert_eq!(content(folder), "3\n");
        // A folder that is away is waited for.
        std::fs::rename(folder.join("out"), folder.join("older")).unwrap();
        std::fs::create_dir(folder.join("out")).unwrap();
        assert!(matches!(target.deliver(&[item(4)]), Delivery::Retry { .. }));
        std::fs::remove_dir(folder.join("out")).unwrap();
        assert_eq!(target.open(Epoch(1)), Ok(item(3).position));
        assert_eq!(target.deliver(&[item(4)]), Delivery::All);
        assert_eq!(content(folder), "4\n");
    }
}
