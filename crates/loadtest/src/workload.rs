//! What is played: parts that go on at the same time, each with its own clients and topics.
//!
//! Invariant: a workload says everything about the load but where it goes. It is the same for all
//! workers; each plays its slice.
//!
//! Where to read next: `topology.rs`, who publishes to whom.

use std::fmt;

use mqtt_proto::{ProtocolVersion, QoS};
use serde::{Deserialize, Serialize};

use crate::payload::Template;
use crate::qos_number;
use crate::topology::{Topology, few};
use crate::verify::Stamp;

/// A load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// All at the same time, but for their [`Part::from_s`] and [`Part::for_s`]. Clients connect in
    /// this order.
    pub parts: Vec<Part>,
    /// How all clients connect.
    pub login: Login,
}

/// How clients connect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Login {
    /// Protocol version.
    #[serde(with = "version_number")]
    pub version: ProtocolVersion,
    /// Seconds; 0 for none.
    pub keep_alive_s: u16,
    /// User name.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
}

impl Login {
    /// Of this version, without keep-alive, user name and password.
    #[must_use]
    pub fn new(version: ProtocolVersion) -> Self {
        Self {
            version,
            keep_alive_s: 0,
            username: None,
            password: None,
        }
    }
}

/// One of several loads that go on at the same time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// A level of its topics, and part of its client identifiers.
    pub name: String,
    /// What its clients do.
    pub activity: Activity,
    /// Connections opened per second at first, above 0; as fast as the broker accepts if `None`.
    pub connect_rate: Option<f64>,
    /// When it begins, in seconds of the measurement; 0 begins with the warm-up. Clients connect before.
    pub from_s: f64,
    /// How long it lasts; to the end of the measurement if `None`.
    pub for_s: Option<f64>,
    /// Messages that each publisher sends when all are connected; the load begins once they are acknowledged.
    pub warm_up_messages: usize,
    /// Clients that connect or subscribe at a time, and messages of the warm-up that wait for their
    /// acknowledgement; as many as the tool and the broker take if `None`.
    pub most_concurrent: Option<usize>,
    /// Seconds after the end of the measurement in which messages are waited for, although all have come.
    pub drain_s: f64,
}

impl Part {
    /// As fast as the broker accepts, from the warm-up to the end.
    #[must_use]
    pub fn new(name: &str, activity: Activity) -> Self {
        Self {
            name: name.to_owned(),
            activity,
            connect_rate: None,
            from_s: 0.0,
            for_s: None,
            warm_up_messages: 0,
            most_concurrent: None,
            drain_s: 0.0,
        }
    }
}

impl Part {
    /// As [`Workload::asked_in`].
    pub(crate) fn asked_in(&self, seconds: f64) -> Option<f64> {
        let end = self
            .for_s
            .map_or(seconds, |for_s| seconds.min(self.from_s + for_s));
        let share = (end - self.from_s).max(0.0) / seconds;
        Some(self.activity.asked_per_second()? * share)
    }
}

/// What clients do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Activity {
    /// Publish and subscribe.
    Messages(Messages),
    /// Connect, without subscription or traffic.
    Background {
        /// How many.
        connections: usize,
    },
    /// Connect, subscribe and leave again.
    Churn(Churn),
    /// Break off so that their wills are published, and come back.
    Wills(Wills),
    /// Come, subscribe and receive retained messages, again and again.
    Retained(Retained),
}

/// Publishers and subscribers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Messages {
    /// Who publishes to whom.
    pub topology: Topology,
    /// Bytes of each payload, at least [`Stamp::LEN`].
    pub payload_len: usize,
    /// Of publishing, and of subscriptions unless they are listed.
    #[serde(with = "qos_number")]
    pub qos: QoS,
    /// How fast.
    pub pace: Pace,
    /// Whether the sessions of the subscribers, unless they are listed, end with their connections; at QoS 2
    /// those of the publishers too. Below, publishers have nothing to keep, and their sessions always do.
    pub clean_session: bool,
    /// Whether messages are retained; the last of each topic is removed at the end.
    pub retain: bool,
    /// Bytes per second that each subscriber reads at most.
    pub read_rate: Option<u32>,
}

/// Clients that come and go.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Churn {
    /// At a time.
    pub connections: usize,
    /// Of all together: how many leave and come back per second, above 0.
    pub per_second: f64,
    /// Whether they subscribe, each to a topic of its own.
    pub subscribe: bool,
    /// Whether they leave without DISCONNECT.
    pub abrupt: bool,
    /// Whether their sessions end with their connections.
    pub clean_session: bool,
}

/// Clients whose connections break.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Wills {
    /// Clients with a will, at a time.
    pub connections: usize,
    /// Of all together: how many break off and come back per second, above 0.
    pub per_second: f64,
    /// Bytes of each will, at least [`Stamp::LEN`].
    pub payload_len: usize,
    /// Of wills and of the subscriptions to them.
    #[serde(with = "qos_number")]
    pub qos: QoS,
}

/// Retained messages and those who come to read them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Retained {
    /// Topics with a retained message each, which every reader receives.
    pub topics: usize,
    /// Bytes of each payload, at least [`Stamp::LEN`].
    pub payload_len: usize,
    /// Of subscriptions. The messages are published at QoS 1.
    #[serde(with = "qos_number")]
    pub qos: QoS,
    /// Readers at a time.
    pub readers: usize,
    /// Of all together: how many come anew per second, above 0.
    pub per_second: f64,
}

/// How fast messages are sent.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Pace {
    /// At this many messages per second of all publishers together, whatever the broker does.
    Open {
        /// Above 0.
        per_second: f64,
    },
    /// As fast as the broker delivers: each publisher has at most this many messages under way, which
    /// means neither delivered (to one receiver) nor, above QoS 0, acknowledged. For one worker.
    Closed {
        /// Above 0.
        window: u16,
    },
}

/// Why a workload cannot be played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkloadError {
    /// No part, or none with a connection.
    Nothing,
    /// A part's payload has no room for a stamp.
    PayloadTooShort(String),
    /// A part has no rate, a window of 0, or nothing that may go on at a time.
    NoPace(String),
    /// A closed loop without subscribers, whose windows nothing would ever empty.
    NoReceivers(String),
    /// A part of which nobody would receive, or that nobody would play.
    NoClients(String),
    /// A part's name is empty, is another's too, or cannot be a level of a topic.
    Name(String),
    /// A part's time is not a time.
    Time(String),
    /// Connections would be numbered beyond 32 bits.
    TooManyConnections,
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (part, wrong) = match self {
            Self::Nothing => return f.write_str("there is nothing to play"),
            Self::TooManyConnections => return f.write_str("too many connections"),
            Self::PayloadTooShort(part) => {
                let least = Stamp::LEN;
                return write!(
                    f,
                    "{part}: a payload needs at least {least} bytes, and room for all its keys"
                );
            }
            Self::NoPace(part) => (
                part,
                "the rate, the window and what may go on at a time must be above 0",
            ),
            Self::NoReceivers(part) => (part, "a closed loop needs subscribers"),
            Self::NoClients(part) => (part, "each kind of client must be at least 1"),
            Self::Name(part) => (
                part,
                "a part's name must be its own and a level of a topic: not empty, without / + #",
            ),
            Self::Time(part) => (part, "its times must be 0 or above, its duration above 0"),
        };
        write!(f, "{part}: {wrong}")
    }
}

impl std::error::Error for WorkloadError {}

impl Workload {
    /// Connections of all parts.
    #[must_use]
    pub fn connections(&self) -> usize {
        let each = self.parts.iter().map(|part| part.activity.connections());
        each.fold(0, usize::saturating_add)
    }

    /// Messages per second that should come out, as the reports count them: deliveries, or what is sent
    /// where nobody subscribes. `None` if the broker sets the pace.
    #[must_use]
    pub fn asked_per_second(&self) -> Option<f64> {
        let each = self
            .parts
            .iter()
            .map(|part| part.activity.asked_per_second());
        each.sum()
    }

    /// As [`Workload::asked_per_second`], on average over a measurement of so many seconds, in which parts
    /// may begin late or end early.
    #[must_use]
    pub fn asked_in(&self, seconds: f64) -> Option<f64> {
        let each = self.parts.iter().map(|part| part.asked_in(seconds));
        each.sum()
    }

    /// Times this, everything that happens per second.
    #[must_use]
    pub fn at_rate(&self, factor: f64) -> Self {
        let mut scaled = self.clone();
        for part in &mut scaled.parts {
            match &mut part.activity {
                Activity::Messages(messages) => {
                    if let Pace::Open { per_second } = &mut messages.pace {
                        *per_second *= factor;
                    }
                }
                Activity::Background { .. } => {}
                Activity::Churn(Churn { per_second, .. })
                | Activity::Wills(Wills { per_second, .. })
                | Activity::Retained(Retained { per_second, .. }) => *per_second *= factor,
            }
        }
        scaled
    }

    /// The same in small: `connections` times the connections, at least one of each kind, and `rates`
    /// times what each of them does per second, and the connects per second. As many topics are retained
    /// as before.
    #[must_use]
    pub fn scaled(&self, connections: f64, rates: f64) -> Self {
        let mut scaled = self.at_rate(rates);
        for part in &mut scaled.parts {
            part.activity.scale(connections);
            part.connect_rate = part.connect_rate.map(|rate| rate * rates);
        }
        scaled
    }

    /// Whether it can be played.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), WorkloadError> {
        if self.connections() == 0 {
            return Err(WorkloadError::Nothing);
        }
        if self.connections() >= u32::MAX as usize {
            return Err(WorkloadError::TooManyConnections);
        }
        for (number, part) in self.parts.iter().enumerate() {
            let name = || part.name.clone();
            let is_taken = self.parts[..number].iter().any(|p| p.name == part.name);
            if part.name.is_empty() || part.name.contains(['/', '+', '#', '\0']) || is_taken {
                return Err(WorkloadError::Name(name()));
            }
            let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
            if !is_time(part.drain_s)
                || !is_time(part.from_s)
                || !part.for_s.is_none_or(|s| is_time(s) && s > 0.0)
            {
                return Err(WorkloadError::Time(name()));
            }
            if !part.connect_rate.is_none_or(is_rate) || part.most_concurrent == Some(0) {
                return Err(WorkloadError::NoPace(name()));
            }
            part.activity.check(name)?;
        }
        Ok(())
    }
}

fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate.is_finite()
}

impl Activity {
    /// Connections of all kinds. Those who watch for wills are one, although each worker has one.
    #[must_use]
    pub fn connections(&self) -> usize {
        match self {
            Self::Messages(messages) => messages.topology.connections(),
            Self::Background { connections } => *connections,
            Self::Churn(churn) => churn.connections,
            Self::Wills(wills) => wills.connections.saturating_add(1),
            Self::Retained(retained) => retained.readers.saturating_add(1),
        }
    }

    /// `factor` times the clients. What all of them do per second follows how many they are.
    fn scale(&mut self, factor: f64) {
        let shrink = |count: &mut usize, per_second: &mut f64| {
            let before = *count;
            *count = few(before, factor);
            *per_second *= *count as f64 / before.max(1) as f64;
        };
        match self {
            Self::Messages(messages) => {
                let publishers = messages.topology.publishers();
                messages.topology = messages.topology.scaled(factor);
                let ratio = messages.topology.publishers() as f64 / publishers.max(1) as f64;
                if let Pace::Open { per_second } = &mut messages.pace {
                    *per_second *= ratio;
                }
            }
            Self::Background { connections } => *connections = few(*connections, factor),
            Self::Churn(churn) => shrink(&mut churn.connections, &mut churn.per_second),
            Self::Wills(wills) => shrink(&mut wills.connections, &mut wills.per_second),
            Self::Retained(retained) => shrink(&mut retained.readers, &mut retained.per_second),
        }
    }

    /// As [`Workload::asked_per_second`].
    pub(crate) fn asked_per_second(&self) -> Option<f64> {
        match self {
            Self::Messages(messages) if messages.topology.publishers() == 0 => Some(0.0),
            Self::Messages(messages) => match messages.pace {
                Pace::Open { per_second } if messages.topology.subscribers() == 0 => {
                    Some(per_second)
                }
                Pace::Open { per_second } => {
                    Some(per_second * messages.topology.receivers_per_message())
                }
                Pace::Closed { .. } => None,
            },
            Self::Background { .. } | Self::Churn(_) => Some(0.0),
            Self::Wills(wills) => Some(wills.per_second),
            Self::Retained(retained) => Some(retained.per_second * retained.topics as f64),
        }
    }

    fn check(&self, name: impl Fn() -> String) -> Result<(), WorkloadError> {
        let (kinds, per_second, payload_len) = match self {
            Self::Messages(messages) => return messages.check(name),
            Self::Background { connections } => ([*connections, 1], 1.0, Stamp::LEN),
            Self::Churn(churn) => ([churn.connections, 1], churn.per_second, Stamp::LEN),
            Self::Wills(wills) => ([wills.connections, 1], wills.per_second, wills.payload_len),
            Self::Retained(retained) => (
                [retained.readers, retained.topics],
                retained.per_second,
                retained.payload_len,
            ),
        };
        if kinds.contains(&0) {
            return Err(WorkloadError::NoClients(name()));
        }
        if !is_rate(per_second) {
            return Err(WorkloadError::NoPace(name()));
        }
        if payload_len < Stamp::LEN {
            return Err(WorkloadError::PayloadTooShort(name()));
        }
        Ok(())
    }
}

impl Messages {
    /// What payloads are, if not a binary stamp and zeros.
    pub(crate) fn template(&self) -> Option<Template> {
        match &self.topology {
            Topology::Listed(listed) if !listed.telemetry_keys.is_empty() => {
                Some(Template::new(&listed.telemetry_keys, self.payload_len))
            }
            _ => None,
        }
    }

    /// The least QoS with which a message is delivered to a subscriber.
    pub(crate) fn delivery_qos(&self) -> QoS {
        let groups = match &self.topology {
            Topology::Listed(listed) => listed.subscribers.as_slice(),
            _ => &[],
        };
        let least = groups.iter().map(|group| group.qos).min();
        least.map_or(self.qos, |least| least.min(self.qos))
    }

    /// Ends all sessions with their connections; whether all did so before.
    pub(crate) fn make_sessions_clean(&mut self) -> bool {
        let mut were_clean = std::mem::replace(&mut self.clean_session, true);
        if let Topology::Listed(listed) = &mut self.topology {
            for group in &mut listed.subscribers {
                were_clean &= std::mem::replace(&mut group.clean_session, true);
            }
        }
        were_clean
    }

    fn check(&self, name: impl Fn() -> String) -> Result<(), WorkloadError> {
        let topology = &self.topology;
        if topology.connections() == 0 {
            return Err(WorkloadError::NoClients(name()));
        }
        let is_listed = matches!(topology, Topology::Listed(_));
        let may_idle = is_listed || matches!(topology, Topology::Idle { .. });
        if topology.publishers() == 0 && may_idle {
            return Ok(());
        }
        let may_lack_receivers = is_listed || matches!(topology, Topology::FanIn { .. });
        let lacks_receivers = topology.subscribers() == 0 && !may_lack_receivers;
        if topology.publishers() == 0 || lacks_receivers {
            return Err(WorkloadError::NoClients(name()));
        }
        let least_len = self.template().map_or(Stamp::LEN, |t| t.len());
        if self.payload_len < least_len {
            return Err(WorkloadError::PayloadTooShort(name()));
        }
        match self.pace {
            Pace::Open { per_second } if !is_rate(per_second) => Err(WorkloadError::NoPace(name())),
            Pace::Closed { window: 0 } => Err(WorkloadError::NoPace(name())),
            Pace::Closed { .. } if topology.subscribers() == 0 => {
                Err(WorkloadError::NoReceivers(name()))
            }
            _ => Ok(()),
        }
    }
}

/// A protocol version as its number in CONNECT.
mod version_number {
    use mqtt_proto::ProtocolVersion;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        version: &ProtocolVersion,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_u8(match version {
            ProtocolVersion::V3_1 => 3,
            ProtocolVersion::V3_1_1 => 4,
            ProtocolVersion::V5 => 5,
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<ProtocolVersion, D::Error> {
        match u8::deserialize(from)? {
            3 => Ok(ProtocolVersion::V3_1),
            4 => Ok(ProtocolVersion::V3_1_1),
            5 => Ok(ProtocolVersion::V5),
            _ => Err(D::Error::custom("protocol level is 3, 4 or 5")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(topology: Topology) -> Messages {
        Messages {
            topology,
            payload_len: Stamp::LEN,
            qos: QoS::AtMostOnce,
            pace: Pace::Open { per_second: 1.0 },
            clean_session: true,
            retain: false,
            read_rate: None,
        }
    }

    fn check(parts: &[Part]) -> Result<(), WorkloadError> {
        let workload = Workload {
            parts: parts.to_vec(),
            login: Login::new(ProtocolVersion::V5),
        };
        workload.check()
    }

    #[test]
    fn what_cannot_be_played_is_named() {
        let part = |activity| Part::new("p", activity);
        let name = || "p".to_owned();
        let closed = Messages {
            pace: Pace::Closed { window: 1 },
            ..messages(Topology::FanIn { publishers: 1 })
        };
        let no_rate = Messages {
            pace: Pace::Open { per_second: 0.0 },
            ..messages(Topology::Pairs { pairs: 1 })
        };
        let short = Messages {
            payload_len: Stamp::LEN - 1,
            ..messages(Topology::Pairs { pairs: 1 })
        };
        let nobody = messages(Topology::Groups {
            publishers: 1,
            groups: 0,
        });
        for (parts, wrong) in [
            (vec![], WorkloadError::Nothing),
            (
                vec![part(Activity::Messages(closed))],
                WorkloadError::NoReceivers(name()),
            ),
            (
                vec![part(Activity::Messages(no_rate))],
                WorkloadError::NoPace(name()),
            ),
            (
                vec![part(Activity::Messages(short))],
                WorkloadError::PayloadTooShort(name()),
            ),
            (
                vec![part(Activity::Messages(nobody))],
                WorkloadError::NoClients(name()),
            ),
            (
                vec![part(Activity::Background { connections: 1 }); 2],
                WorkloadError::Name(name()),
            ),
        ] {
            assert_eq!(check(&parts), Err(wrong), "{parts:?}");
        }
        let mut late = part(Activity::Background { connections: 1 });
        assert_eq!(check(std::slice::from_ref(&late)), Ok(()));
        late.from_s = -1.0;
        assert_eq!(check(&[late]), Err(WorkloadError::Time(name())));
    }

    #[test]
    fn messages_per_second_are_those_that_come_out() {
        let fan_out = messages(Topology::FanOut {
            publishers: 1,
            subscribers: 50,
        });
        let retained = Retained {
            topics: 10,
            payload_len: 16,
            qos: QoS::AtLeastOnce,
            readers: 5,
            per_second: 2.0,
        };
        let workload = Workload {
            parts: vec![
                Part::new("a", Activity::Messages(fan_out)),
                Part::new("b", Activity::Background { connections: 9 }),
                Part::new("c", Activity::Retained(retained)),
            ],
            login: Login::new(ProtocolVersion::V5),
        };
        assert_eq!(workload.asked_per_second(), Some(70.0));
        assert_eq!(workload.at_rate(0.5).asked_per_second(), Some(35.0));
        let mut late = workload.clone();
        late.parts[0].from_s = 2.0;
        late.parts[2].for_s = Some(5.0);
        assert_eq!(late.asked_in(10.0), Some(50.0 * 0.8 + 20.0 * 0.5));
        late.parts[0].from_s = 20.0;
        assert_eq!(late.asked_in(10.0), Some(10.0));
        assert_eq!(workload.connections(), 51 + 9 + 6);
    }

    #[test]
    fn a_scaled_workload_has_fewer_clients_which_do_each_what_they_did_times_the_rate() {
        let pairs = Messages {
            pace: Pace::Open {
                per_second: 1_000.0,
            },
            ..messages(Topology::Pairs { pairs: 100 })
        };
        let wills = Wills {
            connections: 40,
            per_second: 20.0,
            payload_len: 16,
            qos: QoS::AtLeastOnce,
        };
        let mut first = Part::new("a", Activity::Messages(pairs));
        first.connect_rate = Some(500.0);
        let workload = Workload {
            parts: vec![
                first,
                Part::new("b", Activity::Background { connections: 3 }),
                Part::new("c", Activity::Wills(wills)),
            ],
            login: Login::new(ProtocolVersion::V5),
        };
        let scaled = workload.scaled(0.1, 0.5);
        assert_eq!(scaled.connections(), 20 + 1 + 4 + 1);
        assert_eq!(scaled.asked_per_second(), Some(50.0 + 1.0));
        assert_eq!(scaled.parts[0].connect_rate, Some(250.0));
        assert_eq!(workload.scaled(1.0, 1.0), workload);
    }
}
