//! Questions to the directories of other nodes (`directory.rs`).
//!
//! Invariant: a question that its leader has not answered for [`PATIENCE_MS`] is answered as if nobody led.

use std::collections::BTreeMap;

use peer_protocol::Registered;
use route_exchange::NodeId;
use store_state::api::{ShardNumber, ShardRefs};

use super::directory::Directory;
use super::takeovers::Waiter;

/// How long a CONNECT waits for the leader, in ms.
///
/// Limit: a CONNECT that waits for the directory of clients | {} | let in; if another node has the client, the older
/// connection is closed when the directory is back
const PATIENCE_MS: u64 = 1_000;

/// The directory of this node, and what it has asked others.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    pub(super) directory: Directory,
    asked: BTreeMap<u64, Asked>,
    last_question: u64,
    /// The leaders that were told of the clients here, with their terms.
    pub(super) told: BTreeMap<ShardNumber, (NodeId, u64)>,
    /// The session shards, as of the last look.
    pub(super) shards: ShardRefs,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) leader: NodeId,
    pub(super) at_ms: u64,
    pub(super) waiter: Waiter,
    /// The number of the connection, if nobody gives it a higher one.
    pub(super) number: u64,
}

impl Asked {
    pub(super) fn without_leader(self) -> (Waiter, Registered) {
        (self.waiter, Registered::alone(self.number))
    }
}

impl Registrations {
    /// `incarnation`: of this node; so no process hears what an earlier one was answered.
    pub(super) fn new(incarnation: u64) -> Self {
        Self {
            last_question: incarnation << 32,
            ..Self::default()
        }
    }

    pub(super) fn ask(&mut self, asked: Asked) -> u64 {
        self.last_question += 1;
        self.asked.insert(self.last_question, asked);
        self.last_question
    }

    pub(super) fn answered(&mut self, from: NodeId, question: u64) -> Option<Asked> {
        let is_it = |asked: &&Asked| asked.leader == from;
        self.asked.get(&question).filter(is_it)?;
        self.asked.remove(&question)
    }

    /// Those who have waited for too long; questions are numbered in their order.
    pub(super) fn take_unanswered(&mut self, now_ms: u64) -> Vec<Asked> {
        let mut unanswered = Vec::new();
        while let Some(first) = self.asked.first_entry()
            && now_ms >= first.get().at_ms + PATIENCE_MS
        {
            unanswered.push(first.remove());
        }
        for asked in &unanswered {
            self.tell_again(asked.leader);
        }
        unanswered
    }

    /// A node may not know which clients are here.
    pub(super) fn tell_again(&mut self, peer: NodeId) {
        self.told.retain(|_, (leader, _)| *leader != peer);
    }

    pub(super) fn take_asked_of(&mut self, leader: NodeId) -> Vec<Asked> {
        self.tell_again(leader);
        self.asked
            .extract_if(.., |_, asked| asked.leader == leader)
            .map(|(_, asked)| asked)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_answered_is_let_in() {
        let mut registrations = Registrations::default();
        let asked = |leader, at_ms| Asked {
            leader,
            at_ms,
            waiter: Waiter { index: 0, token: 1 },
            number: 5,
        };
        let first = registrations.ask(asked(7, 0));
        registrations.ask(asked(7, 1));
        registrations.ask(asked(8, 1));
        assert!(registrations.answered(8, first).is_none());
        assert_eq!(registrations.take_unanswered(PATIENCE_MS).len(), 1);
        assert!(registrations.answered(7, first).is_none());
        assert_eq!(registrations.take_asked_of(7).len(), 1);
        assert_eq!(registrations.take_unanswered(PATIENCE_MS + 1).len(), 1);
    }
}
