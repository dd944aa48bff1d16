//! What other nodes have been asked to close (`takeover.rs`).
//!
//! Invariant: a question is open until it is answered, or nothing is left of the process that was asked.

use std::collections::{BTreeMap, BTreeSet};

use peer_protocol::{Older, Takeover};
use route_exchange::NodeId;

/// Questions that nodes which are down have not answered. Beyond that the oldest is forgotten: should its
/// node come back without having been taken for dead, the older connection stays open, and the store refuses
/// what it does.
///
/// Limit: older connections that nodes which are down are to close when they are back | {} | the oldest is forgotten;
/// the store refuses what it does
const OWED: usize = 100_000;

/// A question of an event loop of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiter {
    pub(super) index: usize,
    pub(super) token: u64,
}

#[derive(Debug)]
pub(super) struct Question {
    pub(super) node: NodeId,
    pub(super) what: Older,
}

/// What other nodes have been asked to close.
#[derive(Debug, Default)]
pub(super) struct Takeovers {
    asked: BTreeMap<u64, (Question, Waiter)>,
    /// To nodes that are down; nobody waits.
    owed: BTreeMap<u64, Question>,
    last_question: u64,
    down: BTreeSet<NodeId>,
}

impl Takeovers {
    /// `incarnation`: of this node; so no process hears what an earlier one was answered.
    pub(super) fn new(incarnation: u64) -> Self {
        Self {
            last_question: incarnation << 32,
            ..Self::default()
        }
    }

    /// Takes note of a question, and numbers it; and whether the answer is waited for.
    pub(super) fn ask(&mut self, question: Question, waiter: Waiter) -> (u64, bool) {
        let number = self.next();
        let is_up = !self.down.contains(&question.node);
        if is_up {
            self.asked.insert(number, (question, waiter));
        } else {
            self.owe(number, question);
        }
        (number, is_up)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.last_question += 1;
        self.last_question
    }

    pub(super) fn owe(&mut self, number: u64, question: Question) {
        self.owed.insert(number, question);
        if self.owed.len() > OWED {
            self.owed.pop_first();
        }
    }

    /// A node has answered; an answer of somebody else does not count. Who waits for it goes on.
    pub(super) fn answered(&mut self, from: NodeId, number: u64) -> Option<Waiter> {
        self.owed
            .extract_if(number..=number, |_, question| question.node == from)
            .for_each(drop);
        let mut answered = self
            .asked
            .extract_if(number..=number, |_, (question, _)| question.node == from);
        answered.next().map(|(_, (_, waiter))| waiter)
    }

    /// What a node has not answered yet.
    pub(super) fn open(&self, node: NodeId) -> Vec<Takeover> {
        let asked = self.asked.iter().map(|(n, (question, _))| (n, question));
        asked
            .chain(&self.owed)
            .filter(|(_, question)| question.node == node)
            .map(|(number, question)| Takeover::Close {
                correlation_id: *number,
                what: question.what.clone(),
            })
            .collect()
    }

    /// Nobody waits for the answers to these questions any more. They stay open, as those to nodes that are down.
    pub(super) fn stop_awaiting(&mut self, questions: &[u64]) {
        for number in questions {
            if let Some((question, _)) = self.asked.remove(number) {
                self.owe(*number, question);
            }
        }
    }

    /// Nothing is left of a process of a node: who waits for it goes on.
    pub(super) fn gone(&mut self, node: NodeId) -> Vec<Waiter> {
        self.owed.retain(|_, question| question.node != node);
        self.asked
            .extract_if(.., |_, (question, _)| question.node == node)
            .map(|(_, (_, waiter))| waiter)
            .collect()
    }

    /// Which nodes are down: who waits for them goes on.
    pub(super) fn down(&mut self, down: BTreeSet<NodeId>) -> Vec<Waiter> {
        self.down = down;
        let unanswered: Vec<_> = self
            .asked
            .extract_if(.., |_, (question, _)| self.down.contains(&question.node))
            .collect();
        let mut waiters = Vec::with_capacity(unanswered.len());
        for (number, (question, waiter)) in unanswered {
            self.owe(number, question);
            waiters.push(waiter);
        }
        waiters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITER: Waiter = Waiter { index: 1, token: 2 };

    fn question(node: NodeId) -> Question {
        Question {
            node,
            what: Older {
                client: "c".into(),
                epoch: 5,
                number: 6,
                resumes: true,
            },
        }
    }

    #[test]
    fn only_the_node_that_was_asked_answers_and_only_once() {
        let mut takeovers = Takeovers::new(3);
        let (number, is_waited_for) = takeovers.ask(question(7), WAITER);
        assert!(is_waited_for);
        assert_eq!(number >> 32, 3, "of this process");
        assert_eq!(takeovers.answered(8, number), None);
        assert_eq!(takeovers.answered(7, number + 1), None);
        assert_eq!(takeovers.answered(7, number), Some(WAITER));
        assert_eq!(takeovers.answered(7, number), None);
        assert!(takeovers.open(7).is_empty());
    }

    #[test]
    fn a_node_that_is_down_is_not_waited_for_but_asked_when_it_is_back() {
        let mut takeovers = Takeovers::new(1);
        let (first, _) = takeovers.ask(question(7), WAITER);
        takeovers.ask(question(8), WAITER);
        assert_eq!(takeovers.down([7].into()), [WAITER]);
        let (second, is_waited_for) = takeovers.ask(question(7), WAITER);
        assert!(!is_waited_for);
        assert_eq!(takeovers.down([].into()), []);
        assert_eq!(takeovers.open(7).len(), 2);
        assert_eq!(takeovers.open(8).len(), 1);
        assert_eq!(takeovers.answered(7, first), None);
        assert_eq!(takeovers.answered(7, second), None);
        assert!(takeovers.open(7).is_empty());
    }

    #[test]
    fn a_node_that_is_too_busy_is_waited_for_no_longer_but_asked_still() {
        let mut takeovers = Takeovers::new(1);
        let (number, _) = takeovers.ask(question(7), WAITER);
        takeovers.stop_awaiting(&[number, number + 1]);
        assert_eq!(takeovers.open(7).len(), 1);
        assert_eq!(takeovers.answered(7, number), None);
        assert!(takeovers.open(7).is_empty());
    }

    #[test]
    fn nothing_is_asked_of_a_process_that_is_gone() {
        let mut takeovers = Takeovers::new(1);
        takeovers.ask(question(7), WAITER);
        takeovers.ask(question(8), WAITER);
        takeovers.down([8].into());
        assert_eq!(takeovers.gone(7), [WAITER]);
        assert_eq!(takeovers.gone(8), []);
        assert!(takeovers.open(7).is_empty() && takeovers.open(8).is_empty());
    }

    #[test]
    fn what_is_owed_is_bounded() {
        let mut takeovers = Takeovers::new(1);
        takeovers.down([7].into());
        for _ in 0..=OWED {
            takeovers.ask(question(7), WAITER);
        }
        assert_eq!(takeovers.open(7).len(), OWED);
    }
}
