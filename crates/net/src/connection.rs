//! One socket and the little that waits for it.

use std::any::Any;
use std::os::fd::AsRawFd;

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use net_api::{PeerAddress, RateBucket, RateGroup};
use socket2::Socket;

use crate::layered::Layered;
use crate::listener::Profile;

/// How much a connection has had of its rates.
#[derive(Debug, Default)]
pub(crate) struct Metered {
    pub(crate) inbound: RateBucket,
    pub(crate) outbound: RateBucket,
}

/// A connection of an event loop. Its buffers exist only while they hold something.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) peer: PeerAddress,
    /// The service's number for the listener that it came by.
    pub(crate) listener: u16,
    /// Of connections that are not plain: what stands between the socket and the service.
    pub(crate) layers: Option<Box<Layered>>,
    pub(crate) phase: Phase,
    /// Bytes for the service that it has not consumed: the beginning of a packet, or what came before a
    /// pause.
    pub(crate) pending_in: Option<Box<Unconsumed>>,
    /// What the socket did not take, layers included.
    pub(crate) pending_out: Option<Box<Unwritten>>,
    pub(crate) metered: Metered,
    pub(crate) rate_group: RateGroup,
    /// The service's own number for the connection.
    pub(crate) tag: u64,
    /// What the service wants dropped with the connection; few have any, hence the thin pointer.
    pub(crate) attached: Option<Box<Box<dyn Any + Send>>>,
    /// Stands in the list of connections to flush.
    pub(crate) touched: bool,
    /// Stands in the list of connections to read without a new event.
    pub(crate) ready: bool,
    /// The socket may hold unread bytes (events are edge-triggered and come once).
    pub(crate) readable: bool,
    /// The peer has said that it sends nothing more: the end of the stream is there to be read.
    pub(crate) peer_closed: bool,
    /// The time (ms) for which a timer is armed because a rate was exceeded; 0: none.
    pub(crate) wakes_at_ms: u64,
    /// The service wants no more bytes for now.
    pub(crate) paused: bool,
    /// `pending_in` has not been offered since the pause ended.
    pub(crate) unoffered: bool,
    /// The socket's send buffer is full.
    pub(crate) write_blocked: bool,
    /// Events of writability are registered as well.
    pub(crate) watches_writable: bool,
}

/// Where a connection stands between opening and closing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Bytes flow both ways.
    Open,
    /// What is in `pending_out` is still to be written, until the deadline (ms).
    Closing { until: u64 },
    /// Our side is shut. Closing a socket with unread input resets the connection, and a reset can
    /// overtake the last packet; so input is read and thrown away until the peer closes or the
    /// deadline (ms) comes.
    Lingering { until: u64 },
}

/// Bytes that the service has not consumed, and how many before them it has.
#[derive(Debug)]
pub(crate) struct Unconsumed {
    bytes: Vec<u8>,
    consumed: usize,
}

impl Unconsumed {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            consumed: 0,
        }
    }

    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.consumed..).unwrap_or_default()
    }

    pub(crate) fn consume(&mut self, n: usize) {
        self.consumed += n;
    }

    /// A little that is left of much does not keep the memory of all.
    pub(crate) fn trim(&mut self) {
        if self.rest().len() < self.bytes.capacity() / 4 {
            *self = Self::new(self.rest());
        }
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.consumed);
        self.consumed = 0;
        self.bytes.extend_from_slice(bytes);
    }
}

/// Bytes that the socket did not take, and how many of them have gone out since.
#[derive(Debug)]
pub(crate) struct Unwritten {
    pub(crate) bytes: Vec<u8>,
    pub(crate) written: usize,
}

impl Connection {
    pub(crate) fn new(
        socket: Socket,
        peer: PeerAddress,
        profile: &Profile,
        layers: Option<Box<Layered>>,
    ) -> Self {
        Self {
            socket,
            peer,
            listener: profile.number,
            layers,
            phase: Phase::Open,
            pending_in: None,
            pending_out: None,
            metered: Metered::default(),
            rate_group: RateGroup::default(),
            tag: 0,
            attached: None,
            touched: false,
            ready: false,
            readable: false,
            wakes_at_ms: 0,
            peer_closed: false,
            paused: false,
            unoffered: false,
            write_blocked: false,
            watches_writable: false,
        }
    }

    pub(crate) fn register(&self, registry: &Registry, token: Token) -> std::io::Result<()> {
        SourceFd(&self.socket.as_raw_fd()).register(registry, token, Interest::READABLE)
    }

    pub(crate) fn watch_writable(&self, registry: &Registry, token: Token) -> std::io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        SourceFd(&self.socket.as_raw_fd()).reregister(registry, token, both)
    }

    pub(crate) fn deregister(&self, registry: &Registry) {
        // Closing the descriptor removes it from epoll; an error here has no consequence.
        let _ = SourceFd(&self.socket.as_raw_fd()).deregister(registry);
    }

    /// Whether the service's bytes can be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.layers.as_ref().is_none_or(|layers| layers.is_open())
    }

    /// The time (ms) by which its handshakes must be done; `None`: there are none, or they are.
    pub(crate) fn handshake_until(&self) -> Option<u64> {
        self.layers.as_ref()?.handshake_until()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_as_small_as_it_was() {
        // Each idle connection holds one: docs/internals/budget.md.
        assert_eq!(size_of::<Connection>(), 128);
    }
}
