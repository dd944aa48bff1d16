//! What a checkpoint has collected and is to write.

use std::sync::Arc;

use consensus::Mark;
use store_state::Changes;

use crate::storage::tables::ShardTable;

/// The net changes since the last checkpoint, while they are collected and written.
pub(super) struct Checkpoint {
    pub(super) changes: Changes,
    /// All are collected.
    pub(super) is_all: bool,
    /// How far they reach.
    pub(super) mark: Mark,
    /// The shard's own; of its first checkpoint, its parent's.
    pub(super) table: Arc<ShardTable>,
    /// It makes the shard's own table.
    pub(super) is_first: bool,
    /// Of the state.
    pub(super) generation: u64,
}
