//! The layers of a connection, and what the loop keeps with them.

use std::net::SocketAddr;
use std::sync::Arc;

use net_api::{Handshakes, PeerAddress};
use transport::{Layers, TransportError};

use crate::listener::Profile;

/// Layers between a socket and the service.
#[derive(Debug)]
pub(crate) struct Layered {
    layers: Layers,
    profile: Arc<Profile>,
    /// There is only the header of a proxy.
    only_header: bool,
    /// The time (ms) by which all handshakes must be done; `None`: they are.
    handshake_until: Option<u64>,
    /// The user name that the client's certificate stands for.
    certificate_name: Option<Box<str>>,
    /// Why nothing more comes. It counts when the bytes that came before are consumed.
    end: Option<Box<TransportError>>,
}

impl Layered {
    /// The layers of a fresh connection; `None`: there are none.
    pub(crate) fn accept(profile: &Arc<Profile>, handshake_until: u64) -> Option<Box<Self>> {
        let options = profile.options();
        let layers = Layers::accept(&options)?;
        Some(Box::new(Self {
            layers: *layers,
            profile: Arc::clone(profile),
            only_header: options.tls.is_none() && options.websocket.is_none(),
            handshake_until: Some(handshake_until),
            certificate_name: None,
            end: None,
        }))
    }

    /// Bytes of the socket; those of the service are appended to `inner`.
    pub(crate) fn receive(&mut self, bytes: &[u8], inner: &mut Vec<u8>) {
        if let Err(error) = self.layers.receive(bytes, inner) {
            self.end = Some(Box::new(error));
        }
        if self.handshake_until.is_some() && self.layers.is_established() {
            self.handshake_until = None;
            let certificate = self.layers.certificate();
            let own = certificate.and_then(|der| self.profile.name_in(der));
            let proxied = || self.layers.proxied_name().map(Box::from);
            self.certificate_name = own.or_else(proxied);
        }
    }

    /// Why nothing more comes, once.
    pub(crate) fn take_end(&mut self) -> Option<Box<TransportError>> {
        self.end.take()
    }

    /// Whether the layers have something of their own to send.
    pub(crate) fn has_output(&self) -> bool {
        self.layers.has_output()
    }

    /// The time (ms) by which the handshakes must be done; `None`: they are.
    pub(crate) fn handshake_until(&self) -> Option<u64> {
        self.handshake_until
    }

    /// Whether the layers have done their part: nothing of them stands between later bytes and the service.
    pub(crate) fn are_done(&self) -> bool {
        self.only_header && self.is_open() && self.certificate_name.is_none()
    }

    /// Whether the service's bytes can be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.handshake_until.is_none() && self.end.is_none()
    }

    /// Appends what the socket gets: what the layers have to send, and the service's bytes.
    pub(crate) fn seal(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.layers.take_output(out);
        if self.is_open() && !bytes.is_empty() {
            self.layers.send(bytes, out);
        }
    }

    /// What the socket gets last.
    pub(crate) fn seal_last(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.seal(bytes, &mut out);
        self.layers.close(&mut out);
        out
    }

    /// For whom the peer connects, if a proxy has said so in what has come last.
    pub(crate) fn client(&mut self, peer: PeerAddress) -> Option<PeerAddress> {
        let header = self.layers.source().map(PeerAddress::Ip);
        let forwarded = self.layers.take_forwarded();
        let options = self.profile.options();
        let believed = forwarded.filter(|_| {
            let nearest = header.unwrap_or(peer).ip();
            let server = options.websocket.as_ref();
            let forwarded = server.and_then(|server| server.forwarded.as_ref());
            nearest.is_some_and(|ip| forwarded.is_some_and(|forwarded| forwarded.trusts(ip)))
        });
        // The header of HTTP tells no port that means anything here.
        let client = believed.map(|ip| PeerAddress::Ip(SocketAddr::new(ip, 0)));
        client.or(header)
    }

    /// What they have told.
    pub(crate) fn handshakes(&self) -> Handshakes<'_> {
        Handshakes {
            certificate_name: self.certificate_name.as_deref(),
            is_of_foreign_page: self.layers.is_of_foreign_page(),
        }
    }
}
