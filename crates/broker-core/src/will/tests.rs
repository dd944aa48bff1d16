//! What becomes of wills in each state with each thing that happens to them.

use std::sync::Arc;

use store_state::api::Failure;
use store_state::session::{SessionReply, StoredWill};

use super::asked::Asked;
use super::{Wills, origin_of_will};
use crate::inbox::Epoch;
use crate::pending::Answer;
use crate::tests::bench::{Bench, delivery};
use crate::tests::table::{Machine, Transition, walk};
use mqtt_proto::QoS;

const EPOCH: Epoch = Epoch(3);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// All that were due are published.
    Quiet,
    /// One could not be published, and a timer is armed.
    Armed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// The store says that one is due.
    Due,
    /// The same, of a client that may not have it.
    DueReserved,
    /// One was published.
    Published,
    /// One could not be.
    Unpublished,
    Timer,
    /// The store has forgotten one.
    Fired,
    /// It could not be told.
    NotFired,
    /// The store is to say again what is due, and has heard so.
    AskedAgain,
    /// It has not.
    NotAskedAgain,
}

use Input::*;
use State::*;

/// State, input, next state, effects.
const TRANSITIONS: &[Transition<Script>] = &[
    (Quiet, Due, Quiet, &["publish w"]),
    (
        Quiet,
        DueReserved,
        Quiet,
        &["session of a: will fired", "drop $SYS/w"],
    ),
    (Quiet, Published, Quiet, &["session of a: will fired"]),
    (Quiet, Unpublished, Armed, &["timer in 1000 ms"]),
    (Quiet, Timer, Quiet, &[]),
    (Quiet, Fired, Quiet, &["inboxes: release #0"]),
    (Quiet, NotFired, Quiet, &[]),
    (Quiet, AskedAgain, Quiet, &[]),
    (Quiet, NotAskedAgain, Quiet, &["unpublished"]),
    (Armed, Due, Armed, &["publish w"]),
    (
        Armed,
        DueReserved,
        Armed,
        &["session of a: will fired", "drop $SYS/w"],
    ),
    (Armed, Published, Armed, &["session of a: will fired"]),
    (Armed, Unpublished, Armed, &[]),
    (Armed, Timer, Quiet, &["session of a: fire again"]),
    (Armed, Fired, Armed, &["inboxes: release #0"]),
    (Armed, NotFired, Armed, &[]),
    (Armed, AskedAgain, Armed, &[]),
    (Armed, NotAskedAgain, Armed, &["unpublished"]),
];

struct Script {
    bench: Bench,
    wills: Wills,
}

impl Script {
    fn due(&mut self, topic: &str) -> Option<String> {
        let will = StoredWill {
            message: Arc::clone(&delivery(topic, QoS::AtLeastOnce).message),
            delay: 0,
            message_expiry: None,
        };
        let turn = &mut self.bench.turn();
        let due = self.wills.handle_due(turn, "a".into(), EPOCH, &will);
        due.map(|(message, _)| format!("publish {}", message.body.topic()))
    }
}

impl Machine for Script {
    type State = State;
    type Input = Input;

    fn in_state(state: State) -> Self {
        let bench = Bench::with(|_| {});
        bench.base.node.rim.store.state().waits = true;
        let mut script = Self {
            bench,
            wills: Wills::default(),
        };
        if state == Armed {
            script.tell(Unpublished);
        }
        script
    }

    fn state(&self) -> State {
        assert_eq!(self.wills.is_armed, !self.wills.unpublished.is_empty());
        if self.wills.is_armed { Armed } else { Quiet }
    }

    fn tell(&mut self, input: Input) -> Vec<String> {
        let base = &mut self.bench.base;
        let origin = origin_of_will(base.node.store(), "a", EPOCH);
        let again = || Asked::Again {
            client: "a".into(),
            epoch: EPOCH,
        };
        let (kept, failed) = (
            Answer::Session(SessionReply::Done),
            Answer::Failed(Failure::Moved),
        );
        let mut seen = Vec::new();
        match input {
            Due => seen.extend(self.due("w")),
            DueReserved => seen.extend(self.due("$SYS/w")),
            Published => self.wills.handle_published(base, "a", EPOCH),
            Unpublished => {
                let turn = &mut self.bench.turn();
                self.wills.handle_unpublished(turn, "a".into(), EPOCH);
            }
            Timer => self.wills.handle_timer(base),
            Fired => Wills::handle_answer(base, Asked::Fired(origin), &kept),
            NotFired => Wills::handle_answer(base, Asked::Fired(origin), &failed),
            AskedAgain => Wills::handle_answer(base, again(), &kept),
            NotAskedAgain => Wills::handle_answer(base, again(), &failed),
        }
        for line in std::mem::take(&mut self.bench.base.node.rim.store.state().log) {
            seen.push(match line.contains("FireAgain") {
                true => "session of a: fire again".to_owned(),
                false => line,
            });
        }
        let dropped = self.bench.base.drops.since(0).drops;
        seen.extend(dropped.iter().map(|drop| format!("drop {}", drop.topic)));
        let now_ms = self.bench.io.now_ms;
        for (at, _) in std::mem::take(&mut self.bench.io.timers) {
            seen.push(format!("timer in {} ms", at.0 - now_ms));
        }
        for effect in self.bench.effects() {
            assert!(effect.starts_with("WillUnpublished"), "{effect}");
            seen.push("unpublished".to_owned());
        }
        seen
    }
}

#[test]
fn wills_go_from_state_to_state_as_the_table_says() {
    walk::<Script>(TRANSITIONS, 2 * 9);
}

#[test]
fn what_cannot_be_published_is_asked_for_less_and_less_often_until_something_is() {
    let mut script = Script::in_state(Quiet);
    for expect in [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
        assert_eq!(script.tell(Unpublished), [format!("timer in {expect} ms")]);
        script.tell(Timer);
    }
    script.tell(Published);
    assert_eq!(script.tell(Unpublished), ["timer in 1000 ms"]);
}
