//! What nodes tell each other of routes: a peer that says anything, to a node that believes it and to one that
//! waits for it.

use route_exchange::{Batch, Exports, Imports, Key, Message, Receivers, State, Times, Value};

use crate::{Input, Target, input::counted};

pub(crate) const TARGET: Target = Target {
    name: "routes",
    run,
    seeds,
};

const PEER: u64 = 2;

fn run(bytes: &[u8]) {
    let times = Times::default();
    let (mut imports, mut exports) = (Imports::new(times), Exports::new(1, times));
    imports.add_peer(PEER);
    exports.add_peer(PEER, 0);
    exports.connected(PEER);
    let mut input = Input(bytes);
    let mut now_ms = 1_000;
    while !input.is_empty() {
        match input.byte() {
            0 => exports.subscribe("a/b", Receivers::All),
            1 => exports.unsubscribe("a/b", Receivers::All),
            2 => exports.lead(3, 4),
            3 => now_ms += 700,
            _ => {
                let Ok(message) = Message::decode(input.counted()) else {
                    continue;
                };
                let again = message.encode(Vec::new());
                assert_eq!(Message::decode(&again).as_ref(), Ok(&message));
                let taken = match message {
                    Message::Batch(batch) => imports.apply(PEER, batch).map(|_| ()),
                    Message::State(state) => exports.handle_state(PEER, &state),
                };
                if taken.is_err() {
                    imports.lost(PEER);
                    exports.disconnected(PEER);
                    exports.connected(PEER);
                }
            }
        }
        for _ in 0..4 {
            if exports.poll(PEER, now_ms).is_none() {
                break;
            }
        }
        let _ = (imports.knows(PEER, now_ms), imports.valid_until(now_ms));
        let _ = imports.unknown(&[0, 1, 2, 3], |_| None, now_ms);
        let _ = imports.state(PEER, Some(now_ms));
        assert!(exports.passed(now_ms) <= exports.number());
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let batch = |sequence, complete| {
        Message::Batch(Batch {
            stream: 9,
            sequence,
            routes: vec![
                (Key::Filter("a".into()), Some(Value::Sessions { all: true })),
                (Key::Lead(3), Some(Value::Lead { term: 2, complete })),
                (Key::ShardFilter(3, "b".into()), None),
            ],
            number: 5,
            complete,
            echo_ms: Some(1_000),
        })
    };
    let state = Message::State(State {
        stream: 1,
        sequence: 1,
        number: 1,
        missed: None,
        beat_ms: Some(1_000),
    });
    let mut input = vec![0, 2];
    for message in [batch(1, false), batch(2, true), state] {
        input.push(9);
        counted(&message.encode(Vec::new()), &mut input);
    }
    vec![input]
}
