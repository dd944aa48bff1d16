//! Any operations in any order, with checkpoints and crashes, against a plain map.

use std::collections::BTreeMap;

use mqtt_session::Timestamp;
use proptest::prelude::*;
use proptest::sample::select;

use super::driver::{self, found, header, remove, set};
use crate::retain::machine::OVERHEAD;
use crate::retain::{RetainMachine, RetainOp, RetainedEnd};
use crate::test_replica::Replica;

#[derive(Clone, Debug)]
enum Step {
    Set {
        topic: &'static str,
        payload: usize,
        /// ms from now; none: never.
        expires_in: Option<u64>,
    },
    Expire,
    /// What was set at the time of the last one, or later.
    Remove {
        topic: &'static str,
        later: bool,
    },
    /// ms.
    Pass(u64),
    Collect,
    Saved,
    Crash {
        written: bool,
    },
}

const TOPICS: [&str; 5] = ["a", "a/b", "a/c", "b", "b/b"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let payload = select(vec![0, 0, 1, 100, 4_000, 8_000]);
    let expires_in = proptest::option::of(select(vec![0, 500, 1_000, 3_000]));
    let set = (select(TOPICS.to_vec()), payload, expires_in);
    let step = prop_oneof![
        8 => set.prop_map(|(topic, payload, expires_in)| {
            Step::Set { topic, payload, expires_in }
        }),
        1 => Just(Step::Expire),
        2 => (select(TOPICS.to_vec()), any::<bool>()).prop_map(|(topic, later)| {
            Step::Remove { topic, later }
        }),
        3 => (1..4u64).prop_map(|n| Step::Pass(n * 500)),
        2 => Just(Step::Collect),
        2 => Just(Step::Saved),
        1 => any::<bool>().prop_map(|written| Step::Crash { written }),
    ];
    proptest::collection::vec(step, 1..100)
}

/// By topic: payload, and expiry (`u64::MAX`: never). And when it was set.
#[derive(Default)]
struct Model(
    BTreeMap<&'static str, (Vec<u8>, u64)>,
    BTreeMap<&'static str, u64>,
);

impl Model {
    fn set(&mut self, topic: &'static str, payload: &[u8], expires_at: u64, now: u64) -> String {
        if payload.is_empty() || expires_at <= now {
            self.0.remove(topic);
            return "Done".to_owned();
        }
        let before = self.0.insert(topic, (payload.to_vec(), expires_at));
        let limits = header(0).limits;
        if self.0.len() as u64 <= limits.retained_messages && self.bytes() <= limits.retained_bytes
        {
            self.1.insert(topic, now);
            return "Done".to_owned();
        }
        match before {
            Some(before) => self.0.insert(topic, before),
            None => self.0.remove(topic),
        };
        "Full".to_owned()
    }

    fn bytes(&self) -> u64 {
        let cost = |(topic, (payload, _)): (&&str, &(Vec<u8>, u64))| {
            (2 + topic.len() + payload.len()) as u64 + OVERHEAD
        };
        self.0.iter().map(cost).sum()
    }

    /// Topics and payloads that a filter selects.
    fn found(&self, under: &str, now: u64) -> Vec<(String, Vec<u8>)> {
        let found = self.0.iter().filter(|(topic, (_, expires_at))| {
            *expires_at > now && (topic.starts_with(under) || under == "#")
        });
        found
            .map(|(topic, (payload, _))| ((*topic).to_owned(), payload.clone()))
            .collect()
    }

    fn next_deadline(&self) -> Option<u64> {
        let all = self.0.values().map(|(_, expires_at)| *expires_at);
        all.min().filter(|at| *at != u64::MAX)
    }
}

fn check(machine: &RetainMachine, model: &Model, now: u64) -> Result<(), TestCaseError> {
    for (filter, under) in [("#", "#"), ("a/+", "a/"), ("b/#", "b")] {
        let mut messages = found(machine, filter, now);
        messages.sort();
        prop_assert_eq!(messages, model.found(under, now), "{}", filter);
    }
    prop_assert_eq!(machine.size(), (model.0.len() as u64, model.bytes()));
    prop_assert_eq!(machine.next_deadline(), model.next_deadline());
    for topic in TOPICS {
        let message = machine.get(topic, Timestamp(now));
        let payload = message.map(|message| message.body.payload());
        let expected = model.0.get(topic).filter(|(_, at)| *at > now);
        prop_assert_eq!(payload, expected.map(|(payload, _)| &payload[..]));
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_machine_does_what_the_model_does(steps in steps()) {
        let mut model = Model::default();
        let mut often = Replica::<RetainMachine>::new(driver::apply);
        let mut never = Replica::<RetainMachine>::new(driver::apply);
        let mut now = 1_000;
        for (n, step) in steps.iter().enumerate() {
            let (op, expected) = match *step {
                Step::Set { topic, payload, expires_in } => {
                    let payload = vec![n as u8; payload];
                    let at = expires_in.map(|ms| now + ms);
                    let expected = model.set(topic, &payload, at.unwrap_or(u64::MAX), now);
                    (Some(set(topic, &payload, at.unwrap_or(0))), expected)
                }
                Step::Expire => {
                    model.0.retain(|_, (_, expires_at)| *expires_at > now);
                    (Some(RetainOp::Expire), "Done".to_owned())
                }
                Step::Remove { topic, later } => {
                    let set = model.1.get(topic).copied().unwrap_or(1);
                    if !later {
                        model.0.remove(topic);
                    }
                    let messages = [(topic, set + u64::from(later))];
                    (Some(remove(&messages, RetainedEnd::Age)), "Done".to_owned())
                }
                _ => (None, String::new()),
            };
            match *step {
                Step::Pass(ms) => now += ms,
                Step::Collect => often.collect(),
                Step::Saved => often.saved(),
                Step::Crash { written } => often.crash(written),
                _ => {}
            }
            if let Some(op) = op {
                prop_assert_eq!(&often.apply(&header(now), &op), &expected, "{:?}", &op);
                prop_assert_eq!(&never.apply(&header(now), &op), &expected, "{:?}", &op);
            }
            check(&often.machine, &model, now)?;
            check(&never.machine, &model, now)?;
        }
        // All that is left of it in the end is in the table, and nothing else.
        often.saved();
        often.collect();
        often.saved();
        often.crash(false);
        check(&often.machine, &model, now)?;
        prop_assert_eq!(often.table.rows_of(b'R'), model.0.len());
    }
}
