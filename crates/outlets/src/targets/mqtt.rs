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
    ConnectProperties, ProtocolVersion, Publish, PublishProperties, QoS, ReasonCode, UserProperties,
};
use outlet::{Delivery, Item, OpenError, StandardProperties, Template};
use tokio::time::{Instant, timeout_at};

use crate::definition::MqttDefinition;
use crate::epoch::POSITION;
use crate::lines::now;
use crate::link::Link;
use crate::path::{PATH, extended, mark};
use crate::remote::{Opening, Remote};
use crate::report::Count;

/// Bytes of a Reason String that are kept.
const LONGEST_REASON: usize = 300;

#[derive(Debug)]
pub(crate) struct MqttTarget {
    definition: MqttDefinition,
    remote: Remote,
    topic: Template,
    version: ProtocolVersion,
    link: Option<Link<usize>>,
    /// This cluster, in paths.
    cluster: String,
    /// What messages have in their paths that this cluster's inlets have brought in from the same broker.
    mark: String,
    /// Messages that have been here before, or have passed too many clusters.
    looped: Count,
}

/// How far a batch is.
struct Progress {
    /// Messages before this one are sent, or cannot be.
    next: usize,
    /// Messages that are finished.
    finished: usize,
    /// With the reason of each.
    refused: Vec<(usize, Arc<str>)>,
    /// The broker takes nothing for the moment.
    busy: Option<String>,
}

impl MqttTarget {
    pub(crate) fn new(definition: &MqttDefinition, cluster: &str) -> Result<Self, String> {
        let remote = Remote::new(&definition.broker)?;
        Ok(Self {
            definition: definition.clone(),
            mark: mark(cluster, remote.address()),
            remote,
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
        let deadline = Instant::now() + self.remote.definition.timeout;
        self.connect(deadline)
            .await
            .map_err(|why| OpenError::Retry(why.into()))
    }

    pub(crate) async fn probe(&mut self) -> Result<String, String> {
        let deadline = Instant::now() + self.remote.definition.timeout;
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
        let opening = Opening {
            version: self.version,
            is_bridge: false,
            clean_start: true,
            client_id: &self.remote.definition.client_id,
            properties: ConnectProperties {
                // Nothing is subscribed to.
                receive_maximum: NonZeroU16::new(1),
                ..ConnectProperties::default()
            },
        };
        self.remote.connect(&opening, deadline, |_| ()).await
    }

    pub(crate) async fn deliver(&mut self, batch: &[Arc<Item>]) -> Delivery {
        if self.link.is_none() {
            // It has ended while there was nothing to do.
            let deadline = Instant::now() + self.remote.definition.timeout;
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
            let deadline = Instant::now() + self.remote.definition.timeout;
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
        if progress.refused.is_empty() {
            return Delivery::All;
        }
        progress.refused.sort_unstable_by_key(|(place, _)| *place);
        Delivery::Except {
            refused: progress.refused,
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
            let properties = item.properties.iter();
            let pairs = properties.map(|(name, value)| (&**name, &**value));
            let Some(path) = extended(pairs, &self.cluster, &self.mark, &self.cluster) else {
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
        let none = StandardProperties::default();
        let standard = match self.version {
            ProtocolVersion::V5 => &item.standard,
            _ => {
                pairs.clear();
                &none
            }
        };
        let mut buffer = Vec::new();
        let user_properties = UserProperties::encode_from(&pairs, &mut buffer);
        let packet = Publish {
            dup: false,
            qos,
            retain: item.retain && self.definition.retain && retain_available,
            topic: &topic,
            packet_id: None,
            properties: PublishProperties {
                payload_format_indicator: standard.is_utf8,
                message_expiry_interval: standard.expiry_interval_s(now()),
                content_type: standard.content_type.as_deref(),
                response_topic: standard.response_topic.as_deref(),
                correlation_data: standard.correlation_data.as_deref(),
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
        self.refused.push((index, why.into()));
        self.finished += 1;
    }

    fn handle_acknowledgement(&mut self, index: usize, reason: ReasonCode, said: Option<&str>) {
        if !reason.is_error() {
            self.finished += 1;
            return;
        }
        let why = match said {
            Some(said) => {
                // The other broker chooses it, and a batch has many.
                let said = &said[..said.floor_char_boundary(LONGEST_REASON)];
                format!("the broker answers {reason:?}: {said}")
            }
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

fn retry(why: String) -> Delivery {
    Delivery::Retry {
        after: None,
        why: why.into(),
    }
}
