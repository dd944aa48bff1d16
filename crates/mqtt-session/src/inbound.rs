//! Messages from the client: PUBLISH at each QoS, its answers in order, PUBREL.
//!
//! Invariants: PUBACK and PUBREC leave in the order in which their PUBLISHes came, however late the
//! server is done with each; a QoS 2 message is handed to the server once, across network
//! connections; the client keeps to the Receive Maximum that CONNACK gave it.

use std::sync::Arc;

use mqtt_proto::{
    AckProperties, MessageBody, PacketId, PubAck, PubComp, PubRec, PubRel, Publish, QoS, ReasonCode,
};

use crate::in_order::InOrder;
use crate::{
    Action, ApplicationMessage, DropReason, Dropped, PacketIdSet, Policy, Session, TakenUp, Timed,
    TimedPacket, Timestamp, Violation, alias,
};

/// QoS 1 and 2 messages from the client that are not finished.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// PUBACKs and PUBRECs to send, in the order of the PUBLISHes.
    answers: InOrder<PacketId, Answer>,
    /// Identifiers of QoS 2 messages that were received and not released.
    received: PacketIdSet,
    /// Those of them that came on an earlier network connection while the server is still at work on
    /// them: nobody waits for their PUBREC until the client asks again.
    orphans: PacketIdSet,
    /// Those of them that the store knows from before this session was made: it may not know them in
    /// all the places where the message belongs, so that one that comes again is handed over again. The
    /// store keeps it from being delivered twice.
    unconfirmed: PacketIdSet,
    /// Publications on this network connection that the client counts against Receive Maximum.
    unacknowledged: u32,
    /// Those of the answers that wait for transmission whose time is measured.
    pub(crate) timed: Vec<Timed>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    qos: QoS,
    /// Counts when the server is done with the message.
    reason: ReasonCode,
    taken_up: Option<TakenUp>,
}

impl Inbound {
    /// With the identifiers that were received on earlier network connections and not released.
    pub(crate) fn restored(received: PacketIdSet) -> Option<Box<Self>> {
        (!received.is_empty()).then(|| {
            Box::new(Self {
                unconfirmed: received.clone(),
                received,
                ..Self::default()
            })
        })
    }

    fn forget_received(&mut self, packet_id: PacketId) -> bool {
        self.unconfirmed.remove(packet_id);
        self.received.remove(packet_id)
    }

    /// The client's publication is over: it counts no more. Says whether it was received.
    fn release(&mut self, packet_id: PacketId) -> bool {
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
        self.forget_received(packet_id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.received.is_empty() && self.unacknowledged == 0
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + self.answers.heap_bytes()
            + self.received.heap_bytes()
            + self.orphans.heap_bytes()
            + self.unconfirmed.heap_bytes()
            + self.timed.capacity() * size_of::<Timed>()
    }
}

/// What a PUBLISH with a packet identifier is.
enum Receipt {
    New,
    Duplicate,
    IdentifierInUse,
}

impl Session {
    pub(crate) fn handle_publish<'a>(
        &mut self,
        publish: &Publish<'_>,
        key: u64,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Action<'a>, Violation> {
        // [MQTT-3.2.2-11]
        if publish.qos > policy.maximum_qos {
            return Err(Violation::QosNotSupported);
        }
        // [MQTT-3.2.2-14]
        if publish.retain && !policy.retain_available {
            return Err(Violation::RetainNotSupported);
        }
        // [MQTT-3.3.4-6]
        if !publish.properties.subscription_ids.is_empty() {
            return Err(Violation::SubscriptionIdFromClient);
        }
        let topic = alias::resolve(
            &mut self.rare,
            publish,
            self.announced.topic_alias_maximum,
            policy,
        )?;
        let refusal = refusal(publish, topic, policy);
        if let Some(packet_id) = publish.packet_id {
            let v5 = self.version.is_v5();
            let inbound = self.inbound.get_or_insert_default();
            let receipt =
                inbound.receive(packet_id, publish, v5, self.announced.receive_maximum)?;
            match receipt {
                Receipt::New => {}
                Receipt::Duplicate => {
                    self.flush_answers();
                    return Ok(Action::None);
                }
                // [MQTT-2.2.1-3] [MQTT3-2.3.1-2]
                Receipt::IdentifierInUse if !v5 => return Err(Violation::PacketIdentifierInUse),
                Receipt::IdentifierInUse => {
                    inbound.answer(
                        packet_id,
                        publish.qos,
                        Some(ReasonCode::PacketIdentifierInUse),
                    );
                    self.flush_answers();
                    return Ok(Action::None);
                }
            }
            inbound.answer(packet_id, publish.qos, refusal.map(|(reason, _)| reason));
        }
        let message = ApplicationMessage {
            body: MessageBody::from_publish(publish, topic),
            qos: publish.qos,
            retain: publish.retain,
            publisher: key,
            publisher_hash: 0,
            expires_at: publish
                .properties
                .message_expiry_interval
                .map(|secs| now.add_secs(secs)),
            taken_up: None,
        };
        if let Some((_, reason)) = refusal {
            self.flush_answers();
            return Ok(Action::Refused(Dropped {
                message: Arc::new(message),
                reason,
            }));
        }
        Ok(Action::Publish {
            message,
            packet_id: publish.packet_id,
        })
    }

    /// The server is done with the message of an [`Action::Publish`]: PUBACK or PUBREC is queued as
    /// soon as those of all earlier messages are. A completion that comes after the network
    /// connection was closed does no harm. `taken_up`: that of the message.
    pub fn complete_publish(
        &mut self,
        packet_id: PacketId,
        reason: ReasonCode,
        taken_up: Option<TakenUp>,
    ) {
        let v5 = self.version.is_v5();
        let Some(inbound) = &mut self.inbound else {
            return;
        };
        if inbound.answers.complete(packet_id, |answer| {
            answer.reason = reason;
            answer.taken_up = taken_up;
        }) {
            self.flush_answers();
        } else if inbound.orphans.remove(packet_id) && v5 && reason.is_error() {
            // [MQTT-4.3.3-9] as if the refusal had been sent.
            inbound.forget_received(packet_id);
        }
    }

    /// [MQTT-4.6.0-2] [MQTT-4.6.0-3] answers leave from the front only.
    fn flush_answers(&mut self) {
        while let Some(inbound) = &mut self.inbound
            && let Some((packet_id, answer)) = inbound.answers.pop_done()
        {
            let Answer {
                qos,
                reason,
                taken_up,
            } = answer;
            inbound.timed.extend(taken_up.map(|taken_up| Timed {
                packet: TimedPacket::Answer,
                qos,
                taken_up,
            }));
            // [MQTT3-3.3.5-2] before 5.0 an answer cannot say no.
            let refused = self.version.is_v5() && reason.is_error();
            if refused && qos == QoS::ExactlyOnce {
                // [MQTT-4.3.3-9] the next PUBLISH with this identifier is a new message.
                inbound.forget_received(packet_id);
            }
            if refused || qos == QoS::AtLeastOnce {
                inbound.unacknowledged = inbound.unacknowledged.saturating_sub(1);
            }
            self.send_answer(packet_id, qos, reason);
        }
    }

    fn send_answer(&mut self, packet_id: PacketId, qos: QoS, reason: ReasonCode) {
        // [MQTT-3.1.2-29] a client may ask for no words.
        let words =
            explain(reason).filter(|_| self.declared.problem_information() && self.version.is_v5());
        let properties = AckProperties {
            reason_string: words,
            ..AckProperties::default()
        };
        let mut send = |properties| {
            self.push_control(|version, out| {
                let encode = |reason, out: &mut Vec<u8>| match qos {
                    // [MQTT-4.3.2-4] [MQTT3-4.3.2-2]
                    QoS::AtLeastOnce => PubAck {
                        packet_id,
                        reason,
                        properties,
                    }
                    .encode(version, out),
                    // [MQTT-4.3.3-8] [MQTT3-4.3.3-2]
                    _ => PubRec {
                        packet_id,
                        reason,
                        properties,
                    }
                    .encode(version, out),
                };
                // [MQTT-3.4.2-1] [MQTT-3.5.2-1] a code that they cannot carry becomes the general one.
                encode(reason, out).or_else(|_| encode(ReasonCode::UnspecifiedError, out))
            })
        };
        // [MQTT-3.4.2-2] [MQTT-3.5.2-2] the words stay behind if they do not fit.
        if !send(properties) && words.is_some() {
            send(AckProperties::default());
        }
    }

    pub(crate) fn handle_pubrel<'a>(&mut self, ack: &PubRel<'_>) -> Result<Action<'a>, Violation> {
        let packet_id = ack.packet_id;
        let durable = self.durable.is_some();
        let mut found = false;
        if let Some(inbound) = &mut self.inbound {
            let pending = inbound.answers.open(packet_id);
            if pending.is_some_and(|answer| answer.qos == QoS::ExactlyOnce)
                || inbound.orphans.contains(packet_id)
            {
                return Err(Violation::PubRelBeforePubRec);
            }
            if durable && inbound.received.contains(packet_id) {
                return Ok(self.ask_release(packet_id));
            }
            // [MQTT-4.3.3-12] from here on, a PUBLISH with this identifier is a new message.
            found = inbound.release(packet_id);
        }
        let reason = if found || !self.version.is_v5() {
            ReasonCode::Success
        } else {
            ReasonCode::PacketIdentifierNotFound
        };
        self.send_pubcomp(packet_id, reason);
        Ok(Action::None)
    }

    pub(crate) fn send_pubcomp(&mut self, packet_id: PacketId, reason: ReasonCode) {
        // [MQTT-4.3.3-11] [MQTT3-4.3.3-2]
        self.push_control(|version, out| {
            PubComp {
                packet_id,
                reason,
                properties: AckProperties::default(),
            }
            .encode(version, out)
        });
    }

    /// A received identifier is free again.
    pub(crate) fn release_received(&mut self, packet_id: PacketId) {
        if let Some(inbound) = &mut self.inbound {
            inbound.release(packet_id);
        }
    }

    /// Identifiers of the client's QoS 2 messages that were received and not released.
    #[must_use]
    pub fn received(&self) -> &PacketIdSet {
        const NONE: &PacketIdSet = &PacketIdSet::new();
        self.inbound
            .as_ref()
            .map_or(NONE, |inbound| &inbound.received)
    }

    /// Whether the client uses this identifier for a PUBLISH.
    pub(crate) fn is_inbound_id_in_use(&self, packet_id: PacketId) -> bool {
        self.inbound.as_ref().is_some_and(|inbound| {
            inbound.received.contains(packet_id) || inbound.answers.contains(packet_id)
        })
    }

    /// The network connection is gone: QoS 1 messages are the client's to send again; QoS 2 ones the
    /// server is at work on stay, and are answered when the client asks again.
    pub(crate) fn detach_inbound(&mut self) {
        let v5 = self.version.is_v5();
        let Some(inbound) = &mut self.inbound else {
            return;
        };
        for (packet_id, Answer { qos, reason, .. }, done) in inbound.answers.take_all() {
            if qos != QoS::ExactlyOnce {
                continue;
            }
            if !done {
                inbound.orphans.insert(packet_id);
            } else if v5 && reason.is_error() {
                // [MQTT-4.3.3-9] as if the refusal had been sent.
                inbound.forget_received(packet_id);
            }
        }
        inbound.unacknowledged = 0;
        inbound.timed = Vec::new();
    }

    pub(crate) fn release_inbound(&mut self) {
        if self
            .inbound
            .as_ref()
            .is_some_and(|inbound| inbound.is_empty())
        {
            self.inbound = None;
        }
        if let Some(inbound) = &mut self.inbound {
            inbound.answers.shrink();
            inbound.received.shrink_to_fit();
            inbound.orphans.shrink_to_fit();
            inbound.unconfirmed.shrink_to_fit();
            inbound.timed.shrink_to_fit();
        }
    }
}

impl Inbound {
    /// Takes note of a PUBLISH. Duplicates get their answer here.
    fn receive(
        &mut self,
        packet_id: PacketId,
        publish: &Publish<'_>,
        v5: bool,
        receive_maximum: u16,
    ) -> Result<Receipt, Violation> {
        let received = self.received.contains(packet_id);
        if publish.qos == QoS::ExactlyOnce && received && self.unconfirmed.remove(packet_id) {
            self.unacknowledged += 1;
            return Ok(Receipt::New);
        }
        let pending = self.answers.open(packet_id);
        let in_use = received || pending.is_some();
        match (publish.qos, pending) {
            // The server is at work on it. [MQTT-4.3.3-10] no second delivery, and one answer.
            (QoS::ExactlyOnce, Some(answer)) if answer.qos == QoS::ExactlyOnce => {
                return Ok(Receipt::Duplicate);
            }
            (QoS::AtLeastOnce, Some(answer)) if answer.qos == QoS::AtLeastOnce && publish.dup => {
                return Ok(Receipt::Duplicate);
            }
            // [MQTT-4.3.3-10] [MQTT3-4.3.3-2] received before: PUBREC again, no second delivery.
            (QoS::ExactlyOnce, None) if received => {
                let done = (!self.orphans.remove(packet_id)).then_some(ReasonCode::Success);
                self.answer(packet_id, publish.qos, done);
                return Ok(Receipt::Duplicate);
            }
            _ => {}
        }
        // [MQTT-3.3.4-7] [MQTT-3.3.4-9] before 5.0 the packet identifiers are the only limit.
        if v5 && self.unacknowledged >= u32::from(receive_maximum) {
            return Err(Violation::ReceiveMaximumExceeded);
        }
        self.unacknowledged += 1;
        if in_use {
            return Ok(Receipt::IdentifierInUse);
        }
        if publish.qos == QoS::ExactlyOnce {
            self.received.insert(packet_id);
        }
        Ok(Receipt::New)
    }

    /// `reason`: `None` until the server is done with the message.
    fn answer(&mut self, packet_id: PacketId, qos: QoS, reason: Option<ReasonCode>) {
        let done = reason.is_some();
        let reason = reason.unwrap_or(ReasonCode::Success);
        let answer = Answer {
            qos,
            reason,
            taken_up: None,
        };
        self.answers.push(packet_id, answer, done);
    }
}

/// The limit of the policy that a message breaks.
#[inline]
fn refusal(
    publish: &Publish<'_>,
    topic: &str,
    policy: &Policy,
) -> Option<(ReasonCode, DropReason)> {
    if topic.is_empty() || !policy.admits_topic(topic) {
        return Some((ReasonCode::TopicNameInvalid, DropReason::TopicLimit));
    }
    let invalid = policy.check_payload_format
        && publish.properties.payload_format_indicator == Some(true)
        && std::str::from_utf8(publish.payload).is_err();
    invalid.then_some((
        ReasonCode::PayloadFormatInvalid,
        DropReason::PayloadFormatInvalid,
    ))
}

/// Words for a human, where the code alone leaves them guessing.
fn explain(reason: ReasonCode) -> Option<&'static str> {
    match reason {
        ReasonCode::TopicNameInvalid => {
            Some("topic name is longer or deeper than the server allows")
        }
        ReasonCode::PayloadFormatInvalid => Some("payload is not the UTF-8 it claims to be"),
        ReasonCode::QuotaExceeded => Some("a receiver or the server is at its limit"),
        _ => None,
    }
}
