//! Clients that do something else than publish and subscribe: stay, come and go, break off, read slowly.

use std::thread;
use std::time::Duration;

use loadtest::workload::{Activity, Churn, Messages, Retained, Wills};
use loadtest::{Topology, Workload};
use mqtt_proto::QoS;
use report::{Counts, Record};

use crate::broker::{Broker, Seen};
use crate::crew::{activity, messages, open, run};

const DURATION: Duration = Duration::from_millis(500);

/// Plays it with one worker and with two; `check` also gets the number of workers.
fn play(workload: &Workload, check: impl Fn(&Record, &Seen, usize) + Sync) {
    let with = |workers| {
        let broker = Broker::start(&[]);
        let record = run(workers, workload.clone(), &broker, DURATION);
        check(&record, &broker.seen_when_empty(), workers);
    };
    thread::scope(|scope| {
        scope.spawn(|| with(1));
        scope.spawn(|| with(2));
    });
}

fn delivered(count: u64) -> Counts {
    Counts {
        delivered: count,
        ..Counts::default()
    }
}

#[test]
fn a_background_only_stays() {
    let workload = activity(Activity::Background { connections: 9 });
    play(&workload, |record, seen, _| {
        assert_eq!(record.counts, Counts::default());
        assert_eq!(record.connections, 9);
        assert_eq!(seen.sessions.len(), 9);
        assert!(seen.sessions.iter().all(|s| s.took_leave && !s.subscribes));
    });
}

/// Four at a time, of whom twenty leave in half a second and come back. Only who goes abruptly goes without
/// a word, and none of it is a broken connection.
#[test]
fn visitors_come_and_go() {
    for abrupt in [false, true] {
        let workload = activity(Activity::Churn(Churn {
            connections: 4,
            per_second: 40.0,
            subscribe: true,
            abrupt,
            clean_session: true,
        }));
        play(&workload, |record, seen, _| {
            assert_eq!(record.counts, Counts::default(), "{abrupt}");
            assert_eq!(seen.sessions.len(), 4 + 20, "{abrupt}");
            let connect = record.latencies.connect.as_ref().unwrap();
            assert_eq!(connect.count, 4 + 20, "{abrupt}");
            let took_leave = seen.sessions.iter().filter(|s| s.took_leave).count();
            assert_eq!(took_leave, if abrupt { 4 } else { 24 }, "{abrupt}");
            assert!(seen.sessions.iter().all(|s| s.subscribes), "{abrupt}");
        });
    }
}

/// Twenty break off in half a second. Each worker watches for the wills of its own clients.
#[test]
fn each_client_that_breaks_off_leaves_its_will() {
    let workload = activity(Activity::Wills(Wills {
        connections: 4,
        per_second: 40.0,
        payload_len: 16,
        qos: QoS::AtLeastOnce,
    }));
    play(&workload, |record, seen, workers| {
        let sent = 20;
        assert_eq!(
            record.counts,
            Counts {
                sent,
                ..delivered(20)
            }
        );
        assert_eq!(seen.sessions.len(), 4 + 20 + workers);
        let deliver = record.latencies.deliver.as_ref().unwrap();
        assert_eq!(deliver.count, 20);
    });
}

/// Ten come anew in half a second, each for ten messages, which are gone when the run is over.
#[test]
fn readers_get_all_retained_messages() {
    let workload = activity(Activity::Retained(Retained {
        topics: 10,
        payload_len: 16,
        qos: QoS::AtMostOnce,
        readers: 4,
        per_second: 20.0,
    }));
    play(&workload, |record, seen, _| {
        assert_eq!(record.counts, delivered(100));
        assert_eq!(seen.sessions.len(), 1 + 4 + 10);
        assert_eq!(seen.published.len(), 10);
        assert_eq!(seen.retained, 0);
    });
}

#[test]
fn retained_messages_of_publishers_are_removed_at_the_end() {
    let mut workload = messages(Topology::Pairs { pairs: 2 }, QoS::AtMostOnce, open(100.0));
    messages_of(&mut workload).retain = true;
    play(&workload, |record, seen, _| {
        assert_eq!(record.counts.delivered, 50);
        assert_eq!(seen.retained, 0);
    });
}

/// 50 messages of at least 48 bytes, read at 200 bytes each tenth of a second: the last one, due after
/// half a second, is read after 1.1 s at the earliest.
#[test]
fn a_slow_reader_delays_messages_but_loses_none() {
    let mut workload = messages(Topology::Pairs { pairs: 1 }, QoS::AtMostOnce, open(100.0));
    messages_of(&mut workload).read_rate = Some(2_000);
    let record = run(1, workload, &Broker::start(&[]), DURATION);
    let sent = 50;
    assert_eq!(
        record.counts,
        Counts {
            sent,
            ..delivered(50)
        }
    );
    let deliver = record.latencies.deliver.unwrap();
    assert!(deliver.max_ms >= 600.0, "{deliver:?}");
}

fn messages_of(workload: &mut Workload) -> &mut Messages {
    match &mut workload.parts[0].activity {
        Activity::Messages(messages) => messages,
        other => panic!("{other:?}"),
    }
}
