//! A session whose truth is in a store: what it knows of the store, and what the two tell each other.
//!
//! A durable session lives as long as its network connection. At CONNECT it is made from what the
//! store knows ([`Session::open_durable`]); then the messages of its inbox come as the store numbers
//! them (`stored.rs`), and what became of them goes back as these numbers
//! ([`Session::take_acknowledged`]).
//!
//! Invariants: a PUBREC is recorded before its PUBREL goes, and a PUBREL before its PUBCOMP; each
//! sequence number is acknowledged once; a packet identifier is a function of its sequence number
//! ([`packet_id_of`]), so that it needs no record.
//!
//! Deliberately absent: the store, its batches and its time.

use std::collections::VecDeque;

use mqtt_proto::{Connect, PacketId, ReasonCode};

use crate::connect::Accepted;
use crate::in_order::InOrder;
use crate::inbound::Inbound;
use crate::stored::Stored;
use crate::{Action, Incarnation, PacketIdSet, Policy, Session, Subscription, Timestamp};

/// Packet identifiers go from 1 to this, and round.
///
/// Limit: packet identifiers of QoS 2 messages of a client that are not released | {}: 8 KiB in each place that knows
/// them | –
const PACKET_IDS: u64 = 65_535;

/// What the store knows of a durable session.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Its subscriptions, in any order.
    pub subscriptions: Vec<Subscription>,
    /// Inbound QoS 2 messages that the store knows and that are not released. A PUBLISH that comes again
    /// with one of these identifiers is handed over once more, for the store may know it in some of the
    /// places where it belongs and not in others; it sees to it that nothing is delivered twice.
    pub received: PacketIdSet,
}

/// What a durable session has that others do not.
#[derive(Debug)]
pub(crate) struct Durable {
    /// What waits for transmission, in ascending order of sequence numbers.
    pub(crate) queue: VecDeque<Stored>,
    /// How many ever left `queue`, wrapping around.
    pub(crate) taken: u32,
    /// The last sequence number that was handed over.
    pub(crate) last: u64,
    /// The sequence number after the newest in flight; the session's next packet identifier is its.
    pub(crate) next: u64,
    /// The highest sequence number that was written out.
    pub(crate) sent: u64,
    /// Sequence numbers that are done and that the server has not taken yet.
    pub(crate) acknowledged: Vec<u64>,
    /// What waits was held back for want of an identifier when the session transmitted last.
    pub(crate) waits_for_identifier: bool,
    /// Of the inbox; `None`: the client is not told positions.
    pub(crate) incarnation: Option<Incarnation>,
    /// Sequence numbers whose PUBREC the store records.
    receipts: InOrder<u64>,
    /// Inbound identifiers that the store forgets because of a PUBREL.
    releases: InOrder<PacketId>,
}

impl Default for Durable {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            taken: 0,
            last: 0,
            next: 1,
            sent: 0,
            acknowledged: Vec::new(),
            waits_for_identifier: false,
            incarnation: None,
            receipts: InOrder::default(),
            releases: InOrder::default(),
        }
    }
}

/// The packet identifier of a sequence number, which counts from 1.
pub(crate) fn packet_id_of(sequence: u64) -> PacketId {
    u16::try_from(sequence.saturating_sub(1) % PACKET_IDS + 1)
        .ok()
        .and_then(PacketId::new)
        .unwrap_or(PacketId::FIRST)
}

impl Durable {
    /// The sequence number of an identifier in flight: the highest below `next` that it belongs to.
    pub(crate) fn sequence_of(&self, packet_id: PacketId) -> u64 {
        let newest = self.next.saturating_sub(1);
        let newest_id = u64::from(packet_id_of(newest).get());
        let back = (newest_id + PACKET_IDS - u64::from(packet_id.get())) % PACKET_IDS;
        newest.saturating_sub(back)
    }

    /// Nobody waits for the store's answers any more.
    pub(crate) fn forget_questions(&mut self) {
        self.receipts = InOrder::default();
        self.releases = InOrder::default();
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + self.queue.capacity() * size_of::<Stored>()
            + self.acknowledged.capacity() * size_of::<u64>()
            + self.receipts.heap_bytes()
            + self.releases.heap_bytes()
    }

    /// Frees what drained queues keep, if it is more than `spare` entries.
    pub(crate) fn shrink_drained(&mut self, spare: usize) {
        if self.queue.is_empty() && self.queue.capacity() > spare {
            self.queue = VecDeque::new();
        }
        if self.acknowledged.is_empty() && self.acknowledged.capacity() > spare {
            self.acknowledged = Vec::new();
        }
    }

    pub(crate) fn release_spare(&mut self) {
        self.shrink_drained(0);
        self.receipts.shrink();
        self.releases.shrink();
    }
}

impl Session {
    /// A durable session for an accepted CONNECT: a new one (`session_present` false), or one that
    /// goes on with what the store knows. CONNACK waits for transmission.
    ///
    /// It ends with its network connection: there is no [`Self::resume`] for it.
    #[must_use]
    pub fn open_durable(
        connect: &Connect<'_>,
        client_id: Box<str>,
        accepted: Accepted<'_>,
        session_present: bool,
        restored: Restored,
        policy: &Policy,
        now: Timestamp,
    ) -> Self {
        let mut session = Self::detached(connect.version, client_id, now);
        session.durable = Some(Box::new(Durable {
            incarnation: accepted.incarnation,
            ..Durable::default()
        }));
        session.add_subscriptions(restored.subscriptions);
        session.inbound = Inbound::restored(restored.received);
        session.accept(connect, accepted, session_present, policy, now);
        session
    }

    /// Whether the store holds this session.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.durable.is_some()
    }

    /// Appends the sequence numbers that are done since the last call, in the order in which they
    /// were: acknowledged to the end by the client, written out with QoS 0, dropped, or taken for
    /// another member of a shared group. Each comes once. Still there after the network connection is
    /// gone.
    pub fn take_acknowledged(&mut self, out: &mut Vec<u64>) {
        if let Some(durable) = &mut self.durable {
            out.append(&mut durable.acknowledged);
        }
    }

    /// The highest sequence number that this session has written out, 0 if none: what the store has
    /// to hand over as [`crate::StoredState::Sent`] the next time.
    #[must_use]
    pub fn sent_sequence(&self) -> u64 {
        self.durable.as_ref().map_or(0, |durable| durable.sent)
    }

    /// The store has recorded the PUBREC of an [`Action::Receipt`]: PUBREL is queued as soon as those
    /// of all earlier PUBRECs are. Does nothing if the delivery has ended since.
    pub fn complete_receipt(&mut self, sequence: u64) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        durable.receipts.complete(sequence, |()| {});
        // [MQTT-4.6.0-4] [MQTT3-4.6.0-4] from the front only.
        while let Some(durable) = &mut self.durable
            && let Some((sequence, ())) = durable.receipts.pop_done()
        {
            if self.release_slot(sequence) {
                self.send_pubrel(packet_id_of(sequence), ReasonCode::Success);
            }
        }
    }

    /// The store has forgotten the identifier of an [`Action::Release`]: PUBCOMP is queued as soon as
    /// those of all earlier releases are. A completion that comes after the network connection was
    /// closed does no harm.
    pub fn complete_release(&mut self, packet_id: PacketId) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        durable.releases.complete(packet_id, |()| {});
        while let Some(durable) = &mut self.durable
            && let Some((packet_id, ())) = durable.releases.pop_done()
        {
            // [MQTT-4.3.3-12] from here on, a PUBLISH with this identifier is a new message.
            self.release_received(packet_id);
            self.send_pubcomp(packet_id, ReasonCode::Success);
        }
    }

    /// The client has received the message under this identifier: the store has to know before PUBREL.
    pub(crate) fn ask_receipt<'a>(&mut self, packet_id: PacketId) -> Action<'a> {
        let Some(durable) = &mut self.durable else {
            return Action::None;
        };
        let sequence = durable.sequence_of(packet_id);
        durable.receipts.push(sequence, (), false);
        Action::Receipt { sequence }
    }

    /// The client releases a received identifier: the store has to know before PUBCOMP. A PUBREL that
    /// comes again meanwhile has the same PUBCOMP for an answer.
    pub(crate) fn ask_release<'a>(&mut self, packet_id: PacketId) -> Action<'a> {
        match &mut self.durable {
            Some(durable) if !durable.releases.contains(packet_id) => {
                durable.releases.push(packet_id, (), false);
                Action::Release { packet_id }
            }
            _ => Action::None,
        }
    }

    /// A sequence number is done. For transient sessions there is nobody to tell.
    #[inline]
    pub(crate) fn note_acknowledged(&mut self, packet_id: PacketId) {
        if let Some(durable) = &mut self.durable {
            let sequence = durable.sequence_of(packet_id);
            durable.acknowledged.push(sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [MQTT-2.2.1-4]
    #[test]
    fn an_identifier_in_flight_tells_its_sequence_number() {
        for next in [2, 3, 65_535, 65_536, 65_537, 65_538, 131_071, 1 << 40] {
            let durable = Durable {
                next,
                ..Durable::default()
            };
            let oldest = next.saturating_sub(PACKET_IDS).max(1);
            for sequence in (oldest..next).take(10).chain((oldest..next).rev().take(10)) {
                assert_eq!(durable.sequence_of(packet_id_of(sequence)), sequence);
            }
        }
        assert_eq!(packet_id_of(65_535).get(), 65_535);
        assert_eq!(packet_id_of(65_536).get(), 1);
    }
}
