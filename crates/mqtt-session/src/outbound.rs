//! Messages to the client: waiting, in flight, acknowledged.
//!
//! The messages of a durable session wait in `stored.rs` instead; in flight they are here.
//!
//! Invariants: a packet identifier is not reused while it is in flight, for identifiers in flight are
//! consecutive, but for those that newer ones have left far behind (`overtaken.rs`), and new ones are taken at the
//! end and are none of these; messages leave in the order they were delivered in, except that QoS 0 passes a QoS 1
//! or 2 message that the window holds back. What one acknowledgement that never comes costs is its own message.
//!
//! Deliberately absent: bytes; see `transmit.rs`.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use mqtt_proto::{
    AckProperties, PacketId, PacketType, PubAck, PubComp, PubRec, PubRel, QoS, ReasonCode,
};

use crate::overtaken::Overtaken;
use crate::qos0_queue::WaitingQos0;
use crate::slot::Slot;
use crate::{
    Action, ApplicationMessage, Delivered, Delivery, DropReason, Dropped, Policy, Qos0Inbox,
    QueueFull, Session, Timestamp, Violation,
};

/// Slots that a drained queue keeps until the client pings or leaves, so that a steady trickle of
/// messages does not allocate each time.
const SPARE_SLOTS: usize = 32;

/// Places for consecutive identifiers, as a multiple of the window: room for a client that acknowledges out of
/// order. What is older than that and not acknowledged is overtaken.
const SPAN_PER_WINDOW: usize = 2;

/// QoS 1 and 2 deliveries.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// Waiting.
    pub(crate) queue: VecDeque<Delivery>,
    /// In flight, older than `slots`, and with any identifiers; `None`: none are.
    overtaken: Option<Box<Overtaken>>,
    /// In flight; packet identifiers are consecutive and end before the session's next one.
    slots: VecDeque<Slot>,
    /// The first so many in flight, counted from the oldest, need not be sent on this network connection, or not
    /// any more. The next one, if any, waits to be sent again: it is not acknowledged.
    pub(crate) sent: usize,
    /// Those among these that are not acknowledged.
    pub(crate) awaiting: usize,
    /// Those in flight that are not acknowledged.
    live: usize,
    /// Bytes of the messages in flight.
    bytes: u64,
    /// Deliveries that ever left `queue`, wrapping around.
    taken: u32,
}

/// What an acknowledgement does to a slot.
enum Step {
    /// The delivery is over.
    Finish,
    /// PUBREL is next.
    Release,
    /// PUBREL is next, once the store has recorded the PUBREC.
    Record,
    /// The store is about to record the PUBREC: nothing until then.
    AwaitRecord,
    /// The acknowledgement changes nothing.
    Keep,
}

/// The most places for consecutive identifiers; not all identifiers, so that one that is not among them is free.
#[inline]
fn span(window: u16) -> usize {
    (usize::from(window) * SPAN_PER_WINDOW).min(usize::from(u16::MAX) - 1)
}

impl Outbound {
    /// Whether another QoS 1 or 2 message may be sent.
    #[inline]
    pub(crate) fn is_open(&self, window: u16) -> bool {
        // [MQTT-3.3.4-9] [MQTT-4.9.0-2]; what has to be sent again goes first [MQTT-4.6.0-1].
        self.has_quota(window) && self.sent == self.places()
    }

    /// Whether fewer are sent and not acknowledged than may be.
    #[inline]
    pub(crate) fn has_quota(&self, window: u16) -> bool {
        self.awaiting < usize::from(window)
    }

    /// Places in flight, acknowledged ones included. All positions count from the oldest one.
    #[inline]
    pub(crate) fn places(&self) -> usize {
        self.older() + self.slots.len()
    }

    /// Those of them that are overtaken.
    #[inline]
    fn older(&self) -> usize {
        self.overtaken
            .as_ref()
            .map_or(0, |overtaken| overtaken.len())
    }

    /// The slot at a position.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Slot> {
        match &self.overtaken {
            Some(overtaken) if index < overtaken.len() => overtaken.get(index),
            Some(overtaken) => self.slots.get(index - overtaken.len()),
            None => self.slots.get(index),
        }
    }

    /// Puts `by` in the place of the slot at `index`, which is returned.
    #[inline]
    fn put(&mut self, index: usize, by: Slot) -> Option<Slot> {
        let slot = match &mut self.overtaken {
            Some(overtaken) if index < overtaken.len() => return overtaken.replace(index, by),
            Some(overtaken) => self.slots.get_mut(index - overtaken.len()),
            None => self.slots.get_mut(index),
        };
        slot.map(|slot| std::mem::replace(slot, by))
    }

    /// Makes a place for one more, at the end, and returns its identifier: `next`, or the first one after it that
    /// is free. There is one, because fewer are in flight than a window may have.
    #[inline]
    pub(crate) fn make_place(&mut self, mut next: PacketId, window: u16) -> PacketId {
        self.overtake(next, span(window) - 1);
        while let Some(overtaken) = &self.overtaken
            && overtaken.position(next).is_some()
        {
            // [MQTT-2.2.1-4] round once more, and the client still holds this one.
            self.skip(1);
            next = next.next();
            self.overtake(next, span(window) - 1);
        }
        next
    }

    /// Leaves at most `places` consecutive identifiers: the oldest of the others are overtaken. Everything in flight
    /// was sent on this network connection.
    #[inline]
    pub(crate) fn overtake(&mut self, next: PacketId, places: usize) {
        while self.slots.len() > places {
            let packet_id = self.id_at(self.older(), next);
            match self.slots.pop_front() {
                Some(Slot::Acknowledged) => self.sent -= 1,
                Some(slot) => self.overtaken.get_or_insert_default().push(packet_id, slot),
                None => return,
            }
        }
    }

    /// Whether there is something to send again, and room for it.
    #[inline]
    pub(crate) fn can_resend(&self, window: u16) -> bool {
        match self.get(self.sent) {
            // [MQTT-4.9.0-3] [MQTT-3.3.4-10] the window holds back PUBLISH only.
            Some(Slot::Publish(_)) => self.has_quota(window),
            Some(Slot::PubRel) => true,
            Some(Slot::Acknowledged | Slot::Receipt) | None => false,
        }
    }

    #[inline]
    pub(crate) fn take_waiting(&mut self) -> Option<Delivery> {
        let delivery = self.queue.pop_front()?;
        self.taken = self.taken.wrapping_add(1);
        Some(delivery)
    }

    /// Something was sent for the first time on this network connection, with the session's next
    /// identifier.
    #[inline]
    pub(crate) fn start(&mut self, slot: Slot) {
        self.bytes += slot.bytes();
        self.slots.push_back(slot);
        self.sent += 1;
        self.awaiting += 1;
        self.live += 1;
    }

    /// The next so many identifiers are not used.
    pub(crate) fn skip(&mut self, count: usize) {
        let places = self.slots.len() + count;
        self.slots.resize_with(places, || Slot::Acknowledged);
        self.sent += count;
    }

    /// Frees acknowledged identifiers at the front.
    pub(crate) fn trim(&mut self) {
        if let Some(overtaken) = &mut self.overtaken {
            let mut sent = self.sent.min(overtaken.len());
            self.sent -= sent;
            overtaken.trim(&mut sent);
            self.sent += sent;
            if overtaken.len() == 0 {
                self.overtaken = None;
            }
        }
        let older = self.older();
        while let Some(Slot::Acknowledged) = self.slots.front() {
            self.slots.pop_front();
            if self.sent > older {
                self.sent -= 1;
            }
        }
    }

    /// Ends the slot at `index` and returns its message, if it still has one.
    pub(crate) fn finish(&mut self, index: usize) -> Option<Delivery> {
        let slot = self.put(index, Slot::Acknowledged)?;
        self.bytes -= slot.bytes();
        if !matches!(slot, Slot::Acknowledged) {
            self.live -= 1;
            if index < self.sent {
                self.awaiting -= 1;
            }
        }
        self.skip_acknowledged();
        slot.into_delivery()
    }

    /// A slot goes on without its message, which is returned, if it still had one.
    pub(crate) fn replace(&mut self, index: usize, by: Slot) -> Option<Delivery> {
        let slot = self.put(index, by)?;
        self.bytes -= slot.bytes();
        slot.into_delivery()
    }

    /// The next slot was sent again.
    pub(crate) fn mark_sent(&mut self) {
        self.sent += 1;
        self.awaiting += 1;
        self.skip_acknowledged();
    }

    fn skip_acknowledged(&mut self) {
        while let Some(Slot::Acknowledged) = self.get(self.sent) {
            self.sent += 1;
        }
    }

    /// The position of an identifier in flight.
    pub(crate) fn index_of(&self, packet_id: PacketId, next: PacketId) -> Option<usize> {
        // Identifiers go round from 65,535 to 1.
        let back = (u32::from(next.get()) + 65_535 - u32::from(packet_id.get())) % 65_535;
        let back = if back == 0 { 65_535 } else { back as usize };
        let recent = self.slots.len().checked_sub(back);
        let Some(overtaken) = &self.overtaken else {
            return recent;
        };
        match recent {
            Some(index) if !matches!(self.slots.get(index), Some(Slot::Acknowledged)) => {
                Some(overtaken.len() + index)
            }
            _ => overtaken.position(packet_id),
        }
    }

    /// The identifier of the slot at `index`.
    pub(crate) fn id_at(&self, index: usize, next: PacketId) -> PacketId {
        let overtaken = self.overtaken.as_ref();
        if let Some(id) = overtaken.and_then(|overtaken| overtaken.id_at(index)) {
            return id;
        }
        let back = (self.places() - index) as u32;
        let id = (u32::from(next.get()) + 65_534 - back) % 65_535 + 1;
        u16::try_from(id)
            .ok()
            .and_then(PacketId::new)
            .unwrap_or(PacketId::FIRST)
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.places() == 0
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + self.queue.capacity() * size_of::<Delivery>()
            + self.slots.capacity() * size_of::<Slot>()
            + self
                .overtaken
                .as_ref()
                .map_or(0, |overtaken| overtaken.heap_bytes())
    }
}

impl Session {
    /// Hands a message to the session. Constant time. `now` decides which messages have expired, and nothing else.
    ///
    /// A durable session is handed QoS 0 only, and keeps it while it is online only; all else comes by
    /// [`Self::deliver_stored`], which no limit refuses, but which counts against the limits here.
    pub fn deliver(&mut self, delivery: Delivery, policy: &Policy, now: Timestamp) -> Delivered {
        let qos0 = delivery.qos == QoS::AtMostOnce;
        debug_assert!(
            qos0 || self.durable.is_none(),
            "what a store holds comes from the store"
        );
        if qos0 && !self.online && (policy.qos0_inbox == Qos0Inbox::Never || self.durable.is_some())
        {
            return delivery.dropped(DropReason::OfflineQos0);
        }
        let bytes = delivery.bytes();
        let mut made_room = Vec::new();
        while let Some(limit) = self.full(bytes, policy) {
            match self.make_room(qos0, bytes, limit, policy, now) {
                Some(dropped) => made_room.push(dropped),
                // Dropping the oldest stops where there is none left, which `make_room` foresees.
                None => return delivery.dropped(limit),
            }
        }
        self.queue_bytes += bytes;
        if qos0 {
            let (taken, waiting) = self.ordered();
            let behind = taken.wrapping_add(waiting as u32);
            self.qos0.push_back(WaitingQos0 { delivery, behind });
        } else {
            self.outbound
                .get_or_insert_default()
                .queue
                .push_back(delivery);
        }
        if made_room.is_empty() {
            Delivered::Queued
        } else {
            Delivered::QueuedDropping(made_room)
        }
    }

    /// The limit that a message of this size would break.
    #[inline]
    fn full(&self, bytes: u64, policy: &Policy) -> Option<DropReason> {
        if self.queue_len() >= policy.queue_messages as usize {
            return Some(DropReason::QueueFullMessages);
        }
        (self.queue_bytes + bytes > policy.queue_bytes).then_some(DropReason::QueueFullBytes)
    }

    /// Drops the oldest waiting message, if the policy says so or it has expired, and if that helps.
    fn make_room(
        &mut self,
        qos0: bool,
        bytes: u64,
        limit: DropReason,
        policy: &Policy,
        now: Timestamp,
    ) -> Option<Dropped> {
        let oldest = self.oldest_waiting()?;
        let expired = oldest.message.is_expired(now);
        let after = self.queue_bytes - oldest.bytes() + bytes;
        let helps = if !qos0 && policy.queue_full == QueueFull::DropOldest {
            let in_flight = self.outbound.as_ref().map_or(0, |outbound| outbound.bytes);
            in_flight + bytes <= policy.queue_bytes
        } else {
            // [MQTT-3.3.2-5] an expired message is to go anyhow.
            expired && after <= policy.queue_bytes
        };
        if !helps {
            return None;
        }
        let reason = if expired { DropReason::Expired } else { limit };
        let message = self.pop_oldest()?.message;
        Some(Dropped { message, reason })
    }

    /// Whether the first waiting QoS 0 message is older than the first QoS 1 or 2 one.
    #[inline]
    pub(crate) fn is_qos0_next(&self) -> bool {
        let Some(first) = self.qos0.front() else {
            return false;
        };
        let (taken, waiting) = self.ordered();
        // Counters wrap around; the queue is far shorter than half their range.
        let ahead = first.behind.wrapping_sub(taken) as i32;
        waiting == 0 || ahead <= 0
    }

    /// How many deliveries ever left the queue that QoS 0 keeps its order with, and how many wait in
    /// it.
    #[inline]
    fn ordered(&self) -> (u32, usize) {
        match (&self.durable, &self.outbound) {
            (Some(durable), _) => (durable.taken, durable.queue.len()),
            (None, Some(outbound)) => (outbound.taken, outbound.queue.len()),
            (None, None) => (0, 0),
        }
    }

    fn oldest_waiting(&self) -> Option<&Delivery> {
        if self.is_qos0_next() {
            return self.qos0.front().map(|waiting| &waiting.delivery);
        }
        self.outbound.as_ref()?.queue.front()
    }

    fn pop_oldest(&mut self) -> Option<Delivery> {
        let delivery = if self.is_qos0_next() {
            self.qos0.pop_front()?.delivery
        } else {
            self.outbound.as_mut()?.take_waiting()?
        };
        self.queue_bytes -= delivery.bytes();
        Some(delivery)
    }

    pub(crate) fn handle_puback<'a>(&mut self, ack: &PubAck<'_>) -> Result<Action<'a>, Violation> {
        self.acknowledge(ack.packet_id, PacketType::PubAck, |slot| match slot {
            // [MQTT-4.4.0-2] [MQTT-4.8.2-6] an error ends the delivery as well.
            Slot::Publish(delivery) if delivery.qos == QoS::AtLeastOnce => Some(Step::Finish),
            Slot::Acknowledged => Some(Step::Keep),
            Slot::Publish(_) | Slot::Receipt | Slot::PubRel => None,
        })?;
        Ok(Action::Acknowledged)
    }

    pub(crate) fn handle_pubrec<'a>(&mut self, ack: &PubRec<'_>) -> Result<Action<'a>, Violation> {
        let durable = self.durable.is_some();
        let step = self.acknowledge(ack.packet_id, PacketType::PubRec, |slot| match slot {
            Slot::Publish(delivery) if delivery.qos != QoS::ExactlyOnce => None,
            Slot::Acknowledged => Some(Step::Keep),
            // [MQTT-4.3.3-4] PUBREL only for a reason code below 0x80; [MQTT-4.4.0-2]
            // [MQTT-4.8.2-6] any other ends the delivery.
            _ if ack.reason.is_error() => Some(Step::Finish),
            Slot::Publish(_) if durable => Some(Step::Record),
            Slot::Receipt => Some(Step::AwaitRecord),
            Slot::Publish(_) | Slot::PubRel => Some(Step::Release),
        })?;
        let reason = match step {
            Step::Finish => return Ok(Action::Acknowledged),
            Step::Record => return Ok(self.ask_receipt(ack.packet_id)),
            Step::AwaitRecord => return Ok(Action::None),
            Step::Release => ReasonCode::Success,
            Step::Keep if ack.reason.is_error() => return Ok(Action::None),
            Step::Keep if self.version.is_v5() => ReasonCode::PacketIdentifierNotFound,
            Step::Keep => ReasonCode::Success,
        };
        self.send_pubrel(ack.packet_id, reason);
        Ok(Action::None)
    }

    pub(crate) fn handle_pubcomp<'a>(
        &mut self,
        ack: &PubComp<'_>,
    ) -> Result<Action<'a>, Violation> {
        self.acknowledge(ack.packet_id, PacketType::PubComp, |slot| match slot {
            Slot::PubRel => Some(Step::Finish),
            Slot::Acknowledged => Some(Step::Keep),
            // [MQTT-4.3.3-5] the message stays unacknowledged until PUBREC.
            Slot::Publish(_) | Slot::Receipt => None,
        })?;
        Ok(Action::Acknowledged)
    }

    pub(crate) fn send_pubrel(&mut self, packet_id: PacketId, reason: ReasonCode) {
        self.push_control(|version, out| {
            PubRel {
                packet_id,
                reason,
                properties: AckProperties::default(),
            }
            .encode(version, out)
        });
    }

    /// Applies an acknowledgement; one for an identifier that is not in flight counts as for one that
    /// is done.
    fn acknowledge(
        &mut self,
        packet_id: PacketId,
        kind: PacketType,
        step: impl FnOnce(&Slot) -> Option<Step>,
    ) -> Result<Step, Violation> {
        let next = self.next_packet_id;
        let Some(outbound) = &mut self.outbound else {
            return Ok(Step::Keep);
        };
        let Some(index) = outbound.index_of(packet_id, next) else {
            return Ok(Step::Keep);
        };
        let Some(slot) = outbound.get(index) else {
            return Ok(Step::Keep);
        };
        let step = step(slot).ok_or(Violation::UnexpectedAcknowledgement(kind))?;
        let freed = match step {
            Step::Keep | Step::AwaitRecord => None,
            Step::Finish => outbound.finish(index),
            // [MQTT-4.3.3-6] the message is not sent again from here on, so it is let go.
            Step::Release => outbound.replace(index, Slot::PubRel),
            Step::Record => outbound.replace(index, Slot::Receipt),
        };
        outbound.trim();
        if matches!(step, Step::Finish) {
            self.note_acknowledged(packet_id);
        }
        if let Some(delivery) = freed {
            self.queue_bytes -= delivery.bytes();
        }
        Ok(step)
    }

    /// Takes the deliveries of one shared group that the client has not got: those that wait, and,
    /// while the client is offline, QoS 1 ones that it did not acknowledge. A QoS 2 message that was
    /// sent stays with its client [MQTT-4.8.2-4]; what was sent to a client that is online is
    /// completed [MQTT-3.10.4-3]. Of a durable session: those that the store handed over and that were
    /// never sent; they count as acknowledged, so the caller records first where they go.
    pub fn take_group(&mut self, group: NonZeroU32) -> Vec<Delivery> {
        let mut taken = Vec::new();
        let in_group = |delivery: &Delivery| delivery.group == Some(group);
        if let Some(outbound) = &mut self.outbound {
            for index in 0..if self.online { 0 } else { outbound.places() } {
                if let Some(Slot::Publish(delivery)) = outbound.get(index)
                    && delivery.qos == QoS::AtLeastOnce
                    && in_group(delivery)
                {
                    taken.extend(outbound.finish(index));
                }
            }
            outbound.trim();
            if outbound.queue.iter().any(in_group) {
                let (theirs, ours): (Vec<_>, Vec<_>) = outbound.queue.drain(..).partition(in_group);
                outbound.queue = ours.into();
                outbound.taken = outbound.taken.wrapping_add(theirs.len() as u32);
                taken.extend(theirs);
            }
        }
        taken.extend(self.take_stored_group(group));
        taken.extend(self.qos0.take(in_group));
        self.queue_bytes -= taken.iter().map(Delivery::bytes).sum::<u64>();
        taken
    }

    /// Drops the messages that wait and are not to be sent any more; what is in flight on this network
    /// connection stays. Of a durable session they count as acknowledged, but for QoS 2 messages that were sent
    /// on an earlier one: these end with PUBREL, for the client may hold their identifiers. Linear in the
    /// queue.
    pub fn drop_waiting(
        &mut self,
        mut is_kept: impl FnMut(&ApplicationMessage) -> bool,
    ) -> Vec<Delivery> {
        let mut dropped = Vec::new();
        let mut bytes = 0;
        let mut is_kept = |delivery: &Delivery| {
            let kept = is_kept(&delivery.message);
            if !kept {
                bytes += delivery.bytes();
                dropped.push(delivery.clone());
            }
            kept
        };
        if let Some(outbound) = &mut self.outbound {
            let before = outbound.queue.len();
            outbound.queue.retain(&mut is_kept);
            let gone = before - outbound.queue.len();
            outbound.taken = outbound.taken.wrapping_add(gone as u32);
        }
        if let Some(durable) = &mut self.durable {
            durable.drop_waiting(&mut is_kept);
        }
        self.qos0.retain(&mut is_kept);
        self.queue_bytes -= bytes;
        dropped
    }

    /// Takes every delivery, oldest first; with each, whether it was sent already.
    pub(crate) fn take_all(&mut self) -> Vec<(Delivery, bool)> {
        let mut taken = Vec::new();
        if let Some(outbound) = &mut self.outbound {
            for index in 0..outbound.places() {
                taken.extend(outbound.finish(index).map(|delivery| (delivery, true)));
            }
            outbound.trim();
        }
        self.queue_bytes -= taken
            .iter()
            .map(|(delivery, _)| delivery.bytes())
            .sum::<u64>();
        while let Some(delivery) = self.pop_oldest() {
            taken.push((delivery, false));
        }
        taken
    }

    /// The network connection is gone: everything in flight has to be sent again on the next one
    /// [MQTT-4.4.0-1] [MQTT3-4.4.0-1].
    pub(crate) fn detach_outbound(&mut self) {
        if let Some(outbound) = &mut self.outbound {
            outbound.sent = 0;
            outbound.awaiting = 0;
        }
    }

    /// Frees what drained queues keep for the next message.
    pub fn release_spare(&mut self) {
        self.release_inbound();
        if let Some(durable) = &mut self.durable {
            durable.release_spare();
        }
        if self.qos0.is_empty() {
            self.qos0.release();
            if self
                .outbound
                .as_ref()
                .is_some_and(|outbound| outbound.is_empty())
            {
                self.outbound = None;
            }
        }
        self.shrink_drained(0);
    }

    /// Frees drained queues that are larger than a trickle needs.
    #[inline]
    pub(crate) fn shrink_drained(&mut self, spare: usize) {
        self.qos0.shrink_drained(spare);
        if let Some(outbound) = &mut self.outbound {
            if outbound.queue.is_empty() && outbound.queue.capacity() > spare {
                outbound.queue = VecDeque::new();
            }
            if outbound.slots.is_empty() && outbound.slots.capacity() > spare {
                outbound.slots = VecDeque::new();
            }
        }
        if let Some(durable) = &mut self.durable {
            durable.shrink_drained(spare);
        }
    }

    #[inline]
    pub(crate) fn shrink_to_trickle(&mut self) {
        self.shrink_drained(SPARE_SLOTS);
    }

    /// [MQTT-4.9.0-1] the window is at least 1 and at most the client's Receive Maximum.
    #[inline]
    pub(crate) fn set_window(&mut self, policy: &Policy) {
        let durable = self.durable.as_ref();
        // A client that is told positions is the broker's own, and asks for no more than it has room for.
        let most = match durable.is_some_and(|durable| durable.incarnation.is_some()) {
            true => u16::MAX,
            false => policy.inflight_maximum.max(1),
        };
        self.window = most.min(self.client_receive_maximum);
    }

    /// Messages that wait, not counting those in flight. In a durable session, what the store handed
    /// over counts, a PUBREL that is owed as well.
    #[must_use]
    pub fn queue_len(&self) -> usize {
        self.qos0.len() + self.ordered().1
    }

    /// Bytes of the messages held, waiting and in flight, as counted against the policy.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// QoS 1 and 2 messages that are in flight: sent, and not acknowledged to the end.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.outbound.as_ref().map_or(0, |outbound| outbound.live)
    }

    /// The most QoS 1 and 2 messages in flight on this network connection.
    #[must_use]
    pub fn window(&self) -> u16 {
        self.window
    }

    /// QoS 1 and 2 messages that could be sent at once if they were delivered now. In a durable
    /// session, waiting QoS 0 messages of the store take room as well.
    #[must_use]
    pub fn room(&self) -> u32 {
        let taken = self.in_flight() + self.ordered().1;
        u32::from(self.window).saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX))
    }
}
