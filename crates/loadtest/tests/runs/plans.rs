//! Plans of the reports, in small, against a broker that does right.

use std::time::Duration;

use loadtest::workload::Login;
use loadtest::{Plan, play};
use mqtt_proto::QoS;
use report::{Counts, Record};

use crate::broker::{Broker, Seen, VERSION};
use crate::crew::{crew, settings, title};

fn run(name: &str, connections: f64, rates: f64) -> (Record, Seen) {
    let broker = Broker::start(&[]);
    let plan = name.parse::<Plan>().unwrap().scaled(connections, rates);
    let workload = plan.workload(Login::new(VERSION));
    let settings = settings(workload, &broker, Duration::from_millis(500));
    let played = play(crew(2), &settings, &mut [], &mut ()).unwrap();
    let record = played.record(&settings.workload, title(Some(plan.clone())));
    let seen = broker.seen_when_empty();
    assert_eq!(seen.sessions.len(), plan.connections(), "{name}");
    assert_eq!(record.connections, plan.connections() as u64, "{name}");
    (record, seen)
}

/// Deliveries for each message sent.
fn check_deliveries(name: &str, connections: f64, rates: f64, expected: u64) -> Record {
    let (record, _) = run(name, connections, rates);
    let sent = record.counts.sent;
    assert!(sent > 0, "{name}");
    let qos = name.parse::<Plan>().unwrap().qos;
    let acknowledged = if qos == QoS::AtMostOnce { 0 } else { sent };
    let counts = Counts {
        sent,
        acknowledged,
        delivered: sent * expected,
        ..Counts::default()
    };
    assert_eq!(record.counts, counts, "{name}");
    record
}

#[test]
fn each_kind_of_plan_gets_all_of_its_messages() {
    check_deliveries("2k_2k_qos1_p32_100mps_1n", 0.005, 0.5, 1);
    check_deliveries("100k_1000_qos0_p256_1mps_1n", 0.003, 1.0, 1);
    check_deliveries("1_100000_qos0_p256_1mps_1n", 0.0001, 10.0, 10);
}

#[test]
fn each_kind_of_plan_of_other_reports_gets_all_of_its_messages() {
    check_deliveries("qos0-p256-4-40K", 0.001, 1.0, 10);
    check_deliveries("qos1-p64-15K-15K", 0.002, 1.0, 1);
    let name = "100M publishers, 500 APPLICATION subscribers, 1 h";
    check_deliveries(name, 0.000_004, 1.0, 1);
}

#[test]
fn a_fan_in_counts_what_the_broker_took() {
    let record = check_deliveries("qos1-p256-30K-0", 0.001, 1.0, 0);
    assert_eq!(record.connections, 3 + 100);
    assert!(record.messages_per_second > 0.0);
}

#[test]
fn idle_connections_come_at_the_rate_of_the_plan() {
    let (record, seen) = run("conn-tcp-1M-5K_1n_false", 0.000_1, 0.1);
    assert_eq!(seen.sessions.len(), 100);
    // 100 at 500 per second, the first at once.
    assert!(
        record.connect_seconds >= 0.198,
        "{}",
        record.connect_seconds
    );
    assert_eq!(record.counts, Counts::default());
}

#[test]
fn persistent_sessions_are_the_subscribers_and_end_with_the_run() {
    let (_, seen) = run("15k_15k_qos1_p256_1mps_1n_1v", 0.001, 1.0);
    let (persistent, clean): (Vec<_>, Vec<_>) = seen.sessions.iter().partition(|s| s.subscribes);
    assert_eq!((persistent.len(), clean.len()), (15, 15));
    for session in persistent {
        assert!(!session.clean_start && session.expiry > Some(60));
        assert_eq!(session.expiry_at_end, Some(0));
    }
    assert!(clean.iter().all(|s| s.clean_start && s.expiry.is_none()));
}

#[test]
fn clean_sessions_are_clean() {
    let (_, seen) = run("2k_2k_qos0_p32_100mps_1n", 0.001, 0.1);
    assert_eq!(seen.sessions.len(), 4);
    assert!(
        seen.sessions
            .iter()
            .all(|s| s.clean_start && s.expiry.is_none())
    );
}

#[test]
fn a_plan_of_a_report_shows_what_was_published() {
    let (record, _) = run("2k_2k_qos0_p32_100mps_1n", 0.001, 0.1);
    let published = record.published.unwrap();
    assert_eq!(published.product, "BifroMQ");
    assert_eq!(published.connections, Some(4_000));
    assert_eq!(published.messages_per_second, Some(200_000.0));
}
