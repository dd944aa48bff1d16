//! Messages of a durable session's inbox on their way to the client.
//!
//! Invariants: they leave in ascending order of their sequence numbers; from the oldest in flight to the newest
//! there are at most [`SPAN`] sequence numbers, so that no packet identifier is in use twice; everything in
//! flight was sent on this network connection.
//!
//! Deliberately absent: limits of the queue: the store has them, and decides how much it hands over.

use std::num::NonZeroU32;

use mqtt_proto::{QoS, ReasonCode};

use crate::durable::{Durable, packet_id_of};
use crate::outbound::Outbound;
use crate::slot::Slot;
use crate::transmit::timed;
use crate::{Delivery, DropReason, Dropped, Outcome, Session, Timestamp};

/// Sequence numbers from the oldest in flight to the newest, at most: half of the packet identifiers. After a crash
/// the client may hold the identifier of a message whose end the store had not recorded, so another half has to be
/// used before an identifier comes again.
///
/// Limit: messages of a durable session from the oldest in flight to the newest | {}: a packet identifier is a
/// function of the message's place in its queue | the client is sent no more until it acknowledges the oldest
/// (`waits_for`, `heraldmq_packet_identifier_waits_total`)
const SPAN: u64 = 32_768;

/// Sequence numbers in a row that are passed over and take places among those in flight; before more, what is in
/// flight is overtaken.
const SKIPPED: u64 = 32;

/// Whether the client may have seen a stored message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoredState {
    /// It was never sent.
    New,
    /// It may have been sent on an earlier network connection.
    Sent,
}

/// What holds back messages of QoS 1 and 2 that wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldBack {
    /// The client has not acknowledged as many as it may be sent: the lesser of its Receive Maximum and the
    /// policy's.
    ReceiveMaximum,
    /// Durable sessions only: the client has not acknowledged one for so long that the next one would come close to
    /// using its packet identifier again.
    PacketIdentifiers,
}

/// What waits under one sequence number.
#[derive(Debug)]
pub(crate) struct Stored {
    sequence: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Publish(Delivery, StoredState),
    /// PUBREC was recorded; PUBREL is owed.
    PubRel,
}

impl Session {
    /// Hands over a message of the session's inbox, in ascending order of sequence numbers, which
    /// count from 1 and may have gaps. One that is not above the last one was handed over already and
    /// is ignored, and so is everything once the network connection is gone. The limits of the
    /// policy's queue do not apply.
    ///
    /// After a message above QoS 0 has gone, the client may hold its packet identifier until the store
    /// has recorded the end of it: `sequence` must be less than 65,535 above the oldest one whose end
    /// is not recorded.
    ///
    /// QoS 0 leaves once: with [`StoredState::Sent`] it counts as acknowledged.
    pub fn deliver_stored(&mut self, delivery: Delivery, sequence: u64, state: StoredState) {
        if !self.accept_sequence(sequence) {
            return;
        }
        if delivery.qos == QoS::AtMostOnce && state == StoredState::Sent {
            self.acknowledge_sequence(sequence);
            return;
        }
        self.queue_bytes += delivery.bytes();
        self.push_stored(sequence, Content::Publish(delivery, state));
    }

    /// Passes over a message of the session's inbox that is not to be sent, or not again: it counts as
    /// acknowledged. One of QoS 2 that may have been sent ends with PUBREL, for the client may hold its
    /// identifier. In the same order as [`Self::deliver_stored`].
    pub fn skip_stored(&mut self, qos: QoS, sequence: u64, state: StoredState) {
        if !self.accept_sequence(sequence) {
            return;
        }
        if is_held(qos, state) {
            self.push_stored(sequence, Content::PubRel);
        } else {
            self.acknowledge_sequence(sequence);
        }
    }

    /// Hands over a sequence number whose PUBREC the store has recorded: PUBREL is owed. In the same
    /// order as [`Self::deliver_stored`], and with the same conditions.
    pub fn owe_pubrel(&mut self, sequence: u64) {
        if self.accept_sequence(sequence) {
            self.push_stored(sequence, Content::PubRel);
        }
    }

    fn accept_sequence(&mut self, sequence: u64) -> bool {
        let online = self.online;
        self.durable.as_mut().is_some_and(|durable| {
            let accepted = online && sequence > durable.last;
            if accepted {
                durable.last = sequence;
            }
            accepted
        })
    }

    fn push_stored(&mut self, sequence: u64, content: Content) {
        if let Some(durable) = &mut self.durable {
            durable.queue.push_back(Stored { sequence, content });
        }
    }

    fn acknowledge_sequence(&mut self, sequence: u64) {
        if let Some(durable) = &mut self.durable {
            durable.acknowledged.push(sequence);
        }
    }

    /// Whether the first that waits may go.
    pub(crate) fn is_stored_open(&self) -> bool {
        let Some(durable) = &self.durable else {
            return false;
        };
        let Some(first) = durable.queue.front() else {
            return false;
        };
        match &first.content {
            Content::Publish(delivery, _) if delivery.qos == QoS::AtMostOnce => true,
            _ => {
                let outbound = self.outbound.as_deref();
                durable.held_back(outbound, self.window).is_none()
            }
        }
    }

    /// Why the first QoS 1 or 2 message that waits is not sent before the client acknowledges another one; `None`:
    /// nothing of the kind waits, or nothing holds it back.
    #[must_use]
    pub fn held_back(&self) -> Option<HeldBack> {
        let outbound = self.outbound.as_deref();
        if let Some(durable) = &self.durable {
            return durable.held_back(outbound, self.window);
        }
        let outbound = outbound.filter(|_| self.online)?;
        let waits = !outbound.queue.is_empty() || outbound.sent < outbound.places();
        (waits && !outbound.has_quota(self.window)).then_some(HeldBack::ReceiveMaximum)
    }

    /// Writes what was handed over, and QoS 0 messages that came directly: in the order in which they
    /// came, except that these pass what the window holds back.
    pub(crate) fn send_stored(
        &mut self,
        out: &mut Vec<u8>,
        budget: usize,
        outcome: &mut Outcome,
        now: Timestamp,
    ) {
        while out.len() < budget {
            let open = self.is_stored_open();
            if !self.qos0.is_empty() && (!open || self.is_qos0_next()) {
                if let Some(waiting) = self.qos0.pop_front() {
                    self.send_new(waiting.delivery, out, outcome, now);
                }
            } else if open
                && let Some(Stored { sequence, content }) = self
                    .durable
                    .as_mut()
                    .and_then(|durable| durable.take_first())
            {
                match content {
                    Content::Publish(delivery, state) => {
                        self.send_stored_publish(delivery, sequence, state, out, outcome, now);
                    }
                    Content::PubRel => {
                        self.put_in_flight(sequence, Slot::PubRel);
                        self.send_pubrel(packet_id_of(sequence), ReasonCode::Success);
                        out.append(&mut std::mem::take(&mut self.control));
                    }
                }
            } else {
                break;
            }
        }
        if let Some(durable) = &mut self.durable {
            let held = durable.held_back(self.outbound.as_deref(), self.window);
            let waits = held == Some(HeldBack::PacketIdentifiers);
            outcome.waits_for_identifier |= waits && !durable.waits_for_identifier;
            durable.waits_for_identifier = waits;
        }
    }

    fn send_stored_publish(
        &mut self,
        delivery: Delivery,
        sequence: u64,
        state: StoredState,
        out: &mut Vec<u8>,
        outcome: &mut Outcome,
        now: Timestamp,
    ) {
        // [MQTT-4.4.0-1] [MQTT3-4.4.0-1] again, with DUP and its identifier
        let again = state == StoredState::Sent;
        let qos0 = delivery.qos == QoS::AtMostOnce;
        let id = (!qos0).then(|| packet_id_of(sequence));
        // [MQTT-3.3.2-5]; [MQTT-4.3.3-7] [MQTT-4.3.3-13] one of QoS 2 does not expire any more. Of QoS 1 a client keeps
        // nothing, and after the end of a node it is not known what was sent.
        let is_bound = again && delivery.qos == QoS::ExactlyOnce;
        if !is_bound && delivery.message.is_expired(now) {
            self.acknowledge_sequence(sequence);
            self.drop_delivery(delivery, DropReason::Expired, &mut outcome.dropped);
            return;
        }
        let incarnation = self
            .durable
            .as_ref()
            .and_then(|durable| durable.incarnation);
        let position = incarnation.filter(|_| !qos0);
        let position = position.map(|incarnation| incarnation.position_of(sequence));
        // [MQTT-3.1.2-24] [MQTT-3.1.2-25]
        if !self.write(&delivery, (id, again), position.as_deref(), out, now) {
            self.acknowledge_sequence(sequence);
            self.drop_delivery(delivery, DropReason::PacketTooLarge, &mut outcome.dropped);
            return;
        }
        if let Some(durable) = &mut self.durable {
            durable.sent = sequence;
        }
        if !again {
            outcome.timed.extend(timed(&delivery));
        }
        if qos0 {
            self.queue_bytes -= delivery.bytes();
            self.acknowledge_sequence(sequence);
        } else {
            self.put_in_flight(sequence, Slot::Publish(delivery));
        }
    }

    /// What [`Self::is_stored_open`] let go is in flight from here on.
    fn put_in_flight(&mut self, sequence: u64, slot: Slot) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        let outbound = self.outbound.get_or_insert_default();
        let skipped = sequence.saturating_sub(durable.next);
        if skipped > SKIPPED {
            outbound.overtake(self.next_packet_id, 0);
        } else if outbound.places() > 0 {
            outbound.skip(skipped as usize);
        }
        // The identifier is free, see above.
        outbound.make_place(packet_id_of(sequence), self.window);
        outbound.start(slot);
        durable.next = sequence + 1;
        self.next_packet_id = packet_id_of(durable.next);
    }

    /// PUBREC is recorded: PUBREL is next, unless the delivery has ended.
    pub(crate) fn release_slot(&mut self, sequence: u64) -> bool {
        let (Some(durable), Some(outbound)) = (&self.durable, &mut self.outbound) else {
            return false;
        };
        let packet_id = packet_id_of(sequence);
        if durable.sequence_of(packet_id) != sequence {
            return false;
        }
        match outbound.index_of(packet_id, self.next_packet_id) {
            Some(index) if matches!(outbound.get(index), Some(Slot::Receipt)) => {
                outbound.replace(index, Slot::PubRel);
                true
            }
            _ => false,
        }
    }

    /// Takes what waits for one shared group and was never sent; it counts as acknowledged here.
    pub(crate) fn take_stored_group(&mut self, group: NonZeroU32) -> Vec<Delivery> {
        let Some(durable) = &mut self.durable else {
            return Vec::new();
        };
        let mut taken = Vec::new();
        for stored in std::mem::take(&mut durable.queue) {
            match stored.content {
                // [MQTT-4.8.2-4] what may have been sent stays with its client.
                Content::Publish(delivery, StoredState::New) if delivery.group == Some(group) => {
                    durable.taken = durable.taken.wrapping_add(1);
                    durable.acknowledged.push(stored.sequence);
                    taken.push(delivery);
                }
                _ => durable.queue.push_back(stored),
            }
        }
        taken
    }

    /// The network connection of a durable session is gone: its messages are the store's. Those that
    /// came directly have no other place and are dropped. Does nothing to a transient session.
    pub(crate) fn abandon_stored(&mut self) -> Vec<Dropped> {
        let Some(durable) = &mut self.durable else {
            return Vec::new();
        };
        durable.queue.clear();
        durable.forget_questions();
        self.outbound = None;
        self.queue_bytes = 0;
        self.qos0
            .drain()
            .map(|waiting| Dropped {
                message: waiting.delivery.message,
                reason: DropReason::OfflineQos0,
            })
            .collect()
    }
}

/// Whether the client may hold the identifier of a message: it is free when the client has answered PUBREL.
fn is_held(qos: QoS, state: StoredState) -> bool {
    qos == QoS::ExactlyOnce && state == StoredState::Sent
}

impl Durable {
    fn take_first(&mut self) -> Option<Stored> {
        let stored = self.queue.pop_front()?;
        self.taken = self.taken.wrapping_add(1);
        Some(stored)
    }

    /// What holds back the first that waits, unless that is of QoS 0.
    fn held_back(&self, outbound: Option<&Outbound>, window: u16) -> Option<HeldBack> {
        let (first, outbound) = (self.queue.front()?, outbound?);
        match &first.content {
            Content::Publish(delivery, _) if delivery.qos == QoS::AtMostOnce => return None,
            // [MQTT-3.3.4-9] [MQTT-4.9.0-2]
            Content::Publish(..) if !outbound.has_quota(window) => {
                return Some(HeldBack::ReceiveMaximum);
            }
            // [MQTT-4.9.0-3] [MQTT-3.3.4-10] the window holds back PUBLISH only.
            Content::Publish(..) | Content::PubRel => {}
        }
        // [MQTT-2.2.1-4] with nothing in flight every identifier is free.
        if outbound.places() == 0 {
            return None;
        }
        let oldest = self.sequence_of(outbound.id_at(0, packet_id_of(self.next)));
        (first.sequence - oldest >= SPAN).then_some(HeldBack::PacketIdentifiers)
    }

    /// Drops messages that wait; see [`Session::drop_waiting`].
    pub(crate) fn drop_waiting(&mut self, is_kept: &mut impl FnMut(&Delivery) -> bool) {
        let (mut gone, acknowledged) = (0, &mut self.acknowledged);
        self.queue.retain_mut(|stored| match &stored.content {
            Content::Publish(delivery, state) if !is_kept(delivery) => {
                if is_held(delivery.qos, *state) {
                    stored.content = Content::PubRel;
                    return true;
                }
                acknowledged.push(stored.sequence);
                gone += 1;
                false
            }
            Content::Publish(..) | Content::PubRel => true,
        });
        self.taken = self.taken.wrapping_add(gone);
    }
}
