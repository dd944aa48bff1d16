//! The list of reason codes that SUBACK and UNSUBACK carry.

use crate::{DecodeError, EncodeError, ReasonCode};

use super::ack::check_reason;

/// Reason codes, one per topic filter and in their order: those of a received packet, or a slice that
/// is to be sent.
#[derive(Clone, Copy)]
pub struct ReasonCodes<'a>(Codes<'a>);

#[derive(Clone, Copy)]
enum Codes<'a> {
    /// Every byte was checked to be a reason code.
    Received(&'a [u8]),
    ToSend(&'a [ReasonCode]),
}

impl<'a> ReasonCodes<'a> {
    pub(super) fn decode(bytes: &'a [u8], allowed: &[ReasonCode]) -> Result<Self, DecodeError> {
        for &byte in bytes {
            if !allowed.iter().any(|reason| reason.as_u8() == byte) {
                return Err(DecodeError::ReasonCodeNotAllowed(byte));
            }
        }
        Ok(Self(Codes::Received(bytes)))
    }

    pub(super) fn check(&self, allowed: &[ReasonCode]) -> Result<(), EncodeError> {
        self.iter()
            .try_for_each(|reason| check_reason(reason, allowed))
    }

    /// The reason codes, in order.
    pub fn iter(&self) -> impl Iterator<Item = ReasonCode> + use<'a> {
        let (received, to_send): (&'a [u8], &'a [ReasonCode]) = match self.0 {
            Codes::Received(bytes) => (bytes, &[]),
            Codes::ToSend(codes) => (&[], codes),
        };
        let received = received
            .iter()
            .filter_map(|byte| ReasonCode::from_u8(*byte));
        received.chain(to_send.iter().copied())
    }

    /// Number of reason codes.
    pub const fn len(&self) -> usize {
        match self.0 {
            Codes::Received(bytes) => bytes.len(),
            Codes::ToSend(codes) => codes.len(),
        }
    }

    /// Whether there is none, as in UNSUBACK before 5.0.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for ReasonCodes<'_> {
    fn default() -> Self {
        Self(Codes::ToSend(&[]))
    }
}

impl<'a> From<&'a [ReasonCode]> for ReasonCodes<'a> {
    fn from(codes: &'a [ReasonCode]) -> Self {
        Self(Codes::ToSend(codes))
    }
}

impl PartialEq for ReasonCodes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ReasonCodes<'_> {}

impl std::fmt::Debug for ReasonCodes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
