//! From what waits to bytes: control packets first, then what is owed from earlier network
//! connections, then new messages within the window.

use mqtt_proto::{DeliveryHeader, PacketId, QoS, ReasonCode};

use crate::numbering::POSITION;
use crate::slot::Slot;
use crate::{Delivery, DropReason, Dropped, Policy, Session, TakenUp, Timestamp};

/// What comes after the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the session may want the connection closed"]
pub enum Transmit {
    /// Nothing more to send for now.
    Idle,
    /// The budget is used up and there is more.
    More,
    /// Send these bytes, then close the network connection.
    Close,
}

/// What a transmission did beside the bytes that it wrote.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Messages that will not reach the client.
    pub dropped: Vec<Dropped>,
    /// Packets whose time is measured.
    pub timed: Vec<Timed>,
    /// The session began to wait for a packet identifier ([`crate::HeldBack::PacketIdentifiers`]).
    pub waits_for_identifier: bool,
}

/// A packet that was written because of a message whose time is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timed {
    /// What it is.
    pub packet: TimedPacket,
    /// Its QoS; of an answer, that of the PUBLISH that it answers.
    pub qos: QoS,
    /// When that message was taken up.
    pub taken_up: TakenUp,
}

/// Which packets are timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimedPacket {
    /// PUBACK or PUBREC.
    Answer,
    /// A PUBLISH that is written for the first time, and not as a retained message.
    Publish,
}

impl Session {
    /// Whether [`Self::poll_transmit`] has something to say. Cheap.
    #[must_use]
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        if !self.control.is_empty() || !self.qos0.is_empty() || self.closing {
            return self.online;
        }
        if self.durable.is_some() {
            return self.online && self.is_stored_open();
        }
        self.online
            && self.outbound.as_ref().is_some_and(|outbound| {
                outbound.can_resend(self.window)
                    || (outbound.is_open(self.window) && !outbound.queue.is_empty())
            })
    }

    /// Appends whole packets to `out` while it is shorter than `budget` bytes; the last one may go
    /// past the budget, and so may control packets. What else comes of it is added to `outcome`. `now`
    /// decides which messages have expired, and nothing else.
    pub fn poll_transmit(
        &mut self,
        out: &mut Vec<u8>,
        budget: usize,
        outcome: &mut Outcome,
        policy: &Policy,
        now: Timestamp,
    ) -> Transmit {
        if !self.online {
            return Transmit::Idle;
        }
        self.set_window(policy);
        if !self.control.is_empty() {
            out.append(&mut self.control);
            self.control = Vec::new();
            if let Some(inbound) = &mut self.inbound {
                outcome.timed.append(&mut inbound.timed);
            }
        }
        if self.closing {
            // [MQTT-3.14.4-1] [MQTT-3.14.4-2] nothing after DISCONNECT.
            return Transmit::Close;
        }
        if self.durable.is_some() {
            self.send_stored(out, budget, outcome, now);
        } else {
            self.send_again(out, budget, outcome, now);
            self.send_waiting(out, budget, outcome, now);
        }
        if self.wants_transmit() {
            return Transmit::More;
        }
        self.shrink_to_trickle();
        Transmit::Idle
    }

    /// [MQTT-4.4.0-1] [MQTT-4.6.0-1] [MQTT3-4.4.0-1] what was in flight goes again in the original
    /// order, with its identifiers; only after a reconnection.
    fn send_again(
        &mut self,
        out: &mut Vec<u8>,
        budget: usize,
        outcome: &mut Outcome,
        now: Timestamp,
    ) {
        // Outside the loop only: in the steady state there is nothing to send again.
        let Some(mut outbound) = self
            .outbound
            .take_if(|outbound| outbound.sent < outbound.places())
        else {
            return;
        };
        while out.len() < budget && outbound.can_resend(self.window) {
            let index = outbound.sent;
            let packet_id = outbound.id_at(index, self.next_packet_id);
            match outbound.get(index) {
                // [MQTT-4.3.3-7] [MQTT-4.3.3-13] expiry no longer applies to a message once sent.
                Some(Slot::Publish(delivery))
                    if !self.write(delivery, (Some(packet_id), true), None, out, now) =>
                {
                    // [MQTT-3.1.2-25] too large for this connection: as if it had been sent.
                    if let Some(delivery) = outbound.finish(index) {
                        self.drop_delivery(
                            delivery,
                            DropReason::PacketTooLarge,
                            &mut outcome.dropped,
                        );
                    }
                }
                Some(Slot::Publish(_)) => outbound.mark_sent(),
                Some(Slot::PubRel) => {
                    self.send_pubrel(packet_id, ReasonCode::Success);
                    out.append(&mut self.control);
                    outbound.mark_sent();
                }
                // `sent` never stops here.
                Some(Slot::Acknowledged | Slot::Receipt) | None => break,
            }
        }
        outbound.trim();
        self.control = Vec::new();
        self.outbound = Some(outbound);
    }

    fn send_waiting(
        &mut self,
        out: &mut Vec<u8>,
        budget: usize,
        outcome: &mut Outcome,
        now: Timestamp,
    ) {
        while out.len() < budget {
            let open = self
                .outbound
                .as_ref()
                .is_some_and(|outbound| outbound.is_open(self.window));
            let delivery = if !self.qos0.is_empty() && (!open || self.is_qos0_next()) {
                self.qos0.pop_front().map(|waiting| waiting.delivery)
            } else if open {
                let (next, window) = (self.next_packet_id, self.window);
                self.outbound.as_mut().and_then(|outbound| {
                    let delivery = outbound.take_waiting()?;
                    self.next_packet_id = outbound.make_place(next, window);
                    Some(delivery)
                })
            } else {
                None
            };
            let Some(delivery) = delivery else {
                return;
            };
            self.send_new(delivery, out, outcome, now);
        }
    }

    /// Sends a message for the first time, with QoS above 0 under the next identifier, unless it has
    /// expired or the client cannot take it.
    #[inline]
    pub(crate) fn send_new(
        &mut self,
        delivery: Delivery,
        out: &mut Vec<u8>,
        outcome: &mut Outcome,
        now: Timestamp,
    ) {
        // [MQTT-3.3.2-5]
        let reason = if delivery.message.is_expired(now) {
            Some(DropReason::Expired)
        } else {
            // [MQTT-2.2.1-4] an identifier that is not in use.
            let id = (delivery.qos > QoS::AtMostOnce).then_some(self.next_packet_id);
            // [MQTT-3.1.2-24] [MQTT-3.1.2-25]
            (!self.write(&delivery, (id, false), None, out, now))
                .then_some(DropReason::PacketTooLarge)
        };
        if reason.is_none() {
            outcome.timed.extend(timed(&delivery));
        }
        match reason {
            None if delivery.qos > QoS::AtMostOnce => {
                self.next_packet_id = self.next_packet_id.next();
                // It stays accounted for until it is acknowledged.
                if let Some(outbound) = &mut self.outbound {
                    outbound.start(Slot::Publish(delivery));
                }
            }
            None => self.queue_bytes -= delivery.bytes(),
            Some(reason) => self.drop_delivery(delivery, reason, &mut outcome.dropped),
        }
    }

    pub(crate) fn drop_delivery(
        &mut self,
        delivery: Delivery,
        reason: DropReason,
        dropped: &mut Vec<Dropped>,
    ) {
        self.queue_bytes -= delivery.bytes();
        let message = delivery.message;
        dropped.push(Dropped { message, reason });
    }

    /// Appends a PUBLISH unless the client cannot take it. `position`: that of the message, if the client is told it.
    #[inline]
    pub(crate) fn write(
        &mut self,
        delivery: &Delivery,
        (packet_id, dup): (Option<PacketId>, bool),
        position: Option<&str>,
        out: &mut Vec<u8>,
        now: Timestamp,
    ) -> bool {
        let body = &delivery.message.body;
        let topic_alias = match self.rare.outbound_aliases() {
            // Not with QoS 2: mqtt.js 5.16 hands out such a message without a topic if it comes without a topic name.
            Some(aliases) if delivery.qos < QoS::ExactlyOnce => aliases.assign(body.topic()),
            Some(_) | None => None,
        };
        let mut header = DeliveryHeader {
            // [MQTT-3.3.1-1] [MQTT-3.3.1-2] [MQTT-4.3.2-2] [MQTT-4.3.3-2] [MQTT3-3.3.1-1]
            dup,
            qos: delivery.qos,
            retain: delivery.retain,
            packet_id,
            // [MQTT-3.3.2-6]
            message_expiry_interval: delivery.message.remaining_expiry(now),
            topic_alias,
            // [MQTT-3.3.4-3] [MQTT-3.3.4-4]
            subscription_ids: delivery.subscription_ids.as_slice(),
            user_property: position.map(|position| (POSITION, position)),
        };
        let limit = self.rare.client_maximum_packet_size() as usize;
        if limit != u32::MAX as usize && body.encoded_len(self.version, &header) > limit {
            // A new alias takes room: without it, the packet may fit.
            let Some((alias, true)) = topic_alias else {
                return false;
            };
            if let Some(aliases) = self.rare.outbound_aliases() {
                aliases.forget(alias);
            }
            header.topic_alias = None;
            if body.encoded_len(self.version, &header) > limit {
                return false;
            }
        }
        body.encode(self.version, &header, out);
        true
    }
}

/// What is measured of a delivery that is written for the first time.
pub(crate) fn timed(delivery: &Delivery) -> Option<Timed> {
    let taken_up = delivery.message.taken_up.filter(|_| !delivery.retain)?;
    Some(Timed {
        packet: TimedPacket::Publish,
        qos: delivery.qos,
        taken_up,
    })
}
