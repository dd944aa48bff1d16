//! PINGRESP (5.0 §3.13): two bytes, the same in every version.

use crate::codec::Reader;
use crate::{DecodeError, Packet, PacketType};

#[inline]
pub(crate) fn decode(body: &[u8]) -> Result<Packet<'_>, DecodeError> {
    Reader::new(body).finish()?;
    Ok(Packet::PingResp)
}

#[inline]
pub(crate) fn encode(out: &mut Vec<u8>) {
    out.extend_from_slice(&[PacketType::PingResp.first_byte(), 0]);
}

#[cfg(test)]
mod tests;
