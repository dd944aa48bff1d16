//! The fixed header (§2.1): packet type, flags, remaining length.
//!
//! Invariant: [`peek_frame`] decides from at most five bytes, so a length that a peer announces costs
//! nothing until somebody chooses to wait for it.

use crate::{DecodeError, ProtocolVersion};

/// The largest remaining length that four bytes can say: 268,435,455 bytes.
pub const MAX_REMAINING_LENGTH: usize = 268_435_455;

/// The control packet types (5.0 §2.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// Connection request.
    Connect = 1,
    /// Connect acknowledgement.
    ConnAck = 2,
    /// Publish message.
    Publish = 3,
    /// Publish acknowledgement (QoS 1).
    PubAck = 4,
    /// Publish received (QoS 2, part 1).
    PubRec = 5,
    /// Publish release (QoS 2, part 2).
    PubRel = 6,
    /// Publish complete (QoS 2, part 3).
    PubComp = 7,
    /// Subscribe request.
    Subscribe = 8,
    /// Subscribe acknowledgement.
    SubAck = 9,
    /// Unsubscribe request.
    Unsubscribe = 10,
    /// Unsubscribe acknowledgement.
    UnsubAck = 11,
    /// PING request.
    PingReq = 12,
    /// PING response.
    PingResp = 13,
    /// Disconnect notification.
    Disconnect = 14,
    /// Authentication exchange (5.0 only).
    Auth = 15,
}

impl PacketType {
    /// The type with this number; `None` for 0 and above 15.
    #[inline]
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Connect,
            2 => Self::ConnAck,
            3 => Self::Publish,
            4 => Self::PubAck,
            5 => Self::PubRec,
            6 => Self::PubRel,
            7 => Self::PubComp,
            8 => Self::Subscribe,
            9 => Self::SubAck,
            10 => Self::Unsubscribe,
            11 => Self::UnsubAck,
            12 => Self::PingReq,
            13 => Self::PingResp,
            14 => Self::Disconnect,
            15 => Self::Auth,
            _ => return None,
        })
    }

    /// The flags that this type must carry; PUBLISH carries its own.
    #[inline]
    const fn listed_flags(self) -> u8 {
        match self {
            Self::PubRel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            _ => 0,
        }
    }

    /// First byte of a frame of this type; not for PUBLISH.
    #[inline]
    pub(crate) const fn first_byte(self) -> u8 {
        (self as u8) << 4 | self.listed_flags()
    }
}

/// What the fixed header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Type of the packet.
    pub packet_type: PacketType,
    /// Lower four bits of the first byte.
    pub flags: u8,
    /// Bytes of the fixed header: 2..=5.
    pub header_len: usize,
    /// Bytes after the fixed header: 0..=[`MAX_REMAINING_LENGTH`].
    pub remaining_len: usize,
}

impl Frame {
    /// Bytes of the whole frame, fixed header included. Never 0, so there is no `is_empty`.
    #[inline]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a frame has at least two bytes"
    )]
    pub const fn len(&self) -> usize {
        self.header_len + self.remaining_len
    }
}

/// Reads the fixed header at the start of `bytes`. `Ok(None)`: more bytes are needed (five always
/// suffice). `version` is that of the network connection, `None` before its CONNECT.
///
/// # Errors
/// A reserved packet type, flags other than those listed for the type, a remaining length of more than
/// four bytes, AUTH before 5.0. Type and flags are judged as soon as the first byte is there.
#[inline]
pub fn peek_frame(
    bytes: &[u8],
    version: Option<ProtocolVersion>,
) -> Result<Option<Frame>, DecodeError> {
    let Some((&first, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let packet_type = PacketType::from_u8(first >> 4).ok_or(DecodeError::ReservedPacketType)?;
    let flags = first & 0x0F;
    if packet_type != PacketType::Publish {
        check_flags(packet_type, flags, version)?;
    }
    let mut remaining_len = 0;
    for (position, &byte) in rest.iter().take(4).enumerate() {
        remaining_len |= usize::from(byte & 0x7F) << (7 * position);
        if byte & 0x80 == 0 {
            // [MQTT-1.5.5-1] shortest form. 3.1 and 3.1.1 do not ask for it; before CONNECT it is open,
            // and decoding CONNECT asks again.
            if byte == 0 && position > 0 && version == Some(ProtocolVersion::V5) {
                return Err(DecodeError::VariableByteIntegerNotMinimal);
            }
            return Ok(Some(Frame {
                packet_type,
                flags,
                header_len: position + 2,
                remaining_len,
            }));
        }
    }
    if rest.len() < 4 {
        Ok(None)
    } else {
        Err(DecodeError::RemainingLengthTooLong)
    }
}

fn check_flags(
    packet_type: PacketType,
    flags: u8,
    version: Option<ProtocolVersion>,
) -> Result<(), DecodeError> {
    let mut checked = flags;
    if version == Some(ProtocolVersion::V3_1) && packet_type.listed_flags() != 0 {
        // 3.1 sends these three at QoS 1 and sets DUP when it sends them again.
        checked &= !0b1000;
    }
    // [MQTT-2.1.3-1] [MQTT3-2.2.2-1] [MQTT3-2.2.2-2] listed flags only. In particular
    // [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.14.1-1] [MQTT-3.15.1-1].
    if checked != packet_type.listed_flags() {
        return Err(DecodeError::ReservedFlags(packet_type));
    }
    if packet_type == PacketType::Auth && version.is_some_and(|version| !version.is_v5()) {
        return Err(DecodeError::PacketTypeNotInVersion(packet_type));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
