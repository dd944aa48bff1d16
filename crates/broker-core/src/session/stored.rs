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
use store_state::api::{Event, Failure, NO_SEQUENCE, Read, Store as _};
use store_state::inbox::{Done, InboxOp, InboxReply, Item, Queued};
use store_state::retain::RetainReply;
use store_state::session::SessionOp;

use crate::clients::{Client, ClientLoop, LoopIo, Timer, record, record_drop};
use crate::connect::inbox::CREDIT;
use crate::connect::taking::{Settled, Settling};
use crate::drops::Reason;
use crate::events::{SessionEvent, SessionHappened};
use crate::pending::{Answer, Awaiting, Pending, Publication, Storing};
use crate::publish::on_behalf::{self, Kept};
use crate::publish::once::Once;
use crate::rim::Rim;
use crate::session::catching_up::{Came, ask_whether_read};
use crate::session::new_leaders;
use crate::session::reopening::LeaderChange;
use crate::shared::offer;

/// How long a client that has sent DISCONNECT waits for the record of it, in ms.
const LEAVING_MS: u64 = 5_000;

impl<R: Rim> ClientLoop<R> {
    /// Events of the store.
    pub(crate) fn store_events(&mut self, io: &mut impl LoopIo, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Session { token, reply } => {
                    self.answered(io, token, Answer::Session(reply));
                }
                Event::Inbox { token, reply } => self.answered(io, token, Answer::Inbox(reply)),
                Event::Retain { token, reply } => self.answered(io, token, Answer::Retain(reply)),
                Event::Failed { token, failure } => {
                    self.answered(io, token, Answer::Failed(failure));
                }
                Event::Passed { token } => self.answered(io, token, Answer::Passed),
                Event::Retained { token, pages } => {
                    self.answered(io, token, Answer::Retained(pages));
                }
                Event::Reopen { shard } => {
                    new_leaders::begin(self, io, [LeaderChange::OfInboxes(shard)]);
                }
                Event::Fenced => self.fence(io),
                Event::Page {
                    home,
                    epoch,
                    from,
                    items,
                } => self.page(io, Key::from_bits(home), epoch, from, items),
                Event::Fire {
                    client,
                    epoch,
                    will,
                } => self.fire(io, client, epoch, &will),
                Event::Ended { client, epoch, why } => {
                    if let Some(why) = why {
                        self.node.rim.tell_session(&SessionEvent {
                            what: SessionHappened::Ended(why),
                            client_id: &client,
                            user: None,
                        });
                    }
                    self.remove_inbox(client, epoch);
                }
                Event::LeftBehind { client, inbox } => self.left_behind(client, inbox),
                Event::SplitOff { .. } => {
                    debug_assert!(
                        false,
                        "the store itself sends on what belongs to other shards"
                    );
                }
            }
        }
    }

    /// Queued messages of a session.
    fn page(
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
                record(&self.drops, io.now_ms(), client_id, &dropped);
            }
        }
        if let Some(connection) = self.clients.get(key).and_then(|client| client.connection) {
            io.touch(connection);
        }
        self.show_room(key);
    }

    /// The other nodes have taken this one for dead, and with it the connections that the store knows of.
    fn fence(&mut self, io: &mut impl LoopIo) {
        if self.index == 0 {
            self.node.rim.tell_incarnation();
        }
        self.end_all_lingering(io);
        for key in self.online() {
            self.refuse_claimed(io, key);
            if self
                .clients
                .get(key)
                .is_some_and(|client| client.stored.is_some())
            {
                self.kick(io, key, ReasonCode::ServerBusy);
            }
        }
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
        let allowed = !self.is_restricted(key, action)
            || self.allows(io, key, action, item.message.body.topic());
        let group = offer::group_of(&self.node.routes, &item, state);
        let qos = item.qos;
        let delivery = delivery_of(item, group);
        if !allowed {
            self.deny_delivery(io, key, delivery, true);
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
        if let Some(replay) = &mut client.replay
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
            self.node.store().read(inbox.slot, read);
            let round = inbox.catching_up.handle_credit(was_exhausted);
            asks = round.map(|round| (inbox.slot, round));
        }
        if !done.is_empty() {
            let op = InboxOp::Acknowledge {
                session: self
                    .node
                    .store()
                    .session_name(client.session.client_id(), inbox.number),
                epoch,
                sent: client.session.sent_sequence(),
                done: Done(done),
            };
            self.node.store().acknowledge(op);
        }
        if let Some((slot, round)) = asks {
            let read = Settled::Read { key, epoch, round };
            let ticket = self.ask(Pending::Settle(Settling::new(1, read)));
            ask_whether_read(self.node.store(), slot, ticket);
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
            self.node
                .unreleased
                .keep(&client_id, epoch, received, io.now_ms());
            let sent = client.session.sent_sequence();
            if let Some(gauge) = client.gauge.take() {
                gauge.set_home(None);
            }
            let close = Read::Close {
                inbox: inbox.number,
                epoch: stored.epoch,
            };
            self.node.store().read(inbox.slot, close);
            let session = self.node.store().session_name(&client_id, inbox.number);
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
            self.node.store().inbox(CorrelationId::NONE, op);
            let shard = self.node.store().inbox_shard(inbox.slot);
            // At once, so that messages of QoS 0 that come from now on are stored, behind that.
            let gone = client.session.subscriptions().iter();
            for subscription in gone.filter(|_| !lingers) {
                if let Ok(filter) = SubscriptionFilter::parse(&subscription.filter)
                    && filter.shared.is_none()
                {
                    let routes = &self.node.routes;
                    routes.set_shard(shard, filter.filter, true, true);
                }
            }
        }
        let id = self.disconnect_stored(&client_id, stored.epoch, expiry, keep_will);
        if closes.is_some()
            && let Some(Pending::Disconnect { closes: waits }) = self.pending.get_mut(id)
        {
            // No answer is worked off before this turn is over.
            *waits = closes;
            io.arm(io.now_ms() + LEAVING_MS, Timer::Leaving(id).to_bits());
        }
    }

    /// A shard has answered for a publication.
    pub(crate) fn publication_answered(&mut self, io: &mut impl LoopIo, id: Key, answer: Answer) {
        if let Some(Pending::Publish(publication)) = self.pending.get_mut(id) {
            publication.left -= 1;
            match answer {
                Answer::Inbox(InboxReply::Published {
                    matched,
                    refused,
                    pressing,
                }) => {
                    publication.matched(matched > 0, refused > 0);
                    publication.receivers.answered(matched, pressing);
                }
                Answer::Retain(RetainReply::Full) => {
                    publication.matched(true, true);
                    publication.not_retained = true;
                }
                Answer::Failed(Failure::Full | Failure::TooLong) => {
                    publication.matched(true, true);
                    publication.stored(Storing::Refused);
                }
                Answer::Inbox(InboxReply::Fenced) | Answer::Retain(RetainReply::Fenced) => {
                    publication.stored(Storing::Stale);
                }
                Answer::Failed(_) => {
                    publication.stored(Storing::Unknown);
                    publication.reason = ReasonCode::ImplementationSpecificError;
                }
                _ => publication.matched(false, false),
            }
        }
        let finished = matches!(self.pending.get(id), Some(Pending::Publish(p)) if p.left == 0);
        if finished && let Some(Pending::Publish(publication)) = self.pending.remove(id) {
            self.publication_done(io, *publication);
            self.stats.pending.set(self.pending.len() as u64);
        }
    }

    /// All who must have a message have it, or one of them could not.
    pub(crate) fn publication_done(&mut self, io: &mut impl LoopIo, publication: Publication) {
        let Publication {
            from,
            reason,
            storing,
            message,
            once,
            receivers,
            not_retained,
            call,
            ..
        } = publication;
        if let Some(call) = call {
            self.calls.end(call);
        }
        let failed = storing != Storing::Done;
        if let Awaiting::Client(key, _) | Awaiting::Nobody(key) = from {
            if failed {
                self.drop_inbound(io, key, &message, Reason::StoreFailed);
            } else if not_retained {
                self.drop_inbound(io, key, &message, Reason::RetainedLimit);
            }
        }
        match from {
            Awaiting::Nobody(_) => {}
            Awaiting::Operator(operator) => {
                let done = Kept {
                    reason,
                    storing,
                    not_retained,
                };
                on_behalf::publication_done(self, io, &operator, &message, done);
            }
            Awaiting::Client(key, packet_id) => {
                // Who is not told sends the message again, and those that have it know it by its origin.
                let Some(client) = self.clients.get_mut(key) else {
                    return;
                };
                if storing == Storing::Stale {
                    self.kick(io, key, ReasonCode::SessionTakenOver);
                    return;
                }
                if failed && !client.session.version().is_v5() {
                    // Before 5.0 an acknowledgement cannot say no: none is sent, and the client sends
                    // the message again on its next connection.
                    self.kick(io, key, reason);
                    return;
                }
                if storing == Storing::Unknown && once.is_some() {
                    // A PUBREC that refuses has its identifier forgotten. If it is lost, the client sends the
                    // message again, and a shard that keeps it would take it for another one.
                    self.kick(io, key, ReasonCode::ServerBusy);
                    return;
                }
                client
                    .session
                    .complete_publish(packet_id, reason, message.taken_up);
                if let Some(connection) = client.connection {
                    io.touch(connection);
                }
                if receivers.filling > 0 || client.hold.is_some() {
                    self.throttle_publisher(io, key, receivers, message.body.topic_bytes());
                }
                if let Some(once) = once.filter(|_| reason.is_error()) {
                    // [MQTT-4.3.3-9] the identifier is free for another message.
                    self.release_everywhere(&once);
                    if let Some(inbox) = self.clients.get_mut(key).and_then(Client::inbox) {
                        inbox.forget(packet_id);
                    }
                }
            }
            Awaiting::Will { client, epoch } => {
                if failed {
                    self.will_is_unpublished(io, client, epoch);
                    return;
                }
                if not_retained {
                    record_drop(&self.drops, io.now_ms(), &message, Reason::RetainedLimit);
                }
                self.will_is_published(&client, epoch);
            }
        }
    }

    /// All shards forget what was published under this name, up to this incarnation.
    pub(crate) fn forget_everywhere(&self, publisher: &str, incarnation: u64) {
        let store = self.node.store();
        let name = store.client_name(publisher);
        for &shard in store.inbox_shards().iter() {
            let op = InboxOp::Forget {
                client: name.clone(),
                incarnation,
            };
            store.inboxes(shard, CorrelationId::NONE, op);
        }
    }

    pub(crate) fn release_everywhere(&self, once: &Once) {
        let store = self.node.store();
        for &shard in store.inbox_shards().iter() {
            store.inboxes(shard, CorrelationId::NONE, once.release());
        }
    }

    /// A session has ended.
    fn remove_inbox(&mut self, client: Box<str>, epoch: u64) {
        self.node.unreleased.forget(&client, epoch);
        let op = InboxOp::Remove {
            session: self.node.store().client_name(&client).into(),
            epoch,
        };
        let pending = Pending::Removal {
            client: client.clone(),
            epoch,
        };
        self.ask_inbox(pending, op);
    }

    pub(crate) fn removal_answered(&mut self, client: Box<str>, epoch: u64, answer: &Answer) {
        if let Answer::Failed(_) = answer {
            // The node ends: whoever leads next is told.
            return;
        }
        self.node.quotas.handle_ended(&client);
        self.forget_everywhere(&client, epoch);
        let op = SessionOp::Gone {
            client: client.clone(),
            epoch,
        };
        self.node.store().session(&client, CorrelationId::NONE, op);
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
            session: self.node.store().session_name(&client_id, inbox),
            epoch,
            sequence,
        };
        self.ask_inbox(Pending::Receipt { key, sequence }, op);
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
        inbox.keep_up(&self.node.store().inbox_shards(), || {
            session.received().clone()
        });
        let shards = inbox.shards_to_release(packet_id);
        inbox.forget(packet_id);
        let ticket = self.ask(Pending::Release {
            key,
            packet_id,
            left: shards.len(),
        });
        for shard in shards {
            self.node.store().inboxes(shard, ticket, once.release());
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
            self.kick(io, key, ReasonCode::QuotaExceeded);
            return;
        }
        complete(&mut client.session);
        if let Some(connection) = client.connection {
            io.touch(connection);
        }
    }
}

impl Publication {
    fn stored(&mut self, storing: Storing) {
        self.storing = self.storing.max(storing);
    }

    /// A shard has said whether anybody there matched, and whether anybody refused.
    pub(crate) fn matched(&mut self, matched: bool, refused: bool) {
        if refused {
            self.reason = ReasonCode::QuotaExceeded;
        } else if matched && self.reason == ReasonCode::NoMatchingSubscribers {
            self.reason = ReasonCode::Success;
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
