//! What becomes of the visits to clients in each state with each thing that happens.

use super::{CLIENTS_PER_TURN, LeaderChange, Reopening};
use crate::inbox::Epoch;
use crate::tests::bench::Bench;
use crate::tests::table::{Machine, Transition, walk};

/// Durable ones, for which three turns are needed.
const CLIENTS: u32 = 2 * CLIENTS_PER_TURN + 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nobody is visited.
    Idle,
    /// Some clients are visited in the next turn, and more after that.
    UnderWay,
    /// The last ones are visited in the next turn.
    Last,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// The inbox shard of all clients has another leader.
    OfInboxes,
    /// So has the session shard, which knows them all: nobody is registered anew.
    OfSessions,
    Timer,
}

use Input::*;
use State::*;

const TRANSITIONS: &[Transition<Script>] = &[
    (Idle, OfInboxes, UnderWay, &["256 opened", "timer"]),
    (Idle, OfSessions, Idle, &[]),
    (Idle, Timer, Idle, &[]),
    // The visits begin anew where they are, and go all the way around.
    (UnderWay, OfInboxes, UnderWay, &[]),
    (UnderWay, OfSessions, UnderWay, &[]),
    (UnderWay, Timer, Last, &["256 opened", "timer"]),
    (Last, OfInboxes, UnderWay, &[]),
    (Last, OfSessions, Last, &[]),
    (Last, Timer, Idle, &["10 opened"]),
];

struct Script {
    bench: Bench,
    reopening: Reopening,
    /// Clients that have not been visited since the last change of their inbox shard.
    left: u32,
}

impl Machine for Script {
    type State = State;
    type Input = Input;

    fn in_state(state: State) -> Self {
        let mut bench = Bench::with(|_| {});
        bench.base.node.rim.store.state().waits = true;
        for number in 0..CLIENTS {
            bench.connect_attached(&format!("c{number}"), Epoch(1));
        }
        bench.base.node.rim.store.state().opened.clear();
        let mut script = Self {
            bench,
            reopening: Reopening::default(),
            left: 0,
        };
        let way: &[Input] = match state {
            Idle => &[],
            UnderWay => &[OfInboxes],
            Last => &[OfInboxes, Timer],
        };
        for input in way {
            script.tell(*input);
        }
        script
    }

    fn state(&self) -> State {
        match self.left {
            0 => Idle,
            left if left > CLIENTS_PER_TURN => UnderWay,
            _ => Last,
        }
    }

    fn tell(&mut self, input: Input) -> Vec<String> {
        let turn = &mut self.bench.turn();
        match input {
            OfInboxes => {
                self.left = CLIENTS;
                let changes = [LeaderChange::OfInboxes(0)];
                self.reopening.handle_leaders(turn, changes);
            }
            OfSessions => {
                let changes = [LeaderChange::OfSessions(0)];
                self.reopening.handle_leaders(turn, changes);
            }
            Timer => self.reopening.handle_timer(turn),
        }
        let mut seen = Vec::new();
        let opened = std::mem::take(&mut self.bench.base.node.rim.store.state().opened);
        if !opened.is_empty() {
            self.left -= opened.len() as u32;
            seen.push(format!("{} opened", opened.len()));
        }
        let timers = std::mem::take(&mut self.bench.io.timers);
        seen.extend(timers.into_values().map(|_| "timer".to_owned()));
        seen
    }
}

#[test]
fn visits_go_from_state_to_state_as_the_table_says() {
    walk::<Script>(TRANSITIONS, 3 * 3);
}

#[test]
fn each_client_is_visited_once_after_the_last_change() {
    let mut script = Script::in_state(Last);
    script.tell(OfInboxes);
    while script.left > 0 {
        assert!(!script.tell(Timer).is_empty(), "the visits go on");
    }
    assert_eq!(script.tell(Timer), [""; 0]);
}
