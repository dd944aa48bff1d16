//! The first table of a shard that a split has made.
//!
//! Purpose: the child of a split takes over the rows of its slots without copying them. Its table begins with hard links to
//! the sorted files of the parent's table, which never change, and a copy of the list that names them. What has changed
//! since the parent's last checkpoint is the child's first one.
//!
//! Invariants: a folder has the name of the child only when all of it is on disk, first checkpoint included. Until then it is
//! `seeding-…`, which is removed when the tables are opened. The parent's table is not changed; its reads, checkpoints and
//! merges go on meanwhile, and concern the child no more.
//!
//! Deliberately absent: which checkpoint of the parent is the right one (the shard keeps the parent from writing one); the
//! rows of the parent that the child has as well (`own_rows.rs`).

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use lsm_tree::{AbstractTree as _, Table};
use store_state::{Change, Changes};

use super::manifest::{self, List};
use super::{ShardTable, Tables, TablesError, Tree, descriptor_in, folder_of, sorted};
use crate::storage::folder::{create, make_directory, sync_directory};

/// What the name of a folder begins with while a child's table is made in it.
pub(super) const SEEDING: &str = "seeding-";

/// How often the list of a parent's files is read again since the parent has a newer one.
const TRIES: usize = 100;

impl Tables {
    /// Makes the table of a shard that a split has made: all rows that the parent's table has now, with the changes of the
    /// child's first checkpoint, and its mark. When it returns, all of that is on disk. Only rows of the range that the
    /// descriptor in the changes says are found in it.
    ///
    /// Costs a link for each of the parent's files, about ten syncs, and the changes; where the file system has no links, the
    /// files are copied. Foreign rows take space until [`ShardTable::maintain`] of both tables has removed them. If the
    /// process dies before it returns, there is no table of the child at the next start, or all of it.
    ///
    /// # Errors
    /// [`TablesError::Exists`]: the shard has a table with another mark. Others are those of [`ShardTable::write`]. Nothing
    /// of the child is left, and the same can be tried again; if only the last step failed, the table is whole, and the next
    /// try finds it. The parent's table is as before.
    ///
    /// # Panics
    /// If the changes have no descriptor, or a key twice.
    pub fn seed(
        &self,
        child: u64,
        parent: &ShardTable,
        changes: &Changes,
        mark: &[u8],
    ) -> Result<ShardTable, TablesError> {
        let entries = sorted(changes)?;
        assert!(
            descriptor_in(&entries).is_some(),
            "the first checkpoint of a child says which slots it has"
        );
        let _alone = self.seeding.lock();
        if self.has_folder(child)? {
            let table = self.shard(child)?;
            return match table.mark()? {
                Some(found) if found == mark => Ok(table),
                _ => Err(self.exists(child)),
            };
        }
        let folder = self.seeding_folder(child);
        let made = self
            .prepare(&folder, parent)
            .and_then(|()| self.write_first(&folder, &entries, mark))
            .and_then(|()| self.publish(&folder, child));
        if let Err(error) = made {
            // What cannot be removed now is removed when the tables are opened the next time.
            let _ = fs::remove_dir_all(&folder);
            return Err(error);
        }
        // This syncs its name.
        self.shard(child)
    }

    fn has_folder(&self, shard: u64) -> Result<bool, TablesError> {
        let place = self.folder.join(folder_of(shard));
        let exists = place.try_exists();
        exists.map_err(|reason| TablesError::io(&place, &reason))
    }

    fn exists(&self, shard: u64) -> TablesError {
        TablesError::Exists {
            folder: self.folder.join(folder_of(shard)),
        }
    }

    pub(super) fn seeding_folder(&self, child: u64) -> PathBuf {
        self.folder.join(format!("{SEEDING}{}", folder_of(child)))
    }

    /// A copy of the parent's table in a folder of its own.
    fn prepare(&self, folder: &Path, parent: &ShardTable) -> Result<(), TablesError> {
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|reason| TablesError::io(folder, &reason))?;
        }
        parent.link_into(folder, |from, to| fs::hard_link(from, to))
    }

    /// Writes the first checkpoint.
    pub(super) fn write_first(
        &self,
        folder: &Path,
        sorted: &[&Change],
        mark: &[u8],
    ) -> Result<(), TablesError> {
        let tree = Tree::open(folder, &self.resources)?;
        let written = tree.checkpoint(sorted, mark);
        written.map_err(|reason| TablesError::tree(folder, &reason))
    }

    /// Gives the folder the name of the shard's table.
    pub(super) fn publish(&self, folder: &Path, child: u64) -> Result<(), TablesError> {
        // Nobody makes an empty table of the shard meanwhile.
        let _open = self.open.lock();
        if self.has_folder(child)? {
            return Err(self.exists(child));
        }
        let place = self.folder.join(folder_of(child));
        fs::rename(folder, &place).map_err(|reason| TablesError::io(&place, &reason))
    }
}

impl ShardTable {
    /// Makes a folder with the files that count now: links to the sorted ones, or copies where there can be no links, and
    /// copies of the list and of the pointer to it. When it returns, they are on disk.
    pub(super) fn link_into(
        &self,
        folder: &Path,
        link: impl Fn(&Path, &Path) -> io::Result<()>,
    ) -> Result<(), TablesError> {
        let mut tries = (0..TRIES).filter_map(|_| {
            // It is neither opened again nor replaced as long as this is held: both delete files that are only held open.
            let tree = self.0.tree.read();
            let files = Files::of(&tree, &self.0.folder).transpose()?;
            Some(files.map(|files| (tree, files)))
        });
        let found = tries.next().unwrap_or_else(|| {
            let reason = io::Error::other("its list of files changes all the time");
            Err(TablesError::io(&self.0.folder, &reason))
        });
        let (_tree, files) = found?;
        let made = files.link_into(folder, link);
        made.map_err(|reason| TablesError::io(folder, &reason))
    }
}

/// The files of a table as of one moment. They are not deleted as long as this is held.
struct Files {
    sorted: Vec<Table>,
    list: List,
}

impl Files {
    /// `None`: the disk has another list by now.
    fn of(tree: &Tree, folder: &Path) -> Result<Option<Self>, TablesError> {
        // Waits until a list that is written right now is the one in memory as well.
        drop(tree.tree.get_version_history_lock());
        let version = tree.tree.current_version();
        let list = manifest::read_list(folder)?;
        let list = list.filter(|list| list.is_of(version.id()));
        Ok(list.map(|list| Self {
            sorted: version.iter_tables().cloned().collect(),
            list,
        }))
    }

    fn link_into(
        &self,
        folder: &Path,
        link: impl Fn(&Path, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let tables = folder.join("tables");
        make_directory(&tables)?;
        for file in &self.sorted {
            let to = tables.join(file.id().to_string());
            link_or_copy(&file.path, &to, &link)?;
        }
        sync_directory(&tables)?;
        let List {
            name,
            bytes,
            current,
        } = &self.list;
        write_new(&folder.join(name), bytes)?;
        write_new(&folder.join("current"), current)?;
        sync_directory(folder)
    }
}

fn link_or_copy(
    from: &Path,
    to: &Path,
    link: impl Fn(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    match link(from, to) {
        Err(error)
            if matches!(
                error.kind(),
                CrossesDevices | PermissionDenied | TooManyLinks | Unsupported
            ) =>
        {
            let mut copy = create(to)?;
            io::copy(&mut fs::File::open(from)?, &mut copy)?;
            copy.sync_all()
        }
        linked => linked,
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
