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
use crate::packed_address::PackedAddress;

/// How much a connection has had of its rates. Rates are set by default, so this stands in place.
#[derive(Debug, Default)]
pub(crate) struct Metered {
    pub(crate) inbound: RateBucket,
    pub(crate) outbound: RateBucket,
}

/// What most connections do not have.
#[derive(Debug, Default)]
struct Rare {
    /// The time (ms) for which a timer is armed because a rate was exceeded.
    wakes_at_ms: Option<u64>,
    /// The time (ms) until which it may go on closing.
    closing_until_ms: Option<u64>,
    /// What the service wants dropped with the connection.
    attached: Option<Box<dyn Any + Send>>,
}

/// A connection of an event loop. Its buffers exist only while they hold something.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) peer: PackedAddress,
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
    /// Made when something is put in it.
    rare: Option<Box<Rare>>,
    /// Stands in the list of connections to flush.
    pub(crate) touched: bool,
    /// Stands in the list of connections to read without a new event.
    pub(crate) ready: bool,
    /// The socket may hold unread bytes (events are edge-triggered and come once).
    pub(crate) readable: bool,
    /// The peer has said that it sends nothing more: the end of the stream is there to be read.
    pub(crate) peer_closed: bool,
    /// The service wants no more bytes for now.
    pub(crate) paused: bool,
    /// `pending_in` has not been offered since the pause ended.
    pub(crate) unoffered: bool,
    /// The socket's send buffer is full.
    pub(crate) write_blocked: bool,
    /// Events of writability are registered as well.
    pub(crate) watches_writable: bool,
}

/// What an idle connection without layers takes in its table, and with its timer, in bytes.
pub const CONNECTION_BYTES: usize = size_of::<Connection>() + 8 + 24;

/// Where a connection stands between opening and closing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Bytes flow both ways.
    Open,
    /// What is in `pending_out` is still to be written, until the deadline.
    Closing,
    /// Our side is shut. Closing a socket with unread input resets the connection, and a reset can
    /// overtake the last packet; so input is read and thrown away until the peer closes or the
    /// deadline comes.
    Lingering,
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
            peer: PackedAddress::from(peer),
            listener: profile.number,
            layers,
            phase: Phase::Open,
            pending_in: None,
            pending_out: None,
            metered: Metered::default(),
            rate_group: RateGroup::default(),
            tag: 0,
            rare: None,
            touched: false,
            ready: false,
            readable: false,
            peer_closed: false,
            paused: false,
            unoffered: false,
            write_blocked: false,
            watches_writable: false,
        }
    }

    /// Takes note that a timer is armed because a rate was exceeded. False: one is armed for that time or an earlier one.
    pub(crate) fn wake_at(&mut self, at_ms: u64) -> bool {
        let armed = &mut self.rare().wakes_at_ms;
        let is_earlier = armed.is_none_or(|armed| at_ms < armed);
        if is_earlier {
            *armed = Some(at_ms);
        }
        is_earlier
    }

    /// The timer has gone off.
    pub(crate) fn woken(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.wakes_at_ms = None;
        }
    }

    /// It begins to close, in a phase that ends at a time (ms) at the latest.
    pub(crate) fn close_until(&mut self, phase: Phase, until_ms: u64) {
        self.phase = phase;
        self.rare().closing_until_ms = Some(until_ms);
    }

    /// The time (ms) at which it must be closed, if it is closing.
    pub(crate) fn closing_until(&self) -> Option<u64> {
        let is_closing = self.phase != Phase::Open;
        let rare = self.rare.as_ref().filter(|_| is_closing)?;
        rare.closing_until_ms
    }

    /// Keeps what is to be dropped with the connection.
    pub(crate) fn attach(&mut self, attached: Box<dyn Any + Send>) {
        self.rare().attached = Some(attached);
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
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
        assert_eq!(size_of::<Connection>(), 96);
    }
}
