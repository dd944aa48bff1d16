//! The file with the bans: read when the node starts, written before a changed list counts.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use guard::{Ban, Bans, Guard};
use parking_lot::Mutex;
use tempfile::NamedTempFile;

/// The file. Changes are made one after the other.
#[derive(Debug)]
pub(crate) struct BanFile {
    path: PathBuf,
    changing: Mutex<()>,
}

impl BanFile {
    /// Reads the file. One that is not there holds no bans.
    ///
    /// # Errors
    /// It cannot be read, or holds something else.
    pub(crate) fn open(path: PathBuf) -> io::Result<(Self, Bans)> {
        let bans = match fs::read(&path) {
            Ok(text) => parse(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Bans::default(),
            Err(error) => return Err(error),
        };
        let changing = Mutex::default();
        Ok((Self { path, changing }, bans))
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
        write(&self.path, &bans.iter(now_ms).collect::<Vec<_>>())?;
        guard.set_bans(bans);
        Ok(result)
    }
}

fn parse(text: &[u8]) -> io::Result<Bans> {
    let list: Vec<Ban> = serde_json::from_slice(text)?;
    Bans::new(list).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "too many bans"))
}

/// Replaces the file as a whole, and returns when that is on the disk.
fn write(path: &Path, bans: &[&Ban]) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let file = NamedTempFile::new_in(folder)?;
    let mut writer = BufWriter::new(&file);
    serde_json::to_writer_pretty(&mut writer, bans)?;
    writer.write_all(b"\n")?;
    writer.flush()?;
    drop(writer);
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use guard::Subject;

    use super::*;

    fn user(name: &str) -> Subject {
        Subject::User(name.into())
    }

    #[test]
    fn bans_are_there_after_a_restart_until_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bans.json");
        let (file, bans) = BanFile::open(path.clone()).unwrap();
        let guard = Guard::new(&config::AbuseConfig::default());
        guard.set_bans(bans);
        for (name, expires) in [("a", None), ("b", Some(5)), ("c", Some(50))] {
            let add = |bans: &mut Bans| -> io::Result<_> {
                Ok(bans.add(user(name), "why".into(), 1, expires).unwrap())
            };
            file.change(&guard, 1, add).unwrap();
        }
        file.change(&guard, 10, |bans| -> io::Result<_> { Ok(bans.remove(1)) })
            .unwrap();
        let (_, again) = BanFile::open(path).unwrap();
        let names: Vec<_> = again.iter(0).map(|ban| ban.subject.clone()).collect();
        assert_eq!(names, [user("c")]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let (file, _) = BanFile::open(folder.path().join("gone/bans.json")).unwrap();
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
            let error = BanFile::open(file.path().to_owned()).unwrap_err();
            assert!(error.to_string().contains("line"), "{error}");
        }
    }
}
