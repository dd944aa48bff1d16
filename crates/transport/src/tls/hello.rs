//! The choice of a configuration by the names of application protocols that a client offers (ALPN, RFC 7301).
//!
//! MQTT asks for no such name, and clients offer many: `mqtt`, `x-amzn-mqtt-ca`, `http/1.1` of a library that knows
//! nothing else. So an offer without a name that the listener knows is answered as if there were none. rustls would
//! refuse it (`no_application_protocol`), as it does with what is left: an offer of HTTP/2 alone where WebSocket
//! within HTTP/1.1 is spoken. Its client would speak HTTP/2.
//!
//! Invariant: the two configurations differ in the names only, so that a session of either is resumed by either.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::Acceptor;

/// HTTP in its version 1.1, which WebSocket begins with.
pub(super) const HTTP_1_1: &[u8] = b"http/1.1";

/// HTTP/2 over TLS (RFC 9113 §3.2).
const HTTP_2: &[u8] = b"h2";

/// What the connections of a TLS listener are made of.
#[derive(Clone, Debug)]
pub struct ServerConfigs {
    named: Arc<ServerConfig>,
    /// The same without names of application protocols. `None`: there are none.
    unnamed: Option<Arc<ServerConfig>>,
}

impl From<Arc<ServerConfig>> for ServerConfigs {
    fn from(named: Arc<ServerConfig>) -> Self {
        let unnamed = (!named.alpn_protocols.is_empty()).then(|| {
            let mut config = ServerConfig::clone(&named);
            config.alpn_protocols = Vec::new();
            Arc::new(config)
        });
        Self { named, unnamed }
    }
}

impl ServerConfigs {
    pub(super) fn named(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.named)
    }

    /// Whether a client with this offer is answered as if it offered nothing.
    fn passes_over<'a>(&self, offer: impl Iterator<Item = &'a [u8]>) -> bool {
        let known = &self.named.alpn_protocols;
        let is_http = known.iter().any(|name| name == HTTP_1_1);
        let mut is_http_2 = true;
        for name in offer {
            if known.iter().any(|known| known == name) {
                return false;
            }
            is_http_2 &= name == HTTP_2;
        }
        !(is_http && is_http_2)
    }
}

/// The choice, until the ClientHello that decides it is complete. The bytes are the connection's: nothing is kept twice.
#[derive(Debug)]
pub(super) struct Hello(ServerConfigs);

impl Hello {
    /// `None`: nothing depends on it.
    pub(super) fn of(configs: &ServerConfigs) -> Option<Box<Self>> {
        configs
            .unnamed
            .is_some()
            .then(|| Box::new(Self(configs.clone())))
    }

    /// The configuration without names, if the client whose first flight this is gets that one.
    pub(super) fn unnamed(self, flight: &[u8]) -> Option<Arc<ServerConfig>> {
        let mut acceptor = Acceptor::default();
        let mut rest = flight;
        while !rest.is_empty() {
            // What is wrong with it is for the connection to find.
            acceptor.read_tls(&mut rest).ok()?;
            if let Some(accepted) = acceptor.accept().ok()? {
                let offer = accepted.client_hello().alpn()?;
                let is_unnamed = self.0.passes_over(offer);
                return self.0.unnamed.filter(|_| is_unnamed);
            }
        }
        None
    }
}

/// Whether a client's first flight has its ClientHello, or begins with something else, which more bytes do not make
/// one.
pub(super) fn is_whole(flight: &[u8]) -> bool {
    let mut wanted = HANDSHAKE_HEADER;
    let (mut message, mut got) = ([0; HANDSHAKE_HEADER], 0);
    let mut rest = flight;
    while let Some((header, behind)) = rest.split_first_chunk::<RECORD_HEADER>() {
        let [kind, major, _, high, low] = *header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE || major != MAJOR_VERSION || length == 0 || length > RECORD_LIMIT {
            return true;
        }
        // Of a part of a record, this is a part of the message.
        let record = behind.get(..length).unwrap_or(behind);
        for (to, from) in message.iter_mut().skip(got).zip(record) {
            *to = *from;
        }
        got += record.len();
        if got >= HANDSHAKE_HEADER {
            let [kind, length @ ..] = message;
            let body = length
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            if kind != CLIENT_HELLO {
                return true;
            }
            wanted = HANDSHAKE_HEADER + body;
        }
        if got >= wanted {
            return true;
        }
        rest = behind.get(length..).unwrap_or_default();
    }
    // Not even a header.
    rest.first().is_some_and(|kind| *kind != HANDSHAKE)
}

/// Bytes before a record's content: its type, a version, its length (RFC 8446 §5.1).
const RECORD_HEADER: usize = 5;

/// The record type of handshakes.
const HANDSHAKE: u8 = 22;

/// Of the version in records, the part that all versions have.
const MAJOR_VERSION: u8 = 3;

/// Bytes of a record's content.
const RECORD_LIMIT: usize = 16 * 1024;

/// Bytes before a handshake message: its type and its length (RFC 8446 §4).
const HANDSHAKE_HEADER: usize = 4;

/// The type of the message ClientHello.
const CLIENT_HELLO: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn records(bytes: &[u8], length: usize) -> Vec<u8> {
        let record = |part: &[u8]| {
            let length = u16::try_from(part.len()).expect("short").to_be_bytes();
            [&[HANDSHAKE, MAJOR_VERSION, 1], &length[..], part].concat()
        };
        bytes.chunks(length).flat_map(record).collect()
    }

    #[test]
    fn a_client_hello_is_whole_with_its_last_byte() {
        let mut hello = vec![CLIENT_HELLO, 0, 1, 44];
        hello.resize(HANDSHAKE_HEADER + 300, 7);
        for length in [1, 2, 3, 100, 304] {
            let flight = records(&hello, length);
            for cut in 0..flight.len() {
                let part = flight.get(..cut).expect("a part");
                assert!(!is_whole(part), "{cut} of records of {length}");
            }
            assert!(is_whole(&flight));
            assert!(is_whole(&[&flight[..], b"more"].concat()));
        }
    }

    #[test]
    fn what_cannot_become_a_client_hello_is_not_waited_for() {
        let others: [&[u8]; 7] = [
            b"G",
            b"GET / HTTP/1.1",
            b"\x10\x10\0\x04MQTT",
            &[22, 2, 1, 0, 5],
            &[22, 3, 1, 0, 0],
            &[22, 3, 1, 0x40, 1],
            &[22, 3, 1, 0, 4, 2, 0, 0, 9],
        ];
        for other in others {
            assert!(is_whole(other), "{other:?}");
        }
    }
}
