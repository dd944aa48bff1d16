//! What a scrub wants of the shards of a store.

use store_state::TableError;
use store_state::api::ShardNumber;

use crate::kinds::kind::Kind;
use crate::scrub::shards::ScrubbedShards;
use crate::shard::shards::Shards;
use crate::storage::tables::TablesError;

impl<M: Kind> ScrubbedShards for Shards<M> {
    fn numbers(&self) -> Vec<ShardNumber> {
        self.load().iter().map(|shard| shard.number).collect()
    }

    fn meet_damage(&self, number: ShardNumber, error: &TablesError) {
        if let Some(shard) = self.get(number) {
            let state = shard.state.write();
            // Without a state the replica is closed, and its tables are looked at when it is opened.
            if state.is_some() {
                shard.damage.meet(state, &TableError(error.to_string()));
            }
        }
    }
}
