//! The shards of one store: how a request finds its shard.
//!
//! Invariant: a request goes to the shard of its number; one that names no shard of the store is counted as refused.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use consensus::{CatchUp, Group};
use store_state::api::{ShardNumber, ShardRef, ShardRefs, Slot};
use store_state::{ChildShard, CorrelationId, Level, SlotRange};

use crate::api::catching_up::CatchingUpShards;
use crate::api::damaged::DamagedReplica;
use crate::api::levels::{LeveledShards, ReplicaFault};
use crate::api::listener::Listener;
use crate::api::shard_info::ShardInfo;
use crate::api::split::{SplitError, SplitId, check_replicas};
use crate::api::stats::ShardStats;
use crate::kinds::command::{Command, Split};
use crate::kinds::kind::Kind;
use crate::leadership::state::LeaderHint;
use crate::peers::known::KnownPeers;
use crate::peers::message::{Lead, Mail};
use crate::shard::handle::Shard;
use crate::shard::request::{weigh, work};
use crate::shard::shards::{Ask, Given, Shards};
use crate::shard::work::Work;
use crate::storage::digest::Holds;
use crate::storage::snapshot::TableOwner as _;

/// The shards of one store.
pub(super) struct ShardSet<M: Kind> {
    pub(super) shards: Arc<Shards<M>>,
    /// Set by whoever gives a shard over its limit of any store more; cleared by
    /// [`Store::is_over_limit`](crate::Store::is_over_limit).
    pub(super) over_limit: Arc<AtomicBool>,
    /// Requests for shards that the store does not have.
    pub(super) misrouted: AtomicU64,
}

impl<M: Kind> ShardSet<M> {
    pub(super) fn of(&self, name: &str) -> ShardNumber {
        self.shards.of_slot(self.shards.hash().slot_of(name))
    }

    /// The shards as they are known now, in the order of their slots.
    pub(super) fn refs(&self) -> ShardRefs {
        self.shards.load().refs().clone()
    }

    /// A request names a shard that the store does not have. Routes and places among retained messages come from other nodes
    /// too, so that this is no broken invariant; there is no queue in which the request could wait for its refusal.
    fn count_misrouted(&self) {
        self.misrouted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn put(&self, shard: ShardNumber, work: Work<M::Op>, bytes: usize) {
        let known = self.shards.load();
        let Some(place) = known.get(shard, self.shards.base()) else {
            return self.count_misrouted();
        };
        place.shard.give(work, bytes);
        self.look_at(&place.shard);
    }

    /// Says so if a shard that was given something is over its limit.
    pub(super) fn look_at(&self, shard: &Shard<M>) {
        if shard.is_over_limit() {
            self.over_limit.store(true, Ordering::Release);
        }
    }

    /// Gives a request to the shard of its slot.
    pub(super) fn ask(&self, correlation_id: CorrelationId, op: M::Op) {
        self.give(None, correlation_id, op, false);
    }

    /// As [`ask`](Self::ask), for what nobody waits for, and can wait a little.
    pub(super) fn tell_patiently(&self, op: M::Op) {
        self.give(None, CorrelationId::NONE, op, true);
    }

    /// Gives a request that concerns all slots of a shard to that, or to all that have these slots by now; one that has a
    /// slot to the shard of that.
    pub(super) fn ask_all(&self, shard: ShardRef, correlation_id: CorrelationId, op: M::Op) {
        self.give(Some(shard), correlation_id, op, false);
    }

    fn give(
        &self,
        shard: Option<ShardRef>,
        correlation_id: CorrelationId,
        op: M::Op,
        is_patient: bool,
    ) {
        let must_wait = M::must_wait(&op, correlation_id);
        let bytes = weigh(&op);
        if let Some(slot) = M::slot(&op, self.shards.hash()) {
            let work = work(correlation_id, op, must_wait);
            return self.count(self.shards.give_to_slot(slot, work, bytes, is_patient));
        }
        let ask = Ask::Propose {
            op,
            must_wait,
            is_patient,
        };
        debug_assert!(shard.is_some(), "a request for no slot names a shard");
        self.count(shard.map_or(Given::Nowhere, |shard| {
            self.shards.give_to_all(shard, correlation_id, ask, bytes)
        }));
    }

    fn count(&self, given: Given) {
        match given {
            Given::Taken => {}
            Given::OverLimit => self.over_limit.store(true, Ordering::Release),
            Given::Nowhere => self.count_misrouted(),
        }
    }

    /// Has all shards that have the slots by now answer when all is done that they were given before.
    pub(super) fn barrier(&self, shards: &[ShardRef], correlation_id: CorrelationId) {
        for shard in shards {
            self.count(
                self.shards
                    .give_to_all(*shard, correlation_id, Ask::Barrier, 0),
            );
        }
    }

    pub(super) fn begin(&self, listener: &dyn Listener) {
        for shard in self.shards.load().iter() {
            shard.begin(listener);
        }
    }

    pub(super) fn is_over_limit(&self) -> bool {
        self.shards.load().iter().any(|shard| shard.is_over_limit())
    }

    pub(super) fn stats(&self) -> ShardStats {
        let mut sum = ShardStats {
            refused: self.misrouted.load(Ordering::Relaxed),
            joined: self.shards.joined(),
            ..ShardStats::default()
        };
        for shard in self.shards.load().iter() {
            let stats = &shard.stats;
            sum.shards += 1;
            let is_alone = shard.routing.peers.is_none();
            // In a cluster a node has no replica of most shards. Of a replica that cannot be used, a fault is noted.
            let has_replica = is_alone && !M::BEGINS_LATER || shard.fault.get().is_some();
            let is_hurt = stats.is_hurt.load(Ordering::Relaxed);
            let is_closed = has_replica && shard.look(|_| ()).is_none();
            sum.stopped += u64::from(is_closed && !is_hurt);
            sum.damaged.hurt.0 += u64::from(is_hurt);
            sum.damaged.mended.0 += stats.mended.load(Ordering::Relaxed);
            let group = shard.routing.group.borrow();
            let is_below_floor = group.as_ref().is_some_and(|group| group.is_below_floor());
            sum.below_floor.0 += u64::from(is_below_floor);
            drop(group);
            sum.led += u64::from(shard.routing.is_here());
            sum.forwarded += stats.forwarded.load(Ordering::Relaxed);
            sum.outstanding += shard.routing.sent.lock().len() as u64;
            sum.batches += stats.batches.load(Ordering::Relaxed);
            sum.requests += stats.requests.load(Ordering::Relaxed);
            sum.refused += stats.refused.load(Ordering::Relaxed);
            sum.waiting += shard.queue.len() as u64;
            sum.deferred += stats.deferred.load(Ordering::Relaxed) as u64;
            sum.stale += stats.stale.load(Ordering::Relaxed);
            sum.checkpoints += stats.checkpoints.load(Ordering::Relaxed);
            if let Some((_, held_back)) = shard.standing() {
                sum.held_back.add(held_back);
            }
            sum.compared.0 += stats.compared.load(Ordering::Relaxed);
            sum.differed.0 += stats.differed.load(Ordering::Relaxed);
            sum.made_anew.0 += stats.healed.load(Ordering::Relaxed);
            sum.checkpoint_bytes += stats.checkpoint_bytes.load(Ordering::Relaxed);
        }
        sum
    }

    /// Appends what is to be told of each shard.
    pub(super) fn tell(&self, out: &mut Vec<ShardInfo>, known_peers: &KnownPeers) {
        let known = self.shards.load();
        let is_there = |shard: &&Arc<Shard<M>>| {
            let is_here = shard.routing.group.borrow().is_some();
            !M::BEGINS_LATER || is_here || shard.routing.hint.borrow().leader != 0
        };
        out.extend(known.iter().filter(is_there).map(|shard| {
            let id = (M::STORE, shard.number);
            let is_here = shard.routing.is_here();
            let leader = self.leader(shard.number);
            ShardInfo {
                store: M::STORE,
                shard: shard.number,
                first: Slot(self.shards.base().first_slot(shard.number)),
                last: Slot(self.shards.last_of(shard.number).0),
                version: shard.descriptor().map(|descriptor| descriptor.version),
                leader,
                load: match leader {
                    _ if is_here => shard.load(),
                    Some(leader) => known_peers.load(leader, id),
                    None => None,
                },
                cost: is_here.then(|| shard.cost()),
            }
        }));
    }

    /// Of the shards that are served here, so that each counts on one node.
    pub(super) fn sum<N: std::iter::Sum>(&self, look: impl Fn(&M) -> N) -> N {
        let known = self.shards.load();
        let here = known.iter().filter(|shard| shard.routing.is_here());
        here.filter_map(|shard| shard.look(&look)).sum()
    }

    /// Of all replicas that are kept here.
    pub(super) fn sum_kept<N: std::iter::Sum>(&self, look: impl Fn(&M) -> N) -> N {
        let known = self.shards.load();
        known.iter().filter_map(|shard| shard.look(&look)).sum()
    }

    pub(super) fn delivered(&self, listener: &dyn Listener, mail: Mail) {
        if let Some(shard) = self.get(mail.shard) {
            shard.delivered(listener, mail);
        }
    }

    /// The shards of whose replicas here there is something to be said.
    fn faulty(&self, why: impl Fn(&Shard<M>) -> Option<String>) -> Vec<ReplicaFault> {
        let known = self.shards.load();
        let faulty = known.iter().filter_map(|shard| {
            Some(ReplicaFault {
                store: M::STORE,
                shard: shard.number,
                why: why(shard)?,
            })
        });
        faulty.collect()
    }

    /// What another node's replica of a shard holds.
    pub(super) fn holds(&self, from: u64, number: ShardNumber, holds: Holds) {
        if let Some(shard) = self.get(number) {
            shard.comparison.handle_other(from, holds);
        }
    }

    pub(super) fn leader(&self, number: ShardNumber) -> Option<u64> {
        let hint = *self.get(number)?.routing.hint.borrow();
        (hint.is_reachable && hint.leader != 0).then_some(hint.leader)
    }

    pub(super) fn get(&self, number: ShardNumber) -> Option<Arc<Shard<M>>> {
        self.shards.get(number)
    }

    /// A node says that it leads a shard.
    pub(super) fn lead(&self, node: u64, lead: &Lead, is_linked: bool) {
        if lead.shard >= self.shards.base().len() {
            self.shards.learn(lead.shard);
        }
        if let Some(shard) = self.get(lead.shard) {
            shard.routing.hint.send_if_modified(|hint| {
                let is_news = lead.leadership_epoch > hint.leadership_epoch
                    || lead.leadership_epoch == hint.leadership_epoch && hint.leader == 0;
                if is_news {
                    *hint = LeaderHint {
                        leader: node,
                        leadership_epoch: lead.leadership_epoch,
                        is_reachable: is_linked,
                        link_generation: hint.link_generation + 1,
                    };
                }
                is_news
            });
        }
    }

    /// The way to a node, or back, is open anew, or closed.
    pub(super) fn link_changed(&self, node: u64, is_open: bool) {
        for shard in self.shards.load().iter() {
            shard.routing.hint.send_if_modified(|hint| {
                let concerns = hint.leader == node;
                if concerns {
                    hint.is_reachable = is_open;
                    hint.link_generation += 1;
                }
                concerns
            });
        }
    }
}

impl<M: Kind> CatchingUpShards for ShardSet<M> {
    fn catch_up(&self, number: ShardNumber) -> Option<CatchUp> {
        match self.get(number) {
            None => Some(CatchUp::Done),
            Some(shard) if shard.fault.get().is_some() => Some(CatchUp::Done),
            Some(shard) => {
                let group = shard.routing.group.borrow();
                group.as_ref().map(|group| group.catch_up())
            }
        }
    }
}

impl<M: Kind> ShardSet<M> {
    #[cfg(feature = "simulation")]
    pub(super) fn replicas(&self) -> Vec<crate::simulation::Replica>
    where
        M: crate::simulation::Describe,
    {
        let known = self.shards.load();
        known.iter().filter_map(|shard| shard.replica()).collect()
    }

    #[cfg(feature = "simulation")]
    pub(super) fn abandon(&self) {
        for shard in self.shards.load().iter() {
            shard.routing.group.send_replace(None);
        }
    }

    pub(super) fn group(&self, number: ShardNumber) -> Option<Arc<Group<Command>>> {
        self.get(number)?.routing.group.borrow().clone()
    }

    /// As [`Store::split`](crate::Store::split).
    pub(super) async fn split(
        &self,
        number: ShardNumber,
        at: u16,
        known_peers: &KnownPeers,
    ) -> Result<(), SplitError> {
        let shard = self.get(number).ok_or(SplitError::NoShard)?;
        let not_leader = || SplitError::NotLeader {
            leader: self.leader(number),
        };
        let group = self.group(number).filter(|_| shard.routing.is_here());
        let group = group.ok_or_else(not_leader)?;
        let descriptor = shard.descriptor().ok_or_else(not_leader)?;
        if !descriptor.can_split_at(at) || at < self.shards.base().len() {
            let SlotRange { first, last } = descriptor.range;
            return Err(SplitError::NoSuchSlot { first, last });
        }
        if self.shards.are_most() {
            return Err(SplitError::TooManyShards);
        }
        if let Some((level, _)) = shard.standing()
            && !level.allows_splits()
        {
            return Err(SplitError::Level(level));
        }
        check_replicas(&group, shard.routing.node, known_peers)?;
        let split = Split {
            version: descriptor.version,
            at: ChildShard(at),
        };
        let proposal = group.propose(Command::Split(M::STORE, split)).await?;
        // The proposal may wait until the replica is closed, which waits for all who use the group.
        drop(group);
        proposal.await?;
        // The replica here may have been replaced, or removed, since.
        let after = shard.descriptor().ok_or(SplitError::Unknown)?;
        let is_split = after.births.iter().any(|birth| birth.child.0 == at);
        is_split.then_some(()).ok_or(SplitError::Overtaken)
    }

    /// Waits until a shard is led by a node that can be reached, as far as this node knows.
    pub(super) async fn is_led(&self, number: ShardNumber) {
        if let Some(shard) = self.get(number) {
            let mut hint = shard.routing.hint.subscribe();
            let is_led = |hint: &LeaderHint| hint.leader != 0 && hint.is_reachable;
            // An error: the store itself is gone.
            let _ = hint.wait_for(is_led).await;
        }
    }

    /// Whether the child of a split that this node has asked for has a leader, and tables here.
    pub(super) fn is_split_over(&self, split: SplitId) -> bool {
        let ChildShard(child) = split.child;
        let parent = self.get(split.parent);
        self.leader(child).is_some() && parent.is_none_or(|parent| !parent.is_seeding())
    }

    pub(super) async fn handle(&self, number: ShardNumber, request: Bytes) -> Option<Bytes> {
        if let Some(group) = self.group(number) {
            return Some(group.handle(request).await);
        }
        if number >= self.shards.base().len() {
            // Its members know it because their replicas of its parent have applied the split.
            self.shards.learn(number);
        }
        if let Some(place) = self.shards.load().get(number, self.shards.base()) {
            // Full: it has been told.
            let _ = place.invite.try_send(());
        }
        None
    }
}

impl<M: Kind> LeveledShards for ShardSet<M> {
    fn levels(&self) -> Vec<Level> {
        let known = self.shards.load();
        known
            .iter()
            .filter_map(|shard| Some(shard.standing()?.0))
            .collect()
    }

    fn lowest(&self) -> Level {
        self.shards.lowest_level()
    }

    fn faults(&self) -> Vec<ReplicaFault> {
        self.faulty(|shard| shard.fault.get())
    }

    fn damaged(&self) -> Vec<DamagedReplica> {
        let known = self.shards.load();
        let damaged = known.iter().filter_map(|shard| {
            let (damage, age, recovery) = shard.recovery.get()?;
            Some(DamagedReplica {
                store: M::STORE,
                shard: shard.number,
                damage,
                age,
                recovery,
            })
        });
        damaged.collect()
    }

    fn differences(&self) -> Vec<ReplicaFault> {
        self.faulty(|shard| shard.comparison.noted())
    }

    fn raise(&self, level: Level) -> Pin<Box<dyn Future<Output = usize> + Send + '_>> {
        Box::pin(async move {
            let known = Arc::clone(&self.shards.load());
            let mut proposed = 0;
            for shard in known.iter() {
                let is_below = shard.standing().is_some_and(|(now, _)| now < level);
                let group = shard.routing.group.borrow().clone();
                let group = group.filter(|_| is_below && shard.routing.is_here());
                if let Some(group) = group {
                    match group.propose(Command::Raise(M::STORE, level)).await {
                        Ok(_) => proposed += 1,
                        // It is proposed again as long as the shard is below.
                        Err(error) => tracing::info!(
                            store = M::NAME,
                            shard = shard.number,
                            %error,
                            "the level of a shard is not raised for now"
                        ),
                    }
                }
            }
            proposed
        })
    }
}
