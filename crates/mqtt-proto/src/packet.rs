//! The control packets (§3), one file each.
//!
//! Invariant: a decoded packet borrows from its frame and obeys every rule that can be judged from the
//! packet alone. Rules that need to know the sender, the session or a limit are judged elsewhere.

mod ack;
mod auth;
mod connack;
mod connect;
mod disconnect;
mod pingreq;
mod pingresp;
mod puback;
mod pubcomp;
mod publish;
mod pubrec;
mod pubrel;
mod reason_codes;
mod suback;
mod subscribe;
mod unsuback;
mod unsubscribe;

pub use auth::Auth;
pub use connack::ConnAck;
pub use connect::{Connect, LastWill};
pub use disconnect::Disconnect;
pub use puback::PubAck;
pub use pubcomp::PubComp;
pub use publish::Publish;
pub(crate) use publish::first_byte as publish_first_byte;
pub use pubrec::PubRec;
pub use pubrel::PubRel;
pub use reason_codes::ReasonCodes;
pub use suback::SubAck;
pub use subscribe::{
    RetainHandling, Subscribe, SubscribeFilters, SubscribeFiltersIter, SubscriptionOptions,
};
pub use unsuback::UnsubAck;
pub use unsubscribe::{Unsubscribe, UnsubscribeFilters, UnsubscribeFiltersIter};

use crate::{DecodeError, EncodeError, Frame, PacketType, ProtocolVersion, peek_frame};

/// One decoded packet, borrowing from the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// Connection request.
    Connect(Connect<'a>),
    /// Connect acknowledgement.
    ConnAck(ConnAck<'a>),
    /// Publish message.
    Publish(Publish<'a>),
    /// Publish acknowledgement (QoS 1).
    PubAck(PubAck<'a>),
    /// Publish received (QoS 2, part 1).
    PubRec(PubRec<'a>),
    /// Publish release (QoS 2, part 2).
    PubRel(PubRel<'a>),
    /// Publish complete (QoS 2, part 3).
    PubComp(PubComp<'a>),
    /// Subscribe request.
    Subscribe(Subscribe<'a>),
    /// Subscribe acknowledgement.
    SubAck(SubAck<'a>),
    /// Unsubscribe request.
    Unsubscribe(Unsubscribe<'a>),
    /// Unsubscribe acknowledgement.
    UnsubAck(UnsubAck<'a>),
    /// PING request.
    PingReq,
    /// PING response.
    PingResp,
    /// Disconnect notification.
    Disconnect(Disconnect<'a>),
    /// Authentication exchange (5.0 only).
    Auth(Auth<'a>),
}

impl Packet<'_> {
    /// Decodes one whole frame (fixed header included; exactly [`Frame::len`]
    /// bytes) of the given version. CONNECT carries its own version, so `version` is ignored for it.
    ///
    /// # Errors
    /// The first rule that the frame breaks.
    #[inline]
    pub fn decode(frame: &[u8], version: ProtocolVersion) -> Result<Packet<'_>, DecodeError> {
        // CONNECT is peeked at without a version: what its header may look like, its own level says.
        let known = match frame.first() {
            Some(first) if first >> 4 == PacketType::Connect as u8 => None,
            _ => Some(version),
        };
        let header = peek_frame(frame, known)?.ok_or(DecodeError::FrameLengthMismatch)?;
        let body = match frame.get(header.header_len..) {
            Some(body) if body.len() == header.remaining_len => body,
            _ => return Err(DecodeError::FrameLengthMismatch),
        };
        Self::decode_body(&header, body, version)
    }

    /// Decodes what follows a fixed header, which [`peek_frame`] has read: exactly [`Frame::remaining_len`] bytes.
    ///
    /// # Errors
    /// The first rule that the packet breaks.
    #[inline]
    pub fn decode_body<'b>(
        header: &Frame,
        body: &'b [u8],
        version: ProtocolVersion,
    ) -> Result<Packet<'b>, DecodeError> {
        Ok(match header.packet_type {
            PacketType::Publish => Packet::Publish(Publish::decode(header.flags, body, version)?),
            PacketType::Connect => Packet::Connect(Connect::decode(header, body)?),
            PacketType::ConnAck => Packet::ConnAck(ConnAck::decode(body, version)?),
            PacketType::PubAck => Packet::PubAck(PubAck::decode(body, version)?),
            PacketType::PubRec => Packet::PubRec(PubRec::decode(body, version)?),
            PacketType::PubRel => Packet::PubRel(PubRel::decode(body, version)?),
            PacketType::PubComp => Packet::PubComp(PubComp::decode(body, version)?),
            PacketType::Subscribe => Packet::Subscribe(Subscribe::decode(body, version)?),
            PacketType::SubAck => Packet::SubAck(SubAck::decode(body, version)?),
            PacketType::Unsubscribe => Packet::Unsubscribe(Unsubscribe::decode(body, version)?),
            PacketType::UnsubAck => Packet::UnsubAck(UnsubAck::decode(body, version)?),
            PacketType::PingReq => pingreq::decode(body)?,
            PacketType::PingResp => pingresp::decode(body)?,
            PacketType::Disconnect => Packet::Disconnect(Disconnect::decode(body, version)?),
            PacketType::Auth => Packet::Auth(Auth::decode(body)?),
        })
    }

    /// Appends the packet to `out`. What `version` has no place for (properties and most reason codes
    /// before 5.0) is left out. CONNECT carries its own version, so `version` is ignored for it.
    ///
    /// # Errors
    /// The packet breaks a rule of its type; `out` is then unchanged.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Connect(packet) => packet.encode(out),
            Self::ConnAck(packet) => packet.encode(version, out),
            Self::Publish(packet) => packet.encode(version, out),
            Self::PubAck(packet) => packet.encode(version, out),
            Self::PubRec(packet) => packet.encode(version, out),
            Self::PubRel(packet) => packet.encode(version, out),
            Self::PubComp(packet) => packet.encode(version, out),
            Self::Subscribe(packet) => packet.encode(version, out),
            Self::SubAck(packet) => packet.encode(version, out),
            Self::Unsubscribe(packet) => packet.encode(version, out),
            Self::UnsubAck(packet) => packet.encode(version, out),
            Self::PingReq => {
                pingreq::encode(out);
                Ok(())
            }
            Self::PingResp => {
                pingresp::encode(out);
                Ok(())
            }
            Self::Disconnect(packet) => packet.encode(version, out),
            Self::Auth(packet) => packet.encode(version, out),
        }
    }

    /// The type of the packet.
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Connect(_) => PacketType::Connect,
            Self::ConnAck(_) => PacketType::ConnAck,
            Self::Publish(_) => PacketType::Publish,
            Self::PubAck(_) => PacketType::PubAck,
            Self::PubRec(_) => PacketType::PubRec,
            Self::PubRel(_) => PacketType::PubRel,
            Self::PubComp(_) => PacketType::PubComp,
            Self::Subscribe(_) => PacketType::Subscribe,
            Self::SubAck(_) => PacketType::SubAck,
            Self::Unsubscribe(_) => PacketType::Unsubscribe,
            Self::UnsubAck(_) => PacketType::UnsubAck,
            Self::PingReq => PacketType::PingReq,
            Self::PingResp => PacketType::PingResp,
            Self::Disconnect(_) => PacketType::Disconnect,
            Self::Auth(_) => PacketType::Auth,
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
