//! Damage to files at rest.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::chance::Chance;

/// Cuts 1..=`limit` bytes (at most all) off the file of `folder`, subfolders included, that was written
/// last. Returns the file and how many bytes.
///
/// # Errors
/// Those of the file system; there is no file that is not empty.
pub fn tear_newest(folder: &Path, limit: u64, chance: &mut Chance) -> io::Result<(PathBuf, u64)> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    let newest = files
        .into_iter()
        .filter(|(_, data)| data.len() > 0)
        .filter_map(|(path, data)| Some((data.modified().ok()?, path, data.len())))
        .max();
    let (_, path, size) =
        newest.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no file to tear"))?;
    let cut = chance.among(0..limit.clamp(1, size)) + 1;
    File::options()
        .write(true)
        .open(&path)?
        .set_len(size - cut)?;
    Ok((path, cut))
}

fn collect(folder: &Path, files: &mut Vec<(PathBuf, fs::Metadata)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let data = entry.metadata()?;
        if data.is_dir() {
            collect(&entry.path(), files)?;
        } else if data.is_file() {
            files.push((entry.path(), data));
        }
    }
    Ok(())
}

/// Flips one bit of `file`: in the byte at `offset`, or in any. Returns the offset.
///
/// # Errors
/// Those of the file system; the file is empty or ends before `offset`.
pub fn flip_bit(file: &Path, offset: Option<u64>, chance: &mut Chance) -> io::Result<u64> {
    let file = File::options().read(true).write(true).open(file)?;
    let size = file.metadata()?.len();
    if size == 0 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "an empty file",
        ));
    }
    let offset = offset.unwrap_or_else(|| chance.among(0..size));
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    byte[0] ^= 1 << chance.among(0..8);
    file.write_all_at(&byte, offset)?;
    Ok(offset)
}
