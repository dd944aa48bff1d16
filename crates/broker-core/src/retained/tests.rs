//! What a replay does in each state with each thing that happens to it.

use std::sync::Arc;

use mqtt_proto::{MessageBody, QoS, SubscriptionOptions};
use mqtt_session::{ApplicationMessage, Wanted};
use net_api::Key;
use store_state::api::{Failure, RetainedPage};

use super::asked::Asked;
use super::backlog::{Owed, Replay};
use super::replay::Replays;
use crate::node::Pressure;
use crate::pending::{Answer, Pending};
use crate::rights::authorize::Rights;
use crate::tests::bench::Bench;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The session is owed nothing.
    Nothing,
    /// The next page may be looked for.
    Ready,
    /// What the session is owed is being changed in the store.
    Blocked,
    /// A timer goes on with it.
    Paused,
    /// The store was asked for pages.
    Asking,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// Nothing is queued for the session any more.
    PageDue,
    /// The store is asked to change what the session is owed.
    ChangeAsked,
    /// It has.
    ChangeDone,
    Timer,
    /// A page has come, and is empty and the last one.
    Page,
    /// The store could not give a page.
    NoPage,
    /// A page could not be kept for the session.
    NotKept,
}

use Input::*;
use State::*;

/// State, input, next state, effects.
const TRANSITIONS: &[(State, Input, State, &[&str])] = &[
    (Nothing, PageDue, Nothing, &[]),
    (Nothing, ChangeAsked, Nothing, &[]),
    (Nothing, ChangeDone, Nothing, &[]),
    (Nothing, Timer, Nothing, &[]),
    (Nothing, Page, Nothing, &[]),
    (Nothing, NoPage, Nothing, &[]),
    (Nothing, NotKept, Nothing, &["end a"]),
    (Ready, PageDue, Asking, &[]),
    (Ready, ChangeAsked, Blocked, &[]),
    (Ready, ChangeDone, Ready, &["write to a"]),
    (Ready, Timer, Ready, &["write to a"]),
    // Answers to another question than the last one are not wanted any more.
    (Ready, Page, Ready, &[]),
    (Ready, NoPage, Ready, &[]),
    (Ready, NotKept, Ready, &["end a"]),
    (Blocked, PageDue, Blocked, &[]),
    (Blocked, ChangeAsked, Blocked, &[]),
    (Blocked, ChangeDone, Ready, &["write to a"]),
    (Blocked, Timer, Blocked, &["write to a"]),
    (Blocked, Page, Blocked, &[]),
    (Blocked, NoPage, Blocked, &[]),
    (Blocked, NotKept, Blocked, &["end a"]),
    (Paused, PageDue, Paused, &[]),
    (Paused, ChangeAsked, Paused, &[]),
    (Paused, ChangeDone, Paused, &["write to a"]),
    (Paused, Timer, Ready, &["write to a"]),
    (Paused, Page, Paused, &[]),
    (Paused, NoPage, Paused, &[]),
    (Paused, NotKept, Paused, &["end a"]),
    (Asking, PageDue, Asking, &[]),
    (Asking, ChangeAsked, Asking, &[]),
    (Asking, ChangeDone, Asking, &["write to a"]),
    (Asking, Timer, Asking, &["write to a"]),
    (Asking, Page, Nothing, &["write to a"]),
    (Asking, NoPage, Paused, &["timer of the replay"]),
    (Asking, NotKept, Asking, &["end a"]),
];

/// A client `a` of a cluster, and the part.
struct Script {
    bench: Bench,
    replays: Replays,
    rights: Rights,
    client: Key,
}

impl Script {
    /// `owed`: filters whose retained messages the client is to get.
    fn with(owed: &[&str]) -> Self {
        let mut bench = Bench::with(|_| {});
        bench.base.node.rim.store.state().has_peers = true;
        let client = bench.connect("a");
        let wanted = Wanted::new(SubscriptionOptions::default(), 0);
        if !owed.is_empty() {
            let mut replay = Box::<Replay>::default();
            replay.owe(
                owed.iter()
                    .map(|filter| Owed::new(filter, wanted))
                    .collect(),
            );
            bench
                .clients
                .get_mut(client)
                .unwrap()
                .rare
                .set(|of| &mut of.replay, Some(replay));
        }
        Self {
            bench,
            replays: Replays::default(),
            rights: Rights::default(),
            client,
        }
    }

    fn replay(&self) -> Option<&Replay> {
        self.bench
            .clients
            .get(self.client)?
            .rare
            .get()
            .replay
            .as_deref()
    }

    fn state(&self) -> State {
        match self.replay() {
            None => Nothing,
            Some(replay) if replay.asked.is_some() => Asking,
            Some(replay) if replay.pauses => Paused,
            Some(replay) if replay.blocked > 0 => Blocked,
            Some(_) => Ready,
        }
    }

    /// The question that is not answered; if there is none, an old one.
    fn question(&mut self) -> Asked {
        let pending = &mut self.bench.base.pending;
        let last = pending.keys().next();
        match last.and_then(|id| pending.remove(id)) {
            Some(Pending::Retained(asked)) => asked,
            Some(other) => panic!("only replays ask: {other:?}"),
            None => Asked::Pages {
                key: self.client,
                question: 99,
                filters: Box::new(["t".into()]),
            },
        }
    }

    fn answer(&mut self, asked: Asked, answer: Answer) {
        let turn = &mut self.bench.turn();
        self.replays
            .handle_answer(turn, &mut self.rights, asked, answer);
    }

    fn tell(&mut self, input: Input) -> Vec<String> {
        let key = self.client;
        match input {
            PageDue => {
                let turn = &mut self.bench.turn();
                self.replays.handle_page_due(turn, &mut self.rights, key);
            }
            ChangeAsked => self
                .replays
                .handle_change_asked(&mut self.bench.clients, key),
            ChangeDone => self.replays.handle_change_done(&mut self.bench.turn(), key),
            Timer => self.replays.handle_timer(&mut self.bench.turn(), key),
            Page => {
                let asked = self.question();
                let page = RetainedPage {
                    messages: Vec::new(),
                    next: None,
                };
                self.answer(asked, Answer::Retained(vec![page]));
            }
            NoPage => {
                let asked = self.question();
                self.answer(asked, Answer::Failed(Failure::Stopped));
            }
            NotKept => self.answer(Asked::Keep(key), Answer::Failed(Failure::Full)),
        }
        self.bench.effects()
    }
}

#[test]
fn a_replay_goes_from_state_to_state_as_the_table_says() {
    for &(state, input, next, effects) in TRANSITIONS {
        let (owed, way): (&[&str], &[Input]) = match state {
            Nothing => (&[], &[]),
            Ready => (&["t"], &[]),
            Blocked => (&["t"], &[ChangeAsked]),
            Paused => (&["t"], &[PageDue, NoPage]),
            Asking => (&["t"], &[PageDue]),
        };
        let mut script = Script::with(owed);
        for step in way {
            script.tell(*step);
        }
        assert_eq!(script.state(), state, "{way:?}");
        let seen = script.tell(input);
        assert_eq!(seen, effects, "{state:?}, {input:?}");
        assert_eq!(script.state(), next, "{state:?}, {input:?}");
    }
    let mut pairs: Vec<_> = TRANSITIONS
        .iter()
        .map(|(state, input, ..)| (*state as u8, *input as u8))
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs.len(), 5 * 7, "each state with each input");
}

/// Keeps a message of the broker's own in memory.
fn keep_own(script: &Script, topic: &str) {
    script
        .bench
        .base
        .node
        .retained
        .set(&Arc::new(ApplicationMessage {
            body: MessageBody::new(topic, b"x"),
            qos: QoS::AtMostOnce,
            retain: true,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        }));
}

#[test]
fn what_is_found_is_queued_and_the_replay_ends() {
    let mut script = Script::with(&["$SYS/#"]);
    for topic in ["$SYS/a", "$SYS/b"] {
        keep_own(&script, topic);
    }
    script.tell(PageDue);
    let client = script.bench.clients.get(script.client).unwrap();
    assert_eq!(client.session.queue_len(), 2);
    assert_eq!(script.state(), Nothing);
}

#[test]
fn nothing_is_looked_for_while_something_is_queued() {
    let mut script = Script::with(&["t"]);
    script.bench.queue(script.client, "t");
    assert_eq!(script.tell(PageDue), [""; 0]);
    assert_eq!(script.state(), Ready);
}

#[test]
fn it_pauses_while_memory_is_scarce() {
    let mut script = Script::with(&["t"]);
    script.bench.base.node.set_pressure(Pressure::StopReading);
    assert_eq!(script.tell(PageDue), ["timer of the replay"]);
    assert_eq!(script.state(), Paused);
    script.bench.base.node.set_pressure(Pressure::None);
    script.tell(Timer);
    script.tell(PageDue);
    assert_eq!(script.state(), Asking);
}

#[test]
fn one_question_asks_for_many_filters() {
    let mut script = Script::with(&["a", "b", "c"]);
    script.tell(PageDue);
    let Asked::Pages { filters, .. } = script.question() else {
        panic!("it asks for pages");
    };
    assert_eq!(filters.len(), 3);
}

#[test]
fn what_may_not_be_received_is_dropped_and_counted() {
    use authorization::{Effect, Rules};
    let mut script = Script::with(&["$SYS/#"]);
    let rules = Rules::parse("deny all receive $SYS/secret").unwrap();
    let rules = crate::Authorization::new(Effect::Allow, false, 8, rules);
    script
        .bench
        .change(|settings| settings.authorization = rules);
    for topic in ["$SYS/open", "$SYS/secret"] {
        keep_own(&script, topic);
    }
    script.tell(PageDue);
    let client = script.bench.clients.get(script.client).unwrap();
    assert_eq!(client.session.queue_len(), 1);
    let dropped = script.bench.base.drops.since(0);
    let topics: Vec<_> = dropped.drops.iter().map(|drop| &*drop.topic).collect();
    assert_eq!(topics, ["$SYS/secret"]);
}
