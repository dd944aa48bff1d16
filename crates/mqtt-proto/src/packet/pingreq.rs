//! PINGREQ (5.0 §3.12): two bytes, the same in every version.

use crate::codec::Reader;
use crate::{DecodeError, Packet, PacketType};

#[inline]
pub(crate) fn decode(body: &[u8]) -> Result<Packet<'_>, DecodeError> {
    Reader::new(body).finish()?;
    Ok(Packet::PingReq)
}

#[inline]
pub(crate) fn encode(out: &mut Vec<u8>) {
    out.extend_from_slice(&[PacketType::PingReq.first_byte(), 0]);
}

#[cfg(test)]
mod tests;
