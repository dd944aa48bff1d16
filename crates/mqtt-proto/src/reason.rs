//! Reason codes of MQTT 5.0 (§2.4) and the CONNACK return codes of MQTT 3.1 and 3.1.1.
//!
//! Deliberately absent: which code a server chooses. Which codes a packet may carry stands with the
//! packet.

macro_rules! reason_codes {
    ($($(#[$doc:meta])* $code:ident = $value:literal, $name:literal;)*) => {
        /// A reason code of MQTT 5.0. 0x00 is also called Normal disconnection and Granted QoS 0.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, Default)]
        #[repr(u8)]
        pub enum ReasonCode {
            $($(#[$doc])* $code = $value,)*
        }

        impl ReasonCode {
            /// Every reason code, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$code),*];

            /// The reason code with this number, if the standard defines one.
            pub const fn from_u8(value: u8) -> Option<Self> {
                match value {
                    $($value => Some(Self::$code),)*
                    _ => None,
                }
            }

            /// The name in the words of the standard.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)*
                }
            }
        }
    };
}

reason_codes! {
    /// Done as asked.
    #[default]
    Success = 0x00, "Success";
    /// Subscription accepted at QoS 1.
    GrantedQoS1 = 0x01, "Granted QoS 1";
    /// Subscription accepted at QoS 2.
    GrantedQoS2 = 0x02, "Granted QoS 2";
    /// The client closes and wants its will message published.
    DisconnectWithWill = 0x04, "Disconnect with Will Message";
    /// The message was accepted and nobody subscribes to it.
    NoMatchingSubscribers = 0x10, "No matching subscribers";
    /// There was no such subscription.
    NoSubscriptionExisted = 0x11, "No subscription existed";
    /// The exchange goes on with another AUTH.
    ContinueAuthentication = 0x18, "Continue authentication";
    /// The client starts a new exchange.
    Reauthenticate = 0x19, "Re-authenticate";
    /// None of the others, or not to be told.
    UnspecifiedError = 0x80, "Unspecified error";
    /// The packet could not be parsed.
    MalformedPacket = 0x81, "Malformed Packet";
    /// The packet parsed and broke a rule.
    ProtocolError = 0x82, "Protocol Error";
    /// Valid, and not accepted by this implementation.
    ImplementationSpecificError = 0x83, "Implementation specific error";
    /// The server does not speak the version asked for.
    UnsupportedProtocolVersion = 0x84, "Unsupported Protocol Version";
    /// Valid, and not allowed by the server.
    ClientIdentifierNotValid = 0x85, "Client Identifier not valid";
    /// Refused credentials.
    BadUserNameOrPassword = 0x86, "Bad User Name or Password";
    /// Not allowed to do this.
    NotAuthorized = 0x87, "Not authorized";
    /// The server cannot serve now.
    ServerUnavailable = 0x88, "Server unavailable";
    /// Try again later.
    ServerBusy = 0x89, "Server busy";
    /// Banned by an administrator.
    Banned = 0x8A, "Banned";
    /// The server is going down.
    ServerShuttingDown = 0x8B, "Server shutting down";
    /// Method not supported, or not the one in use.
    BadAuthenticationMethod = 0x8C, "Bad authentication method";
    /// Nothing was received for 1.5 times the keep alive.
    KeepAliveTimeout = 0x8D, "Keep Alive timeout";
    /// Another network connection uses the client identifier.
    SessionTakenOver = 0x8E, "Session taken over";
    /// Well-formed, and not accepted.
    TopicFilterInvalid = 0x8F, "Topic Filter invalid";
    /// Well-formed, and not accepted.
    TopicNameInvalid = 0x90, "Topic Name invalid";
    /// The packet identifier is already in use.
    PacketIdentifierInUse = 0x91, "Packet Identifier in use";
    /// The packet identifier is not known.
    PacketIdentifierNotFound = 0x92, "Packet Identifier not found";
    /// More unacknowledged messages than receive maximum.
    ReceiveMaximumExceeded = 0x93, "Receive Maximum exceeded";
    /// Zero, or above topic alias maximum.
    TopicAliasInvalid = 0x94, "Topic Alias invalid";
    /// Larger than maximum packet size.
    PacketTooLarge = 0x95, "Packet too large";
    /// Received data rate too high.
    MessageRateTooHigh = 0x96, "Message rate too high";
    /// A limit of the implementation or administrator.
    QuotaExceeded = 0x97, "Quota exceeded";
    /// Closed by an administrator.
    AdministrativeAction = 0x98, "Administrative action";
    /// The payload is not what its indicator says.
    PayloadFormatInvalid = 0x99, "Payload format invalid";
    /// Retained messages are not supported.
    RetainNotSupported = 0x9A, "Retain not supported";
    /// QoS above maximum QoS.
    QoSNotSupported = 0x9B, "QoS not supported";
    /// For now, use the server in server reference.
    UseAnotherServer = 0x9C, "Use another server";
    /// For good, use the server in server reference.
    ServerMoved = 0x9D, "Server moved";
    /// Shared subscriptions are not supported.
    SharedSubscriptionsNotSupported = 0x9E, "Shared Subscriptions not supported";
    /// Too many connects in a time.
    ConnectionRateExceeded = 0x9F, "Connection rate exceeded";
    /// The time this connection was allowed is over.
    MaximumConnectTime = 0xA0, "Maximum connect time";
    /// Subscription identifiers are not supported.
    SubscriptionIdentifiersNotSupported = 0xA1, "Subscription Identifiers not supported";
    /// Wildcards in topic filters are not supported.
    WildcardSubscriptionsNotSupported = 0xA2, "Wildcard Subscriptions not supported";
}

impl ReasonCode {
    /// The number on the wire.
    #[inline]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// Whether the code says that something failed: 0x80 or above.
    #[inline]
    pub const fn is_error(self) -> bool {
        self.as_u8() >= 0x80
    }

    /// What CONNACK of MQTT 3.1 and 3.1.1 says instead. These versions can name five failures; any
    /// other is [`ConnectReturnCode::ServerUnavailable`], which tells the client nothing false about
    /// its own request.
    pub const fn connect_return_code(self) -> ConnectReturnCode {
        match self {
            Self::UnsupportedProtocolVersion => ConnectReturnCode::UnacceptableProtocolVersion,
            Self::ClientIdentifierNotValid => ConnectReturnCode::IdentifierRejected,
            Self::BadUserNameOrPassword => ConnectReturnCode::BadUserNameOrPassword,
            Self::NotAuthorized | Self::Banned | Self::BadAuthenticationMethod => {
                ConnectReturnCode::NotAuthorized
            }
            code if code.is_error() => ConnectReturnCode::ServerUnavailable,
            _ => ConnectReturnCode::Accepted,
        }
    }

    /// The QoS a SUBACK grants with this code; `None` when it is not one of 0x00..=0x02.
    pub const fn granted_qos(self) -> Option<crate::QoS> {
        crate::QoS::from_u8(self.as_u8())
    }
}

impl std::fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (0x{:02X})", self.name(), self.as_u8())
    }
}

/// CONNACK return code of MQTT 3.1 and 3.1.1 (3.1.1 §3.2.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConnectReturnCode {
    /// Connection accepted.
    Accepted = 0,
    /// The server does not support the level of the protocol asked for.
    UnacceptableProtocolVersion = 1,
    /// The client identifier is well-formed and not allowed.
    IdentifierRejected = 2,
    /// The service is unavailable.
    ServerUnavailable = 3,
    /// The user name or password is malformed or wrong.
    BadUserNameOrPassword = 4,
    /// The client may not connect.
    NotAuthorized = 5,
}

impl ConnectReturnCode {
    /// The return code with this number; 6..=255 are reserved.
    pub const fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::Accepted,
            1 => Self::UnacceptableProtocolVersion,
            2 => Self::IdentifierRejected,
            3 => Self::ServerUnavailable,
            4 => Self::BadUserNameOrPassword,
            5 => Self::NotAuthorized,
            _ => return None,
        })
    }

    /// The number on the wire.
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// The reason code of MQTT 5.0 that says the same.
    pub const fn reason_code(self) -> ReasonCode {
        match self {
            Self::Accepted => ReasonCode::Success,
            Self::UnacceptableProtocolVersion => ReasonCode::UnsupportedProtocolVersion,
            Self::IdentifierRejected => ReasonCode::ClientIdentifierNotValid,
            Self::ServerUnavailable => ReasonCode::ServerUnavailable,
            Self::BadUserNameOrPassword => ReasonCode::BadUserNameOrPassword,
            Self::NotAuthorized => ReasonCode::NotAuthorized,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_codes_map_both_ways() {
        let defined: Vec<u8> = (0..=255)
            .filter(|n| ReasonCode::from_u8(*n).is_some())
            .collect();
        assert_eq!(defined.len(), 43);
        assert_eq!(defined.len(), ReasonCode::ALL.len());
        for (code, number) in ReasonCode::ALL.iter().zip(defined) {
            assert_eq!(code.as_u8(), number);
        }
    }

    #[test]
    fn return_codes_survive_the_way_through_reason_codes() {
        for number in 0..=5 {
            let code = ConnectReturnCode::from_u8(number).expect("defined");
            assert_eq!(code.reason_code().connect_return_code(), code);
            assert_eq!(code.as_u8(), number);
        }
        assert_eq!(ConnectReturnCode::from_u8(6), None);
        for code in ReasonCode::ALL {
            assert_eq!(
                code.is_error(),
                code.connect_return_code() != ConnectReturnCode::Accepted,
                "{code}"
            );
        }
    }
}
