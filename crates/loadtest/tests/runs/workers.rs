//! Workers that die, fall silent or talk nonsense end the run with an error that names them, and the others
//! are let go.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use loadtest::{Crew, Topology};
use mqtt_proto::QoS;

use crate::broker::Broker;
use crate::crew::{Failing, Then, connection, messages, open, record, settings, worker};

/// Longer than the second between two reports, and than others may be kept from their processor.
const SILENCE: Duration = Duration::from_secs(30);

/// What is said of a run of three workers, the last of which is `odd`; all connections to the broker have
/// ended then.
fn play(odd: TcpStream) -> String {
    let broker = Broker::start(&[]);
    let pairs = messages(Topology::Pairs { pairs: 6 }, QoS::AtLeastOnce, open(600.0));
    let settings = settings(pairs, &broker, Duration::from_millis(500));
    let right = || worker(|stream| stream);
    let crew = Crew::connected([right(), right(), odd]).unwrap();
    let outcome = record(crew.with_silence_limit(SILENCE), &settings);
    let seen = broker.seen_when_empty();
    assert!(seen.sessions.len() <= 12);
    outcome.unwrap_err().to_string()
}

/// Its reports are: hello, prepared, connected; then the moments of the load, and twenty a second.
#[test]
fn a_worker_that_dies_is_named() {
    let after = |reports| {
        let said = play(worker(Failing::after(reports, Then::Die)));
        assert!(said.starts_with("worker 2 is "), "{reports}: {said}");
        let is_dead = said.contains("dead") || said.contains("lost");
        assert!(is_dead, "{reports}: {said}");
    };
    thread::scope(|scope| {
        for reports in [0, 1, 2, 3, 4, 8] {
            scope.spawn(move || after(reports));
        }
    });
}

#[test]
fn a_worker_that_falls_silent_is_named() {
    let after = |reports| {
        let said = play(worker(Failing::after(reports, Then::FallSilent)));
        let beginning = "worker 2 is dead or stopped: silent for";
        assert!(said.starts_with(beginning), "{reports}: {said}");
    };
    thread::scope(|scope| {
        for reports in [1, 3] {
            scope.spawn(move || after(reports));
        }
    });
}

/// Its first words, and its end of the connection, which stays open.
fn stranger(first: &[u8]) -> (String, TcpStream) {
    let (ours, mut theirs) = connection();
    theirs.write_all(first).unwrap();
    (play(ours), theirs)
}

#[test]
fn a_worker_of_another_version_is_named() {
    // A frame: its length, the number of the kind of report, and a text with its length.
    let version = b"heraldmq-bench 0.0.0";
    let len = version.len() as u8;
    let hello = [&[0, 0, 0, len + 2, 0, len][..], version].concat();
    let (said, _) = stranger(&hello);
    assert_eq!(said, "worker 2 is of another version: heraldmq-bench 0.0.0");
}

#[test]
fn nonsense_and_endless_frames_are_refused() {
    let (said, _) = stranger(b"HTTP/1.1 400 Bad Request\r\n");
    assert!(said.contains("worker 2 is lost: a frame of"), "{said}");
    assert!(said.ends_with("is too long"), "{said}");
    let (said, _) = stranger(&[0, 0, 0, 1, 0x7f]);
    assert!(
        said.contains("worker 2 is lost: a frame makes no sense"),
        "{said}"
    );
}

/// Right in form, but nothing has been asked for.
#[test]
fn reports_out_of_turn_are_refused() {
    let connected_already = [0, 0, 0, 1, 4];
    let (said, _) = stranger(&connected_already);
    assert_eq!(said, "worker 2 broke the protocol");
}

#[test]
fn a_broker_that_is_not_there_is_what_the_worker_says() {
    let broker = Broker::start(&[]);
    let pairs = messages(Topology::Pairs { pairs: 6 }, QoS::AtLeastOnce, open(600.0));
    let mut settings = settings(pairs, &broker, Duration::from_millis(500));
    let (nobody, _) = connection();
    settings.listeners = vec![nobody.local_addr().unwrap().into()];
    let said = record(crate::crew::crew(2), &settings)
        .unwrap_err()
        .to_string();
    assert!(said.contains("client test-part-s"), "{said}");
    assert!(said.contains("refused"), "{said}");
}
