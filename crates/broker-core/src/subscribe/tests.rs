//! What becomes of the subscriptions of a client in each state with each thing that happens to it.

use std::sync::{Arc, Mutex};

use mqtt_proto::{Packet, PacketType, ProtocolVersion, SubscriptionOptions};
use net_api::{Key, Next};
use store_state::api::Failure;
use store_state::inbox::{InboxReply, StoredSubscription};

use super::asked::{Change, ChangeSubscription, Changed};
use super::grant::{Below, Subscriptions};
use super::on_behalf;
use super::waiting::Asked;
use crate::inbox::Epoch;
use crate::pending::{Answer, Pending};
use crate::retained::replay::Replays;
use crate::rights::authorize::Rights;
use crate::tests::bench::Bench;
use crate::tests::packets;
use crate::tests::table::{Machine, Transition, walk};

/// Of a client with a durable session, whose inbox is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It waits for nothing.
    Idle,
    /// Its inbox is asked to have a subscription.
    Storing,
    /// Its inbox is asked to remove one.
    Removing,
    /// SUBACK waits for retained messages that are on their way to the store.
    Barrier,
    /// A later connection has the session.
    Left,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    /// SUBSCRIBE with a filter has come.
    Subscribe,
    /// The same, while a retained message is on its way.
    SubscribeRetained,
    /// SUBSCRIBE with a filter that is refused.
    SubscribeRefused,
    /// UNSUBSCRIBE has come.
    Unsubscribe,
    /// The inbox has done what it was asked to.
    Stored,
    /// It could not.
    NotStored,
    /// A later connection has the session.
    Superseded,
    /// What was on its way has come.
    Passed,
    /// An operator subscribes for the client.
    Operator,
}

use Input::*;
use State::*;

/// State, input, next state, effects.
const TRANSITIONS: &[Transition<Script>] = &[
    (
        Idle,
        Subscribe,
        Storing,
        &["pause", "inbox of a: subscribe t"],
    ),
    (
        Idle,
        SubscribeRetained,
        Storing,
        &["pause", "inbox of a: subscribe t"],
    ),
    (
        Idle,
        SubscribeRefused,
        Idle,
        &["read", "SUBACK #1 [8f]", "write to a"],
    ),
    (
        Idle,
        Unsubscribe,
        Removing,
        &["pause", "inbox of a: unsubscribe t"],
    ),
    (Idle, Operator, Storing, &["inbox of a: subscribe o"]),
    (
        Storing,
        Stored,
        Idle,
        &["has t", "SUBACK #1 [01]", "read a", "write to a"],
    ),
    (
        Storing,
        NotStored,
        Idle,
        &["SUBACK #1 [97]", "read a", "write to a"],
    ),
    // Its connection is closed then.
    (Storing, Superseded, Left, &[]),
    (Storing, Operator, Storing, &["the operator hears: busy"]),
    (
        Removing,
        Stored,
        Idle,
        &["UNSUBACK #1 [00]", "read a", "write to a"],
    ),
    (
        Removing,
        NotStored,
        Idle,
        &["UNSUBACK #1 [83]", "read a", "write to a"],
    ),
    (Removing, Superseded, Left, &[]),
    (Removing, Operator, Removing, &["the operator hears: busy"]),
    (
        Barrier,
        Passed,
        Idle,
        &["has t", "SUBACK #1 [01]", "read a", "write to a"],
    ),
    (
        Barrier,
        Operator,
        Barrier,
        &["has t", "the operator hears: busy"],
    ),
    (Left, Operator, Left, &["the operator hears: busy"]),
];

/// Nothing is read of a client that waits, and only what was asked is answered.
fn is_impossible(state: State, input: Input) -> bool {
    match input {
        Subscribe | SubscribeRetained | SubscribeRefused | Unsubscribe => state != Idle,
        Stored | NotStored | Superseded => !matches!(state, Storing | Removing),
        Passed => state != Barrier,
        Operator => false,
    }
}

struct Script {
    bench: Bench,
    rights: Rights,
    replays: Replays,
    client: Key,
    heard: Arc<Mutex<Vec<String>>>,
    /// A retained message is on its way to the store.
    retains: bool,
}

impl Script {
    fn with(is_durable: bool) -> Self {
        let mut bench = Bench::with(|_| {});
        bench.base.node.rim.store.state().waits = true;
        let client = match is_durable {
            true => bench.connect_attached("a", Epoch(1)),
            false => bench.connect("a"),
        };
        let mut script = Self {
            bench,
            rights: Rights::default(),
            replays: Replays::default(),
            client,
            heard: Arc::default(),
            retains: false,
        };
        // CONNACK.
        script.sent();
        script.effects();
        script
    }

    fn packet(&mut self, words: &[&str]) -> Next {
        let frame = packets::packet(ProtocolVersion::V5, words);
        let mut below = Below {
            rights: &mut self.rights,
            replays: &mut self.replays,
        };
        let turn = &mut self.bench.turn();
        match Packet::decode(&frame, ProtocolVersion::V5).unwrap() {
            Packet::Subscribe(of) => {
                Subscriptions::handle_subscribe(turn, &mut below, self.client, &of)
            }
            Packet::Unsubscribe(of) => {
                Subscriptions::handle_unsubscribe(turn, &mut below, self.client, &of)
            }
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, answer: Answer) {
        let pending = &mut self.bench.base.pending;
        let ids: Vec<Key> = pending.keys().collect();
        let asked = ids.into_iter().find_map(|id| match pending.get(id) {
            Some(Pending::Subscribe(_)) => pending.remove(id),
            _ => None,
        });
        let Some(Pending::Subscribe(asked)) = asked else {
            panic!("it was asked");
        };
        let mut below = Below {
            rights: &mut self.rights,
            replays: &mut self.replays,
        };
        let turn = &mut self.bench.turn();
        Subscriptions::handle_answer(turn, &mut below, asked, answer);
    }

    fn change(&mut self, change: Change) {
        let heard = Arc::clone(&self.heard);
        let asked = ChangeSubscription {
            session: self.bench.base.session_key(self.client),
            client_id: "a".into(),
            change,
            answer: Box::new(move |changed| {
                heard.lock().unwrap().push(match changed {
                    Changed::NotHere => "not here".to_owned(),
                    Changed::Busy => "busy".to_owned(),
                    Changed::Answered(reason) => format!("{:02x}", reason.as_u8()),
                });
            }),
        };
        let mut below = Below {
            rights: &mut self.rights,
            replays: &mut self.replays,
        };
        on_behalf::change(&mut self.bench.turn(), &mut below, asked);
    }

    /// Packets that the session sends.
    fn sent(&mut self) -> Vec<String> {
        let client = self.bench.clients.get_mut(self.client).unwrap();
        let mut bytes = Vec::new();
        let _ = client.session.poll_transmit(
            &mut bytes,
            1 << 20,
            &mut self.bench.base.outcome,
            &self.bench.base.settings.limits.policy,
            mqtt_session::Timestamp(self.bench.io.now_ms),
        );
        packets::describe(ProtocolVersion::V5, &bytes)
    }

    fn effects(&mut self) -> Vec<String> {
        let client = self.bench.clients.get(self.client).unwrap();
        let filters = client.session.subscriptions().iter();
        let mut seen: Vec<String> = filters.map(|of| format!("has {}", of.filter)).collect();
        seen.extend(std::mem::take(
            &mut self.bench.base.node.rim.store.state().log,
        ));
        seen.extend(self.sent());
        let heard = std::mem::take(&mut *self.heard.lock().unwrap());
        let heard = heard.into_iter();
        seen.extend(heard.map(|of| format!("the operator hears: {of}")));
        seen.extend(self.bench.effects());
        seen
    }
}

impl Machine for Script {
    type State = State;
    type Input = Input;

    fn in_state(state: State) -> Self {
        let mut script = Self::with(true);
        let way: &[Input] = match state {
            Idle => &[],
            Storing => &[Subscribe],
            Removing => &[Unsubscribe],
            Barrier => &[SubscribeRetained, Stored],
            Left => &[Subscribe, Superseded],
        };
        for input in way {
            script.tell(*input);
        }
        script.effects();
        script
    }

    fn state(&self) -> State {
        let client = self.bench.clients.get(self.client).unwrap();
        let mut pending = self.bench.base.pending.keys();
        let asked = pending.find_map(|id| match self.bench.base.pending.get(id) {
            Some(Pending::Subscribe(asked)) => Some(asked),
            _ => None,
        });
        match asked {
            Some(Asked::Subscribe { .. }) => Storing,
            Some(Asked::Unsubscribe { .. }) => Removing,
            Some(Asked::Barrier { .. }) => Barrier,
            None if client.waits => Left,
            None => Idle,
        }
    }

    fn tell(&mut self, input: Input) -> Vec<String> {
        let mut seen = Vec::new();
        match input {
            Subscribe => seen.push(self.packet(&["SUBSCRIBE", "#1", "t", "1"])),
            SubscribeRetained => {
                self.retains = true;
                seen.push(self.packet(&["SUBSCRIBE", "#1", "t", "1"]));
            }
            SubscribeRefused => seen.push(self.packet(&["SUBSCRIBE", "#1", "$share/g/#/t", "1"])),
            Unsubscribe => seen.push(self.packet(&["UNSUBSCRIBE", "#1", "t"])),
            Stored => {
                if !self.retains {
                    self.bench.base.node.rim.store.state().answer_all(None);
                }
                let is_removal = self.state() == Removing;
                self.answer(Answer::Inbox(match is_removal {
                    true => InboxReply::Unsubscribed(vec![true]),
                    false => InboxReply::Subscribed(vec![true]),
                }));
            }
            NotStored => self.answer(Answer::Failed(Failure::Full)),
            Superseded => self.answer(Answer::Inbox(InboxReply::Stale)),
            Passed => self.answer(Answer::Passed),
            Operator => self.change(Change::Subscribe(StoredSubscription {
                filter: "o".into(),
                options: SubscriptionOptions::default(),
                id: 0,
            })),
        }
        let mut seen: Vec<String> = seen
            .into_iter()
            .map(|next| format!("{next:?}").to_lowercase())
            .collect();
        seen.extend(self.effects());
        seen
    }
}

#[test]
fn subscriptions_go_from_state_to_state_as_the_table_says() {
    for (state, input, ..) in TRANSITIONS {
        assert!(!is_impossible(*state, *input), "{state:?}, {input:?}");
    }
    let impossible = 4 * 4 + 3 * 3 + 4;
    walk::<Script>(TRANSITIONS, 5 * 9 - impossible);
}

#[test]
fn a_session_that_ends_with_its_connection_waits_for_no_store() {
    let mut script = Script::with(false);
    assert_eq!(
        script.tell(Subscribe),
        ["read", "has t", "SUBACK #1 [01]", "write to a"]
    );
    assert_eq!(
        script.tell(Operator),
        ["has o", "has t", "the operator hears: 00", "write to a"]
    );
    assert_eq!(
        script.tell(Unsubscribe),
        ["read", "has o", "UNSUBACK #1 [00]", "write to a"]
    );
}

#[test]
fn a_packet_goes_on_where_its_share_of_the_turn_was_spent() {
    let mut script = Script::with(false);
    let filters: Vec<String> = (0..2_000).map(|n| format!("f/{n}")).collect();
    let mut words = vec!["SUBSCRIBE", "#1"];
    words.extend(filters.iter().flat_map(|filter| [filter.as_str(), "0"]));
    let frame = packets::packet(ProtocolVersion::V5, &words);
    let mut next = script.packet(&words);
    let mut turns = 1;
    while next == Next::Yield {
        let client = script.bench.clients.get(script.client).unwrap();
        assert!(client.has_parts_left());
        assert!(script.sent().is_empty());
        script.bench.base.share = Default::default();
        let mut below = Below {
            rights: &mut script.rights,
            replays: &mut script.replays,
        };
        let turn = &mut script.bench.turn();
        let of = PacketType::Subscribe;
        next = Subscriptions::handle_rest(turn, &mut below, script.client, of, &frame);
        turns += 1;
    }
    assert_eq!(next, Next::Read);
    assert!(turns > 1, "so many are more than a share");
    assert_eq!(script.sent(), ["SUBACK #1 [00 for each of 2000]"]);
}
