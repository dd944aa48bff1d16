//! The JSON in which TBMQ's performance tests describe a load: groups of publishers and of subscribers.
//!
//! Invariant: every field is known, though not all matter here: this tool names clients itself, finds out by
//! itself when all has arrived, and lets as many connect at a time as the broker takes.
//!
//! Source: the README of thingsboard/tb-mqtt-perf-tests and TBMQ's report on 100 million connections.

use std::fmt;
use std::time::Duration;

use mqtt_proto::QoS;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::topology::{Listed, PublisherGroup, SubscriberGroup, Topology};
use crate::verify::Stamp;
use crate::workload::{Activity, Login, Messages, Pace, Part, Workload};

/// Bytes of a key of the JSON that TBMQ's publishers send, with its value: with `lat`, `long`, `speed`,
/// `fuel` and `batLvl` that makes the 114 bytes of its report.
const VALUE_LEN: usize = 18;

/// Bytes of the braces.
const BRACES_LEN: usize = 2;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    publisher_groups: Vec<Publishers>,
    subscriber_groups: Vec<Subscribers>,
    #[serde(default)]
    dummy_clients: usize,
    seconds_to_run: u64,
    #[serde(default, rename = "additionalSecondsToWait")]
    _additional_seconds_to_wait: IgnoredAny,
    #[serde(alias = "maxMessagesPerPublisherPerSecond")]
    max_msgs_per_publisher_per_second: f64,
    publisher_qos_value: u8,
    subscriber_qos_value: u8,
    #[serde(default)]
    min_payload_size: usize,
    #[serde(default, rename = "maxConcurrentOperations")]
    _max_concurrent_operations: IgnoredAny,
    #[serde(default)]
    telemetry_keys: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Publishers {
    id: u64,
    publishers: usize,
    topic_prefix: String,
    #[serde(default, rename = "clientIdPrefix")]
    _client_id_prefix: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Subscribers {
    id: u64,
    subscribers: usize,
    topic_filter: String,
    expected_publisher_groups: Vec<u64>,
    #[serde(default)]
    persistent_session_info: Option<PersistentSessionInfo>,
    #[serde(default, rename = "clientIdPrefix")]
    _client_id_prefix: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PersistentSessionInfo {
    /// `APPLICATION` and `DEVICE` differ only in how TBMQ keeps their messages.
    #[serde(rename = "clientType")]
    _client_type: ClientType,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum ClientType {
    Application,
    Device,
}

/// Why a file is not played.
#[derive(Debug)]
pub enum TbmqError {
    /// It is not such JSON; says where and why.
    Json(serde_json::Error),
    /// A QoS is none.
    Qos(u8),
    /// Publishers and subscribers have different QoS.
    QosDiffers,
    /// A group of subscribers, by its id, expects a group of publishers that is not there.
    NoSuchGroup(u64, u64),
    /// Some groups of subscribers have persistent sessions, and others have not.
    SessionsDiffer,
}

impl fmt::Display for TbmqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(f),
            Self::Qos(qos) => write!(f, "QoS {qos} is none of 0, 1 and 2"),
            Self::QosDiffers => {
                f.write_str("publisherQosValue and subscriberQosValue must be the same")
            }
            Self::NoSuchGroup(subscribers, publishers) => write!(
                f,
                "subscriber group {subscribers} expects publisher group {publishers}, which is not there"
            ),
            Self::SessionsDiffer => {
                f.write_str("either all subscriber groups have persistentSessionInfo, or none")
            }
        }
    }
}

impl std::error::Error for TbmqError {}

/// Reads such a file: the load, and how long it is to run.
///
/// # Errors
/// What the file has is wrong, or cannot be played.
pub fn read(json: &str, login: Login) -> Result<(Workload, Duration), TbmqError> {
    let file: Configuration = serde_json::from_str(json).map_err(TbmqError::Json)?;
    if file.publisher_qos_value != file.subscriber_qos_value {
        return Err(TbmqError::QosDiffers);
    }
    let qos = file.publisher_qos_value;
    let qos = QoS::from_u8(qos).ok_or(TbmqError::Qos(qos))?;
    let mut persistent = file
        .subscriber_groups
        .iter()
        .map(|g| g.persistent_session_info.is_some());
    let is_persistent = persistent.next().unwrap_or(false);
    if persistent.any(|other| other != is_persistent) {
        return Err(TbmqError::SessionsDiffer);
    }
    let payload_len = file.payload_len();
    let listed = file.listed()?;
    let publishers: usize = listed.publishers.iter().map(|group| group.count).sum();
    let messages = Messages {
        topology: Topology::Listed(listed),
        payload_len,
        qos,
        pace: Pace::Open {
            per_second: file.max_msgs_per_publisher_per_second * publishers as f64,
        },
        clean_session: !is_persistent,
        retain: false,
        read_rate: None,
    };
    let mut parts = vec![Part::new("groups", Activity::Messages(messages))];
    if file.dummy_clients > 0 {
        let connections = file.dummy_clients;
        parts.push(Part::new("dummies", Activity::Background { connections }));
    }
    let duration = Duration::from_secs(file.seconds_to_run);
    Ok((Workload { parts, login }, duration))
}

impl Configuration {
    fn payload_len(&self) -> usize {
        let keys = self.telemetry_keys.iter().map(|key| key.len() + VALUE_LEN);
        let json = keys.sum::<usize>() + BRACES_LEN;
        json.max(self.min_payload_size).max(Stamp::LEN)
    }

    fn listed(&self) -> Result<Listed, TbmqError> {
        let ids: Vec<u64> = self.publisher_groups.iter().map(|group| group.id).collect();
        let place = |group: &Subscribers, wanted: u64| {
            let place = ids.iter().position(|&id| id == wanted);
            place.ok_or(TbmqError::NoSuchGroup(group.id, wanted))
        };
        let subscribers = self.subscriber_groups.iter().map(|group| {
            let expected = group.expected_publisher_groups.iter();
            let places: Result<Vec<usize>, TbmqError> =
                expected.map(|&id| place(group, id)).collect();
            let mut expected = places?;
            expected.sort_unstable();
            expected.dedup();
            Ok(SubscriberGroup {
                count: group.subscribers,
                filter: group.topic_filter.clone(),
                expected,
            })
        });
        let subscribers: Result<Vec<SubscriberGroup>, TbmqError> = subscribers.collect();
        Ok(Listed {
            subscribers: subscribers?,
            publishers: self
                .publisher_groups
                .iter()
                .map(|group| PublisherGroup {
                    count: group.publishers,
                    topic_prefix: group.topic_prefix.clone(),
                })
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::ProtocolVersion;

    use super::*;

    /// Two groups of trackers, one of which a second subscriber wants as well.
    const FILE: &str = r#"{
        "publisherGroups": [
            {"id": 1, "publishers": 200, "topicPrefix": "usa/a/1/", "clientIdPrefix": null},
            {"id": 2, "publishers": 100, "topicPrefix": "usa/a/2/"}
        ],
        "subscriberGroups": [
            {"id": 1, "subscribers": 1, "topicFilter": "usa/a/1/+", "expectedPublisherGroups": [1],
             "persistentSessionInfo": {"clientType": "APPLICATION"}, "clientIdPrefix": null},
            {"id": 2, "subscribers": 2, "topicFilter": "usa/#", "expectedPublisherGroups": [2, 1],
             "persistentSessionInfo": {"clientType": "DEVICE"}}
        ],
        "dummyClients": 5, "secondsToRun": 30, "additionalSecondsToWait": 5,
        "maxMsgsPerPublisherPerSecond": 0.5, "publisherQosValue": 1, "subscriberQosValue": 1,
        "minPayloadSize": 1, "maxConcurrentOperations": 1000,
        "telemetryKeys": ["lat", "long", "speed", "fuel", "batLvl"]
    }"#;

    fn read_changed(from: &str, to: &str) -> Result<(Workload, Duration), TbmqError> {
        assert!(FILE.contains(from), "{from}");
        read(&FILE.replace(from, to), Login::new(ProtocolVersion::V5))
    }

    #[test]
    fn the_groups_of_a_file_are_played() {
        let (workload, duration) = read_changed("{", "{").unwrap();
        workload.check().unwrap();
        assert_eq!(duration, Duration::from_secs(30));
        assert_eq!(workload.connections(), 300 + 3 + 5);
        // 100 per second of the first group to three, 50 of the other to two.
        assert_eq!(workload.asked_per_second(), Some(400.0));
        let Activity::Messages(messages) = &workload.parts[0].activity else {
            panic!("{workload:?}");
        };
        assert_eq!((messages.payload_len, messages.clean_session), (114, false));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, wrong) in [
            ("\"secondsToRun\"", "\"secondsToRune\"", "secondsToRune"),
            (
                "\"publisherQosValue\": 1",
                "\"publisherQosValue\": 2",
                "must be the same",
            ),
            ("[2, 1]", "[2, 3]", "group 2 expects publisher group 3"),
            (
                "\"persistentSessionInfo\": {\"clientType\": \"DEVICE\"}",
                "\"persistentSessionInfo\": null",
                "either all",
            ),
            ("DEVICE", "THING", "THING"),
        ] {
            let error = read_changed(from, to).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
