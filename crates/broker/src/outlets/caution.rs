//! What the node knows of processes of an outlet that have ended on a message.
//!
//! A rule that does not end, or takes all memory or the whole stack, ends its process, which cannot say on which message. So the next
//! process is careful: it tells before each evaluation which message it is for. If that one ends, too, the message is known, and
//! the processes after it refuse it without an evaluation.
//!
//! ```text
//! Trusting ─ ends abnormally ─► Careful ─ ends abnormally while it evaluates a message ─► Careful, and the message is refused
//!     ▲                            │
//!     └──── ends after a while ────┘
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use outlets::Caution;

/// The most messages that are known. A message is acknowledged before a careful process goes on to the next one, so a process meets few of them.
const MOST: usize = 64;

/// A careful process that has run for so long has evaluated what the one before it had read.
const PROVEN: Duration = Duration::from_secs(60);

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    /// As a process does that the node has ended, or that has said why it fails.
    Orderly,
    /// By a signal, or as one that a rule has taken too long in.
    Abnormal,
}

/// What is known. Begins without anything.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    is_careful: bool,
    /// The message that the process evaluates rules on.
    evaluating: Option<String>,
    refuse: VecDeque<String>,
}

impl Deaths {
    /// A process begins; what it is to be told.
    pub(super) fn handle_begin(&mut self) -> Caution {
        self.evaluating = None;
        Caution {
            is_careful: self.is_careful,
            refuse: self.refuse.iter().cloned().collect(),
        }
    }

    /// The process evaluates rules on the message at this position; `None`: on none.
    pub(super) fn handle_evaluating(&mut self, position: Option<String>) {
        self.evaluating = position;
    }

    /// The process, which has run for so long, has ended. Gives the position of the message that it ended on, if that is new.
    pub(super) fn handle_end(&mut self, manner: Manner, ran: Duration) -> Option<String> {
        let evaluating = self.evaluating.take();
        match manner {
            Manner::Orderly if ran >= PROVEN => {
                *self = Self::default();
                None
            }
            Manner::Orderly => None,
            Manner::Abnormal => {
                self.is_careful = true;
                let found = evaluating.filter(|found| !self.refuse.contains(found))?;
                if self.refuse.len() == MOST {
                    self.refuse.pop_front();
                }
                self.refuse.push_back(found.clone());
                Some(found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(5);

    #[derive(Clone, Copy, Debug)]
    enum Input {
        Evaluates(&'static str),
        EvaluatesNone,
        Abnormal,
        Orderly,
        OrderlyAfterLong,
    }
    use Input::{Abnormal, Evaluates, EvaluatesNone, Orderly, OrderlyAfterLong};

    /// What happens, and what the next process is told: whether it is careful, and what it refuses.
    const SCRIPTS: &[(&[Input], bool, &[&str])] = &[
        (&[], false, &[]),
        (&[Orderly], false, &[]),
        (&[Abnormal], true, &[]),
        // Between two evaluations, as when somebody kills it: no message is to blame.
        (
            &[Abnormal, Evaluates("1.1"), EvaluatesNone, Abnormal],
            true,
            &[],
        ),
        (&[Abnormal, Evaluates("1.1"), Abnormal], true, &["1.1"]),
        (
            &[
                Abnormal,
                Evaluates("1.1"),
                EvaluatesNone,
                Evaluates("1.2"),
                Abnormal,
            ],
            true,
            &["1.2"],
        ),
        (
            &[
                Abnormal,
                Evaluates("1.1"),
                Abnormal,
                Evaluates("1.2"),
                Abnormal,
            ],
            true,
            &["1.1", "1.2"],
        ),
        (
            &[
                Abnormal,
                Evaluates("1.1"),
                Abnormal,
                Evaluates("1.1"),
                Abnormal,
            ],
            true,
            &["1.1"],
        ),
        // It could not reach its target, say.
        (
            &[Abnormal, Evaluates("1.1"), Abnormal, Orderly],
            true,
            &["1.1"],
        ),
        (&[Abnormal, Evaluates("1.1"), Orderly], true, &[]),
        (
            &[Abnormal, Evaluates("1.1"), Abnormal, OrderlyAfterLong],
            false,
            &[],
        ),
        // What the process before evaluated says nothing of this one.
        (&[Abnormal, Evaluates("1.1"), Orderly, Abnormal], true, &[]),
    ];

    #[test]
    fn scripts_end_as_the_table_says() {
        for (script, is_careful, refuse) in SCRIPTS {
            let mut deaths = Deaths::default();
            deaths.handle_begin();
            for input in *script {
                let (manner, ran) = match *input {
                    Evaluates(position) => {
                        deaths.handle_evaluating(Some(position.to_owned()));
                        continue;
                    }
                    EvaluatesNone => {
                        deaths.handle_evaluating(None);
                        continue;
                    }
                    Abnormal => (Manner::Abnormal, SHORT),
                    Orderly => (Manner::Orderly, SHORT),
                    OrderlyAfterLong => (Manner::Orderly, PROVEN),
                };
                deaths.handle_end(manner, ran);
                deaths.handle_begin();
            }
            let told = deaths.handle_begin();
            assert_eq!(told.is_careful, *is_careful, "{script:?}");
            assert_eq!(told.refuse, *refuse, "{script:?}");
        }
    }

    #[test]
    fn only_the_latest_messages_are_known_and_each_is_found_once() {
        let mut deaths = Deaths::default();
        for number in 0..100 {
            deaths.handle_evaluating(Some(format!("1.{number}")));
            let found = deaths.handle_end(Manner::Abnormal, SHORT);
            assert_eq!(found, Some(format!("1.{number}")));
        }
        let refuse = deaths.handle_begin().refuse;
        assert_eq!(
            (refuse.len(), &*refuse[0], &*refuse[63]),
            (MOST, "1.36", "1.99")
        );
        deaths.handle_evaluating(Some("1.99".to_owned()));
        assert_eq!(deaths.handle_end(Manner::Abnormal, SHORT), None);
    }
}
