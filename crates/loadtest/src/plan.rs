//! A scenario as a report names it, and how the name is read.
//!
//! Call order: `name.parse::<Plan>()`; [`Plan::scaled`] if the machine is smaller than the report's;
//! [`Plan::workload`] to play it.
//!
//! Invariant: a plan's `Display` is a name that is read as that plan and no other, scaling aside.
//!
//! Where to read next: `plan/name.rs`, the grammar of names.

mod name;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use mqtt_proto::QoS;

pub use name::NameError;

use crate::published::Published;
use crate::topology::{Topology, few};
use crate::workload::{Activity, Login, Messages, Pace, Part, Workload};

/// Whose way of naming scenarios it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// BifroMQ's report on clusters: names say the number of nodes.
    BifroMqCluster,
    /// BifroMQ's report on a single node.
    BifroMqStandalone,
    /// EMQX's throughput benchmark: names say message rates, the table says connections.
    Emqx,
    /// TBMQ's test with 100 million publishers.
    Tbmq,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BifroMqCluster => "BifroMQ, cluster report",
            Self::BifroMqStandalone => "BifroMQ, standalone report",
            Self::Emqx => "EMQX, throughput benchmark",
            Self::Tbmq => "TBMQ, 100M connections",
        })
    }
}

/// What a name of a report stands for.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The report.
    pub source: Source,
    /// Who publishes to whom, with the numbers of connections.
    pub topology: Topology,
    /// Messages per second of each publisher; 0 if nobody publishes.
    pub rate: f64,
    /// Bytes; 0 if nobody publishes.
    pub payload_len: usize,
    /// Of publishing and of subscriptions.
    pub qos: QoS,
    /// Whether the sessions of the subscribers end with their connections.
    pub clean_session: bool,
    /// Whether the broker begins on a new data folder.
    pub is_cold: bool,
    /// Of the report's cluster. The broker under load is whatever the caller has started.
    pub nodes: u32,
    /// Voting replicas of each session, where the report says so.
    pub voters: Option<u32>,
    /// Connections beside those of the topology, without traffic.
    pub background: usize,
    /// Connections opened per second, where the report says so.
    pub connect_rate: Option<f64>,
    /// The row of the report, if the name is one of its.
    pub published: Option<&'static Published>,
    name: String,
}

impl FromStr for Plan {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        name::parse(name)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Plan {
    /// The plan of a row of the reports. A row's own name may have several readings; the row has one.
    /// `None` for a row that no name belongs to.
    #[must_use]
    pub fn of_row(row: &'static Published) -> Option<Self> {
        name::of_row(row)
    }

    /// Connections of all kinds.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.topology.connections().saturating_add(self.background)
    }

    /// Messages per second that all publishers send together.
    #[must_use]
    pub fn sent_per_second(&self) -> f64 {
        self.rate * self.topology.publishers() as f64
    }

    /// Messages per second that should come out, as the reports count them: deliveries, or what is
    /// sent where nobody subscribes.
    #[must_use]
    pub fn total_per_second(&self) -> f64 {
        self.sent_per_second() * self.topology.receivers_per_message().max(1.0)
    }

    /// The same in small: `connections` times the connections, as [`Topology::scaled`] has it, and
    /// `rates` times the rates, of connecting too.
    #[must_use]
    pub fn scaled(&self, connections: f64, rates: f64) -> Self {
        Self {
            topology: self.topology.scaled(connections),
            background: few(self.background, connections),
            rate: self.rate * rates,
            connect_rate: self.connect_rate.map(|rate| rate * rates),
            ..self.clone()
        }
    }

    /// The load to play.
    #[must_use]
    pub fn workload(&self, login: Login) -> Workload {
        let messages = Messages {
            topology: self.topology.clone(),
            payload_len: self.payload_len,
            qos: self.qos,
            pace: Pace::Open {
                per_second: self.sent_per_second(),
            },
            clean_session: self.clean_session,
            retain: false,
            read_rate: None,
        };
        let part = |name, activity| Part {
            connect_rate: self.connect_rate,
            ..Part::new(name, activity)
        };
        let mut parts = vec![part("load", Activity::Messages(messages))];
        if self.background > 0 {
            let connections = self.background;
            parts.push(part("background", Activity::Background { connections }));
        }
        Workload { parts, login }
    }

    /// One line: what tells this plan from others of the same numbers.
    #[must_use]
    pub fn reading(&self) -> String {
        let sessions = if self.clean_session {
            "clean sessions"
        } else {
            "persistent sessions"
        };
        let folder = if self.is_cold {
            ", on a new data folder"
        } else {
            ""
        };
        format!("{}, {sessions}{folder}", self.topology)
    }
}
