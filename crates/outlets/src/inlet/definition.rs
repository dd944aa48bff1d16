//! An inlet, as the configuration has it.

use std::time::Duration;

use config::{Deliver, InletConfig, InletSourceConfig, MqttSourceConfig, NatsSourceConfig};
use serde::{Deserialize, Serialize};

use crate::definition::{BrokerDefinition, NatsServersDefinition};
use crate::kafka_definition::KafkaSourceDefinition;

/// An inlet: messages of another system are published at the node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InletDefinition {
    /// Its name.
    pub name: String,
    /// What tells this cluster from others: of letters and digits.
    pub cluster: String,
    /// Where the messages come from.
    pub source: SourceDefinition,
    /// The topic here, a template.
    pub topic: String,
    /// Whether retained messages are retained here.
    pub retain: bool,
}

/// Where the messages of an inlet come from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SourceDefinition {
    /// Another MQTT broker.
    Mqtt(MqttSourceDefinition),
    /// Topics of Kafka.
    Kafka(KafkaSourceDefinition),
    /// A stream of NATS.
    Nats(NatsSourceDefinition),
}

/// Another MQTT broker, and the session there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MqttSourceDefinition {
    /// The broker.
    pub broker: BrokerDefinition,
    /// Topic filters there.
    pub filters: Vec<String>,
    /// How long the broker keeps the session without a connection.
    pub keep: Duration,
    /// Whether the inlet begins with the retained messages there.
    pub retained: bool,
}

/// A stream of NATS, and the consumer there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NatsSourceDefinition {
    /// The servers.
    pub servers: NatsServersDefinition,
    /// The stream.
    pub stream: String,
    /// Subjects, with wildcards; none: all of the stream.
    pub subjects: Vec<String>,
    /// The durable consumer.
    pub durable: String,
    /// Whether a new consumer begins with what the stream has.
    pub is_from_beginning: bool,
}

impl InletDefinition {
    /// The definition of an inlet whose configuration was checked, without what only its node knows; `None`: it has no name or no
    /// source, which the check refuses.
    #[must_use]
    pub fn of(inlet: &InletConfig) -> Option<Self> {
        let name = inlet.name.clone()?;
        Some(Self {
            cluster: String::new(),
            source: source(&inlet.from, &name)?,
            topic: inlet.topic.clone(),
            retain: inlet.retain,
            name,
        })
    }

    /// What it takes there: topic filters, topics, or subjects.
    #[must_use]
    pub fn filters(&self) -> &[String] {
        match &self.source {
            SourceDefinition::Mqtt(mqtt) => &mqtt.filters,
            SourceDefinition::Kafka(kafka) => &kafka.topics,
            SourceDefinition::Nats(nats) => &nats.subjects,
        }
    }

    /// The client identifier of its connection to the node.
    #[must_use]
    pub fn client_id(&self) -> String {
        format!("$outlet/{}/in", self.name)
    }
}

fn source(from: &InletSourceConfig, name: &str) -> Option<SourceDefinition> {
    if !from.kafka.servers.is_empty() {
        let kafka = KafkaSourceDefinition::of(&from.kafka, name);
        return Some(SourceDefinition::Kafka(kafka));
    }
    if from.nats.url.is_empty() {
        return mqtt(&from.mqtt, name).map(SourceDefinition::Mqtt);
    }
    nats(&from.nats, name).map(SourceDefinition::Nats)
}

fn nats(nats: &NatsSourceConfig, name: &str) -> Option<NatsSourceDefinition> {
    Some(NatsSourceDefinition {
        servers: NatsServersDefinition {
            urls: nats.url.iter().cloned().collect(),
            user: nats.user.clone(),
            password_file: nats.password_file.clone(),
            token_file: nats.token_file.clone(),
            credentials_file: nats.credentials_file.clone(),
            ca_file: nats.ca_file.clone(),
            cert_file: nats.cert_file.clone(),
            key_file: nats.key_file.clone(),
            timeout: nats.timeout,
        },
        stream: nats.stream.clone()?,
        subjects: nats.subject.iter().cloned().collect(),
        durable: (nats.durable.clone()).unwrap_or_else(|| format!("hmq-{name}")),
        is_from_beginning: nats.deliver == Deliver::All,
    })
}

fn mqtt(mqtt: &MqttSourceConfig, name: &str) -> Option<MqttSourceDefinition> {
    let client_id = mqtt.client_id.clone();
    Some(MqttSourceDefinition {
        broker: BrokerDefinition {
            url: mqtt.url.clone()?,
            client_id: client_id.unwrap_or_else(|| format!("hmq-{name}")),
            user: mqtt.user.clone(),
            password_file: mqtt.password_file.clone(),
            ca_file: mqtt.ca_file.clone(),
            timeout: mqtt.timeout,
        },
        filters: mqtt.filter.iter().cloned().collect(),
        keep: mqtt.keep,
        retained: mqtt.retained,
    })
}
