//! Whom a node sends away in each state, of a client that loses nothing and one that would.

use std::sync::atomic::AtomicUsize;

use mqtt_session::Timestamp;
use net_api::Key;

use super::{BUSY_MS, Drain};
use crate::clients::SendAway;
use crate::tests::bench::Bench;
use crate::tests::table::{Machine, Transition, walk};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Clients are let in.
    Open,
    /// They are not any more.
    Announced,
    /// Those that are here are sent away.
    Begun,
    /// For longer than they are spared.
    Late,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// The node is drained; nobody is sent away yet.
    Announce,
    /// Two clients may be.
    Permit,
    /// Two clients may be, since this node has more than its share.
    Rebalance,
}

use Input::*;
use State::*;

const TRANSITIONS: &[Transition<Script>] = &[
    (Open, Announce, Announced, &[]),
    (Open, Permit, Begun, &["end free"]),
    (Open, Rebalance, Open, &["end free"]),
    (Announced, Announce, Announced, &[]),
    (Announced, Permit, Begun, &["end free"]),
    (Announced, Rebalance, Announced, &["end free"]),
    (Begun, Announce, Begun, &[]),
    (Begun, Permit, Begun, &["end free"]),
    (Begun, Rebalance, Begun, &["end free"]),
    (Late, Announce, Late, &[]),
    (Late, Permit, Late, &["end busy", "end free"]),
    (Late, Rebalance, Late, &["end free"]),
];

struct Script {
    bench: Bench,
}

fn connect(bench: &mut Bench, client_id: &str) -> Key {
    let key = bench.connect(client_id);
    // CONNACK.
    let session = &mut bench.clients.get_mut(key).unwrap().session;
    let _ = session.poll_transmit(
        &mut Vec::new(),
        1 << 20,
        &mut bench.base.outcome,
        &bench.base.settings.limits.policy,
        Timestamp(bench.io.now_ms),
    );
    key
}

impl Script {
    fn send_away(&mut self, permits: usize, why: SendAway) {
        let permits = AtomicUsize::new(permits);
        Drain::handle_send_away(&mut self.bench.turn(), (&permits, why), Some("b:1883"));
    }
}

impl Machine for Script {
    type State = State;
    type Input = Input;

    fn in_state(state: State) -> Self {
        let mut bench = Bench::with(|_| {});
        let busy = connect(&mut bench, "busy");
        bench.queue(busy, "t");
        connect(&mut bench, "free");
        let mut script = Self { bench };
        let way: &[Input] = match state {
            Open => &[],
            Announced => &[Announce],
            Begun | Late => &[Permit],
        };
        for input in way {
            script.tell(*input);
        }
        if state == Late {
            script.bench.io.now_ms += BUSY_MS;
        }
        script
    }

    fn state(&self) -> State {
        let drained = self.bench.base.drained.as_ref();
        match drained.map(|drained| drained.since_ms) {
            None => Open,
            Some(None) => Announced,
            Some(Some(since)) if self.bench.io.now_ms < since + BUSY_MS => Begun,
            Some(Some(_)) => Late,
        }
    }

    fn tell(&mut self, input: Input) -> Vec<String> {
        match input {
            Announce => self.send_away(0, SendAway::Drain),
            Permit => self.send_away(2, SendAway::Drain),
            Rebalance => self.send_away(
                2,
                SendAway::Rebalance {
                    before_us: u64::MAX,
                },
            ),
        }
        self.bench.effects()
    }
}

#[test]
fn a_node_goes_from_state_to_state_as_the_table_says() {
    walk::<Script>(TRANSITIONS, 4 * 3);
}

#[test]
fn not_more_are_sent_away_than_there_are_permits_for() {
    let mut script = Script::in_state(Late);
    script.send_away(1, SendAway::Drain);
    assert_eq!(script.bench.effects(), ["end free"]);
}
