//! What stands between a socket and MQTT: the PROXY protocol's header, TLS, WebSocket.
//!
//! Purpose: [`Layers`] turns the bytes of a socket into those of MQTT and back, on either side of a
//! connection.
//!
//! Invariants: nothing is buffered but incomplete records, frames and handshakes, each within a stated
//! limit; an idle connection holds no buffer. What a peer sends never panics.
//!
//! Deliberately absent: sockets, clocks and time limits (`net` has them), and what MQTT's bytes mean.

mod certificate;
mod client;
mod forwarded;
mod identity;
mod proxy;
mod tls;
mod websocket;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use net_api::Spoken;
use rustls::pki_types::ServerName;

pub use certificate::CertificateFacts;
pub use client::ClientTransport;
pub use forwarded::{Forwarded, ForwardedHeader};
pub use identity::Identity;
pub use tls::{
    ClientAuth, ClientTls, MinimumVersion, ServerConfigs, ServerTls, Tickets, TlsFileError,
};
pub use websocket::{Server as WebSocketServer, Target as WebSocketTarget};

use proxy::{Proxied, ProxyHeader};
use tls::Tls;
use websocket::WebSocket;

/// What a listener's connections begin with. The order on the wire is that of the fields.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// A PROXY protocol header is required first.
    pub proxy: Option<ProxyOptions>,
    /// TLS.
    pub tls: Option<ServerConfigs>,
    /// WebSocket.
    pub websocket: Option<Arc<WebSocketServer>>,
}

/// What is taken of the PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyOptions {
    /// The header in text.
    pub v1: bool,
    /// The binary header.
    pub v2: bool,
    /// The common name of a certificate that the proxy has verified, which stands for the client's user name.
    pub names: bool,
}

/// What a client's connections begin with. The order on the wire is that of the fields.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// TLS, and the name that the server's certificate must have.
    pub tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
    /// WebSocket.
    pub websocket: Option<WebSocketTarget>,
}

/// The layers of one connection. A connection of plain MQTT has none.
#[derive(Debug)]
pub struct Layers {
    /// Until the header is complete.
    proxy: Option<ProxyHeader>,
    tls: Option<Box<Tls>>,
    websocket: Option<WebSocket>,
    source: Option<SocketAddr>,
    /// The common name of the client's certificate, which the proxy has verified.
    proxied_name: Option<Box<str>>,
    /// For the socket; sealed already.
    output: Vec<u8>,
}

impl Layers {
    /// The server's side. `None`: the options name no layer.
    ///
    /// # Panics
    /// If rustls refuses the configuration, which it does for none that [`ServerTls`] makes.
    #[must_use]
    pub fn accept(options: &ServerOptions) -> Option<Box<Self>> {
        Self::of(
            options.proxy.map(ProxyHeader::new),
            options.tls.as_ref().map(|configs| {
                Tls::accept(configs).expect("a configuration that ServerTls made is valid")
            }),
            options.websocket.clone().map(WebSocket::accept),
        )
    }

    /// The client's side, whose first output is there at once. `None`: the options name no layer.
    ///
    /// # Panics
    /// If rustls refuses the configuration, which it does for none that [`ClientTls`] makes.
    #[must_use]
    pub fn connect(options: &ClientOptions) -> Option<Box<Self>> {
        let mut layers = Self::of(
            None,
            options.tls.as_ref().map(|(config, name)| {
                Tls::connect(config.clone(), name.clone())
                    .expect("a configuration that ClientTls made is valid")
            }),
            options.websocket.clone().map(WebSocket::connect),
        )?;
        layers
            .receive(&[], &mut Vec::new())
            .expect("nothing came that could be wrong");
        Some(layers)
    }

    fn of(
        proxy: Option<ProxyHeader>,
        tls: Option<Tls>,
        websocket: Option<WebSocket>,
    ) -> Option<Box<Self>> {
        let any = proxy.is_some() || tls.is_some() || websocket.is_some();
        any.then(|| {
            Box::new(Self {
                proxy,
                tls: tls.map(Box::new),
                websocket,
                source: None,
                proxied_name: None,
                output: Vec::new(),
            })
        })
    }

    /// Takes bytes that came from the socket and appends those of MQTT to `inner`. Afterwards there may be
    /// output ([`Layers::take_output`]), also if there is an error: then it says why, and is to be sent
    /// before the connection is closed. What stood before an error or the end is in `inner`.
    ///
    /// # Errors
    /// The peer broke a protocol, or ended it in order ([`TransportError::Closed`]).
    pub fn receive(&mut self, bytes: &[u8], inner: &mut Vec<u8>) -> Result<(), TransportError> {
        let result = self.receive_proxy(bytes, inner);
        if result.is_err() {
            self.end();
        }
        result
    }

    fn receive_proxy(&mut self, bytes: &[u8], inner: &mut Vec<u8>) -> Result<(), TransportError> {
        let Some(header) = &mut self.proxy else {
            return self.receive_tls(bytes, inner);
        };
        let Some(Proxied { source, name, rest }) = header.receive(bytes)? else {
            return Ok(());
        };
        self.proxy = None;
        self.source = source;
        self.proxied_name = name;
        self.receive_tls(&rest, inner)
    }

    fn receive_tls(&mut self, bytes: &[u8], inner: &mut Vec<u8>) -> Result<(), TransportError> {
        let Some(tls) = &mut self.tls else {
            return self.receive_websocket(bytes, inner);
        };
        if self.websocket.is_none() {
            return tls.receive(bytes, inner, &mut self.output);
        }
        let mut plaintext = Vec::new();
        let result = tls.receive(bytes, &mut plaintext, &mut self.output);
        if tls.is_established() {
            self.receive_websocket(&plaintext, inner)?;
        }
        result
    }

    fn receive_websocket(
        &mut self,
        bytes: &[u8],
        inner: &mut Vec<u8>,
    ) -> Result<(), TransportError> {
        let Some(websocket) = &mut self.websocket else {
            inner.extend_from_slice(bytes);
            return Ok(());
        };
        let mut answer = Vec::new();
        let result = websocket.receive(bytes, inner, &mut answer);
        match &mut self.tls {
            Some(tls) => tls.send(&answer, &mut self.output),
            None => self.output.append(&mut answer),
        }
        result
    }

    /// Appends to `out`, for the socket, what the layers themselves have to send and then bytes of MQTT. Not
    /// before the layers are established.
    pub fn send(&mut self, inner: &[u8], out: &mut Vec<u8>) {
        self.take_output(out);
        match (&self.websocket, &mut self.tls) {
            (Some(websocket), Some(tls)) => {
                let mut frame = Vec::with_capacity(WebSocket::frame_length(inner.len()));
                websocket.send(inner, &mut frame);
                tls.send(&frame, out);
            }
            (Some(websocket), None) => websocket.send(inner, out),
            (None, Some(tls)) => tls.send(inner, out),
            (None, None) => out.extend_from_slice(inner),
        }
    }

    /// Whether the layers have something of their own to send: handshakes, pongs, alerts.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Appends what the layers themselves have to send.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        out.append(&mut std::mem::take(&mut self.output));
    }

    /// Whether all handshakes are done.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.proxy.is_none()
            && self.tls.as_ref().is_none_or(|tls| tls.is_established())
            && self
                .websocket
                .as_ref()
                .is_none_or(WebSocket::is_established)
    }

    /// Appends what the layers still have to send and the end of each: a Close frame, close_notify.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        self.end();
        self.take_output(out);
    }

    fn end(&mut self) {
        let mut close = Vec::new();
        if let Some(websocket) = &mut self.websocket {
            websocket.close(&mut close);
        }
        match &mut self.tls {
            Some(tls) => {
                tls.send(&close, &mut self.output);
                tls.close(&mut self.output);
            }
            None => self.output.append(&mut close),
        }
    }

    /// For whom a proxy says that it connects.
    #[must_use]
    pub fn source(&self) -> Option<SocketAddr> {
        self.source
    }

    /// The common name of the certificate that a proxy has verified, as its header says (PROXY protocol, version 2).
    #[must_use]
    pub fn proxied_name(&self) -> Option<&str> {
        self.proxied_name.as_deref()
    }

    /// For whom an HTTP proxy says that it connects, once. Counts only if the peer is a trusted one.
    pub fn take_forwarded(&mut self) -> Option<IpAddr> {
        self.websocket.as_mut()?.take_forwarded()
    }

    /// Whether the peer is a browser that opened a WebSocket for a page of another host than this one, where no origins are
    /// listed: the page may be anybody's, and the person in front of the browser knows nothing of it (RFC 6455 §10.2).
    #[must_use]
    pub fn is_of_foreign_page(&self) -> bool {
        let websocket = self.websocket.as_ref();
        websocket.is_some_and(|websocket| websocket.is_of_foreign_page())
    }

    /// The peer's verified certificate, DER.
    #[must_use]
    pub fn certificate(&self) -> Option<&[u8]> {
        let certificate = self.tls.as_ref()?.peer_certificate()?;
        Some(certificate.as_ref())
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
    /// The peer does not speak TLS, but this.
    NotTls(Spoken),
    /// The peer does not speak WebSocket, but this.
    NotWebSocket(Spoken),
    /// The WebSocket handshake or a frame is wrong.
    WebSocket(&'static str),
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed by the peer"),
            Self::Proxy(what) => write!(f, "PROXY protocol: {what}"),
            Self::Tls(error) => write!(f, "TLS: {}", tls::in_words(error)),
            Self::NotTls(spoken) => write!(f, "the peer speaks {spoken} where TLS is spoken"),
            Self::NotWebSocket(spoken) => {
                write!(f, "the peer speaks {spoken} where WebSocket is spoken")
            }
            Self::WebSocket(what) => write!(f, "WebSocket: {what}"),
        }
    }
}

impl std::error::Error for TransportError {}
