//! What of a journal is durable, and what survives besides.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::{Filesystem, Folder, Lost, Operation, Record, SECTOR, Survivors};

/// For each record whether it is durable.
pub(super) fn durable(before: &Folder, records: &[Record], filesystem: Filesystem) -> Vec<bool> {
    let mut covered: HashMap<u64, u64> = HashMap::new();
    let mut any = 0;
    for record in records {
        if let Operation::Sync(records) = record.operation {
            let entry = covered.entry(record.inode).or_default();
            *entry = (*entry).max(records);
            any = any.max(records);
        }
    }
    let mut folders: HashMap<PathBuf, u64> = before
        .names
        .iter()
        .filter(|(_, entry)| entry.is_folder)
        .map(|(path, entry)| (path.clone(), entry.inode))
        .collect();
    folders.insert(PathBuf::new(), before.inode);
    let is_kind = filesystem == Filesystem::Ext4;
    let mut durable = Vec::with_capacity(records.len());
    for (number, record) in records.iter().enumerate() {
        let is_covered = |inode: u64| {
            covered
                .get(&inode)
                .is_some_and(|records| *records > number as u64)
        };
        let in_folder = |path: &Path| {
            let parent = path.parent().unwrap_or(Path::new(""));
            folders.get(parent).is_some_and(|inode| is_covered(*inode))
        };
        let own = is_covered(record.inode);
        durable.push(match &record.operation {
            Operation::Write { .. } | Operation::Resize { .. } => own,
            Operation::Sync(_) => true,
            Operation::Create(path) => own || in_folder(path),
            Operation::MakeFolder(path) => own || in_folder(path) || is_kind && any > number as u64,
            Operation::Rename(_, to) => in_folder(to) || is_kind && own,
            Operation::Unlink(path) | Operation::RemoveFolder(path) => {
                in_folder(path) || is_kind && own
            }
        });
        if let Operation::MakeFolder(path) = &record.operation {
            folders.insert(path.clone(), record.inode);
        }
    }
    durable
}

/// How much of each record there is in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    All,
    Nothing,
    /// The first bytes of a write.
    Start(usize),
}

pub(super) fn keep_some(records: &[Record], durable: &[bool], survivors: Survivors) -> Vec<Kept> {
    let mut kept: Vec<Kept> = durable
        .iter()
        .map(|durable| if *durable { Kept::All } else { Kept::Nothing })
        .collect();
    let Survivors::Some(mut chance) = survivors else {
        return kept;
    };
    let mut names = Vec::new();
    let mut writes: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, record) in records
        .iter()
        .enumerate()
        .filter(|(number, _)| !durable[*number])
    {
        match record.operation {
            Operation::Write { .. } | Operation::Resize { .. } => {
                writes.entry(record.inode).or_default().push(number);
            }
            _ => names.push(number),
        }
    }
    // A journal commits names in their order.
    let named = chance.among(0..names.len() as u64 + 1) as usize;
    for number in names.into_iter().take(named) {
        kept[number] = Kept::All;
    }
    for numbers in writes.into_values() {
        let count = chance.among(0..numbers.len() as u64 + 1) as usize;
        let in_order = chance.once_in(2);
        for (place, number) in numbers.into_iter().enumerate() {
            let survives = if in_order {
                place < count
            } else {
                chance.once_in(2)
            };
            let torn = in_order && place == count;
            if survives {
                kept[number] = Kept::All;
            } else if torn && let Operation::Write { new, .. } = &records[number].operation {
                let sectors = new.len().div_ceil(SECTOR) as u64;
                kept[number] = Kept::Start(SECTOR * chance.among(0..sectors.max(1)) as usize);
            }
        }
    }
    kept
}

pub(super) fn count_lost(records: &[Record], kept: &[Kept]) -> Lost {
    let mut lost = Lost::default();
    for (record, _) in records
        .iter()
        .zip(kept)
        .filter(|(_, kept)| **kept != Kept::All)
    {
        match record.operation {
            Operation::Write { .. } | Operation::Resize { .. } => lost.writes += 1,
            _ => lost.names += 1,
        }
    }
    lost
}
