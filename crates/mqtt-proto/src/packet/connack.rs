//! CONNACK (§3.2): the server's answer to CONNECT.

use super::ack::{check_reason, decode_reason};
use crate::codec::{Reader, put_frame};
use crate::{
    ConnAckProperties, ConnectReturnCode, DecodeError, EncodeError, PacketType, ProtocolVersion,
    ReasonCode,
};

// [MQTT-3.2.2-8] the reason codes of this packet.
const REASONS: &[ReasonCode] = &[
    ReasonCode::Success,
    ReasonCode::UnspecifiedError,
    ReasonCode::MalformedPacket,
    ReasonCode::ProtocolError,
    ReasonCode::ImplementationSpecificError,
    ReasonCode::UnsupportedProtocolVersion,
    ReasonCode::ClientIdentifierNotValid,
    ReasonCode::BadUserNameOrPassword,
    ReasonCode::NotAuthorized,
    ReasonCode::ServerUnavailable,
    ReasonCode::ServerBusy,
    ReasonCode::Banned,
    ReasonCode::BadAuthenticationMethod,
    ReasonCode::TopicNameInvalid,
    ReasonCode::PacketTooLarge,
    ReasonCode::QuotaExceeded,
    ReasonCode::PayloadFormatInvalid,
    ReasonCode::RetainNotSupported,
    ReasonCode::QoSNotSupported,
    ReasonCode::UseAnotherServer,
    ReasonCode::ServerMoved,
    ReasonCode::ConnectionRateExceeded,
];

/// Acknowledges a CONNECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnAck<'a> {
    /// Whether the server goes on with a session it had; never in 3.1, which cannot say it.
    pub session_present: bool,
    /// Success or why not; before 5.0 sent as [`ReasonCode::connect_return_code`].
    pub reason: ReasonCode,
    /// Empty before 5.0.
    pub properties: ConnAckProperties<'a>,
}

impl<'a> ConnAck<'a> {
    pub(crate) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let flags = reader.u8()?;
        let session_present = match (version, flags) {
            // 3.1 leaves this byte without a meaning.
            (ProtocolVersion::V3_1, _) | (_, 0) => false,
            (_, 1) => true,
            // [MQTT-3.2.2-1] bits 7 to 1 are reserved.
            _ => return Err(DecodeError::ReservedConnectAcknowledgeFlags),
        };
        let (reason, properties) = if version.is_v5() {
            let reason = decode_reason(&mut reader, REASONS)?;
            (reason, ConnAckProperties::decode(&mut reader)?)
        } else {
            let code = reader.u8()?;
            let reason = ConnectReturnCode::from_u8(code)
                .ok_or(DecodeError::ReasonCodeNotAllowed(code))?
                .reason_code();
            (reason, ConnAckProperties::default())
        };
        // [MQTT-3.2.2-6] [MQTT3-3.2.2-4] a refusal has no session.
        if session_present && reason != ReasonCode::Success {
            return Err(DecodeError::SessionPresentWithError);
        }
        reader.finish()?;
        Ok(Self {
            session_present,
            reason,
            properties,
        })
    }

    /// Appends the packet to `out`. Before 5.0, properties are left out.
    ///
    /// # Errors
    /// The packet breaks a rule of CONNACK or has a field that cannot be written; `out` is then
    /// unchanged.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        check_reason(self.reason, REASONS)?;
        if self.session_present && self.reason != ReasonCode::Success {
            return Err(EncodeError::SessionPresentWithError);
        }
        put_frame(PacketType::ConnAck.first_byte(), &[], out, |out| {
            out.push(u8::from(
                self.session_present && version != ProtocolVersion::V3_1,
            ));
            if version.is_v5() {
                out.push(self.reason.as_u8());
                self.properties.encode(out)
            } else {
                out.push(self.reason.connect_return_code().as_u8());
                Ok(())
            }
        })
    }
}

#[cfg(test)]
mod tests;
