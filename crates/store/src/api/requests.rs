//! What event loops ask of the store, as they know it.

use std::sync::Arc;

use mqtt_session::{ApplicationMessage, Timestamp};
use store_state::CorrelationId;
use store_state::api::{
    self, Read, RetainMark, RetainedPlace, ShardNumber, ShardRef, ShardRefs, Slot,
};
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

    fn session_shards(&self) -> ShardRefs {
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
        let shard = self.session.get(self.session.of(client));
        shard.is_some_and(|shard| shard.look(|machine| machine.known(client)) == Some(true))
    }

    fn is_of_another_user(&self, client: &str, user: Option<&str>) -> bool {
        let shard = self.session.get(self.session.of(client));
        shard.is_some_and(|shard| {
            shard.look(|machine| machine.is_of_another(client, user)) == Some(true)
        })
    }

    fn inbox_shards(&self) -> ShardRefs {
        self.inbox.refs()
    }

    fn learn_inbox_shard(&self, first: Slot) {
        self.inbox.shards.learn(first.0);
    }

    fn narrow_inbox_shard(&self, shard: ShardNumber) {
        if let Some(shard) = self.inbox.get(shard) {
            shard.narrow();
        }
    }

    fn inbox_leader(&self, shard: ShardNumber) -> Option<u64> {
        let hint = *self.inbox.get(shard)?.routing.hint.borrow();
        Some(hint.leader).filter(|node| *node != 0)
    }

    /// A name of a few bytes; or the identifier, while a node of a version is known that does not understand such names.
    fn client_name(&self, client: &str) -> ClientName {
        if self.levels.have_names() {
            ClientName::of(client, self.inbox.shards.hash())
        } else {
            client.into()
        }
    }

    /// The number, under the same condition.
    #[inline]
    fn session_name(&self, client: &str, inbox: u64) -> SessionName {
        if self.levels.have_names() {
            let slot = self.inbox.shards.hash().slot_of(client);
            SessionName::Inbox(InboxId::new(slot, inbox))
        } else {
            client.into()
        }
    }

    #[inline]
    fn inbox_slot(&self, client: &str) -> Slot {
        Slot(self.inbox.shards.hash().slot_of(client))
    }

    #[inline]
    fn inbox_shard(&self, slot: Slot) -> ShardNumber {
        self.inbox.shards.of_slot(slot.0)
    }

    #[inline]
    fn inbox(&self, correlation_id: CorrelationId, op: InboxOp) {
        Self::inbox(self, correlation_id, op);
    }

    #[inline]
    fn inboxes(&self, shard: ShardRef, correlation_id: CorrelationId, op: InboxOp) {
        self.inbox.ask_all(shard, correlation_id, op);
    }

    #[inline]
    fn acknowledge(&self, op: InboxOp) {
        self.inbox.tell_patiently(op);
    }

    #[inline]
    fn read(&self, slot: Slot, read: Read) {
        let work = Work::Read(0, read);
        self.inbox
            .shards
            .give_to_slot(slot.0, work, size_of::<Read>(), false);
    }

    fn session_barrier(&self, client: &str, correlation_id: CorrelationId) {
        let shard = self.session.shards.to_ref(self.session.of(client));
        self.session.barrier(&[shard], correlation_id);
    }

    fn inbox_barrier(&self, shards: &[ShardRef], correlation_id: CorrelationId) {
        self.inbox.barrier(shards, correlation_id);
    }

    fn retain_shards(&self) -> ShardRefs {
        self.retain.refs()
    }

    fn retain(
        &self,
        correlation_id: CorrelationId,
        message: Arc<ApplicationMessage>,
        writer: Writer<'_>,
    ) {
        Self::retain(self, correlation_id, message, writer);
    }

    fn retain_barrier(&self, shards: &[ShardRef], correlation_id: CorrelationId) {
        self.retain.barrier(shards, correlation_id);
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
    ) -> Option<(Vec<Arc<ApplicationMessage>>, Option<RetainedPlace>)> {
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
