//! A shard as other nodes are told of it.
//!
//! Purpose: threads know their shards of all three stores by this trait.

use std::sync::Arc;

use parking_lot::RwLock;
use store_state::CorrelationId;
use store_state::api::{ShardNumber, StoreId};

use crate::api::listener::Listener;
use crate::kinds::kind::Kind;
use crate::peers::message::Lead;
use crate::shard::handle::Shard;
use crate::shard::load::ShardLoad;
use crate::shard::request::{OVERHEAD, work};

/// A shard, as far as other nodes are told of it.
pub(crate) trait LedShard: Send + Sync {
    /// What to tell a node, if this one leads the shard.
    fn lead(&self, receiver: u64) -> Option<Lead>;

    /// Its load, if this node leads it and it has any.
    fn load(&self) -> Option<(StoreId, ShardNumber, ShardLoad)>;

    /// This node goes on as a new process would: what it had connected is closed.
    fn restart_as(&self, incarnation: u64, listener: &dyn Listener);
}

/// All shards of the three stores that this node knows of.
#[derive(Default)]
pub(crate) struct LedShards(RwLock<Vec<Arc<dyn LedShard>>>);

impl LedShards {
    pub(crate) fn add(&self, shard: Arc<dyn LedShard>) {
        self.0.write().push(shard);
    }

    /// Those of now.
    pub(crate) fn all(&self) -> Vec<Arc<dyn LedShard>> {
        self.0.read().clone()
    }
}

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

    fn restart_as(&self, incarnation: u64, listener: &dyn Listener) {
        self.refuse_fenced(listener);
        if let Some(op) = M::node_up(self.routing.node, incarnation, listener.now_ms()) {
            self.give(work(CorrelationId::NONE, op, true), OVERHEAD);
        }
    }
}
