//! What people ask of a cluster, answered by those who know: the list of members, the stores, and the nodes
//! that lead shards.
//!
//! Nodes ask each other by requests on the Data connection: one byte for the format, then [`Request`], and a
//! `Result` of nothing or a [`Refusal`] as the answer, as postcard writes them.
//!
//! Deliberately absent: HTTP (`http/cluster.rs`), and how clients and replicas are sent elsewhere
//! (`parting.rs`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use cluster::{Channel, EvictError, Member, Members, Reply, State};
use serde::{Deserialize, Serialize};
use store::Lead;

use crate::cluster_control::{
    Change, ClusterControl, ClusterStatus, NodeId, NodeState, NodeStatus, Reach, Refusal,
    ShardStatus, StoreName,
};
use crate::clustered::{CONNECTIONS, Clustered};
use crate::eviction;
use crate::node::Node;
use crate::parting::Parting;

/// The format of requests; the first byte of each.
const FORMAT: u8 = 33;

/// How long another node is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a shard has no leader until people are told: longer than any election that succeeds.
const LEADERLESS: Duration = Duration::from_secs(10);

/// The stores, by their numbers.
const STORES: [StoreName; 3] = [StoreName::Session, StoreName::Inbox, StoreName::Retain];

/// What one node asks another.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Let another node lead a shard that you lead; as [`Lead`] names it.
    TransferLeader { store: u8, shard: u16, to: u64 },
    /// I have left: evict me.
    Forget,
}

type Answer = Result<(), Refusal>;

/// A node's cluster, for those who ask and command.
pub(crate) struct Control {
    node: Arc<Node>,
    clustered: Arc<Clustered>,
    parting: Arc<Parting>,
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
        parting: Arc<Parting>,
        env: String,
    ) -> Self {
        Self {
            node,
            clustered,
            parting,
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
            address: member.address.clone(),
            state: state(member.state),
            reach: reach(member.reach),
            version: member.version.clone(),
            incarnation: member.incarnation,
            connections,
            clock_offset_ms: self.clock_offset_ms(member.node),
        }
    }

    fn clock_offset_ms(&self, member: u64) -> Option<i64> {
        let (node, time) = (&self.node, &self.node.cluster_time);
        if member == node.store().node() {
            Some(time.own_offset_ms(&node.clock))
        } else {
            time.offset_ms(member)
        }
    }

    /// All shards, also those of which nothing has been heard.
    fn shards(&self) -> Vec<ShardStatus> {
        let store = self.node.store();
        let leads = store.leads();
        let shard_status = |(number, name): (u8, StoreName), shard: u16| {
            let lead = leads
                .iter()
                .map(|(_, lead)| lead)
                .find(|lead| (lead.store, lead.shard) == (number, shard));
            let ids = |pick: fn(&Lead) -> &std::collections::BTreeSet<u64>| {
                let nodes = lead.into_iter().flat_map(pick);
                nodes.copied().map(NodeId).collect()
            };
            ShardStatus {
                store: name,
                shard: shard.into(),
                leader: store.leader(number, shard).map(NodeId),
                voters: ids(|lead| &lead.voters),
                learners: ids(|lead| &lead.learners),
                term: lead.map_or(0, |lead| lead.term()),
            }
        };
        (0..)
            .zip(STORES)
            .zip(store.shard_counts())
            .flat_map(|(name, count)| (0..count).map(move |shard| (name, shard)))
            .map(|(name, shard)| shard_status(name, shard))
            .collect()
    }

    fn join(&self, seed: &str) -> Answer {
        self.clustered.cluster().add_seed(seed);
        Ok(())
    }

    fn evict(&self, node: u64, force: bool) -> Answer {
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
                "a node is evicted without which shards have no majority"
            );
        }
        cluster.evict(node).map_err(refusal)
    }

    fn transfer_leader(&self, name: StoreName, shard: u64, to: u64) -> Answer {
        if !self.clustered.cluster().members().nodes.contains_key(&to) {
            return Err(no_member(to));
        }
        let store = self.node.store();
        let found = (0..)
            .zip(STORES)
            .zip(store.shard_counts())
            .find(|((_, known), _)| *known == name);
        let number = u16::try_from(shard).ok();
        let (Some(((store_number, _), count)), Some(number)) = (found, number) else {
            return Err(no_shard(name, shard));
        };
        if number >= count {
            return Err(no_shard(name, shard));
        }
        match store.leader(store_number, number) {
            None => Err(Refusal::Unavailable(format!(
                "no node that can be reached leads shard {shard} of the {name} store"
            ))),
            Some(leader) if leader == to => Ok(()),
            Some(leader) if leader == store.node() => {
                block_on(store.transfer_leader(store_number, number, to))?
                    .map_err(Refusal::Conflict)
            }
            Some(leader) => {
                let request = Request::TransferLeader {
                    store: store_number,
                    shard: number,
                    to,
                };
                ask(&self.clustered, leader, &request)
            }
        }
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
            shards: self.shards(),
        }
    }

    fn change(&self, change: Change) -> Result<(), Refusal> {
        match change {
            Change::Join { seed } => self.join(&seed.to_string()),
            Change::Leave => self.parting.leave(),
            Change::Drain => self.parting.drain(),
            Change::Evict { node, force } => self.evict(node.0, force),
            Change::TransferLeader { store, shard, to } => self.transfer_leader(store, shard, to.0),
        }
    }
}

/// The shards that no node has led for [`LEADERLESS`], as far as this node knows.
pub(crate) fn without_leader(node: &Node) -> Vec<(StoreName, u16)> {
    let Some(store) = node.opened_store() else {
        return Vec::new();
    };
    let shards = store.without_leader(LEADERLESS).into_iter();
    shards
        .filter_map(|(number, shard)| Some((*STORES.get(usize::from(number))?, shard)))
        .collect()
}

fn no_member(node: u64) -> Refusal {
    Refusal::Unknown(format!("there is no member {node:016x}"))
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
pub(crate) fn ask_to_forget(clustered: &Clustered, member: u64) -> Answer {
    ask(clustered, member, &Request::Forget)
}

fn ask(clustered: &Clustered, node: u64, request: &Request) -> Answer {
    // Writing to memory fails for no value of this type.
    let bytes = postcard::to_extend(request, vec![FORMAT]).unwrap_or_default();
    let call = clustered
        .cluster()
        .call(node, Channel::Data, bytes.into(), PATIENCE);
    let unavailable =
        |why: &dyn fmt::Display| Refusal::Unavailable(format!("node {node:016x}: {why}"));
    let answer = block_on(call)?.map_err(|error| unavailable(&error))?;
    postcard::from_bytes(&answer)
        .unwrap_or_else(|_| Err(unavailable(&"its answer is not understood")))
}

/// Answers what another node asks. On the cluster's own runtime; without an answer the other node is told so.
pub(crate) async fn answer(node: &Node, from: u64, request: &Bytes, reply: Reply) {
    let request = match request.split_first() {
        Some((&FORMAT, rest)) => postcard::from_bytes(rest),
        _ => Err(postcard::Error::DeserializeBadEncoding),
    };
    let answer: Answer = match request {
        Ok(Request::TransferLeader { store, shard, to }) => node
            .store()
            .transfer_leader(store, shard, to)
            .await
            .map_err(Refusal::Conflict),
        Ok(Request::Forget) => forget(node, from).await,
        Err(_) => {
            tracing::error!(
                from = format_args!("{from:016x}"),
                "a request of another node is not understood"
            );
            return;
        }
    };
    // Writing to memory fails for no value of this type.
    let bytes = postcard::to_extend(&answer, Vec::new()).unwrap_or_default();
    reply.send(bytes.into());
}

async fn forget(node: &Node, member: u64) -> Answer {
    let clustered = node.clustered().ok_or_else(|| no_member(member))?;
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
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| Refusal::Unavailable(error.to_string()))?;
    Ok(runtime.block_on(future))
}
