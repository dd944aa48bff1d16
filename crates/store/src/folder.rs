//! The data folder.

/// The data folder of a node.
#[derive(Debug)]
pub struct Folder;

/// Why a data folder cannot be used.
#[derive(Debug)]
pub struct FolderError;
