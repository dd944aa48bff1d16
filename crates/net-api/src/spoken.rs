//! What a peer speaks, by its first byte.

use std::fmt;

/// What a peer speaks, by the first byte that it sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spoken {
    /// MQTT without TLS or WebSocket: CONNECT of a client, CONNACK of a server.
    Mqtt,
    /// HTTP, which is what WebSocket begins with.
    Http,
    /// TLS.
    Tls,
}

impl Spoken {
    /// `None`: something else, or TLS that cannot be told from it.
    #[must_use]
    pub fn by(first: u8) -> Option<Self> {
        match first {
            // Types of MQTT packets with flags 0.
            0x10 | 0x20 => Some(Self::Mqtt),
            // GET, HEAD, HTTP, OPTIONS, POST, PUT.
            b'G' | b'H' | b'O' | b'P' => Some(Self::Http),
            // Types of records: alert, handshake.
            0x15 | 0x16 => Some(Self::Tls),
            _ => None,
        }
    }
}

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mqtt => "plain MQTT",
            Self::Http => "plain HTTP",
            Self::Tls => "TLS",
        })
    }
}
