//! A workload as a person writes it: the keys of the file, and what becomes of them.
//!
//! Invariant: a file that was read can be played; what cannot is refused with its line.
//!
//! Deliberately absent: what the numbers are called when they are shown; `parts.rs` has that.
//!
//! Where to read next: `bench/workloads/mixed.yml` for an example, `loadtest::workload` for the meaning.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::str::FromStr;

use loadtest::Topology;
use loadtest::workload::{
    Activity, Churn, Login, Messages, Pace, Part, Retained, Wills, Workload, WorkloadError,
};
use mqtt_proto::{ProtocolVersion, QoS};
use serde::{Deserialize, Deserializer, de};

use super::quantity::{Count, Rate, Size, Time, read_from_text};
use super::yaml;
use crate::failure::Failure;

/// What a file says.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct WorkloadFile {
    /// As the file names it; the file's own name if it does not.
    pub(super) name: String,
    /// Each with a name of its own.
    pub(super) parts: Vec<Part>,
}

impl WorkloadFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or not played.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let Document { name, parts } = yaml::read(path)?;
        let stem = || path.file_stem().unwrap_or_default().to_string_lossy();
        let name = name.unwrap_or_else(|| stem().into_owned());
        Ok(Self { name, parts })
    }
}

/// A file whose parts have names.
#[derive(Deserialize, Debug)]
#[serde(try_from = "DocumentKeys")]
struct Document {
    name: Option<String>,
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentKeys {
    name: Option<String>,
    parts: Vec<Entry>,
    #[serde(rename = "tls")]
    _tls: Option<NotYet>,
    #[serde(rename = "websocket")]
    _websocket: Option<NotYet>,
}

impl TryFrom<DocumentKeys> for Document {
    type Error = WorkloadError;

    fn try_from(keys: DocumentKeys) -> Result<Self, WorkloadError> {
        let mut taken: Vec<String> = keys.parts.iter().filter_map(|e| e.name.clone()).collect();
        let named = |entry: Entry| {
            let name = entry.name.unwrap_or_else(|| {
                let name = free_name(entry.part.name.as_str(), &taken);
                taken.push(name.clone());
                name
            });
            Part { name, ..entry.part }
        };
        let parts: Vec<Part> = keys.parts.into_iter().map(named).collect();
        check(&parts)?;
        let name = keys.name;
        Ok(Self { name, parts })
    }
}

/// `kind`, or the first of `kind-2`, `kind-3`, … that no part has.
fn free_name(kind: &str, taken: &[String]) -> String {
    let numbered = (2..).map(|number: usize| format!("{kind}-{number}"));
    let mut names = std::iter::once(kind.to_owned()).chain(numbered);
    let free = names.find(|name| !taken.contains(name));
    free.unwrap_or_default()
}

fn check(parts: &[Part]) -> Result<(), WorkloadError> {
    let workload = Workload {
        parts: parts.to_vec(),
        // How clients connect is the command line's business, and makes no difference here.
        login: Login::new(ProtocolVersion::V5),
    };
    workload.check()
}

/// An item of `parts`.
#[derive(Deserialize)]
#[serde(try_from = "PartKeys")]
struct Entry {
    /// If it was given one.
    name: Option<String>,
    /// Named like its kind.
    part: Part,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartKeys {
    name: Option<String>,
    from: Option<Time>,
    #[serde(rename = "for")]
    lasts: Option<Time>,
    connect_rate: Option<Rate>,
    background: Option<BackgroundKeys>,
    pairs: Option<PairsKeys>,
    #[serde(rename = "fan-out")]
    fan_out: Option<FanOutKeys>,
    #[serde(rename = "fan-in")]
    fan_in: Option<FanInKeys>,
    shared: Option<SharedKeys>,
    groups: Option<GroupsKeys>,
    churn: Option<ChurnKeys>,
    wills: Option<WillsKeys>,
    retained: Option<RetainedKeys>,
    #[serde(rename = "tls")]
    _tls: Option<NotYet>,
    #[serde(rename = "websocket")]
    _websocket: Option<NotYet>,
}

const ONE_KIND: &str = "a part is exactly one of background, pairs, fan-out, fan-in, shared, groups, \
                        churn, wills and retained";

impl TryFrom<PartKeys> for Entry {
    type Error = String;

    fn try_from(keys: PartKeys) -> Result<Self, String> {
        let given = [
            keys.background.map(|keys| ("background", Ok(keys.into()))),
            keys.pairs.map(|keys| ("pairs", keys.try_into())),
            keys.fan_out.map(|keys| ("fan-out", keys.try_into())),
            keys.fan_in.map(|keys| ("fan-in", keys.try_into())),
            keys.shared.map(|keys| ("shared", keys.try_into())),
            keys.groups.map(|keys| ("groups", keys.try_into())),
            keys.churn.map(|keys| ("churn", Ok(keys.into()))),
            keys.wills.map(|keys| ("wills", Ok(keys.into()))),
            keys.retained.map(|keys| ("retained", Ok(keys.into()))),
        ];
        let mut given = given.into_iter().flatten();
        let (Some((kind, activity)), None) = (given.next(), given.next()) else {
            return Err(ONE_KIND.to_owned());
        };
        let activity = activity.map_err(|wrong: &str| format!("{kind}: {wrong}"))?;
        let part = Part {
            connect_rate: keys.connect_rate.map(|rate| rate.0),
            from_s: keys.from.map_or(0.0, |time| time.0.as_secs_f64()),
            for_s: keys.lasts.map(|time| time.0.as_secs_f64()),
            ..Part::new(kind, activity)
        };
        check(std::slice::from_ref(&part)).map_err(|error| error.to_string())?;
        let name = keys.name;
        Ok(Self { name, part })
    }
}

/// Of a kind of part whose clients publish and subscribe: its counts, who publishes to whom then, and what
/// all these kinds share.
macro_rules! message_keys {
    ($name:ident { $($count:ident),+ } => $topology:expr) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($count: Count,)+
            /// Messages per second of each publisher.
            rate: Option<Rate>,
            /// Instead of a rate: messages under way of each publisher.
            window: Option<u16>,
            payload: Size,
            #[serde(default)]
            qos: Qos,
            #[serde(default = "yes")]
            clean_session: bool,
            #[serde(default)]
            retain: bool,
            read_rate: Option<Size>,
        }

        impl TryFrom<$name> for Activity {
            type Error = &'static str;

            fn try_from(keys: $name) -> Result<Self, &'static str> {
                $(let $count = keys.$count.0;)+
                let topology = $topology;
                Ok(Self::Messages(Messages {
                    pace: pace(keys.rate, keys.window, &topology)?,
                    topology,
                    payload_len: keys.payload.0,
                    qos: keys.qos.0,
                    clean_session: keys.clean_session,
                    retain: keys.retain,
                    read_rate: keys.read_rate.map(read_rate).transpose()?,
                }))
            }
        }
    };
}

message_keys!(PairsKeys { pairs } => Topology::Pairs { pairs });
message_keys!(FanOutKeys { publishers, subscribers } => Topology::FanOut { publishers, subscribers });
message_keys!(FanInKeys { publishers } => Topology::FanIn { publishers });
message_keys!(SharedKeys { publishers, subscribers } => Topology::Shared {
    publishers,
    members: subscribers,
});
message_keys!(GroupsKeys { publishers, subscribers } => Topology::Groups {
    publishers,
    groups: subscribers,
});

fn pace(
    rate: Option<Rate>,
    window: Option<u16>,
    topology: &Topology,
) -> Result<Pace, &'static str> {
    match (rate, window) {
        (Some(Rate(each)), None) => Ok(Pace::Open {
            per_second: each * topology.publishers() as f64,
        }),
        (None, Some(window)) => Ok(Pace::Closed { window }),
        _ => Err("it needs either `rate` or `window`"),
    }
}

fn read_rate(size: Size) -> Result<u32, &'static str> {
    match u32::try_from(size.0) {
        Ok(rate @ 1..) => Ok(rate),
        _ => Err("`read_rate` is bytes per second, from 1 to 4 GiB"),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackgroundKeys {
    connections: Count,
}

impl From<BackgroundKeys> for Activity {
    fn from(keys: BackgroundKeys) -> Self {
        Self::Background {
            connections: keys.connections.0,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChurnKeys {
    connections: Count,
    per_second: Rate,
    #[serde(default)]
    subscribe: bool,
    #[serde(default)]
    abrupt: bool,
    #[serde(default = "yes")]
    clean_session: bool,
}

impl From<ChurnKeys> for Activity {
    fn from(keys: ChurnKeys) -> Self {
        Self::Churn(Churn {
            connections: keys.connections.0,
            per_second: keys.per_second.0,
            subscribe: keys.subscribe,
            abrupt: keys.abrupt,
            clean_session: keys.clean_session,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WillsKeys {
    connections: Count,
    per_second: Rate,
    payload: Size,
    #[serde(default)]
    qos: Qos,
}

impl From<WillsKeys> for Activity {
    fn from(keys: WillsKeys) -> Self {
        Self::Wills(Wills {
            connections: keys.connections.0,
            per_second: keys.per_second.0,
            payload_len: keys.payload.0,
            qos: keys.qos.0,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetainedKeys {
    topics: Count,
    readers: Count,
    per_second: Rate,
    payload: Size,
    #[serde(default)]
    qos: Qos,
}

impl From<RetainedKeys> for Activity {
    fn from(keys: RetainedKeys) -> Self {
        Self::Retained(Retained {
            topics: keys.topics.0,
            payload_len: keys.payload.0,
            qos: keys.qos.0,
            readers: keys.readers.0,
            per_second: keys.per_second.0,
        })
    }
}

/// 0 unless something else is written.
#[derive(Clone, Copy)]
struct Qos(QoS);

impl Default for Qos {
    fn default() -> Self {
        Self(QoS::AtMostOnce)
    }
}

impl FromStr for Qos {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let qos = text.parse().ok().and_then(QoS::from_u8);
        qos.map(Self).ok_or("expected 0, 1 or 2")
    }
}

read_from_text!(Qos);

/// Of a key that will mean something one day, and until then must not be taken for granted.
struct NotYet;

impl<'de> Deserialize<'de> for NotYet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        de::IgnoredAny::deserialize(from)?;
        Err(de::Error::custom(
            "not there yet; the load is MQTT over TCP, without TLS and WebSocket",
        ))
    }
}

fn yes() -> bool {
    true
}
