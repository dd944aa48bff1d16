//! SUBACK (§3.9): one reason code per topic filter.
//!
//! Deliberately absent: that there are as many codes as the SUBSCRIBE had filters
//! ([MQTT-3.8.4-6], [MQTT-3.9.3-1]); only the session knows the SUBSCRIBE.

use super::ReasonCodes;
use crate::codec::{Reader, put_frame, put_u16};
use crate::{
    AckProperties, DecodeError, EncodeError, PacketId, PacketType, ProtocolVersion, ReasonCode,
};

// [MQTT-3.9.3-2] the reason codes of this packet.
const REASONS: &[ReasonCode] = &[
    ReasonCode::Success,
    ReasonCode::GrantedQoS1,
    ReasonCode::GrantedQoS2,
    ReasonCode::UnspecifiedError,
    ReasonCode::ImplementationSpecificError,
    ReasonCode::NotAuthorized,
    ReasonCode::TopicFilterInvalid,
    ReasonCode::PacketIdentifierInUse,
    ReasonCode::QuotaExceeded,
    ReasonCode::SharedSubscriptionsNotSupported,
    ReasonCode::SubscriptionIdentifiersNotSupported,
    ReasonCode::WildcardSubscriptionsNotSupported,
];

// [MQTT3-3.9.3-2] 0x00, 0x01, 0x02 and 0x80. 3.1 names no failure; the same 0x80 is the only one that
// its clients have met.
const REASONS_BEFORE_V5: &[ReasonCode] = &[
    ReasonCode::Success,
    ReasonCode::GrantedQoS1,
    ReasonCode::GrantedQoS2,
    ReasonCode::UnspecifiedError,
];

/// Acknowledges a SUBSCRIBE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubAck<'a> {
    /// Identifier of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// Empty before 5.0.
    pub properties: AckProperties<'a>,
    /// One per topic filter, in their order; before 5.0 every failure is sent as 0x80.
    pub reasons: ReasonCodes<'a>,
}

impl<'a> SubAck<'a> {
    pub(crate) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        let (properties, allowed) = if version.is_v5() {
            (AckProperties::decode(&mut reader)?, REASONS)
        } else {
            (AckProperties::default(), REASONS_BEFORE_V5)
        };
        let reasons = ReasonCodes::decode(reader.rest(), allowed)?;
        Ok(Self {
            packet_id,
            properties,
            reasons,
        })
    }

    /// Appends the packet to `out`. Before 5.0, properties are left out.
    ///
    /// # Errors
    /// A reason code of another packet, a string that cannot be written; `out` is then unchanged.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.reasons.check(REASONS)?;
        put_frame(PacketType::SubAck.first_byte(), &[], out, |out| {
            put_u16(self.packet_id.get(), out);
            if version.is_v5() {
                self.properties.encode(out)?;
                out.extend(self.reasons.iter().map(ReasonCode::as_u8));
            } else {
                // [MQTT3-3.9.3-2] no code but 0x80 for a failure.
                out.extend(self.reasons.iter().map(|reason| reason.as_u8().min(0x80)));
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
