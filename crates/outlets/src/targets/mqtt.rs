//! Messages are published at another MQTT broker, with QoS 1.
//!
//! All messages of a batch are sent without waiting, as many at a time as the other broker takes. Versions: MQTT 5.0, and 3.1.1 if the
//! broker refuses that.

use std::convert::Infallible;
use std::io;
use std::num::NonZeroU16;
use std::sync::Arc;

use mqtt_client::{Event, ServerLimits};
use mqtt_proto::{
    Connect, ConnectProperties, ProtocolVersion, Publish, PublishProperties, QoS, ReasonCode,
    UserProperties,
};
use outlet::{Delivery, Item, OpenError, Template};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::definition::MqttDefinition;
use crate::epoch::POSITION;
use crate::link::{Link, Stream};
use crate::report::Count;
use crate::secret::read_secret;

/// Silence after which the other broker is asked whether it is there, in s.
const KEEP_ALIVE: u16 = 60;

#[derive(Debug)]
pub(crate) struct MqttTarget {
    definition: MqttDefinition,
    place: Place,
    topic: Template,
    version: ProtocolVersion,
    link: Option<Link<usize>>,
    /// This cluster, in paths.
    cluster: String,
    /// Messages that have been here before, or have passed too many clusters.
    looped: Count,
}

/// The User Property with the clusters that a message has passed, separated by commas.
const PATH: &str = "hmq-path";

/// A message that has passed so many clusters goes no further.
const LONGEST_PATH: usize = 8;

/// How far a batch is.
struct Progress {
    /// Messages before this one are sent, or cannot be.
    next: usize,
    /// Messages that are finished.
    finished: usize,
    refused: Vec<usize>,
    why: Option<Arc<str>>,
    /// The broker takes nothing for the moment.
    busy: Option<String>,
}

impl MqttTarget {
    pub(crate) fn new(definition: &MqttDefinition, cluster: &str) -> Result<Self, String> {
        let place = Place::parse(&definition.url)?;
        Ok(Self {
            definition: definition.clone(),
            place,
            topic: Template::parse(&definition.topic).map_err(|error| error.to_string())?,
            version: ProtocolVersion::V5,
            link: None,
            cluster: cluster.to_owned(),
            looped: Count(0),
        })
    }

    /// Messages that were dropped since they went in a circle.
    pub(crate) fn looped(&self) -> Count {
        self.looped
    }

    pub(crate) async fn open(&mut self) -> Result<(), OpenError> {
        let deadline = Instant::now() + self.definition.timeout;
        self.connect(deadline)
            .await
            .map_err(|why| OpenError::Retry(why.into()))
    }

    pub(crate) async fn probe(&mut self) -> Result<String, String> {
        let deadline = Instant::now() + self.definition.timeout;
        self.connect(deadline).await?;
        self.link = None;
        Ok(match self.version {
            ProtocolVersion::V5 => "the broker accepts the client, with MQTT 5.0",
            _ => "the broker accepts the client, with MQTT 3.1.1",
        }
        .to_owned())
    }

    /// Answers the broker, and asks it whether it is there, until the connection is over.
    pub(crate) async fn idle(&mut self) -> Infallible {
        while let Some(link) = &mut self.link {
            let mut is_over = false;
            let turned = link.turn(true, |_, event| {
                is_over |= matches!(event, Event::Disconnected(_));
            });
            if turned.await.is_err() || is_over {
                self.link = None;
            }
        }
        std::future::pending().await
    }

    async fn connect(&mut self, deadline: Instant) -> Result<(), String> {
        self.link = None;
        let connected = match self.attempt(deadline).await {
            Ok(Err(ReasonCode::UnsupportedProtocolVersion))
                if self.version == ProtocolVersion::V5 =>
            {
                self.version = ProtocolVersion::V3_1_1;
                self.attempt(deadline).await
            }
            connected => connected,
        };
        match connected? {
            Ok(link) => {
                self.link = Some(link);
                Ok(())
            }
            Err(reason) => {
                // It may be another broker next time.
                self.version = ProtocolVersion::V5;
                Err(format!("the broker refuses the client: {reason:?}"))
            }
        }
    }

    async fn attempt(&self, deadline: Instant) -> Result<Result<Link<usize>, ReasonCode>, String> {
        let password = match &self.definition.password_file {
            Some(path) => Some(read_secret(path)?),
            None => None,
        };
        let attempt = async {
            let stream = self.stream().await?;
            let mut link = Link::new(stream);
            let connect = Connect {
                version: self.version,
                is_bridge: false,
                clean_start: true,
                keep_alive: KEEP_ALIVE,
                client_id: &self.definition.client_id,
                will: None,
                username: self.definition.user.as_deref(),
                password: password.as_deref(),
                properties: ConnectProperties {
                    // Nothing is subscribed to.
                    receive_maximum: NonZeroU16::new(1),
                    ..ConnectProperties::default()
                },
            };
            let encoded = link.client().connect(&connect);
            encoded.map_err(|error| error.to_string())?;
            let mut refused = None;
            while refused.is_none() && !link.client().is_connected() {
                let turn = link.turn(true, |_, event| {
                    if let Event::Refused(ack) = event {
                        refused = Some(ack.reason);
                    }
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

    pub(crate) async fn deliver(&mut self, batch: &[Arc<Item>]) -> Delivery {
        if self.link.is_none() {
            // It has ended while there was nothing to do.
            let deadline = Instant::now() + self.definition.timeout;
            if let Err(why) = self.connect(deadline).await {
                return retry(why);
            }
        }
        let Some(mut link) = self.link.take() else {
            return retry("there is no connection".to_owned());
        };
        let mut progress = Progress {
            next: 0,
            finished: 0,
            refused: Vec::new(),
            why: None,
            busy: None,
        };
        let limits = link.client().server_limits();
        while progress.finished < batch.len() {
            if let Err(error) = self.publish(&mut link, batch, &mut progress, limits) {
                return retry(error);
            }
            if progress.finished == batch.len() {
                break;
            }
            // Each answer may take as long.
            let deadline = Instant::now() + self.definition.timeout;
            match timeout_at(deadline, await_answer(&mut link, &mut progress)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return retry(format!("the broker ends the connection: {error}")),
                Err(_) => return retry("the broker does not acknowledge in time".to_owned()),
            }
        }
        self.link = Some(link);
        if let Some(busy) = progress.busy {
            return retry(busy);
        }
        match progress.why {
            None => Delivery::All,
            Some(why) => {
                progress.refused.sort_unstable();
                Delivery::Except {
                    refused: progress.refused,
                    why,
                }
            }
        }
    }

    /// Publishes as many as there is room for.
    fn publish(
        &mut self,
        link: &mut Link<usize>,
        batch: &[Arc<Item>],
        progress: &mut Progress,
        limits: ServerLimits,
    ) -> Result<(), String> {
        let qos = limits.maximum_qos.min(QoS::AtLeastOnce);
        while let Some(item) = batch.get(progress.next)
            && progress.busy.is_none()
            && link.client().has_room(qos)
        {
            let index = progress.next;
            progress.next += 1;
            let Some(path) = path(item, &self.cluster) else {
                self.looped.0 += 1;
                progress.finished += 1;
                continue;
            };
            let sent = self.publish_one(link, (index, item, &path), (qos, limits.retain_available));
            match sent {
                Ok(()) if qos == QoS::AtMostOnce => progress.finished += 1,
                Ok(()) => {}
                Err(_) if !link.client().is_connected() => {
                    return Err("the broker has ended the connection".to_owned());
                }
                Err(why) => progress.refuse(index, why),
            }
        }
        if progress.busy.is_some() {
            // What is not sent is not waited for; all is tried again.
            progress.finished += batch.len() - progress.next;
            progress.next = batch.len();
        }
        Ok(())
    }

    fn publish_one(
        &self,
        link: &mut Link<usize>,
        (index, item, path): (usize, &Item, &str),
        (qos, retain_available): (QoS, bool),
    ) -> Result<(), String> {
        let topic = self.topic.render(item).map_err(|error| error.to_string())?;
        let position = item.position.map(|position| position.to_string());
        let mut pairs: Vec<(&str, &str)> = Vec::with_capacity(item.properties.len() + 2);
        let own = |name: &str| ![PATH, POSITION].contains(&name);
        let kept = item.properties.iter().filter(|(name, _)| own(name));
        pairs.extend(kept.map(|(name, value)| (&**name, &**value)));
        pairs.push((PATH, path));
        if let Some(position) = &position {
            pairs.push((POSITION, position));
        }
        if self.version != ProtocolVersion::V5 {
            pairs.clear();
        }
        let mut buffer = Vec::new();
        let user_properties = UserProperties::encode_from(&pairs, &mut buffer);
        let packet = Publish {
            dup: false,
            qos,
            retain: item.retain && self.definition.retain && retain_available,
            topic: &topic,
            packet_id: None,
            properties: PublishProperties {
                user_properties: user_properties.map_err(|error| error.to_string())?,
                ..PublishProperties::default()
            },
            payload: &item.payload,
        };
        let published = link.client().publish(packet, index);
        published.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl Progress {
    fn refuse(&mut self, index: usize, why: String) {
        self.refused.push(index);
        self.why = Some(why.into());
        self.finished += 1;
    }

    fn handle_acknowledgement(&mut self, index: usize, reason: ReasonCode, said: Option<&str>) {
        if !reason.is_error() {
            self.finished += 1;
            return;
        }
        let why = match said {
            Some(said) => format!("the broker answers {reason:?}: {said}"),
            None => format!("the broker answers {reason:?}"),
        };
        match reason {
            ReasonCode::QuotaExceeded | ReasonCode::PacketIdentifierInUse => {
                self.busy = Some(why);
                self.finished += 1;
            }
            _ => self.refuse(index, why),
        }
    }
}

/// Ends after something has moved.
async fn await_answer(link: &mut Link<usize>, progress: &mut Progress) -> io::Result<()> {
    let mut ended = None;
    link.turn(true, |_, event| match event {
        Event::Acknowledged(ack) => {
            progress.handle_acknowledgement(ack.message, ack.reason, ack.reason_string);
        }
        Event::Disconnected(disconnect) => ended = Some(disconnect.reason),
        _ => {}
    })
    .await?;
    match ended {
        Some(reason) => Err(io::Error::other(format!("{reason:?}"))),
        None => Ok(()),
    }
}

/// The path of a message with this cluster behind it; `None`: it has been here, or has passed as many clusters as a message may.
fn path(item: &Item, cluster: &str) -> Option<String> {
    let mut properties = item.properties.iter();
    let passed = properties.find(|(name, _)| &**name == PATH);
    let passed = passed.map_or("", |(_, value)| value);
    let mut clusters: Vec<&str> = passed.split(',').filter(|one| !one.is_empty()).collect();
    if clusters.contains(&cluster) || clusters.len() >= LONGEST_PATH {
        return None;
    }
    clusters.push(cluster);
    Some(clusters.join(","))
}

fn retry(why: String) -> Delivery {
    Delivery::Retry {
        after: None,
        why: why.into(),
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
    fn a_message_passes_a_cluster_once_and_eight_at_most() {
        let of = |passed: &str| {
            let item = Item {
                position: None,
                topic: "a".into(),
                payload: bytes::Bytes::new(),
                qos: 1,
                retain: false,
                received: outlet::Milliseconds(0),
                properties: vec![(PATH.into(), passed.into())],
            };
            path(&item, "me")
        };
        assert_eq!(of("").as_deref(), Some("me"));
        assert_eq!(of("x,you").as_deref(), Some("x,you,me"));
        assert_eq!(of("x,me,you"), None);
        assert_eq!(of("1,2,3,4,5,6,7").as_deref(), Some("1,2,3,4,5,6,7,me"));
        assert_eq!(of("1,2,3,4,5,6,7,8"), None);
    }

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
