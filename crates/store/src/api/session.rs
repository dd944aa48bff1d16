//! Requests to the session store.

use store_state::CorrelationId;
use store_state::api::{ShardNumber, ShardRefs};
use store_state::session::SessionOp;

use crate::api::store::Store;

impl Store {
    /// The session shards, in the order of their slots.
    #[must_use]
    pub fn session_shards(&self) -> ShardRefs {
        self.session.refs()
    }

    /// The session shard of a client.
    #[must_use]
    pub fn session_shard(&self, client: &str) -> ShardNumber {
        self.session.of(client)
    }

    /// The node that leads a session shard, if it can be reached, and the term in which it does.
    #[must_use]
    pub fn session_leader(&self, shard: ShardNumber) -> Option<(u64, u64)> {
        let hint = *self.session.get(shard)?.routing.hint.borrow();
        hint.is_reachable
            .then_some((hint.leader, hint.leadership_epoch.term))
    }

    /// Gives the session store a request about a client.
    pub fn session(&self, client: &str, correlation_id: CorrelationId, op: SessionOp) {
        let shard = self.session.shards.to_ref(self.session.of(client));
        self.session.ask_all(shard, correlation_id, op);
    }

    /// Clients that the session store has a record of.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        self.session.sum(|machine| machine.counts().records as u64)
    }
}
