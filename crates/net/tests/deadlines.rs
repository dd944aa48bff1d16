//! Deadlines of loops that sleep, park, or are run by others: none is missed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use herald_net::{Clock, EventLoops, LoopStats, Places};
use net_api::{
    Arrival, Closed, ConnectionId, Connections, Next, PeerAddress, Received, Service, Transmit,
};

/// Long past every deadline of these tests.
const NEVER: Duration = Duration::from_secs(60);

/// Passes a deadline on: the mail names the loops that it visits before its timer is armed.
struct Relay(Sender<usize>);

#[derive(Debug)]
struct Arm {
    by_way_of: Vec<usize>,
    then: Vec<usize>,
}

impl Relay {
    fn pass_on(&mut self, io: &mut impl Connections<Arm>, mut arm: Arm) {
        match arm.by_way_of.pop() {
            Some(next) => io.send(next, arm),
            None => io.arm(io.now_ms() + 20, arm.then.len() as u64),
        }
    }
}

impl Service for Relay {
    type Mail = Arm;

    fn accept_budget(&mut self, _: &mut impl Connections<Arm>) -> usize {
        0
    }

    fn arrived(
        &mut self,
        _: &mut impl Connections<Arm>,
        _: ConnectionId,
        _: PeerAddress,
        _: Arrival,
    ) {
    }

    fn received(
        &mut self,
        _: &mut impl Connections<Arm>,
        _: ConnectionId,
        bytes: &[u8],
    ) -> Received {
        Received {
            consumed: bytes.len(),
            next: Next::Read,
        }
    }

    fn transmit(
        &mut self,
        _: &mut impl Connections<Arm>,
        _: ConnectionId,
        _: &mut Vec<u8>,
        _: usize,
    ) -> Transmit {
        Transmit::Idle
    }

    fn closed(&mut self, _: &mut impl Connections<Arm>, _: ConnectionId, _: Closed) {}

    fn timer(&mut self, io: &mut impl Connections<Arm>, more: u64) {
        let _ = self.0.send(io.index());
        if more > 0 {
            // From inside a turn that was woken by a timer: to the other loop and back.
            let back = io.index();
            let other = (back + 1) % io.loops();
            io.send(
                other,
                Arm {
                    by_way_of: vec![back],
                    then: vec![0; more as usize - 1],
                },
            );
        }
    }

    fn mail(&mut self, io: &mut impl Connections<Arm>, arm: Arm) {
        self.pass_on(io, arm);
    }
}

fn start(loops: usize) -> (EventLoops<Relay>, Receiver<usize>) {
    let (sender, receiver) = channel();
    let stats: Vec<Arc<LoopStats>> = (0..loops).map(|_| Arc::new(LoopStats::new(1))).collect();
    let services = (0..loops).map(|_| Relay(sender.clone())).collect();
    (
        EventLoops::start(
            services,
            Vec::new(),
            Clock::start(),
            &stats,
            &Places::without_limit(),
        )
        .unwrap(),
        receiver,
    )
}

#[test]
fn a_deadline_armed_by_mail_that_came_back_is_kept() {
    let (loops, fired) = start(2);
    for first in [0, 1, 0, 1] {
        loops.remote().send(
            first,
            Arm {
                by_way_of: Vec::new(),
                then: vec![0; 5],
            },
        );
        for _ in 0..6 {
            assert_eq!(fired.recv_timeout(NEVER), Ok(first));
        }
    }
    loops.stop();
}

#[test]
fn deadlines_of_parked_loops_are_kept() {
    let (loops, fired) = start(4);
    for round in 0..20 {
        // Long enough asleep between the rounds that the threads of all but the first loop park.
        for index in 0..4 {
            loops.remote().send(
                index,
                Arm {
                    by_way_of: Vec::new(),
                    then: Vec::new(),
                },
            );
        }
        let mut heard: Vec<usize> = (0..4)
            .filter_map(|_| fired.recv_timeout(NEVER).ok())
            .collect();
        heard.sort_unstable();
        assert_eq!(heard, [0, 1, 2, 3], "round {round}");
    }
    loops.stop();
}
