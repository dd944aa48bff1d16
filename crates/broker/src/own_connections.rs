//! Connections of the broker's own: those of its outlets, which are processes beside it.
//!
//! Purpose: a socket pair, of which an event loop has one end. Whoever starts an outlet gives it the other.
//!
//! Invariant: an end in a loop takes a place as each connection does; when its other end is closed, so is it.
//!
//! Deliberately absent: which outlets there are, and when they are started; how such a connection is let in
//! (`broker-core/src/connect/own_clients.rs`).

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use net::{HandInError, Profile, Remote};
use net_api::Kind;
use transport::ServerOptions;

use crate::node::ClientLoop;

/// What opens connections of the broker's own.
#[derive(Debug)]
pub(crate) struct OwnConnections {
    loops: Remote<ClientLoop>,
    profile: Arc<Profile>,
}

/// Why the broker cannot connect to itself.
#[derive(Debug)]
pub(crate) enum OwnConnectionError {
    /// There is no socket pair.
    Pair(io::Error),
    /// No event loop takes it.
    HandIn(HandInError),
}

impl fmt::Display for OwnConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pair(_) => "a socket pair cannot be made",
            Self::HandIn(_) => "no event loop takes the connection",
        })
    }
}

impl std::error::Error for OwnConnectionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pair(error) => Some(error),
            Self::HandIn(error) => Some(error),
        }
    }
}

impl OwnConnections {
    /// `number`: that of [`own_number`](crate::listeners::own_number).
    pub(crate) fn new(loops: Remote<ClientLoop>, number: u16) -> Self {
        let options = ServerOptions::default();
        let profile = Profile::new(number, Kind::Outlet, "", options);
        Self { loops, profile }
    }

    /// Opens a connection for an outlet: a blocking, close-on-exec socket on which MQTT is spoken, CONNECT first. Waits for
    /// nobody.
    ///
    /// # Errors
    /// All places of connections are taken, or the process has no file descriptors left.
    pub(crate) fn open(&self) -> Result<UnixStream, OwnConnectionError> {
        let (near, far) = UnixStream::pair().map_err(OwnConnectionError::Pair)?;
        let handed = self.loops.hand_in(near, Arc::clone(&self.profile));
        handed.map_err(OwnConnectionError::HandIn)?;
        Ok(far)
    }
}

#[cfg(test)]
mod tests;
