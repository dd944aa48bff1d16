//! Requests to the inbox store.

use store_state::CorrelationId;
use store_state::api::{ShardNumber, ShardRefs};
use store_state::inbox::InboxOp;

use crate::api::store::Store;

impl Store {
    /// The inbox shards, in the order of their slots.
    #[must_use]
    pub fn inbox_shards(&self) -> ShardRefs {
        self.inbox.refs()
    }

    /// The node that leads an inbox shard, as far as it is known.
    #[must_use]
    pub fn inbox_leader(&self, shard: ShardNumber) -> Option<u64> {
        let hint = *self.inbox.get(shard)?.routing.hint.borrow();
        Some(hint.leader).filter(|node| *node != 0)
    }

    /// Gives a request to the inbox shard of its session. It weighs what it is when it is written; one that is longer than a
    /// shard takes is refused with [`Failure::TooLong`](store_state::api::Failure::TooLong).
    pub fn inbox(&self, correlation_id: CorrelationId, op: InboxOp) {
        self.inbox.ask(correlation_id, op);
    }
}
