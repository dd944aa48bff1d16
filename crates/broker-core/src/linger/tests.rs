//! What becomes of the routes of a session in each state with each thing that happens to it.

use mqtt_proto::{QoS, SubscriptionOptions};
use mqtt_session::Subscription;
use net_api::Key;
use store_state::api::Failure;
use store_state::inbox::InboxReply;

use super::asked::Asked;
use super::begin::Span;
use super::{Led, Linger};
use crate::backpressure::hold::Backpressure;
use crate::inbox::{Came, Epoch, Inboxes};
use crate::pending::{Answer, Pending};
use crate::rights::authorize::Rights;
use crate::tests::bench::{Bench, delivery};
use crate::tests::table::{Machine, Transition, walk};

const EPOCH: Epoch = Epoch(3);

/// Subscriptions of the client: so many that its session lingers.
const MANY: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The client is connected.
    Connected,
    /// Its connection is over, and its routes are held.
    Lingering,
    /// A later connection of it is about to have them.
    Awaited,
    /// It has them.
    Succeeded,
    /// They were held long enough, and the inbox is being detached.
    Ending,
    /// The entry is to be forgotten.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// The loop looks at it, as long after as routes are held.
    TimerAtTheEnd,
    /// The loop looks at it before.
    TimerBefore,
    /// A client with the same identifier connects.
    Successor,
    /// It has joined.
    Joined,
    /// It is refused, or gives up.
    Gone,
    /// It begins a new session.
    NoUse,
    /// A message of QoS 0 comes by the routes.
    Late,
    /// The inbox has one.
    LateKept,
    /// A later connection has attached the inbox.
    LateStale,
    /// The inbox has no room for it.
    LateFailed,
    /// The inbox is detached.
    Detached,
    /// Another node has the session.
    LaterElsewhere,
    /// The other nodes have taken this one for dead.
    Fence,
    /// The process ends.
    Shutdown,
}

use Input::*;
use State::*;

/// State, input, next state, effects.
const TRANSITIONS: &[Transition<Script>] = &[
    (Connected, TimerAtTheEnd, Connected, &[]),
    (Connected, TimerBefore, Connected, &[]),
    (Connected, Late, Connected, &["for the client"]),
    (Connected, LaterElsewhere, Connected, &[]),
    (Connected, Fence, Connected, &[]),
    (Connected, Shutdown, Connected, &[]),
    (Lingering, TimerAtTheEnd, Ending, &["inbox of a: detach"]),
    (
        Lingering,
        TimerBefore,
        Lingering,
        &["timer of the lingering"],
    ),
    (Lingering, Successor, Awaited, &[]),
    (
        Lingering,
        Late,
        Lingering,
        &["for the inbox", "inbox of a: deliver d"],
    ),
    (Lingering, LateKept, Lingering, &[]),
    (Lingering, LateStale, Ending, &["inbox of a: detach"]),
    (Lingering, LateFailed, Lingering, &["drop d"]),
    (
        Lingering,
        LaterElsewhere,
        Over,
        &["inbox of a: detach", "forget a"],
    ),
    (Lingering, Fence, Ending, &["inbox of a: detach"]),
    (Lingering, Shutdown, Lingering, &["inbox of a: detach"]),
    (Awaited, TimerAtTheEnd, Awaited, &[]),
    (Awaited, TimerBefore, Awaited, &[]),
    (Awaited, Joined, Succeeded, &["64 taken"]),
    (Awaited, Gone, Lingering, &[]),
    (Awaited, NoUse, Over, &["forget a"]),
    (
        Awaited,
        Late,
        Awaited,
        &["for the inbox", "inbox of a: deliver d"],
    ),
    (Awaited, LateKept, Awaited, &[]),
    (Awaited, LateStale, Awaited, &[]),
    (Awaited, LateFailed, Awaited, &["drop d"]),
    (Awaited, LaterElsewhere, Awaited, &[]),
    (Awaited, Fence, Awaited, &[]),
    (Awaited, Shutdown, Awaited, &["inbox of a: detach"]),
    (Succeeded, TimerAtTheEnd, Succeeded, &[]),
    (Succeeded, TimerBefore, Succeeded, &[]),
    (Succeeded, Gone, Over, &["forget a"]),
    (Succeeded, NoUse, Over, &["forget a"]),
    (Succeeded, Late, Succeeded, &["for the successor"]),
    (Succeeded, LateKept, Succeeded, &[]),
    (Succeeded, LateStale, Succeeded, &["write to a"]),
    (Succeeded, LateFailed, Succeeded, &["drop d"]),
    (Succeeded, LaterElsewhere, Succeeded, &[]),
    (Succeeded, Fence, Succeeded, &[]),
    (Succeeded, Shutdown, Succeeded, &[]),
    (Ending, TimerAtTheEnd, Ending, &[]),
    (Ending, TimerBefore, Ending, &[]),
    (Ending, Successor, Awaited, &[]),
    (
        Ending,
        Late,
        Ending,
        &["for the inbox", "inbox of a: deliver d"],
    ),
    (Ending, LateKept, Ending, &[]),
    (Ending, LateStale, Ending, &[]),
    (Ending, LateFailed, Ending, &["drop d"]),
    (Ending, Detached, Over, &["forget a"]),
    (
        Ending,
        LaterElsewhere,
        Over,
        &["inbox of a: detach", "forget a"],
    ),
    (Ending, Fence, Ending, &[]),
    (Ending, Shutdown, Ending, &["inbox of a: detach"]),
    (Over, TimerAtTheEnd, Over, &[]),
    (Over, TimerBefore, Over, &[]),
    (
        Over,
        Late,
        Over,
        &["for the inbox", "inbox of a: deliver d"],
    ),
    (Over, LateKept, Over, &[]),
    (Over, LateStale, Over, &[]),
    (Over, LateFailed, Over, &["drop d"]),
    (Over, LaterElsewhere, Over, &["forget a"]),
    (Over, Fence, Over, &[]),
    (Over, Shutdown, Over, &[]),
];

/// The client `a`, its successor if there is one, and the parts.
struct Script {
    bench: Bench,
    linger: Linger,
    rights: Rights,
    backpressure: Backpressure,
    holder: Key,
    successor: Option<Key>,
    forgotten: bool,
}

impl Script {
    fn end_connection(&mut self) {
        let turn = &mut self.bench.turn();
        let span = self.linger.lingers(turn.base, turn.clients, self.holder);
        let span: Span = span.expect("it has many subscriptions");
        let left = Inboxes::handle_end_of_connection(turn, self.holder, true).unwrap();
        let client = turn.clients.get_mut(self.holder).unwrap();
        client.connection = None;
        let linger = &mut self.linger;
        linger.handle_end_of_connection(turn, self.holder, left.epoch, span);
    }

    fn answer(&mut self, answer: &Answer) {
        let pending = &mut self.bench.base.pending;
        let last = pending.keys().next();
        let asked = match last.and_then(|id| pending.remove(id)) {
            Some(Pending::Linger(asked)) => asked,
            other => panic!("lingering sessions have asked: {other:?}"),
        };
        let lower = (&mut self.rights, &mut self.backpressure);
        let turn = &mut self.bench.turn();
        self.linger.handle_answer(turn, lower, asked, answer);
    }

    fn late(&mut self) -> String {
        let turn = &mut self.bench.turn();
        let of = delivery("d", QoS::AtMostOnce);
        match self.linger.led_to(turn, self.holder, of, None) {
            Led::To(key, _) if key == self.holder => "for the client".to_owned(),
            Led::To(..) => "for the successor".to_owned(),
            Led::Group(_) => "for a group".to_owned(),
            Led::Kept => "for the inbox".to_owned(),
        }
    }

    /// The answer to the last message that came late.
    fn late_answered(&mut self, answer: &Answer) {
        // One that came before what has led to the state.
        let late = super::asked::Late {
            client: "a".into(),
            holder: self.holder,
            delivery: delivery("d", QoS::AtMostOnce),
            bytes: 0,
        };
        let asked = Asked::Late(Box::new(late));
        let lower = (&mut self.rights, &mut self.backpressure);
        let turn = &mut self.bench.turn();
        self.linger.handle_answer(turn, lower, asked, answer);
    }

    fn effects(&mut self) -> Vec<String> {
        let mut seen = std::mem::take(&mut self.bench.base.node.rim.store.state().log);
        for line in &mut seen {
            if line.starts_with("DeliverLate") {
                "inbox of a: deliver d".clone_into(line);
            }
        }
        let dropped = self.bench.base.drops.since(0).drops.len();
        seen.extend((0..dropped).map(|_| "drop d".to_owned()));
        seen.extend(self.bench.effects());
        self.forgotten |= seen.iter().any(|of| of == "forget a");
        seen
    }
}

impl Machine for Script {
    type State = State;
    type Input = Input;

    fn in_state(state: State) -> Self {
        let mut bench = Bench::with(|_| {});
        bench.base.node.rim.store.state().waits = true;
        let holder = bench.connect_attached("a", EPOCH);
        let all = (0..MANY).map(|number| Subscription {
            filter: format!("f/{number:03}").into(),
            options: SubscriptionOptions::default(),
            id: None,
            group: None,
        });
        let client = bench.clients.get_mut(holder).unwrap();
        client.session.add_subscriptions(all.collect());
        let session_key = bench.base.session_key(holder);
        let _ = bench.base.node.registry.claim("a", session_key);
        let mut script = Self {
            bench,
            linger: Linger::default(),
            rights: Rights::default(),
            backpressure: Backpressure::default(),
            holder,
            successor: None,
            forgotten: false,
        };
        let way: &[Input] = match state {
            Connected | Lingering => &[],
            Awaited => &[Successor],
            Succeeded => &[Successor, Joined],
            Ending => &[TimerAtTheEnd],
            Over => &[TimerAtTheEnd, Detached],
        };
        if state != Connected {
            script.end_connection();
        }
        for input in way {
            script.tell(*input);
        }
        script.effects();
        script
    }

    fn state(&self) -> State {
        match Linger::lingering(&self.bench.clients, self.holder) {
            None => Connected,
            Some(_) if self.forgotten => Over,
            Some(of) if of.subscriptions.is_none() => Succeeded,
            Some(of) if of.successor.is_some() => Awaited,
            Some(_) if self.linger.ending.is_some() => Ending,
            Some(_) => Lingering,
        }
    }

    fn tell(&mut self, input: Input) -> Vec<String> {
        let holder = self.holder;
        let mut told = None;
        match input {
            TimerAtTheEnd => {
                self.bench.io.now_ms += 1_000;
                self.linger.handle_timer(&mut self.bench.turn(), holder);
            }
            TimerBefore => self.linger.handle_timer(&mut self.bench.turn(), holder),
            Successor => {
                let key = self.bench.connect_durable("a");
                self.successor = Some(key);
                Linger::handle_successor(&mut self.bench.clients, holder, key);
            }
            Joined => {
                let turn = &mut self.bench.turn();
                let taken = self
                    .linger
                    .take(turn.base, turn.clients, self.successor.unwrap());
                told = Some(format!(
                    "{} taken",
                    taken.map_or(0, |of| of.subscriptions().len())
                ));
            }
            Gone => {
                let key = self.successor.unwrap();
                self.linger.handle_gone(&mut self.bench.turn(), key);
            }
            NoUse => {
                let key = self.successor.unwrap();
                self.linger.handle_no_use(&mut self.bench.turn(), key);
            }
            Late => told = Some(self.late()),
            LateKept => self.late_answered(&Answer::Inbox(InboxReply::Published {
                matched: 1,
                refused: 0,
                pressing: 0,
            })),
            LateStale => self.late_answered(&Answer::Inbox(InboxReply::Stale)),
            LateFailed => self.late_answered(&Answer::Failed(Failure::Full)),
            Detached => self.answer(&Answer::Inbox(InboxReply::Done)),
            LaterElsewhere => {
                self.linger
                    .handle_later_elsewhere(&mut self.bench.turn(), "a");
            }
            Fence => self.linger.handle_fence(&mut self.bench.turn()),
            Shutdown => Linger::handle_shutdown(&self.bench.base, &self.bench.clients),
        }
        let mut seen: Vec<String> = told.into_iter().collect();
        seen.extend(self.effects());
        seen
    }
}

/// What does not happen: a client has no second successor, only a successor can join or go, and what nobody has asked is not answered.
fn is_impossible(state: State, input: Input) -> bool {
    match input {
        Successor => !matches!(state, Lingering | Ending),
        Joined => state != Awaited,
        Gone | NoUse => !matches!(state, Awaited | Succeeded),
        LateKept | LateStale | LateFailed => state == Connected,
        Detached => state != Ending,
        TimerAtTheEnd | TimerBefore | Late | LaterElsewhere | Fence | Shutdown => false,
    }
}

#[test]
fn routes_go_from_state_to_state_as_the_table_says() {
    for (state, input, ..) in TRANSITIONS {
        assert!(!is_impossible(*state, *input), "{state:?}, {input:?}");
    }
    let impossible = 4 + 5 + 4 + 4 + 3 + 5;
    walk::<Script>(TRANSITIONS, 6 * 14 - impossible);
}

#[test]
fn a_session_with_few_subscriptions_lingers_if_it_was_sent_messages_of_qos_0() {
    for (is_sent, expect) in [(false, false), (true, true)] {
        let mut script = Script::in_state(Connected);
        let key = script.holder;
        let client = script.bench.clients.get_mut(key).unwrap();
        let _ = client.session.take_subscriptions();
        if is_sent {
            let (rights, backpressure) = (&mut script.rights, &mut script.backpressure);
            let turn = &mut script.bench.turn();
            let of = delivery("d", QoS::AtMostOnce);
            Inboxes::handle_delivery(turn, rights, backpressure, key, of, Came::Alone);
        }
        let turn = script.bench.turn();
        let lingers = script.linger.lingers(turn.base, turn.clients, key);
        assert_eq!(lingers.is_some(), expect);
    }
}

#[test]
fn what_comes_late_is_dropped_beyond_a_limit_and_counted() {
    let mut script = Script::in_state(Lingering);
    script.linger.late_bytes = 8 << 20;
    assert_eq!(script.tell(Late), ["for the inbox", "drop d"]);
    assert_eq!(script.bench.base.pending.len(), 0);
}
