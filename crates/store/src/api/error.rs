//! Why a store does not open.

use std::fmt;

use crate::storage::folder::FolderError;

/// Why the store does not open.
#[derive(Debug)]
pub struct OpenError(String);

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    pub(crate) fn full_disk() -> Self {
        Self("the disk is full: the start cannot be recorded".to_owned())
    }
}

impl From<FolderError> for OpenError {
    fn from(error: FolderError) -> Self {
        because("the data folder")(error)
    }
}

pub(crate) fn because<E: fmt::Display>(what: &str) -> impl Fn(E) -> OpenError {
    move |error| OpenError(format!("{what}: {error}"))
}
