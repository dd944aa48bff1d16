//! Another MQTT broker, as outlets and inlets connect to it.

use std::io;
use std::sync::Arc;

use mqtt_client::Event;
use mqtt_proto::{Connect, ConnectProperties, ProtocolVersion, ReasonCode};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::definition::BrokerDefinition;
use crate::link::{Link, Stream};
use crate::secret::read_secret;

/// Silence after which the other broker is asked whether it is there, in s.
const KEEP_ALIVE: u16 = 60;

/// Another broker.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) definition: BrokerDefinition,
    place: Place,
}

/// How a connection begins.
pub(crate) struct Opening<'a> {
    pub(crate) version: ProtocolVersion,
    /// Before 5.0 only.
    pub(crate) is_bridge: bool,
    pub(crate) clean_start: bool,
    pub(crate) client_id: &'a str,
    /// Empty before 5.0.
    pub(crate) properties: ConnectProperties<'a>,
}

impl Remote {
    /// # Errors
    /// The URL is none of a broker.
    pub(crate) fn new(definition: &BrokerDefinition) -> Result<Self, String> {
        Ok(Self {
            definition: definition.clone(),
            place: Place::parse(&definition.url)?,
        })
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.place.address
    }

    /// Connects, and waits for CONNACK. Events that came with CONNACK or right behind it are given to `handle`. Gives the reason if
    /// the broker refuses the client.
    ///
    /// # Errors
    /// The broker cannot be reached, or does not answer until the deadline; the password cannot be read.
    pub(crate) async fn connect<M: Clone>(
        &self,
        opening: &Opening<'_>,
        deadline: Instant,
        mut handle: impl FnMut(Event<'_, M>),
    ) -> Result<Result<Link<M>, ReasonCode>, String> {
        let password = match &self.definition.password_file {
            Some(path) => Some(read_secret(path)?),
            None => None,
        };
        let attempt = async {
            let stream = self.stream().await?;
            let mut link = Link::new(stream);
            let connect = Connect {
                version: opening.version,
                is_bridge: opening.is_bridge,
                clean_start: opening.clean_start,
                keep_alive: KEEP_ALIVE,
                client_id: opening.client_id,
                will: None,
                username: self.definition.user.as_deref(),
                password: password.as_deref(),
                properties: opening.properties,
            };
            let encoded = link.client().connect(&connect);
            encoded.map_err(|error| error.to_string())?;
            let mut refused = None;
            while refused.is_none() && !link.client().is_connected() {
                let turn = link.turn(true, |_, event| match event {
                    Event::Refused(ack) => refused = Some(ack.reason),
                    event => handle(event),
                });
                if let Err(error) = turn.await
                    && refused.is_none()
                {
                    return Err(format!("the broker ends the connection: {error}"));
                }
            }
            Ok(match refused {
                Some(reason) => Err(reason),
                None => Ok(link),
            })
        };
        let Ok(done) = timeout_at(deadline, attempt).await else {
            return Err("the broker does not answer in time".to_owned());
        };
        done
    }

    async fn stream(&self) -> Result<Box<dyn Stream>, String> {
        let Place {
            host,
            address,
            is_tls,
        } = &self.place;
        let failed = |error: io::Error| format!("{address}: {error}");
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        if !is_tls {
            return Ok(Box::new(stream));
        }
        let authorities = http_client::authorities(self.definition.ca_file.as_deref())?;
        let connector = TlsConnector::from(Arc::new(http_client::tls_client(authorities)));
        let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
        let stream = connector.connect(name, stream).await.map_err(failed)?;
        Ok(Box::new(stream))
    }
}

/// Where a broker is.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    host: String,
    /// Host and port.
    address: String,
    is_tls: bool,
}

impl Place {
    fn parse(url: &str) -> Result<Self, String> {
        let schemes = (url.strip_prefix("mqtts://"), url.strip_prefix("mqtt://"));
        let (rest, is_tls, port) = match schemes {
            (Some(rest), _) => (rest, true, 8883),
            (None, Some(rest)) => (rest, false, 1883),
            (None, None) => return Err(format!("{url} begins with neither mqtts:// nor mqtt://")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let wrong =
            || format!("{url} is no mqtt://HOST:PORT, without path, user name and password");
        if rest.is_empty() || rest.contains(['/', '@', '?', '#']) {
            return Err(wrong());
        }
        let (host, after) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(wrong)?,
            None => match rest.find(':') {
                Some(colon) => rest.split_at(colon),
                None => (rest, ""),
            },
        };
        let port: u16 = match after.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None if after.is_empty() => port,
            None => return Err(wrong()),
        };
        if host.is_empty() {
            return Err(wrong());
        }
        let address = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        Ok(Self {
            host: host.to_owned(),
            address,
            is_tls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_host_and_perhaps_a_port() {
        let of = |url: &str| Place::parse(url).ok();
        let is = |host: &str, address: &str, is_tls| {
            let (host, address) = (host.to_owned(), address.to_owned());
            Some(Place {
                host,
                address,
                is_tls,
            })
        };
        assert_eq!(of("mqtt://broker"), is("broker", "broker:1883", false));
        assert_eq!(of("mqtts://broker/"), is("broker", "broker:8883", true));
        assert_eq!(
            of("mqtts://b.example:99"),
            is("b.example", "b.example:99", true)
        );
        assert_eq!(of("mqtt://[::1]:1884"), is("::1", "[::1]:1884", false));
        assert_eq!(of("mqtt://[::1]"), is("::1", "[::1]:1883", false));
        for wrong in [
            "http://b",
            "mqtt://",
            "mqtt://:1",
            "mqtt://b:",
            "mqtt://b:x",
            "mqtt://b:65536",
            "mqtt://u:p@b",
            "mqtt://b/path",
            "mqtt://[::1",
            "mqtt://[::1]x",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
