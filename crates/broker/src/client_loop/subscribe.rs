//! Subscriptions, and the retained messages that they bring.

use std::collections::VecDeque;
use std::sync::Arc;

use mqtt_proto::{
    QoS, ReasonCode, RetainHandling, Subscribe, SubscriptionFilter, SubscriptionOptions,
    Unsubscribe,
};
use mqtt_session::{Delivered, Delivery, Subscription, Timestamp};
use net::Key;
use topic_router::Cursor;

use super::{ClientLoop, LoopIo, effective, record};
use crate::groups::Gauge;
use crate::routes::Wanted;

/// Retained messages that are queued for a session at once. The next page follows when these are sent,
/// so a filter that selects a million messages costs the memory of a page.
const PAGE: usize = 64;

/// Retained messages that subscriptions still owe a session.
#[derive(Debug)]
pub(super) struct Replay {
    filters: VecDeque<Owed>,
}

#[derive(Debug)]
struct Owed {
    filter: Box<str>,
    wanted: Wanted,
    after: Option<Cursor>,
}

impl ClientLoop {
    pub(super) fn subscribe(&mut self, io: &mut LoopIo, key: Key, subscribe: &Subscribe<'_>) {
        let mut reasons = Vec::with_capacity(subscribe.filters.len());
        let mut owed = VecDeque::new();
        for (text, options) in subscribe.filters.iter() {
            let Some(client) = self.clients.get(key) else {
                return;
            };
            let checked = client
                .session
                .check_filter(text, options, &self.settings.policy);
            reasons.push(match checked {
                Err(reason) => {
                    let client_id = client.session.client_id();
                    tracing::info!(
                        client_id,
                        filter = text,
                        reason = reason.name(),
                        "a subscription is refused"
                    );
                    reason
                }
                Ok((filter, granted)) => {
                    let id = subscribe.properties.subscription_id;
                    let new = self.add_subscription(key, text, filter, granted, id);
                    if wants_retained(granted.retain_handling, new) && filter.shared.is_none() {
                        let wanted = Wanted::new(granted, id);
                        owed.retain(|old: &Owed| &*old.filter != filter.filter);
                        owed.push_back(Owed {
                            filter: filter.filter.into(),
                            wanted,
                            after: None,
                        });
                    }
                    granted_code(granted.qos)
                }
            });
        }
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        client
            .session
            .complete_subscribe(subscribe.packet_id, &reasons);
        if !owed.is_empty() {
            match &mut client.replay {
                Some(replay) => {
                    // What is owed twice is sent once, so that the subscriptions bound what is owed.
                    replay
                        .filters
                        .retain(|old| owed.iter().all(|new| new.filter != old.filter));
                    replay.filters.append(&mut owed);
                }
                None => client.replay = Some(Box::new(Replay { filters: owed })),
            }
        }
        self.show_room(key);
        if let Some(connection) = self.clients.get(key).and_then(|client| client.connection) {
            io.touch(connection);
        }
    }

    /// Routes a subscription and writes it down in the session. True: the session did not have it.
    fn add_subscription(
        &mut self,
        key: Key,
        text: &str,
        filter: SubscriptionFilter<'_>,
        options: SubscriptionOptions,
        id: Option<u32>,
    ) -> bool {
        let session_key = self.session_key(key);
        let Some(client) = self.clients.get_mut(key) else {
            return false;
        };
        let gauge = &mut client.gauge;
        let share_gauge = || Arc::clone(gauge.get_or_insert_with(|| Arc::new(Gauge::default())));
        let subscribed =
            self.node
                .routes
                .subscribe(session_key, filter, Wanted::new(options, id), share_gauge);
        let group = subscribed.group.and_then(std::num::NonZeroU32::new);
        client.session.add_subscription(Subscription {
            filter: text.into(),
            options,
            id,
            group,
        });
        subscribed.new
    }

    pub(super) fn unsubscribe(&mut self, io: &mut LoopIo, key: Key, unsubscribe: &Unsubscribe<'_>) {
        let mut reasons = Vec::with_capacity(unsubscribe.filters.len());
        let session_key = self.session_key(key);
        for text in unsubscribe.filters.iter() {
            let Ok(filter) = SubscriptionFilter::parse(text) else {
                reasons.push(ReasonCode::TopicFilterInvalid);
                continue;
            };
            let existed = self.node.routes.unsubscribe(session_key, filter);
            reasons.push(if existed {
                ReasonCode::Success
            } else {
                ReasonCode::NoSubscriptionExisted
            });
            let Some(client) = self.clients.get_mut(key) else {
                return;
            };
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
        if let Some(client) = self.clients.get_mut(key) {
            client
                .session
                .complete_unsubscribe(unsubscribe.packet_id, &reasons);
        }
        self.show_room(key);
    }

    /// Queues the next page of retained messages, if the last one is sent. True: there is something to
    /// transmit.
    pub(super) fn replay_page(&mut self, io: &LoopIo, key: Key) -> bool {
        let now = Timestamp(io.now_ms());
        let Some(client) = self.clients.get_mut(key) else {
            return false;
        };
        let Some(replay) = &mut client.replay else {
            return false;
        };
        if client.session.queue_len() > 0 {
            return false;
        }
        let mut queued = false;
        while !queued {
            let Some(owed) = replay.filters.front_mut() else {
                client.replay = None;
                return false;
            };
            let page = self
                .node
                .retained
                .page(&owed.filter, owed.after.take(), PAGE, now);
            for message in page.messages {
                let delivery = Delivery {
                    qos: effective(message.qos, owed.wanted.qos),
                    message,
                    // [MQTT-3.3.1-8] [MQTT3-3.3.1-8] set, because the message was kept
                    retain: true,
                    subscription_ids: owed.wanted.ids(),
                    group: None,
                };
                queued = true;
                let policy = &self.settings.beyond_limit;
                if let Delivered::Dropped(dropped) = client.session.deliver(delivery, policy, now) {
                    record(&self.drops, now.0, client.session.client_id(), &dropped);
                }
            }
            owed.after = page.next;
            if owed.after.is_none() {
                replay.filters.pop_front();
            }
        }
        if replay.filters.is_empty() {
            client.replay = None;
        }
        true
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
