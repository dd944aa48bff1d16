//! The body that PUBACK, PUBREC, PUBREL and PUBCOMP have in common.

use crate::codec::{Reader, put_frame, put_u16};
use crate::{AckProperties, DecodeError, EncodeError, PacketId, ProtocolVersion, ReasonCode};

/// Reads a reason code that must be one of `allowed`.
#[inline]
pub(super) fn decode_reason(
    reader: &mut Reader<'_>,
    allowed: &[ReasonCode],
) -> Result<ReasonCode, DecodeError> {
    let code = reader.u8()?;
    ReasonCode::from_u8(code)
        .filter(|reason| allowed.contains(reason))
        .ok_or(DecodeError::ReasonCodeNotAllowed(code))
}

#[inline]
pub(super) fn check_reason(reason: ReasonCode, allowed: &[ReasonCode]) -> Result<(), EncodeError> {
    if allowed.contains(&reason) {
        Ok(())
    } else {
        Err(EncodeError::ReasonCodeNotAllowed(reason))
    }
}

#[inline]
pub(super) fn decode_ack<'a>(
    body: &'a [u8],
    version: ProtocolVersion,
    allowed: &[ReasonCode],
) -> Result<(PacketId, ReasonCode, AckProperties<'a>), DecodeError> {
    let mut reader = Reader::new(body);
    let packet_id = reader.packet_id()?;
    let mut reason = ReasonCode::Success;
    let mut properties = AckProperties::default();
    if version.is_v5() {
        // §3.4.2.1: a remaining length of 2 says Success, one below 4 says no properties.
        if !reader.is_empty() {
            reason = decode_reason(&mut reader, allowed)?;
        }
        if !reader.is_empty() {
            properties = AckProperties::decode(&mut reader)?;
        }
    }
    reader.finish()?;
    Ok((packet_id, reason, properties))
}

#[inline]
pub(super) fn encode_ack(
    first_byte: u8,
    packet_id: PacketId,
    reason: ReasonCode,
    properties: &AckProperties<'_>,
    allowed: &[ReasonCode],
    version: ProtocolVersion,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if !version.is_v5() || (reason == ReasonCode::Success && properties.is_empty()) {
        let [high, low] = packet_id.get().to_be_bytes();
        out.extend_from_slice(&[first_byte, 2, high, low]);
        return Ok(());
    }
    check_reason(reason, allowed)?;
    put_frame(first_byte, &[], out, |out| {
        put_u16(packet_id.get(), out);
        out.push(reason.as_u8());
        if properties.is_empty() {
            Ok(())
        } else {
            properties.encode(out)
        }
    })
}
