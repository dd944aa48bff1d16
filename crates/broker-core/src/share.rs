//! What one client may have done in a turn of its loop.
//!
//! Whatever a client can make long is charged here: packets of any kind, filters, receivers, bytes. When the
//! share is spent, the rest of what the client has sent waits for the next turn, behind the other clients. Work
//! is counted, not timed, so that the same packets are always cut at the same places.
//!
//! Deliberately absent: the turn of the whole loop, which `net` cuts by what [`net_api::Connections::charge`] is told.

use mqtt_proto::{Frame, PacketType};

/// Units of work, of about a microsecond each, that one client may have done in a turn.
///
/// Limit: work for one client in a turn | {} units of about a microsecond, counted: 1,024 messages of QoS 0 or pings,
/// 32 messages of QoS 1 and 2, about 1,000 filters | the rest in the next turn, behind other clients
const SHARE: u32 = 2_048;

/// Units that a packet costs at least.
const PACKET: u32 = 2;

/// Units that a message of QoS 1 or 2 costs its publisher. What it did to queues in other loops is known after
/// the turn; until then nobody could hold the publisher back.
const ACKNOWLEDGED: u32 = 64;

/// Units of a packet that changes something in the store, or that an authenticator is asked about.
const RECORDED: u32 = 16;

/// Units of a packet of a connection that has no session yet.
pub(crate) const CONNECT: u32 = 64;

/// Bytes of a packet that are worth a unit: they are read, checked and copied.
const BYTES_PER_UNIT: usize = 1_024;

/// Units that a topic filter costs: it is parsed, judged by the rules, routed, and looked up in the session.
pub(crate) const FILTER: u32 = 2;

/// Bytes of topic filters that are worth a unit.
pub(crate) const FILTER_BYTES_PER_UNIT: usize = 256;

/// What is left of a client's share of a turn.
#[derive(Debug)]
pub(crate) struct Share {
    left: u32,
}

impl Default for Share {
    fn default() -> Self {
        Self { left: SHARE }
    }
}

impl Share {
    /// Takes note of work.
    #[inline]
    pub(crate) fn charge(&mut self, units: u32) {
        self.left = self.left.saturating_sub(units);
    }

    /// Whether the rest waits for the next turn.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }
}

/// Units that a packet costs its client, without what is charged for the filters and receivers in it.
#[inline]
pub(crate) fn cost_to_client(frame: &Frame) -> u32 {
    let kind = match frame.packet_type {
        // QoS in bits 1 and 2 of the flags
        PacketType::Publish if frame.flags & 0b110 != 0 => ACKNOWLEDGED,
        PacketType::PubRec | PacketType::PubRel => RECORDED,
        PacketType::Subscribe | PacketType::Unsubscribe | PacketType::Auth => RECORDED,
        _ => PACKET,
    };
    kind + units(frame.len() / BYTES_PER_UNIT)
}

/// Units that a packet costs the turn of the loop.
#[inline]
pub(crate) fn cost_to_loop(frame: &Frame) -> u32 {
    if frame.packet_type == PacketType::Publish {
        PACKET + units(frame.len() / BYTES_PER_UNIT)
    } else {
        cost_to_client(frame)
    }
}

/// As many units; more than fit are as bad as the most that do.
#[inline]
pub(crate) fn units(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use mqtt_proto::peek_frame;

    use super::*;

    /// How many times a client's packet is handled in a turn.
    fn in_a_turn(frame: &[u8]) -> u32 {
        let frame = peek_frame(frame, None).unwrap().unwrap();
        let mut share = Share::default();
        let mut packets = 0;
        while !share.is_spent() {
            share.charge(cost_to_client(&frame));
            packets += 1;
        }
        packets
    }

    #[test]
    fn each_kind_of_packet_has_an_end() {
        let publish = |flags: u8| in_a_turn(&[0x30 | flags, 3, 0, 1, b't']);
        assert_eq!(publish(0), 1_024);
        assert_eq!((publish(0b010), publish(0b100)), (32, 32));
        // PINGREQ, PUBACK, PUBREC, PUBREL, PUBCOMP
        assert_eq!(in_a_turn(&[0xC0, 0]), 1_024);
        assert_eq!(in_a_turn(&[0x40, 2, 0, 1]), 1_024);
        assert_eq!(in_a_turn(&[0x50, 2, 0, 1]), 128);
        assert_eq!(in_a_turn(&[0x62, 2, 0, 1]), 128);
        assert_eq!(in_a_turn(&[0x70, 2, 0, 1]), 1_024);
        // SUBSCRIBE, UNSUBSCRIBE, AUTH
        assert_eq!(in_a_turn(&[0x82, 5, 0, 1, 0, 0, 0]), 128);
        assert_eq!(in_a_turn(&[0xA2, 4, 0, 1, 0, 0]), 128);
        assert_eq!(in_a_turn(&[0xF0, 0]), 128);
    }

    #[test]
    fn bytes_count_as_well() {
        // A PUBLISH of 2 MiB, as its header announces it.
        assert_eq!(in_a_turn(&[0x30, 0x80, 0x80, 0x80, 0x01, 0, 1, b't']), 1);
    }
}
