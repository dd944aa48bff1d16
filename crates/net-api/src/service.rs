//! What an event loop asks of the code that understands the bytes.

use std::error::Error;
use std::{fmt, io};

use crate::{ConnectionId, Connections, PeerAddress};

/// How a connection came to this loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Accepted from a listener.
    Accepted,
    /// Handed over by another loop, before it sent anything that was consumed there.
    HandedOver,
}

/// What was done with received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// How many of the bytes are done with. The rest is offered again, together with what follows.
    pub consumed: usize,
    /// What to do with the connection.
    pub next: Next,
}

/// What is to be done with a connection after some of its bytes were handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Go on reading.
    Read,
    /// Go on in the next turn, so that what was done so far reaches its receivers first.
    Yield,
    /// Read nothing more until [`Connections::resume`].
    Pause,
    /// Close at once; the service has done its own part.
    Close,
    /// Give the connection, with the bytes not consumed, to another loop.
    HandOver(usize),
}

/// What follows a transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transmit {
    /// Nothing is left to send.
    Idle,
    /// There is more; ask again when this is written.
    More,
    /// Close when this is written.
    Close,
}

/// Why a connection is gone.
#[derive(Debug)]
pub enum Closed {
    /// The peer ended the stream.
    ByPeer,
    /// Reading or writing failed.
    Error(io::Error),
    /// The peer broke the protocol of a layer.
    Transport(Box<dyn Error + Send + Sync>),
    /// The handshakes of its layers took too long.
    HandshakeTimeout,
}

impl Closed {
    /// What went wrong. `None`: the peer ended the stream in order.
    #[must_use]
    pub fn error(&self) -> Option<&dyn fmt::Display> {
        match self {
            Self::ByPeer => None,
            Self::Error(error) => Some(error),
            Self::Transport(error) => Some(error),
            Self::HandshakeTimeout => Some(&"the handshake took too long"),
        }
    }
}

/// The part of a program that understands the bytes. Each loop owns one.
///
/// No method may block or sleep: other connections wait meanwhile.
pub trait Service: Send + 'static {
    /// What loops send each other.
    type Mail: Send + 'static;

    /// How many connections may be accepted now. 0: ask again in a moment.
    fn accept_budget(&mut self, io: &mut impl Connections<Self::Mail>) -> usize;

    /// Whether a connection of this peer, which has just been accepted, is let in by this listener. It is
    /// closed otherwise.
    fn admits(
        &mut self,
        io: &mut impl Connections<Self::Mail>,
        listener: u16,
        peer: PeerAddress,
    ) -> bool {
        let _ = (io, listener, peer);
        true
    }

    /// A connection belongs to this loop from now on.
    fn arrived(
        &mut self,
        io: &mut impl Connections<Self::Mail>,
        connection: ConnectionId,
        peer: PeerAddress,
        how: Arrival,
    );

    /// What the other loop sent along with a connection that it handed over ([`Connections::accompany`]); comes
    /// right after [`Service::arrived`].
    fn accompanied(
        &mut self,
        io: &mut impl Connections<Self::Mail>,
        connection: ConnectionId,
        mail: Self::Mail,
    ) {
        let _ = (io, connection, mail);
    }

    /// Bytes came. They start where the last call's `consumed` ended.
    fn received(
        &mut self,
        io: &mut impl Connections<Self::Mail>,
        connection: ConnectionId,
        bytes: &[u8],
    ) -> Received;

    /// A connection has more to read, and is not read before a time because of its rate. Called again whenever it would be
    /// read before that time.
    fn throttled(
        &mut self,
        io: &mut impl Connections<Self::Mail>,
        connection: ConnectionId,
        until_ms: u64,
    ) {
        let _ = (io, connection, until_ms);
    }

    /// A connection that was touched ([`Connections::touch`]) can be written: append what there is to send,
    /// stopping when `out` holds `budget` bytes or more.
    fn transmit(
        &mut self,
        io: &mut impl Connections<Self::Mail>,
        connection: ConnectionId,
        out: &mut Vec<u8>,
        budget: usize,
    ) -> Transmit;

    /// A connection is gone for a reason that did not come from the service.
    fn closed(
        &mut self,
        io: &mut impl Connections<Self::Mail>,
        connection: ConnectionId,
        cause: Closed,
    );

    /// A deadline armed with [`Connections::arm`] has come.
    fn timer(&mut self, io: &mut impl Connections<Self::Mail>, timer: u64);

    /// Mail from another loop, or from outside.
    fn mail(&mut self, io: &mut impl Connections<Self::Mail>, mail: Self::Mail);
}
