//! What people ask of a cluster, answered by those who know: the list of members, the stores, and the nodes
//! that lead shards.
//!
//! Nodes ask each other by [`NodeRequest`]s.
//!
//! Deliberately absent: HTTP (`admin`), and how clients and replicas are sent elsewhere
//! (`drain.rs`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::control::Revision;
use cluster::{EvictError, Member, Members, Reply, State};
use peer_protocol::{NodeAnswer, NodeRequest, PeerRequest, SPLITS_SINCE};
use store::{Lead, ShardInfo, ShardLoad, SplitDecision, SplitError, Verdict};
use store_state::api::{Slot, StoreId};

use crate::clustered::{COMMIT, CONNECTIONS, Clustered, name_of};
use crate::control_waiting::begin_here;
use crate::damaged_replicas::{Others, damaged};
use crate::drain::Drain;
use crate::eviction;
use crate::node::Node;
use crate::upgrade::{FAULTS, LEVELS_HERE, Upgrade};
use admin::cluster::{
    Change, ClusterStatus, HalfStatus, LoadStatus, Micros, NodeId, NodeState, NodeStatus, Percent,
    Rate, Reach, Refusal, Seconds, ShardStatus, SplitStatus, StoreName, Version,
};

/// How long another node is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a shard has no leader until people are told: longer than any election that succeeds.
const LEADERLESS: Duration = Duration::from_secs(10);

/// How long a leader may be silent until it is one of before: leaders announce themselves once a second.
const LEADER_SILENT: Duration = Duration::from_secs(5);

/// The cluster as this node sees and changes it.
pub(crate) trait ClusterControl: fmt::Debug + Send + Sync + 'static {
    /// The state now. Does not wait.
    fn status(&self) -> ClusterStatus;

    /// Begins a change, on a thread that may wait, and returns within 5 s. What takes longer, such as
    /// draining, has then begun; [`ClusterControl::status`] shows how far it is.
    ///
    /// # Errors
    /// Why nothing was changed.
    fn change(&self, change: Change) -> Result<(), Refusal>;
}

/// Has all nodes move clients: so many per second, or as many as the nodes are configured to.
pub(crate) type Rebalance = Box<dyn Fn(Option<u32>) -> Result<(), Refusal> + Send + Sync>;

/// A node's cluster, for those who ask and command.
pub(crate) struct Control {
    node: Arc<Node>,
    clustered: Arc<Clustered>,
    drain: Arc<Drain>,
    upgrade: Arc<Upgrade>,
    rebalance: Rebalance,
    env: String,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Control")
    }
}

impl Control {
    pub(crate) fn new(
        node: Arc<Node>,
        clustered: Arc<Clustered>,
        drain: Arc<Drain>,
        (upgrade, rebalance): (Arc<Upgrade>, Rebalance),
        env: String,
    ) -> Self {
        Self {
            node,
            clustered,
            drain,
            upgrade,
            rebalance,
            env,
        }
    }

    fn node_status(&self, member: &Member) -> NodeStatus {
        let connections = if member.node == self.node.store().node() {
            Some(self.node.connected.load(Ordering::Relaxed) as u64)
        } else {
            let told = member.info.get(CONNECTIONS);
            told.and_then(|text| text.parse().ok())
        };
        NodeStatus {
            node: NodeId(member.node),
            name: name_of(member).to_owned(),
            address: member.address.clone(),
            state: state(member.state),
            reach: reach(member.reach),
            version: member.version.clone(),
            commit: member.info.get(COMMIT).cloned(),
            levels: member.info.get(LEVELS_HERE).cloned(),
            incarnation: member.incarnation,
            connections,
            unusable_replicas: member.info.get(FAULTS).and_then(|text| text.parse().ok()),
            clock_offset_ms: self.clock_offset_ms(member.node),
        }
    }

    fn clock_offset_ms(&self, member: u64) -> Option<i64> {
        let (node, time) = (&self.node, &self.node.rim.cluster_time);
        if member == node.store().node() {
            Some(time.own_offset_ms(&node.rim.clock))
        } else {
            time.offset_ms(member)
        }
    }

    fn join(&self, seed: &str) -> NodeAnswer {
        self.clustered.cluster().add_seed(seed);
        Ok(())
    }

    fn evict(&self, node: u64, force: bool) -> NodeAnswer {
        let cluster = self.clustered.cluster();
        let Members { nodes, evicted } = &*cluster.members();
        if !nodes.contains_key(&node) && !evicted.contains(&node) {
            return Err(no_member(node));
        }
        if node != cluster.node()
            && !evicted.contains(&node)
            && let Err(harm) = eviction::check(&self.status(), NodeId(node))
        {
            if !force {
                return Err(Refusal::Conflict(format!("{harm}; force evicts it anyway")));
            }
            tracing::warn!(
                node = format_args!("{node:016x}"),
                harm = %harm,
                "a node is evicted, although shards have no majority without it"
            );
        }
        cluster.evict(node).map_err(refusal)
    }

    fn transfer_leader(&self, name: StoreName, shard: u64, to: u64) -> NodeAnswer {
        if !self.clustered.cluster().members().nodes.contains_key(&to) {
            return Err(no_member(to));
        }
        let store = self.node.store();
        let ShardInfo {
            store: id, shard, ..
        } = find(&self.node, name, shard)?;
        match store.leader(id, shard) {
            None => Err(no_leader(name, shard)),
            Some(leader) if leader == to => Ok(()),
            Some(leader) if leader == store.node() => {
                block_on(store.transfer_leader(id, shard, to))?.map_err(Refusal::Conflict)
            }
            Some(leader) => {
                let request = NodeRequest::TransferLeader {
                    store: id,
                    shard,
                    to,
                };
                ask(&self.clustered, leader, request)
            }
        }
    }

    fn split(&self, name: StoreName, shard: u64, at: Option<Slot>) -> NodeAnswer {
        if !self.clustered.cluster().all_speak(SPLITS_SINCE) {
            return Err(Refusal::Conflict(
                "a node runs a version that knows of no splits, or has not been reached yet"
                    .to_owned(),
            ));
        }
        let info = find(&self.node, name, shard)?;
        let (store, shard) = (info.store, info.shard);
        let at = at.unwrap_or_else(|| half(&info));
        match self.node.store().leader(store, shard) {
            None => Err(no_leader(name, shard)),
            Some(leader) if leader == self.node.store().node() => split_here(&self.node, info, at),
            Some(leader) => {
                let request = NodeRequest::Split { store, shard, at };
                ask(&self.clustered, leader, request)
            }
        }
    }
}

const ALONE: &str =
    "this node runs alone: clusterConfig.host, which makes it a member of a cluster, is not set";

/// A node without others, for those who ask and command.
pub(crate) struct AloneControl {
    node: Arc<Node>,
    upgrade: Arc<Upgrade>,
    env: String,
}

impl fmt::Debug for AloneControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AloneControl")
    }
}

impl AloneControl {
    pub(crate) fn new(node: Arc<Node>, upgrade: Arc<Upgrade>, env: String) -> Self {
        Self { node, upgrade, env }
    }
}

impl ClusterControl for AloneControl {
    fn status(&self) -> ClusterStatus {
        let own = NodeId(self.node.store().node());
        let mut shards = shards(&self.node);
        for shard in &mut shards {
            shard.voters = vec![own];
        }
        ClusterStatus {
            cluster: None,
            env: self.env.clone(),
            node: own,
            nodes: Vec::new(),
            shards,
            level: Some(self.upgrade.status()),
            damaged: damaged(&self.node.store().levels, Others::None),
        }
    }

    fn change(&self, change: Change) -> Result<(), Refusal> {
        match change {
            Change::Split { store, shard, at } => {
                let info = find(&self.node, store, shard)?;
                split_here(&self.node, info, at.unwrap_or_else(|| half(&info)))
            }
            Change::FinishUpgrade => self.upgrade.finish(),
            Change::Join { .. }
            | Change::Leave
            | Change::Drain
            | Change::EndDrain
            | Change::Evict { .. }
            | Change::Rebalance { .. }
            | Change::TransferLeader { .. } => Err(Refusal::Conflict(ALONE.to_owned())),
        }
    }
}

/// All shards, also those of which nothing has been heard.
fn shards(node: &Node) -> Vec<ShardStatus> {
    let store = node.store();
    let leads = store.leads();
    let decisions = store.splits().decisions();
    let shard_status = |info: ShardInfo| {
        let of_shard = |of: &&SplitDecision| (of.store, of.shard) == (info.store, info.shard);
        let decision = decisions.iter().find(of_shard);
        let lead = leads
            .iter()
            .find(|(_, lead)| (lead.store, lead.shard) == (info.store, info.shard));
        let (announced, lead) = lead.map(|(node, lead)| (*node, lead)).unzip();
        // A node that has lost the majority of the voters stays reachable, and announces itself no more.
        let is_silent = store.lacks_leader(info.store, info.shard, LEADER_SILENT);
        let leader = info.leader.filter(|_| !is_silent);
        let last_leader = announced.or(info.leader);
        let ids = |pick: fn(&Lead) -> &std::collections::BTreeSet<u64>| {
            let nodes = lead.into_iter().flat_map(pick);
            nodes.copied().map(NodeId).collect()
        };
        ShardStatus {
            store: info.store.into(),
            shard: info.shard.into(),
            first: Some(info.first),
            last: Some(info.last),
            version: info.version.map(|version| Version(version.0)),
            leader: leader.map(NodeId),
            last_leader: last_leader.filter(|_| leader.is_none()).map(NodeId),
            voters: ids(|lead| &lead.voters),
            learners: ids(|lead| &lead.learners),
            term: lead.map_or(0, |lead| lead.term()),
            load: info.load.map(load_status),
            split: decision.cloned().map(split_status),
        }
    };
    store.shards().into_iter().map(shard_status).collect()
}

/// What a shard costs, for people.
pub(crate) fn load_status(load: ShardLoad) -> LoadStatus {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    LoadStatus {
        propose_us: Micros(us(load.propose)),
        apply_us: Micros(us(load.apply)),
        read_us: Micros(us(load.read)),
        requests: Rate(load.requests.0),
        wait_us: Micros(us(load.wait).checked_div(load.requests.0).unwrap_or(0)),
        log_bytes: Rate(load.log_bytes.0),
        half: load.half.map(|half| HalfStatus {
            slot: Slot(half.at.0),
            below: Percent(half.below.0),
        }),
    }
}

/// What was decided about a split, for people.
pub(crate) fn split_status(decision: SplitDecision) -> SplitStatus {
    SplitStatus {
        decision: match &decision.verdict {
            Verdict::Split { .. } => "split".to_owned(),
            Verdict::Hold(hold) => hold.name().to_owned(),
        },
        reason: decision.verdict.to_string(),
        names: decision.names,
        seconds: Seconds(decision.since.as_secs()),
    }
}

/// What is known of a shard that people name.
fn find(node: &Node, name: StoreName, shard: u64) -> Result<ShardInfo, Refusal> {
    let id = StoreId::from(name);
    let shards = node.store().shards().into_iter();
    let mut found = shards.filter(|info| info.store == id && u64::from(info.shard) == shard);
    found.next().ok_or_else(|| no_shard(name, shard))
}

/// Where a shard is split if nobody says where: the slot at which its load halves, or the middle.
fn half(info: &ShardInfo) -> Slot {
    let half = info.load.and_then(|load| load.half);
    half.map_or(
        Slot(info.first.0.midpoint(info.last.0).saturating_add(1)),
        |half| Slot(half.at.0),
    )
}

/// Splits a shard that this node leads.
fn split_here(node: &Node, info: ShardInfo, at: Slot) -> NodeAnswer {
    let ShardInfo { store, shard, .. } = info;
    block_on(node.store().splits().split(store, shard, at.0))?.map_err(not_split)
}

/// What people are told of a shard that was not split.
fn not_split(error: SplitError) -> Refusal {
    match error {
        SplitError::NoShard => Refusal::Unknown(error.to_string()),
        SplitError::NotLeader { .. }
        | SplitError::VoterIsLate { .. }
        | SplitError::Unknown
        | SplitError::Stopped(_) => Refusal::Unavailable(error.to_string()),
        SplitError::NoSuchSlot { .. }
        | SplitError::NeverSplit
        | SplitError::TooManyShards
        | SplitError::MembersChange
        | SplitError::EarlierVersion { .. }
        | SplitError::Level(_)
        | SplitError::Full
        | SplitError::Unfinished { .. }
        | SplitError::Overtaken => Refusal::Conflict(error.to_string()),
    }
}

impl ClusterControl for Control {
    fn status(&self) -> ClusterStatus {
        let cluster = self.clustered.cluster();
        let members = cluster.members();
        ClusterStatus {
            cluster: Some(NodeId(cluster.identifier())),
            env: self.env.clone(),
            node: NodeId(self.node.store().node()),
            nodes: members
                .nodes
                .values()
                .map(|member| self.node_status(member))
                .collect(),
            shards: shards(&self.node),
            level: Some(self.upgrade.status()),
            damaged: damaged(&self.node.store().levels, Others::Nodes),
        }
    }

    fn change(&self, change: Change) -> Result<(), Refusal> {
        match change {
            Change::Join { seed } => self.join(&seed.to_string()),
            Change::Leave => self.drain.leave(),
            Change::Drain => self.drain.drain(),
            Change::EndDrain => self.drain.end_drain(),
            Change::Evict { node, force } => self.evict(node.0, force),
            Change::TransferLeader { store, shard, to } => self.transfer_leader(store, shard, to.0),
            Change::Split { store, shard, at } => self.split(store, shard, at),
            Change::FinishUpgrade => self.upgrade.finish(),
            Change::Rebalance { clients_per_second } => (self.rebalance)(clients_per_second),
        }
    }
}

/// The shards that no node has led for [`LEADERLESS`], as far as this node knows.
pub(crate) fn without_leader(node: &Node) -> Vec<(StoreId, u16)> {
    let Some(store) = node.opened_store() else {
        return Vec::new();
    };
    let shards = store.shards().into_iter();
    shards
        .map(|info| (info.store, info.shard))
        .filter(|(id, shard)| store.lacks_leader(*id, *shard, LEADERLESS))
        .collect()
}

/// For how long this node has not known whether its copy of the control store is current; has logins refused by a copy that is
/// too old, and taken again by one that is not.
pub(crate) fn control_age(node: &Node) -> Duration {
    let control = &node.rim.control;
    let shard = (StoreId::Control, 0);
    // A leader that has lost its majority stays known and reachable, and announces itself no more.
    let is_led = node.opened_store().is_some_and(|store| {
        store.leader(shard.0, shard.1).is_some() && !without_leader(node).contains(&shard)
    });
    let now_ms = node.rim.clock.now_ms();
    let seen = control.age.look(control.view.standing(), is_led, now_ms);
    control.view.refuse(seen.is_refused);
    seen.age
}

fn no_member(node: u64) -> Refusal {
    Refusal::Unknown(format!("there is no member {node:016x}"))
}

fn no_leader(store: StoreName, shard: u16) -> Refusal {
    Refusal::Unavailable(format!(
        "no node that can be reached leads shard {shard} of the {store} store"
    ))
}

fn no_shard(store: StoreName, shard: u64) -> Refusal {
    Refusal::Unknown(format!("there is no shard {shard} of the {store} store"))
}

fn refusal(error: EvictError) -> Refusal {
    match error {
        EvictError::Itself | EvictError::Full => Refusal::Conflict(error.to_string()),
        EvictError::Record(_) => Refusal::Unavailable(error.to_string()),
    }
}

fn state(state: State) -> NodeState {
    match state {
        State::Joining => NodeState::Joining,
        State::Up => NodeState::Up,
        State::Draining => NodeState::Draining,
        State::Leaving => NodeState::Leaving,
        State::Stopping => NodeState::Stopping,
    }
}

pub(crate) fn reach(reach: cluster::Reach) -> Reach {
    match reach {
        cluster::Reach::Up => Reach::Up,
        cluster::Reach::Suspect => Reach::Suspect,
        cluster::Reach::Down { .. } => Reach::Down,
    }
}

/// Asks another node to evict this one, which has left.
pub(crate) fn ask_to_forget(clustered: &Clustered, member: u64) -> NodeAnswer {
    ask(clustered, member, NodeRequest::Forget)
}

fn ask(clustered: &Clustered, node: u64, request: NodeRequest) -> NodeAnswer {
    let unavailable =
        |why: &dyn fmt::Display| Refusal::Unavailable(format!("node {node:016x}: {why}"));
    let call = clustered
        .call(node, PeerRequest::Node(request), PATIENCE)
        .map_err(|error| unavailable(&error))?;
    let answer = block_on(call)?.map_err(|error| unavailable(&error))?;
    NodeRequest::decode_answer(&answer)
        .unwrap_or_else(|_| Err(unavailable(&"its answer is not understood")))
}

/// Carries out what another node asks.
pub(crate) async fn answer(node: &Node, from: u64, request: NodeRequest, reply: Reply) {
    let answer = match request {
        NodeRequest::TransferLeader { store, shard, to } => node
            .store()
            .transfer_leader(store, shard, to)
            .await
            .map_err(Refusal::Conflict),
        NodeRequest::Split { store, shard, at } => node
            .store()
            .splits()
            .split(store, shard, at.0)
            .await
            .map_err(not_split),
        NodeRequest::Forget => forget(node, from).await,
        NodeRequest::BeginControl => begin_here(&node.store().control_store).await,
        NodeRequest::CountControl { revision } => {
            node.rim
                .control
                .waiting
                .until_counts(Revision(revision))
                .await
        }
    };
    reply.send(NodeRequest::encode_answer(&answer));
}

async fn forget(node: &Node, member: u64) -> NodeAnswer {
    let clustered = node.rim.clustered().ok_or_else(|| no_member(member))?;
    let cluster = Arc::clone(clustered.cluster());
    // It waits for the disk.
    let evicted = tokio::task::spawn_blocking(move || cluster.evict(member));
    let evicted = evicted.await;
    evicted
        .map_err(|error| Refusal::Unavailable(error.to_string()))?
        .map_err(refusal)
}

/// Waits for what another thread does.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.map_err(|error| Refusal::Unavailable(error.to_string()))?;
    Ok(runtime.block_on(future))
}
