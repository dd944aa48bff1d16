//! The JSON in which TBMQ's performance tests describe a load: groups of publishers and of subscribers.
//!
//! A file is a whole configuration, as the test's own are; or a group, or an array of groups, as TBMQ's report
//! prints them. Publishers and subscribers may be in two files, as in the report's cluster of runners.
//!
//! Call order: [`Test::read`] for each file; [`combine`].
//!
//! Invariant: every field of the format is known, and what is not said has the value of the report.
//!
//! Source: the README of thingsboard/tb-mqtt-perf-tests and TBMQ's report on 100 million connections.

use std::fmt;
use std::time::Duration;

use mqtt_proto::{FilterError, QoS, SubscriptionFilter, TopicError, validate_topic_name};
use serde::Deserialize;

use crate::listed::{Listed, PublisherGroup, SubscriberGroup};
use crate::payload::Template;
use crate::topology::Topology;
use crate::verify::Stamp;
use crate::workload::{Activity, Login, Messages, Pace, Part, Workload};

/// Of the report, in messages per second of each publisher: 3,000,000 of 100,000,000.
const REPORT_RATE: f64 = 0.03;

/// Of the report.
const REPORT_QOS: QoS = QoS::AtLeastOnce;

/// Of the report: 114 bytes.
const REPORT_KEYS: [&str; 5] = ["lat", "long", "speed", "fuel", "batLvl"];

/// Of the report: messages of each publisher that must be acknowledged before the measurement.
const REPORT_WARM_UP: usize = 6;

/// What one file says.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Test {
    publisher_groups: Option<Vec<GroupKeys>>,
    subscriber_groups: Option<Vec<GroupKeys>>,
    dummy_clients: Option<usize>,
    seconds_to_run: Option<u64>,
    additional_seconds_to_wait: Option<u64>,
    #[serde(alias = "maxMessagesPerPublisherPerSecond")]
    max_msgs_per_publisher_per_second: Option<f64>,
    publisher_qos_value: Option<u8>,
    subscriber_qos_value: Option<u8>,
    min_payload_size: Option<usize>,
    max_concurrent_operations: Option<usize>,
    telemetry_keys: Option<Vec<String>>,
}

/// A group of either kind.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupKeys {
    id: Option<u64>,
    publishers: Option<usize>,
    topic_prefix: Option<String>,
    subscribers: Option<usize>,
    topic_filter: Option<String>,
    expected_publisher_groups: Option<Vec<u64>>,
    persistent_session_info: Option<PersistentSessionInfo>,
    client_id_prefix: Option<String>,
    /// TBMQ's tool then prints figures of each client of the group; this one has those of each publisher anyway.
    #[serde(rename = "isDebugEnabled")]
    _is_debug_enabled: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PersistentSessionInfo {
    /// Both have sessions that outlast their connections; they differ in how the broker keeps their messages.
    client_type: ClientType,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum ClientType {
    Application,
    Device,
}

/// A kind of group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Its clients publish.
    Publisher,
    /// Its clients subscribe.
    Subscriber,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Publisher => "publisher group",
            Self::Subscriber => "subscriber group",
        })
    }
}

/// Why a file is not played.
#[derive(Debug)]
pub enum TbmqError {
    /// It is not such JSON; says where and why.
    Json(serde_json::Error),
    /// There is no group and no client without traffic.
    Nothing,
    /// A group, by its place from 1, is of no kind, of both, or in the wrong list.
    Kind(usize),
    /// A group, by its id, lacks a field.
    Lacks(Side, u64, &'static str),
    /// The topics of a group of publishers, by its id, which begin like this, are none.
    Topic(u64, String, TopicError),
    /// The filter of a group of subscribers, by its id, is none.
    Filter(u64, String, FilterError),
    /// Two groups of a kind have this id.
    Twice(Side, u64),
    /// A QoS is none.
    Qos(u8),
    /// A group of subscribers, by its id, expects a group of publishers that is not there.
    NoSuchGroup(u64, u64),
    /// Clients of two groups would have the same client identifier, of which this is one.
    ClientId(String),
    /// Two files say different things of this field.
    Differ(&'static str),
}

impl fmt::Display for TbmqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(f),
            Self::Nothing => {
                f.write_str("no group of publishers or subscribers, and no dummyClients")
            }
            Self::Kind(place) => write!(
                f,
                "group number {place}: a group has either `publishers` and `topicPrefix`, or `subscribers` and \
                 `topicFilter`"
            ),
            Self::Lacks(side, id, field) => write!(f, "{side} {id}: `{field}` is missing"),
            Self::Topic(id, topic, error) => {
                write!(f, "publisher group {id}: `{topic}`: {error}")
            }
            Self::Filter(id, filter, error) => {
                write!(f, "subscriber group {id}: `{filter}`: {error}")
            }
            Self::Twice(side, id) => write!(f, "two {side}s have the id {id}"),
            Self::Qos(qos) => write!(f, "QoS {qos} is none of 0, 1 and 2"),
            Self::NoSuchGroup(subscribers, publishers) => write!(
                f,
                "subscriber group {subscribers} expects publisher group {publishers}, which is not there"
            ),
            Self::ClientId(id) => write!(
                f,
                "two clients would be `{id}`; give their groups other values of `clientIdPrefix`"
            ),
            Self::Differ(field) => write!(f, "the two files differ in `{field}`"),
        }
    }
}

impl std::error::Error for TbmqError {}

/// A load, and what a file says besides.
#[derive(Clone, PartialEq, Debug)]
pub struct Combined {
    /// The load.
    pub workload: Workload,
    /// How long to measure, if a file says it.
    pub duration: Option<Duration>,
    /// Sentences about what is played otherwise than the files may mean it.
    pub notes: Vec<String>,
}

impl Test {
    /// Reads a file.
    ///
    /// # Errors
    /// It is no configuration, group or array of groups.
    pub fn read(json: &str) -> Result<Self, TbmqError> {
        // Its beginning says what it is; read as that, errors have their lines.
        let value: serde_json::Value = serde_json::from_str(json).map_err(TbmqError::Json)?;
        let is_group = value
            .get("publishers")
            .or(value.get("subscribers"))
            .is_some();
        let groups: Vec<GroupKeys> = match (value.is_array(), is_group) {
            (true, _) => serde_json::from_str(json).map_err(TbmqError::Json)?,
            (false, true) => vec![serde_json::from_str(json).map_err(TbmqError::Json)?],
            (false, false) => return Self::read_configuration(json),
        };
        if let Some(place) = groups.iter().position(|group| group.side().is_none()) {
            return Err(TbmqError::Kind(place + 1));
        }
        let is_publisher = |group: &GroupKeys| group.side() == Some(Side::Publisher);
        let (publishers, subscribers) = groups.into_iter().partition(is_publisher);
        Ok(Self {
            publisher_groups: Some(publishers),
            subscriber_groups: Some(subscribers),
            ..Self::default()
        })
    }

    fn read_configuration(json: &str) -> Result<Self, TbmqError> {
        let test: Self = serde_json::from_str(json).map_err(TbmqError::Json)?;
        for (groups, side) in [
            (&test.publisher_groups, Side::Publisher),
            (&test.subscriber_groups, Side::Subscriber),
        ] {
            let mut groups = groups.iter().flatten();
            if let Some(place) = groups.position(|group| group.side() != Some(side)) {
                return Err(TbmqError::Kind(place + 1));
            }
        }
        Ok(test)
    }

    fn publishes(&self) -> bool {
        self.publisher_groups
            .as_ref()
            .is_some_and(|g| !g.is_empty())
    }
}

impl GroupKeys {
    /// `None` if the fields are of no kind or of both.
    fn side(&self) -> Option<Side> {
        let publishes = self.publishers.is_some() || self.topic_prefix.is_some();
        let subscribes = self.subscribers.is_some()
            || self.topic_filter.is_some()
            || self.expected_publisher_groups.is_some()
            || self.persistent_session_info.is_some();
        match (publishes, subscribes) {
            (true, false) => Some(Side::Publisher),
            (false, true) => Some(Side::Subscriber),
            _ => None,
        }
    }

    /// What client identifiers begin with, as in TBMQ's tool.
    fn client_ids(&self, kind: &str, id: u64) -> String {
        let prefix = self.client_id_prefix.clone();
        prefix.unwrap_or_else(|| format!("test_{kind}_client_{id}_"))
    }

    fn publisher_group(&self, id: u64) -> Result<PublisherGroup, TbmqError> {
        let lacks = |field| TbmqError::Lacks(Side::Publisher, id, field);
        let topic_prefix = self.topic_prefix.clone();
        let topic_prefix = topic_prefix.ok_or(lacks("topicPrefix"))?;
        let group = PublisherGroup {
            count: self.publishers.ok_or(lacks("publishers"))?,
            topic_prefix,
            client_id_prefix: self.client_ids("pub", id),
        };
        let stem = format!("{}{}", group.topic_prefix, group.client_id_prefix);
        match validate_topic_name(&stem) {
            Ok(()) => Ok(group),
            Err(error) => Err(TbmqError::Topic(id, stem, error)),
        }
    }

    fn subscriber_group(&self, id: u64, qos: QoS) -> Result<SubscriberGroup, TbmqError> {
        let lacks = |field| TbmqError::Lacks(Side::Subscriber, id, field);
        let filter = self.topic_filter.clone().ok_or(lacks("topicFilter"))?;
        let group = SubscriberGroup {
            count: self.subscribers.ok_or(lacks("subscribers"))?,
            filter,
            client_id_prefix: self.client_ids("sub", id),
            clean_session: self.persistent_session_info.is_none(),
            qos,
        };
        match SubscriptionFilter::parse(&group.filter) {
            Ok(_) => Ok(group),
            Err(error) => Err(TbmqError::Filter(id, group.filter, error)),
        }
    }
}

/// All groups of a kind with their ids; a group without one has its place in its file, from 1. A group that
/// both files have, as the test's own files do, counts once.
fn numbered(tests: &[Test], side: Side) -> Result<Vec<(u64, &GroupKeys)>, TbmqError> {
    let mut all: Vec<(u64, &GroupKeys)> = Vec::new();
    for test in tests {
        let groups = match side {
            Side::Publisher => &test.publisher_groups,
            Side::Subscriber => &test.subscriber_groups,
        };
        let before = all.len();
        for (place, group) in groups.iter().flatten().enumerate() {
            let id = group.id.unwrap_or(place as u64 + 1);
            match all.iter().position(|&(other, _)| other == id) {
                None => all.push((id, group)),
                Some(other) if other < before && all[other].1 == group => {}
                Some(_) => return Err(TbmqError::Twice(side, id)),
            }
        }
    }
    Ok(all)
}

/// What a field is said to be: by the files that are of its side, or else by the others.
fn said<T: Clone + PartialEq>(
    tests: &[Test],
    side: Side,
    name: &'static str,
    field: impl Fn(&Test) -> &Option<T>,
) -> Result<Option<T>, TbmqError> {
    let of = |is_own: bool| {
        let publishes = (side == Side::Publisher) == is_own;
        let tests = tests.iter().filter(move |t| t.publishes() == publishes);
        tests.filter_map(|test| field(test).as_ref())
    };
    let mut own = of(true);
    let first = own.next();
    if own.any(|other| Some(other) != first) {
        return Err(TbmqError::Differ(name));
    }
    Ok(first.or_else(|| of(false).next()).cloned())
}

/// The load of one file, or of a file with publishers and one with subscribers.
///
/// What concerns publishers (`secondsToRun` and `telemetryKeys`, for example) is taken from the file that has
/// them, `subscriberQosValue` from the other; `dummyClients` add up, the longer `additionalSecondsToWait` and
/// the lower `maxConcurrentOperations` count.
///
/// # Errors
/// What the files say is wrong, or contradicts itself.
pub fn combine(tests: &[Test], login: Login) -> Result<Combined, TbmqError> {
    let qos = |number: Option<u8>| match number {
        Some(number) => QoS::from_u8(number).ok_or(TbmqError::Qos(number)),
        None => Ok(REPORT_QOS),
    };
    let (by_publishers, by_subscribers) = (Side::Publisher, Side::Subscriber);
    let publisher_qos = said(tests, by_publishers, "publisherQosValue", |t| {
        &t.publisher_qos_value
    })?;
    let subscriber_qos = said(tests, by_subscribers, "subscriberQosValue", |t| {
        &t.subscriber_qos_value
    })?;
    let (publisher_qos, subscriber_qos) = (qos(publisher_qos)?, qos(subscriber_qos)?);
    let telemetry_keys = said(tests, by_publishers, "telemetryKeys", |t| &t.telemetry_keys)?;
    let telemetry_keys = telemetry_keys.unwrap_or_else(|| REPORT_KEYS.map(str::to_owned).to_vec());
    let least_len = said(tests, by_publishers, "minPayloadSize", |t| {
        &t.min_payload_size
    })?;
    let least_len = least_len.unwrap_or(0);
    let rate = said(tests, by_publishers, "maxMsgsPerPublisherPerSecond", |t| {
        &t.max_msgs_per_publisher_per_second
    })?;
    let seconds = said(tests, by_publishers, "secondsToRun", |t| &t.seconds_to_run)?;

    let publishers = numbered(tests, Side::Publisher)?;
    let subscribers = numbered(tests, Side::Subscriber)?;
    let listed = Listed {
        publishers: each(&publishers, GroupKeys::publisher_group)?,
        subscribers: each(&subscribers, |group, id| {
            group.subscriber_group(id, subscriber_qos)
        })?,
        telemetry_keys,
    };
    check_client_ids(&listed)?;
    let mut notes = unmet(&publishers, &subscribers, &listed)?;
    notes.extend(applications(&subscribers, &listed));
    let payload_len = match listed.telemetry_keys.as_slice() {
        [] => least_len.max(Stamp::LEN),
        keys => Template::new(keys, least_len).len(),
    };
    let publisher_count = listed.publisher_count();
    let client_count = publisher_count + listed.subscriber_count();
    let messages = Messages {
        clean_session: listed.subscribers.iter().all(|group| group.clean_session),
        topology: Topology::Listed(listed),
        payload_len,
        qos: publisher_qos,
        pace: Pace::Open {
            per_second: rate.unwrap_or(REPORT_RATE) * publisher_count as f64,
        },
        retain: false,
        read_rate: None,
    };
    let most_concurrent = tests.iter().filter_map(|t| t.max_concurrent_operations);
    let most_concurrent = most_concurrent.min();
    let wait = tests.iter().filter_map(|t| t.additional_seconds_to_wait);
    let part = |name, activity| Part {
        most_concurrent,
        drain_s: wait.clone().max().unwrap_or(0) as f64,
        ..Part::new(name, activity)
    };
    let mut parts = Vec::new();
    if client_count > 0 {
        parts.push(Part {
            warm_up_messages: REPORT_WARM_UP,
            ..part("groups", Activity::Messages(messages))
        });
    }
    let connections = tests.iter().filter_map(|t| t.dummy_clients).sum();
    if connections > 0 {
        parts.push(part("dummies", Activity::Background { connections }));
    }
    if parts.is_empty() {
        return Err(TbmqError::Nothing);
    }
    Ok(Combined {
        workload: Workload { parts, login },
        duration: seconds.map(Duration::from_secs),
        notes,
    })
}

fn each<G>(
    groups: &[(u64, &GroupKeys)],
    read: impl Fn(&GroupKeys, u64) -> Result<G, TbmqError>,
) -> Result<Vec<G>, TbmqError> {
    groups.iter().map(|&(id, group)| read(group, id)).collect()
}

/// Client identifiers are a prefix and a number without leading zeros.
fn check_client_ids(listed: &Listed) -> Result<(), TbmqError> {
    let publishers = listed.publishers.iter();
    let publishers = publishers.map(|group| (group.client_id_prefix.as_str(), group.count));
    let subscribers = listed.subscribers.iter();
    let subscribers = subscribers.map(|group| (group.client_id_prefix.as_str(), group.count));
    let all: Vec<(&str, usize)> = publishers.chain(subscribers).collect();
    let all: Vec<(&str, usize)> = all.into_iter().filter(|&(_, count)| count > 0).collect();
    // Sorted, a prefix stands before all that begin with it.
    let mut sorted = all;
    sorted.sort_unstable();
    for (place, &(short, count)) in sorted.iter().enumerate() {
        let longer = sorted[place + 1..].iter();
        for &(long, _) in longer.take_while(|(long, _)| long.starts_with(short)) {
            let rest = &long[short.len()..];
            let is_number = !rest.starts_with('0') && rest.bytes().all(|b| b.is_ascii_digit());
            let taken = match rest {
                "" => true,
                // The first of the longer ones is number `rest` 0 of the shorter.
                _ => {
                    is_number
                        && rest
                            .parse()
                            .is_ok_and(|n: usize| n.saturating_mul(10) < count)
                }
            };
            if taken {
                return Err(TbmqError::ClientId(format!("{long}0")));
            }
        }
    }
    Ok(())
}

/// A sentence for each group of subscribers whose filter matches something else than the groups that it is said to
/// expect.
fn unmet(
    publishers: &[(u64, &GroupKeys)],
    subscribers: &[(u64, &GroupKeys)],
    listed: &Listed,
) -> Result<Vec<String>, TbmqError> {
    let mut notes = Vec::new();
    if publishers.is_empty() {
        // They publish elsewhere.
        return Ok(notes);
    }
    for ((id, group), subscribers) in subscribers.iter().zip(&listed.subscribers) {
        for expected in group.expected_publisher_groups.iter().flatten() {
            let place = publishers.iter().position(|(other, _)| other == expected);
            let place = place.ok_or(TbmqError::NoSuchGroup(*id, *expected))?;
            let publishers = &listed.publishers[place];
            if publishers
                .matched_by(subscribers.matching_filter())
                .is_empty()
            {
                notes.push(format!(
                    "subscriber group {id} expects publisher group {expected}, whose topics its filter {} does \
                     not match; nothing of it counts as lost",
                    subscribers.filter
                ));
            }
        }
    }
    Ok(notes)
}

/// Groups of application clients that a note names.
const NAMED: usize = 3;

/// Says by what the broker knows the application clients, if there are some: nothing that they send says it.
fn applications(subscribers: &[(u64, &GroupKeys)], listed: &Listed) -> Option<String> {
    let is_application = |group: &GroupKeys| {
        let info = group.persistent_session_info;
        info.is_some_and(|info| info.client_type == ClientType::Application)
    };
    let groups = subscribers.iter().zip(&listed.subscribers);
    let groups = groups.filter(|((_, group), _)| is_application(group));
    let mut patterns: Vec<String> = groups
        .map(|(_, group)| format!("\"{}*\"", group.client_id_prefix))
        .collect();
    patterns.dedup();
    let more = patterns.len().saturating_sub(NAMED);
    patterns.truncate(NAMED);
    if more > 0 {
        patterns.push(format!("and {more} more"));
    }
    (!patterns.is_empty()).then(|| {
        format!(
            "the broker does not see that clients are of type APPLICATION; HeraldMQ gives them limits of their own by \
             `clientClasses` with `match.clientId` {}",
            patterns.join(", ")
        )
    })
}

#[cfg(test)]
mod tests;
