//! An owner and receivers, with connections that break, beats that are late, and time that passes.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use crate::{
    Batch, Exports, Imports, Key, Malformed, Message, NodeId, Receivers, State, Times, Value,
};

const OWNER: NodeId = 1;
const TIMES: Times = Times {
    lease_ms: 1_500,
    silence_ms: 3_000,
};

/// What goes from the owner to a receiver.
#[derive(Clone, Debug)]
enum Sent {
    Bytes(Vec<u8>),
    Lost,
}

/// A receiver and its connections with the owner.
struct Receiver {
    imports: Imports,
    to_it: VecDeque<Sent>,
    from_it: VecDeque<State>,
    /// The connection to it; broken ones are noticed later.
    up: bool,
}

struct World {
    now_ms: u64,
    exports: Exports,
    receivers: BTreeMap<NodeId, Receiver>,
    /// Filters that are subscribed to, and the number that each had to be told by.
    present: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Toggle(u8),
    ToggleShard(u8),
    Lead(u8),
    Time(u64),
    Beat(bool),
    Connect(bool),
    Break(bool),
    Notice(bool),
    Poll(bool),
    Deliver(bool),
    Acknowledge(bool),
}

impl World {
    fn new() -> Self {
        let mut exports = Exports::new(1, TIMES);
        let receivers = [2, 3].map(|node| {
            exports.add_peer(node, 0);
            let mut imports = Imports::new(TIMES);
            imports.add_peer(OWNER);
            let receiver = Receiver {
                imports,
                to_it: VecDeque::new(),
                from_it: VecDeque::new(),
                up: false,
            };
            (node, receiver)
        });
        Self {
            now_ms: 1,
            exports,
            receivers: receivers.into(),
            present: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        let node = |second: bool| if second { 3 } else { 2 };
        match *step {
            Step::Toggle(n) => {
                let filter = format!("f/{n}");
                if self.present.remove(&filter).is_some() {
                    self.exports.unsubscribe(&filter, Receivers::All);
                } else {
                    self.exports.subscribe(&filter, Receivers::All);
                    self.present.insert(filter, self.exports.number());
                }
            }
            Step::ToggleShard(n) => {
                let key = Key::ShardFilter(0, format!("s/{n}").into());
                let is = self.exports.of_shard(0).any(|k| *k == key);
                let value = (!is).then_some(Value::Shard { detached: true });
                self.exports.set_of_shard(key, value);
            }
            Step::Lead(0) => self.exports.resign(0),
            Step::Lead(term) => {
                self.exports.lead(0, term.into());
                self.exports.complete(0);
            }
            Step::Time(ms) => self.now_ms += ms,
            Step::Beat(to) => {
                let now_ms = self.now_ms;
                let receiver = self.receivers.get_mut(&node(to)).unwrap();
                let state = receiver.imports.state(OWNER, Some(now_ms));
                receiver.from_it.push_back(state);
            }
            Step::Connect(to) => {
                let receiver = self.receivers.get_mut(&node(to)).unwrap();
                if receiver.up {
                    receiver.to_it.push_back(Sent::Lost);
                }
                receiver.up = true;
                self.exports.connected(node(to));
            }
            Step::Break(to) => {
                let receiver = self.receivers.get_mut(&node(to)).unwrap();
                if receiver.up {
                    receiver.up = false;
                    receiver.to_it.truncate(1);
                    receiver.to_it.push_back(Sent::Lost);
                }
            }
            Step::Notice(to) => {
                if !self.receivers[&node(to)].up {
                    self.exports.disconnected(node(to));
                }
            }
            Step::Poll(to) => {
                let receiver = self.receivers.get_mut(&node(to)).unwrap();
                if let Some(batch) = self.exports.poll(node(to), self.now_ms)
                    && receiver.up
                {
                    let bytes = Message::Batch(batch).encode(Vec::new());
                    receiver.to_it.push_back(Sent::Bytes(bytes));
                }
            }
            Step::Deliver(to) => self.deliver(node(to)),
            Step::Acknowledge(to) => {
                let receiver = self.receivers.get_mut(&node(to)).unwrap();
                if let Some(state) = receiver.from_it.pop_front() {
                    let handled = self.exports.handle_state(node(to), &state);
                    assert_eq!(handled, Ok(()));
                }
            }
        }
    }

    fn deliver(&mut self, to: NodeId) {
        let receiver = self.receivers.get_mut(&to).unwrap();
        match receiver.to_it.pop_front() {
            None => {}
            Some(Sent::Lost) => receiver.imports.lost(OWNER),
            Some(Sent::Bytes(bytes)) => {
                let Ok(Message::Batch(batch)) = Message::decode(&bytes) else {
                    panic!("a batch is read as it was written");
                };
                receiver.imports.apply(OWNER, batch).unwrap();
                let state = receiver.imports.state(OWNER, None);
                receiver.from_it.push_back(state);
            }
        }
    }

    /// Whoever knows the owner's routes has all that have passed.
    fn check(&self) {
        let passed = self.exports.passed(self.now_ms);
        for (node, receiver) in &self.receivers {
            if !receiver.imports.knows(OWNER, self.now_ms) {
                continue;
            }
            for (filter, number) in &self.present {
                let route = receiver
                    .imports
                    .get(OWNER, &Key::Filter(filter.as_str().into()));
                assert!(
                    *number > passed || route == Some(Value::Sessions { all: true }),
                    "node {node} lacks {filter}, whose number {number} has passed with {passed}"
                );
            }
        }
    }

    /// Connections stay, and everything is delivered.
    fn settle(&mut self) {
        for to in [false, true] {
            self.step(&Step::Connect(to));
        }
        for _ in 0..20 {
            for to in [false, true] {
                self.step(&Step::Beat(to));
                for step in [Step::Poll(to), Step::Deliver(to), Step::Acknowledge(to)] {
                    for _ in 0..4 {
                        self.step(&step);
                        self.check();
                    }
                }
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..4).prop_map(Step::Toggle),
        2 => (0u8..4).prop_map(Step::ToggleShard),
        1 => (0u8..4).prop_map(Step::Lead),
        2 => (1u64..700).prop_map(Step::Time),
        1 => (1_000u64..4_000).prop_map(Step::Time),
        4 => any::<bool>().prop_map(Step::Beat),
        2 => any::<bool>().prop_map(Step::Connect),
        1 => any::<bool>().prop_map(Step::Break),
        2 => any::<bool>().prop_map(Step::Notice),
        8 => any::<bool>().prop_map(Step::Poll),
        8 => any::<bool>().prop_map(Step::Deliver),
        8 => any::<bool>().prop_map(Step::Acknowledge),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn who_knows_has_what_has_passed(steps in prop::collection::vec(step(), 1..150)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        world.settle();
        prop_assert_eq!(world.exports.passed(world.now_ms), world.exports.number());
        for receiver in world.receivers.values() {
            prop_assert!(receiver.imports.knows(OWNER, world.now_ms));
            prop_assert_eq!(receiver.imports.len(), world.exports.len());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Message::decode(&bytes);
        let _ = Message::decode(&[&[1], bytes.as_slice()].concat());
    }
}

/// Carries everything from the owner to one receiver, and back.
fn exchange(exports: &mut Exports, imports: &mut Imports, now_ms: u64) -> usize {
    let mut batches = 0;
    exports
        .handle_state(2, &imports.state(OWNER, Some(now_ms)))
        .unwrap();
    while let Some(batch) = exports.poll(2, now_ms) {
        batches += 1;
        imports.apply(OWNER, batch).unwrap();
        exports
            .handle_state(2, &imports.state(OWNER, None))
            .unwrap();
    }
    batches
}

fn pair() -> (Exports, Imports) {
    let (mut exports, mut imports) = (Exports::new(1, TIMES), Imports::new(TIMES));
    exports.add_peer(2, 0);
    exports.connected(2);
    imports.add_peer(OWNER);
    (exports, imports)
}

#[test]
fn only_what_changes_a_route_is_told() {
    let (mut exports, mut imports) = pair();
    exchange(&mut exports, &mut imports, 0);
    exports.subscribe("a", Receivers::Qos0);
    exports.subscribe("a", Receivers::Qos0);
    assert_eq!(exports.number(), 1);
    exports.subscribe("a", Receivers::All);
    assert_eq!(exports.number(), 2);
    exports.unsubscribe("a", Receivers::Qos0);
    exports.unsubscribe("a", Receivers::All);
    exports.unsubscribe("a", Receivers::Qos0);
    assert_eq!((exports.number(), exports.is_empty()), (4, true));
}

#[test]
fn a_silent_peer_is_waited_for_until_its_lease_is_long_over() {
    let (mut exports, mut imports) = pair();
    exchange(&mut exports, &mut imports, 10);
    exports.subscribe("a", Receivers::All);
    assert_eq!(exports.passed(10 + TIMES.silence_ms - 1), 0);
    assert!(imports.knows(OWNER, 10 + TIMES.lease_ms - 1));
    assert!(!imports.knows(OWNER, 10 + TIMES.lease_ms));
    assert_eq!(imports.valid_until(10), 10 + TIMES.lease_ms);
    assert_eq!(exports.passed(10 + TIMES.silence_ms), 1);
}

#[test]
fn a_peer_that_is_heard_and_not_reached_is_not_waited_for_any_longer() {
    let (mut exports, mut imports) = pair();
    exchange(&mut exports, &mut imports, 0);
    exports.disconnected(2);
    exports.subscribe("a", Receivers::All);
    let beat = imports.state(OWNER, Some(TIMES.silence_ms));
    assert_eq!(exports.handle_state(2, &beat), Ok(()));
    assert_eq!(exports.passed(TIMES.silence_ms - 1), 0);
    assert_eq!(exports.passed(TIMES.silence_ms), 1);
}

#[test]
fn a_beat_is_answered_behind_all_changes_before_it() {
    let (mut exports, mut imports) = pair();
    exchange(&mut exports, &mut imports, 0);
    for n in 0..1_000 {
        exports.subscribe(&format!("f/{n}"), Receivers::All);
    }
    assert_eq!(exports.passed(TIMES.silence_ms), 1_000);
    let now_ms = TIMES.silence_ms + 1;
    exports
        .handle_state(2, &imports.state(OWNER, Some(now_ms)))
        .unwrap();
    while let Some(batch) = exports.poll(2, 0) {
        imports.apply(OWNER, batch).unwrap();
        assert_eq!(imports.knows(OWNER, now_ms), imports.len() == 1_000);
    }
    assert!(imports.knows(OWNER, now_ms));
}

#[test]
fn a_snapshot_comes_in_pages_and_changes_go_on_meanwhile() {
    let (mut exports, mut imports) = pair();
    for n in 0..10_000 {
        exports.subscribe(&format!("f/{n}"), Receivers::All);
    }
    let first = exports.poll(2, 0).unwrap();
    assert!(first.routes.len() < 1_000 && !first.complete);
    imports.apply(OWNER, first).unwrap();
    exports.unsubscribe("f/0", Receivers::All);
    exports.subscribe("f/9", Receivers::Qos0);
    exports.subscribe("new", Receivers::All);
    assert!(exchange(&mut exports, &mut imports, 0) > 30);
    assert!(imports.knows(OWNER, 0));
    assert_eq!(imports.len(), 10_000);
    assert!(imports.get(OWNER, &Key::Filter("f/0".into())).is_none());
    assert_eq!(exports.passed(0), exports.number());
}

#[test]
fn a_peer_that_takes_nothing_gets_a_snapshot_instead_of_old_changes() {
    let (mut exports, mut imports) = pair();
    exchange(&mut exports, &mut imports, 0);
    let long = "x".repeat(60_000);
    for n in 0..400 {
        exports.subscribe(&format!("{n}/{long}"), Receivers::All);
        exports.unsubscribe(&format!("{n}/{long}"), Receivers::All);
    }
    exports.subscribe("a", Receivers::All);
    imports.apply(OWNER, exports.poll(2, 0).unwrap()).unwrap();
    assert!(!imports.knows(OWNER, 0), "a snapshot has begun");
    assert!(exchange(&mut exports, &mut imports, 0) < 10);
    assert_eq!(imports.len(), 1);
    assert_eq!(exports.passed(0), exports.number());
}

#[test]
fn a_shard_is_known_by_the_routes_of_its_last_leader() {
    let (mut exports, mut imports) = pair();
    let unknown =
        |imports: &Imports, own| imports.unknown(&[0, 1], |shard| (shard == 1).then_some(own), 0);
    exports.lead(0, 5);
    exports.set_of_shard(
        Key::ShardFilter(0, "a".into()),
        Some(Value::Shard { detached: false }),
    );
    exchange(&mut exports, &mut imports, 0);
    assert_eq!(unknown(&imports, (1, true)).shards, [0]);
    exports.complete(0);
    exchange(&mut exports, &mut imports, 0);
    assert!(unknown(&imports, (1, true)).shards.is_empty());
    assert_eq!(unknown(&imports, (1, false)).shards, [1]);
    assert_eq!(imports.unknown(&[0], |_| Some((6, false)), 0).shards, [0]);
    assert_eq!(
        imports.unknown(&[0], |_| Some((4, false)), 0).shards,
        [0u16; 0]
    );
    exports.lead(0, 7);
    exchange(&mut exports, &mut imports, 0);
    assert_eq!(imports.len(), 1, "the routes of the term before are gone");
    imports.lost(OWNER);
    assert_eq!(unknown(&imports, (1, true)).nodes, [OWNER]);
    assert_eq!(unknown(&imports, (1, true)).shards, [0]);
    assert_eq!(imports.remove_peer(OWNER).len(), 1);
}

#[test]
fn what_the_last_leader_had_told_is_remembered() {
    let (mut exports, mut imports) = pair();
    assert!(!imports.was_told(0, None));
    exports.lead(0, 5);
    exchange(&mut exports, &mut imports, 0);
    assert!(!imports.was_told(0, None));
    exports.complete(0);
    exchange(&mut exports, &mut imports, 0);
    imports.lost(OWNER);
    assert!(imports.was_told(0, None));
    assert!(imports.was_told(0, Some((4, false))));
    assert!(!imports.was_told(0, Some((6, false))), "a later leader");
    assert!(imports.was_told(1, Some((1, true))));
}

#[test]
fn a_majority_is_more_than_half_of_the_nodes() {
    let (mut exports, mut imports) = pair();
    exchange(&mut exports, &mut imports, 0);
    assert!(imports.hears_majority(0), "both of two");
    assert!(!imports.hears_majority(TIMES.lease_ms), "one of two");
    imports.add_peer(8);
    assert!(imports.hears_majority(0), "two of three");
    imports.add_peer(9);
    assert!(!imports.hears_majority(0), "two of four");
    assert!(Imports::new(TIMES).hears_majority(0), "one of one");
}

#[test]
fn a_stream_that_is_thought_to_be_lost_begins_anew() {
    let (mut exports, mut imports) = pair();
    exchange(&mut exports, &mut imports, 0);
    imports.lost(OWNER);
    exports.subscribe("a", Receivers::All);
    exchange(&mut exports, &mut imports, 0);
    assert!(imports.knows(OWNER, 0));
    assert_eq!((imports.len(), exports.passed(0)), (1, 1));
}

#[test]
fn what_does_not_follow_is_refused() {
    let (mut exports, mut imports) = pair();
    exports.subscribe("a", Receivers::All);
    let first = exports.poll(2, 0).unwrap();
    let second = exports.poll(2, 0).unwrap();
    assert_eq!(imports.apply(OWNER, second.clone()), Ok(Vec::new()));
    assert!(!imports.knows(OWNER, 0));
    assert!(imports.apply(OWNER, first.clone()).is_ok());
    assert_eq!(imports.apply(OWNER, first), Err(Malformed::Sequence));
    let mut wrong = second;
    wrong
        .routes
        .push((Key::Lead(1), Some(Value::Group { room: 1 })));
    assert_eq!(imports.apply(OWNER, wrong), Err(Malformed::Value));
    let state = State {
        sequence: 9,
        ..imports.state(OWNER, None)
    };
    assert_eq!(exports.handle_state(2, &state), Err(Malformed::State));
}

#[test]
fn an_answer_to_a_beat_of_the_far_future_is_no_overflow() {
    let mut imports = Imports::new(Times::default());
    imports.add_peer(2);
    let batch = Batch {
        stream: 9,
        sequence: 1,
        routes: Vec::new(),
        number: 0,
        complete: true,
        echo_ms: Some(u64::MAX),
    };
    assert_eq!(imports.apply(2, batch), Ok(Vec::new()));
    assert!(imports.knows(2, 1_000));
}
