//! What a run is: who connects, how fast, and what each client does.

use std::time::Duration;

use mqtt_proto::QoS;
use serde::{Deserialize, Serialize};

use super::pattern::{Identity, Pattern};
use super::payload::Payload;
use crate::engine::Target;
use crate::qos_number;
use crate::workload::Login;

/// All that a worker needs to know.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Who connects, and how.
    pub clients: Clients,
    /// What each of them does.
    pub activity: Activity,
    /// Where to. Clients take the listeners and the addresses to connect from in turn.
    pub target: Target,
}

/// The clients of a run. They are numbered upwards.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Clients {
    /// How many there are.
    pub count: usize,
    /// The number of the first one.
    pub first: usize,
    /// How client identifiers begin; the number follows.
    pub prefix: String,
    /// The user name of each client.
    pub username: Option<Pattern>,
    /// Protocol version, keep alive and password.
    pub login: Login,
    /// Clean Session, or Clean Start. If not set, sessions stay with the broker after the run.
    pub clean: bool,
    /// Seconds for which 5.0 keeps a session after its connection.
    pub session_expiry_s: Option<u32>,
    /// How many connections are opened per second, of all workers together; above 0.
    pub per_second: f64,
}

/// What a client does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Activity {
    /// Keeps its connection.
    Connect,
    /// Receives what is published to these topics.
    Subscribe {
        /// Topic filters.
        filters: Vec<Pattern>,
        /// Of all of them.
        #[serde(with = "qos_number")]
        qos: QoS,
    },
    /// Publishes.
    Publish(Publishing),
}

/// What a publisher does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Publishing {
    /// Where to.
    pub topic: Pattern,
    /// Of all messages.
    #[serde(with = "qos_number")]
    pub qos: QoS,
    /// Whether the broker is to keep the last message.
    pub retain: bool,
    /// From one message of a client to its next; above 0. One that cannot be sent yet waits and keeps its time.
    pub every: Duration,
    /// Messages of each client; without end if `None`.
    pub limit: Option<u32>,
    /// Messages above QoS 0 that a client may have unacknowledged; as many as the broker allows if `None`.
    pub in_flight: Option<u16>,
    /// Whether nobody publishes before all have tried to connect.
    pub waits_for_all: bool,
    /// Content.
    pub payload: Payload,
}

impl Clients {
    /// Of a client, by its number.
    pub(crate) fn names(&self, number: usize) -> Names {
        let mut names = Names {
            number,
            client_id: format!("{}{number}", self.prefix),
            username: None,
        };
        let username = self.username.as_ref();
        names.username = username.map(|pattern| pattern.text(names.identity()));
        names
    }
}

/// What a client is called.
#[derive(Debug, Default)]
pub(crate) struct Names {
    number: usize,
    pub(crate) client_id: String,
    pub(crate) username: Option<String>,
}

impl Names {
    pub(crate) fn identity(&self) -> Identity<'_> {
        Identity {
            number: self.number,
            client_id: &self.client_id,
            username: self.username.as_deref().unwrap_or_default(),
        }
    }
}
