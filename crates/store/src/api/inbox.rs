//! Requests to the inbox store.

use std::sync::Arc;

use store_state::CorrelationId;
use store_state::api::{Read, ShardNumber};
use store_state::inbox::InboxOp;

use crate::api::store::Store;
use crate::shard::work::Work;

impl Store {
    /// The inbox shards, in the order of their slots.
    #[must_use]
    pub fn inbox_shards(&self) -> Arc<[ShardNumber]> {
        self.inbox.numbers()
    }

    /// The node that leads an inbox shard, as far as it is known.
    #[must_use]
    pub fn inbox_leader(&self, shard: ShardNumber) -> Option<u64> {
        let hint = *self.inbox.get(shard)?.routing.hint.borrow();
        Some(hint.leader).filter(|node| *node != 0)
    }

    /// The inbox shard of a client.
    #[must_use]
    pub fn inbox_shard(&self, client: &str) -> ShardNumber {
        self.inbox.of(client)
    }

    /// Gives an inbox shard a request. It weighs what it is when it is written; one that is longer than a
    /// shard takes is refused with [`Failure::TooLong`](store_state::api::Failure::TooLong).
    pub fn inbox(&self, shard: ShardNumber, correlation_id: CorrelationId, op: InboxOp) {
        self.inbox.propose(shard, correlation_id, op);
    }

    /// Tells an inbox shard what a session has done with its messages, or been given of retained ones. It is
    /// recorded with the next request, or after a moment: what a crash loses of it is sent again, as may be
    /// sent twice.
    pub fn acknowledge(&self, shard: ShardNumber, op: InboxOp) {
        self.inbox.propose_patiently(shard, op);
    }

    /// Asks an inbox shard for pages of a queue.
    pub fn read(&self, shard: ShardNumber, read: Read) {
        self.inbox
            .put(shard, Work::Read(0, read), size_of::<Read>());
    }
}
