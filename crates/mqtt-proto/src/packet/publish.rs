//! PUBLISH (§3.3): an application message on its way.
//!
//! Deliberately absent: rules that depend on the direction (subscription identifiers from a client,
//! [MQTT-3.3.4-6]) or on the connection (topic alias maximum, [MQTT-3.3.2-9]); they are the session's.

use crate::codec::{Reader, put_frame, put_topic, put_u16};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, ProtocolVersion, PublishProperties, QoS,
};

const DUP: u8 = 0b1000;
const RETAIN: u8 = 0b0001;

/// Carries an application message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publish<'a> {
    /// Whether this may be a re-delivery.
    pub dup: bool,
    /// Quality of service of this delivery.
    pub qos: QoS,
    /// Whether the message is to be, or was, retained.
    pub retain: bool,
    /// Topic name; empty only with a topic alias.
    pub topic: &'a str,
    /// Present if and only if QoS is above 0.
    pub packet_id: Option<PacketId>,
    /// Empty before 5.0.
    pub properties: PublishProperties<'a>,
    /// The application message.
    pub payload: &'a [u8],
}

/// First byte of a PUBLISH.
#[inline]
pub(crate) const fn first_byte(dup: bool, qos: QoS, retain: bool) -> u8 {
    (PacketType::Publish as u8) << 4 | (dup as u8) << 3 | qos.as_u8() << 1 | retain as u8
}

impl<'a> Publish<'a> {
    /// Decodes what follows the fixed header whose `flags` are these.
    ///
    /// # Errors
    /// The first rule that the packet breaks.
    #[inline]
    pub fn decode(
        flags: u8,
        body: &'a [u8],
        version: ProtocolVersion,
    ) -> Result<Self, DecodeError> {
        let dup = flags & DUP != 0;
        // [MQTT-3.3.1-4] [MQTT3-3.3.1-4] no QoS 3.
        let qos = QoS::from_u8(flags >> 1 & 0b11).ok_or(DecodeError::QosInvalid)?;
        // [MQTT-3.3.1-2] [MQTT3-3.3.1-2] QoS 0 is never sent again.
        if dup && qos == QoS::AtMostOnce {
            return Err(DecodeError::DupWithQos0);
        }
        let mut reader = Reader::new(body);
        // [MQTT-3.3.2-1] [MQTT3-3.3.2-1] the topic name comes first, a UTF-8 string,
        // [MQTT-3.3.2-2] [MQTT3-3.3.2-2] [MQTT3-4.7.1-1] without wildcard characters.
        let topic = reader.topic(DecodeError::TopicNameWildcard)?;
        // [MQTT-2.2.1-2] [MQTT3-2.3.1-5] QoS 0 has no packet identifier: those bytes are payload.
        let packet_id = match qos {
            QoS::AtMostOnce => None,
            QoS::AtLeastOnce | QoS::ExactlyOnce => Some(reader.packet_id()?),
        };
        let properties = if version.is_v5() {
            PublishProperties::decode(&mut reader)?
        } else {
            PublishProperties::default()
        };
        // [MQTT-4.7.3-1] [MQTT3-4.7.3-1] empty only where a topic alias stands for it (§3.3.2.1).
        if topic.is_empty() && properties.topic_alias.is_none() {
            return Err(DecodeError::TopicNameEmpty);
        }
        let retain = flags & RETAIN != 0;
        Ok(Self {
            dup,
            qos,
            retain,
            topic,
            packet_id,
            properties,
            payload: reader.rest(),
        })
    }

    /// Appends the packet to `out`. Before 5.0, properties are left out.
    ///
    /// # Errors
    /// The packet breaks a rule of PUBLISH or has a field that cannot be written; `out` is then
    /// unchanged.
    #[inline]
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.packet_id.is_some() != (self.qos > QoS::AtMostOnce) {
            return Err(EncodeError::PacketIdentifierMismatch);
        }
        if self.dup && self.qos == QoS::AtMostOnce {
            return Err(EncodeError::DupWithQos0);
        }
        let aliased = version.is_v5() && self.properties.topic_alias.is_some();
        // Room for the longest header, so that short packets grow `out` once at most.
        out.reserve(self.topic.len() + self.payload.len() + 16);
        put_frame(
            first_byte(self.dup, self.qos, self.retain),
            self.payload,
            out,
            |out| {
                put_topic(self.topic, aliased, out)?;
                if let Some(packet_id) = self.packet_id {
                    put_u16(packet_id.get(), out);
                }
                if version.is_v5() {
                    self.properties.encode(out)
                } else {
                    Ok(())
                }
            },
        )
    }
}

#[cfg(test)]
mod tests;
