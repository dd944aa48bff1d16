//! Why a log does not open.

use std::path::PathBuf;
use std::{fmt, io};

/// Why a log does not open.
#[derive(Debug)]
pub enum LogError {
    /// The operating system refused something.
    Io {
        /// File or folder.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// Another process has it open.
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// There are files, and they are not those of a log.
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// It was written in another version.
    Version {
        /// The folder.
        path: PathBuf,
        /// What its `FORMAT` says.
        found: String,
    },
    /// A crash has ended the repair of a damaged log, which is in no state to be looked at.
    Mending {
        /// The folder.
        path: PathBuf,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Locked { path } => {
                write!(f, "{}: another process uses this log", path.display())
            }
            Self::Foreign { path } => write!(
                f,
                "{}: not empty, and not the folder of a log",
                path.display()
            ),
            Self::Version { path, found } => write!(
                f,
                "{}: \"{found}\" was written by another version of HeraldMQ",
                path.display()
            ),
            Self::Mending { path } => write!(
                f,
                "{}: a repair was interrupted, and goes on when a node is started with it",
                path.display()
            ),
        }
    }
}

impl std::error::Error for LogError {}
