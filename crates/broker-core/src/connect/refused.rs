//! Why a client is not let in, for those who run the broker. The client itself is told less: it must not learn which users
//! there are.

use std::fmt;

use authentication_api::Denial;
use guard::Refusal;
use mqtt_proto::{Connect, ReasonCode};
use net_api::{Kind, PeerAddress};

/// A client that was not let in on this node, or a connection that was closed before CONNECT. Strangers choose how many there
/// are.
#[derive(Clone, Copy)]
pub struct RefusedLogin<'a> {
    /// The client identifier; `None`: it is not known.
    pub client_id: Option<&'a str>,
    /// The user that it has named, which nobody has confirmed.
    pub user: Option<&'a str>,
    /// Where its connection comes from.
    pub peer: Option<PeerAddress>,
    /// The kind of the listener, or of a connection without one.
    pub listener: Option<Kind>,
    /// Why.
    pub cause: Cause,
    /// What exactly is wrong, where the cause has more than one form.
    pub detail: Option<&'a dyn fmt::Display>,
}

/// Why a client is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Those who judge credentials have denied it.
    Denied(Denial),
    /// It shows no credentials, and clients that show none are not let in.
    NoCredentials,
    /// No authenticator is configured, and only clients of this machine are let in without one.
    NoAuthenticators,
    /// It asks for an authentication method that is not served.
    AuthenticationMethod,
    /// The guard does not let it be judged.
    Guard(Refusal),
    /// Its packets break the protocol.
    Protocol(ReasonCode),
    /// Its CONNECT is well formed, and says something that this broker does not serve.
    NotServed(ReasonCode),
    /// The peer speaks another protocol, or its TLS or WebSocket handshake has failed.
    Handshake,
    /// The listener takes connections of trusted proxies only.
    NotTrusted,
    /// The rules do not let it publish its will.
    WillNotAllowed,
    /// Its client identifier has a session of another user.
    SessionOfAnotherUser,
    /// Its client identifier is one of the broker's outlets, which it is not; or it is one of those, and has another.
    ReservedClientId,
    /// The node has as many connections as it may.
    NodeConnections,
    /// The node has as many sessions as it may.
    NodeSessions,
    /// The node is short of memory.
    Memory,
    /// The node sends its clients to other nodes.
    Draining,
    /// The node has more clients than its share.
    SentOn,
    /// The node shuts down.
    ShuttingDown,
    /// The store cannot record its session.
    Store,
    /// A node that has a connection of the client does not answer.
    TakeOver,
    /// The other nodes have taken this one for dead.
    TakenForDead,
}

/// Who is not let in, as far as it is known.
#[derive(Clone, Copy, Default)]
pub(crate) struct Who<'a> {
    pub(crate) client_id: Option<&'a str>,
    pub(crate) user: Option<&'a str>,
}

/// What a client is told that is not let in, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refused {
    pub(crate) code: ReasonCode,
    pub(crate) cause: Cause,
}

impl Cause {
    /// One of each name.
    pub const ALL: [Self; 33] = [
        Self::Denied(Denial::UnknownUser),
        Self::Denied(Denial::WrongPassword),
        Self::Denied(Denial::OtherUser),
        Self::Denied(Denial::Denied),
        Self::Denied(Denial::Ended),
        Self::Denied(Denial::Disabled),
        Self::Denied(Denial::ClientId),
        Self::Denied(Denial::Unavailable),
        Self::NoCredentials,
        Self::NoAuthenticators,
        Self::AuthenticationMethod,
        Self::Guard(Refusal::Banned),
        Self::Guard(Refusal::Connections),
        Self::Guard(Refusal::ConnectionRate),
        Self::Guard(Refusal::FailedLogins),
        Self::Guard(Refusal::Flapping),
        Self::Protocol(ReasonCode::ProtocolError),
        Self::NotServed(ReasonCode::ClientIdentifierNotValid),
        Self::NotServed(ReasonCode::TopicNameInvalid),
        Self::Handshake,
        Self::NotTrusted,
        Self::WillNotAllowed,
        Self::SessionOfAnotherUser,
        Self::ReservedClientId,
        Self::NodeConnections,
        Self::NodeSessions,
        Self::Memory,
        Self::Draining,
        Self::SentOn,
        Self::ShuttingDown,
        Self::Store,
        Self::TakeOver,
        Self::TakenForDead,
    ];

    /// The cause's name in logs and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Denied(Denial::UnknownUser) => "unknown_user",
            Self::Denied(Denial::WrongPassword) => "wrong_password",
            Self::Denied(Denial::OtherUser) => "certificate_mismatch",
            Self::Denied(Denial::Denied) => "denied_by_authenticator",
            Self::Denied(Denial::Ended) => "expired",
            Self::Denied(Denial::Disabled) => "user_disabled",
            Self::Denied(Denial::ClientId) => "client_id_of_user",
            Self::Denied(Denial::Unavailable) => "authenticator_unavailable",
            Self::NoCredentials => "no_credentials",
            Self::NoAuthenticators => "no_authenticators",
            Self::AuthenticationMethod => "authentication_method",
            Self::Guard(refusal) => refusal.as_str(),
            Self::Protocol(_) => "protocol_error",
            Self::NotServed(ReasonCode::ClientIdentifierNotValid) => "client_id_not_valid",
            Self::NotServed(_) => "will_not_valid",
            Self::Handshake => "handshake",
            Self::NotTrusted => "not_a_trusted_proxy",
            Self::WillNotAllowed => "will_not_allowed",
            Self::SessionOfAnotherUser => "session_of_another_user",
            Self::ReservedClientId => "reserved_client_id",
            Self::NodeConnections => "node_connections",
            Self::NodeSessions => "node_sessions",
            Self::Memory => "memory",
            Self::Draining => "draining",
            Self::SentOn => "sent_to_another_node",
            Self::ShuttingDown => "shutting_down",
            Self::Store => "store",
            Self::TakeOver => "takeover",
            Self::TakenForDead => "node_declared_dead",
        }
    }

    /// The cause as a sentence, with the option that changes it.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Denied(Denial::UnknownUser) => "No authenticator knows the user.",
            Self::Denied(Denial::WrongPassword) => {
                "The user exists, and the password is a different one."
            }
            Self::Denied(Denial::OtherUser) => {
                "CONNECT names a different user than the client's certificate."
            }
            Self::Denied(Denial::Denied) => {
                "An authenticator (JWT, HTTP or SCRAM) denied the client; the authenticator's log may say why."
            }
            Self::Denied(Denial::Ended) => "The token or the login has expired.",
            Self::Denied(Denial::Disabled) => "The user is disabled.",
            Self::Denied(Denial::ClientId) => {
                "The user may not connect with this client identifier."
            }
            Self::Denied(Denial::Unavailable) => {
                "An authenticator could not be asked; the broker's log says why."
            }
            Self::NoCredentials => "The client sent no user name and no password (allowAnonymous).",
            Self::NoAuthenticators => {
                "No authenticator is configured, and the client is not on the broker's machine (authentication.chain, allowAnonymous)."
            }
            Self::AuthenticationMethod => {
                "No authenticator serves the authentication method that the client asks for."
            }
            Self::Guard(Refusal::Banned) => "The address, the user or the client is banned.",
            Self::Guard(Refusal::Connections) => {
                "The address has too many open connections (abuse.connectionsPerAddress)."
            }
            Self::Guard(Refusal::ConnectionRate) => {
                "The address opens connections too fast (abuse.connectionsPerSecondPerAddress)."
            }
            Self::Guard(Refusal::FailedLogins) => {
                "The password was not checked, because too many logins have failed before (abuse.failedLogins)."
            }
            Self::Guard(Refusal::Flapping) => {
                "The client connects too often and is banned for a while (abuse.flappingConnections)."
            }
            Self::Protocol(_) => "The client does not follow the protocol.",
            Self::NotServed(ReasonCode::ClientIdentifierNotValid) => {
                "The client identifier is empty where it must not be, or too long (limits.connection.clientIdLength)."
            }
            Self::NotServed(_) => {
                "The will message has a topic, QoS, retain flag or payload that is not accepted."
            }
            Self::Handshake => "The connection ended before CONNECT.",
            Self::NotTrusted => "Only trusted proxies may connect to this listener.",
            Self::WillNotAllowed => {
                "The rules do not allow the client to publish its will message."
            }
            Self::SessionOfAnotherUser => {
                "The client identifier has a session of a different user."
            }
            Self::ReservedClientId => {
                "Client identifiers that begin with $outlet/ belong to the broker's outlets, which have no others."
            }
            Self::NodeConnections => {
                "The node has reached its limit of connections (limits.node.connections)."
            }
            Self::NodeSessions => {
                "The node has reached its limit of sessions (limits.node.sessions)."
            }
            Self::Memory => "The node is short of memory.",
            Self::Draining => "The node is being drained.",
            Self::SentOn => {
                "The node has more clients than the others (clusterConfig.spreadAtConnect)."
            }
            Self::ShuttingDown => "The node is shutting down.",
            Self::Store => "The store could not record the session; the broker's log says why.",
            Self::TakeOver => {
                "Another node has a connection of the client and did not answer in time."
            }
            Self::TakenForDead => "The other nodes regard this node as dead.",
        }
    }
}

impl Refused {
    /// The guard does not let it be judged.
    pub(crate) fn by_guard(refusal: Refusal) -> Self {
        Self {
            code: refusal_code(refusal),
            cause: Cause::Guard(refusal),
        }
    }

    /// Its packets break the protocol.
    pub(crate) fn by_protocol(code: ReasonCode) -> Self {
        let cause = Cause::Protocol(code);
        Self { code, cause }
    }

    /// What the log calls it, and those who watch.
    pub(crate) fn reason(self) -> &'static str {
        match self.cause {
            Cause::Guard(refusal) => refusal.as_str(),
            _ => self.code.name(),
        }
    }
}

impl<'a> Who<'a> {
    pub(crate) fn of(connect: &'a Connect<'_>) -> Self {
        Self {
            client_id: Some(connect.client_id),
            user: connect.username,
        }
    }
}

impl fmt::Debug for RefusedLogin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedLogin")
            .field("client_id", &self.client_id)
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}

/// What a client is told that the guard does not let in. Who must wait may come back, who is banned need
/// not; for clients before 5.0 that is "server unavailable" and "not authorized".
fn refusal_code(refusal: Refusal) -> ReasonCode {
    match refusal {
        Refusal::Banned | Refusal::Flapping => ReasonCode::Banned,
        Refusal::Connections | Refusal::ConnectionRate | Refusal::FailedLogins => {
            ReasonCode::QuotaExceeded
        }
    }
}
