//! Requests to the inbox store.

use store_state::CorrelationId;
use store_state::inbox::InboxOp;

use crate::api::store::Store;

impl Store {
    /// Gives a request to the inbox shard of its session. It weighs what it is when it is written; one that is longer than a
    /// shard takes is refused with [`Failure::TooLong`](store_state::api::Failure::TooLong).
    pub fn inbox(&self, correlation_id: CorrelationId, op: InboxOp) {
        self.inbox.ask(correlation_id, op);
    }
}
