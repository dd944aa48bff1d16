//! The clocks of workers on other machines.

use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use mqtt_proto::ProtocolVersion;

use super::*;
use crate::protocol::{read, write};
use crate::workload::{Activity, Login, Part};

const HOUR_NS: i64 = 3_600_000_000_000;

/// Adds a worker whose clock goes so far ahead of this one and that takes so long for each answer; it
/// returns its order, and its end of the connection.
fn add(
    crew: &mut Crew,
    is_remote: bool,
    ahead_ns: i64,
    delay_ns: u64,
) -> JoinHandle<(Order, UnixStream)> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    crew.add("w".to_owned(), ours.try_clone().unwrap(), ours, is_remote);
    thread::spawn(move || {
        let (mut input, mut output) = (&theirs, &theirs);
        write(&mut output, &Report::Hello(VERSION.to_owned())).unwrap();
        loop {
            match read::<Command>(&mut input).unwrap() {
                Command::Ping(sent_ns) => {
                    thread::sleep(Duration::from_nanos(delay_ns));
                    let clock_ns = monotonic_ns().wrapping_add_signed(ahead_ns);
                    write(&mut output, &Report::Pong(sent_ns, clock_ns)).unwrap();
                }
                Command::Prepare(order) => {
                    write(&mut output, &Report::Prepared(1)).unwrap();
                    return (*order, theirs);
                }
                other => panic!("{other:?}"),
            }
        }
    })
}

fn settings() -> Settings {
    let idle = Part::new("idle", Activity::Background { connections: 1 });
    Settings {
        workload: Workload {
            parts: vec![idle],
            login: Login::new(ProtocolVersion::V5),
        },
        listeners: Vec::new(),
        transport: ClientTransport::default(),
        sources: Vec::new(),
        warm_up: Duration::ZERO,
        duration: SECOND,
        prefix: "test".to_owned(),
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_clock_is_known_to_its_uncertainty_and_orders_are_in_it() {
    let mut crew = Crew::empty();
    // Clocks begin at some time of their own, so they may differ by anything.
    let ahead = [HOUR_NS, -(monotonic_ns() / 2).cast_signed(), 0];
    let workers = ahead.map(|ahead_ns| add(&mut crew, true, ahead_ns, 0));
    let clocks = measure_clocks(&mut crew).unwrap();
    for (clock, ahead_ns) in clocks.iter().zip(ahead) {
        let error_ns = clock.offset_ns.abs_diff(ahead_ns);
        assert!(error_ns <= clock.uncertainty_ns, "{clock:?}, {ahead_ns}");
        assert!(clock.uncertainty_ns < HOUR_NS.unsigned_abs());
    }
    let epoch_ns = monotonic_ns();
    assert_eq!(
        prepare(&mut crew, &settings(), &clocks, epoch_ns).unwrap(),
        3
    );
    for ((index, worker), clock) in workers.into_iter().enumerate().zip(&clocks) {
        let (order, _) = worker.join().unwrap();
        assert_eq!((order.index, order.of), (index, 3));
        let local_ns = epoch_ns.cast_signed() + clock.offset_ns;
        assert_eq!(order.epoch_ns.cast_signed(), local_ns);
    }
}

#[test]
fn a_slow_answer_makes_a_clock_uncertain() {
    let mut crew = Crew::empty();
    let delay_ns = 2_000_000;
    let _worker = add(&mut crew, true, HOUR_NS, delay_ns);
    let clocks = measure_clocks(&mut crew).unwrap();
    assert!(clocks[0].uncertainty_ns >= delay_ns / 2, "{clocks:?}");
}

/// Processes of one machine share its clock; asking would only add an error.
#[test]
fn workers_of_this_machine_are_not_asked_for_their_clock() {
    let mut crew = Crew::empty();
    let _worker = add(&mut crew, false, HOUR_NS, 0);
    assert_eq!(measure_clocks(&mut crew).unwrap(), [Clock::default()]);
}
