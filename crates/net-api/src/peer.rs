//! Who is at the other end of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerAddress {
    /// Of TCP; behind a proxy, what the proxy's header says.
    Ip(SocketAddr),
    /// A process of this machine, which a Unix socket does not name.
    Unix,
}

impl PeerAddress {
    /// The address without the port. `None` for a Unix socket.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address.ip()),
            Self::Unix => None,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}
