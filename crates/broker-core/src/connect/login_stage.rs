//! How far a login is, and who is logged in.

use crate::connect::refused::Refused;
use authentication_api::{Exchange, Identity, Source, Verdict};

/// A connection whose CONNECT has come, and that has no session yet.
#[derive(Debug)]
pub(crate) struct Login {
    /// When its CONNECT came to this node, in µs of the node's clock. Of the connections of a client, the one whose
    /// CONNECT came last has the session, in whatever order they get through their logins.
    pub(crate) came_us: u64,
    pub(crate) stage: Stage,
}

/// How far a connection without a session has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Its CONNECT has not been looked at.
    New,
    /// Its CONNECT was looked at, and is to be judged when others have been.
    Postponed,
    /// The chain is asked.
    Asked,
    /// It has answered.
    Answered(Verdict),
    /// A challenge was sent; an AUTH is to come.
    Challenged {
        exchange: Box<dyn Exchange>,
        /// The CONNECT packet.
        connect: Box<[u8]>,
    },
    /// It is let in, and waits for its client identifier; `None`: as a client that nothing is known of.
    Admitted(Option<Box<Admission>>),
}

impl Login {
    /// The CONNECT packet that AUTH packets go on with.
    pub(crate) fn kept_connect(&self) -> Option<&[u8]> {
        match &self.stage {
            Stage::Challenged { connect, .. } => Some(connect),
            _ => None,
        }
    }

    /// The user that authentication has confirmed the client to be.
    pub(crate) fn user(&self) -> Option<&str> {
        match &self.stage {
            Stage::Admitted(Some(admission)) => admission.identity().username.as_deref(),
            _ => None,
        }
    }
}

/// A client that has authenticated and has no session yet.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(super) identity: Box<Identity>,
    /// The CONNECT packet, if AUTH packets came after it.
    pub(crate) connect: Option<Box<[u8]>>,
    /// Authentication data for CONNACK.
    pub(crate) data: Option<Box<[u8]>>,
}

/// What a connected client has authenticated as.
#[derive(Debug)]
pub(crate) struct LoggedIn {
    pub(super) username: Option<Box<str>>,
    /// What has confirmed the user.
    pub(super) source: Source,
    /// When the client must be disconnected, in seconds since 1970-01-01 UTC.
    pub(super) expires_at: Option<u64>,
    /// The authentication method of CONNECT.
    pub(super) method: Option<Box<str>>,
    /// The client authenticates again.
    pub(super) exchange: Option<Box<dyn Exchange>>,
}

/// How far a CONNECT has come.
pub(crate) enum Progress {
    /// It is let in; `None`: as a client that nothing is known of.
    Admitted(Option<Box<Admission>>),
    /// It is to be offered again when the connection is resumed.
    Waits,
    /// An AUTH was sent instead of an answer.
    Challenged,
    /// It is not let in.
    Refused(Refused),
}

impl LoggedIn {
    /// When the client must be disconnected, in seconds since 1970-01-01 UTC.
    pub(crate) fn expires_at(&self) -> Option<u64> {
        self.expires_at
    }

    /// The user that the client is.
    pub(crate) fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    /// What came with the login is this now. Returns when the client had to be disconnected until now, in seconds since
    /// 1970-01-01 UTC.
    pub(crate) fn renew(&mut self, identity: &Identity) -> Option<u64> {
        self.source = identity.source;
        std::mem::replace(&mut self.expires_at, identity.expires_at)
    }

    /// What has confirmed the user.
    pub(crate) fn source(&self) -> Source {
        self.source
    }
}

impl Admission {
    /// Who the client is.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Who the client is.
    pub(crate) fn into_identity(self) -> Identity {
        *self.identity
    }
}
