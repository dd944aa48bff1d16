//! SUBSCRIBEs that wait until all live nodes know a route (P3), here and on behalf of other nodes.

use std::collections::{BTreeMap, VecDeque};

use route_exchange::{NodeId, ShardNumber};

/// How soon the leader of a shard is asked again, in ms: the question or its answer may be lost, and another
/// node may lead.
const ASK_AGAIN_MS: u64 = 300;

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiter {
    /// A question of an event loop of this node.
    Loop { index: usize, token: u64 },
    /// A question of another node.
    Node { node: NodeId, correlation_id: u64 },
}

/// Everybody who waits.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    /// For this node's routes up to a number, in the order of the numbers.
    own: VecDeque<(u64, Waiter)>,
    /// For the routes of shards that others lead, by the number of the question.
    asked: BTreeMap<u64, Asked>,
    last_question: u64,
}

/// A question to the leader of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) shard: ShardNumber,
    pub(crate) waiter: Waiter,
    leader: Option<NodeId>,
    at_ms: u64,
}

impl Barriers {
    /// Waits for the routes of this node up to a number; numbers do not fall.
    pub(crate) fn wait(&mut self, number: u64, waiter: Waiter) {
        self.own.push_back((number, waiter));
    }

    /// Takes out those who wait for no more than a number.
    pub(crate) fn passed(&mut self, number: u64) -> Vec<Waiter> {
        let passed = self.own.iter().take_while(|(n, _)| *n <= number).count();
        self.own.drain(..passed).map(|(_, waiter)| waiter).collect()
    }

    /// Takes note of a question to the leader of a shard, if there is one, and numbers it.
    pub(crate) fn ask(
        &mut self,
        shard: ShardNumber,
        waiter: Waiter,
        leader: Option<NodeId>,
        at_ms: u64,
    ) -> u64 {
        self.last_question += 1;
        let asked = Asked {
            shard,
            waiter,
            leader,
            at_ms,
        };
        self.asked.insert(self.last_question, asked);
        self.last_question
    }

    /// A leader has answered a question. An answer of somebody else does not count.
    pub(crate) fn answered(&mut self, from: NodeId, question: u64) -> Option<Waiter> {
        let asked = self.asked.get(&question)?;
        if asked.leader != Some(from) {
            return None;
        }
        Some(self.asked.remove(&question)?.waiter)
    }

    /// Takes out the questions that are to be asked again: those that have waited, and those whose shard
    /// another node leads by now.
    pub(crate) fn take_unanswered(
        &mut self,
        leader: impl Fn(ShardNumber) -> Option<NodeId>,
        now_ms: u64,
    ) -> Vec<Asked> {
        let is_due = |asked: &Asked| {
            now_ms >= asked.at_ms + ASK_AGAIN_MS || leader(asked.shard) != asked.leader
        };
        self.asked
            .extract_if(.., |_, asked| is_due(asked))
            .map(|(_, asked)| asked)
            .collect()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.own.len() + self.asked.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(token: u64) -> Waiter {
        Waiter::Loop { index: 0, token }
    }

    #[test]
    fn who_waits_goes_on_in_order() {
        let mut barriers = Barriers::default();
        for (number, token) in [(1, 1), (1, 2), (3, 3)] {
            barriers.wait(number, waiter(token));
        }
        assert!(barriers.passed(0).is_empty());
        assert_eq!(barriers.passed(2), [waiter(1), waiter(2)]);
        assert_eq!(barriers.passed(9), [waiter(3)]);
    }

    #[test]
    fn only_the_leader_that_was_asked_answers() {
        let mut barriers = Barriers::default();
        let question = barriers.ask(4, waiter(1), Some(7), 0);
        assert_eq!(barriers.answered(8, question), None);
        assert_eq!(barriers.answered(7, question), Some(waiter(1)));
        assert_eq!(barriers.answered(7, question), None);
    }

    #[test]
    fn a_question_is_asked_again_when_another_leads_or_it_has_waited() {
        let mut barriers = Barriers::default();
        let question = barriers.ask(4, waiter(1), Some(7), 0);
        assert!(
            barriers
                .take_unanswered(|_| Some(7), ASK_AGAIN_MS - 1)
                .is_empty()
        );
        assert_eq!(barriers.take_unanswered(|_| Some(8), 1).len(), 1);
        assert_eq!(barriers.answered(7, question), None);
        barriers.ask(4, waiter(1), Some(8), 1);
        assert_eq!(
            barriers
                .take_unanswered(|_| Some(8), 1 + ASK_AGAIN_MS)
                .len(),
            1
        );
        assert_eq!(barriers.len(), 0);
    }
}
