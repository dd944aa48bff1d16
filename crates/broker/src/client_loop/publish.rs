//! A message's way to its receivers.

use std::ops::Range;
use std::sync::Arc;

use mqtt_proto::{MessageBody, QoS, ReasonCode};
use mqtt_session::{ApplicationMessage, Delivered, Delivery, SubscriptionIdSet};
use net::Key;

use super::{ClientLoop, LoopIo, Mail, Timer, effective, record};
use crate::drops::Reason;
use crate::groups::{Group, Member};
use crate::key::SessionKey;
use crate::routes::{MatchSet, Target};
use crate::{node::Node, sys};

/// Messages in the queue of a client that reads at which the queue is flushed within the turn.
const FLUSH_AT: usize = 256;

impl ClientLoop {
    /// Routes a client's message. The answer is the reason code of its acknowledgement: everything that
    /// has to be kept before it (P1) is kept when this returns.
    pub(super) fn publish(
        &mut self,
        io: &mut LoopIo,
        message: ApplicationMessage,
        from: Key,
    ) -> ReasonCode {
        let message = Arc::new(message);
        if message
            .body
            .topic_bytes()
            .starts_with(sys::PREFIX.as_bytes())
        {
            // [MQTT-4.7.2-1] what begins with $SYS/ is the broker's to say
            self.drop_inbound(io, from, &message, Reason::ReservedTopic);
            return ReasonCode::NotAuthorized;
        }
        if message.retain && !self.retain(io, &message, from) {
            return ReasonCode::QuotaExceeded;
        }
        if self.route(io, message, Some(from)) {
            ReasonCode::Success
        } else {
            self.stats.unmatched.add(1);
            ReasonCode::NoMatchingSubscribers
        }
    }

    /// Keeps a retained message. False: there is no room for it.
    fn retain(&mut self, io: &LoopIo, message: &Arc<ApplicationMessage>, from: Key) -> bool {
        let kept = self.node.retained.set(message, self.settings.retained);
        if !kept {
            self.drop_inbound(io, from, message, Reason::RetainedLimit);
        }
        kept
    }

    /// Records a client's message that is not accepted.
    fn drop_inbound(&self, io: &LoopIo, from: Key, message: &ApplicationMessage, reason: Reason) {
        let id = self
            .clients
            .get(from)
            .map_or("", |client| client.session.client_id());
        let (topic, length) = (message.body.topic(), message.body.payload().len());
        self.drops
            .record(io.now_ms(), id, topic, reason, message.qos, length);
    }

    /// Gives a message to all whose subscriptions match. False: nobody's did.
    pub(super) fn route(
        &mut self,
        io: &mut LoopIo,
        message: Arc<ApplicationMessage>,
        from: Option<Key>,
    ) -> bool {
        let set = self
            .cache
            .find(message.body.topic_bytes(), &self.node.routes);
        self.stats.cached_topics.set(self.cache.len() as u64);
        self.stats.cache_misses.set(self.cache.misses());
        if set.is_empty() {
            return false;
        }
        for (group, members) in &set.groups {
            self.deliver_to_group(
                io,
                group,
                members,
                &message,
                from.map(|key| self.session_key(key)),
                None,
            );
        }
        for (loop_index, range) in &set.loops {
            if *loop_index == self.index {
                self.deliver_range(io, &message, &set, range.clone());
            } else {
                let (message, set, range) = (Arc::clone(&message), Arc::clone(&set), range.clone());
                io.send(
                    *loop_index,
                    Mail::Deliver {
                        message,
                        set,
                        range,
                    },
                );
            }
        }
        true
    }

    /// Gives a message to targets of this loop.
    pub(super) fn deliver_range(
        &mut self,
        io: &mut LoopIo,
        message: &Arc<ApplicationMessage>,
        set: &MatchSet,
        range: Range<usize>,
    ) {
        for target in set.targets.get(range).unwrap_or_default() {
            if target.wants(message.publisher) {
                self.deliver_to(io, target.session.key(), delivery(message, target));
            }
        }
    }

    /// Gives a delivery to a session of this loop.
    pub(super) fn deliver_to(&mut self, io: &mut LoopIo, key: Key, delivery: Delivery) {
        let now = mqtt_session::Timestamp(io.now_ms());
        let qos = delivery.qos;
        let held = qos != QoS::AtMostOnce && self.hold_back(io, key, delivery.message.publisher);
        let Some(client) = self.clients.get_mut(key) else {
            // The session ended while the message was on its way to it.
            self.redispatch(io, vec![delivery], None);
            return;
        };
        // What was on its way when its publisher was held back is kept, beyond the limit.
        let policy = if held {
            &self.settings.beyond_limit
        } else {
            &self.settings.policy
        };
        match client.session.deliver(delivery, policy, now) {
            Delivered::Queued => {}
            Delivered::QueuedDropping(older) => {
                for dropped in older {
                    record(&self.drops, now.0, client.session.client_id(), &dropped);
                }
            }
            Delivered::Dropped(dropped) => {
                record(&self.drops, now.0, client.session.client_id(), &dropped);
            }
        }
        if let Some(connection) = client.connection {
            io.touch(connection);
            if client.session.queue_len() >= FLUSH_AT && !io.is_write_blocked(connection) {
                io.flush_soon();
            }
        }
    }

    /// Gives a message to one member of a shared group.
    fn deliver_to_group(
        &mut self,
        io: &mut LoopIo,
        group: &Arc<Group>,
        members: &[Member],
        message: &Arc<ApplicationMessage>,
        publisher: Option<SessionKey>,
        except: Option<SessionKey>,
    ) {
        let publisher = publisher.map_or(message.publisher, SessionKey::to_bits);
        let Some(member) = group.choose(members, publisher, except) else {
            let (topic, length) = (message.body.topic(), message.body.payload().len());
            self.drops.record(
                io.now_ms(),
                "",
                topic,
                Reason::NoGroupMember,
                message.qos,
                length,
            );
            return;
        };
        let delivery = Delivery {
            message: Arc::clone(message),
            qos: effective(message.qos, member.wanted.qos),
            retain: message.retain && member.wanted.retain_as_published(),
            subscription_ids: member.wanted.ids(),
            group: Some(group.number()),
        };
        let to = member.session.loop_index();
        if to == self.index {
            self.deliver_to(io, member.session.key(), delivery);
        } else {
            io.send(to, Mail::DeliverTo(member.session, delivery));
        }
    }

    /// Gives what one member of a shared group did not acknowledge to others.
    pub(super) fn redispatch(
        &mut self,
        io: &mut LoopIo,
        deliveries: Vec<Delivery>,
        except: Option<SessionKey>,
    ) {
        for delivery in deliveries {
            let Some(number) = delivery.group else {
                continue;
            };
            let Some(group) = self.node.routes.group(number.get()) else {
                let message = &delivery.message;
                let (topic, length) = (message.body.topic(), message.body.payload().len());
                let reason = Reason::NoGroupMember;
                self.drops
                    .record(io.now_ms(), "", topic, reason, message.qos, length);
                continue;
            };
            let members = group.members();
            self.deliver_to_group(io, &group, &members, &delivery.message, None, except);
        }
    }

    /// Arms the loop that publishes `$SYS`.
    pub(crate) fn start_sys(&mut self, io: &mut LoopIo) {
        if self.index == 0 && self.settings.sys_interval_ms != 0 && !self.sys_armed {
            self.sys_armed = true;
            io.arm(io.now_ms(), Timer::Sys.to_bits());
        }
    }

    pub(super) fn publish_sys(&mut self, io: &mut LoopIo) {
        self.sys_armed = false;
        if self.settings.sys_interval_ms == 0 || self.closing {
            return;
        }
        let node: Arc<Node> = Arc::clone(&self.node);
        for (topic, value) in self.sys.topics(&node) {
            let message = Arc::new(ApplicationMessage {
                body: MessageBody::new(&topic, value.as_bytes()),
                qos: QoS::AtMostOnce,
                retain: true,
                publisher: sys::PUBLISHER,
                expires_at: None,
            });
            self.node.retained.set(&message, self.settings.retained);
            self.route(io, message, None);
        }
        self.sys_armed = true;
        io.arm(
            io.now_ms() + self.settings.sys_interval_ms,
            Timer::Sys.to_bits(),
        );
    }
}

fn delivery(message: &Arc<ApplicationMessage>, target: &Target) -> Delivery {
    Delivery {
        message: Arc::clone(message),
        qos: effective(message.qos, target.qos),
        // [MQTT-3.3.1-12] [MQTT-3.3.1-13] as published if asked for, else 0 for those who subscribed before
        retain: message.retain && target.retain_as_published,
        subscription_ids: match &target.ids {
            SubscriptionIdSet::None => SubscriptionIdSet::None,
            ids => ids.clone(),
        },
        group: None,
    }
}
