//! Properties of MQTT 5.0 (§2.2.2): one table per packet says which it may carry.
//!
//! Invariant: a set that was decoded holds no duplicate, no property of another packet and no value out
//! of range. The two repeatable properties stay in the frame and are iterated there.
//!
//! Deliberately absent: what a property means, and rules that depend on who sent the packet.

use std::num::{NonZeroU16, NonZeroU32};

use crate::codec::{
    Reader, put_binary, put_length_prefixed, put_string, put_topic, put_u16, put_u32,
    put_variable_byte_integer,
};
use crate::frame::MAX_REMAINING_LENGTH;
use crate::{DecodeError, EncodeError, QoS};

mod repeated;

pub use repeated::{SubscriptionIds, UserProperties};

/// One property as it stands in a packet.
#[derive(Clone, Copy)]
pub(crate) enum Property<'a> {
    PayloadFormatIndicator(bool),
    MessageExpiryInterval(u32),
    ContentType(&'a str),
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    SubscriptionIdentifier(u32),
    SessionExpiryInterval(u32),
    AssignedClientIdentifier(&'a str),
    ServerKeepAlive(u16),
    AuthenticationMethod(&'a str),
    AuthenticationData(&'a [u8]),
    RequestProblemInformation(bool),
    WillDelayInterval(u32),
    RequestResponseInformation(bool),
    ResponseInformation(&'a str),
    ServerReference(&'a str),
    ReasonString(&'a str),
    ReceiveMaximum(NonZeroU16),
    TopicAliasMaximum(u16),
    TopicAlias(NonZeroU16),
    MaximumQos(QoS),
    RetainAvailable(bool),
    UserPair(&'a str, &'a str),
    MaximumPacketSize(NonZeroU32),
    WildcardSubscriptionAvailable(bool),
    SubscriptionIdentifiersAvailable(bool),
    SharedSubscriptionAvailable(bool),
}

impl<'a> Property<'a> {
    /// Reads the value of the property `id` (5.0 table 2-4).
    fn decode(id: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let out_of_range = DecodeError::PropertyValueInvalid(id);
        let flag = |reader: &mut Reader<'a>| match reader.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(out_of_range),
        };
        Ok(match id {
            0x01 => Self::PayloadFormatIndicator(flag(reader)?),
            0x02 => Self::MessageExpiryInterval(reader.u32()?),
            // [MQTT-3.3.2-19] a UTF-8 string.
            0x03 => Self::ContentType(reader.string()?),
            0x08 => {
                // [MQTT-3.3.2-13] a UTF-8 string,
                // [MQTT-3.3.2-14] [MQTT-4.7.3-1] without wildcards, and not empty.
                let topic = reader.topic(DecodeError::ResponseTopicInvalid)?;
                if topic.is_empty() {
                    return Err(DecodeError::ResponseTopicInvalid);
                }
                Self::ResponseTopic(topic)
            }
            0x09 => Self::CorrelationData(reader.binary()?),
            0x0B => match reader.variable_byte_integer()? {
                0 => return Err(out_of_range),
                id => Self::SubscriptionIdentifier(id),
            },
            0x11 => Self::SessionExpiryInterval(reader.u32()?),
            0x12 => Self::AssignedClientIdentifier(reader.string()?),
            0x13 => Self::ServerKeepAlive(reader.u16()?),
            0x15 => Self::AuthenticationMethod(reader.string()?),
            0x16 => Self::AuthenticationData(reader.binary()?),
            0x17 => Self::RequestProblemInformation(flag(reader)?),
            0x18 => Self::WillDelayInterval(reader.u32()?),
            0x19 => Self::RequestResponseInformation(flag(reader)?),
            0x1A => Self::ResponseInformation(reader.string()?),
            0x1C => Self::ServerReference(reader.string()?),
            0x1F => Self::ReasonString(reader.string()?),
            0x21 => Self::ReceiveMaximum(NonZeroU16::new(reader.u16()?).ok_or(out_of_range)?),
            0x22 => Self::TopicAliasMaximum(reader.u16()?),
            // [MQTT-3.3.2-8] no alias 0.
            0x23 => {
                Self::TopicAlias(NonZeroU16::new(reader.u16()?).ok_or(DecodeError::TopicAliasZero)?)
            }
            0x24 => match reader.u8()? {
                0 => Self::MaximumQos(QoS::AtMostOnce),
                1 => Self::MaximumQos(QoS::AtLeastOnce),
                _ => return Err(out_of_range),
            },
            0x25 => Self::RetainAvailable(flag(reader)?),
            // [MQTT-1.5.7-1] two UTF-8 strings.
            0x26 => Self::UserPair(reader.string()?, reader.string()?),
            0x27 => Self::MaximumPacketSize(NonZeroU32::new(reader.u32()?).ok_or(out_of_range)?),
            0x28 => Self::WildcardSubscriptionAvailable(flag(reader)?),
            0x29 => Self::SubscriptionIdentifiersAvailable(flag(reader)?),
            0x2A => Self::SharedSubscriptionAvailable(flag(reader)?),
            _ => return Err(DecodeError::UnknownProperty(id)),
        })
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::PayloadFormatIndicator(value) => put_flag(0x01, value, out),
            Self::MessageExpiryInterval(value) => put_four(0x02, value, out),
            Self::ContentType(value) => put_text(0x03, value, out),
            Self::ResponseTopic(value) => {
                out.push(0x08);
                put_topic(value, false, out)
            }
            Self::CorrelationData(value) => put_data(0x09, value, out),
            Self::SubscriptionIdentifier(value) => {
                let value = value as usize;
                if !(1..=MAX_REMAINING_LENGTH).contains(&value) {
                    return Err(EncodeError::SubscriptionIdentifierInvalid);
                }
                out.push(0x0B);
                put_variable_byte_integer(value, out);
                Ok(())
            }
            Self::SessionExpiryInterval(value) => put_four(0x11, value, out),
            Self::AssignedClientIdentifier(value) => put_text(0x12, value, out),
            Self::ServerKeepAlive(value) => put_two(0x13, value, out),
            Self::AuthenticationMethod(value) => put_text(0x15, value, out),
            Self::AuthenticationData(value) => put_data(0x16, value, out),
            Self::RequestProblemInformation(value) => put_flag(0x17, value, out),
            Self::WillDelayInterval(value) => put_four(0x18, value, out),
            Self::RequestResponseInformation(value) => put_flag(0x19, value, out),
            Self::ResponseInformation(value) => put_text(0x1A, value, out),
            Self::ServerReference(value) => put_text(0x1C, value, out),
            Self::ReasonString(value) => put_text(0x1F, value, out),
            Self::ReceiveMaximum(value) => put_two(0x21, value.get(), out),
            Self::TopicAliasMaximum(value) => put_two(0x22, value, out),
            Self::TopicAlias(value) => put_two(0x23, value.get(), out),
            // Maximum QoS 2 is said by leaving the property out.
            Self::MaximumQos(QoS::ExactlyOnce) => Ok(()),
            Self::MaximumQos(value) => put_flag(0x24, value == QoS::AtLeastOnce, out),
            Self::RetainAvailable(value) => put_flag(0x25, value, out),
            Self::UserPair(name, value) => {
                put_text(0x26, name, out)?;
                put_string(value, out)
            }
            Self::MaximumPacketSize(value) => put_four(0x27, value.get(), out),
            Self::WildcardSubscriptionAvailable(value) => put_flag(0x28, value, out),
            Self::SubscriptionIdentifiersAvailable(value) => put_flag(0x29, value, out),
            Self::SharedSubscriptionAvailable(value) => put_flag(0x2A, value, out),
        }
    }
}

fn put_flag(id: u8, value: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.extend_from_slice(&[id, u8::from(value)]);
    Ok(())
}

fn put_two(id: u8, value: u16, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.push(id);
    put_u16(value, out);
    Ok(())
}

fn put_four(id: u8, value: u32, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.push(id);
    put_u32(value, out);
    Ok(())
}

fn put_text(id: u8, value: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.push(id);
    put_string(value, out)
}

fn put_data(id: u8, value: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.push(id);
    put_binary(value, out)
}

/// The bytes of the property block at the cursor: a variable byte integer, then as many bytes.
#[inline]
fn take_block<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.variable_byte_integer()?;
    reader.take(len as usize)
}

/// Sets a property that may stand once.
#[inline]
fn set_once<T>(slot: &mut Option<T>, value: T, id: u8) -> Result<(), DecodeError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(DecodeError::DuplicateProperty(id)),
    }
}

macro_rules! property_sets {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $property:ident,)*
        $(; repeated $ids:ident = $repeated:ident)?
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name<'a> {
            $($(#[$field_doc])* pub $field: Option<$type>,)*
            $(
                /// Identifiers of the subscriptions that caused this delivery.
                pub $ids: SubscriptionIds<'a>,
            )?
            /// User properties, in the order sent.
            pub user_properties: UserProperties<'a>,
        }

        impl<'a> $name<'a> {
            #[inline]
            pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
                let block = take_block(reader)?;
                // [MQTT-2.2.2-1] no properties are said by a length of 0.
                if block.is_empty() {
                    return Ok(Self::default());
                }
                Self::decode_block(block)
            }

            pub(crate) fn decode_block(block: &'a [u8]) -> Result<Self, DecodeError> {
                let mut set = Self::default();
                let mut reader = Reader::new(block);
                while !reader.is_empty() {
                    let id = reader.u8()?;
                    match Property::decode(id, &mut reader)? {
                        $(Property::$property(value) => set_once(&mut set.$field, value, id)?,)*
                        $(Property::$repeated(_) => set.$ids.extend_to(block),)?
                        Property::UserPair(..) => set.user_properties.extend_to(block),
                        _ => return Err(DecodeError::PropertyNotAllowed(id)),
                    }
                }
                Ok(set)
            }

            #[inline]
            pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                put_length_prefixed(out, 0, |out| {
                    $(if let Some(value) = self.$field {
                        Property::$property(value).encode(out)?;
                    })*
                    $(self.$ids.encode(out);)?
                    self.user_properties.encode(out);
                    Ok(())
                })
            }

            /// Whether there is no property at all.
            pub fn is_empty(&self) -> bool {
                $(self.$field.is_none() &&)* $(self.$ids.is_empty() &&)?
                    self.user_properties.is_empty()
            }
        }
    )*};
}

property_sets! {
    /// Properties of CONNECT (5.0 §3.1.2.11).
    ConnectProperties {
        /// Seconds that the session outlives the network connection; `u32::MAX`: for ever.
        session_expiry_interval: u32 = SessionExpiryInterval,
        /// QoS 1 and 2 messages that the client takes unacknowledged; absent: 65,535.
        receive_maximum: NonZeroU16 = ReceiveMaximum,
        /// Bytes of the largest packet that the client takes; absent: no limit.
        maximum_packet_size: NonZeroU32 = MaximumPacketSize,
        /// Highest topic alias that the client takes; absent: 0, none.
        topic_alias_maximum: u16 = TopicAliasMaximum,
        /// Whether the client asks for response information; absent: false.
        request_response_information: bool = RequestResponseInformation,
        /// Whether reason strings and user properties may come with any packet; absent: true.
        request_problem_information: bool = RequestProblemInformation,
        /// Name of the authentication method.
        authentication_method: &'a str = AuthenticationMethod,
        /// Data of the authentication method.
        authentication_data: &'a [u8] = AuthenticationData,
    }

    /// Properties of the will message (5.0 §3.1.3.2).
    WillProperties {
        /// Seconds before the will message is published; absent: 0.
        will_delay_interval: u32 = WillDelayInterval,
        /// Whether the payload is UTF-8.
        payload_format_indicator: bool = PayloadFormatIndicator,
        /// Lifetime of the message in seconds.
        message_expiry_interval: u32 = MessageExpiryInterval,
        /// Content type.
        content_type: &'a str = ContentType,
        /// Topic name for a response.
        response_topic: &'a str = ResponseTopic,
        /// Tells the requester which request a response belongs to.
        correlation_data: &'a [u8] = CorrelationData,
    }

    /// Properties of CONNACK (5.0 §3.2.2.3).
    ConnAckProperties {
        /// Seconds that the server uses instead of what the client asked for.
        session_expiry_interval: u32 = SessionExpiryInterval,
        /// QoS 1 and 2 messages that the server takes unacknowledged; absent: 65,535.
        receive_maximum: NonZeroU16 = ReceiveMaximum,
        /// Highest QoS of PUBLISH; absent (2 is encoded so): 2.
        maximum_qos: QoS = MaximumQos,
        /// Whether retained messages are supported; absent: true.
        retain_available: bool = RetainAvailable,
        /// Bytes of the largest packet that the server takes; absent: no limit.
        maximum_packet_size: NonZeroU32 = MaximumPacketSize,
        /// Client identifier that the server chose.
        assigned_client_identifier: &'a str = AssignedClientIdentifier,
        /// Highest topic alias that the server takes; absent: 0, none.
        topic_alias_maximum: u16 = TopicAliasMaximum,
        /// For people to read.
        reason_string: &'a str = ReasonString,
        /// Whether wildcards in topic filters are supported; absent: true.
        wildcard_subscription_available: bool = WildcardSubscriptionAvailable,
        /// Whether subscription identifiers are supported; absent: true.
        subscription_identifiers_available: bool = SubscriptionIdentifiersAvailable,
        /// Whether shared subscriptions are supported; absent: true.
        shared_subscription_available: bool = SharedSubscriptionAvailable,
        /// Keep alive in seconds that the client must use.
        server_keep_alive: u16 = ServerKeepAlive,
        /// Basis for a response topic.
        response_information: &'a str = ResponseInformation,
        /// Another server to use.
        server_reference: &'a str = ServerReference,
        /// Name of the authentication method.
        authentication_method: &'a str = AuthenticationMethod,
        /// Data of the authentication method.
        authentication_data: &'a [u8] = AuthenticationData,
    }

    /// Properties of PUBLISH (5.0 §3.3.2.3).
    PublishProperties {
        /// Whether the payload is UTF-8.
        payload_format_indicator: bool = PayloadFormatIndicator,
        /// Lifetime of the message in seconds.
        message_expiry_interval: u32 = MessageExpiryInterval,
        /// Stands for the topic name on this network connection.
        topic_alias: NonZeroU16 = TopicAlias,
        /// Topic name for a response.
        response_topic: &'a str = ResponseTopic,
        /// Tells the requester which request a response belongs to.
        correlation_data: &'a [u8] = CorrelationData,
        /// Content type.
        content_type: &'a str = ContentType,
        ; repeated subscription_ids = SubscriptionIdentifier
    }

    /// Properties of SUBSCRIBE (5.0 §3.8.2.1).
    SubscribeProperties {
        /// Identifier of the subscriptions in this packet: 1..=268,435,455.
        subscription_id: u32 = SubscriptionIdentifier,
    }

    /// Properties of UNSUBSCRIBE (5.0 §3.10.2.1): user properties only.
    UnsubscribeProperties {}

    /// Properties of PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK (5.0 §3.4.2.2 and the like).
    AckProperties {
        /// For people to read.
        reason_string: &'a str = ReasonString,
    }

    /// Properties of DISCONNECT (5.0 §3.14.2.2).
    DisconnectProperties {
        /// Seconds that the session outlives this network connection after all; clients only.
        session_expiry_interval: u32 = SessionExpiryInterval,
        /// For people to read.
        reason_string: &'a str = ReasonString,
        /// Another server to use; servers only.
        server_reference: &'a str = ServerReference,
    }

    /// Properties of AUTH (5.0 §3.15.2.2).
    AuthProperties {
        /// Name of the authentication method.
        authentication_method: &'a str = AuthenticationMethod,
        /// Data of the authentication method.
        authentication_data: &'a [u8] = AuthenticationData,
        /// For people to read.
        reason_string: &'a str = ReasonString,
    }
}

#[cfg(test)]
mod tests;
