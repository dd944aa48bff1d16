//! The bytes of an application message, laid out once and shared by all its receivers.
//!
//! Invariant: one heap allocation holds topic name, forwarded properties and payload in the order in
//! which a PUBLISH carries them, so that a delivery is a few bytes of header and two or three copies.
//!
//! Deliberately absent: what differs between receivers (flags, packet identifier, remaining expiry,
//! topic alias, subscription identifiers, a User Property of the server's): that is [`DeliveryHeader`].

use std::num::NonZeroU16;

use crate::codec::{put_u16, put_u32, put_variable_byte_integer, variable_byte_integer_len};
use crate::frame::MAX_REMAINING_LENGTH;
use crate::packet::publish_first_byte;
use crate::properties::Property;
use crate::{LastWill, PacketId, ProtocolVersion, Publish, PublishProperties, QoS, UserProperties};

/// An application message as every receiver gets it: topic name, the properties that are forwarded
/// unaltered (payload format indicator, content type, response topic, correlation data, user properties
/// in order), payload.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageBody {
    /// Length of the topic in two bytes, topic, properties as in a property block, payload.
    bytes: Box<[u8]>,
    properties_len: u32,
    topic_len: u16,
}

/// What one receiver's PUBLISH has of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeliveryHeader<'a> {
    /// Whether this may be a re-delivery; not with QoS 0.
    pub dup: bool,
    /// Quality of service of this delivery.
    pub qos: QoS,
    /// RETAIN flag.
    pub retain: bool,
    /// Present if and only if QoS is above 0.
    pub packet_id: Option<PacketId>,
    /// Remaining lifetime in seconds; 5.0 only.
    pub message_expiry_interval: Option<u32>,
    /// Topic alias, and whether the topic name is sent too (else it is empty); 5.0 only.
    pub topic_alias: Option<(NonZeroU16, bool)>,
    /// Identifiers of the matching subscriptions, each 1..=268,435,455; 5.0 only.
    pub subscription_ids: &'a [u32],
    /// A User Property before those of the message: name and value, each of at most 65,535 bytes and without U+0000; 5.0
    /// only.
    pub user_property: Option<(&'a str, &'a str)>,
}

impl DeliveryHeader<'_> {
    /// Bytes of the properties that the header adds.
    #[inline]
    fn properties_len(&self) -> usize {
        let ids = self.subscription_ids.iter();
        let ids_len: usize = ids
            .map(|id| 1 + variable_byte_integer_len(*id as usize))
            .sum();
        let expiry_len = if self.message_expiry_interval.is_some() {
            5
        } else {
            0
        };
        let alias_len = if self.topic_alias.is_some() { 3 } else { 0 };
        let pair_len = match self.user_property {
            Some((name, value)) => 1 + 2 + name.len() + 2 + value.len(),
            None => 0,
        };
        ids_len + expiry_len + alias_len + pair_len
    }

    /// Whether the topic name goes into the frame.
    #[inline]
    fn names_topic(&self, version: ProtocolVersion) -> bool {
        !version.is_v5() || !matches!(self.topic_alias, Some((_, false)))
    }
}

/// The properties that are forwarded unaltered.
#[derive(Default)]
struct Forwarded<'a> {
    payload_format_indicator: Option<bool>,
    content_type: Option<&'a str>,
    response_topic: Option<&'a str>,
    correlation_data: Option<&'a [u8]>,
    user_properties: UserProperties<'a>,
}

impl Forwarded<'_> {
    /// Bytes that [`append_to`](Self::append_to) appends.
    #[inline]
    fn encoded_len(&self) -> usize {
        let indicator = if self.payload_format_indicator.is_some() {
            2
        } else {
            0
        };
        indicator
            + self.content_type.map_or(0, |text| 3 + text.len())
            + self.response_topic.map_or(0, |text| 3 + text.len())
            + self.correlation_data.map_or(0, |data| 3 + data.len())
            + self.user_properties.encoded_len()
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        // [MQTT-3.3.2-4] [MQTT-3.3.2-20] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18]
        // forwarded unaltered, user properties in their order.
        let properties = [
            self.payload_format_indicator
                .map(Property::PayloadFormatIndicator),
            self.content_type.map(Property::ContentType),
            self.response_topic.map(Property::ResponseTopic),
            self.correlation_data.map(Property::CorrelationData),
        ];
        for property in properties.into_iter().flatten() {
            let written = property.encode(bytes);
            debug_assert_eq!(
                written,
                Ok(()),
                "a message body is made of a checked packet"
            );
        }
        self.user_properties.encode(bytes);
    }
}

impl MessageBody {
    /// The message of a PUBLISH, under `topic`: the packet's own topic name, or the one its topic alias
    /// stands for.
    #[inline]
    pub fn from_publish(publish: &Publish<'_>, topic: &str) -> Self {
        let properties = &publish.properties;
        Self::lay_out(
            topic,
            &Forwarded {
                payload_format_indicator: properties.payload_format_indicator,
                content_type: properties.content_type,
                response_topic: properties.response_topic,
                correlation_data: properties.correlation_data,
                user_properties: properties.user_properties,
            },
            publish.payload,
        )
    }

    /// The will message of a CONNECT.
    pub fn from_will(will: &LastWill<'_>) -> Self {
        let properties = &will.properties;
        Self::lay_out(
            will.topic,
            &Forwarded {
                payload_format_indicator: properties.payload_format_indicator,
                content_type: properties.content_type,
                response_topic: properties.response_topic,
                correlation_data: properties.correlation_data,
                user_properties: properties.user_properties,
            },
            will.payload,
        )
    }

    /// A message without properties. `topic` is a topic name
    /// ([`validate_topic_name`](crate::validate_topic_name)).
    pub fn new(topic: &str, payload: &[u8]) -> Self {
        Self::lay_out(topic, &Forwarded::default(), payload)
    }

    #[inline]
    fn lay_out(topic: &str, forwarded: &Forwarded<'_>, payload: &[u8]) -> Self {
        let topic_len = topic.len() as u16;
        assert!(
            usize::from(topic_len) == topic.len(),
            "a topic name has at most 65,535 bytes"
        );
        let properties_len = forwarded.encoded_len();
        let mut bytes = Vec::with_capacity(2 + topic.len() + properties_len + payload.len());
        put_u16(topic_len, &mut bytes);
        bytes.extend_from_slice(topic.as_bytes());
        if properties_len > 0 {
            forwarded.append_to(&mut bytes);
        }
        bytes.extend_from_slice(payload);
        // The capacity is exact, so the box takes the allocation over.
        Self {
            bytes: bytes.into_boxed_slice(),
            properties_len: properties_len as u32,
            topic_len,
        }
    }

    /// All bytes, for [`from_bytes`](Self::from_bytes).
    #[inline]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A message whose [`as_bytes`](Self::as_bytes) and
    /// [`forwarded_properties_len`](Self::forwarded_properties_len) were kept elsewhere. `None`: they
    /// are not of a message.
    pub fn from_bytes(bytes: Box<[u8]>, properties_len: u32) -> Option<Self> {
        let (topic_len, rest) = bytes.split_first_chunk()?;
        let topic_len = u16::from_be_bytes(*topic_len);
        let (topic, rest) = rest.split_at_checked(usize::from(topic_len))?;
        let properties = rest.get(..usize::try_from(properties_len).ok()?)?;
        std::str::from_utf8(topic).ok()?;
        PublishProperties::decode_block(properties).ok()?;
        Some(Self {
            bytes,
            properties_len,
            topic_len,
        })
    }

    /// Length and topic name, and all that follows.
    #[inline]
    fn split_topic(&self) -> (&[u8], &[u8]) {
        self.bytes
            .split_at_checked(2 + usize::from(self.topic_len))
            .unwrap_or_default()
    }

    /// Topic name.
    pub fn topic(&self) -> &str {
        // The bytes were a `&str` when they were laid out.
        std::str::from_utf8(self.topic_bytes()).unwrap_or_default()
    }

    /// Topic name in UTF-8, without the look at each byte that a `&str` costs.
    #[inline]
    pub fn topic_bytes(&self) -> &[u8] {
        self.split_topic().0.get(2..).unwrap_or_default()
    }

    /// The application message.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.split_topic()
            .1
            .get(self.forwarded_properties_len()..)
            .unwrap_or_default()
    }

    /// Bytes that the forwarded properties take in a PUBLISH of 5.0.
    #[inline]
    pub const fn forwarded_properties_len(&self) -> usize {
        self.properties_len as usize
    }

    /// The forwarded properties.
    pub fn properties(&self) -> PublishProperties<'_> {
        let block = self.split_topic().1.get(..self.forwarded_properties_len());
        PublishProperties::decode_block(block.unwrap_or_default()).unwrap_or_default()
    }

    /// Bytes on the heap.
    #[inline]
    pub const fn heap_len(&self) -> usize {
        self.bytes.len()
    }

    /// Remaining length of the frame, and length of its properties.
    #[inline]
    fn lengths(&self, version: ProtocolVersion, header: &DeliveryHeader<'_>) -> (usize, usize) {
        let (topic, rest) = self.split_topic();
        let topic_len = if header.names_topic(version) {
            topic.len()
        } else {
            2
        };
        let packet_id_len = if header.packet_id.is_some() { 2 } else { 0 };
        let fixed = topic_len + packet_id_len + rest.len();
        if version.is_v5() {
            let added = header.properties_len();
            let properties_len = added + self.forwarded_properties_len();
            (
                fixed + added + variable_byte_integer_len(properties_len),
                properties_len,
            )
        } else {
            (fixed - self.forwarded_properties_len(), 0)
        }
    }

    /// Bytes of the whole frame that [`encode`](Self::encode) appends, to be compared with Maximum
    /// Packet Size. Above 5 + [`MAX_REMAINING_LENGTH`] there is no such frame.
    #[inline]
    pub fn encoded_len(&self, version: ProtocolVersion, header: &DeliveryHeader<'_>) -> usize {
        let (remaining_len, _) = self.lengths(version, header);
        1 + variable_byte_integer_len(remaining_len) + remaining_len
    }

    /// Appends a whole PUBLISH frame. `header` goes together: a packet identifier if and only if QoS is
    /// above 0, no DUP with QoS 0, subscription identifiers in range. Nothing is appended when the
    /// remaining length would exceed [`MAX_REMAINING_LENGTH`]; compare
    /// [`encoded_len`](Self::encoded_len) first.
    #[inline]
    pub fn encode(&self, version: ProtocolVersion, header: &DeliveryHeader<'_>, out: &mut Vec<u8>) {
        debug_assert_eq!(header.packet_id.is_some(), header.qos > QoS::AtMostOnce);
        debug_assert!(!header.dup || header.qos > QoS::AtMostOnce);
        let (remaining_len, properties_len) = self.lengths(version, header);
        if remaining_len > MAX_REMAINING_LENGTH {
            return;
        }
        // Sized first, so that the appends below never grow `out`.
        out.reserve(5 + remaining_len);
        out.push(publish_first_byte(header.dup, header.qos, header.retain));
        put_variable_byte_integer(remaining_len, out);
        let (topic, rest) = self.split_topic();
        if header.names_topic(version) {
            if !version.is_v5() && header.packet_id.is_none() && self.properties_len == 0 {
                out.extend_from_slice(&self.bytes);
                return;
            }
            out.extend_from_slice(topic);
        } else {
            put_u16(0, out);
        }
        if let Some(packet_id) = header.packet_id {
            put_u16(packet_id.get(), out);
        }
        if version.is_v5() {
            put_variable_byte_integer(properties_len, out);
            if let Some(seconds) = header.message_expiry_interval {
                out.push(0x02);
                put_u32(seconds, out);
            }
            if let Some((alias, _)) = header.topic_alias {
                out.push(0x23);
                put_u16(alias.get(), out);
            }
            for id in header.subscription_ids {
                out.push(0x0B);
                put_variable_byte_integer(*id as usize, out);
            }
            if let Some((name, value)) = header.user_property {
                let written = Property::UserPair(name, value).encode(out);
                debug_assert_eq!(written, Ok(()), "the server chooses a text of MQTT");
            }
            out.extend_from_slice(rest);
        } else {
            out.extend_from_slice(self.payload());
        }
    }
}

impl std::fmt::Debug for MessageBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageBody")
            .field("topic", &self.topic())
            .field("properties", &self.properties())
            .field("payload", &self.payload())
            .finish()
    }
}

#[cfg(test)]
mod tests;
