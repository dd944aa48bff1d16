//! The other nodes of the cluster, as the store sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::ShardNumber;
use crate::health::{Health, Healths, Strains};
use crate::peers::{Lead, Peers};

/// A member of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its identifier.
    pub node: u64,
    /// Its latest start.
    pub incarnation: u64,
    /// It can be reached.
    pub is_up: bool,
    /// Its process has ended: its host says so.
    pub has_ended: bool,
    /// What may be asked of it.
    pub role: Role,
    /// When it was last heard, if it cannot be reached; by [`Listener::clock_ms`](crate::Listener::clock_ms).
    pub last_heard_ms: u64,
}

/// What a member does for shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It has replicas, and leads.
    Serves,
    /// It keeps the replicas that it has, gets no more, and leads nothing if another voter can.
    Rests,
    /// It is to have no replicas.
    Leaves,
}

/// Nodes as people see them.
pub(crate) struct Names<'a>(pub(crate) &'a BTreeSet<u64>);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.0.iter().enumerate() {
            let before = if index == 0 { "" } else { " " };
            write!(f, "{before}{node:016x}")?;
        }
        Ok(())
    }
}

/// A store and one of its shards.
pub(crate) type ShardId = (u8, ShardNumber);

/// What is known of the other nodes.
pub(crate) struct Neighbours {
    /// `None`: this node is alone, and always will be.
    pub(crate) peers: Option<Arc<dyn Peers>>,
    /// This node's incarnation. It changes when the others have taken the node for dead.
    incarnation: AtomicU64,
    /// The members, this one included.
    pub(crate) members: watch::Sender<Arc<[Member]>>,
    /// Nodes that can be sent something.
    linked: Mutex<BTreeSet<u64>>,
    /// Who says that it leads which shard, and when it last said so.
    leads: Mutex<BTreeMap<ShardId, (u64, Lead, Instant)>>,
    healths: Mutex<Healths>,
    news: Notify,
    /// When this node began to listen to the others.
    begun: Instant,
}

impl Neighbours {
    pub(crate) fn new(peers: Option<Arc<dyn Peers>>, incarnation: u64) -> Self {
        Self {
            peers,
            incarnation: AtomicU64::new(incarnation),
            members: watch::Sender::new(Arc::from([])),
            linked: Mutex::default(),
            leads: Mutex::default(),
            healths: Mutex::default(),
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

    pub(crate) fn link(&self, node: u64, is_up: bool) {
        let mut linked = self.linked.lock();
        if is_up {
            linked.insert(node);
        } else if linked.remove(&node) {
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
            .is_none_or(|(_, known, _)| known.reign <= lead.reign);
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
