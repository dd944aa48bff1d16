//! An inlet, as the configuration has it.

use std::time::Duration;

use config::InletConfig;
use serde::{Deserialize, Serialize};

use crate::definition::BrokerDefinition;

/// An inlet: messages of another MQTT broker are published at the node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InletDefinition {
    /// Its name.
    pub name: String,
    /// What tells this cluster from others: of letters and digits.
    pub cluster: String,
    /// The other broker.
    pub broker: BrokerDefinition,
    /// Topic filters there.
    pub filters: Vec<String>,
    /// How long the other broker keeps the session without a connection.
    pub keep: Duration,
    /// Whether the inlet begins with the retained messages there.
    pub retained: bool,
    /// The topic here, a template.
    pub topic: String,
    /// Whether retained messages are retained here.
    pub retain: bool,
}

impl InletDefinition {
    /// The definition of an inlet whose configuration was checked, without what only its node knows; `None`: it has no name or no
    /// other broker, which the check refuses.
    #[must_use]
    pub fn of(inlet: &InletConfig) -> Option<Self> {
        let name = inlet.name.clone()?;
        let mqtt = &inlet.from.mqtt;
        let client_id = mqtt.client_id.clone();
        Some(Self {
            cluster: String::new(),
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
            topic: inlet.topic.clone(),
            retain: inlet.retain,
            name,
        })
    }

    /// The client identifier of its connection to the node.
    #[must_use]
    pub fn client_id(&self) -> String {
        format!("$outlet/{}/in", self.name)
    }
}
