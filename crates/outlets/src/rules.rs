//! The rules of an outlet in its process, and what holds them in bounds.
//!
//! A rule can run for ever, take all memory, or overflow the stack, and no code of this process stops it then. So the process ends: by the
//! watchdog after [`LONGEST`] of CPU time, by the allocator at the limit of its memory, or by the system. Its node starts a
//! careful one ([`Caution`]), which says before each evaluation which message it is for, so that the node knows on which one
//! it has ended. The next process refuses this message without evaluating the rules on it.
//!
//! A careful process evaluates nothing while a refused message waits for its dead letter or its acknowledgement: otherwise it might
//! end on a later message each time before any of those is acknowledged, and the node would have to know ever more of them.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outlet::{Item, Position};
use outlet_rules::{Rules, Verdict};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::command::Caution;
use crate::definition::Definition;
use crate::watchdog::Watchdog;

/// CPU time that the rules may take for one message.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// How the process ends when they take longer.
pub const TOO_LONG_EXIT: i32 = 3;

/// Address space of a process with rules beside what it reads ahead and a batch, in bytes: threads, the allocator, libraries, and
/// what a rule makes of a message.
const ADDRESS_SPACE: u64 = 1 << 30;

/// How long a process is careful. By then it has evaluated what the one before it had read.
const CAREFUL: Duration = Duration::from_secs(60);

/// Why a message is refused that a rule has ended a process on.
const DID_NOT_END: &str = "the rule did not end on it";

/// What a message waits for that is not judged yet.
pub(crate) enum Next {
    /// None waits.
    None,
    /// Messages before it.
    Held,
    /// It can be judged. With a position, the node is to be told of it first.
    Ready(Box<Item>, Option<Position>),
}

/// The rules, and the messages that wait for them.
#[derive(Debug)]
pub(crate) struct Gate {
    rules: Option<(Rules, Watchdog)>,
    refuse: HashSet<Position>,
    careful_until: Option<Instant>,
    waiting: VecDeque<Box<Item>>,
}

impl Gate {
    /// Compiles the rules; if there are any, bounds the memory of this process, and starts the watchdog.
    pub(crate) fn new(
        definition: &Definition,
        caution: &Caution,
        now: Instant,
    ) -> Result<Self, String> {
        let rules = match definition.rules.compile()? {
            Some(rules) => {
                let limited = limit(definition).map_err(|error| error.to_string());
                limited.map_err(|why| format!("the memory cannot be limited: {why}"))?;
                let watchdog = Watchdog::start(LONGEST, TOO_LONG_EXIT);
                let watchdog = watchdog.map_err(|error| format!("no thread: {error}"))?;
                Some((rules, watchdog))
            }
            None => None,
        };
        let refuse = caution.refuse.iter();
        Ok(Self {
            rules,
            refuse: refuse
                .filter_map(|position| position.parse().ok())
                .collect(),
            careful_until: caution.is_careful.then(|| now + CAREFUL),
            waiting: VecDeque::new(),
        })
    }

    /// A message of the session.
    pub(crate) fn handle_item(&mut self, item: Box<Item>) {
        self.waiting.push_back(item);
    }

    /// Whether messages wait here.
    pub(crate) fn holds(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next message to be judged. `is_settled`: no message that a rule refuses waits for its dead letter or its acknowledgement.
    pub(crate) fn next(&mut self, is_settled: bool, now: Instant) -> Next {
        let is_careful = self.careful_until.is_some_and(|until| now < until);
        if is_careful && !is_settled && self.holds() {
            return Next::Held;
        }
        match self.waiting.pop_front() {
            Some(item) => {
                let told = item.position.filter(|_| is_careful && self.rules.is_some());
                Next::Ready(item, told)
            }
            None => Next::None,
        }
    }

    /// What becomes of a message.
    pub(crate) fn judge(&self, item: &Item) -> Verdict {
        let Some((rules, watchdog)) = &self.rules else {
            return Verdict::Unchanged;
        };
        if item
            .position
            .is_some_and(|position| self.refuse.contains(&position))
        {
            return Verdict::Refused(Arc::from(DID_NOT_END));
        }
        watchdog.watch(|| rules.judge(item))
    }
}

/// Bounds the address space of this process, and has it leave no core file: it may end often.
fn limit(definition: &Definition) -> io::Result<()> {
    let most = (definition.memory.0)
        .saturating_add(definition.batch_bytes.0)
        .saturating_add(ADDRESS_SPACE);
    for (resource, most) in [(Resource::As, most), (Resource::Core, 0)] {
        let maximum = getrlimit(resource).maximum;
        let most = maximum.map_or(most, |maximum| most.min(maximum));
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use outlet::{Incarnation, Milliseconds, Sequence, StandardProperties};

    use super::*;
    use crate::rule_texts::RuleTexts;

    fn item(sequence: u64) -> Box<Item> {
        let position = Position {
            incarnation: Incarnation(1),
            sequence: Sequence(sequence),
        };
        Box::new(Item {
            position: (sequence > 0).then_some(position),
            topic: "a".into(),
            payload: Bytes::from_static(b"1"),
            qos: 1,
            retain: false,
            received: Milliseconds(0),
            properties: Vec::new(),
            standard: StandardProperties::default(),
        })
    }

    fn gate(is_careful: bool, refuse: &[&str], now: Instant) -> Gate {
        let texts = RuleTexts {
            condition: Some(".json == 1".to_owned()),
            map: None,
        };
        let refuse = refuse.iter();
        Gate {
            rules: texts
                .compile()
                .unwrap()
                .map(|rules| (rules, Watchdog::start(LONGEST, TOO_LONG_EXIT).unwrap())),
            refuse: refuse.map(|position| position.parse().unwrap()).collect(),
            careful_until: is_careful.then(|| now + CAREFUL),
            waiting: VecDeque::new(),
        }
    }

    /// What waits next, shortly.
    fn next(gate: &mut Gate, is_settled: bool, now: Instant) -> String {
        match gate.next(is_settled, now) {
            Next::None => "none".to_owned(),
            Next::Held => "held".to_owned(),
            Next::Ready(_, None) => "ready".to_owned(),
            Next::Ready(_, Some(position)) => format!("tell {position}"),
        }
    }

    #[test]
    fn a_careful_process_tells_of_each_message_and_waits_for_those_that_are_refused() {
        let now = Instant::now();
        let mut gate = gate(true, &[], now);
        for sequence in [1, 2, 0, 3] {
            gate.handle_item(item(sequence));
        }
        assert_eq!(next(&mut gate, true, now), "tell 1.1");
        assert_eq!(next(&mut gate, false, now), "held");
        assert_eq!(next(&mut gate, true, now), "tell 1.2");
        // Nobody gives it again: the node need not know of it.
        assert_eq!(next(&mut gate, true, now), "ready");
        assert_eq!(next(&mut gate, false, now + CAREFUL), "ready");
        assert_eq!(next(&mut gate, false, now), "none");
    }

    #[test]
    fn a_process_that_is_not_careful_waits_for_nothing() {
        let now = Instant::now();
        let mut gate = gate(false, &[], now);
        gate.handle_item(item(1));
        assert_eq!(next(&mut gate, false, now), "ready");
        assert!(!gate.holds());
    }

    #[test]
    fn a_message_that_a_process_has_ended_on_is_refused_without_an_evaluation() {
        let gate = gate(true, &["1.2"], Instant::now());
        assert_eq!(gate.judge(&item(1)), Verdict::Unchanged);
        assert_eq!(gate.judge(&item(2)), Verdict::Refused(DID_NOT_END.into()));
    }
}
