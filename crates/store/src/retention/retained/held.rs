//! What the rules of retained messages have on a node.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use store_state::api::ShardNumber;
use store_state::retain::RetainedAmount;
use tokio::time::Instant;

/// What the replicas of this node have found.
#[derive(Debug, Default)]
pub(crate) struct HeldRetained {
    shards: Mutex<BTreeMap<ShardNumber, ShardRetained>>,
}

/// What the rules have in one shard, in their order.
#[derive(Clone, Debug)]
pub(crate) struct ShardRetained {
    pub(super) rules: Vec<RuleTotals>,
    pub(super) looked_at: Instant,
}

/// Messages of a rule, and bytes accounted for them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct RuleTotals {
    pub(crate) messages: RetainedAmount,
    pub(crate) bytes: RetainedAmount,
}

impl RuleTotals {
    /// Those of one message.
    pub(super) fn one(bytes: RetainedAmount) -> Self {
        Self {
            messages: RetainedAmount(1),
            bytes,
        }
    }
}

impl std::ops::Add for RuleTotals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            messages: self.messages.plus(other.messages),
            bytes: self.bytes.plus(other.bytes),
        }
    }
}

/// What a rule has on the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct HeldByRule {
    /// In all replicas.
    pub(super) all: RuleTotals,
    /// In those of shards with lower numbers.
    pub(super) below: RuleTotals,
}

/// A shard that is looked at: when it is not any more, nothing is held of it.
pub(super) struct Looked<'a> {
    pub(super) held: &'a HeldRetained,
    pub(super) shard: ShardNumber,
}

impl Drop for Looked<'_> {
    fn drop(&mut self) {
        self.held.remove(self.shard);
    }
}

impl HeldRetained {
    pub(super) fn put(&self, shard: ShardNumber, found: ShardRetained) {
        self.shards.lock().insert(shard, found);
    }

    pub(super) fn remove(&self, shard: ShardNumber) {
        self.shards.lock().remove(&shard);
    }

    /// What the rule at a place has in all replicas that are kept here, seen from one of them. `None`: one of them was not looked
    /// at since this time.
    pub(super) fn rule_since(
        &self,
        time: Instant,
        place: usize,
        shard: ShardNumber,
    ) -> Option<HeldByRule> {
        let shards = self.shards.lock();
        let mut held = HeldByRule::default();
        for (number, found) in &*shards {
            if found.looked_at < time {
                return None;
            }
            let of = found.rules.get(place).copied().unwrap_or_default();
            held.all = held.all + of;
            if *number < shard {
                held.below = held.below + of;
            }
        }
        Some(held)
    }
}
