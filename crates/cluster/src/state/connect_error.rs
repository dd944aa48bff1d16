//! Why there is no connection to a node.

use std::{fmt, io};

use crate::protocol::refusal::{Failure, Refusal, ShutOut};

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Io(io::Error),
    TimedOut,
    /// Too many connections have not shown who they are, and this was the oldest.
    Displaced,
    /// The other side has an address that [`Security::open_to`](crate::Security::open_to) does not allow.
    PublicAddress,
    Failure(Failure),
}

impl ConnectError {
    /// What does not vary with each attempt.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Io(_) => "io",
            Self::TimedOut => "timedOut",
            Self::Displaced => "displaced",
            Self::PublicAddress => "publicAddress",
            Self::Failure(Failure::Malformed) => "malformed",
            Self::Failure(Failure::Waits(_)) => Refusal::NotReady.name(),
            Self::Failure(Failure::We(refusal) | Failure::They { refusal, .. }) => refusal.name(),
        }
    }

    /// Why this node takes part no more, if a member has refused it for good.
    pub(crate) fn why_shut_out(&self) -> Option<ShutOut> {
        match self {
            Self::Failure(failure) => failure.why_shut_out(),
            Self::Io(_) | Self::TimedOut | Self::Displaced | Self::PublicAddress => None,
        }
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Failure> for ConnectError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::TimedOut => f.write_str("it does not answer in time"),
            Self::Displaced => f.write_str(
                "too many connections have not shown who they are, and it was the oldest of them",
            ),
            Self::PublicAddress => f.write_str(
                "it has a public address, and without clusterConfig.secretFile or clusterConfig.sslConfig nodes talk to \
                 private ones only",
            ),
            Self::Failure(failure) => failure.fmt(f),
        }
    }
}
