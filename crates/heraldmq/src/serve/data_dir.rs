//! The folder for durable state: there, and writable, before anything else starts.

use std::{fs, io, path::Path};

/// Creates the folder if it is missing and tries to write into it. On a full disk that proves nothing, and
/// the store decides.
///
/// # Errors
/// One line that names the folder and the system's reason.
pub(super) fn prepare(folder: &Path) -> Result<(), String> {
    let attempt = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let probe = folder.join(format!(".write-test-{}", std::process::id()));
        match fs::write(&probe, b"") {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            Err(error) => Err(error),
            Ok(()) => fs::remove_file(probe),
        }
    };
    attempt().map_err(|error| format!("data folder {} cannot be used: {error}", folder.display()))
}
