//! AUTH (5.0 §3.15): one step of an authentication exchange.

use super::ack::{check_reason, decode_reason};
use crate::codec::{Reader, put_frame};
use crate::{AuthProperties, DecodeError, EncodeError, PacketType, ProtocolVersion, ReasonCode};

// [MQTT-3.15.2-1] the reason codes of this packet.
const REASONS: &[ReasonCode] = &[
    ReasonCode::Success,
    ReasonCode::ContinueAuthentication,
    ReasonCode::Reauthenticate,
];

/// Carries data of an authentication method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Auth<'a> {
    /// Done, go on, or start again.
    pub reason: ReasonCode,
    /// The authentication method is there unless this is Success and nothing else.
    pub properties: AuthProperties<'a>,
}

impl<'a> Auth<'a> {
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        // §3.15.2.1: a remaining length of 0 says Success and no properties.
        if body.is_empty() {
            return Ok(Self {
                reason: ReasonCode::Success,
                properties: AuthProperties::default(),
            });
        }
        let mut reader = Reader::new(body);
        let reason = decode_reason(&mut reader, REASONS)?;
        let properties = AuthProperties::decode(&mut reader)?;
        reader.finish()?;
        let auth = Self { reason, properties };
        // §3.15.2.2.2: to omit the authentication method is a protocol error.
        if !auth.is_bare() && properties.authentication_method.is_none() {
            return Err(DecodeError::AuthenticationMethodMissing);
        }
        Ok(auth)
    }

    /// Appends the packet to `out` in the shortest form.
    ///
    /// # Errors
    /// A version before 5.0, a reason code of another packet, no authentication method, a string that
    /// cannot be written; `out` is then unchanged.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if !version.is_v5() {
            return Err(EncodeError::PacketTypeNotInVersion(PacketType::Auth));
        }
        check_reason(self.reason, REASONS)?;
        if !self.is_bare() && self.properties.authentication_method.is_none() {
            return Err(EncodeError::AuthenticationMethodMissing);
        }
        put_frame(PacketType::Auth.first_byte(), &[], out, |out| {
            if self.is_bare() {
                return Ok(());
            }
            out.push(self.reason.as_u8());
            self.properties.encode(out)
        })
    }

    /// Success without properties, which may be sent as nothing.
    fn is_bare(&self) -> bool {
        self.reason == ReasonCode::Success && self.properties.is_empty()
    }
}

#[cfg(test)]
mod tests;
