//! What a node knows of the others: who can be reached, who leads which shard, how fit they are to lead.
//!
//! Invariant: the announcement with the latest leadership epoch of a shard is the one that counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use store_state::api::{ShardNumber, StoreId};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::leadership::health::{Health, Healths, Strains};
use crate::peers::member::{Member, ShardId};
use crate::peers::message::Lead;
use crate::peers::network::Peers;
use crate::shard::load::ShardLoad;

/// How long the load of a shard is remembered whose new leader has not said it.
const LOAD_NEWS: Duration = Duration::from_secs(15);

/// What is known of the other nodes.
pub(crate) struct KnownPeers {
    /// `None`: this node is alone, and always will be.
    pub(crate) network: Option<Arc<dyn Peers>>,
    /// This node's incarnation. It changes when the others have taken the node for dead.
    incarnation: AtomicU64,
    /// The members, this one included.
    pub(crate) members: watch::Sender<Arc<[Member]>>,
    /// Nodes that can be sent something.
    linked: Mutex<BTreeSet<u64>>,
    /// Who says that it leads which shard, and when it last said so.
    leads: Mutex<BTreeMap<ShardId, (u64, Lead, Instant)>>,
    healths: Mutex<Healths>,
    /// The loads of shards that other nodes lead, by node: all that it has said last.
    loads: Mutex<BTreeMap<u64, BTreeMap<ShardId, ShardLoad>>>,
    /// What shards used, wherever they were led, and when that was known.
    last_loads: Mutex<BTreeMap<ShardId, (Duration, Instant)>>,
    news: Notify,
    /// As [`Peers::know_names`] said last. Before it was asked, other nodes are taken not to.
    know_names: AtomicBool,
    /// When this node began to listen to the others.
    begun: Instant,
}

impl KnownPeers {
    pub(crate) fn new(peers: Option<Arc<dyn Peers>>, incarnation: u64) -> Self {
        Self {
            know_names: AtomicBool::new(peers.is_none()),
            network: peers,
            incarnation: AtomicU64::new(incarnation),
            members: watch::Sender::new(Arc::from([])),
            linked: Mutex::default(),
            leads: Mutex::default(),
            healths: Mutex::default(),
            loads: Mutex::default(),
            last_loads: Mutex::default(),
            news: Notify::new(),
            begun: Instant::now(),
        }
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation.load(Ordering::Acquire)
    }

    pub(crate) fn set_incarnation(&self, incarnation: u64) {
        self.incarnation.store(incarnation, Ordering::Release);
    }

    /// The others are to be told at once what this node leads.
    pub(crate) fn tell(&self) {
        self.news.notify_one();
    }

    /// Waits until they are.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Whether all nodes understand names of clients and sessions that are no identifiers.
    pub(crate) fn know_names(&self) -> bool {
        self.know_names.load(Ordering::Relaxed)
    }

    fn ask_for_names(&self) {
        if let Some(network) = &self.network {
            self.know_names
                .store(network.know_names(), Ordering::Relaxed);
        }
    }

    /// The membership has changed, or who of the members can be reached.
    pub(crate) fn set_members(&self, members: Vec<Member>) {
        self.ask_for_names();
        self.members.send_replace(members.into());
    }

    pub(crate) fn link(&self, node: u64, is_up: bool) {
        if is_up {
            self.ask_for_names();
        }
        let mut linked = self.linked.lock();
        if is_up {
            linked.insert(node);
        } else if linked.remove(&node) {
            self.loads.lock().remove(&node);
            self.healths.lock().lost(node, Instant::now());
        }
    }

    /// A node says how fit it is to lead.
    pub(crate) fn heard_health(&self, node: u64, mut health: Health) {
        // A node may say anything; only members can be reached.
        let members = self.members.borrow();
        health
            .reached
            .retain(|reached| members.iter().any(|member| member.node == *reached));
        drop(members);
        self.healths.lock().heard(node, health, Instant::now());
    }

    /// A node says what load the shards have that it leads.
    pub(crate) fn heard_loads(&self, node: u64, loads: Vec<(StoreId, ShardNumber, ShardLoad)>) {
        let loads = loads
            .into_iter()
            .map(|(store, shard, load)| ((store, shard), load));
        self.loads.lock().insert(node, loads.collect());
    }

    /// What a shard uses where it is led, in CPU time per second; if its leader has not said it yet, what it used where it was led
    /// before, for a while.
    pub(crate) fn recent_load(&self, leader: u64, id: ShardId) -> Duration {
        let now = self.load(leader, id).map(|load| load.cpu());
        let mut last = self.last_loads.lock();
        match now {
            Some(load) => {
                last.insert(id, (load, Instant::now()));
                load
            }
            None => {
                let recent = last.get(&id).filter(|(_, at)| at.elapsed() < LOAD_NEWS);
                recent.map_or(Duration::ZERO, |(load, _)| *load)
            }
        }
    }

    /// The load of a shard that another node leads, as that has said it last; `None`: it has none.
    pub(crate) fn load(&self, leader: u64, id: ShardId) -> Option<ShardLoad> {
        self.loads.lock().get(&leader)?.get(&id).copied()
    }

    /// The load of all shards that another node leads, in CPU time per second, as it has said last.
    pub(crate) fn load_of_node(&self, node: u64) -> Duration {
        let loads = self.loads.lock();
        let of_node = loads.get(&node).into_iter().flat_map(BTreeMap::values);
        let cpu = of_node.map(ShardLoad::cpu);
        cpu.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// How fit this node is to lead.
    pub(crate) fn own_health(&self, is_full: bool) -> Health {
        let members = self.members.borrow().clone();
        // Whom it does not hear yet it may believe to be dead.
        let is_heard = |node: &u64| members.iter().any(|m| m.node == *node && m.is_up);
        let reached = self.linked().into_iter().filter(is_heard).collect();
        self.healths.lock().own(is_full, reached, Instant::now())
    }

    /// Whether another node has said lately that it reaches a node.
    pub(crate) fn is_reached_by_others(&self, node: u64) -> bool {
        self.healths.lock().is_reached(node, Instant::now())
    }

    /// What speaks against nodes as leaders. `own`: this one.
    pub(crate) fn strains(&self, own: u64, health: &Health) -> Strains {
        self.healths.lock().strains(own, health, Instant::now())
    }

    pub(crate) fn is_linked(&self, node: u64) -> bool {
        self.linked.lock().contains(&node)
    }

    /// Whether a node can be sent something, and is a member that this one hears.
    pub(crate) fn is_up(&self, node: u64) -> bool {
        let members = self.members.borrow();
        let is_heard = members.iter().any(|m| m.node == node && m.is_up);
        is_heard && self.is_linked(node)
    }

    /// The nodes that can be sent something.
    pub(crate) fn linked(&self) -> Vec<u64> {
        self.linked.lock().iter().copied().collect()
    }

    /// A node says that it leads a shard. Whether it is news: nobody has led later.
    pub(crate) fn heard(&self, node: u64, lead: Lead) -> bool {
        let mut leads = self.leads.lock();
        let id = (lead.store, lead.shard);
        let is_newest = leads
            .get(&id)
            .is_none_or(|(_, known, _)| known.leadership_epoch <= lead.leadership_epoch);
        if is_newest {
            leads.insert(id, (node, lead, Instant::now()));
        }
        is_newest
    }

    /// Who leads each shard, and with which replicas.
    pub(crate) fn leads(&self) -> Vec<(u64, Lead)> {
        let leads = self.leads.lock();
        let leads = leads.values();
        leads.map(|(node, lead, _)| (*node, lead.clone())).collect()
    }

    /// Who leads a shard, and with which replicas, as it said within `time`.
    pub(crate) fn lead_within(&self, id: ShardId, time: Duration) -> Option<(u64, Lead)> {
        let leads = self.leads.lock();
        let (node, lead, at) = leads.get(&id)?;
        (at.elapsed() < time).then(|| (*node, lead.clone()))
    }

    /// Whether no node has said within `time` that it leads a shard, although this one has listened for as long.
    pub(crate) fn lacks_lead(&self, id: ShardId, time: Duration) -> bool {
        let leads = self.leads.lock();
        let heard = leads.get(&id).map_or(self.begun, |(_, _, at)| *at);
        heard.elapsed() >= time
    }
}

#[cfg(test)]
mod tests {
    use store_state::api::StoreId;

    use super::*;
    use crate::leadership::state::LeadershipEpoch;

    fn lead(term: u64) -> Lead {
        Lead {
            store: StoreId::Inbox,
            shard: 0,
            leadership_epoch: LeadershipEpoch { term, attempt: 1 },
            voters: BTreeSet::new(),
            learners: BTreeSet::new(),
            incarnation: 0,
        }
    }

    #[test]
    fn the_announcement_of_the_latest_epoch_counts() {
        let known = KnownPeers::new(None, 1);
        let id = (StoreId::Inbox, 0);
        assert!(known.lacks_lead(id, Duration::ZERO));
        assert!(known.heard(1, lead(5)));
        assert!(!known.heard(2, lead(4)));
        assert!(known.heard(3, lead(5)), "a leader announces itself again");
        let leader = |(node, lead): (u64, Lead)| (node, lead.term());
        assert_eq!(
            known.leads().into_iter().map(leader).collect::<Vec<_>>(),
            [(3, 5)]
        );
        let recent = known.lead_within(id, Duration::from_secs(600));
        assert_eq!(recent.map(leader), Some((3, 5)));
        assert!(!known.lacks_lead(id, Duration::from_secs(600)));
        assert!(
            known
                .lead_within((StoreId::Retain, 0), Duration::from_secs(600))
                .is_none()
        );
    }

    #[test]
    fn a_node_that_was_linked_can_be_sent_messages_until_the_link_is_lost() {
        let known = KnownPeers::new(None, 1);
        known.link(4, true);
        known.link(2, true);
        known.link(4, false);
        assert_eq!(known.linked(), [2]);
        assert_eq!((known.is_linked(2), known.is_linked(4)), (true, false));
    }
}
