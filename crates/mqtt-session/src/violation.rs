//! What a client can do wrong in a packet that is well-formed by itself.
//!
//! One list gives each violation its reason code, the statement it breaks and its words. What is
//! wrong with the bytes of a packet is a `DecodeError` of the codec instead.

use mqtt_proto::{PacketType, ReasonCode};

macro_rules! violations {
    ($($(#[$doc:meta])* $violation:ident $(($field:ident: $type:ty))? = $reason:ident, $statement:expr, $text:literal;)*) => {
        /// A breach of the protocol that ends the network connection [MQTT-4.13.1-1].
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum Violation {
            $($(#[$doc])* $violation $(($type))?,)*
        }

        impl Violation {
            /// The reason code of the DISCONNECT that answers it.
            #[must_use]
            pub const fn reason_code(self) -> ReasonCode {
                match self {
                    $(Self::$violation { .. } => ReasonCode::$reason,)*
                }
            }

            /// The statement of MQTT 5.0 that it breaks, where there is one.
            #[must_use]
            pub const fn statement(self) -> Option<&'static str> {
                match self {
                    $(Self::$violation { .. } => $statement,)*
                }
            }
        }

        impl std::fmt::Display for Violation {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Self::$violation $(($field))? => write!(f, $text),)*
                }
            }
        }
    };
}

violations! {
    /// A second CONNECT on one network connection.
    SecondConnect = ProtocolError, Some("MQTT-3.1.0-2"), "second CONNECT on one network connection";
    /// A packet type that only servers send.
    ServerOnlyPacket(kind: PacketType) = ProtocolError, None, "{kind:?} is sent by servers only";
    /// AUTH by a client whose CONNECT named no authentication method.
    UnexpectedAuth = ProtocolError, Some("MQTT-4.12.0-7"), "AUTH without an authentication method in CONNECT";
    /// PUBLISH with more than Maximum QoS.
    QosNotSupported = QoSNotSupported, Some("MQTT-3.2.2-11"), "QoS is above the server's Maximum QoS";
    /// PUBLISH with RETAIN 1 where Retain Available is 0.
    RetainNotSupported = RetainNotSupported, Some("MQTT-3.2.2-14"), "retained messages are not supported";
    /// PUBLISH with a subscription identifier.
    SubscriptionIdFromClient = ProtocolError, Some("MQTT-3.3.4-6"), "subscription identifier in a client's PUBLISH";
    /// More QoS 1 and 2 publications than the server's Receive Maximum.
    ReceiveMaximumExceeded = ReceiveMaximumExceeded, Some("MQTT-3.3.4-7"), "more unacknowledged publications than Receive Maximum";
    /// A topic alias above the server's Topic Alias Maximum.
    TopicAliasTooHigh = TopicAliasInvalid, Some("MQTT-3.2.2-17"), "topic alias is above Topic Alias Maximum";
    /// A topic alias without a topic name before it was given one.
    TopicAliasUnknown = ProtocolError, None, "topic alias stands for no topic name yet";
    /// Before MQTT 5.0: a new message under a packet identifier that is in use.
    PacketIdentifierInUse = PacketIdentifierInUse, Some("MQTT-2.2.1-3"), "packet identifier is in use";
    /// An acknowledgement that does not belong to the QoS or the state of the message.
    UnexpectedAcknowledgement(kind: PacketType) = ProtocolError, None, "{kind:?} does not fit the state of its packet identifier";
    /// PUBREL before the PUBREC was sent.
    PubRelBeforePubRec = ProtocolError, None, "PUBREL before PUBREC was sent";
    /// No Local on a shared subscription.
    NoLocalOnSharedSubscription = ProtocolError, Some("MQTT-3.8.3-4"), "no local is set on a shared subscription";
    /// DISCONNECT gives a session expiry interval to a session whose CONNECT said 0.
    SessionExpiryFromZero = ProtocolError, None, "session expiry interval was 0 in CONNECT and is not 0 in DISCONNECT";
}

impl std::error::Error for Violation {}
