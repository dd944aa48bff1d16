//! What other nodes are told of a shard.

use std::time::Duration;

use store_state::CorrelationId;
use store_state::api::{ShardNumber, Slot, StoreId};

use crate::api::listener::Listener;
use crate::kinds::kind::Kind;
use crate::leadership::led_shards::LedShard;
use crate::peers::member::ShardId;
use crate::peers::message::Lead;
use crate::shard::handle::Shard;
use crate::shard::load::{Busyness, LoadScale, ShardLoad};
use crate::shard::request::{OVERHEAD, work};

/// Characters of a name that are told.
const NAME_CHARACTERS: usize = 128;

impl<M: Kind> LedShard for Shard<M> {
    fn lead(&self, receiver: u64) -> Option<Lead> {
        let hint = *self.routing.hint.borrow();
        let group = self.routing.group.borrow().clone()?;
        if hint.leader != self.routing.node {
            return None;
        }
        let standing = group.watch().borrow().clone();
        Some(Lead {
            store: M::STORE,
            shard: self.number,
            leadership_epoch: hint.leadership_epoch,
            voters: standing.members.voters.into_iter().flatten().collect(),
            learners: standing.members.learners,
            incarnation: self.look(|machine| machine.incarnation(receiver))?,
        })
    }

    fn load(&self) -> Option<(StoreId, ShardNumber, ShardLoad)> {
        let load = Self::load(self)?;
        (load != ShardLoad::default()).then_some((M::STORE, self.number, load))
    }

    fn candidate(&self) -> Option<(ShardId, Option<Busyness>)> {
        let is_here = self.routing.is_here();
        is_here.then(|| ((M::STORE, self.number), self.busyness()))
    }

    fn replica(&self) -> Option<StoreId> {
        self.look(|_| M::STORE)
    }

    fn names(&self, slot: Slot, most: usize) -> Vec<String> {
        // None: the store ends.
        let hash = self.shards().map(|shards| shards.hash());
        let has_slot = |name: &&str| hash.is_some_and(|hash| hash.slot_of(name) == slot.0);
        let names = self.look(|machine| {
            let names = machine.names().filter(has_slot);
            // Who asks shows them to people, and a name may have 60,000 bytes.
            names
                .map(|name| name.chars().take(NAME_CHARACTERS).collect())
                .collect()
        });
        let mut names: Vec<String> = names.unwrap_or_default();
        names.sort_unstable();
        names.truncate(most);
        names
    }

    fn counted(&self) -> Duration {
        self.cost().cpu()
    }

    fn roll_load(&self, scale: LoadScale) {
        Self::roll_load(self, scale);
    }

    fn restart_as(&self, incarnation: u64, listener: &dyn Listener) {
        self.refuse_fenced(listener);
        if let Some(op) = M::node_up(self.routing.node, incarnation, listener.now_ms()) {
            self.give(work(CorrelationId::NONE, op, true), OVERHEAD);
        }
    }
}
