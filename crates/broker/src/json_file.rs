//! Small files of a node that are read when it starts, and replaced as a whole when what they hold changes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;

/// What a file holds. One that is not there is empty.
///
/// # Errors
/// It cannot be read, or holds something else.
pub(crate) fn read<T: DeserializeOwned + Default>(path: &Path) -> io::Result<T> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error),
    }
}

/// Replaces the file as a whole, and returns when that is on the disk.
///
/// # Errors
/// The file is what it was.
pub(crate) fn write(path: &Path, content: &(impl Serialize + ?Sized)) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let file = NamedTempFile::new_in(folder)?;
    let mut writer = BufWriter::new(&file);
    serde_json::to_writer_pretty(&mut writer, content)?;
    writer.write_all(b"\n")?;
    writer.flush()?;
    drop(writer);
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}
