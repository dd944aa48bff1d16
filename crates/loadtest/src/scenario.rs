//! What is played: who publishes to whom, how fast, at which QoS.
//!
//! Invariant: each message has a known set of receivers, so that every loss can be told.

use std::fmt;
use std::ops::Range;

use mqtt_proto::{ProtocolVersion, QoS};

use crate::verify::Stamp;

/// Who publishes to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topology {
    /// Publisher n to subscriber n, over a topic of their own.
    Pairs {
        /// How many of them.
        pairs: usize,
    },
    /// Every publisher to every subscriber.
    FanOut {
        /// Each with a topic of its own.
        publishers: usize,
        /// Each subscribed to all topics by one wildcard.
        subscribers: usize,
    },
    /// Every publisher to one of the members of a shared subscription.
    Shared {
        /// Each with a topic of its own.
        publishers: usize,
        /// Of one group.
        members: usize,
    },
    /// Subscribers to whom nobody publishes, each with a topic of its own.
    Idle {
        /// How many of them.
        connections: usize,
    },
}

impl Topology {
    /// Connections that publish.
    #[must_use]
    pub fn publishers(&self) -> usize {
        match *self {
            Self::Pairs { pairs } => pairs,
            Self::FanOut { publishers, .. } | Self::Shared { publishers, .. } => publishers,
            Self::Idle { .. } => 0,
        }
    }

    /// Connections that subscribe, each with one subscription.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        match *self {
            Self::Pairs { pairs } => pairs,
            Self::FanOut { subscribers, .. } => subscribers,
            Self::Shared { members, .. } => members,
            Self::Idle { connections } => connections,
        }
    }

    /// Those who should get each message once: subscribers, or groups of them.
    pub(crate) fn receivers(&self) -> usize {
        match *self {
            Self::Shared { .. } => 1,
            _ => self.subscribers(),
        }
    }

    /// The receiver that a subscriber is, or is a member of.
    pub(crate) fn receiver_of(&self, subscriber: usize) -> usize {
        match *self {
            Self::Shared { .. } => 0,
            _ => subscriber,
        }
    }

    /// Whose messages a receiver should get.
    pub(crate) fn publishers_of(&self, receiver: usize) -> Range<u32> {
        match *self {
            Self::Pairs { .. } => receiver as u32..receiver as u32 + 1,
            _ => 0..self.publishers() as u32,
        }
    }

    /// Receivers of each message.
    pub(crate) fn receivers_per_message(&self) -> u64 {
        match *self {
            Self::FanOut { subscribers, .. } => subscribers as u64,
            _ => 1,
        }
    }

    /// The topic that a publisher publishes to.
    pub(crate) fn topic(&self, prefix: &str, publisher: usize) -> String {
        format!("{prefix}/{publisher}")
    }

    /// The filter that a subscriber subscribes to.
    pub(crate) fn filter(&self, prefix: &str, subscriber: usize) -> String {
        match *self {
            Self::Pairs { .. } | Self::Idle { .. } => format!("{prefix}/{subscriber}"),
            Self::FanOut { publishers: 1, .. } => format!("{prefix}/0"),
            Self::FanOut { .. } => format!("{prefix}/+"),
            Self::Shared { .. } => format!("$share/group/{prefix}/+"),
        }
    }
}

/// How fast messages are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// At this many messages per second of all publishers together, whatever the broker does.
    Open {
        /// Above 0.
        per_second: f64,
    },
    /// As fast as the broker delivers: each publisher has at most this many messages under way, which
    /// means neither delivered (to one receiver) nor, above QoS 0, acknowledged.
    Closed {
        /// Above 0.
        window: u16,
    },
}

/// A load.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Who publishes to whom.
    pub topology: Topology,
    /// Bytes of each payload, at least [`Stamp::LEN`].
    pub payload_len: usize,
    /// Of publishing and of subscriptions.
    pub qos: QoS,
    /// How fast.
    pub pace: Pace,
    /// Protocol version of all connections.
    pub version: ProtocolVersion,
    /// First level of all topics, and start of all client identifiers: what keeps two runs apart.
    pub prefix: String,
}

/// Why a scenario cannot be played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScenarioError {
    /// The payload has no room for a stamp.
    PayloadTooShort,
    /// No rate, or a window of 0.
    NoPace,
    /// Connections would be numbered beyond 32 bits.
    TooManyConnections,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PayloadTooShort => write!(f, "a payload needs at least {} bytes", Stamp::LEN),
            Self::NoPace => f.write_str("the rate, or the window, must be above 0"),
            Self::TooManyConnections => f.write_str("too many connections"),
        }
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    pub(crate) fn check(&self) -> Result<(), ScenarioError> {
        if self.payload_len < Stamp::LEN {
            return Err(ScenarioError::PayloadTooShort);
        }
        let moves = match self.pace {
            Pace::Open { per_second } => per_second > 0.0 && per_second.is_finite(),
            Pace::Closed { window } => window > 0,
        };
        if !moves {
            return Err(ScenarioError::NoPace);
        }
        if self.connections() >= u32::MAX as usize {
            return Err(ScenarioError::TooManyConnections);
        }
        Ok(())
    }

    /// Connections of all kinds.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.topology
            .subscribers()
            .saturating_add(self.topology.publishers())
    }
}
