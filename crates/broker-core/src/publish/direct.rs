//! What the broker publishes, wills and messages of legacies, and sessions of this node have got directly.
//!
//! When the shard that keeps such a message gets another leader while the message is published, both leaders publish
//! it. Inboxes know it by its origin. So do nodes for the sessions that have no inbox: a node gives each message to
//! its connected sessions once, and once for each shared group to a member.
//!
//! Invariant: at most [`REMEMBERED`] messages are remembered, and the last half of that at least.
//!
//! Deliberately absent: the retain store, which has a memory of its own (`store-state`).

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;
use store_state::inbox::Origin;

/// Messages that are remembered, each once and once more for each shared group: 3 MiB. Beyond that the older half is
/// forgotten: should another leader publish one of these now, sessions that have no inbox get it a second time.
///
/// Limit: what a node remembers of wills and legacies that its connected sessions have got | {} | the older half is
/// forgotten: published again by another leader, they reach clean sessions twice
pub(crate) const REMEMBERED: usize = 131_072;

/// What sessions of this node have got.
#[derive(Debug, Default)]
pub struct Direct(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// Hashes by a key that nobody else knows: clients cannot choose names that collide.
    hasher: RandomState,
    newer: HashSet<u64>,
    older: HashSet<u64>,
}

impl Direct {
    /// A message is about to be given to the sessions that match, or to a member of a group, by the filter of its
    /// SUBSCRIBE. False: they have got it.
    pub(crate) fn begin(&self, origin: &Origin, group: Option<&str>) -> bool {
        self.0.lock().begin(origin, group)
    }

    /// How many are remembered.
    pub fn remembered(&self) -> usize {
        let remembered = self.0.lock();
        remembered.newer.len() + remembered.older.len()
    }
}

impl Remembered {
    fn begin(&mut self, origin: &Origin, group: Option<&str>) -> bool {
        let mark = self.hasher.hash_one((origin, group));
        if self.newer.contains(&mark) {
            return false;
        }
        let is_first = !self.older.remove(&mark);
        if self.newer.len() >= REMEMBERED / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(mark);
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn will(epoch: u64) -> Origin {
        Origin {
            client: "\0client".into(),
            incarnation: epoch,
            packet_id: 0,
        }
    }

    #[test]
    fn sessions_and_each_group_get_a_message_once() {
        let direct = Direct::default();
        for group in [None, Some("$share/a/t"), Some("$share/b/t")] {
            assert!(direct.begin(&will(1), group), "{group:?}");
            assert!(!direct.begin(&will(1), group), "{group:?}");
        }
        assert!(direct.begin(&will(2), None));
        assert_eq!(direct.remembered(), 4);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_is_published_again_is_known_longer() {
        let direct = Direct::default();
        let count = REMEMBERED as u64;
        for epoch in 0..2 * count {
            assert!(direct.begin(&will(epoch), None));
            assert!(!direct.begin(&will(0), None), "{epoch}");
            assert!(direct.remembered() <= REMEMBERED);
        }
        let last = 2 * count - 1;
        assert!(!direct.begin(&will(last), None));
        assert!(!direct.begin(&will(last - count / 2 + 2), None));
        assert!(direct.begin(&will(1), None));
    }
}
