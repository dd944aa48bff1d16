//! The shards of a store, as far as a scrub needs them.

use store_state::api::ShardNumber;

use crate::storage::tables::TablesError;

/// The shards of one store, as far as a scrub needs them.
pub(crate) trait ScrubbedShards: Send + Sync {
    /// Those that are known.
    fn numbers(&self) -> Vec<ShardNumber>;

    /// The table of the replica here is damaged.
    fn meet_damage(&self, shard: ShardNumber, error: &TablesError);
}
