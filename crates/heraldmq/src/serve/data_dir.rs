//! The folder for durable state: there, writable, and for its owner only, before anything else starts.

use std::os::unix::fs::PermissionsExt as _;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

use config::Config;
use rustix::fs::Mode;
use tracing::warn;

/// Files of which the permissions are looked at, at most.
///
/// Limit: stored files whose permissions are looked at when a node starts | {} | the others are not looked at
const LOOKED_AT: usize = 100_000;

/// Permissions of others than the owner to read or write.
const OTHERS: u32 = 0o066;

/// From now on what this process makes is for its owner only: messages, sessions, bans. What others are to
/// use, such as the socket of a listener, is given its permissions explicitly.
pub(crate) fn keep_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

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

/// Says once if others can read what was stored before, by a version or a hand that left files open.
pub(super) fn warn_if_open(config: &Config) {
    let stores = [
        &config.session_store_folder,
        &config.inbox_store_folder,
        &config.retain_store_folder,
    ];
    let stores = stores.into_iter().flatten();
    for folder in std::iter::once(&config.data_dir).chain(stores) {
        if let Some(Open { files, example }) = open_files(folder) {
            warn!(
                folder = %folder.display(),
                files,
                example = %example.display(),
                remedy = %format_args!("chmod -R go= {}", folder.display()),
                "other users of this machine can read the data folder"
            );
        }
    }
}

/// Files that others than their owner can open.
struct Open {
    files: usize,
    example: PathBuf,
}

/// Looks for files below a folder that others than their owner can reach and open. What cannot be looked at
/// is left out.
fn open_files(folder: &Path) -> Option<Open> {
    let mut open: Option<Open> = None;
    let mut looked_at = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let passable = fs::metadata(&folder).is_ok_and(|m| m.permissions().mode() & 0o011 != 0);
        let entries = passable.then(|| fs::read_dir(&folder).ok()).flatten();
        for entry in entries.into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > LOOKED_AT {
                return open;
            }
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.is_file() && metadata.permissions().mode() & OTHERS != 0 {
                let open = open.get_or_insert_with(|| Open {
                    files: 0,
                    example: entry.path(),
                });
                open.files += 1;
            }
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_others_can_reach_are_found() {
        let root = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let (inner, file) = (root.path().join("log"), root.path().join("log/1.raftlog"));
        fs::create_dir(&inner).unwrap();
        fs::write(&file, "payload").unwrap();
        for (folder, inside, mode, found) in [
            (0o755, 0o755, 0o644, true),
            (0o755, 0o755, 0o640, true),
            (0o755, 0o755, 0o600, false),
            (0o755, 0o700, 0o644, false),
            (0o700, 0o755, 0o644, false),
        ] {
            set(root.path(), folder);
            set(&inner, inside);
            set(&file, mode);
            let open = open_files(root.path());
            assert_eq!(open.is_some(), found, "{folder:o} {inside:o} {mode:o}");
            assert!(open.is_none_or(|open| open.files == 1 && open.example == file));
        }
    }
}
