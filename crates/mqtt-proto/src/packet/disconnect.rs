//! DISCONNECT (§3.14): the last packet of either side; before 5.0 only a client sends it.
//!
//! Deliberately absent: rules that depend on the sender ([MQTT-3.14.2-2], Disconnect with Will Message
//! from a server); they are the session's.

use super::ack::{check_reason, decode_reason};
use crate::codec::{Reader, put_frame};
use crate::{
    DecodeError, DisconnectProperties, EncodeError, PacketType, ProtocolVersion, ReasonCode,
};

// [MQTT-3.14.2-1] the reason codes of this packet.
const REASONS: &[ReasonCode] = &[
    ReasonCode::Success,
    ReasonCode::DisconnectWithWill,
    ReasonCode::UnspecifiedError,
    ReasonCode::MalformedPacket,
    ReasonCode::ProtocolError,
    ReasonCode::ImplementationSpecificError,
    ReasonCode::NotAuthorized,
    ReasonCode::ServerBusy,
    ReasonCode::ServerShuttingDown,
    ReasonCode::KeepAliveTimeout,
    ReasonCode::SessionTakenOver,
    ReasonCode::TopicFilterInvalid,
    ReasonCode::TopicNameInvalid,
    ReasonCode::ReceiveMaximumExceeded,
    ReasonCode::TopicAliasInvalid,
    ReasonCode::PacketTooLarge,
    ReasonCode::MessageRateTooHigh,
    ReasonCode::QuotaExceeded,
    ReasonCode::AdministrativeAction,
    ReasonCode::PayloadFormatInvalid,
    ReasonCode::RetainNotSupported,
    ReasonCode::QoSNotSupported,
    ReasonCode::UseAnotherServer,
    ReasonCode::ServerMoved,
    ReasonCode::SharedSubscriptionsNotSupported,
    ReasonCode::ConnectionRateExceeded,
    ReasonCode::MaximumConnectTime,
    ReasonCode::SubscriptionIdentifiersNotSupported,
    ReasonCode::WildcardSubscriptionsNotSupported,
];

/// Ends the network connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disconnect<'a> {
    /// Why; [`ReasonCode::Success`] is Normal disconnection, the only one before 5.0.
    pub reason: ReasonCode,
    /// Empty before 5.0.
    pub properties: DisconnectProperties<'a>,
}

impl<'a> Disconnect<'a> {
    pub(crate) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let mut reason = ReasonCode::Success;
        let mut properties = DisconnectProperties::default();
        if version.is_v5() {
            // §3.14.2.1: a remaining length of 0 says Success, one below 2 says no properties.
            if !reader.is_empty() {
                reason = decode_reason(&mut reader, REASONS)?;
            }
            if !reader.is_empty() {
                properties = DisconnectProperties::decode(&mut reader)?;
            }
        }
        reader.finish()?;
        Ok(Self { reason, properties })
    }

    /// Appends the packet to `out` in the shortest form. Before 5.0, reason and properties are left out.
    ///
    /// # Errors
    /// A reason code of another packet, a string that cannot be written; `out` is then unchanged.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        check_reason(self.reason, REASONS)?;
        let bare = self.properties.is_empty();
        put_frame(PacketType::Disconnect.first_byte(), &[], out, |out| {
            if !version.is_v5() || (self.reason == ReasonCode::Success && bare) {
                return Ok(());
            }
            out.push(self.reason.as_u8());
            if bare {
                Ok(())
            } else {
                self.properties.encode(out)
            }
        })
    }
}

#[cfg(test)]
mod tests;
