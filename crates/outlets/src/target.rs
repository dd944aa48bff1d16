//! What takes the messages of an outlet.

use std::convert::Infallible;
use std::sync::Arc;

use outlet::{Delivery, Item, OpenError, Position};

use crate::definition::{Definition, TargetDefinition};
use crate::epoch::Epoch;
use crate::report::Count;
use crate::targets::file::FileTarget;
use crate::targets::http::HttpTarget;
use crate::targets::mqtt::MqttTarget;
use crate::targets::nats::NatsTarget;
use crate::targets::postgres::PostgresTarget;

/// A target. Calls come one after the other; each ends in time, whatever the other system does.
#[derive(Debug)]
pub(crate) enum Target {
    File(FileTarget),
    Http(Box<HttpTarget>),
    Mqtt(Box<MqttTarget>),
    Nats(Box<NatsTarget>),
    Postgres(Box<PostgresTarget>),
}

impl Target {
    /// The target of an outlet, not opened yet.
    ///
    /// # Errors
    /// A template or a URL that is none, a file that cannot be read.
    pub(crate) fn new(definition: &Definition) -> Result<Self, String> {
        Ok(match &definition.target {
            TargetDefinition::File { path, record } => {
                Self::File(FileTarget::new(path, record.as_deref())?)
            }
            TargetDefinition::Http(http) => {
                Self::Http(Box::new(HttpTarget::new(&definition.name, http)?))
            }
            TargetDefinition::Mqtt(mqtt) => {
                Self::Mqtt(Box::new(MqttTarget::new(mqtt, &definition.cluster)?))
            }
            TargetDefinition::Nats(nats) => {
                let Definition { cluster, name, .. } = definition;
                Self::Nats(Box::new(NatsTarget::new(nats, cluster, name)?))
            }
            TargetDefinition::Postgres(postgres) => {
                let Definition { name, cluster, .. } = definition;
                Self::Postgres(Box::new(PostgresTarget::new(name, cluster, postgres)?))
            }
        })
    }

    /// Opens it, again too after an attempt that failed. Gives what the target says that it has, if it keeps that.
    pub(crate) async fn open(&mut self, epoch: Epoch) -> Result<Option<Position>, OpenError> {
        match self {
            Self::File(file) => file.open(epoch),
            Self::Http(http) => http.open(),
            Self::Mqtt(mqtt) => mqtt.open().await.map(|()| None),
            Self::Nats(nats) => nats.open().await.map(|()| None),
            Self::Postgres(postgres) => postgres.open(epoch).await,
        }
    }

    /// Gives it messages.
    pub(crate) async fn deliver(&mut self, batch: &[Arc<Item>]) -> Delivery {
        match self {
            Self::File(file) => file.deliver(batch),
            Self::Http(http) => http.deliver(batch).await,
            Self::Mqtt(mqtt) => mqtt.deliver(batch).await,
            Self::Nats(nats) => nats.deliver(batch).await,
            Self::Postgres(postgres) => postgres.deliver(batch).await,
        }
    }

    /// Keeps it alive while there is nothing for it. May be dropped at any time.
    pub(crate) async fn idle(&mut self) -> Infallible {
        match self {
            Self::File(_) | Self::Http(_) | Self::Nats(_) | Self::Postgres(_) => {
                std::future::pending().await
            }
            Self::Mqtt(mqtt) => mqtt.idle().await,
        }
    }

    /// Messages that it has dropped, as they went in a circle of brokers; they count as taken.
    pub(crate) fn looped(&self) -> Count {
        match self {
            Self::File(_) | Self::Http(_) | Self::Nats(_) | Self::Postgres(_) => Count(0),
            Self::Mqtt(mqtt) => mqtt.looped(),
        }
    }

    /// Whether it can be reached, in words; nothing is written there.
    pub(crate) async fn probe(&mut self) -> Result<String, String> {
        match self {
            Self::File(file) => file.probe(),
            Self::Http(http) => http.probe().await,
            Self::Mqtt(mqtt) => mqtt.probe().await,
            Self::Nats(nats) => nats.probe().await,
            Self::Postgres(postgres) => postgres.probe().await,
        }
    }
}
