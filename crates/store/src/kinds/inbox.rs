//! The inbox store, as far as its shards differ.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use mqtt_session::{ApplicationMessage, DropReason};
use store_state::api::{Event, ShardNumber, StoreId};
use store_state::inbox::inspect::LeftPart;
use store_state::inbox::{
    InboxDrop, InboxId, InboxMachine, InboxOp, InboxOutlet, InboxReply, Item, Origin, QueuePass,
    QueueView, Queued, RetentionLimit, SessionName, StoredSubscription,
};
use store_state::{Batch, CorrelationId, Limits, Table, TableError};

use crate::api::listener::Listener;
use crate::kinds::command::Command;
use crate::kinds::effects::Effects;
use crate::kinds::kind::{Kind, Names};
use crate::peers::message::{Forwarded, Message};

impl Kind for InboxMachine {
    const STORE: StoreId = StoreId::Inbox;
    const HAS_CURSORS: bool = true;
    const HAS_QUEUES: bool = true;
    const HAS_ROUTES: bool = true;

    fn shards_changed(listener: &dyn Listener) {
        listener.inbox_shards_changed();
    }

    fn led(listener: &dyn Listener, shard: ShardNumber, node: Option<u64>, term: u64) {
        listener.inbox_leader(shard, node, term);
    }

    fn announced(listener: &dyn Listener, shard: ShardNumber) {
        listener.inbox_announced(shard);
    }

    fn command(batch: Arc<Batch<InboxOp>>) -> Command {
        Command::Inbox(batch)
    }

    fn batch(command: &Command) -> Option<&Batch<InboxOp>> {
        match command {
            Command::Inbox(batch) => Some(batch),
            _ => None,
        }
    }

    fn has_inbox(&self, inbox: u64) -> bool {
        self.next_sequence(inbox).is_some()
    }

    fn event(token: u64, reply: InboxReply) -> Event {
        Event::Inbox { token, reply }
    }

    fn page(
        &mut self,
        inbox: u64,
        from: u64,
        items: u32,
        bytes: usize,
        table: &dyn Table,
        out: &mut Vec<(u64, Queued)>,
    ) -> Result<(u64, bool), TableError> {
        let next = self.page(inbox, from, items as usize, bytes, table, out)?;
        Ok((
            next,
            self.next_sequence(inbox).is_none_or(|end| next >= end),
        ))
    }

    fn leave_alone(&self, limits: Limits) -> Limits {
        store_state::inbox::leave_alone(self, limits)
    }

    fn look_at_queues(
        &mut self,
        pass: &mut Option<QueuePass>,
        inboxes: usize,
        tell: &mut dyn FnMut(QueueView<'_>),
    ) -> bool {
        let begun = pass.get_or_insert_with(|| QueuePass::new(self));
        let is_over = begun.go_on(self, inboxes, tell);
        if is_over {
            *pass = None;
        }
        is_over
    }

    fn trim(session: SessionName, sequences: Range<u64>, limit: RetentionLimit) -> Option<InboxOp> {
        Some(InboxOp::Trim {
            session,
            from: sequences.start,
            below: sequences.end,
            limit,
        })
    }

    fn left_part(
        &mut self,
        of: (InboxId, &str),
        from: u64,
        limits: (usize, usize),
        table: &dyn Table,
    ) -> Result<Option<LeftPart>, TableError> {
        LeftPart::find(self, of, from, limits, table)
    }

    fn is_fenced(op: &InboxOp) -> bool {
        match op {
            InboxOp::Publish { origin, .. } | InboxOp::Deliver { origin, .. } => {
                origin.as_ref().is_some_and(|origin| !origin.is_of_broker())
            }
            InboxOp::PublishFenced { .. } | InboxOp::DeliverFenced { .. } => true,
            _ => false,
        }
    }

    fn is_at_most_once(op: &InboxOp) -> bool {
        matches!(op, InboxOp::DeliverLate { .. })
    }

    fn agreed<'a>(key: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
        store_state::inbox::agreed(key, value)
    }

    fn must_wait(op: &InboxOp, correlation_id: CorrelationId) -> bool {
        match op {
            InboxOp::Acknowledge { .. }
            | InboxOp::Detach { .. }
            | InboxOp::Linger { .. }
            | InboxOp::Forget { .. }
            | InboxOp::HandOver { .. }
            | InboxOp::Remove { .. } => true,
            // A client whose PUBREL is refused sends it again.
            InboxOp::Release { .. } | InboxOp::ReleaseFenced { .. } => {
                correlation_id == CorrelationId::NONE
            }
            InboxOp::Publish { origin, .. } | InboxOp::Deliver { origin, .. } => {
                origin.as_ref().is_some_and(Origin::is_of_broker)
            }
            InboxOp::NodeUp { .. }
            | InboxOp::PublishOnce { .. }
            | InboxOp::DeliverOnce { .. }
            | InboxOp::PublishFenced { .. }
            | InboxOp::DeliverFenced { .. }
            | InboxOp::Replay { .. }
            | InboxOp::Attach { .. }
            | InboxOp::AttachAgain { .. }
            | InboxOp::AttachAs { .. }
            | InboxOp::DeliverLate { .. }
            | InboxOp::Subscribe { .. }
            | InboxOp::Unsubscribe { .. }
            | InboxOp::Receipt { .. }
            | InboxOp::Trim { .. } => false,
        }
    }

    fn incarnation(&self, node: u64) -> u64 {
        self.incarnation_of(node)
    }

    fn names(&self) -> Names<'_> {
        Box::new(store_state::inbox::clients(self))
    }

    fn message(forwarded: Forwarded<InboxOp>) -> Message {
        Message::Inbox(forwarded)
    }

    fn is_patient(op: &InboxOp) -> bool {
        match op {
            InboxOp::Acknowledge { .. } => true,
            InboxOp::Replay { items, .. } => items.is_empty(),
            _ => false,
        }
    }

    fn merges(op: &InboxOp) -> Option<&SessionName> {
        match op {
            InboxOp::Acknowledge { session, .. } => Some(session),
            _ => None,
        }
    }

    fn merge(waiting: &mut InboxOp, op: InboxOp) -> Result<(), InboxOp> {
        match (waiting, op) {
            (
                InboxOp::Acknowledge {
                    epoch, sent, done, ..
                },
                InboxOp::Acknowledge {
                    epoch: same,
                    sent: later,
                    done: more,
                    ..
                },
            ) if *epoch == same => {
                *sent = later.max(*sent);
                done.0.extend(more.0);
                Ok(())
            }
            (_, op) => Err(op),
        }
    }

    fn lost(op: &InboxOp, listener: &dyn Listener) {
        match op {
            InboxOp::Publish { message, .. }
            | InboxOp::PublishOnce { message, .. }
            | InboxOp::PublishFenced { message, .. } => {
                listener.lost("", message);
            }
            InboxOp::Deliver { session, items, .. }
            | InboxOp::DeliverOnce { session, items, .. }
            | InboxOp::DeliverFenced { session, items, .. } => {
                let client = session.to_string();
                for item in items {
                    listener.lost(&client, &item.message);
                }
            }
            _ => {}
        }
    }

    fn node_up(node: u64, incarnation: u64, _: u64) -> Option<InboxOp> {
        Some(InboxOp::NodeUp { node, incarnation })
    }

    fn announce(&mut self, outlet: &mut Self::Outlet) {
        self.tell_routes(outlet);
        self.for_each_legacy(outlet);
    }

    fn with_outlet<R>(effects: &mut Effects, apply: impl FnOnce(&mut Self::Outlet) -> R) -> R {
        effects.attaching = None;
        apply(effects)
    }
}

impl InboxOutlet for Effects {
    fn queued(&mut self, inbox: u64, sequence: u64, item: &Item) {
        self.cursors.queued(inbox, sequence, item);
    }

    fn awaited(&mut self, inbox: u64, is_awaited: bool) {
        if !self.live {
            return;
        }
        self.attaching = Some(inbox).filter(|_| is_awaited);
        self.cursors.awaited(inbox, is_awaited);
        self.tell_settled();
    }

    fn passed_over(&mut self, inbox: u64, client: &str, item: &Item) {
        if self.live && !self.cursors.passed_over(inbox, item) {
            self.listener.dropped(&InboxDrop {
                client,
                message: &item.message,
                reason: DropReason::OfflineQos0,
            });
        }
    }

    fn stored(&mut self, slot: u16, bytes: u32) {
        self.weights.add(slot, bytes.into());
    }

    fn dropped(&mut self, drop: InboxDrop<'_>) {
        if self.live {
            self.listener.dropped(&drop);
        }
    }

    fn filling(&mut self, client: &str, message: &Arc<ApplicationMessage>) {
        if self.live {
            self.listener.filling(client, message);
        }
    }

    fn filter(&mut self, filter: &str, any: bool, detached: bool) {
        if !self.live {
            return;
        }
        let attaching = self.attaching.filter(|_| any && !detached);
        if !self.cursors.hold_filter(filter, attaching) {
            self.listener.filter(self.shard, filter, any, detached);
        }
    }

    fn member(&mut self, client: &str, filter: &str, subscription: Option<&StoredSubscription>) {
        if self.live {
            self.listener
                .member(self.shard, client, filter, subscription);
        }
    }

    fn left_behind(&mut self, client: &str, inbox: u64) {
        if !self.live {
            return;
        }
        self.events.push(Event::LeftBehind {
            client: client.into(),
            inbox,
        });
    }
}

impl Effects {
    /// Tells of filters that no detached session has, when the cursors of those that were attached are open: their nodes
    /// have routes for them by then. Until then messages of QoS 0 come here.
    pub(crate) fn tell_settled(&mut self) {
        for filter in self.cursors.take_settled() {
            self.listener.filter(self.shard, &filter, true, false);
        }
    }
}
