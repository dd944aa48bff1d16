//! Where connections come from, and by which listener.

use std::net::IpAddr;

use guard::{Refusal, Source};
use net_api::{ConnectionId, Kind, PeerAddress};

use super::Base;
use crate::clients::LoopIo;
use crate::rim::Rim;

/// The address that rules judge what comes from a source by, as [`Base::judged_address`].
pub(crate) fn judged(source: Source) -> Option<IpAddr> {
    let is_doubtful = source.is_proxied && source.ip.to_canonical().is_loopback();
    (!is_doubtful).then_some(source.ip)
}

impl<R: Rim> Base<R> {
    /// Whether a connection came by a proxy that says for whom.
    pub(crate) fn is_proxied(&self, io: &impl LoopIo, connection: ConnectionId) -> bool {
        let listener = io.listener(connection);
        listener.is_some_and(|listener| self.node.rim.is_proxied(listener))
    }

    /// Where a connection comes from, as limits see it. `None`: a Unix domain socket.
    pub(crate) fn source_of(&self, io: &impl LoopIo, connection: ConnectionId) -> Option<Source> {
        let ip = io.peer(connection)?.ip()?;
        let is_proxied = self.is_proxied(io, connection);
        Some(Source { ip, is_proxied })
    }

    /// The address that rules and authenticators judge a client by. What came through a proxy has none if it is
    /// a loopback one: it would stand for processes of this machine, and the proxy may be on another or may not
    /// have said whom it connects for.
    pub(crate) fn judged_address(
        &self,
        io: &impl LoopIo,
        connection: ConnectionId,
    ) -> Option<IpAddr> {
        judged(self.source_of(io, connection)?)
    }

    /// Whether the client is a process of this machine, as far as one can tell. A browser that connects for a page of another
    /// site is not: the site is elsewhere.
    pub(crate) fn is_local(&self, io: &impl LoopIo, connection: ConnectionId) -> bool {
        if io.handshakes(connection).is_of_foreign_page {
            return false;
        }
        match io.peer(connection) {
            Some(PeerAddress::Unix) => true,
            Some(PeerAddress::Ip(_)) => self
                .source_of(io, connection)
                .is_some_and(|source| source.is_this_machine()),
            None => false,
        }
    }

    /// The kind of the listener that a connection came to, or of a connection without one.
    pub(crate) fn kind_of(&self, io: &impl LoopIo, connection: ConnectionId) -> Option<Kind> {
        let number = usize::from(io.listener(connection)?);
        self.node.listener_kinds.get(number).copied()
    }

    /// Whether a connection may be kept, by where it comes from; if so, it holds its place.
    pub(crate) fn admit_connection(
        &self,
        io: &mut impl LoopIo,
        connection: ConnectionId,
        peer: PeerAddress,
    ) -> Result<(), Refusal> {
        let is_proxied = self.is_proxied(io, connection);
        let guard = &self.node.guard;
        // A Unix domain socket has no address.
        if let Some(ip) = peer.ip()
            && let Some(ticket) = guard.admit_connection(Source { ip, is_proxied }, io.now_ms())?
        {
            io.attach(connection, Box::new(ticket));
        }
        Ok(())
    }

    /// Whether a connection has neither TLS nor WebSocket, and so another node's TCP listener is as good.
    pub(crate) fn is_plain(&self, io: &impl LoopIo, connection: ConnectionId) -> bool {
        self.kind_of(io, connection) == Some(Kind::Tcp)
    }
}
