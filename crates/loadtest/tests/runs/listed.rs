//! Listed groups: topics, filters and client identifiers as they stand, and messages before the load.

use std::time::Duration;

use loadtest::{Listed, PublisherGroup, SubscriberGroup, Topology, Workload};
use mqtt_proto::QoS;
use report::Phase;

use crate::broker::{Broker, Wrong};
use crate::crew::{crew, messages, open, record, run, settings, warns};

const DURATION: Duration = Duration::from_millis(200);

/// Two publishers of `a/p…`, two members of a share of it, and a persistent subscriber of everything.
fn workload(publish: QoS, subscribe: QoS) -> Workload {
    let subscribers = |count, filter: &str, id: &str, clean_session| SubscriberGroup {
        count,
        filter: filter.to_owned(),
        client_id_prefix: id.to_owned(),
        clean_session,
        qos: subscribe,
    };
    let listed = Listed {
        publishers: vec![PublisherGroup {
            count: 2,
            topic_prefix: "a/".to_owned(),
            client_id_prefix: "p".to_owned(),
        }],
        subscribers: vec![
            subscribers(2, "$share/group/a/+", "member", true),
            subscribers(1, "a/+", "all", false),
        ],
        telemetry_keys: Vec::new(),
    };
    let mut workload = messages(Topology::Listed(listed), publish, open(100.0));
    workload.parts[0].warm_up_messages = 6;
    workload
}

#[test]
fn the_broker_sees_what_is_listed_and_the_warm_up_first() {
    for workers in 1..=2 {
        let broker = Broker::start(&[]);
        let mut workload = workload(QoS::AtLeastOnce, QoS::AtLeastOnce);
        workload.parts[0].most_concurrent = Some(1);
        let record = run(workers, workload, &broker, DURATION);
        let counts = record.counts;
        // 20 of the load.
        assert_eq!(
            (counts.sent, counts.acknowledged, counts.delivered),
            (32, 32, 64)
        );
        assert_eq!((counts.lost, counts.duplicated, counts.stray), (0, 0, 0));
        assert_eq!(record.latencies.acknowledge.unwrap().count, 20);
        let seen = broker.seen_when_empty();
        let topics: Vec<&String> = seen.published.keys().collect();
        assert_eq!(topics, ["a/p0", "a/p1"]);
        let members = seen.delivered["member0"] + seen.delivered["member1"];
        assert_eq!((seen.delivered["all0"], members), (32, 32));
        let persistent = seen.sessions.iter().filter(|s| s.expiry.is_some());
        assert_eq!(persistent.count(), 1);
    }
}

#[test]
fn a_warm_up_that_is_not_acknowledged_ends_the_run() {
    let broker = Broker::start(&[((1, 5), Wrong::CutUnanswered)]);
    let workload = workload(QoS::AtLeastOnce, QoS::AtLeastOnce);
    let error = record(crew(1), &settings(workload, &broker, DURATION)).unwrap_err();
    assert!(error.to_string().contains("client p1"), "{error}");
}

#[test]
fn a_message_of_a_share_that_is_dropped_is_lost_once() {
    for (subscribe, is_allowed) in [(QoS::AtLeastOnce, false), (QoS::AtMostOnce, true)] {
        let broker = Broker::start(&[((0, 7), Wrong::Drop)]);
        let record = run(1, workload(QoS::AtLeastOnce, subscribe), &broker, DURATION);
        // To the group and to the subscriber of everything.
        assert_eq!((record.counts.sent, record.counts.lost), (32, 2));
        assert_eq!(
            warns(&record, "2 of the messages lost were delivered at QoS 0"),
            is_allowed
        );
    }
}

#[test]
fn a_drain_lasts_as_long_as_it_is_said_to() {
    let broker = Broker::start(&[]);
    let mut workload = workload(QoS::AtLeastOnce, QoS::AtLeastOnce);
    workload.parts[0].drain_s = 0.8;
    let settings = settings(workload, &broker, DURATION);
    let record = record(crew(1), &settings).unwrap();
    let drains = record.samples.iter().filter(|s| s.phase == Phase::Drain);
    let drained_s: f64 = drains.map(|sample| sample.seconds).sum();
    assert!((0.8..5.0).contains(&drained_s), "{drained_s}");
}
