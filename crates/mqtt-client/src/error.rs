//! What a server can do wrong, and why a command is refused.
//!
//! What is wrong with the bytes of a packet is a `DecodeError` of the codec.

use std::error::Error;
use std::fmt;

use mqtt_proto::{DecodeError, EncodeError, PacketType, QoS, ReasonCode};

macro_rules! violations {
    ($($(#[$doc:meta])* $violation:ident $(($field:ident: $type:ty))? = $reason:ident, $statement:expr, $text:literal;)*) => {
        /// A breach of the protocol by the server, in a packet that is well-formed by itself.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum Violation {
            $($(#[$doc])* $violation $(($type))?,)*
        }

        impl Violation {
            /// The reason code of a DISCONNECT that answers it.
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

        impl fmt::Display for Violation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$violation $(($field))? => write!(f, $text),)*
                }
            }
        }
    };
}

violations! {
    /// Another packet before CONNACK.
    NotConnAck(kind: PacketType) = ProtocolError, Some("MQTT-3.2.0-1"), "{kind:?} before CONNACK";
    /// A second CONNACK on one network connection.
    SecondConnAck = ProtocolError, Some("MQTT-3.2.0-2"), "second CONNACK on one network connection";
    /// Session Present after Clean Start.
    SessionPresentAfterCleanStart = ProtocolError, Some("MQTT-3.2.2-2"), "session present is set after a clean start";
    /// A packet type that only clients send.
    ClientOnlyPacket(kind: PacketType) = ProtocolError, None, "{kind:?} is sent by clients only";
    /// AUTH to a client whose CONNECT named no authentication method.
    UnexpectedAuth = ProtocolError, Some("MQTT-4.12.0-6"), "AUTH without an authentication method in CONNECT";
    /// More messages of QoS 1 and 2 than the client's Receive Maximum.
    ReceiveMaximumExceeded = ReceiveMaximumExceeded, Some("MQTT-3.3.4-9"), "more unacknowledged messages than Receive Maximum";
    /// A packet larger than the client's Maximum Packet Size.
    PacketTooLarge(bytes: usize) = PacketTooLarge, Some("MQTT-3.1.2-24"), "packet of {bytes} bytes is above Maximum Packet Size";
    /// A topic alias, although the client allows none.
    UnexpectedTopicAlias = TopicAliasInvalid, Some("MQTT-3.1.2-27"), "topic alias without a Topic Alias Maximum";
    /// SUBACK or UNSUBACK with more or fewer reason codes than there were topic filters.
    ReasonCodesMismatch(kind: PacketType) = ProtocolError, Some("MQTT-3.8.4-6"), "{kind:?} has not one reason code for each topic filter";
    /// The server asks for more and more acknowledgements, and reads none.
    AnswersNotRead = QuotaExceeded, None, "more acknowledgements wait to be sent than the server can be owed";
}

impl Error for Violation {}

/// Why a network connection cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    /// The server sent what is no packet.
    Decode(DecodeError),
    /// The server sent a packet that has no place here.
    Violation(Violation),
}

impl ProtocolError {
    /// The reason code of a DISCONNECT that answers it.
    #[must_use]
    pub const fn reason_code(self) -> ReasonCode {
        match self {
            Self::Decode(error) => error.reason_code(),
            Self::Violation(violation) => violation.reason_code(),
        }
    }

    /// The statement of the standard that is broken, where it has a number.
    #[must_use]
    pub const fn statement(self) -> Option<&'static str> {
        match self {
            Self::Decode(error) => error.statement(),
            Self::Violation(violation) => violation.statement(),
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(_) => f.write_str("malformed packet"),
            Self::Violation(_) => f.write_str("breach of the protocol"),
        }
    }
}

impl Error for ProtocolError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Decode(error) => error,
            Self::Violation(violation) => violation,
        })
    }
}

impl From<DecodeError> for ProtocolError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<Violation> for ProtocolError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// Why a command was refused. Nothing of it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// There is no network connection that CONNACK has accepted, or DISCONNECT is sent.
    NotConnected,
    /// As much as may be is in flight, or waits to be sent or sent again.
    NoRoom,
    /// The QoS is above the server's Maximum QoS, which is this [MQTT-3.2.2-11].
    QosNotSupported(QoS),
    /// The server keeps no retained messages [MQTT-3.2.2-14].
    RetainNotSupported,
    /// The packet is above the server's Maximum Packet Size [MQTT-3.2.2-15].
    PacketTooLarge {
        /// Bytes of the packet.
        bytes: usize,
        /// Bytes that the server takes.
        maximum: u32,
    },
    /// The packet cannot be written.
    Encode(EncodeError),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("there is no connection"),
            Self::NoRoom => f.write_str("too much is on its way"),
            Self::QosNotSupported(maximum) => {
                write!(f, "the server takes QoS up to {}", maximum.as_u8())
            }
            Self::RetainNotSupported => f.write_str("the server does not retain messages"),
            Self::PacketTooLarge { bytes, maximum } => {
                write!(
                    f,
                    "the packet has {bytes} bytes; the server takes up to {maximum}"
                )
            }
            Self::Encode(_) => f.write_str("the packet cannot be written"),
        }
    }
}

impl Error for CommandError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Encode(error) => Some(error),
            _ => None,
        }
    }
}

impl From<EncodeError> for CommandError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}
