//! The targets and sources of this crate.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use outlet::{Delivery, Item, OpenError, Position};

use crate::definition::{Definition, TargetDefinition};
use crate::epoch::Epoch;
use crate::inlet::{InletDefinition, MqttSource, NatsSource, Source, SourceDefinition};
use crate::report::Count;
use crate::target::{Connectors, Target};
use crate::targets::file::FileTarget;
use crate::targets::http::HttpTarget;
use crate::targets::mqtt::MqttTarget;
use crate::targets::nats::NatsTarget;
use crate::targets::postgres::PostgresTarget;

/// The targets and sources of `heraldmq` itself.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn;

impl Connectors for BuiltIn {
    fn target(&self, definition: &Definition) -> Result<Box<dyn Target>, String> {
        let Definition { cluster, name, .. } = definition;
        Ok(match &definition.target {
            TargetDefinition::File { path, record } => {
                Box::new(FileTarget::new(path, record.as_deref())?)
            }
            TargetDefinition::Http(http) => Box::new(HttpTarget::new(name, http)?),
            TargetDefinition::Kafka(_) => {
                return Err("heraldmq itself has no target kafka".to_owned());
            }
            TargetDefinition::Mqtt(mqtt) => Box::new(MqttTarget::new(mqtt, cluster)?),
            TargetDefinition::Nats(nats) => Box::new(NatsTarget::new(nats, cluster, name)?),
            TargetDefinition::Postgres(postgres) => {
                Box::new(PostgresTarget::new(name, cluster, postgres)?)
            }
        })
    }

    fn source(&self, definition: &InletDefinition) -> Result<Box<dyn Source>, String> {
        Ok(match &definition.source {
            SourceDefinition::Mqtt(mqtt) => Box::new(MqttSource::new(mqtt)?),
            SourceDefinition::Kafka(_) => {
                return Err("heraldmq itself has no source kafka".to_owned());
            }
            SourceDefinition::Nats(nats) => Box::new(NatsSource::new(nats)?),
        })
    }
}

impl Target for FileTarget {
    fn open(&mut self, epoch: Epoch) -> BoxFuture<'_, Result<Option<Position>, OpenError>> {
        ready(self.open(epoch)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Arc<Item>]) -> BoxFuture<'a, Delivery> {
        ready(self.deliver(batch)).boxed()
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<String, String>> {
        ready(self.probe()).boxed()
    }
}

impl Target for HttpTarget {
    fn open(&mut self, _: Epoch) -> BoxFuture<'_, Result<Option<Position>, OpenError>> {
        ready(self.open()).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Arc<Item>]) -> BoxFuture<'a, Delivery> {
        self.deliver(batch).boxed()
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<String, String>> {
        self.probe().boxed()
    }
}

impl Target for MqttTarget {
    fn open(&mut self, _: Epoch) -> BoxFuture<'_, Result<Option<Position>, OpenError>> {
        self.open().map(|opened| opened.map(|()| None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Arc<Item>]) -> BoxFuture<'a, Delivery> {
        self.deliver(batch).boxed()
    }

    fn idle(&mut self) -> BoxFuture<'_, Infallible> {
        self.idle().boxed()
    }

    fn looped(&self) -> Count {
        self.looped()
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<String, String>> {
        self.probe().boxed()
    }
}

impl Target for NatsTarget {
    fn open(&mut self, _: Epoch) -> BoxFuture<'_, Result<Option<Position>, OpenError>> {
        self.open().map(|opened| opened.map(|()| None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Arc<Item>]) -> BoxFuture<'a, Delivery> {
        self.deliver(batch).boxed()
    }

    fn looped(&self) -> Count {
        self.looped()
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<String, String>> {
        self.probe().boxed()
    }
}

impl Target for PostgresTarget {
    fn open(&mut self, epoch: Epoch) -> BoxFuture<'_, Result<Option<Position>, OpenError>> {
        self.open(epoch).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Arc<Item>]) -> BoxFuture<'a, Delivery> {
        self.deliver(batch).boxed()
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<String, String>> {
        self.probe().boxed()
    }
}
