use mqtt_proto::ProtocolVersion;

use super::*;

/// Two groups of trackers, one of which a second subscriber wants as well.
const FILE: &str = r#"{
    "publisherGroups": [
        {"id": 1, "publishers": 200, "topicPrefix": "usa/a/1/", "clientIdPrefix": null},
        {"id": 2, "publishers": 100, "topicPrefix": "usa/a/2/", "isDebugEnabled": true}
    ],
    "subscriberGroups": [
        {"id": 1, "subscribers": 1, "topicFilter": "usa/a/1/+", "expectedPublisherGroups": [1],
         "persistentSessionInfo": {"clientType": "APPLICATION"}, "clientIdPrefix": null},
        {"id": 2, "subscribers": 2, "topicFilter": "usa/#", "expectedPublisherGroups": [2, 1],
         "persistentSessionInfo": null}
    ],
    "dummyClients": 5, "secondsToRun": 30, "additionalSecondsToWait": 5,
    "maxMsgsPerPublisherPerSecond": 0.5, "publisherQosValue": 1, "subscriberQosValue": 1,
    "minPayloadSize": 1, "maxConcurrentOperations": 1000,
    "telemetryKeys": ["lat", "long", "speed", "fuel", "batLvl"]
}"#;

/// As the report prints them.
const PUBLISHERS: &str = r#"{
    "id":1,
    "publishers":200000,
    "topicPrefix":"usa/ydwvv/1/",
    "clientIdPrefix":null
}"#;
const SUBSCRIBERS: &str = r#"{
    "id":1,
    "subscribers":1,
    "topicFilter":"usa/ydwvv/1/+",
    "expectedPublisherGroups":[1],
    "persistentSessionInfo":{
        "clientType":"APPLICATION"
    },
    "clientIdPrefix":null
}"#;

fn play(files: &[&str]) -> Result<Combined, TbmqError> {
    let tests: Result<Vec<Test>, TbmqError> = files.iter().map(|file| Test::read(file)).collect();
    let combined = combine(&tests?, Login::new(ProtocolVersion::V5))?;
    combined.workload.check().unwrap();
    Ok(combined)
}

fn messages(workload: &Workload) -> (&Messages, &Listed) {
    match &workload.parts[0].activity {
        Activity::Messages(messages) => match &messages.topology {
            Topology::Listed(listed) => (messages, listed),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn changed(from: &str, to: &str) -> String {
    assert!(FILE.contains(from), "{from}");
    FILE.replace(from, to)
}

#[test]
fn a_configuration_is_played_as_it_stands() {
    let Combined {
        workload,
        duration,
        notes,
    } = play(&[FILE]).unwrap();
    assert_eq!(duration, Some(Duration::from_secs(30)));
    assert_eq!(workload.connections(), 300 + 3 + 5);
    // 100 per second of the first group to three, 50 of the other to two.
    assert_eq!(workload.asked_per_second(), Some(400.0));
    let (messages, listed) = messages(&workload);
    assert_eq!((messages.payload_len, messages.clean_session), (114, false));
    let clean = listed.subscribers.iter().map(|group| group.clean_session);
    assert!(clean.eq([false, true]));
    assert_eq!(
        messages.topology.topic("", 200),
        "usa/a/2/test_pub_client_2_0"
    );
    let part = &workload.parts[0];
    assert_eq!((part.drain_s, part.most_concurrent), (5.0, Some(1000)));
    let [note] = notes.as_slice() else {
        panic!("{notes:?}");
    };
    assert!(
        note.ends_with("`match.clientId` \"test_sub_client_1_*\""),
        "{note}"
    );
}

#[test]
fn groups_alone_have_what_the_report_has() {
    let array = format!("[{PUBLISHERS}, {SUBSCRIBERS}]");
    for files in [&[array.as_str()][..], &[PUBLISHERS, SUBSCRIBERS]] {
        let Combined {
            workload, duration, ..
        } = play(files).unwrap();
        assert_eq!(duration, None);
        assert_eq!(workload.connections(), 200_001);
        assert_eq!(workload.asked_per_second(), Some(6_000.0));
        assert_eq!(workload.parts[0].warm_up_messages, 6);
        let (messages, listed) = messages(&workload);
        assert_eq!(
            (messages.payload_len, messages.qos),
            (114, QoS::AtLeastOnce)
        );
        assert_eq!(listed.subscribers[0].qos, QoS::AtLeastOnce);
    }
    let publishers = play(&[PUBLISHERS]).unwrap().workload;
    assert_eq!(publishers.asked_per_second(), Some(6_000.0));
    let subscribers = play(&[SUBSCRIBERS]).unwrap().workload;
    assert_eq!(subscribers.asked_per_second(), Some(0.0));
}

#[test]
fn of_two_files_each_speaks_for_its_own_side() {
    let publishers = r#"{"publisherGroups": [{"id": 7, "publishers": 3, "topicPrefix": "a/"}],
        "subscriberGroups": [], "secondsToRun": 20, "publisherQosValue": 2, "subscriberQosValue": 2,
        "dummyClients": 1, "maxConcurrentOperations": 9}"#;
    let subscribers = r#"{"publisherGroups": [], "secondsToRun": 90, "publisherQosValue": 1,
        "subscriberGroups": [{"subscribers": 2, "topicFilter": "a/+", "expectedPublisherGroups": [7]}],
        "subscriberQosValue": 0, "dummyClients": 2, "maxConcurrentOperations": 5}"#;
    for files in [[publishers, subscribers], [subscribers, publishers]] {
        let Combined {
            workload, duration, ..
        } = play(&files).unwrap();
        assert_eq!(duration, Some(Duration::from_secs(20)));
        assert_eq!(workload.connections(), 3 + 2 + 3);
        assert_eq!(workload.parts[0].most_concurrent, Some(5));
        let (messages, listed) = messages(&workload);
        let subscriber_qos = listed.subscribers[0].qos;
        assert_eq!(
            (messages.qos, subscriber_qos),
            (QoS::ExactlyOnce, QoS::AtMostOnce)
        );
        assert_eq!(messages.delivery_qos(), QoS::AtMostOnce);
    }
    // A group that both files have is one group.
    let both = changed("\"dummyClients\": 5", "\"dummyClients\": 0");
    let workload = play(&[FILE, &both]).unwrap().workload;
    assert_eq!(workload.connections(), 300 + 3 + 5);
}

#[test]
fn a_filter_that_does_not_match_what_it_expects_is_noted() {
    let other = changed("usa/a/1/+\"", "usa/b/1/+\"");
    let Combined {
        workload, notes, ..
    } = play(&[&other]).unwrap();
    assert_eq!(workload.asked_per_second(), Some(300.0));
    let [note, _] = notes.as_slice() else {
        panic!("{notes:?}");
    };
    assert!(note.contains("group 1 expects publisher group 1"), "{note}");
}

#[test]
fn what_is_wrong_is_named() {
    for (from, to, wrong) in [
        ("\"secondsToRun\"", "\"secondsToRune\"", "secondsToRune"),
        (
            "\"publisherQosValue\": 1",
            "\"publisherQosValue\": 3",
            "QoS 3",
        ),
        ("[2, 1]", "[2, 3]", "group 2 expects publisher group 3"),
        ("APPLICATION", "THING", "THING"),
        (
            "\"id\": 2, \"publishers\"",
            "\"id\": 1, \"publishers\"",
            "two publisher groups have the id 1",
        ),
        (
            "\"publishers\": 200, ",
            "",
            "publisher group 1: `publishers` is missing",
        ),
        (
            "\"publishers\": 200",
            "\"subscribers\": 200",
            "group number 1",
        ),
        ("usa/#", "usa/#/x", "subscriber group 2: `usa/#/x`: "),
        ("usa/#", "$share/usa", "share name"),
        (
            "usa/a/2/",
            "usa/+/2/",
            "publisher group 2: `usa/+/2/test_pub_client_2_`: ",
        ),
    ] {
        let error = play(&[&changed(from, to)]).unwrap_err().to_string();
        assert!(error.contains(wrong), "{error}");
    }
    for (json, wrong) in [
        ("{", "EOF"),
        ("{}", "no group"),
        ("[]", "no group"),
        ("[{\"id\": 1}]", "group number 1"),
        ("7", "invalid type"),
    ] {
        let error = play(&[json]).unwrap_err().to_string();
        assert!(error.contains(wrong), "{json}: {error}");
    }
    let qos = changed("\"publisherQosValue\": 1", "\"publisherQosValue\": 2");
    let error = play(&[FILE, &qos]).unwrap_err().to_string();
    assert_eq!(error, "the two files differ in `publisherQosValue`");
}

#[test]
fn client_identifiers_are_unique() {
    let groups = |first: (&str, usize), second: (&str, usize)| {
        format!(
            r#"[{{"id": 1, "publishers": {}, "topicPrefix": "a/", "clientIdPrefix": "{}"}},
                {{"id": 1, "subscribers": {}, "topicFilter": "a/+", "clientIdPrefix": "{}"}}]"#,
            first.1, first.0, second.1, second.0
        )
    };
    for (first, second, taken) in [
        (("x", 1), ("x", 1), Some("x0")),
        (("x", 11), ("x1", 1), Some("x10")),
        (("x1", 1), ("x", 11), Some("x10")),
        (("x", 10), ("x1", 9), None),
        (("x", 500), ("x0", 9), None),
        (("x", 500), ("x_", 9), None),
        (("x", 0), ("x", 9), None),
    ] {
        let played = play(&[&groups(first, second)]);
        let found = match &played {
            Err(TbmqError::ClientId(id)) => Some(id.as_str()),
            Ok(_) => None,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found, taken, "{first:?} {second:?}");
    }
}
