//! What event loops ask of the store, as they know it.

use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};
use store_state::CorrelationId;
use store_state::api::{self, Read, RetainMark, RetainedPlace, ShardNumber};
use store_state::inbox::{ClientName, InboxId, InboxOp, SessionName};
use store_state::retain::{PageBudget, Writer};
use store_state::session::SessionOp;

use crate::api::store::Store;
use crate::shard::work::Work;

impl api::Store for Store {
    #[inline]
    fn node(&self) -> u64 {
        Self::node(self)
    }

    fn incarnation(&self) -> u64 {
        Self::incarnation(self)
    }

    #[inline]
    fn is_over_limit(&self) -> bool {
        Self::is_over_limit(self)
    }

    fn sessions(&self) -> u64 {
        Self::sessions(self)
    }

    fn has_peers(&self) -> bool {
        Self::has_peers(self)
    }

    fn session_shards(&self) -> Arc<[ShardNumber]> {
        Self::session_shards(self)
    }

    fn session_leader(&self, shard: ShardNumber) -> Option<(u64, u64)> {
        Self::session_leader(self, shard)
    }

    fn session_shard(&self, client: &str) -> ShardNumber {
        Self::session_shard(self, client)
    }

    #[inline]
    fn session(&self, client: &str, correlation_id: CorrelationId, op: SessionOp) {
        Self::session(self, client, correlation_id, op);
    }

    fn knows(&self, client: &str) -> bool {
        Self::knows(self, client)
    }

    fn is_of_another_user(&self, client: &str, user: Option<&str>) -> bool {
        let shard = self.session.get(self.session.of(client));
        shard.is_some_and(|shard| {
            shard.look(|machine| machine.is_of_another(client, user)) == Some(true)
        })
    }

    fn inbox_shards(&self) -> Arc<[ShardNumber]> {
        Self::inbox_shards(self)
    }

    fn inbox_leader(&self, shard: ShardNumber) -> Option<u64> {
        Self::inbox_leader(self, shard)
    }

    /// A name of a few bytes; or the identifier, while a node of a version is known that does not understand such names.
    fn client_name(&self, client: &str) -> ClientName {
        if self.known_peers.know_names() {
            ClientName::of(client, self.inbox.shards.hash())
        } else {
            client.into()
        }
    }

    /// The number, under the same condition.
    #[inline]
    fn session_name(&self, client: &str, inbox: u64) -> SessionName {
        if self.known_peers.know_names() {
            let slot = self.inbox.shards.hash().slot_of(client);
            SessionName::Inbox(InboxId::new(slot, inbox))
        } else {
            client.into()
        }
    }

    #[inline]
    fn inbox_shard(&self, client: &str) -> ShardNumber {
        Self::inbox_shard(self, client)
    }

    #[inline]
    fn inbox(&self, shard: ShardNumber, correlation_id: CorrelationId, op: InboxOp) {
        Self::inbox(self, shard, correlation_id, op);
    }

    #[inline]
    fn acknowledge(&self, shard: ShardNumber, op: InboxOp) {
        Self::acknowledge(self, shard, op);
    }

    #[inline]
    fn read(&self, shard: ShardNumber, read: Read) {
        Self::read(self, shard, read);
    }

    fn inbox_barrier(&self, shards: &[ShardNumber], correlation_id: CorrelationId) {
        for number in shards {
            self.inbox.put(*number, Work::Barrier(correlation_id), 0);
        }
    }

    fn retain_shards(&self) -> Arc<[ShardNumber]> {
        Self::retain_shards(self)
    }

    fn retain(
        &self,
        correlation_id: CorrelationId,
        message: Arc<ApplicationMessage>,
        writer: Writer<'_>,
    ) {
        Self::retain(self, correlation_id, message, writer);
    }

    fn retain_barrier(&self, shards: &[ShardNumber], correlation_id: CorrelationId) {
        Self::retain_barrier(self, shards, correlation_id);
    }

    fn is_retain_idle(&self) -> bool {
        Self::is_retain_idle(self)
    }

    fn retain_mark(&self) -> RetainMark {
        Self::retain_mark(self)
    }

    fn has_reached(&self, mark: &RetainMark) -> bool {
        Self::has_reached(self, mark)
    }

    fn retained(
        &self,
        filter: &str,
        from: Option<RetainedPlace>,
        budget: &mut PageBudget,
        now: Timestamp,
    ) -> (Vec<Arc<ApplicationMessage>>, Option<RetainedPlace>) {
        Self::retained(self, filter, from, budget, now)
    }

    fn retained_shard(&self, filter: &str, from: Option<&RetainedPlace>) -> ShardNumber {
        Self::retained_shard(self, filter, from)
    }

    fn ask_retained<'a>(
        &self,
        correlation_id: CorrelationId,
        shard: ShardNumber,
        wanted: impl IntoIterator<Item = (&'a str, Option<RetainedPlace>)>,
        limit: usize,
        now: Timestamp,
    ) {
        Self::ask_retained(self, correlation_id, shard, wanted, limit, now);
    }
}
