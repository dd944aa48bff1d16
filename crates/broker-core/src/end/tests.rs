//! What becomes of a connection that ends, in each state with each thing that happens to it.

use std::num::NonZeroU32;

use mqtt_proto::{ProtocolVersion, QoS, ReasonCode};
use mqtt_session::{Accepted, Session, Timestamp};
use net_api::Key;
use store_state::api::Failure;
use store_state::session::SessionReply;

use super::{Ends, LEAVING_MS};
use crate::backpressure::hold::Backpressure;
use crate::clients::DONE;
use crate::inbox::Epoch;
use crate::linger::Linger;
use crate::pending::{Answer, Pending};
use crate::tests::bench::{Bench, delivery};
use crate::tests::packets;
use crate::tests::table::{Machine, Transition, walk};
use crate::turn::Effect;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// A client is connected whose session ends with its connection.
    Transient,
    /// One whose session the store keeps.
    Durable,
    /// The client has sent DISCONNECT, and waits for the record of it.
    Leaving,
    /// The connection is over, and the store is to record it.
    Ending,
    /// It is over.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// The broker disconnects it.
    Kick,
    /// DISCONNECT has come.
    Disconnect,
    /// The connection is gone.
    Closed,
    /// The store has recorded the end.
    Recorded,
    /// It cannot.
    NotRecorded,
    /// The client has waited long enough.
    Timer,
}

use Input::*;
use State::*;

const RECORD: &str = "session of a: disconnect, expiry 3600, will: discard";

const TRANSITIONS: &[Transition<Script>] = &[
    (
        Transient,
        Kick,
        Over,
        &["forget a", "DISCONNECT 0x89", "is closed"],
    ),
    (Transient, Disconnect, Over, &["forget a", "close"]),
    (Transient, Closed, Over, &["forget a"]),
    (
        Durable,
        Kick,
        Ending,
        &[
            "inbox of a: detach",
            RECORD,
            "forget a",
            "DISCONNECT 0x89",
            "is closed",
        ],
    ),
    (
        Durable,
        Disconnect,
        Leaving,
        &["inbox of a: detach", RECORD, "forget a", "timer", "read"],
    ),
    (
        Durable,
        Closed,
        Ending,
        &["inbox of a: detach", RECORD, "forget a"],
    ),
    // The broker kicks nobody twice, but may have said so before the client has left.
    (Leaving, Kick, Leaving, &[]),
    (Leaving, Disconnect, Leaving, &["close"]),
    (Leaving, Closed, Leaving, &[]),
    (Leaving, Recorded, Over, &["is closed in order"]),
    (Leaving, NotRecorded, Over, &["is closed"]),
    (Leaving, Timer, Ending, &["is closed"]),
    (Ending, Kick, Ending, &[]),
    (Ending, Disconnect, Ending, &["close"]),
    (Ending, Closed, Ending, &[]),
    (Ending, Recorded, Over, &[]),
    (Ending, NotRecorded, Over, &[]),
    (Ending, Timer, Ending, &[]),
    (Over, Kick, Over, &[]),
    (Over, Disconnect, Over, &["close"]),
    (Over, Closed, Over, &[]),
    (Over, Timer, Over, &[]),
];

/// Only what was asked is answered, and only who leaves has a timer.
fn is_impossible(state: State, input: Input) -> bool {
    match input {
        Kick | Disconnect | Closed => false,
        Recorded | NotRecorded => !matches!(state, Leaving | Ending),
        Timer => matches!(state, Transient | Durable),
    }
}

struct Script {
    bench: Bench,
    linger: Linger,
    backpressure: Backpressure,
    client: Key,
    /// The number of the question, when it was asked.
    asked: Option<Key>,
}

impl Script {
    fn with(connect: impl FnOnce(&mut Bench) -> Key) -> Self {
        let mut bench = Bench::with(|_| {});
        bench.base.node.rim.store.state().waits = true;
        let client = connect(&mut bench);
        // CONNACK.
        let session = &mut bench.clients.get_mut(client).unwrap().session;
        let _ = session.poll_transmit(
            &mut Vec::new(),
            1 << 20,
            &mut bench.base.outcome,
            &bench.base.settings.limits.policy,
            Timestamp(bench.io.now_ms),
        );
        bench.base.outcome.timed.clear();
        Self {
            bench,
            linger: Linger::default(),
            backpressure: Backpressure::default(),
            client,
            asked: None,
        }
    }

    fn end(&mut self, input: Input) -> Option<String> {
        let key = self.client;
        let turn = &mut self.bench.turn();
        let below = (&mut self.linger, &mut self.backpressure);
        match input {
            Kick => Ends::handle_kick(turn, below, key, ReasonCode::ServerBusy),
            Disconnect => {
                let next = Ends::handle_disconnect(turn, below, key);
                return Some(format!("{next:?}").to_lowercase());
            }
            _ => Ends::handle_closed(turn, below, key),
        }
        None
    }

    fn answer(&mut self, answer: &Answer) {
        let id = self.asked.expect("it was asked");
        let Some(Pending::Disconnect(asked)) = self.bench.base.pending.remove(id) else {
            panic!("it was asked");
        };
        Ends::handle_answer(&mut self.bench.io, asked, answer);
    }

    fn effects(&mut self) -> Vec<String> {
        let mut seen = std::mem::take(&mut self.bench.base.node.rim.store.state().log);
        while let Some(effect) = self.bench.base.next_effect() {
            seen.push(match effect {
                Effect::Forget(_) => "forget a".to_owned(),
                Effect::Distribute(of, _) => format!("publish {}", of.body.topic()),
                Effect::Redispatch { deliveries, except } => {
                    assert!(except.is_some());
                    format!("{} go to others", deliveries.len())
                }
                other => format!("{other:?}"),
            });
        }
        let now_ms = self.bench.io.now_ms;
        for (at, _) in std::mem::take(&mut self.bench.io.timers).into_keys() {
            assert_eq!(at, now_ms + LEAVING_MS);
            seen.push("timer".to_owned());
        }
        for connection in self.bench.io.connections.keys().collect::<Vec<_>>() {
            let connection = self.bench.io.connections.get_mut(connection).unwrap();
            let is_heard = connection.tag != DONE;
            let has_ended = self.client_has_ended();
            assert_eq!(is_heard, !has_ended, "nothing more is heard of it");
        }
        for connection in std::mem::take(&mut self.bench.io.closed) {
            seen.extend(packets::describe(ProtocolVersion::V5, &connection.sent));
            seen.push(match connection.is_closed_in_order {
                true => "is closed in order".to_owned(),
                false => "is closed".to_owned(),
            });
        }
        seen
    }

    fn client_has_ended(&self) -> bool {
        let client = self.bench.clients.get(self.client);
        client.is_none_or(|client| client.connection.is_none())
    }
}

impl Machine for Script {
    type State = State;
    type Input = Input;

    fn in_state(state: State) -> Self {
        let way: &[Input] = match state {
            Transient | Durable => &[],
            Leaving => &[Disconnect],
            Ending => &[Closed],
            Over => &[Closed, Recorded],
        };
        let mut script = Self::with(|bench| match state {
            Transient => bench.connect("a"),
            _ => bench.connect_attached("a", Epoch(1)),
        });
        for input in way {
            script.tell(*input);
        }
        script
    }

    fn state(&self) -> State {
        let client = self.bench.clients.get(self.client);
        let client = client.filter(|client| client.connection.is_some());
        match (client, self.asked) {
            (Some(client), _) if client.session.is_durable() => Durable,
            (Some(_), _) => Transient,
            (None, Some(id)) => match self.bench.base.pending.get(id) {
                Some(Pending::Disconnect(asked)) if asked.closes.is_some() => Leaving,
                Some(_) => Ending,
                None => Over,
            },
            (None, None) => Over,
        }
    }

    fn tell(&mut self, input: Input) -> Vec<String> {
        let next = match input {
            Kick | Disconnect | Closed => self.end(input),
            Recorded => {
                self.answer(&Answer::Session(SessionReply::Done));
                None
            }
            NotRecorded => {
                self.answer(&Answer::Failed(Failure::Moved));
                None
            }
            Timer => {
                let id = self.asked.expect("it was asked");
                Ends::handle_timer(&mut self.bench.base, &mut self.bench.io, id);
                None
            }
        };
        self.asked = self.asked.or(self.bench.base.pending.keys().next());
        let mut seen = self.effects();
        seen.extend(next);
        seen
    }
}

#[test]
fn connections_go_from_state_to_state_as_the_table_says() {
    for (state, input, ..) in TRANSITIONS {
        assert!(!is_impossible(*state, *input), "{state:?}, {input:?}");
    }
    let impossible = 2 * 3 + 2;
    walk::<Script>(TRANSITIONS, 5 * 6 - impossible);
}

#[test]
fn what_a_session_of_a_shared_group_has_not_acknowledged_goes_to_others() {
    let mut script = Script::with(|bench| bench.connect("a"));
    let mut of_group = delivery("t", QoS::AtLeastOnce);
    of_group.group = NonZeroU32::new(1);
    let policy = &script.bench.base.settings.beyond_limit;
    let client = script.bench.clients.get_mut(script.client).unwrap();
    let now = Timestamp(script.bench.io.now_ms);
    let _ = client.session.deliver(of_group, policy, now);
    assert_eq!(script.tell(Closed), ["forget a", "1 go to others"]);
}

#[test]
fn a_will_that_the_store_does_not_know_is_published_here() {
    let mut script = Script::with(|bench| {
        bench.connect_with("a", &["will", "w", "x"], |connect, policy, now| {
            Session::open(connect, "a".into(), Accepted::default(), policy, now)
        })
    });
    assert_eq!(script.tell(Closed), ["forget a", "publish w"]);
}

#[test]
fn whoever_has_waited_too_long_for_the_record_is_counted() {
    let mut script = Script::in_state(Leaving);
    script.tell(Timer);
    assert_eq!(script.bench.base.stats.disconnect_timeouts.get(), 1);
    script.tell(Timer);
    assert_eq!(script.bench.base.stats.disconnect_timeouts.get(), 1);
}

#[test]
fn a_keep_alive_that_has_passed_ends_a_connection_that_is_read() {
    let mut script = Script::with(|bench| {
        bench.connect_with("a", &["keepalive", "10"], |connect, policy, now| {
            Session::open(connect, "a".into(), Accepted::default(), policy, now)
        })
    });
    let deadline = |script: &mut Script| {
        Ends::handle_deadline(&mut script.bench.turn(), script.client);
        script.bench.effects()
    };
    script.bench.io.now_ms += 14_999;
    let effects = deadline(&mut script);
    assert!(effects.iter().all(|effect| effect.starts_with("timer")));
    script.bench.io.now_ms += 1;
    script
        .bench
        .clients
        .get_mut(script.client)
        .unwrap()
        .armed_ms = 0;
    // It is not read: its packets may have come.
    let effects = deadline(&mut script);
    assert!(effects.iter().all(|effect| effect.starts_with("timer")));
    let connection = script.bench.clients.get(script.client).unwrap().connection;
    let connection = script.bench.io.connections.get_mut(connection.unwrap());
    connection.unwrap().is_paused = false;
    script.bench.io.now_ms += 1_000;
    let effects = deadline(&mut script);
    assert!(effects.contains(&"end a".to_owned()), "{effects:?}");
    assert_eq!(script.bench.base.stats.keep_alive_timeouts.get(), 1);
}
