//! What the store itself waits for: requests that several shards carry out together, and barriers of gates.
//!
//! Invariant: whoever asked is answered once, when all shards have answered.
//!
//! Deliberately absent: requests to a single shard, whose answers go to whoever asked.

use std::collections::HashMap;

use store_state::CorrelationId;
use store_state::api::{Event, ShardNumber};

/// What the store waits for, by the tokens of its own.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    last: Token,
    waiting: HashMap<Token, Awaited>,
}

/// A number that is used once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Token(u64);

#[derive(Debug)]
enum Awaited {
    /// Several shards are to answer.
    Answers {
        correlation_id: CorrelationId,
        /// Of those that have.
        answer: Option<Event>,
        missing: Missing,
    },
    /// All that was asked of a shard before another one was split off it.
    Gate { child: ShardNumber },
}

/// Answers that have not come yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Missing(usize);

/// What an answer brings about.
#[derive(Debug)]
pub(crate) enum Joined {
    /// More are to come.
    Waiting,
    /// Nobody waits for it.
    Stale,
    /// All have answered.
    Answer(CorrelationId, Event),
    /// The shard can be given what waits at its gate; if not `is_passed`, what was to be done before it was refused.
    Gate { child: ShardNumber, is_passed: bool },
}

impl Joins {
    /// So many shards are asked together; returns whom they are to answer. If nobody waits, they answer nobody.
    pub(crate) fn join(&mut self, correlation_id: CorrelationId, count: usize) -> CorrelationId {
        if correlation_id == CorrelationId::NONE {
            return CorrelationId::NONE;
        }
        self.wait(Awaited::Answers {
            correlation_id,
            answer: None,
            missing: Missing(count),
        })
    }

    /// A shard is to answer before what waits at the gate of another one is done.
    pub(crate) fn wait_at_gate(&mut self, child: ShardNumber) -> CorrelationId {
        self.wait(Awaited::Gate { child })
    }

    fn wait(&mut self, awaited: Awaited) -> CorrelationId {
        self.last.0 += 1;
        self.waiting.insert(self.last, awaited);
        CorrelationId {
            peer: 0,
            loop_number: CorrelationId::STORE,
            token: self.last.0,
        }
    }

    /// A shard has answered.
    pub(crate) fn answered(&mut self, mut event: Event) -> Joined {
        let token = event.token_mut().map(|token| Token(*token));
        let Some(awaited) = token.and_then(|token| self.waiting.remove(&token).zip(Some(token)))
        else {
            return Joined::Stale;
        };
        match awaited {
            (Awaited::Gate { child }, _) => Joined::Gate {
                child,
                is_passed: matches!(event, Event::Passed { .. }),
            },
            (
                Awaited::Answers {
                    correlation_id,
                    answer,
                    missing,
                },
                token,
            ) => {
                let answer = match answer {
                    Some(earlier) => earlier.merge(event),
                    None => event,
                };
                if missing.0 <= 1 {
                    return Joined::Answer(correlation_id, answer);
                }
                let awaited = Awaited::Answers {
                    correlation_id,
                    answer: Some(answer),
                    missing: Missing(missing.0 - 1),
                };
                self.waiting.insert(token, awaited);
                Joined::Waiting
            }
        }
    }

    /// How many requests and gates wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use store_state::api::Failure;
    use store_state::inbox::InboxReply;

    use super::*;

    const LOOP: CorrelationId = CorrelationId {
        peer: 0,
        loop_number: 3,
        token: 77,
    };

    fn published(token: u64, matched: u32) -> Event {
        Event::Inbox {
            token,
            reply: InboxReply::Published {
                matched,
                refused: 1,
                pressing: 0,
            },
        }
    }

    #[test]
    fn a_request_is_answered_when_all_shards_have() {
        let mut joins = Joins::default();
        let id = joins.join(LOOP, 3);
        assert_eq!(id.loop_number, CorrelationId::STORE);
        for matched in [2, 0] {
            let joined = joins.answered(published(id.token, matched));
            assert!(matches!(joined, Joined::Waiting));
        }
        let Joined::Answer(LOOP, Event::Inbox { reply, .. }) =
            joins.answered(published(id.token, 5))
        else {
            panic!("all have answered");
        };
        assert_eq!(
            reply,
            InboxReply::Published {
                matched: 7,
                refused: 3,
                pressing: 0
            }
        );
        assert_eq!(joins.len(), 0);
        assert!(matches!(
            joins.answered(published(id.token, 1)),
            Joined::Stale
        ));
        assert!(matches!(joins.answered(Event::Fenced), Joined::Stale));
    }

    #[test]
    fn what_one_shard_did_not_do_was_not_done() {
        let mut joins = Joins::default();
        for order in [[0, 1], [1, 0]] {
            let id = joins.join(LOOP, 2);
            let answers = order.map(|n| match n {
                0 => published(id.token, 1),
                _ => Event::failed(Failure::Stopped)(id.token),
            });
            let [_, last] = answers.map(|answer| joins.answered(answer));
            assert!(matches!(
                last,
                Joined::Answer(
                    LOOP,
                    Event::Failed {
                        failure: Failure::Stopped,
                        ..
                    }
                )
            ));
        }
    }

    #[test]
    fn nobody_is_told_what_nobody_waits_for() {
        let mut joins = Joins::default();
        assert_eq!(joins.join(CorrelationId::NONE, 2), CorrelationId::NONE);
        let gate = joins.wait_at_gate(40);
        assert_eq!(joins.len(), 1);
        let joined = joins.answered(Event::passed(gate.token));
        assert!(matches!(
            joined,
            Joined::Gate {
                child: 40,
                is_passed: true
            }
        ));
        let gate = joins.wait_at_gate(40);
        let joined = joins.answered(Event::failed(Failure::Stopped)(gate.token));
        assert!(matches!(
            joined,
            Joined::Gate {
                is_passed: false,
                ..
            }
        ));
    }
}
