//! The session of an inlet at the other broker.

use std::num::NonZeroU16;
use std::time::Duration;

use mqtt_client::{Client, Event};
use mqtt_proto::{
    ConnectProperties, ProtocolVersion, QoS, ReasonCode, RetainHandling, SubscribeProperties,
    SubscriptionOptions,
};
use tokio::time::Instant;

use super::InletDefinition;
use crate::link::Link;
use crate::remote::{Opening, Remote};

/// Messages that the other broker sends without an acknowledgement, at most (5.0).
pub(super) const RECEIVE_MAXIMUM: NonZeroU16 = NonZeroU16::new(1_000).unwrap();

/// How a broker is spoken to, the first that it takes. Before 5.0, only for a bridge messages have RETAIN as they were published,
/// and not every broker knows bridges.
const DIALECTS: [(ProtocolVersion, bool); 3] = [
    (ProtocolVersion::V5, false),
    (ProtocolVersion::V3_1_1, true),
    (ProtocolVersion::V3_1_1, false),
];

/// The session, and how it is connected to.
#[derive(Clone, Debug)]
pub(super) struct Session {
    remote: Remote,
    filters: Vec<String>,
    keep: Duration,
    retained: bool,
    /// The place in [`DIALECTS`].
    dialect: usize,
}

impl Session {
    /// # Errors
    /// The URL is none of a broker.
    pub(super) fn new(definition: &InletDefinition) -> Result<Self, String> {
        Ok(Self {
            remote: Remote::new(&definition.broker)?,
            filters: definition.filters.clone(),
            keep: definition.keep,
            retained: definition.retained,
            dialect: 0,
        })
    }

    /// Host and port.
    pub(super) fn address(&self) -> &str {
        self.remote.address()
    }

    /// How long an answer may take.
    pub(super) fn timeout(&self) -> Duration {
        self.remote.definition.timeout
    }

    /// A filter by its place in SUBSCRIBE.
    pub(super) fn filter(&self, place: usize) -> &str {
        self.filters.get(place).map_or("", String::as_str)
    }

    /// Connects, and goes on with the session if the broker has it. What came with CONNACK is given to `handle`.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn open(
        &mut self,
        handle: impl FnMut(Event<'_, ()>),
    ) -> Result<Link<()>, String> {
        let client_id = self.remote.definition.client_id.clone();
        self.connect(&client_id, false, handle).await
    }

    /// Connects as another client without a session, and leaves.
    ///
    /// # Errors
    /// Why it cannot connect.
    pub(super) async fn probe(&mut self) -> Result<String, String> {
        let client_id = format!("{}-test", self.remote.definition.client_id);
        self.connect(&client_id, true, |_| ()).await?;
        Ok(match self.dialect().0 {
            ProtocolVersion::V5 => "the broker accepts the client, with MQTT 5.0",
            _ => "the broker accepts the client, with MQTT 3.1.1",
        }
        .to_owned())
    }

    fn dialect(&self) -> (ProtocolVersion, bool) {
        let found = DIALECTS.get(self.dialect);
        *found.expect("the place is that of a dialect")
    }

    async fn connect(
        &mut self,
        client_id: &str,
        clean_start: bool,
        mut handle: impl FnMut(Event<'_, ()>),
    ) -> Result<Link<()>, String> {
        // The longest time means for ever, which is not meant.
        let keep_s = u32::try_from(self.keep.as_secs()).unwrap_or(u32::MAX - 1);
        loop {
            let (version, is_bridge) = self.dialect();
            let properties = match version {
                ProtocolVersion::V5 => ConnectProperties {
                    session_expiry_interval: (!clean_start).then_some(keep_s),
                    receive_maximum: Some(RECEIVE_MAXIMUM),
                    ..ConnectProperties::default()
                },
                _ => ConnectProperties::default(),
            };
            let opening = Opening {
                version,
                is_bridge,
                clean_start,
                client_id,
                properties,
            };
            let deadline = Instant::now() + self.timeout();
            let connected = self.remote.connect(&opening, deadline, &mut handle).await?;
            match connected {
                Ok(link) => return Ok(link),
                Err(ReasonCode::UnsupportedProtocolVersion)
                    if self.dialect + 1 < DIALECTS.len() =>
                {
                    self.dialect += 1;
                }
                Err(reason) => {
                    // It may be another broker next time.
                    self.dialect = 0;
                    return Err(format!("the broker refuses the client: {reason:?}"));
                }
            }
        }
    }

    /// Asks for the filters of the inlet, again too: the configuration may have others than the session.
    ///
    /// # Errors
    /// The packet cannot be written, or is too large for the broker.
    pub(super) fn subscribe(&self, client: &mut Client<()>) -> Result<(), String> {
        let options = |filter: &str| SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            // A shared subscription has no such option [MQTT-3.8.3-4].
            no_local: !filter.starts_with("$share/"),
            retain_as_published: true,
            retain_handling: match self.retained {
                true => RetainHandling::SendIfNew,
                false => RetainHandling::DoNotSend,
            },
        };
        let before = |options: SubscriptionOptions| match client.version() {
            ProtocolVersion::V5 => options,
            _ => SubscriptionOptions {
                no_local: false,
                retain_as_published: false,
                retain_handling: RetainHandling::SendAtSubscribe,
                ..options
            },
        };
        let filters: Vec<_> = self
            .filters
            .iter()
            .map(|filter| (filter.as_str(), before(options(filter))))
            .collect();
        let subscribed = client.subscribe(&filters, SubscribeProperties::default());
        subscribed.map(|_| ()).map_err(|error| error.to_string())
    }
}
