//! Why tables cannot be opened, read or written.

use std::path::{Path, PathBuf};
use std::{error, fmt, io};

use rustix::io::Errno;
use store_state::TableError;

/// Why tables cannot be opened, read or written. One line, with the folder and the reason.
#[derive(Debug)]
pub enum TablesError {
    /// No space, or a quota or file-size limit is reached. What was there before is untouched.
    Full {
        /// The folder.
        folder: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// What the disk holds is not what was written.
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// The system refuses.
    Io {
        /// The folder.
        folder: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// A table that is to be removed is in use.
    StillOpen {
        /// The folder.
        folder: PathBuf,
    },
    /// A table that is to be made is there.
    Exists {
        /// The folder.
        folder: PathBuf,
    },
    /// A key of more than 65,534 bytes.
    KeyTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
}

impl TablesError {
    /// Whether waiting for space may help.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// The same of another folder.
    pub(super) fn in_folder(mut self, of: &Path) -> Self {
        match &mut self {
            Self::Full { folder, .. }
            | Self::Damaged { folder, .. }
            | Self::Io { folder, .. }
            | Self::StillOpen { folder }
            | Self::Exists { folder } => of.clone_into(folder),
            Self::KeyTooLong { .. } => {}
        }
        self
    }

    pub(super) fn io(folder: &Path, reason: &io::Error) -> Self {
        use io::ErrorKind::{
            FileTooLarge, InvalidData, InvalidInput, NotFound, QuotaExceeded, StorageFull,
            UnexpectedEof,
        };
        let (folder, kind, reason) = (folder.to_owned(), reason.kind(), reason.to_string());
        match kind {
            StorageFull | QuotaExceeded | FileTooLarge => Self::Full { folder, reason },
            // All files are ours: one that is gone, short or unreadable as what it is, was damaged.
            NotFound | UnexpectedEof | InvalidData | InvalidInput => {
                Self::Damaged { folder, reason }
            }
            _ => Self::Io { folder, reason },
        }
    }

    /// Whether files or memory of the system are lacking (EMFILE, ENFILE, ENOMEM): waiting helps, and the table is whole.
    pub(super) fn is_scarce(reason: &lsm_tree::Error) -> bool {
        let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(Errno::raw_os_error);
        let errno = match reason {
            lsm_tree::Error::Io(reason) => reason.raw_os_error(),
            _ => None,
        };
        errno.is_some_and(|errno| scarce.contains(&errno))
    }

    pub(super) fn tree(folder: &Path, reason: &lsm_tree::Error) -> Self {
        match reason {
            lsm_tree::Error::Io(reason) => Self::io(folder, reason),
            other => Self::Damaged {
                folder: folder.to_owned(),
                reason: format!("{other:?}"),
            },
        }
    }
}

impl fmt::Display for TablesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { folder, reason } => {
                write!(f, "no space for table {}: {reason}", folder.display())
            }
            Self::Damaged { folder, reason } => {
                write!(f, "table {} is damaged: {reason}", folder.display())
            }
            Self::Io { folder, reason } => write!(f, "table {}: {reason}", folder.display()),
            Self::StillOpen { folder } => {
                write!(
                    f,
                    "table {} cannot be removed: it is in use",
                    folder.display()
                )
            }
            Self::Exists { folder } => {
                write!(f, "table {} cannot be made: it is there", folder.display())
            }
            Self::KeyTooLong { bytes } => {
                write!(f, "a key of {bytes} bytes is too long for a table")
            }
        }
    }
}

impl error::Error for TablesError {}

impl From<TablesError> for TableError {
    fn from(error: TablesError) -> Self {
        Self(error.to_string())
    }
}
