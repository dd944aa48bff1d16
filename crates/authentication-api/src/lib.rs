//! What the broker and its authenticators say to each other: the credentials of a client, and the answer.
//!
//! Deliberately absent: how credentials are judged, and on which threads (`authentication`).

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use authorization::Rules;
use control::Revision;
use zeroize::Zeroizing;

/// What a client shows of itself in CONNECT.
#[derive(Debug)]
pub struct Credentials {
    /// Client identifier as in CONNECT; empty if the broker is to assign one.
    pub client_id: Box<str>,
    /// User name.
    pub username: Option<Box<str>>,
    /// Password.
    pub password: Option<Secret>,
    /// Where it connects from, or what a trusted proxy says of that; `None` for a Unix domain socket.
    pub address: Option<IpAddr>,
    /// The user name that its verified certificate stands for.
    pub certificate_name: Option<Box<str>>,
}

/// Bytes that nobody sees: overwritten when dropped, left out of debug output.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// A copy of the bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Who a client is.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The user that the client is, for rules and logs.
    pub username: Option<Box<str>>,
    /// Whether it may do everything.
    pub is_superuser: bool,
    /// Rules of its own; they come before those of the file.
    pub rules: Option<Arc<Rules>>,
    /// When it must be disconnected, in seconds since 1970-01-01 UTC.
    pub expires_at: Option<u64>,
    /// The class of clients that it is of, whatever else it matches; `None`: what it matches says it.
    pub class: Option<Box<str>>,
    /// What has confirmed the user.
    pub source: Source,
    /// What the user can be looked up by again in the database that has confirmed it.
    pub database: Option<Arc<DatabaseUser>>,
}

/// A user of a database, who can be looked up without a password: what its queries ask for, and nothing else.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DatabaseUser {
    /// User name.
    pub username: Option<Box<str>>,
    /// Client identifier as in CONNECT.
    pub client_id: Option<Box<str>>,
    /// Where the client connects from.
    pub address: Option<Box<str>>,
}

/// What has confirmed a user, as far as it tells without the client's credentials whether the user still exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Source {
    /// Nothing that tells.
    #[default]
    Other,
    /// A file of users, by a password.
    PasswordFile,
    /// A file of users, by SCRAM.
    ScramFile,
    /// The control store.
    Control {
        /// What the node knew of the store when it judged the login: a later change can end it.
        since: Revision,
    },
}

/// What is known now of the user that a connected client has logged in as.
#[derive(Debug)]
pub enum UserNow {
    /// The login counts as it was judged, as far as it can be told.
    Same,
    /// There is no such user any more, or the login does not count any more.
    Gone,
    /// The login counts, and this comes with it now.
    Identity(Box<Identity>),
}

/// The answer to a login.
#[derive(Debug)]
pub enum Verdict {
    /// It may connect.
    Allow(Box<Identity>),
    /// It may not.
    Deny(Denial),
}

/// Why a client may not connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// No authenticator knows the user, or the client has named none.
    UnknownUser,
    /// The user is known, and the password or the proof is another one.
    WrongPassword,
    /// CONNECT names another user than the certificate does.
    OtherUser,
    /// An authenticator has denied the client, and does not tell a wrong user from a wrong password: one of tokens, or a
    /// service.
    Denied,
    /// They were genuine, and have ended: a token that was signed as it should be, and is too old. Nobody has guessed.
    Ended,
    /// They were genuine, and the user is disabled.
    Disabled,
    /// They were genuine, and the user may not connect with this client identifier.
    ClientId,
    /// An authenticator could not be asked.
    Unavailable,
}

impl Denial {
    /// Whether what the client has shown may be a guess.
    #[must_use]
    pub fn is_guess(self) -> bool {
        match self {
            Self::UnknownUser | Self::WrongPassword | Self::OtherUser | Self::Denied => true,
            Self::Ended | Self::Disabled | Self::ClientId | Self::Unavailable => false,
        }
    }
}

/// What enhanced authentication (MQTT 5.0 §4.12) goes on with.
#[derive(Debug)]
pub enum Step {
    /// Authentication data for the client, and what takes its answer.
    Challenge(Vec<u8>, Box<dyn Exchange>),
    /// It is who it says; the authentication data goes with CONNACK (or AUTH, when it authenticates again).
    Done(Box<Identity>, Vec<u8>),
    /// It is not.
    Denied(Denial),
}

/// An exchange of enhanced authentication that waits for the client's next authentication data.
pub trait Exchange: fmt::Debug + Send {
    /// The user that the client says it is.
    fn username(&self) -> &str;

    /// Goes on with the client's authentication data.
    fn answer(self: Box<Self>, data: &[u8]) -> Step;
}
