//! Replicas that begin at an earlier level, and are raised while a run goes on: the seed decides from which, and when.
//!
//! Each leader is asked again and again, as a node that looks once a second does, until no replica is below.

use consensus::simulation::Chance;
use store::Store;
use store_state::Level;

/// The time within which the raise begins, in ms.
const BEGIN_WITHIN: usize = 12_000;

/// How often leaders are asked, in ms.
const ASK_AGAIN: u64 = 1_000;

/// The level of a run.
#[derive(Clone, Copy)]
pub(crate) struct Levels {
    /// That of a new data folder.
    pub(crate) begin: Level,
    /// When nodes begin to raise their shards, and when they are asked next, in ms of the run; `None`: never.
    asked: Option<Next>,
}

/// A time, in ms of the run.
#[derive(Clone, Copy)]
struct Next(u64);

impl Default for Levels {
    fn default() -> Self {
        Self {
            begin: Level::NEWEST,
            asked: None,
        }
    }
}

impl Levels {
    /// Begins at level 2 or 3, as the seed says.
    pub(crate) fn earlier(chance: &mut Chance) -> Self {
        Self {
            begin: [Level::UNGATED, Level::SPLITS][chance.below(2)],
            asked: None,
        }
    }

    /// Draws when the shards are raised, from `now` on. Returns what is to be noted.
    pub(crate) fn plan(&mut self, chance: &mut Chance, now: u64) -> String {
        let at = now + chance.below(BEGIN_WITHIN) as u64;
        self.asked = Some(Next(at));
        format!("shards are raised from level {} from {at} on", self.begin)
    }

    /// Whether the nodes raise their shards now.
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        let is_due = self.asked.is_some_and(|next| next.0 <= now);
        if is_due {
            self.asked = Some(Next(now + ASK_AGAIN));
        }
        is_due
    }

    /// Whether all replicas are at the newest level, if they are to be.
    pub(crate) fn are_done(&self, stores: &[&Store]) -> Result<(), String> {
        for store in stores {
            let below = store.replicas().into_iter();
            let mut below = below.filter(|replica| replica.level < Level::NEWEST);
            if let Some(replica) = below.next().filter(|_| self.asked.is_some()) {
                return Err(format!(
                    "shard {} of the {} store is at level {} on node {}",
                    replica.shard,
                    replica.store.name(),
                    replica.level,
                    store.node()
                ));
            }
        }
        Ok(())
    }
}
