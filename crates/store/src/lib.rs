//! The sharded, replicated store: shards, their folders, and the way of a request through them.
//!
//! Deliberately absent: what an operation means (`store-state`), consensus and its log (`consensus`).

mod folder;
mod tables;

pub use folder::{Folder, FolderError};
pub use tables::{ShardTable, Tables};
