//! How a client is asked to connect, by names and files, and what becomes of it when these are read.
//!
//! Deliberately absent: the connection itself; `Layers` has it.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};

use crate::tls::blame;
use crate::{ClientOptions, ClientTls, TlsFileError, WebSocketTarget};

/// What clients connect by. Plain MQTT if nothing is set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClientTransport {
    /// TLS.
    pub tls: Option<ClientTls>,
    /// WebSocket: the path, such as `/mqtt`.
    pub websocket: Option<String>,
}

impl ClientTransport {
    /// What a connection to this server begins with.
    ///
    /// # Errors
    /// Names the file that cannot be used, or a host whose name no certificate can have.
    pub fn load(&self, host: &str, port: u16) -> Result<ClientOptions, TlsFileError> {
        let tls = match &self.tls {
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|error| blame(Path::new(host), error))?;
                Some((tls.load()?, name))
            }
            None => None,
        };
        let websocket = self.websocket.as_ref().map(|path| WebSocketTarget {
            host: authority(host, port),
            path: path.clone(),
        });
        Ok(ClientOptions { tls, websocket })
    }
}

/// Name and port as they stand in a URL (RFC 3986 §3.2).
fn authority(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => SocketAddr::from((address, port)).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_version_6_stand_in_brackets() {
        assert_eq!(authority("localhost", 8080), "localhost:8080");
        assert_eq!(authority("127.0.0.1", 8080), "127.0.0.1:8080");
        assert_eq!(authority("::1", 8080), "[::1]:8080");
    }
}
