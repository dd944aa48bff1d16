//! Sessions that the store keeps, while their clients are connected: what the store's events do to them,
//! and what they tell the store.
//!
//! Invariants: an acknowledgement to a client follows the record of what it acknowledges; what a loop
//! tells a shard about one session arrives in the order in which it was told.

use std::num::NonZeroU32;

use authorization::Action;
use mqtt_proto::{PacketId, QoS, ReasonCode, SubscriptionFilter};
use mqtt_session::{Delivery, Session, StoredState, Timestamp};
use net_api::{ConnectionId, Key};
use store_state::CorrelationId;
use store_state::api::{NO_SEQUENCE, Read, Store as _};
use store_state::inbox::{Done, InboxOp, Item, Queued};
use store_state::session::SessionOp;

use crate::clients::{LoopIo, Timer, record};
use crate::connect::inbox::CREDIT;
use crate::connect::taking::{Settled, Settling};
use crate::dispatch::ClientLoop;
use crate::pending::{Answer, Pending};
use crate::rim::Rim;
use crate::session::catching_up::{Came, ask_whether_read};
use crate::shared::offer;
use crate::turn::Effect;

/// How long a client that has sent DISCONNECT waits for the record of it, in ms.
const LEAVING_MS: u64 = 5_000;

impl<R: Rim> ClientLoop<R> {
    /// Queued messages of a session.
    pub(crate) fn page(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        epoch: u64,
        from: u64,
        mut items: Vec<(u64, Queued)>,
    ) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Some(stored) = client.stored.as_mut().filter(|s| s.epoch == epoch) else {
            return;
        };
        let Some(inbox) = stored.inbox.as_mut().filter(|inbox| from <= inbox.next) else {
            return;
        };
        // Most of the time there are none, and nothing is moved.
        let passed_over = items.partition_point(|(sequence, _)| *sequence == NO_SEQUENCE);
        let passed_over: Vec<_> = items.drain(..passed_over).collect();
        inbox.credit = inbox.credit.saturating_sub(items.len() as u32);
        let sent = inbox.sent;
        // A shard that is served elsewhere since may give again what was on its way.
        let next = inbox.next;
        inbox.next = items.last().map_or(next, |(last, _)| next.max(last + 1));
        let new = items.into_iter().filter(|(sequence, _)| *sequence >= next);
        for (sequence, queued) in new {
            match queued {
                Queued::Message(item) => {
                    let state = if sequence < sent {
                        StoredState::Sent
                    } else {
                        StoredState::New
                    };
                    self.hand_over(io, key, item, sequence, state);
                }
                Queued::Released => {
                    if let Some(client) = self.clients.get_mut(key) {
                        client.session.owe_pubrel(sequence);
                    }
                }
            }
        }
        let mut missed = Vec::new();
        for (_, queued) in passed_over {
            match queued {
                Queued::Message(item) => {
                    self.deliver_to_client(io, key, delivery_of(item, None), Came::PassedOver);
                }
                // The inbox is settled.
                Queued::Released => {
                    let client = self.clients.get_mut(key);
                    let stored = client.and_then(|client| client.stored.as_mut());
                    let inbox = stored.and_then(|stored| stored.inbox.as_mut());
                    missed =
                        inbox.map_or_else(Vec::new, |inbox| inbox.catching_up.handle_settled());
                }
            }
        }
        if let Some(client) = self.clients.get(key) {
            for dropped in missed {
                let client_id = client.session.client_id();
                record(&self.base.drops, io.now_ms(), client_id, &dropped);
            }
        }
        if let Some(connection) = self.clients.get(key).and_then(|client| client.connection) {
            io.touch(connection);
        }
        self.clients.show_room(key);
    }

    /// Gives a session a message of its inbox, if the client may receive it.
    fn hand_over(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        item: Item,
        sequence: u64,
        state: StoredState,
    ) {
        let action = Action::Receive;
        let (parts, mut turn) = self.turn(io);
        let allowed = !parts.rights.is_restricted(&turn, key, action)
            || parts
                .rights
                .allows(&mut turn, key, action, item.message.body.topic());
        let group = offer::group_of(&self.base.node.routes, &item, state);
        let qos = item.qos;
        let delivery = delivery_of(item, group);
        if !allowed {
            self.base.add(Effect::DenyDelivery {
                key,
                delivery: Box::new(delivery),
                is_stored: true,
            });
            if let Some(client) = self.clients.get_mut(key) {
                client.session.skip_stored(qos, sequence, state);
            }
            return;
        }
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        if qos == QoS::AtMostOnce
            && let Some(inbox) = client.stored.as_mut().and_then(|of| of.inbox.as_mut())
            && inbox
                .catching_up
                .handle_kept(&delivery, Timestamp(io.now_ms()))
        {
            return client.session.skip_stored(qos, sequence, state);
        }
        if let Some(replay) = client.rare.get_mut(|of| &mut of.replay)
            && let Some(passing) = replay.passing(&delivery.message)
        {
            replay.passed_by(passing, Timestamp(io.now_ms()));
        }
        client.session.deliver_stored(delivery, sequence, state);
    }

    /// Tells the store what a session is done with, and how much more it can take.
    pub(crate) fn settle(&mut self, key: Key) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Some(stored) = &mut client.stored else {
            return;
        };
        let epoch = stored.epoch;
        let Some(inbox) = &mut stored.inbox else {
            return;
        };
        let mut done = Vec::new();
        client.session.take_acknowledged(&mut done);
        let waiting = u32::try_from(client.session.queue_len()).unwrap_or(u32::MAX);
        let held = inbox.credit.saturating_add(waiting);
        let mut asks = None;
        if held <= CREDIT / 2 {
            let more = CREDIT - held;
            let was_exhausted = inbox.credit == 0;
            inbox.credit += more;
            let read = Read::Credit {
                inbox: inbox.number,
                epoch,
                more,
            };
            self.base.node.store().read(inbox.slot, read);
            let round = inbox.catching_up.handle_credit(was_exhausted);
            asks = round.map(|round| (inbox.slot, round));
        }
        if !done.is_empty() {
            let op = InboxOp::Acknowledge {
                session: self
                    .base
                    .node
                    .store()
                    .session_name(client.session.client_id(), inbox.number),
                epoch,
                sent: client.session.sent_sequence(),
                done: Done(done),
            };
            self.base.node.store().acknowledge(op);
        }
        if let Some((slot, round)) = asks {
            let read = Settled::Read { key, epoch, round };
            let ticket = self.base.ask(Pending::Settle(Settling::new(1, read)));
            ask_whether_read(self.base.node.store(), slot, ticket);
        }
    }

    /// The connection of a client is over: the store is told, if it knows the client. `closes`: the connection, if
    /// it is closed when that is recorded.
    /// `lingers`: the inbox stays attached for a while, and routes stay.
    pub(crate) fn detach_stored(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        closes: Option<ConnectionId>,
        lingers: bool,
    ) {
        self.settle(key);
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Some(stored) = client.stored.take() else {
            return;
        };
        let client_id = Box::<str>::from(client.session.client_id());
        let keep_will = client.session.has_will();
        let mut expiry = 0;
        if let Some(inbox) = stored.inbox {
            expiry = client.session.session_expiry();
            let (epoch, received) = (stored.epoch, client.session.received());
            self.base
                .node
                .unreleased
                .keep(&client_id, epoch, received, io.now_ms());
            let sent = client.session.sent_sequence();
            if let Some(gauge) = client.rare.take(|of| &mut of.gauge) {
                gauge.set_home(None);
            }
            let close = Read::Close {
                inbox: inbox.number,
                epoch: stored.epoch,
            };
            self.base.node.store().read(inbox.slot, close);
            let session = self
                .base
                .node
                .store()
                .session_name(&client_id, inbox.number);
            let op = if lingers {
                InboxOp::Linger {
                    session,
                    epoch: stored.epoch,
                    sent,
                }
            } else {
                InboxOp::Detach {
                    session,
                    epoch: stored.epoch,
                    sent,
                }
            };
            self.base.node.store().inbox(CorrelationId::NONE, op);
            let shard = self.base.node.store().inbox_shard(inbox.slot);
            // At once, so that messages of QoS 0 that come from now on are stored, behind that.
            let gone = client.session.subscriptions().iter();
            for subscription in gone.filter(|_| !lingers) {
                if let Ok(filter) = SubscriptionFilter::parse(&subscription.filter)
                    && filter.shared.is_none()
                {
                    let routes = &self.base.node.routes;
                    routes.set_shard(shard, filter.filter, true, true);
                }
            }
        }
        let id = self.disconnect_stored(&client_id, stored.epoch, expiry, keep_will);
        if closes.is_some()
            && let Some(Pending::Disconnect { closes: waits }) = self.base.pending.get_mut(id)
        {
            // No answer is worked off before this turn is over.
            *waits = closes;
            io.arm(io.now_ms() + LEAVING_MS, Timer::Leaving(id).to_bits());
        }
    }

    /// All shards forget what was published under this name, up to this incarnation.
    pub(crate) fn forget_everywhere(&self, publisher: &str, incarnation: u64) {
        let store = self.base.node.store();
        let name = store.client_name(publisher);
        for &shard in store.inbox_shards().iter() {
            let op = InboxOp::Forget {
                client: name.clone(),
                incarnation,
            };
            store.inboxes(shard, CorrelationId::NONE, op);
        }
    }

    /// A session has ended.
    pub(crate) fn remove_inbox(&mut self, client: Box<str>, epoch: u64) {
        self.base.node.unreleased.forget(&client, epoch);
        let op = InboxOp::Remove {
            session: self.base.node.store().client_name(&client).into(),
            epoch,
        };
        let pending = Pending::Removal {
            client: client.clone(),
            epoch,
        };
        self.base.ask_inbox(pending, op);
    }

    pub(crate) fn removal_answered(&mut self, client: Box<str>, epoch: u64, answer: &Answer) {
        if let Answer::Failed(_) = answer {
            // The node ends: whoever leads next is told.
            return;
        }
        self.base.node.quotas.handle_ended(&client);
        self.forget_everywhere(&client, epoch);
        let op = SessionOp::Gone {
            client: client.clone(),
            epoch,
        };
        self.base
            .node
            .store()
            .session(&client, CorrelationId::NONE, op);
    }

    /// A PUBREC of a client is to be recorded.
    pub(crate) fn record_receipt(&mut self, key: Key, sequence: u64) {
        let Some(client) = self.clients.get(key) else {
            return;
        };
        let stored = client.stored.as_ref();
        let stored = stored.and_then(|stored| Some((stored.epoch, stored.inbox.as_ref()?.number)));
        let Some((epoch, inbox)) = stored else {
            return;
        };
        let client_id = Box::<str>::from(client.session.client_id());
        let op = InboxOp::Receipt {
            session: self.base.node.store().session_name(&client_id, inbox),
            epoch,
            sequence,
        };
        self.base.ask_inbox(Pending::Receipt { key, sequence }, op);
    }

    /// A PUBREL of a client: its publication is to be forgotten wherever it is known.
    pub(crate) fn record_release(&mut self, key: Key, packet_id: PacketId) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let Some(stored) = &mut client.stored else {
            return;
        };
        let epoch = stored.epoch;
        let Some(inbox) = &mut stored.inbox else {
            return;
        };
        let once = inbox.once(client.session.client_id(), epoch, packet_id);
        let session = &client.session;
        inbox.keep_up(&self.base.node.store().inbox_shards(), || {
            session.received().clone()
        });
        let shards = inbox.shards_to_release(packet_id);
        inbox.forget(packet_id);
        let ticket = self.base.ask(Pending::Release {
            key,
            packet_id,
            left: shards.len(),
        });
        for shard in shards {
            self.base
                .node
                .store()
                .inboxes(shard, ticket, once.release());
        }
    }

    /// A PUBREC or PUBREL of a client is recorded: `complete` has the session answer it.
    pub(crate) fn recorded(
        &mut self,
        io: &mut impl LoopIo,
        key: Key,
        answer: &Answer,
        complete: impl FnOnce(&mut Session),
    ) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        if matches!(answer, Answer::Failed(_)) {
            // The client sends the packet again on its next connection.
            self.base.end(key, ReasonCode::QuotaExceeded);
            return;
        }
        complete(&mut client.session);
        if let Some(connection) = client.connection {
            io.touch(connection);
        }
    }
}

/// A message of an inbox, for its session. `group`: the shared group that it is for.
fn delivery_of(item: Item, group: Option<NonZeroU32>) -> Delivery {
    Delivery {
        group,
        message: item.message,
        qos: item.qos,
        retain: item.retain,
        subscription_ids: item.subscription_ids,
    }
}
