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
    /// Every publisher to nobody: the broker only takes.
    FanIn {
        /// Each with a topic of its own.
        publishers: usize,
    },
    /// Publishers in groups of about the same size, each group to a subscriber of its own.
    Groups {
        /// Of all groups together, each with a topic of its own under its group's.
        publishers: usize,
        /// Groups, each with one subscriber.
        groups: usize,
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
            Self::FanOut { publishers, .. }
            | Self::Shared { publishers, .. }
            | Self::FanIn { publishers }
            | Self::Groups { publishers, .. } => publishers,
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
            Self::FanIn { .. } => 0,
            Self::Groups { groups, .. } => groups,
            Self::Idle { connections } => connections,
        }
    }

    /// Connections that publish or subscribe.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.subscribers().saturating_add(self.publishers())
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
            Self::Groups { publishers, groups } => {
                // The first publisher whose group, rounded down, is this one.
                let first = |group: usize| (group * publishers).div_ceil(groups) as u32;
                first(receiver)..first(receiver + 1)
            }
            _ => 0..self.publishers() as u32,
        }
    }

    /// Receivers of each message.
    #[must_use]
    pub fn receivers_per_message(&self) -> u64 {
        match *self {
            Self::FanOut { subscribers, .. } => subscribers as u64,
            Self::FanIn { .. } => 0,
            _ => 1,
        }
    }

    /// The topic that a publisher publishes to.
    pub(crate) fn topic(&self, prefix: &str, publisher: usize) -> String {
        match *self {
            Self::Groups { publishers, groups } => {
                format!("{prefix}/{}/{publisher}", publisher * groups / publishers)
            }
            _ => format!("{prefix}/{publisher}"),
        }
    }

    /// The filter that a subscriber subscribes to.
    pub(crate) fn filter(&self, prefix: &str, subscriber: usize) -> String {
        match *self {
            Self::Pairs { .. } | Self::FanIn { .. } | Self::Idle { .. } => {
                format!("{prefix}/{subscriber}")
            }
            Self::FanOut { publishers: 1, .. } => format!("{prefix}/0"),
            Self::FanOut { .. } => format!("{prefix}/+"),
            Self::Groups { .. } => format!("{prefix}/{subscriber}/+"),
            Self::Shared { .. } => format!("$share/group/{prefix}/+"),
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Pairs { pairs } => write!(f, "{pairs} pairs"),
            Self::FanOut {
                publishers,
                subscribers,
            } => write!(f, "fan-out, {publishers} to {subscribers}"),
            Self::Shared {
                publishers,
                members,
            } => write!(f, "shared subscription, {publishers} to {members} members"),
            Self::FanIn { publishers } => write!(f, "fan-in, {publishers} publishers"),
            Self::Groups { publishers, groups } => {
                write!(f, "groups, {publishers} publishers to {groups} subscribers")
            }
            Self::Idle { connections } => write!(f, "{connections} idle connections"),
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
    /// Connections beside those, without subscription or traffic.
    pub background: usize,
    /// Bytes of each payload, at least [`Stamp::LEN`].
    pub payload_len: usize,
    /// Of publishing and of subscriptions.
    pub qos: QoS,
    /// Whether the sessions of the subscribers end with their connections. Other clients have nothing
    /// to keep, and their sessions always do.
    pub clean_session: bool,
    /// How fast.
    pub pace: Pace,
    /// Connections opened per second, above 0; as fast as the broker accepts them if `None`.
    pub connect_rate: Option<f64>,
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
    /// A closed loop without subscribers, whose windows nothing would ever empty.
    NoReceivers,
    /// Connections would be numbered beyond 32 bits.
    TooManyConnections,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PayloadTooShort => write!(f, "a payload needs at least {} bytes", Stamp::LEN),
            Self::NoPace => f.write_str("the rate, or the window, must be above 0"),
            Self::NoReceivers => f.write_str("a closed loop needs subscribers"),
            Self::TooManyConnections => f.write_str("too many connections"),
        }
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    pub(crate) fn check(&self) -> Result<(), ScenarioError> {
        let rate_is_right = |rate: f64| rate > 0.0 && rate.is_finite();
        if self.topology.publishers() > 0 {
            if self.payload_len < Stamp::LEN {
                return Err(ScenarioError::PayloadTooShort);
            }
            let moves = match self.pace {
                Pace::Open { per_second } => rate_is_right(per_second),
                Pace::Closed { window } => window > 0,
            };
            if !moves {
                return Err(ScenarioError::NoPace);
            }
            let is_closed = matches!(self.pace, Pace::Closed { .. });
            if is_closed && self.topology.subscribers() == 0 {
                return Err(ScenarioError::NoReceivers);
            }
        }
        if !self.connect_rate.is_none_or(rate_is_right) {
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
        self.topology.connections().saturating_add(self.background)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_publisher_of_groups_has_one_receiver_which_its_topic_names() {
        for (publishers, groups) in [(1, 1), (7, 3), (6, 3), (500, 1), (2, 5), (1_000, 7)] {
            let topology = Topology::Groups { publishers, groups };
            for publisher in 0..publishers {
                let of =
                    |group: &usize| topology.publishers_of(*group).contains(&(publisher as u32));
                let receivers: Vec<usize> = (0..groups).filter(of).collect();
                let [receiver] = *receivers.as_slice() else {
                    panic!("{publisher} of {topology}: {receivers:?}");
                };
                let filter = topology.filter("p", receiver);
                let topic = topology.topic("p", publisher);
                assert_eq!(
                    filter.strip_suffix("+"),
                    topic.strip_suffix(&publisher.to_string())
                );
            }
        }
    }

    #[test]
    fn a_closed_loop_needs_somebody_who_receives() {
        let mut scenario = Scenario {
            topology: Topology::FanIn { publishers: 1 },
            background: 0,
            payload_len: 16,
            qos: QoS::AtMostOnce,
            clean_session: true,
            pace: Pace::Closed { window: 1 },
            connect_rate: None,
            version: ProtocolVersion::V5,
            prefix: String::new(),
        };
        assert_eq!(scenario.check(), Err(ScenarioError::NoReceivers));
        scenario.pace = Pace::Open { per_second: 1.0 };
        assert_eq!(scenario.check(), Ok(()));
        scenario.connect_rate = Some(0.0);
        assert_eq!(scenario.check(), Err(ScenarioError::NoPace));
    }
}
