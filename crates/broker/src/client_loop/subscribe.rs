//! Subscriptions, and the retained messages that they bring.

use std::collections::VecDeque;
use std::sync::Arc;

use mqtt_proto::{
    PacketId, ProtocolVersion, QoS, ReasonCode, Subscribe, SubscriptionFilter, SubscriptionOptions,
    Unsubscribe,
};
use mqtt_session::{Subscription, Wanted};
use net::Key;
use store::Failure;
use store_state::inbox::{InboxOp, InboxReply, StoredSubscription};

use super::joining::{self, route_connection};
use super::pending::{Answer, Pending, Subscribing};
use super::replay::Owed;
use super::{ClientLoop, LoopIo};
use crate::groups::Gauge;

/// Who tells other nodes of a subscription.
#[derive(Clone, Copy, Debug)]
enum RouteOwner {
    /// This node: of its connected sessions.
    ThisNode,
    /// The leader of an inbox shard: of durable sessions.
    LeaderOf(u16),
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
        let mut patterns = Vec::new();
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
                let policy = &self.settings.policy;
                if fresh.last() == Some(&text)
                    && !client.session.admits_pattern(text, &mut patterns, policy)
                {
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
            self.hold_replay(key);
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
        self.replay_goes_on(io, subscribing.key);
        let new = match answer {
            Answer::Inbox(InboxReply::Subscribed(new)) => new,
            Answer::Failed(_) if self.version(subscribing.key) == Some(ProtocolVersion::V3_1) => {
                // 3.1 has no code for a refusal.
                self.kick(io, subscribing.key, ReasonCode::ImplementationSpecificError);
                return;
            }
            Answer::Failed(failure) => {
                let reason = match failure {
                    Failure::Full | Failure::TooLong => ReasonCode::QuotaExceeded,
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
            replay.owe(owed);
            replay.hold(replays);
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
        let owes = subscription.wants_retained(new);
        let owed = owes.then(|| Owed::new(filter.filter, wanted));
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
            self.hold_replay(key);
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
        self.replay_goes_on(io, key);
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
                replay.cancel(filter.filter);
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

fn granted_code(qos: QoS) -> ReasonCode {
    match qos {
        QoS::AtMostOnce => ReasonCode::Success,
        QoS::AtLeastOnce => ReasonCode::GrantedQoS1,
        QoS::ExactlyOnce => ReasonCode::GrantedQoS2,
    }
}
