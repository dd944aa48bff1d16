//! An inlet, as the configuration has it.

use std::time::Duration;

use config::{InletConfig, MqttSourceConfig};
use serde::{Deserialize, Serialize};

use crate::definition::BrokerDefinition;

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

impl InletDefinition {
    /// The definition of an inlet whose configuration was checked, without what only its node knows; `None`: it has no name or no
    /// source, which the check refuses.
    #[must_use]
    pub fn of(inlet: &InletConfig) -> Option<Self> {
        let name = inlet.name.clone()?;
        Some(Self {
            cluster: String::new(),
            source: SourceDefinition::Mqtt(mqtt(&inlet.from.mqtt, &name)?),
            topic: inlet.topic.clone(),
            retain: inlet.retain,
            name,
        })
    }

    /// What it takes there: topic filters, or subjects.
    #[must_use]
    pub fn filters(&self) -> &[String] {
        match &self.source {
            SourceDefinition::Mqtt(mqtt) => &mqtt.filters,
        }
    }

    /// The client identifier of its connection to the node.
    #[must_use]
    pub fn client_id(&self) -> String {
        format!("$outlet/{}/in", self.name)
    }
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
