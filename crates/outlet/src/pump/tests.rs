//! The table of transitions, scripts, and a model: a session and a target that fail at any point.

use proptest::prelude::*;

use super::*;
use crate::item::{Incarnation, Sequence};
use crate::properties::StandardProperties;

const OPTIONS: Options = Options {
    batch: BatchLimits {
        messages: 3,
        bytes: 1 << 20,
        linger: Milliseconds(20),
    },
    memory: 1 << 20,
    give_up: None,
    has_dead_letters: true,
};

fn item(sequence: u64) -> Item {
    Item {
        position: Some(Position {
            incarnation: Incarnation(1),
            sequence: Sequence(sequence),
        }),
        topic: "a/b".into(),
        payload: bytes::Bytes::from(sequence.to_string()),
        qos: 1,
        retain: false,
        received: Milliseconds(0),
        properties: Vec::new(),
        standard: StandardProperties::default(),
    }
}

/// As in [`item`]; 0: it is in no queue.
fn sequence(item: &Item) -> u64 {
    item.position.map_or(0, |position| position.sequence.0)
}

fn why() -> Arc<str> {
    "busy".into()
}

fn retry() -> Delivery {
    Delivery::Retry {
        after: None,
        why: why(),
    }
}

fn part(done: &[usize]) -> Delivery {
    Delivery::Part {
        done: done.to_vec(),
        after: None,
        why: why(),
    }
}

fn refused(which: Refusal) -> Delivery {
    Delivery::Refused { which, why: why() }
}

/// All that is to be done, shortly.
fn actions(pump: &mut Pump) -> Vec<String> {
    std::iter::from_fn(|| pump.poll_action())
        .map(|action| match action {
            Action::Open => "open".to_owned(),
            Action::Acknowledge(count) => format!("ack {count}"),
            Action::Letter { item, .. } => format!("letter {}", sequence(&item)),
            Action::Deliver(batch) => {
                let batch: Vec<_> = batch
                    .iter()
                    .map(|item| sequence(item).to_string())
                    .collect();
                format!("deliver {}", batch.join(","))
            }
        })
        .collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Is {
    Opening,
    Collecting,
    Delivering,
    Waiting,
    Letting,
    Paused,
    Fenced,
}

fn is(pump: &Pump) -> Is {
    match pump.state() {
        State::Opening => Is::Opening,
        State::Collecting => Is::Collecting,
        State::Delivering { .. } => Is::Delivering,
        State::Waiting { .. } => Is::Waiting,
        State::Letting => Is::Letting,
        State::Paused => Is::Paused,
        State::Fenced => Is::Fenced,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Input {
    Opened,
    OpenFails,
    OpenIsFenced,
    Item,
    Filtered,
    RuleRefuses,
    Linger,
    All,
    Retry,
    Refused,
    Except,
    Part,
    Fence,
    Letter,
    LetterFails,
    Pause,
    Resume,
    SourceCloses,
    Minute,
}

/// Before, what happens, after. Of a queue with one message in all states but `Collecting` and `Paused`, which have none.
const TRANSITIONS: &[(Is, Input, Is)] = &[
    (Is::Opening, Input::Opened, Is::Collecting),
    (Is::Opening, Input::OpenFails, Is::Waiting),
    (Is::Opening, Input::OpenIsFenced, Is::Fenced),
    (Is::Opening, Input::Item, Is::Opening),
    (Is::Opening, Input::Filtered, Is::Opening),
    (Is::Opening, Input::RuleRefuses, Is::Opening),
    (Is::Opening, Input::Pause, Is::Opening),
    (Is::Opening, Input::SourceCloses, Is::Opening),
    (Is::Opening, Input::Minute, Is::Opening),
    (Is::Collecting, Input::Item, Is::Collecting),
    (Is::Collecting, Input::Filtered, Is::Collecting),
    (Is::Collecting, Input::RuleRefuses, Is::Letting),
    (Is::Collecting, Input::Linger, Is::Collecting),
    (Is::Collecting, Input::Pause, Is::Paused),
    (Is::Collecting, Input::SourceCloses, Is::Collecting),
    (Is::Delivering, Input::All, Is::Collecting),
    (Is::Delivering, Input::Retry, Is::Waiting),
    (Is::Delivering, Input::Refused, Is::Letting),
    (Is::Delivering, Input::Except, Is::Letting),
    (Is::Delivering, Input::Part, Is::Waiting),
    (Is::Delivering, Input::Fence, Is::Fenced),
    (Is::Delivering, Input::Item, Is::Delivering),
    (Is::Delivering, Input::Filtered, Is::Delivering),
    (Is::Delivering, Input::RuleRefuses, Is::Delivering),
    (Is::Delivering, Input::Pause, Is::Delivering),
    (Is::Delivering, Input::Minute, Is::Delivering),
    (Is::Delivering, Input::SourceCloses, Is::Delivering),
    (Is::Waiting, Input::Linger, Is::Waiting),
    (Is::Waiting, Input::Minute, Is::Opening),
    (Is::Waiting, Input::Item, Is::Waiting),
    (Is::Waiting, Input::RuleRefuses, Is::Waiting),
    (Is::Waiting, Input::Pause, Is::Paused),
    (Is::Waiting, Input::Resume, Is::Opening),
    (Is::Letting, Input::Letter, Is::Collecting),
    (Is::Letting, Input::LetterFails, Is::Waiting),
    (Is::Letting, Input::Item, Is::Letting),
    (Is::Letting, Input::RuleRefuses, Is::Letting),
    (Is::Letting, Input::Pause, Is::Letting),
    (Is::Paused, Input::Item, Is::Paused),
    (Is::Paused, Input::RuleRefuses, Is::Paused),
    (Is::Paused, Input::Minute, Is::Paused),
    (Is::Paused, Input::Resume, Is::Collecting),
    (Is::Fenced, Input::Item, Is::Fenced),
    (Is::Fenced, Input::RuleRefuses, Is::Fenced),
    (Is::Fenced, Input::Minute, Is::Fenced),
    (Is::Fenced, Input::Resume, Is::Fenced),
    (Is::Fenced, Input::SourceCloses, Is::Fenced),
];

fn in_state(state: Is) -> Pump {
    let mut pump = Pump::new(OPTIONS, 7);
    let now = Milliseconds(0);
    if state == Is::Opening {
        return pump;
    }
    pump.handle_opened(None, now);
    match state {
        Is::Opening | Is::Collecting => return pump,
        Is::Paused => {
            pump.handle_pause(true, now);
            return pump;
        }
        _ => {}
    }
    pump.handle_item(item(1), now);
    pump.handle_deadline(Milliseconds(20));
    match state {
        Is::Waiting => pump.handle_delivery(retry(), now),
        Is::Letting => pump.handle_delivery(refused(Refusal::One), now),
        Is::Fenced => pump.handle_delivery(Delivery::Fenced, now),
        _ => {}
    }
    pump
}

#[test]
fn states_follow_the_table() {
    for &(before, input, after) in TRANSITIONS {
        let mut pump = in_state(before);
        assert_eq!(is(&pump), before);
        let now = Milliseconds(10);
        match input {
            Input::Opened => pump.handle_opened(None, now),
            Input::OpenFails => pump.handle_open_error(OpenError::Retry(why()), now),
            Input::OpenIsFenced => pump.handle_open_error(OpenError::Fenced, now),
            Input::Item => pump.handle_item(item(2), now),
            Input::Filtered => pump.handle_filtered(item(2), now),
            Input::RuleRefuses => pump.handle_refused(item(2), why(), now),
            Input::Linger => pump.handle_deadline(Milliseconds(20)),
            Input::All => pump.handle_delivery(Delivery::All, now),
            Input::Retry => pump.handle_delivery(retry(), now),
            Input::Refused => pump.handle_delivery(refused(Refusal::At(0)), now),
            Input::Except => {
                let refused = vec![(0, why())];
                pump.handle_delivery(Delivery::Except { refused }, now);
            }
            Input::Part => pump.handle_delivery(part(&[]), now),
            Input::Fence => pump.handle_delivery(Delivery::Fenced, now),
            Input::Letter => pump.handle_letter(LetterOutcome::Stored, now),
            Input::LetterFails => pump.handle_letter(LetterOutcome::Failed(why()), now),
            Input::Pause => pump.handle_pause(true, now),
            Input::Resume => pump.handle_pause(false, now),
            Input::SourceCloses => pump.handle_source_closed(),
            Input::Minute => pump.handle_deadline(Milliseconds(72_001)),
        }
        assert_eq!(is(&pump), after, "{before:?} {input:?}");
    }
}

#[test]
fn a_batch_goes_when_it_is_full_or_its_first_message_has_lingered() {
    let mut pump = Pump::new(OPTIONS, 7);
    assert_eq!(actions(&mut pump), ["open"]);
    pump.handle_item(item(1), Milliseconds(0));
    pump.handle_opened(None, Milliseconds(5));
    assert_eq!(pump.poll_deadline(), Some(Milliseconds(20)));
    pump.handle_deadline(Milliseconds(19));
    assert!(actions(&mut pump).is_empty());
    pump.handle_deadline(Milliseconds(20));
    assert_eq!(actions(&mut pump), ["deliver 1"]);
    for sequence in 2..=5 {
        pump.handle_item(item(sequence), Milliseconds(20));
    }
    assert!(actions(&mut pump).is_empty(), "one batch at a time");
    pump.handle_delivery(Delivery::All, Milliseconds(21));
    assert_eq!(actions(&mut pump), ["ack 1", "deliver 2,3,4"]);
    assert_eq!(pump.waiting().0, 4);
}

#[test]
fn what_failed_is_tried_again_as_it_was_after_the_target_was_opened_again() {
    let mut pump = in_state(Is::Delivering);
    actions(&mut pump);
    pump.handle_item(item(2), Milliseconds(20));
    pump.handle_delivery(retry(), Milliseconds(30));
    assert_eq!(pump.last_error(), Some("busy"));
    let until = pump.poll_deadline().unwrap();
    assert!((830..=1_230).contains(&until.0), "{until:?}");
    pump.handle_deadline(until);
    assert_eq!(actions(&mut pump), ["open"]);
    pump.handle_opened(None, until);
    assert_eq!(actions(&mut pump), ["deliver 1"]);
    // A target that opens each time and then fails has failed all the while.
    assert_eq!(pump.last_error(), Some("busy"));
    assert_eq!(
        pump.state(),
        State::Delivering {
            attempt: Attempt(2)
        }
    );
    // The target may say that it has what it did not answer.
    pump.handle_delivery(retry(), until);
    pump.handle_deadline(Milliseconds(72_000));
    pump.handle_opened(item(1).position, Milliseconds(72_000));
    assert_eq!(actions(&mut pump), ["open", "ack 1", "deliver 2"]);
    assert_eq!(pump.figures().left_out, Total(1));
}

#[test]
fn refused_messages_among_others_become_dead_letters_one_by_one() {
    let mut pump = Pump::new(OPTIONS, 7);
    let now = Milliseconds(0);
    pump.handle_opened(None, now);
    for sequence in 1..=4 {
        pump.handle_item(item(sequence), now);
    }
    assert_eq!(actions(&mut pump), ["open", "deliver 1,2,3"]);
    let refused = vec![(0, "large".into()), (2, "no".into())];
    pump.handle_delivery(Delivery::Except { refused }, now);
    let reason = |pump: &mut Pump| match pump.poll_action() {
        Some(Action::Letter { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(&*reason(&mut pump), "large");
    pump.handle_letter(LetterOutcome::Failed("later".into()), now);
    let until = pump.poll_deadline().unwrap();
    pump.handle_deadline(until);
    assert_eq!(&*reason(&mut pump), "large");
    pump.handle_letter(LetterOutcome::Stored, now);
    assert_eq!(actions(&mut pump)[0], "ack 2");
    pump.handle_letter(LetterOutcome::Failed("later".into()), now);
    let until = pump.poll_deadline().unwrap();
    pump.handle_deadline(until);
    assert_eq!(&*reason(&mut pump), "no");
    pump.handle_letter(LetterOutcome::Stored, now);
    assert_eq!(actions(&mut pump), ["ack 1"]);
    let figures = pump.figures();
    assert_eq!((figures.delivered, figures.dead), (Total(1), Total(2)));
}

#[test]
fn what_the_target_has_of_a_batch_is_not_tried_again() {
    let give_up = Some(Milliseconds(60_000));
    let mut pump = Pump::new(Options { give_up, ..OPTIONS }, 7);
    let now = Milliseconds(0);
    pump.handle_opened(None, now);
    for sequence in 1..=4 {
        pump.handle_item(item(sequence), now);
    }
    assert_eq!(actions(&mut pump), ["open", "deliver 1,2,3"]);
    pump.handle_delivery(part(&[0, 2]), Milliseconds(59_000));
    // Acknowledgements are in the order of the session.
    assert_eq!(actions(&mut pump), ["ack 1"]);
    assert_eq!(pump.figures().delivered, Total(2));
    let until = pump.poll_deadline().unwrap();
    assert!(until < Milliseconds(60_300), "the first pause: {until:?}");
    pump.handle_deadline(until);
    pump.handle_opened(None, until);
    assert_eq!(actions(&mut pump), ["open", "deliver 2"]);
    // It has taken some, so what is left is not given up yet.
    pump.handle_delivery(part(&[]), Milliseconds(60_500));
    let later = Milliseconds(118_000);
    pump.handle_deadline(later);
    pump.handle_opened(None, later);
    assert_eq!(actions(&mut pump), ["open", "deliver 2"]);
    pump.handle_delivery(part(&[]), Milliseconds(119_000));
    assert_eq!(actions(&mut pump), ["letter 2"]);
    pump.handle_letter(LetterOutcome::Stored, Milliseconds(119_000));
    pump.handle_deadline(Milliseconds(119_000));
    assert_eq!(actions(&mut pump), ["ack 2", "open"]);
}

#[test]
fn what_a_rule_filters_is_acknowledged_in_its_turn_and_never_given_to_the_target() {
    let mut pump = Pump::new(OPTIONS, 7);
    let now = Milliseconds(0);
    pump.handle_opened(None, now);
    pump.handle_filtered(item(1), now);
    assert_eq!(actions(&mut pump), ["open", "ack 1"]);
    for sequence in 2..=6 {
        match sequence {
            3 | 4 => pump.handle_filtered(item(sequence), now),
            _ => pump.handle_item(item(sequence), now),
        }
    }
    assert_eq!(actions(&mut pump), ["deliver 2,5,6"]);
    pump.handle_filtered(item(7), now);
    assert!(actions(&mut pump).is_empty(), "2 is not finished");
    pump.handle_delivery(Delivery::All, now);
    assert_eq!(actions(&mut pump), ["ack 6"]);
    let figures = pump.figures();
    assert_eq!((figures.filtered, figures.delivered), (Total(4), Total(3)));
    assert_eq!(pump.waiting(), (0, 0));
}

#[test]
fn what_a_rule_refuses_becomes_a_dead_letter_in_its_turn() {
    let mut pump = Pump::new(OPTIONS, 7);
    let now = Milliseconds(0);
    pump.handle_item(item(1), now);
    pump.handle_refused(item(2), why(), now);
    pump.handle_refused(item(3), why(), now);
    pump.handle_item(item(4), now);
    pump.handle_opened(None, now);
    // What stands before it waits for nothing that comes behind it.
    assert_eq!(actions(&mut pump), ["open", "deliver 1"]);
    pump.handle_delivery(Delivery::All, now);
    assert_eq!(actions(&mut pump), ["ack 1", "letter 2"]);
    pump.handle_letter(LetterOutcome::Stored, now);
    assert_eq!(actions(&mut pump), ["ack 1", "letter 3"]);
    assert!(pump.has_refusal());
    pump.handle_letter(LetterOutcome::Unclaimed, now);
    assert!(!pump.has_refusal());
    pump.handle_deadline(Milliseconds(20));
    assert_eq!(actions(&mut pump), ["ack 1", "deliver 4"]);
    assert_eq!(pump.figures().dead, Total(2));
    let mut pump = Pump::new(
        Options {
            has_dead_letters: false,
            ..OPTIONS
        },
        7,
    );
    pump.handle_opened(None, now);
    pump.handle_refused(item(1), why(), now);
    assert_eq!(actions(&mut pump), ["open", "ack 1"]);
    assert_eq!(pump.figures().refused, Total(1));
}

#[test]
fn a_message_that_is_in_no_queue_goes_along_in_its_place_and_is_not_acknowledged() {
    let stray = || Item {
        position: None,
        qos: 0,
        ..item(0)
    };
    let mut pump = Pump::new(OPTIONS, 7);
    let now = Milliseconds(0);
    pump.handle_opened(None, now);
    for item in [item(1), stray(), item(2)] {
        pump.handle_item(item, now);
    }
    assert_eq!(actions(&mut pump), ["open", "deliver 1,0,2"]);
    // Neither a new connection nor what the target has makes it come or go.
    pump.handle_source_closed();
    pump.handle_item(stray(), now);
    pump.handle_item(item(1), now);
    pump.handle_delivery(retry(), now);
    pump.handle_deadline(Milliseconds(80_000));
    pump.handle_opened(item(1).position, Milliseconds(80_000));
    assert_eq!(actions(&mut pump), ["open", "ack 1", "deliver 0,2"]);
    pump.handle_item(item(2), Milliseconds(80_000));
    pump.handle_delivery(Delivery::All, Milliseconds(80_000));
    assert_eq!(actions(&mut pump), ["ack 1", "deliver 0"]);
    pump.handle_delivery(Delivery::All, Milliseconds(80_000));
    assert_eq!((actions(&mut pump).len(), pump.waiting()), (0, (0, 0)));
}

#[test]
fn a_refused_message_is_found_by_halves_and_becomes_a_dead_letter() {
    let batch = BatchLimits {
        messages: 8,
        ..OPTIONS.batch
    };
    let mut pump = Pump::new(Options { batch, ..OPTIONS }, 7);
    let now = Milliseconds(0);
    pump.handle_opened(None, now);
    for sequence in 1..=8 {
        pump.handle_item(item(sequence), now);
    }
    let mut log = actions(&mut pump);
    // 6 is what the target refuses.
    for _ in 0..20 {
        let Some(last) = log.last() else { break };
        match last.strip_prefix("deliver ") {
            Some(batch) if batch.split(',').any(|one| one == "6") => {
                pump.handle_delivery(refused(Refusal::One), now)
            }
            Some(_) => pump.handle_delivery(Delivery::All, now),
            None if last.starts_with("letter") => pump.handle_letter(LetterOutcome::Stored, now),
            None => break,
        }
        log.extend(actions(&mut pump));
    }
    let told: Vec<&str> = log
        .iter()
        .map(String::as_str)
        .filter(|line| *line != "open")
        .collect();
    assert_eq!(
        told,
        [
            "deliver 1,2,3,4,5,6,7,8",
            "deliver 1,2,3,4",
            "ack 4",
            "deliver 5,6,7,8",
            "deliver 5,6",
            "deliver 5",
            "ack 1",
            "deliver 6",
            "letter 6",
            "ack 1",
        ]
    );
    pump.handle_deadline(Milliseconds(20));
    assert_eq!(actions(&mut pump), ["deliver 7,8"]);
}

#[test]
fn dead_letters_without_subscribers_and_without_a_topic_are_counted() {
    let mut pump = in_state(Is::Letting);
    pump.handle_letter(LetterOutcome::Unclaimed, Milliseconds(30));
    assert_eq!(
        (pump.figures().dead, pump.figures().unclaimed),
        (Total(1), Total(1))
    );
    let mut pump = Pump::new(
        Options {
            has_dead_letters: false,
            ..OPTIONS
        },
        7,
    );
    pump.handle_opened(None, Milliseconds(0));
    for sequence in 1..=3 {
        pump.handle_item(item(sequence), Milliseconds(0));
    }
    pump.handle_delivery(refused(Refusal::At(1)), Milliseconds(0));
    assert_eq!(
        (pump.figures().refused, pump.figures().delivered),
        (Total(1), Total(1))
    );
    pump.handle_deadline(Milliseconds(20));
    let told = actions(&mut pump);
    assert_eq!(
        told,
        ["open", "deliver 1,2,3", "ack 1", "ack 1", "deliver 3"]
    );
}

#[test]
fn an_outlet_gives_up_only_if_it_is_told_to() {
    let mut pump = Pump::new(
        Options {
            give_up: Some(Milliseconds(5_000)),
            ..OPTIONS
        },
        7,
    );
    pump.handle_opened(None, Milliseconds(0));
    pump.handle_item(item(1), Milliseconds(0));
    pump.handle_deadline(Milliseconds(20));
    pump.handle_delivery(retry(), Milliseconds(4_000));
    assert_eq!(is(&pump), Is::Waiting);
    pump.handle_deadline(Milliseconds(9_000));
    pump.handle_open_error(OpenError::Retry(why()), Milliseconds(9_000));
    assert_eq!(
        actions(&mut pump),
        ["open", "deliver 1", "open", "letter 1"]
    );
    pump.handle_letter(LetterOutcome::Stored, Milliseconds(9_001));
    assert_eq!(actions(&mut pump), ["ack 1", "open"]);
}

#[test]
fn messages_that_come_again_are_taken_for_those_that_wait() {
    let mut pump = in_state(Is::Delivering);
    pump.handle_item(item(2), Milliseconds(20));
    pump.handle_item(item(3), Milliseconds(20));
    actions(&mut pump);
    pump.handle_source_closed();
    pump.handle_delivery(Delivery::All, Milliseconds(30));
    // Nobody is there to acknowledge 1 to, and the others go on.
    assert_eq!(actions(&mut pump), ["deliver 2,3"]);
    pump.handle_item(item(1), Milliseconds(40));
    assert_eq!(actions(&mut pump), ["ack 1"]);
    // The session has dropped 2, which is with the target.
    pump.handle_item(item(3), Milliseconds(40));
    pump.handle_delivery(Delivery::All, Milliseconds(50));
    assert_eq!(actions(&mut pump), ["ack 1"]);
    assert_eq!(
        (pump.waiting(), pump.figures().delivered),
        ((0, 0), Total(3))
    );
}

#[test]
fn no_more_is_read_than_memory_allows() {
    let memory = 2 * item(1).bytes();
    let mut pump = Pump::new(Options { memory, ..OPTIONS }, 7);
    pump.handle_item(item(1), Milliseconds(0));
    assert!(pump.wants_more());
    pump.handle_item(item(2), Milliseconds(0));
    assert!(!pump.wants_more());
    // What there is is not held back for a batch that cannot become full.
    pump.handle_opened(None, Milliseconds(1));
    assert_eq!(actions(&mut pump), ["open", "deliver 1,2"]);
}

/// Every fifth message is filtered by a rule.
fn is_filtered(sequence: u64) -> bool {
    sequence.is_multiple_of(5)
}

/// Every eleventh message of the others is refused by a rule.
fn is_refused_by_rule(sequence: u64) -> bool {
    sequence.is_multiple_of(11) && !is_filtered(sequence)
}

/// A session that keeps its messages until they are acknowledged, and a target that may or may not keep positions.
#[derive(Debug)]
struct World {
    pump: Pump,
    now: Milliseconds,
    /// Positions that the session has, and how many of them the present connection has given.
    session: VecDeque<u64>,
    given: usize,
    next: u64,
    keeps_positions: bool,
    at_target: Vec<u64>,
    letters: Vec<u64>,
    /// What the pump waits for.
    asked: Option<Action>,
}

impl World {
    fn take_actions(&mut self) {
        while let Some(action) = self.pump.poll_action() {
            let Action::Acknowledge(count) = action else {
                assert!(self.asked.replace(action).is_none(), "two things at a time");
                continue;
            };
            for _ in 0..count {
                let done = self
                    .session
                    .pop_front()
                    .expect("more was acknowledged than was given");
                assert!(
                    is_filtered(done)
                        || self.at_target.contains(&done)
                        || self.letters.contains(&done),
                    "{done} was acknowledged, and is nowhere"
                );
                self.given -= 1;
            }
        }
    }

    fn give(&mut self) {
        if let Some(&position) = self.session.get(self.given)
            && self.pump.wants_more()
        {
            self.given += 1;
            let item = Item {
                received: self.now,
                ..item(position)
            };
            match position {
                position if is_filtered(position) => self.pump.handle_filtered(item, self.now),
                position if is_refused_by_rule(position) => {
                    self.pump.handle_refused(item, why(), self.now);
                }
                _ => self.pump.handle_item(item, self.now),
            }
        }
    }

    /// The answer to what was asked. Every seventh message is refused.
    fn answer(&mut self, dice: u8) {
        let is_poison = |item: &Arc<Item>| sequence(item).is_multiple_of(7);
        match self.asked.take() {
            None => {}
            Some(Action::Open) if dice < 60 => {
                let error = OpenError::Retry(why());
                self.pump.handle_open_error(error, self.now);
            }
            Some(Action::Open) => {
                let last = self.at_target.last().filter(|_| self.keeps_positions);
                let has = last.and_then(|&sequence| item(sequence).position);
                self.pump.handle_opened(has, self.now);
            }
            Some(Action::Letter { item, .. }) => {
                let outcome = match dice {
                    0..60 => LetterOutcome::Failed(why()),
                    _ => LetterOutcome::Stored,
                };
                if outcome == LetterOutcome::Stored {
                    self.letters.push(sequence(&item));
                }
                self.pump.handle_letter(outcome, self.now);
            }
            Some(Action::Deliver(batch)) => {
                let is_stopped = |item: &Arc<Item>| {
                    is_filtered(sequence(item)) || is_refused_by_rule(sequence(item))
                };
                assert!(!batch.iter().any(is_stopped), "{batch:?}");
                let poison = batch.iter().position(is_poison);
                let sequences = |batch: &[Arc<Item>]| -> Vec<u64> {
                    batch.iter().map(|item| sequence(item)).collect()
                };
                let delivery = match (poison, dice) {
                    (_, 0..40) => retry(),
                    (None, 40..80) => {
                        // The target has it, and its answer is lost.
                        self.at_target.extend(sequences(&batch));
                        retry()
                    }
                    (None, 80..120) if !self.keeps_positions && batch.len() > 1 => {
                        let done: Vec<usize> =
                            (0..batch.len()).filter(|place| place % 2 == 1).collect();
                        let taken = done.iter().map(|place| sequence(&batch[*place]));
                        self.at_target.extend(taken);
                        part(&done)
                    }
                    (None, _) => {
                        self.at_target.extend(sequences(&batch));
                        Delivery::All
                    }
                    (Some(_), 40..120) => refused(Refusal::One),
                    (Some(_), 120..160) if !self.keeps_positions => {
                        let taken = batch.iter().filter(|item| !is_poison(item));
                        self.at_target.extend(taken.map(|item| sequence(item)));
                        let places = batch.iter().enumerate();
                        let refused = places.filter(|(_, item)| is_poison(item));
                        let refused = refused.map(|(place, _)| (place, why())).collect();
                        Delivery::Except { refused }
                    }
                    (Some(place), _) => {
                        self.at_target.extend(sequences(&batch[..place]));
                        refused(Refusal::At(place))
                    }
                };
                self.pump.handle_delivery(delivery, self.now);
            }
            Some(Action::Acknowledge(_)) => unreachable!("it is done at once"),
        }
    }

    fn step(&mut self, what: u8, dice: u8) {
        match what % 8 {
            0 | 1 => {
                self.session.push_back(self.next);
                self.next += 1;
            }
            2..5 => self.give(),
            5 => self.answer(dice),
            6 if dice < 30 => {
                self.pump.handle_source_closed();
                self.given = 0;
            }
            6 if dice < 60 => self.pump.handle_pause(dice < 45, self.now),
            _ => {
                self.now = self.now.after(Milliseconds(u64::from(dice) * 40));
                self.pump.handle_deadline(self.now);
            }
        }
        self.take_actions();
        assert!(self.pump.waiting().1 <= OPTIONS.memory + item(1).bytes());
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_and_nothing_is_doubled_where_the_target_keeps_positions(
        steps in proptest::collection::vec((any::<u8>(), any::<u8>()), 0..400),
        keeps_positions: bool,
    ) {
        let mut world = World {
            pump: Pump::new(OPTIONS, 7),
            now: Milliseconds(0),
            session: VecDeque::new(),
            given: 0,
            next: 1,
            keeps_positions,
            at_target: Vec::new(),
            letters: Vec::new(),
            asked: None,
        };
        world.take_actions();
        for (what, dice) in steps {
            world.step(what, dice);
        }
        world.pump.handle_pause(false, world.now);
        world.take_actions();
        for _ in 0..20 * world.next {
            world.give();
            world.answer(200);
            world.now = world.now.after(Milliseconds(80_000));
            world.pump.handle_deadline(world.now);
            world.take_actions();
        }
        prop_assert!(world.session.is_empty(), "{:?} is left", world.session);
        prop_assert_eq!(world.pump.waiting(), (0, 0));
        for sequence in 1..world.next {
            let at = |all: &[u64]| all.iter().filter(|one| **one == sequence).count();
            let (target, letters) = (at(&world.at_target), at(&world.letters));
            let is_refused = sequence.is_multiple_of(7) || is_refused_by_rule(sequence);
            let (is_letter, is_filtered) = (is_refused && !is_filtered(sequence), is_filtered(sequence));
            prop_assert_eq!(letters, usize::from(is_letter), "{}", sequence);
            let is_once = if is_letter || is_filtered { target == 0 } else { target >= 1 };
            prop_assert!(is_once, "{} is {} times there", sequence, target);
            prop_assert!(!keeps_positions || target <= 1, "{} is {} times there", sequence, target);
        }
    }
}
