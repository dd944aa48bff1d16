//! Subscriptions, and the retained messages that they bring.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashSet;
use mqtt_proto::{
    PacketId, ProtocolVersion, QoS, ReasonCode, RetainHandling, Subscribe, SubscriptionFilter,
    SubscriptionOptions, Unsubscribe,
};
use mqtt_session::{ApplicationMessage, Delivered, Delivery, Subscription, Timestamp, Wanted};
use net::Key;
use store::{Failure, RetainedPlace};
use store_state::inbox::{InboxOp, InboxReply, Item, StoredSubscription};
use topic_router::Cursor;

use super::joining::{self, route_connection};
use super::pending::{Answer, Pending, Subscribing};
use super::{Client, ClientLoop, LoopIo, effective, record};
use crate::groups::Gauge;
use crate::node::Node;
use crate::sys::ROOT;

/// Retained messages that are queued for a session at once. The next page follows when these are sent,
/// so a filter that selects a million messages costs the memory of a page.
const PAGE: usize = 64;

/// Retained messages that subscriptions still owe a session.
#[derive(Debug, Default)]
pub(super) struct Replay {
    filters: VecDeque<Owed>,
    /// Questions to the store that it waits for.
    blocked: u32,
    /// The page that the store was asked for, and where the next one begins.
    page: Option<Page>,
    /// Topics of retained messages that came to the session as they were published: what is kept of
    /// these topics is not newer.
    passed: HashSet<Box<[u8]>, RandomState>,
}

/// Retained messages that have come from another node, and where the next ones begin.
type Page = (Vec<Arc<ApplicationMessage>>, Option<Place>);

/// Topics of which a replay remembers that they passed it by.
const PASSED: usize = 4096;

impl Replay {
    /// A message comes to the session as it is published.
    pub(super) fn passed_by(&mut self, message: &ApplicationMessage) {
        if message.retain && self.passed.len() < PASSED {
            self.passed.insert(message.body.topic_bytes().into());
        }
    }
}

/// Who tells other nodes of a subscription.
#[derive(Clone, Copy, Debug)]
enum RouteOwner {
    /// This node: of its connected sessions.
    ThisNode,
    /// The leader of an inbox shard: of durable sessions.
    LeaderOf(u16),
}

#[derive(Debug)]
struct Owed {
    filter: Box<str>,
    wanted: Wanted,
    after: Option<Place>,
}

/// Where the next page begins.
#[derive(Debug)]
enum Place {
    /// Among the broker's own topics.
    Own(Cursor),
    /// In the retain store.
    Stored(RetainedPlace),
}

impl Owed {
    /// The next page, and where the one after it begins.
    fn page(
        &mut self,
        node: &Node,
        now: Timestamp,
    ) -> (Vec<Arc<ApplicationMessage>>, Option<Place>) {
        let after = self.after.take();
        // [MQTT-4.7.2-1] a filter selects either what begins with $SYS or what does not.
        if self.filter.starts_with(ROOT) {
            let cursor = match after {
                Some(Place::Own(cursor)) => Some(cursor),
                _ => None,
            };
            let (messages, next) = node.retained.page(&self.filter, cursor.as_ref(), PAGE);
            return (messages, next.map(Place::Own));
        }
        let place = match after {
            Some(Place::Stored(place)) => Some(place),
            _ => None,
        };
        let (messages, next) = node.store().retained(&self.filter, place, PAGE, now);
        (messages, next.map(Place::Stored))
    }
}

impl ClientLoop {
    /// Carries a SUBSCRIBE out. True: it waits for the store, and so does whatever the client sends
    /// next.
    pub(super) fn subscribe(
        &mut self,
        io: &mut LoopIo,
        key: Key,
        subscribe: &Subscribe<'_>,
    ) -> bool {
        let id = subscribe.properties.subscription_id.unwrap_or(0);
        let mut filters = Vec::with_capacity(subscribe.filters.len());
        // Filters of this packet that the session does not have yet.
        let mut fresh: Vec<&str> = Vec::new();
        for (text, options) in subscribe.filters.iter() {
            let admitted = self.admit_filter(io, key, text, options);
            let Some(client) = self.clients.get(key) else {
                return false;
            };
            filters.push(admitted.and_then(|options| {
                let held = client.session.subscriptions();
                if !fresh.contains(&text) && !held.iter().any(|s| &*s.filter == text) {
                    fresh.push(text);
                }
                let most = self.settings.policy.subscriptions as usize;
                if fresh.last() == Some(&text) && held.len() + fresh.len() > most {
                    fresh.pop();
                    return Err(ReasonCode::QuotaExceeded);
                }
                Ok(StoredSubscription {
                    filter: text.into(),
                    options,
                    id,
                })
            }));
        }
        let subscribing = Subscribing {
            key,
            packet_id: subscribe.packet_id,
            filters,
        };
        let Some(client) = self.clients.get_mut(key) else {
            return false;
        };
        let admitted: Vec<_> = subscribing.filters.iter().flatten().cloned().collect();
        let durable = client.stored.as_ref().filter(|s| s.inbox.is_some());
        if let Some(stored) = durable
            && !admitted.is_empty()
        {
            let client_id = Box::<str>::from(client.session.client_id());
            let op = InboxOp::Subscribe {
                client: client_id.clone(),
                epoch: stored.epoch,
                subscriptions: admitted,
            };
            client.waits = true;
            self.ask_inbox(&client_id, Pending::Subscribe(Box::new(subscribing)), op);
            return true;
        }
        self.subscribed(io, subscribing, None)
    }

    /// The options to grant a subscription with, or why it is refused.
    fn admit_filter(
        &mut self,
        io: &LoopIo,
        key: Key,
        text: &str,
        options: SubscriptionOptions,
    ) -> Result<SubscriptionOptions, ReasonCode> {
        let client = self.clients.get(key).ok_or(ReasonCode::UnspecifiedError)?;
        let checked = client
            .session
            .check_filter(text, options, &self.settings.policy);
        let admitted = match checked {
            Ok((parsed, _)) if !self.may_subscribe(io, key, parsed.filter, options.qos) => {
                Err(ReasonCode::NotAuthorized)
            }
            Ok((_, options)) => Ok(options),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = admitted {
            let client = self.clients.get(key);
            tracing::info!(
                client_id = client.map_or("", |client| client.session.client_id()),
                filter = text,
                reason = reason.name(),
                "a subscription is refused"
            );
        }
        admitted
    }

    pub(super) fn subscribe_answered(
        &mut self,
        io: &mut LoopIo,
        mut subscribing: Subscribing,
        answer: Answer,
    ) {
        let new = match answer {
            Answer::Inbox(InboxReply::Subscribed(new)) => new,
            Answer::Failed(_) if self.version(subscribing.key) == Some(ProtocolVersion::V3_1) => {
                // 3.1 has no code for a refusal.
                self.kick(io, subscribing.key, ReasonCode::ImplementationSpecificError);
                return;
            }
            Answer::Failed(failure) => {
                let reason = match failure {
                    Failure::Full => ReasonCode::QuotaExceeded,
                    Failure::Stopped | Failure::Moved => ReasonCode::ImplementationSpecificError,
                };
                for filter in subscribing.filters.iter_mut().filter(|f| f.is_ok()) {
                    *filter = Err(reason);
                }
                Vec::new()
            }
            // A later connection has the session.
            _ => return,
        };
        let key = subscribing.key;
        if !self.subscribed(io, subscribing, Some(&new)) {
            self.stop_waiting(io, key);
        }
    }

    fn version(&self, key: Key) -> Option<ProtocolVersion> {
        self.clients.get(key).map(|client| client.session.version())
    }

    /// What the client sends after a SUBSCRIBE or UNSUBSCRIBE is read again.
    fn stop_waiting(&mut self, io: &mut LoopIo, key: Key) {
        if let Some(client) = self.clients.get_mut(key) {
            client.waits = false;
            if let Some(connection) = client.connection {
                io.resume(connection);
            }
        }
    }

    /// Makes subscriptions effective and answers. `stored`: what the store said to those admitted, for
    /// each whether it is new. True: the answer waits for retained messages on their way to the store, or for
    /// other nodes.
    fn subscribed(
        &mut self,
        io: &mut LoopIo,
        subscribing: Subscribing,
        stored: Option<&[bool]>,
    ) -> bool {
        let Subscribing {
            key,
            packet_id,
            filters,
        } = subscribing;
        let mut reasons = Vec::with_capacity(filters.len());
        let mut owed = VecDeque::new();
        let mut answers = stored.unwrap_or_default().iter().copied();
        for filter in filters {
            reasons.push(match filter {
                Err(reason) => reason,
                Ok(subscription) => {
                    let options = subscription.options;
                    let was_new = stored.map(|_| answers.next().unwrap_or(false));
                    if let Some(owes) = self.add_subscription(key, subscription, was_new) {
                        owed.retain(|old: &Owed| old.filter != owes.filter);
                        owed.push_back(owes);
                    }
                    granted_code(options.qos)
                }
            });
        }
        let store = self.node.store();
        // A question to other nodes goes behind what is on its way.
        let replays = !owed.is_empty() && !store.has_neighbours() && !store.is_retain_idle();
        let routes = self.awaited_routes(io, key);
        let Some(client) = self.clients.get_mut(key) else {
            return false;
        };
        if !owed.is_empty() {
            let replay = client.replay.get_or_insert_default();
            // What is owed twice is sent once, so that the subscriptions bound what is owed.
            replay
                .filters
                .retain(|old| owed.iter().all(|new| new.filter != old.filter));
            replay.filters.append(&mut owed);
            replay.blocked += u32::from(replays);
        }
        if replays || !routes.is_empty() {
            client.waits = true;
            let shards = if replays {
                self.node.store().retain_shards()
            } else {
                0
            };
            let ticket = self.ask(Pending::Barrier {
                key,
                packet_id,
                reasons,
                left: shards + routes.len() as u16,
                replays,
            });
            if replays {
                self.node.store().retain_barrier(ticket);
            }
            self.await_routes(io, &routes, ticket.token);
            return true;
        }
        client.session.complete_subscribe(packet_id, &reasons);
        // At once, so that nothing that is published from now on goes before the first page.
        self.replay_page(io, key);
        self.show_room(key);
        if let Some(connection) = self.clients.get(key).and_then(|client| client.connection) {
            io.touch(connection);
        }
        false
    }

    /// Whose routes other nodes may lack that a SUBSCRIBE of a client has changed.
    fn awaited_routes(&self, io: &LoopIo, key: Key) -> Vec<RouteOwner> {
        let Some(peers) = self.node.peers() else {
            return Vec::new();
        };
        let mut owners = Vec::new();
        if peers.lacks_routes(&self.node, io.now_ms()) {
            owners.push(RouteOwner::ThisNode);
        }
        let stored = self.clients.get(key).and_then(|c| c.stored.as_ref());
        if let Some(inbox) = stored.and_then(|stored| stored.inbox.as_ref())
            && peers.is_led_elsewhere(&self.node, inbox.shard)
        {
            owners.push(RouteOwner::LeaderOf(inbox.shard));
        }
        owners
    }

    /// A question is answered once for each owner, when all live nodes know its routes.
    fn await_routes(&mut self, io: &mut LoopIo, owners: &[RouteOwner], token: u64) {
        let node = Arc::clone(&self.node);
        let Some(peers) = node.peers().filter(|_| !owners.is_empty()) else {
            return;
        };
        self.stats.route_waits.add(1);
        for owner in owners {
            match owner {
                RouteOwner::ThisNode => peers.await_routes(&node, self.index, token),
                RouteOwner::LeaderOf(shard) => {
                    peers.await_shard(&node, *shard, self.index, token);
                }
            }
        }
        self.flush_peers_soon(io);
    }

    /// Other nodes know the routes of a subscription, and retained messages that were on their way when the
    /// client subscribed are in the store: they come with the first page, which follows SUBACK.
    pub(super) fn barrier_passed(
        &mut self,
        io: &mut LoopIo,
        key: Key,
        packet_id: PacketId,
        reasons: &[ReasonCode],
        replays: bool,
    ) {
        if let Some(client) = self.clients.get_mut(key) {
            client.session.complete_subscribe(packet_id, reasons);
        }
        if replays {
            self.replay_goes_on(io, key);
        }
        self.replay_page(io, key);
        self.show_room(key);
        if let Some(connection) = self.clients.get(key).and_then(|client| client.connection) {
            io.touch(connection);
        }
        self.stop_waiting(io, key);
    }

    /// What the replay of retained messages waited for has happened.
    pub(super) fn replay_goes_on(&mut self, io: &mut LoopIo, key: Key) {
        if let Some(client) = self.clients.get_mut(key)
            && let Some(replay) = &mut client.replay
        {
            replay.blocked = replay.blocked.saturating_sub(1);
            if let Some(connection) = client.connection {
                io.touch(connection);
            }
        }
    }

    /// Routes a subscription and writes it down in the session. `stored`: the store has it, and says
    /// whether it is new. Returns what retained messages it brings.
    fn add_subscription(
        &mut self,
        key: Key,
        subscription: StoredSubscription,
        stored: Option<bool>,
    ) -> Option<Owed> {
        let session_key = self.session_key(key);
        let client = self.clients.get_mut(key)?;
        let filter = SubscriptionFilter::parse(&subscription.filter).ok()?;
        let wanted = Wanted::new(subscription.options, subscription.id);
        let (new, group) = match stored {
            Some(new) => {
                route_connection(&self.node.routes, session_key, &subscription);
                if client.gauge.is_none() {
                    client.gauge = self.node.routes.durable_gauge(client.session.client_id());
                    if let Some(gauge) = &client.gauge {
                        gauge.set_home(Some(session_key));
                    }
                }
                (new, None)
            }
            None => {
                let gauge = &mut client.gauge;
                let share = || Arc::clone(gauge.get_or_insert_with(|| Arc::new(Gauge::default())));
                let subscribed = self
                    .node
                    .routes
                    .subscribe(session_key, filter, wanted, share);
                let group = subscribed.group.and_then(std::num::NonZeroU32::new);
                (subscribed.new, group)
            }
        };
        let owes =
            wants_retained(subscription.options.retain_handling, new) && filter.shared.is_none();
        let owed = owes.then(|| Owed {
            filter: filter.filter.into(),
            wanted,
            after: None,
        });
        client.session.add_subscription(Subscription {
            group,
            ..joining::subscription(subscription)
        });
        owed
    }

    /// Carries an UNSUBSCRIBE out. True: it waits for the store, and so does whatever the client sends
    /// next.
    pub(super) fn unsubscribe(
        &mut self,
        io: &mut LoopIo,
        key: Key,
        unsubscribe: &Unsubscribe<'_>,
    ) -> bool {
        let Some(client) = self.clients.get_mut(key) else {
            return false;
        };
        let packet_id = unsubscribe.packet_id;
        let filters: Vec<Box<str>> = unsubscribe.filters.iter().map(Into::into).collect();
        let durable = client.stored.as_ref().filter(|s| s.inbox.is_some());
        if let Some(stored) = durable {
            let client_id = Box::<str>::from(client.session.client_id());
            let op = InboxOp::Unsubscribe {
                client: client_id.clone(),
                epoch: stored.epoch,
                filters: filters.clone(),
            };
            client.waits = true;
            let pending = Pending::Unsubscribe {
                key,
                packet_id,
                filters,
            };
            self.ask_inbox(&client_id, pending, op);
            return true;
        }
        let reasons = filters
            .iter()
            .map(|text| self.remove_subscription(io, key, text, None))
            .collect::<Vec<_>>();
        self.unsubscribed(io, key, packet_id, &reasons);
        false
    }

    pub(super) fn unsubscribe_answered(
        &mut self,
        io: &mut LoopIo,
        key: Key,
        packet_id: PacketId,
        filters: &[Box<str>],
        answer: Answer,
    ) {
        let reasons: Vec<ReasonCode> = match answer {
            Answer::Inbox(InboxReply::Unsubscribed(existed)) => filters
                .iter()
                .zip(existed)
                .map(|(text, existed)| self.remove_subscription(io, key, text, Some(existed)))
                .collect(),
            Answer::Failed(_) if self.version(key) != Some(ProtocolVersion::V5) => {
                // Before 5.0 an answer cannot say no: none is sent.
                self.kick(io, key, ReasonCode::ImplementationSpecificError);
                return;
            }
            Answer::Failed(_) => vec![ReasonCode::ImplementationSpecificError; filters.len()],
            // A later connection has the session.
            _ => return,
        };
        self.unsubscribed(io, key, packet_id, &reasons);
        self.stop_waiting(io, key);
    }

    fn unsubscribed(
        &mut self,
        io: &mut LoopIo,
        key: Key,
        packet_id: PacketId,
        reasons: &[ReasonCode],
    ) {
        if let Some(client) = self.clients.get_mut(key) {
            client.session.complete_unsubscribe(packet_id, reasons);
            if let Some(connection) = client.connection {
                io.touch(connection);
            }
        }
        self.show_room(key);
    }

    /// Takes a subscription out of the routes and the session. `stored`: the store said whether there
    /// was one.
    fn remove_subscription(
        &mut self,
        io: &mut LoopIo,
        key: Key,
        text: &str,
        stored: Option<bool>,
    ) -> ReasonCode {
        let Ok(filter) = SubscriptionFilter::parse(text) else {
            return ReasonCode::TopicFilterInvalid;
        };
        let session_key = self.session_key(key);
        let routed = self.node.routes.unsubscribe(session_key, filter);
        let existed = stored.unwrap_or(routed);
        if let Some(client) = self.clients.get_mut(key) {
            let removed = client.session.remove_subscription(text);
            if let Some(replay) = &mut client.replay
                && filter.shared.is_none()
            {
                replay.filters.retain(|owed| &*owed.filter != filter.filter);
            }
            if let Some(group) = removed.and_then(|subscription| subscription.group) {
                let deliveries = client.session.take_group(group);
                self.redispatch(io, deliveries, Some(session_key));
            }
        }
        if existed {
            ReasonCode::Success
        } else {
            ReasonCode::NoSubscriptionExisted
        }
    }

    /// Queues the next page of retained messages, if the last one is sent. True: there is something to
    /// transmit, or more to look at.
    pub(super) fn replay_page(&mut self, io: &LoopIo, key: Key) -> bool {
        let now = Timestamp(io.now_ms());
        let Some(client) = self.clients.get(key) else {
            return false;
        };
        let Some(replay) = &client.replay else {
            return false;
        };
        if replay.blocked > 0 || client.session.queue_len() > 0 {
            return false;
        }
        let mut to_store = Vec::new();
        let mut looked_at = 0;
        while looked_at < PAGE {
            let Some((messages, wanted)) = self.next_retained(key, now) else {
                break;
            };
            looked_at += messages.len();
            for message in messages {
                if self.may_receive(io, key, &message) {
                    to_store.extend(self.replay_one(key, message, wanted, now));
                }
            }
        }
        let Some(client) = self.clients.get_mut(key) else {
            return false;
        };
        let Some(replay) = &mut client.replay else {
            return false;
        };
        let mut more = !replay.filters.is_empty();
        if !to_store.is_empty() {
            more = false;
            replay.blocked += 1;
            let client_id = Box::<str>::from(client.session.client_id());
            let op = InboxOp::Deliver {
                client: client_id.clone(),
                items: to_store,
                origin: None,
            };
            self.ask_inbox(&client_id, Pending::Replay(key), op);
        } else if !more {
            client.replay = None;
        }
        let queue_len = |client: &Client| client.session.queue_len();
        more || self.clients.get(key).map_or(0, queue_len) > 0
    }

    /// Retained messages that a session is owed and has not got as they were published, and for what
    /// subscription. `None`: there are no more.
    fn next_retained(
        &mut self,
        key: Key,
        now: Timestamp,
    ) -> Option<(Vec<Arc<ApplicationMessage>>, Wanted)> {
        let replay = self.clients.get_mut(key)?.replay.as_mut()?;
        let owed = replay.filters.front_mut()?;
        let wanted = owed.wanted;
        let is_own = owed.filter.starts_with(ROOT);
        let page = match replay.page.take() {
            Some(page) => page,
            None if is_own || !self.node.store().has_neighbours() => owed.page(&self.node, now),
            None => {
                let (filter, after) = (owed.filter.clone(), owed.after.take());
                replay.blocked += 1;
                self.ask_page(key, &filter, after, now);
                return None;
            }
        };
        let (mut messages, next) = page;
        messages.retain(|message| !replay.passed.contains(message.body.topic_bytes()));
        match next {
            Some(place) => owed.after = Some(place),
            None => {
                replay.filters.pop_front();
            }
        }
        Some((messages, wanted))
    }

    /// Asks the store for a page that other nodes may have.
    fn ask_page(&mut self, key: Key, filter: &str, after: Option<Place>, now: Timestamp) {
        let place = match after {
            Some(Place::Stored(place)) => Some(place),
            _ => None,
        };
        let ticket = self.ask(Pending::Page(key));
        let store = self.node.store();
        store.ask_retained(ticket, filter, place, PAGE, now);
    }

    /// The page that was asked for has come, or is to be asked for again.
    pub(super) fn page_has_come(&mut self, io: &mut LoopIo, key: Key, answer: Answer) {
        if let Answer::Retained(messages, next) = answer
            && let Some(client) = self.clients.get_mut(key)
            && let Some(replay) = &mut client.replay
        {
            let messages = messages.into_iter().map(|retained| retained.0).collect();
            replay.page = Some((messages, next.map(Place::Stored)));
        }
        self.replay_goes_on(io, key);
        self.replay_page(io, key);
        if let Some(connection) = self.clients.get(key).and_then(|client| client.connection) {
            io.touch(connection);
        }
    }

    /// Queues a retained message. One that a durable session has to store first is given back.
    fn replay_one(
        &mut self,
        key: Key,
        message: Arc<ApplicationMessage>,
        wanted: Wanted,
        now: Timestamp,
    ) -> Option<Item> {
        let client = self.clients.get_mut(key)?;
        let qos = effective(message.qos, wanted.qos);
        // [MQTT-3.3.1-8] [MQTT3-3.3.1-8] set, because the message was kept
        let retain = true;
        let subscription_ids = wanted.ids();
        if client.session.is_durable() && qos > QoS::AtMostOnce {
            return Some(Item {
                message,
                qos,
                retain,
                subscription_ids,
                group: None,
            });
        }
        let delivery = Delivery {
            message,
            qos,
            retain,
            subscription_ids,
            group: None,
        };
        let policy = &self.settings.beyond_limit;
        if let Delivered::Dropped(dropped) = client.session.deliver(delivery, policy, now) {
            record(&self.drops, now.0, client.session.client_id(), &dropped);
        }
        None
    }

    /// Takes a session's subscriptions out of the routes.
    pub(super) fn remove_routes(&mut self, key: Key) {
        let session_key = self.session_key(key);
        let Some(client) = self.clients.get(key) else {
            return;
        };
        for subscription in client.session.subscriptions() {
            if let Ok(filter) = SubscriptionFilter::parse(&subscription.filter) {
                self.node.routes.unsubscribe(session_key, filter);
            }
        }
    }
}

/// [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]
fn wants_retained(handling: RetainHandling, new: bool) -> bool {
    match handling {
        RetainHandling::SendAtSubscribe => true,
        RetainHandling::SendIfNew => new,
        RetainHandling::DoNotSend => false,
    }
}

fn granted_code(qos: QoS) -> ReasonCode {
    match qos {
        QoS::AtMostOnce => ReasonCode::Success,
        QoS::AtLeastOnce => ReasonCode::GrantedQoS1,
        QoS::ExactlyOnce => ReasonCode::GrantedQoS2,
    }
}
