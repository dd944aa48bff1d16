//! The file with the bans: read when the node starts, written before a changed list counts.

use std::io;
use std::path::PathBuf;

use guard::{Ban, Bans, Change, Guard, Lifted, TooMany};
use parking_lot::Mutex;

use crate::json_file::{read, write};

/// The files in the data folder, if the configuration does not name another place.
pub(crate) const FILES: [&str; 2] = ["bans.json", "bans.lifted.json"];

/// The file. Changes are made one after the other.
#[derive(Debug)]
pub(crate) struct BanFile {
    path: PathBuf,
    /// Of a node of a cluster, the file with the bans that were lifted: other nodes may not know that yet.
    lifted: Option<PathBuf>,
    changing: Mutex<()>,
}

impl BanFile {
    /// Reads the file. One that is not there holds no bans. `node`: this node's identifier, in a cluster.
    ///
    /// # Errors
    /// It cannot be read, or holds something else.
    pub(crate) fn open(path: PathBuf, node: Option<u64>) -> io::Result<(Self, Bans)> {
        let list: Vec<Ban> = read(&path)?;
        let mut bans = Bans::new(list).map_err(|_| too_many())?;
        let lifted = node.map(|_| path.with_extension("lifted.json"));
        if let (Some(node), Some(lifted)) = (node, &lifted) {
            for lifted in read::<Vec<Lifted>>(lifted)? {
                // Those that have ended go by their own time.
                bans.merge(Change::Lifted(lifted), 0)
                    .map_err(|_| too_many())?;
            }
            bans.share(node);
        }
        let changing = Mutex::default();
        let file = Self {
            path,
            lifted,
            changing,
        };
        Ok((file, bans))
    }

    /// Changes the bans of a node. They count when they are in the file; if `change` or the writing fails,
    /// everything stays as it was.
    pub(crate) fn change<R, E: From<io::Error>>(
        &self,
        guard: &Guard,
        now_ms: u64,
        change: impl FnOnce(&mut Bans) -> Result<R, E>,
    ) -> Result<R, E> {
        let _one_at_a_time = self.changing.lock();
        let mut bans = Bans::clone(&guard.bans());
        bans.remove_ended(now_ms);
        let result = change(&mut bans)?;
        self.write(&bans, now_ms)?;
        guard.set_bans(bans);
        Ok(result)
    }

    /// Takes in what another node says. It counts at once; then `told` is called, and then it is written. False:
    /// all of it was known.
    ///
    /// # Errors
    /// It counts, and is not in the file.
    pub(crate) fn merge(
        &self,
        guard: &Guard,
        now_ms: u64,
        changes: Vec<Change>,
        told: impl FnOnce(),
    ) -> io::Result<bool> {
        let _one_at_a_time = self.changing.lock();
        let mut bans = Bans::clone(&guard.bans());
        bans.remove_ended(now_ms);
        let mut is_new = false;
        let mut is_full = false;
        for change in changes {
            match bans.merge(change, now_ms) {
                Ok(was_unknown) => is_new |= was_unknown,
                Err(TooMany) => is_full = true,
            }
        }
        if is_full {
            tracing::error!("another node has bans that this one has no room for");
        }
        if is_new {
            guard.set_bans(bans.clone());
            told();
            self.write(&bans, now_ms)?;
        }
        Ok(is_new)
    }

    /// Those that were lifted first: if the process ends in between, the later change counts.
    fn write(&self, bans: &Bans, now_ms: u64) -> io::Result<()> {
        if let Some(lifted) = &self.lifted {
            write(lifted, &bans.lifted().collect::<Vec<_>>())?;
        }
        write(&self.path, &bans.iter(now_ms).collect::<Vec<_>>())
    }
}

fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "too many bans")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use guard::Subject;
    use tempfile::NamedTempFile;

    use super::*;

    fn user(name: &str) -> Subject {
        Subject::User(name.into())
    }

    #[test]
    fn bans_are_there_after_a_restart_until_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bans.json");
        let (file, bans) = BanFile::open(path.clone(), None).unwrap();
        let guard = Guard::new(&config::AbuseConfig::default());
        guard.set_bans(bans);
        for (name, expires) in [("a", None), ("b", Some(5)), ("c", Some(50))] {
            let add = |bans: &mut Bans| -> io::Result<_> {
                Ok(bans.add(user(name), "why".into(), 1, expires).unwrap())
            };
            file.change(&guard, 1, add).unwrap();
        }
        file.change(&guard, 10, |bans| -> io::Result<_> { Ok(bans.lift(1, 10)) })
            .unwrap();
        let (_, again) = BanFile::open(path, None).unwrap();
        let names: Vec<_> = again.iter(0).map(|ban| ban.subject.clone()).collect();
        assert_eq!(names, [user("c")]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_node_of_a_cluster_remembers_what_was_lifted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bans.json");
        let open = || {
            let (file, bans) = BanFile::open(path.clone(), Some(7)).unwrap();
            let guard = Guard::new(&config::AbuseConfig::default());
            guard.set_bans(bans);
            (file, guard)
        };
        let (file, guard) = open();
        let add = |bans: &mut Bans| -> io::Result<_> {
            Ok(bans.add(user("a"), String::new(), 1, None).unwrap())
        };
        let ban = file.change(&guard, 1, add).unwrap();
        file.change(&guard, 2, |bans| -> io::Result<_> {
            Ok(bans.lift(ban.id, 2))
        })
        .unwrap();
        let (file, guard) = open();
        // Another node has not heard of it.
        let late = vec![Change::Banned(ban)];
        assert!(!file.merge(&guard, 3, late, || ()).unwrap());
        assert_eq!(guard.bans().iter(3).count(), 0);
    }

    #[test]
    fn what_cannot_be_written_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let (file, _) = BanFile::open(folder.path().join("gone/bans.json"), None).unwrap();
        let guard = Guard::new(&config::AbuseConfig::default());
        let add = |bans: &mut Bans| -> io::Result<_> {
            Ok(bans.add(user("a"), String::new(), 0, None).unwrap())
        };
        assert!(file.change(&guard, 0, add).is_err());
        assert_eq!(guard.bans().iter(0).count(), 0);
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let file = NamedTempFile::new().unwrap();
        for text in ["", "{}", "[{\"id\": 1}]", "[nonsense"] {
            fs::write(file.path(), text).unwrap();
            let error = BanFile::open(file.path().to_owned(), None).unwrap_err();
            assert!(error.to_string().contains("line"), "{error}");
        }
    }
}
