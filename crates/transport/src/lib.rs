//! What stands between a socket and MQTT: the PROXY protocol's header, TLS, WebSocket.
//!
//! Purpose: [`Layers`] turns the bytes of a socket into those of MQTT and back, on either side of a
//! connection.
//!
//! Invariants: nothing is buffered but incomplete records, frames and handshakes, each within a stated
//! limit; an idle connection holds no buffer. What a peer sends never panics.
//!
//! Deliberately absent: sockets, clocks and time limits (`net` has them), and what MQTT's bytes mean.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// What a listener's connections begin with. The order on the wire is that of the fields.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// A PROXY protocol header is required first.
    pub proxy: Option<ProxyVersions>,
    /// TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// WebSocket: the path, such as `/mqtt`.
    pub websocket: Option<Arc<str>>,
}

/// Versions of the PROXY protocol that are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyVersions {
    /// The header in text.
    pub v1: bool,
    /// The binary header.
    pub v2: bool,
}

/// The layers of one connection. A connection of plain MQTT has none.
#[derive(Debug)]
pub struct Layers {}

impl Layers {
    /// The server's side. `None`: the options name no layer.
    #[must_use]
    pub fn accept(options: &ServerOptions) -> Option<Box<Self>> {
        let _ = options;
        None
    }

    /// Takes bytes that came from the socket and appends those of MQTT to `inner`. Afterwards there may be
    /// output ([`Layers::take_output`]), also if there is an error: then it says why, and is to be sent
    /// before the connection is closed.
    ///
    /// # Errors
    /// The peer broke a protocol, or ended it in order ([`TransportError::Closed`]).
    pub fn receive(&mut self, bytes: &[u8], inner: &mut Vec<u8>) -> Result<(), TransportError> {
        inner.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends to `out`, for the socket, bytes of MQTT. Not before the layers are established.
    pub fn send(&mut self, inner: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(inner);
    }

    /// Whether the layers have something of their own to send: handshakes, pongs, alerts.
    #[must_use]
    pub fn has_output(&self) -> bool {
        false
    }

    /// Appends what the layers themselves have to send.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Whether all handshakes are done.
    #[must_use]
    pub fn is_established(&self) -> bool {
        true
    }

    /// Appends the end of each layer: a Close frame, close_notify.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// For whom a proxy says that it connects.
    #[must_use]
    pub fn source(&self) -> Option<SocketAddr> {
        None
    }

    /// The client's verified certificate, DER.
    #[must_use]
    pub fn certificate(&self) -> Option<&[u8]> {
        None
    }
}

/// Why a connection ends.
#[derive(Debug)]
pub enum TransportError {
    /// The peer ended a layer in order.
    Closed,
    /// The PROXY header is missing, malformed or of a version that is not taken.
    Proxy(&'static str),
    /// TLS failed.
    Tls(rustls::Error),
    /// The WebSocket handshake or a frame is wrong.
    WebSocket(&'static str),
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed by the peer"),
            Self::Proxy(what) => write!(f, "PROXY protocol: {what}"),
            Self::Tls(error) => write!(f, "TLS: {error}"),
            Self::WebSocket(what) => write!(f, "WebSocket: {what}"),
        }
    }
}

impl std::error::Error for TransportError {}
