//! The table of a shard, to be read only.
//!
//! `lsm-tree` knows no way of opening without deleting what does not count. So it gets a folder of links
//! to the files, where it deletes links.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

use parking_lot::RwLock;

use super::{
    Arc, Shard, ShardTable, TableResources, TablesError, TablesOptions, Tree, folder_of, manifest,
};

impl ShardTable {
    /// The table of a shard of the store in `store`; `None` if there is none. Nothing in its folder is
    /// changed, as long as nothing is written to the table. `links` is an empty folder, absolute as
    /// `store` is, that is needed until the table is dropped.
    ///
    /// # Errors
    /// The table is damaged, or cannot be read.
    pub(crate) fn view(
        store: &Path,
        id: u64,
        links: &Path,
        options: TablesOptions,
    ) -> Result<Option<Self>, TablesError> {
        let folder = store.join(folder_of(id));
        if !folder.exists() {
            return Ok(None);
        }
        // Now, since it names the files where they are.
        manifest::check(&folder)?;
        link(&folder, links)
            .and_then(|()| link(&folder.join("tables"), &links.join("tables")))
            .map_err(|reason| TablesError::io(&folder, &reason))?;
        let resources = TableResources::new(options);
        let tree = Tree::open(links, &resources).map_err(|error| error.in_folder(&folder))?;
        Ok(Some(Self(Arc::new(Shard {
            folder,
            resources,
            tree: RwLock::new(tree),
            unmerged_bytes: AtomicUsize::new(0),
        }))))
    }
}

/// Makes a folder of links to the files of another one, if that is there.
fn link(folder: &Path, links: &Path) -> std::io::Result<()> {
    fs::create_dir_all(links)?;
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            symlink(entry.path(), links.join(entry.file_name()))?;
        }
    }
    Ok(())
}
