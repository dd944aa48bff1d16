//! Everything that can be wrong with a packet, by name.
//!
//! Invariant: each [`DecodeError`] maps to the reason code that the peer is told (MQTT 5.0) before the
//! network connection is closed, and, where the standard numbers the broken rule, to that number.

use crate::{PacketType, ReasonCode};

macro_rules! decode_errors {
    ($($(#[$doc:meta])* $error:ident $(($field:ident: $ty:ty))? = $reason:ident, $statement:expr, $text:literal;)*) => {
        /// A frame that is not a control packet of its version.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum DecodeError {
            $($(#[$doc])* $error $(($ty))?,)*
        }

        impl DecodeError {
            /// The reason code to answer with, if the version has reason codes.
            pub const fn reason_code(self) -> ReasonCode {
                match self {
                    $(Self::$error { .. } => ReasonCode::$reason,)*
                }
            }

            /// The number of the broken statement: `MQTT-…` in the OASIS standard of MQTT 5.0, or
            /// `MQTT3-…` in that of 3.1.1 for a rule that only 3.1.1 has; `None` where the standard
            /// states the rule without a number.
            pub const fn statement(self) -> Option<&'static str> {
                match self {
                    $(Self::$error { .. } => $statement,)*
                }
            }
        }

        impl std::fmt::Display for DecodeError {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$error $(($field))? => write!(f, $text),)*
                }
            }
        }
    };
}

decode_errors! {
    /// Packet type 0.
    ReservedPacketType = MalformedPacket, None, "packet type 0 is reserved";
    /// AUTH before MQTT 5.0.
    PacketTypeNotInVersion(kind: PacketType) = ProtocolError, None, "{kind:?} does not exist in this protocol version";
    /// The flags of the fixed header are not the ones listed for the packet type.
    ReservedFlags(kind: PacketType) = MalformedPacket, Some("MQTT-2.1.3-1"), "reserved flags of {kind:?} are not as listed";
    /// The remaining length does not end within four bytes.
    RemainingLengthTooLong = MalformedPacket, None, "remaining length is longer than four bytes";
    /// A variable byte integer in a packet does not end within four bytes.
    VariableByteIntegerTooLong = MalformedPacket, None, "variable byte integer is longer than four bytes";
    /// A variable byte integer takes more bytes than its value needs.
    VariableByteIntegerNotMinimal = MalformedPacket, Some("MQTT-1.5.5-1"), "variable byte integer is not in its shortest form";
    /// The frame handed over is shorter or longer than its fixed header says.
    FrameLengthMismatch = MalformedPacket, None, "frame is not as long as its remaining length says";
    /// The packet ends inside a field.
    Truncated = MalformedPacket, None, "packet ends inside a field";
    /// Bytes are left after the last field.
    TrailingBytes = MalformedPacket, None, "packet goes on after its last field";
    /// A string is not well-formed UTF-8.
    NotUtf8 = MalformedPacket, Some("MQTT-1.5.4-1"), "string is not well-formed UTF-8";
    /// A string holds U+0000.
    NulInString = MalformedPacket, Some("MQTT-1.5.4-2"), "string contains U+0000";
    /// A packet identifier of 0.
    PacketIdentifierZero = ProtocolError, Some("MQTT-2.2.1-3"), "packet identifier is 0";

    /// A property identifier that the standard does not define.
    UnknownProperty(id: u8) = MalformedPacket, None, "property identifier 0x{id:02X} is not defined";
    /// A property that this packet type cannot carry.
    PropertyNotAllowed(id: u8) = MalformedPacket, None, "property 0x{id:02X} is not allowed in this packet";
    /// A property that may stand once stands twice.
    DuplicateProperty(id: u8) = ProtocolError, None, "property 0x{id:02X} is given more than once";
    /// A property value outside its range: a flag other than 0 and 1, a zero where zero means nothing.
    PropertyValueInvalid(id: u8) = ProtocolError, None, "value of property 0x{id:02X} is out of range";
    /// A topic alias of 0.
    TopicAliasZero = TopicAliasInvalid, Some("MQTT-3.3.2-8"), "topic alias is 0";
    /// A response topic that is no topic name.
    ResponseTopicInvalid = ProtocolError, Some("MQTT-3.3.2-14"), "response topic is not a topic name";
    /// Authentication data without an authentication method.
    AuthenticationMethodMissing = ProtocolError, None, "authentication method is missing";
    /// A reason code that this packet type cannot carry.
    ReasonCodeNotAllowed(code: u8) = ProtocolError, None, "reason code 0x{code:02X} is not allowed in this packet";

    /// CONNECT with a protocol name other than `MQTT` and `MQIsdp`: not MQTT, so it gets no answer.
    UnknownProtocolName = MalformedPacket, Some("MQTT-3.1.2-1"), "protocol name is neither MQTT nor MQIsdp";
    /// CONNECT with a known name and another level.
    UnsupportedProtocolLevel(level: u8) = UnsupportedProtocolVersion, Some("MQTT-3.1.2-2"), "protocol level {level} is not supported";
    /// Bit 0 of the connect flags is set.
    ReservedConnectFlag = MalformedPacket, Some("MQTT-3.1.2-3"), "reserved connect flag is set";
    /// Will QoS without a will.
    WillQosWithoutWill = MalformedPacket, Some("MQTT-3.1.2-11"), "will QoS is set without the will flag";
    /// Will QoS 3.
    WillQosInvalid = MalformedPacket, Some("MQTT-3.1.2-12"), "will QoS is 3";
    /// Will retain without a will.
    WillRetainWithoutWill = MalformedPacket, Some("MQTT-3.1.2-13"), "will retain is set without the will flag";
    /// The will topic is empty or has wildcard characters.
    WillTopicInvalid = TopicNameInvalid, Some("MQTT-4.7.0-1"), "will topic is not a topic name";
    /// Password without user name before MQTT 5.0.
    PasswordWithoutUserName = MalformedPacket, Some("MQTT3-3.1.2-22"), "password flag is set without the user name flag";

    /// Reserved bits of the connect acknowledge flags.
    ReservedConnectAcknowledgeFlags = MalformedPacket, Some("MQTT-3.2.2-1"), "reserved connect acknowledge flags are set";
    /// Session present together with a refusal.
    SessionPresentWithError = ProtocolError, Some("MQTT-3.2.2-6"), "session present is set in a refusal";

    /// PUBLISH with both QoS bits set.
    QosInvalid = MalformedPacket, Some("MQTT-3.3.1-4"), "QoS is 3";
    /// DUP with QoS 0.
    DupWithQos0 = MalformedPacket, Some("MQTT-3.3.1-2"), "DUP is set with QoS 0";
    /// A topic name with wildcard characters.
    TopicNameWildcard = TopicNameInvalid, Some("MQTT-3.3.2-2"), "topic name contains a wildcard character";
    /// No topic name, nor a topic alias instead.
    TopicNameEmpty = ProtocolError, Some("MQTT-4.7.3-1"), "topic name is empty";

    /// SUBSCRIBE or UNSUBSCRIBE without a topic filter.
    NoTopicFilter(kind: PacketType) = ProtocolError, Some("MQTT-3.8.3-2"), "{kind:?} without a topic filter";
    /// A topic filter of SUBSCRIBE or UNSUBSCRIBE without a character.
    TopicFilterEmpty(kind: PacketType) = ProtocolError, Some("MQTT-4.7.3-1"), "{kind:?} with an empty topic filter";
    /// Reserved bits of the subscription options.
    ReservedSubscriptionOptions = MalformedPacket, Some("MQTT-3.8.3-5"), "reserved bits of the subscription options are set";
    /// Subscription options with QoS 3.
    SubscriptionQosInvalid = ProtocolError, None, "QoS of a subscription is 3";
    /// Retain handling 3.
    RetainHandlingInvalid = ProtocolError, None, "retain handling is 3";
    /// No local on a shared subscription.
    NoLocalOnSharedSubscription = ProtocolError, Some("MQTT-3.8.3-4"), "no local is set on a shared subscription";
}

impl std::error::Error for DecodeError {}

/// A packet that cannot be written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum EncodeError {
    /// A string or binary value of more than 65,535 bytes.
    FieldTooLong,
    /// A string holds U+0000.
    NulInString,
    /// The remaining length exceeds [`MAX_REMAINING_LENGTH`](crate::MAX_REMAINING_LENGTH).
    PacketTooLarge,
    /// AUTH before MQTT 5.0.
    PacketTypeNotInVersion(PacketType),
    /// QoS 0 with a packet identifier, or QoS 1 or 2 without.
    PacketIdentifierMismatch,
    /// DUP with QoS 0.
    DupWithQos0,
    /// A topic name that is empty (without a topic alias) or has wildcard characters.
    TopicNameInvalid,
    /// SUBSCRIBE or UNSUBSCRIBE without a topic filter.
    NoTopicFilter,
    /// A topic filter without a character.
    TopicFilterEmpty,
    /// A subscription identifier outside 1..=268,435,455.
    SubscriptionIdentifierInvalid,
    /// A reason code that this packet type cannot carry.
    ReasonCodeNotAllowed(ReasonCode),
    /// Password without user name before MQTT 5.0.
    PasswordWithoutUserName,
    /// Authentication data, or an AUTH that says anything, without an authentication method.
    AuthenticationMethodMissing,
    /// Session present together with a refusal.
    SessionPresentWithError,
    /// No local on a shared subscription.
    NoLocalOnSharedSubscription,
}

impl std::fmt::Display for EncodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FieldTooLong => f.write_str("field is longer than 65,535 bytes"),
            Self::NulInString => f.write_str("string contains U+0000"),
            Self::PacketTooLarge => f.write_str("packet is larger than the format allows"),
            Self::PacketTypeNotInVersion(kind) => {
                write!(f, "{kind:?} does not exist in this protocol version")
            }
            Self::PacketIdentifierMismatch => {
                f.write_str("packet identifier and QoS do not go together")
            }
            Self::DupWithQos0 => f.write_str("DUP is set with QoS 0"),
            Self::TopicNameInvalid => f.write_str("topic is empty or has a wildcard character"),
            Self::NoTopicFilter => f.write_str("there is no topic filter"),
            Self::TopicFilterEmpty => f.write_str("topic filter is empty"),
            Self::SubscriptionIdentifierInvalid => {
                f.write_str("subscription identifier is not within 1..=268,435,455")
            }
            Self::ReasonCodeNotAllowed(code) => write!(f, "{code} is not allowed in this packet"),
            Self::PasswordWithoutUserName => f.write_str("password without user name"),
            Self::AuthenticationMethodMissing => f.write_str("authentication method is missing"),
            Self::SessionPresentWithError => f.write_str("session present in a refusal"),
            Self::NoLocalOnSharedSubscription => f.write_str("no local on a shared subscription"),
        }
    }
}

impl std::error::Error for EncodeError {}
