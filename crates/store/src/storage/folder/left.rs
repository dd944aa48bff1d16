//! The folder of a node that has left its cluster: the file `left`, and the emptying at the next start.
//!
//! ```text
//! left          the identifier that has left the cluster     written when the other members have removed the node,
//!                                                            removed when the node has joined as a new one
//! ```
//!
//! Invariants: only what the broker has put there is removed, and nothing of another node; what says where a store is goes after
//! the store, `FORMAT` goes last, and `left` outlives them all. So the start after one that was interrupted goes on.
//!
//! Versions without copies of files empty a folder too, and leave the copies. These name the node that has left, so they are removed
//! before anything is read from them.
//!
//! Deliberately absent: which files other crates keep in the folder; their names are given.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use durable_file::COPY;

use super::durable::{UNFINISHED, sync_directory, write_whole};
use super::format::{FORMAT_FILE, read as read_format};
use super::reserve::RESERVE;
use super::{
    ALIVE, DATA_FOLDER, FOUNDED, FolderError, INCARNATION, LEVEL, MADE, last_place, lock, what,
};
use crate::storage::map;
use crate::storage::tables;

/// The file.
pub(super) const LEFT: &str = "left";

/// What the file has before the identifier.
const NODE: &str = "node ";

/// The data folder of a node that has left its cluster, and has not joined as a new one yet.
#[derive(Debug)]
pub struct Left {
    root: PathBuf,
    /// Whether [`empty_if_left`] has removed something of the node that has left.
    pub was_emptied: bool,
}

impl Left {
    /// The node is a member under its new identifier, or will never be one: the file `left` is removed.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn forget(self) -> Result<(), FolderError> {
        let path = self.root.join(LEFT);
        fs::remove_file(&path)
            .and_then(|()| sync_directory(&self.root))
            .map_err(|reason| FolderError::io(&path, reason))
    }

    /// The data folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.root
    }
}

/// Notes in a data folder that its node, `node`, has left the cluster. The note is on disk at return.
///
/// # Errors
/// It cannot be written.
pub fn note_left(root: &Path, node: u64) -> Result<(), FolderError> {
    let path = root.join(LEFT);
    write_whole(&path, format!("{NODE}{node:016x}\n").as_bytes())
        .map_err(|reason| FolderError::io(&path, reason))
}

/// Empties a data folder, which no process uses, if its node has left the cluster, and the folders of the node's stores.
/// `others`: names of the files that other parts of the broker keep of the node. `None`: no node has left there.
///
/// # Errors
/// Another process has it open; a file is damaged or of a newer format; or something cannot be removed. The next call goes on.
pub fn empty_if_left(root: &Path, others: &[&str]) -> Result<Option<Left>, FolderError> {
    empty_with(root, others, &mut |_| Ok(()))
}

/// `before` is called before anything is removed.
fn empty_with(
    root: &Path,
    others: &[&str],
    before: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> Result<Option<Left>, FolderError> {
    let root = std::path::absolute(root).map_err(|reason| FolderError::io(root, reason))?;
    if !root.join(LEFT).exists() {
        return Ok(None);
    }
    let _lock = lock(&root)?;
    let gone = read_left(&root)?;
    let label = read_format(&root, DATA_FOLDER)?;
    let was_emptied = label.is_none_or(|label| label.node == gone);
    let mut emptying = Emptying { before };
    match was_emptied {
        true => emptying.all(&root, gone, others)?,
        false => emptying.stray_copies(&root, others)?,
    }
    Ok(Some(Left { root, was_emptied }))
}

/// Removes the copies in the folder of a store that the node has not made, if nothing of a store is there but copies.
pub(super) fn remove_stray_copies(folder: &Path) -> Result<(), FolderError> {
    if !folder.is_dir() {
        return Ok(());
    }
    let is_copy = |name: &str| name.ends_with(COPY);
    let is_of_store = |name: &str| {
        name == FORMAT_FILE || tables::is_name(name) || map::is_name(name) && !is_copy(name)
    };
    if names(folder)?.iter().any(|name| is_of_store(name)) {
        return Ok(());
    }
    let before = &mut |_: &Path| Ok(());
    let mut emptying = Emptying { before };
    for name in [FORMAT_FILE, map::FILE] {
        emptying.file(folder, &format!("{name}{COPY}"))?;
    }
    emptying.sync(folder)
}

/// Whether a node has left there: then a folder without `FORMAT` may have files of people.
pub(super) fn has_left(root: &Path) -> bool {
    root.join(LEFT).exists()
}

/// The node that has left.
fn read_left(root: &Path) -> Result<u64, FolderError> {
    let path = root.join(LEFT);
    let text = fs::read_to_string(&path).map_err(|reason| FolderError::io(&path, reason))?;
    let node = text.trim_end().strip_prefix(NODE);
    let node = node.and_then(|node| u64::from_str_radix(node, 16).ok());
    node.ok_or(FolderError::Damaged { path })
}

struct Emptying<'a> {
    before: &'a mut dyn FnMut(&Path) -> io::Result<()>,
}

impl Emptying<'_> {
    fn all(&mut self, root: &Path, gone: u64, others: &[&str]) -> Result<(), FolderError> {
        self.stores(root, gone)?;
        self.whole(&root.join(LOG))?;
        let own = [INCARNATION, ALIVE, RESERVE, LEVEL, FOUNDED];
        for name in own.iter().chain(others) {
            self.file(root, name)?;
        }
        self.sync(root)?;
        self.format(root)
    }

    /// The stores that the node has made, wherever they are.
    fn stores(&mut self, root: &Path, gone: u64) -> Result<(), FolderError> {
        let names = names(root)?;
        for name in names.iter().filter_map(|file| file.strip_suffix(MADE)) {
            let place = last_place(root, name);
            let folder = place.clone().unwrap_or_else(|| root.join(name));
            // None: it was emptied before. Another node's: it is not this node's to empty.
            let label = read_format(&folder, &what(name))?;
            if label.is_some_and(|label| label.node == gone) {
                self.store(&folder)?;
            }
            if place.is_none() {
                self.folder_if_empty(&folder)?;
            }
            self.file(root, &format!("{name}{MADE}"))?;
        }
        Ok(())
    }

    fn store(&mut self, folder: &Path) -> Result<(), FolderError> {
        for name in names(folder)? {
            if tables::is_name(&name) || map::is_name(&name) {
                self.whole(&folder.join(&name))?;
            }
        }
        self.sync(folder)?;
        self.format(folder)
    }

    /// Copies without the files that they are copies of: the node that has left had them, and the one that begins anew has none yet.
    fn stray_copies(&mut self, root: &Path, others: &[&str]) -> Result<(), FolderError> {
        for name in others {
            let of_copy = name.strip_suffix(COPY);
            if of_copy.is_some_and(|name| !root.join(name).exists()) {
                self.file(root, name)?;
            }
        }
        self.sync(root)
    }

    /// `FORMAT`, and before it the copy.
    fn format(&mut self, folder: &Path) -> Result<(), FolderError> {
        self.file(folder, &format!("{FORMAT_FILE}{COPY}"))?;
        self.sync(folder)?;
        self.file(folder, FORMAT_FILE)?;
        self.sync(folder)
    }

    /// A file, and what a start that was interrupted has written of it.
    fn file(&mut self, folder: &Path, name: &str) -> Result<(), FolderError> {
        self.whole(&folder.join(format!("{name}{UNFINISHED}")))?;
        self.whole(&folder.join(name))
    }

    /// A file, or a folder with all that is in it, if it is there. A folder that is a disk of its own, or a link to another
    /// folder, stays and is empty.
    fn whole(&mut self, path: &Path) -> Result<(), FolderError> {
        if !path.is_dir() {
            if path.symlink_metadata().is_ok() {
                self.remove(path, |path| fs::remove_file(path))?;
            }
            return Ok(());
        }
        for name in names(path)? {
            if name != LOST_AND_FOUND {
                self.whole(&path.join(&name))?;
            }
        }
        self.folder_if_empty(path)
    }

    fn folder_if_empty(&mut self, path: &Path) -> Result<(), FolderError> {
        use io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound, ResourceBusy};
        self.remove(path, |path| match fs::remove_dir(path) {
            Err(error)
                if matches!(
                    error.kind(),
                    DirectoryNotEmpty | NotADirectory | NotFound | ResourceBusy
                ) =>
            {
                Ok(())
            }
            removed => removed,
        })
    }

    fn remove(
        &mut self,
        path: &Path,
        remove: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), FolderError> {
        let removed = (self.before)(path).and_then(|()| remove(path));
        removed.map_err(|reason| FolderError::io(path, reason))
    }

    fn sync(&self, folder: &Path) -> Result<(), FolderError> {
        sync_directory(folder).map_err(|reason| FolderError::io(folder, reason))
    }
}

/// The folder of the log, all of which is the broker's.
pub(super) const LOG: &str = "log";

/// What a new disk has.
const LOST_AND_FOUND: &str = "lost+found";

/// The names in a folder; what is no text is not the broker's.
fn names(folder: &Path) -> Result<Vec<String>, FolderError> {
    let io = |reason| FolderError::io(folder, reason);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        names.extend(entry.map_err(io)?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::super::Folder;
    use super::*;

    const OTHERS: [&str; 1] = ["cluster"];

    /// A folder as a node leaves it, with one store elsewhere, and files of a person.
    fn folder(root: &Path, elsewhere: &Path) -> u64 {
        let folder = Folder::open(root).unwrap();
        folder.note_founded().unwrap();
        folder.mark_alive(1).unwrap();
        folder.set_level(store_state::Level::NEWEST).unwrap();
        let inbox = folder.store("inbox", None).unwrap();
        let session = folder.store("session", Some(elsewhere)).unwrap();
        for store in [&inbox, &session] {
            fs::create_dir_all(store.join("shard-1/tables")).unwrap();
            fs::write(store.join("shard-1/tables/7"), "rows").unwrap();
            fs::create_dir(store.join("removed-2")).unwrap();
            fs::write(store.join("SHARDS"), "1\n").unwrap();
        }
        fs::create_dir_all(root.join("log/damaged")).unwrap();
        fs::write(root.join("log/damaged/1.raftlog"), "entries").unwrap();
        for name in [
            "reserve",
            "cluster",
            "level.new",
            "notes.txt",
            "audit.pending",
        ] {
            fs::write(root.join(name), name).unwrap();
        }
        fs::write(elsewhere.join("photo"), "a person's").unwrap();
        folder.node()
    }

    fn listed(folder: &Path) -> Vec<String> {
        names(folder).unwrap()
    }

    const KEPT: [&str; 4] = ["LOCK", "audit.pending", "left", "notes.txt"];

    #[test]
    fn a_node_that_left_begins_anew_and_peoples_files_stay() {
        let at = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (at.path().join("data"), at.path().join("elsewhere"));
        let node = folder(&root, &elsewhere);
        assert!(empty_if_left(&root, &OTHERS).unwrap().is_none());
        assert!(root.join("FORMAT").exists());
        note_left(&root, node).unwrap();
        let left = empty_if_left(&root, &OTHERS).unwrap().expect("it has left");
        assert!(left.was_emptied);
        assert_eq!(listed(&root), KEPT);
        assert_eq!(listed(&elsewhere), ["photo"]);
        let anew = Folder::open(&root).unwrap();
        assert_ne!(anew.node(), node);
        assert!(anew.is_new().unwrap() && !anew.has_founded());
        drop(anew);
        // It has not joined yet: nothing is emptied again, and it stays the same node.
        let anew = Folder::open(&root).unwrap().node();
        let left = empty_if_left(&root, &OTHERS).unwrap().expect("it has left");
        assert!(!left.was_emptied);
        assert_eq!(Folder::open(&root).unwrap().node(), anew);
        left.forget().unwrap();
        assert!(empty_if_left(&root, &OTHERS).unwrap().is_none());
        assert_eq!(Folder::open(&root).unwrap().node(), anew);
    }

    #[test]
    fn a_start_goes_on_with_an_emptying_that_was_interrupted_anywhere() {
        for interrupted_at in 0.. {
            let at = tempfile::tempdir().unwrap();
            let (root, elsewhere) = (at.path().join("data"), at.path().join("elsewhere"));
            let node = folder(&root, &elsewhere);
            note_left(&root, node).unwrap();
            let mut steps = 0;
            let emptied = empty_with(&root, &OTHERS, &mut |_| {
                steps += 1;
                match steps > interrupted_at {
                    true => Err(io::Error::other("killed")),
                    false => Ok(()),
                }
            });
            if emptied.is_ok() {
                assert!(interrupted_at > 15, "{interrupted_at} steps");
                return;
            }
            empty_if_left(&root, &OTHERS).unwrap().expect("it has left");
            assert_eq!(listed(&root), KEPT, "after {interrupted_at} steps");
            assert_eq!(
                listed(&elsewhere),
                ["photo"],
                "after {interrupted_at} steps"
            );
            assert_ne!(Folder::open(&root).unwrap().node(), node);
        }
    }

    /// Empties the folder as a version that knows of no copies does.
    fn empty_without_copies(root: &Path, elsewhere: &Path) {
        let inbox = root.join("inbox");
        for folder in [root, inbox.as_path(), elsewhere] {
            for name in names(folder).unwrap() {
                let is_kept = name.ends_with(COPY) || KEPT.contains(&name.as_str());
                let path = folder.join(&name);
                match path.is_dir() {
                    true if path != inbox => fs::remove_dir_all(path).unwrap(),
                    false if !is_kept && name != "photo" => fs::remove_file(path).unwrap(),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn copies_that_a_version_before_them_has_left_are_not_taken_for_files_of_the_new_node() {
        const OTHERS: [&str; 2] = ["cluster", "cluster.copy"];
        for was_begun in [false, true] {
            let at = tempfile::tempdir().unwrap();
            let (root, elsewhere) = (at.path().join("data"), at.path().join("elsewhere"));
            let node = folder(&root, &elsewhere);
            fs::remove_file(elsewhere.join("photo")).unwrap();
            for store in [&root.join("inbox"), &elsewhere] {
                fs::write(store.join("SHARDS.copy"), "1\n").unwrap();
            }
            fs::write(root.join("cluster.copy"), "of the node that has left").unwrap();
            note_left(&root, node).unwrap();
            empty_without_copies(&root, &elsewhere);
            assert_eq!(listed(&elsewhere), ["FORMAT.copy", "SHARDS.copy"]);
            let anew = was_begun.then(|| {
                // That version has begun as a new node, too.
                let copy = fs::read(root.join("FORMAT.copy")).unwrap();
                fs::remove_file(root.join("FORMAT.copy")).unwrap();
                let anew = Folder::open(&root).unwrap().node();
                fs::write(root.join("FORMAT.copy"), copy).unwrap();
                anew
            });
            let left = empty_if_left(&root, &OTHERS).unwrap().expect("it has left");
            assert_eq!(left.was_emptied, !was_begun);
            assert!(!root.join("cluster.copy").exists());
            let opened = Folder::open(&root).unwrap();
            assert_ne!(opened.node(), node);
            assert!(anew.is_none_or(|anew| anew == opened.node()));
            for (name, place) in [("inbox", None), ("session", Some(elsewhere.as_path()))] {
                let store = opened.store(name, place).unwrap();
                assert_eq!(listed(&store), ["FORMAT", "FORMAT.copy"], "{name}");
            }
        }
    }

    #[test]
    fn copies_beside_what_a_store_holds_are_kept() {
        let at = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (at.path().join("data"), at.path().join("elsewhere"));
        let node = folder(&root, &elsewhere);
        fs::remove_file(root.join("session.made")).unwrap();
        fs::remove_file(elsewhere.join("FORMAT")).unwrap();
        let opened = Folder::open(&root).unwrap();
        assert_eq!(opened.node(), node);
        opened.store("session", Some(&elsewhere)).unwrap();
        assert!(elsewhere.join("FORMAT").exists());
        assert!(elsewhere.join("shard-1/tables/7").exists());
    }

    #[test]
    fn a_store_of_another_node_is_not_emptied() {
        let at = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (at.path().join("data"), at.path().join("elsewhere"));
        let node = folder(&root, &elsewhere);
        let (other, place) = (at.path().join("other"), at.path().join("place"));
        folder(&other, &place);
        fs::remove_dir_all(&elsewhere).unwrap();
        fs::rename(&place, &elsewhere).unwrap();
        note_left(&root, node).unwrap();
        empty_if_left(&root, &OTHERS).unwrap().expect("it has left");
        assert!(elsewhere.join("shard-1/tables/7").exists());
        assert!(elsewhere.join("FORMAT").exists());
    }

    #[test]
    fn a_file_of_that_name_that_no_node_has_written_empties_nothing() {
        let at = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (at.path().join("data"), at.path().join("elsewhere"));
        folder(&root, &elsewhere);
        fs::write(root.join("left"), "").unwrap();
        let said = empty_if_left(&root, &OTHERS).unwrap_err().to_string();
        assert!(said.ends_with("left is damaged"), "{said}");
        assert!(root.join("FORMAT").exists() && elsewhere.join("SHARDS").exists());
    }

    #[test]
    fn a_folder_in_use_is_not_emptied() {
        let at = tempfile::tempdir().unwrap();
        let held = Folder::open(at.path()).unwrap();
        note_left(at.path(), held.node()).unwrap();
        let said = empty_if_left(at.path(), &[]).unwrap_err().to_string();
        assert!(said.contains("in use"), "{said}");
    }
}
