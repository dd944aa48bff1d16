//! UNSUBACK (§3.11): in 5.0 one reason code per topic filter, before nothing but the identifier.

use super::ReasonCodes;
use crate::codec::{Reader, put_frame, put_u16};
use crate::{
    AckProperties, DecodeError, EncodeError, PacketId, PacketType, ProtocolVersion, ReasonCode,
};

// [MQTT-3.11.3-2] the reason codes of this packet.
const REASONS: &[ReasonCode] = &[
    ReasonCode::Success,
    ReasonCode::NoSubscriptionExisted,
    ReasonCode::UnspecifiedError,
    ReasonCode::ImplementationSpecificError,
    ReasonCode::NotAuthorized,
    ReasonCode::TopicFilterInvalid,
    ReasonCode::PacketIdentifierInUse,
];

/// Acknowledges an UNSUBSCRIBE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnsubAck<'a> {
    /// Identifier of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// Empty before 5.0.
    pub properties: AckProperties<'a>,
    /// One per topic filter, in their order; before 5.0 not sent.
    pub reasons: ReasonCodes<'a>,
}

impl<'a> UnsubAck<'a> {
    pub(crate) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        if !version.is_v5() {
            reader.finish()?;
            let (properties, reasons) = (AckProperties::default(), ReasonCodes::default());
            return Ok(Self {
                packet_id,
                properties,
                reasons,
            });
        }
        let properties = AckProperties::decode(&mut reader)?;
        let reasons = ReasonCodes::decode(reader.rest(), REASONS)?;
        Ok(Self {
            packet_id,
            properties,
            reasons,
        })
    }

    /// Appends the packet to `out`. Before 5.0, properties and reason codes are left out.
    ///
    /// # Errors
    /// A reason code of another packet, a string that cannot be written; `out` is then unchanged.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.reasons.check(REASONS)?;
        put_frame(PacketType::UnsubAck.first_byte(), &[], out, |out| {
            put_u16(self.packet_id.get(), out);
            if version.is_v5() {
                self.properties.encode(out)?;
                out.extend(self.reasons.iter().map(ReasonCode::as_u8));
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
