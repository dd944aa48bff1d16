//! Reading files of limited size.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use zeroize::Zeroizing;

/// The largest file with keys that is read.
pub(crate) const MAX_KEY_FILE_BYTES: u64 = 1024 * 1024;

/// The content of a file, which may be secret.
pub(crate) fn read(path: &Path, max_bytes: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let in_file = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let content = read_up_to(path, max_bytes).map_err(|error| in_file(&error))?;
    if content.len() as u64 > max_bytes {
        return Err(in_file(&format_args!("larger than {max_bytes} bytes")));
    }
    Ok(content)
}

/// The content of a file that must be UTF-8.
pub(crate) fn read_text(path: &Path, max_bytes: u64) -> Result<Zeroizing<String>, String> {
    let content = read(path, max_bytes)?;
    let text =
        std::str::from_utf8(&content).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// One byte more than the limit, if there is one.
fn read_up_to(path: &Path, max_bytes: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut content = Zeroizing::default();
    File::open(path)?
        .take(max_bytes + 1)
        .read_to_end(&mut content)?;
    Ok(content)
}
