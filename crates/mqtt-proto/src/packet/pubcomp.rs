//! PUBCOMP (5.0 §3.7): the answer to a PUBREL, the last packet of a delivery at QoS 2.

use super::ack::{decode_ack, encode_ack};
use crate::{
    AckProperties, DecodeError, EncodeError, PacketId, PacketType, ProtocolVersion, ReasonCode,
};

// [MQTT-3.7.2-1] the reason codes of this packet.
const REASONS: &[ReasonCode] = &[ReasonCode::Success, ReasonCode::PacketIdentifierNotFound];

/// Answers a PUBREL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PubComp<'a> {
    /// Identifier of the PUBLISH.
    pub packet_id: PacketId,
    /// Always [`ReasonCode::Success`] before 5.0.
    pub reason: ReasonCode,
    /// Empty before 5.0.
    pub properties: AckProperties<'a>,
}

impl<'a> PubComp<'a> {
    #[inline]
    pub(crate) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, DecodeError> {
        let (packet_id, reason, properties) = decode_ack(body, version, REASONS)?;
        Ok(Self {
            packet_id,
            reason,
            properties,
        })
    }

    /// Appends the packet to `out` in the shortest form. Before 5.0, reason and properties are left out.
    ///
    /// # Errors
    /// A reason code of another packet, a string that cannot be written; `out` is then unchanged.
    #[inline]
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let first_byte = PacketType::PubComp.first_byte();
        encode_ack(
            first_byte,
            self.packet_id,
            self.reason,
            &self.properties,
            REASONS,
            version,
            out,
        )
    }
}

#[cfg(test)]
mod tests;
