//! What a [`Service`](crate::Service) does to the connections of its loop.

use std::any::Any;

use crate::{ConnectionId, PeerAddress, RateGroup, Rates};

/// A loop that is sent something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// In the order of sending.
    Loop(usize),
    /// Another loop, behind all that is sent to any loop in this turn: it can send nothing that one of them gets sooner
    /// than that. What is sent in this way keeps its order.
    Behind(usize),
}

/// The [`Destination`] of this name.
#[derive(Clone, Copy, Debug)]
pub struct Behind(pub usize);

impl From<usize> for Destination {
    fn from(to: usize) -> Self {
        Self::Loop(to)
    }
}

impl From<Behind> for Destination {
    fn from(Behind(to): Behind) -> Self {
        Self::Behind(to)
    }
}

/// What handshakes of TLS, of a proxy and of a WebSocket have told of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handshakes<'a> {
    /// The user name that the client's verified certificate stands for, by the template of its listener.
    pub certificate_name: Option<&'a str>,
    /// A browser opened a WebSocket for a page of another host than this one, which the listener does not list.
    pub is_of_foreign_page: bool,
}

/// The connections of one event loop, its deadlines, and its way to the other loops. `M` is the mail that loops
/// send each other. Calls take effect within the turn; none blocks.
pub trait Connections<M> {
    /// This loop's number, from 0.
    #[must_use]
    fn index(&self) -> usize;

    /// How many loops there are.
    #[must_use]
    fn loops(&self) -> usize;

    /// The time in ms at which this turn began.
    #[must_use]
    fn now_ms(&self) -> u64;

    /// How many turns the loop has begun, this one included.
    #[must_use]
    fn turn(&self) -> u64;

    /// Connections open in this loop.
    #[must_use]
    fn open_connections(&self) -> usize;

    /// Limits each connection's bytes per second. What exceeds the rate is delayed, never lost. Applies at once to all
    /// connections of this loop. `groups`: other rates for the connections of groups, from the first group on.
    ///
    /// `handshake_ms`: how long the PROXY, TLS and WebSocket handshakes of a connection may take together. Applies to
    /// connections accepted from now on.
    fn set_limits(&mut self, rates: Rates, groups: Vec<Rates>, handshake_ms: u64);

    /// Puts a connection into a group.
    fn set_rate_group(&mut self, connection: ConnectionId, group: RateGroup);

    /// The number that the service gave a connection ([`Connections::set_tag`]); 0 before.
    #[must_use]
    fn tag(&self, connection: ConnectionId) -> Option<u64>;

    /// Gives a connection a number of the service's own.
    fn set_tag(&mut self, connection: ConnectionId, tag: u64);

    /// Keeps something for as long as the connection is open, however it ends and in whichever loop.
    fn attach(&mut self, connection: ConnectionId, attached: Box<dyn Any + Send>);

    /// The peer's address; behind a proxy, once its header has come, the address that it states.
    #[must_use]
    fn peer(&self, connection: ConnectionId) -> Option<PeerAddress>;

    /// The service's number for the listener that a connection came by.
    #[must_use]
    fn listener(&self, connection: ConnectionId) -> Option<u16>;

    /// What the handshakes of a connection have told.
    #[must_use]
    fn handshakes(&self, connection: ConnectionId) -> Handshakes<'_>;

    /// Whether bytes of the peer may be waiting that this side has chosen not to read yet (a pause, a
    /// rate): the peer's silence is then no sign of its death.
    #[must_use]
    fn is_held_back(&self, connection: ConnectionId) -> bool;

    /// Whether the socket has not taken all that was transmitted.
    #[must_use]
    fn is_write_blocked(&self, connection: ConnectionId) -> bool;

    /// Asks for [`Service::transmit`](crate::Service::transmit) before the turn ends, or when the
    /// socket can be written.
    fn touch(&mut self, connection: ConnectionId);

    /// Ends a pause: what was not consumed is offered again, then reading goes on.
    fn resume(&mut self, connection: ConnectionId);

    /// Has a connection read in one of the next turns, whether or not it is known that something has come. False:
    /// it is not being read.
    fn read_soon(&mut self, connection: ConnectionId) -> bool;

    /// Whether a connection is read in one of the next turns, without anything that has to happen before.
    #[must_use]
    fn is_read_soon(&self, connection: ConnectionId) -> bool;

    /// Closes at once, with all that was not written.
    fn close(&mut self, connection: ConnectionId);

    /// Closes in order, with all that was not written: layers between the socket and the service say that it is
    /// the end.
    fn close_in_order(&mut self, connection: ConnectionId);

    /// Closes at once, so that the peer sees it broken, not closed in order: a TCP connection is reset.
    fn abort(&mut self, connection: ConnectionId);

    /// Closes all connections that the service has given no number.
    fn close_untagged(&mut self);

    /// Takes note of work that the service does, in units of about a microsecond: of whatever others can make
    /// long. When a turn has done enough, what else can be read waits for the next one, in the order in which it
    /// came. Counted, not timed: the same work is always cut at the same places.
    fn charge(&mut self, units: u32);

    /// Whether the turn has done enough: what can wait goes on in a later one.
    #[must_use]
    fn has_done_enough(&self) -> bool;

    /// Flushes touched connections before anything else is read: a queue fills that could be emptied.
    fn flush_soon(&mut self);

    /// Sends these bytes after what is being written already: for the little that is said to a
    /// connection before [`Service::transmit`](crate::Service::transmit) has something for it.
    fn send_bytes(&mut self, connection: ConnectionId, bytes: &[u8]);

    /// Sends these bytes after what is being written already, and closes when they are out. The service
    /// hears no more of this connection.
    fn send_last(&mut self, connection: ConnectionId, bytes: Vec<u8>);

    /// Arms a deadline; [`Service::timer`](crate::Service::timer) gets the number back, of which the
    /// highest bit is ignored. Deadlines cannot be taken back: look whether it still matters.
    fn arm(&mut self, at_ms: u64, timer: u64);

    /// Sends mail to a loop, this one included; it is handled after the current call.
    fn send(&mut self, to: impl Into<Destination>, mail: M);

    /// Offers what was sent last to a loop, in this turn, to be added to. `add`: whether it has added something; that counts
    /// as sent. False: nothing was, or it is for other receivers.
    fn add_to_last(&mut self, to: usize, add: impl FnOnce(&mut M) -> bool) -> bool;

    /// Sends a message along with the connection that this call hands over
    /// ([`Next::HandOver`](crate::Next::HandOver)); [`Service::accompanied`](crate::Service::accompanied)
    /// gets it.
    fn accompany(&mut self, mail: M);
}
