//! Brings files and names to what there is in the end.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry as Slot, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::survival::Kept;
use super::{Folder, Operation, PowerError, Record, Shim, walk};

/// Where each file is now, by inode: in the folder, or kept aside when it lost its name.
pub(super) struct Places(HashMap<u64, PathBuf>);

impl Places {
    pub(super) fn find(before: &Folder, shim: &Shim) -> io::Result<Self> {
        let mut places = HashMap::new();
        let kept = shim.side().join("kept");
        let mut names = BTreeMap::new();
        if kept.exists() {
            walk(&kept, Path::new(""), &mut names)?;
        }
        for (name, entry) in names {
            places.insert(entry.inode, kept.join(name));
        }
        let mut names = BTreeMap::new();
        walk(&before.path, Path::new(""), &mut names)?;
        for (name, entry) in names.into_iter().filter(|(_, entry)| !entry.is_folder) {
            places.insert(entry.inode, before.path.join(name));
        }
        Ok(Self(places))
    }
}

/// Every file must have the size that the journal says, but for one whose last operation was noted and,
/// as the process died, not done.
pub(super) fn check_sizes(
    before: &Folder,
    records: &[Record],
    now: &Places,
) -> Result<(), PowerError> {
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    for entry in before.names.values().filter(|entry| !entry.is_folder) {
        sizes.insert(entry.inode, entry.size);
    }
    let mut unsure = None;
    for record in records {
        let size = match &record.operation {
            Operation::Write {
                offset,
                size_before,
                new,
                ..
            } => (*size_before).max(offset + new.len() as u64),
            Operation::Resize { size, .. } => *size,
            Operation::Create(_) => 0,
            _ => continue,
        };
        sizes.insert(record.inode, size);
        unsure = Some(record.inode);
    }
    let mut unknown = None;
    for (inode, path) in &now.0 {
        let size = fs::metadata(path)?.len();
        match sizes.get(inode) {
            Some(expected) if *expected == size || unsure == Some(*inode) => {}
            // The last creation may have happened without being noted. It goes, as it was not synced.
            None if unknown.is_none() => unknown = Some(path),
            _ => return Err(PowerError::Unseen(path.clone())),
        }
    }
    Ok(())
}

/// Takes back, last first, all that was not durable, and does again what is to survive.
pub(super) fn restore_content(
    records: &[Record],
    durable: &[bool],
    kept: &[Kept],
    now: &Places,
) -> Result<(), PowerError> {
    let mut files: HashMap<u64, File> = HashMap::new();
    let mut changed: Vec<usize> = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let is_content = matches!(
            record.operation,
            Operation::Write { .. } | Operation::Resize { .. }
        );
        if !is_content || durable[number] {
            continue;
        }
        if let Some(path) = now.0.get(&record.inode) {
            if let Slot::Vacant(slot) = files.entry(record.inode) {
                slot.insert(File::options().write(true).open(path)?);
            }
            changed.push(number);
        }
    }
    for number in changed.iter().rev() {
        let record = &records[*number];
        match &record.operation {
            Operation::Write {
                offset,
                size_before,
                old,
                ..
            } => {
                files[&record.inode].write_all_at(old, *offset)?;
                files[&record.inode].set_len(*size_before)?;
            }
            Operation::Resize {
                size,
                size_before,
                old,
            } => {
                files[&record.inode].set_len(*size_before)?;
                files[&record.inode].write_all_at(old, *size)?;
            }
            _ => {}
        }
    }
    for number in changed {
        let record = &records[number];
        let len = match kept[number] {
            Kept::Nothing => continue,
            Kept::All => usize::MAX,
            Kept::Start(len) => len,
        };
        match &record.operation {
            Operation::Write { offset, new, .. } => {
                files[&record.inode].write_all_at(&new[..len.min(new.len())], *offset)?;
            }
            Operation::Resize { size, .. } => files[&record.inode].set_len(*size)?,
            _ => {}
        }
    }
    Ok(())
}

/// The names that there are when the kept changes have happened, with inode and whether it is a folder.
pub(super) fn final_names(
    before: &Folder,
    records: &[Record],
    kept: &[Kept],
) -> BTreeMap<PathBuf, (u64, bool)> {
    let mut names: BTreeMap<PathBuf, (u64, bool)> = before
        .names
        .iter()
        .map(|(path, entry)| (path.clone(), (entry.inode, entry.is_folder)))
        .collect();
    for (record, _) in records
        .iter()
        .zip(kept)
        .filter(|(_, kept)| **kept == Kept::All)
    {
        match &record.operation {
            Operation::Create(path) => {
                names.insert(path.clone(), (record.inode, false));
            }
            Operation::MakeFolder(path) => {
                names.insert(path.clone(), (record.inode, true));
            }
            Operation::Rename(from, to) => rename(&mut names, record.inode, from, to),
            Operation::Unlink(path) | Operation::RemoveFolder(path) => {
                // Another file may have taken the name meanwhile.
                names.retain(|name, (inode, _)| name != path || *inode != record.inode);
            }
            _ => {}
        }
    }
    names
}

fn rename(names: &mut BTreeMap<PathBuf, (u64, bool)>, inode: u64, from: &Path, to: &Path) {
    let below: Vec<PathBuf> = names
        .keys()
        .filter(|path| path.starts_with(from) && *path != from)
        .cloned()
        .collect();
    let was = names
        .get(from)
        .copied()
        .filter(|(found, _)| *found == inode);
    if was.is_some() {
        names.remove(from);
    }
    // A name that became durable under its new folder only: the file is there all the same.
    names.insert(to.to_owned(), was.unwrap_or((inode, false)));
    for path in below {
        if let (Some(entry), Ok(rest)) = (names.remove(&path), path.strip_prefix(from)) {
            names.insert(to.join(rest), entry);
        }
    }
}

/// Builds the folder anew from the files where they are now.
pub(super) fn restore_names(
    before: &Folder,
    names: &BTreeMap<PathBuf, (u64, bool)>,
    now: &Places,
    shim: &Shim,
) -> Result<(), PowerError> {
    let fresh = shim.side().join("fresh");
    fs::create_dir(&fresh)?;
    // Parents come before what is in them; without its parent a file is lost as well.
    for (path, (inode, is_folder)) in names {
        let target = fresh.join(path);
        if !target.parent().is_some_and(Path::exists) {
            continue;
        }
        if *is_folder {
            fs::create_dir(&target)?;
        } else if let Some(place) = now.0.get(inode) {
            fs::rename(place, &target)?;
        }
    }
    fs::remove_dir_all(&before.path)?;
    fs::rename(&fresh, &before.path)?;
    Ok(())
}
