//! A shard that is cut, against one that is not.

use std::collections::{BTreeMap, BTreeSet};

use mqtt_session::Timestamp;
use proptest::prelude::*;
use proptest::sample::select;
use topic_router::Cursor;

use super::driver::{self, Shard, found, set, set_from, will};
use crate::retain::{PageBudget, RetainMachine, RetainOp, RetainReply};
use crate::test_parts::{Cut, HASH, Part};
use crate::{Changes, Header, Limits, Machine, NameHash, Split};

const TOPICS: [&str; 8] = ["a", "a/b", "a/c", "b", "b/b", "b/c/d", "c", "d/e"];

/// Ends before a fence is forgotten: when that is, depends on what else a half is asked.
const END_MS: u64 = 60_000;

/// Without limits: a half has its share of them.
fn header(now_ms: u64) -> Header {
    let header = driver::header(now_ms);
    Header {
        limits: Limits {
            retained_messages: u64::MAX,
            retained_bytes: u64::MAX,
            classes: crate::ClassLimits::NONE,
            ..header.limits
        },
        ..header
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set {
        topic: &'static str,
        payload: usize,
        /// ms from now; none: never.
        expires_in: Option<u64>,
    },
    Will {
        topic: &'static str,
        epoch: u64,
    },
    From {
        topic: &'static str,
        publisher: &'static str,
        connection: u64,
    },
    Expire,
    /// ms.
    Pass(u64),
    /// The n-th part reads a page of what is replayed.
    Page(usize),
    Cut(Cut),
    /// Of the n-th part, which starts anew or goes on.
    Checkpoint(usize, bool),
    /// Of the n-th part.
    Restart(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let topic = || select(TOPICS.to_vec());
    let expires_in = proptest::option::of(select(vec![0, 500, 1_000, 3_000]));
    let set = (topic(), select(vec![0, 1, 100]), expires_in);
    let step = prop_oneof![
        8 => set.prop_map(|(topic, payload, expires_in)| {
            Step::Set { topic, payload, expires_in }
        }),
        3 => (topic(), 0..3u64).prop_map(|(topic, epoch)| Step::Will { topic, epoch }),
        3 => (topic(), select(vec!["x", "y"]), 0..4u64).prop_map(
            |(topic, publisher, connection)| Step::From { topic, publisher, connection }
        ),
        1 => Just(Step::Expire),
        2 => (1..4u64).prop_map(|n| Step::Pass(n * 500)),
        3 => any::<usize>().prop_map(Step::Page),
        2 => Cut::any().prop_map(Step::Cut),
        2 => (any::<usize>(), any::<bool>())
            .prop_map(|(part, restart)| Step::Checkpoint(part, restart)),
        1 => any::<usize>().prop_map(Step::Restart),
    ];
    proptest::collection::vec(step, 1..100)
}

fn op(step: &Step, now: u64, n: usize) -> Option<RetainOp> {
    let payload = [n as u8];
    Some(match *step {
        Step::Set {
            topic,
            payload,
            expires_in,
        } => {
            let at = expires_in.map_or(0, |ms| now + ms);
            set(topic, &vec![n as u8; payload], at)
        }
        Step::Will { topic, epoch } => will(topic, &payload, epoch),
        Step::From {
            topic,
            publisher,
            connection,
        } => set_from(topic, &payload, publisher, connection),
        Step::Expire => RetainOp::Expire,
        _ => return None,
    })
}

/// A part of the shard, and how far a replay of it has come.
struct Half {
    part: Part<RetainMachine, String>,
    replay: Progress,
}

#[derive(Clone)]
enum Progress {
    At(Option<Cursor>),
    Done,
}

impl Half {
    fn whole() -> Self {
        Self {
            part: Part::whole(driver::apply, describe),
            replay: Progress::At(None),
        }
    }

    fn split_off(&mut self, at: u16) -> Self {
        Self {
            part: self.part.split_off(at),
            replay: self.replay.clone(),
        }
    }

    /// The topics of the next page of a replay.
    fn page(&mut self, filter: &str, now: u64) -> Vec<String> {
        let Progress::At(after) = &self.replay else {
            return Vec::new();
        };
        let mut budget = PageBudget {
            messages: 2,
            ..PageBudget::UNLIMITED
        };
        let machine = &self.part.machine;
        let (page, next) = machine.page(filter, after.as_ref(), &mut budget, Timestamp(now));
        self.replay = next.map_or(Progress::Done, |next| Progress::At(Some(next)));
        let topics = page.iter().map(|message| message.body.topic().to_owned());
        topics.collect()
    }
}

fn describe(machine: &RetainMachine) -> String {
    let counts = (machine.size(), machine.wills(), machine.fences());
    let messages = TOPICS.map(|topic| of_topic(machine, topic));
    let all = found(machine, "#", 0);
    format!(
        "{counts:?} {:?} {messages:?} {all:?}",
        machine.next_deadline()
    )
}

fn of_topic(machine: &RetainMachine, topic: &str) -> Option<String> {
    let message = machine.get(topic, Timestamp(0))?;
    let payload = message.body.payload();
    Some(format!(
        "{payload:?} {:?} {:?}",
        message.qos, message.expires_at
    ))
}

/// Together the parts hold what the whole holds.
fn check_state(whole: &Half, parts: &[Half], now: u64) {
    let machines = || parts.iter().map(|half| &half.part.machine);
    let counts = |machine: &RetainMachine| {
        let (messages, bytes) = machine.size();
        let known = [machine.wills(), machine.fences()].map(|count| count as u64);
        [messages, bytes, known[0], known[1]]
    };
    let sums = machines().map(counts).fold([0; 4], |sums, of_part| {
        [0, 1, 2, 3].map(|n| sums[n] + of_part[n])
    });
    let whole = &whole.part.machine;
    assert_eq!(sums, counts(whole));
    let deadlines = machines().filter_map(RetainMachine::next_deadline);
    assert_eq!(deadlines.min(), whole.next_deadline());
    for topic in TOPICS {
        let half = parts.iter().find(|half| half.part.has(topic)).unwrap();
        assert_eq!(of_topic(&half.part.machine, topic), of_topic(whole, topic));
    }
    for half in parts {
        let mut expected = found(whole, "#", now);
        expected.retain(|(topic, _)| half.part.has(topic));
        assert_eq!(found(&half.part.machine, "#", now), expected);
    }
}

proptest! {
    #[test]
    fn the_parts_of_a_shard_do_what_the_whole_does(
        steps in steps(),
        (filter, under) in select(vec![("#", ""), ("a/#", "a"), ("b/#", "b")]),
    ) {
        let mut whole = Half::whole();
        let mut parts = vec![Half::whole()];
        let mut now = 1_000;
        // The topics that were there all the time since the replay began, and those that it has found.
        let mut throughout: Option<BTreeSet<&str>> = None;
        let mut replayed = Vec::new();
        for (n, step) in steps.iter().enumerate() {
            match *step {
                Step::Pass(ms) => now = (now + ms).min(END_MS),
                Step::Page(n) => {
                    let n = n % parts.len();
                    replayed.append(&mut parts[n].page(filter, now));
                    let matching = || TOPICS.into_iter().filter(|topic| topic.starts_with(under));
                    throughout.get_or_insert_with(|| matching().collect());
                }
                Step::Cut(cut) => {
                    let ranges = parts.iter().map(|half| half.part.range);
                    if let Some((part, at)) = cut.of(ranges, &TOPICS) {
                        let child = parts[part].split_off(at);
                        parts.push(child);
                    }
                }
                Step::Checkpoint(n, restart) => {
                    let n = n % parts.len();
                    parts[n].part.checkpoint();
                    if restart {
                        parts[n].part.restart();
                    }
                }
                Step::Restart(n) => {
                    let n = n % parts.len();
                    parts[n].part.restart();
                }
                _ => {}
            }
            if let Some(op) = op(step, now, n) {
                let expected = whole.part.apply(&header(now), &op);
                let mut asked = 0;
                for half in parts.iter_mut().filter(|half| half.part.takes(&op)) {
                    prop_assert_eq!(&half.part.apply(&header(now), &op), &expected, "{:?}", &op);
                    asked += 1;
                }
                let is_for_one = RetainMachine::slot(&op, HASH).is_some();
                prop_assert_eq!(asked, if is_for_one { 1 } else { parts.len() });
            }
            if let Some(throughout) = &mut throughout {
                let machine = &whole.part.machine;
                throughout.retain(|topic| machine.get(topic, Timestamp(now)).is_some());
            }
            check_state(&whole, &parts, now);
        }
        for half in &mut parts {
            while matches!(half.replay, Progress::At(_)) {
                replayed.append(&mut half.page(filter, now));
            }
        }
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        replayed.iter().for_each(|topic| *times.entry(topic).or_default() += 1);
        prop_assert!(times.values().all(|times| *times == 1), "{:?}", replayed);
        for topic in throughout.into_iter().flatten() {
            prop_assert!(times.contains_key(topic), "{} is not among {:?}", topic, replayed);
        }
        // Together the tables have the rows that the tables of the whole have.
        whole.part.checkpoint();
        let mut rows = BTreeMap::new();
        for half in &mut parts {
            half.part.checkpoint();
            for (key, value) in half.part.rows().rows {
                let other = rows.insert(key.clone(), value);
                prop_assert!(other.is_none() || key == b"M", "{:?} is in two parts", key);
            }
        }
        prop_assert_eq!(rows, whole.part.table.rows);
    }
}

/// A topic of each half: its slot is below the slot of the other one.
fn two_topics() -> (&'static str, &'static str) {
    let slot = |topic| NameHash::default().slot_of(topic);
    if slot("a") < slot("b") {
        ("a", "b")
    } else {
        ("b", "a")
    }
}

/// Cuts a shard where the slot of a topic begins.
fn cut(shard: &mut Shard, topic: &str) -> Shard {
    Shard {
        machine: shard.machine.split_off(NameHash::default().slot_of(topic)),
        table: shard.table.clone(),
        header: shard.header.clone(),
    }
}

#[test]
fn each_half_writes_and_removes_its_own_rows() {
    let (low, high) = two_topics();
    let mut shard = Shard::new();
    shard.ask(&set(low, b"1", 0));
    shard.ask(&set(high, b"1", 0));
    shard.checkpoint();
    shard.ask(&set(low, b"", 0));
    shard.ask(&set(high, b"", 0));
    let mut child = cut(&mut shard, high);
    for half in [&mut shard, &mut child] {
        assert_eq!(half.checkpoint(), 1);
        assert_eq!(half.table.rows_of(b'R'), 1, "that of the other half");
    }
}

#[test]
fn a_half_counts_its_own_messages_only() {
    let (low, high) = two_topics();
    let mut shard = Shard::new();
    shard.ask(&set(low, b"1", 0));
    shard.ask(&set(high, &[1; 100], 0));
    let size = shard.machine.size();
    let mut child = cut(&mut shard, high);
    assert_eq!(shard.machine.size().0, 1);
    assert_eq!(child.machine.size(), (1, size.1 - shard.machine.size().1));
    child.header.limits.retained_messages = 1;
    assert_eq!(child.ask(&set(high, b"2", 0)), RetainReply::Done);
}

#[test]
fn a_half_forgets_its_own_fences_in_time() {
    let (low, high) = two_topics();
    let mut shard = Shard::new();
    for topic in [low, high] {
        shard.ask(&set_from(topic, b"1", "x", 2));
        shard.ask(&will(topic, b"1", 1));
    }
    let mut child = cut(&mut shard, high);
    for (half, topic) in [(&mut shard, low), (&mut child, high)] {
        assert_eq!((half.machine.fences(), half.machine.wills()), (1, 1));
        assert_eq!(
            half.ask(&set_from(topic, b"2", "x", 1)),
            RetainReply::Fenced
        );
        half.header.now_ms = 3_600_000;
        half.ask(&set_from(topic, b"2", "y", 1));
        half.ask(&will(topic, b"2", 2));
        assert_eq!((half.machine.fences(), half.machine.wills()), (1, 1));
    }
}

#[test]
fn the_halves_of_an_empty_shard_are_empty() {
    for (is_saved, at) in [(false, 1), (false, 30_000), (true, 1), (true, u16::MAX)] {
        let mut shard = Shard::new();
        if is_saved {
            shard.checkpoint();
        }
        let Shard {
            mut machine,
            table,
            header,
        } = shard;
        let child = machine.split_off(at);
        for machine in [machine, child] {
            let table = table.clone();
            let mut half = Shard {
                machine,
                table,
                header: header.clone(),
            };
            assert_eq!((half.machine.size(), half.found("#")), ((0, 0), Vec::new()));
            let is_all = half.machine.rebuild_part(1, &half.table, &mut ());
            assert_eq!(is_all, Ok(true));
            assert_eq!(half.checkpoint(), usize::from(!is_saved), "the machine");
            assert_eq!(half.ask(&set("a", b"1", 0)), RetainReply::Done);
        }
    }
}

#[test]
#[should_panic(expected = "no split within a checkpoint")]
fn no_split_comes_within_a_checkpoint() {
    let mut shard = Shard::new();
    shard.machine.collect(&mut Changes::default());
    let _ = shard.machine.split_off(1);
}

#[test]
#[should_panic(expected = "the parent keeps a slot")]
fn a_parent_keeps_a_slot() {
    let _ = Shard::new().machine.split_off(0);
}
