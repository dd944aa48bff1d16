//! A node among others: joining the cluster, and the way of bytes between its parts and those of other
//! nodes.
//!
//! One connection carries messages of the stores, of the broker's routes, and of takeovers; the first byte
//! says whose it is. Raft and snapshots have connections of their own.
//!
//! Deliberately absent: what is sent (`store`, `peers`), connections (`cluster`), and what people ask of a
//! cluster (`control.rs`).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use cluster::{
    Channel, Cluster, Handler, Members, Options, Reach, Reply, Secret, Security, ShutOut,
};
use cluster::{State, Timings, TlsFiles};
use config::{ClusterConfig, Config};
use consensus::{Network, Unreachable};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use store::{Folder, Role};
use tokio::sync::watch;

use crate::cluster_time;
use crate::control;
use crate::node::Node;
use crate::peers::{Links, PeerListener};
use crate::store_listener::StoreListener;
use crate::{OLD_FOLDER, StartError};

/// What members tell of themselves beside what the cluster does.
pub(crate) const INCARNATION: &str = "incarnation";

/// Host and port of the listener that clients without TLS and WebSocket are sent to.
pub(crate) const MQTT: &str = "mqtt";

/// How many clients are connected.
pub(crate) const CONNECTIONS: &str = "connections";

/// The first bytes of what the stores send each other.
const STORE_FORMATS: std::ops::RangeInclusive<u8> = 16..=31;

/// Bytes of a group's number before a request to its replica.
const GROUP: usize = 8;

/// Of a node that was evicted: what any of its starts had connected is closed.
const LAST_INCARNATION: u64 = u64::MAX - 1;

/// How long a start waits for connections to the members that it knows.
const CONNECT: Duration = Duration::from_secs(3);

/// How often is looked for them.
const LOOK: Duration = Duration::from_millis(10);

/// How often they are asked for the time meanwhile.
const ASK: Duration = Duration::from_millis(100);

/// This node's place in its cluster.
pub(crate) struct Clustered {
    cluster: OnceLock<Arc<Cluster>>,
    node: OnceLock<Arc<Node>>,
    /// How many shards each store has: as configured, until the cluster says otherwise.
    shards: OnceLock<[u16; 3]>,
    configured_shards: [u16; 3],
    /// The seed of the hash of names: this node's own, until the cluster says otherwise.
    name_seed: OnceLock<u64>,
    own_name_seed: u64,
    /// The latest starts of the others.
    incarnations: Mutex<BTreeMap<u64, u64>>,
    /// The others that have been told of in the log, and whether they were down then.
    told: Mutex<BTreeMap<u64, bool>>,
    /// Counts how often clients were sent elsewhere.
    turns: AtomicUsize,
    /// This node has left: that it is evicted is as it should be.
    has_left: AtomicBool,
    /// It has left, and is evicted.
    is_forgotten: AtomicBool,
}

impl std::fmt::Debug for Clustered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clustered")
    }
}

impl Clustered {
    /// Founds the cluster, or joins it; waits until a member can be reached, or `give_up` becomes true.
    ///
    /// # Errors
    /// The configuration does not say whom to join, the node is not let in, or its files cannot be used.
    pub(crate) fn join(
        config: &Config,
        folder: &Folder,
        give_up: Arc<AtomicBool>,
    ) -> Result<Arc<Self>, StartError> {
        let clustered = Arc::new(Self {
            cluster: OnceLock::new(),
            node: OnceLock::new(),
            shards: OnceLock::new(),
            configured_shards: [
                config.session_store_shards,
                config.inbox_store_shards,
                config.retain_store_shards,
            ],
            name_seed: OnceLock::new(),
            own_name_seed: folder.name_seed(),
            incarnations: Mutex::default(),
            told: Mutex::default(),
            turns: AtomicUsize::default(),
            has_left: AtomicBool::default(),
            is_forgotten: AtomicBool::default(),
        });
        let options = options(config, folder, give_up)?;
        let handler = Arc::clone(&clustered) as Arc<dyn Handler>;
        let cluster = Cluster::start(options, handler).map_err(StartError::Cluster)?;
        if let Some(welcome) = cluster.welcome()
            && clustered.shards.get().is_none()
        {
            clustered.welcomed(&welcome).map_err(StartError::Welcome)?;
        }
        // Nobody else sets it.
        let _ = clustered.cluster.set(Arc::new(cluster));
        Ok(clustered)
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.cluster.wait()
    }

    /// Whether this node has founded the cluster.
    pub(crate) fn founds(&self) -> bool {
        self.cluster().welcome().is_none()
    }

    /// How many shards the stores of this cluster have.
    pub(crate) fn shards(&self) -> [u16; 3] {
        *self.shards.get().unwrap_or(&self.configured_shards)
    }

    /// The seed of the hash of names that all nodes of this cluster have.
    pub(crate) fn name_seed(&self) -> u64 {
        *self.name_seed.get().unwrap_or(&self.own_name_seed)
    }

    /// The node's store is open: links are opened, and the members are waited for that can be reached.
    pub(crate) fn open(&self, node: &Arc<Node>) {
        let _ = self.node.set(Arc::clone(node));
        let cluster = self.cluster();
        cluster.open();
        let deadline = Instant::now() + CONNECT;
        let mut asked: Option<Instant> = None;
        loop {
            let members = cluster.members();
            let ids = members.nodes.keys().copied();
            let others: Vec<u64> = ids.filter(|id| *id != node.store().node()).collect();
            let is_linked = |id: &u64| node.store().is_linked(*id);
            let linked: Vec<u64> = others.iter().copied().filter(is_linked).collect();
            // What clients do from the start is to be judged by the cluster's time.
            if !node.cluster_time.knows(&linked) && asked.is_none_or(|asked| asked.elapsed() >= ASK)
            {
                asked = Some(Instant::now());
                // An error: the system gives no runtime; the time is asked for again when this node serves.
                let _ = control::block_on(cluster_time::agree(node, self));
            }
            let is_connected = !members.nodes.is_empty() && linked.len() == others.len();
            if is_connected && node.cluster_time.knows(&linked) || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(LOOK);
        }
        cluster.set_state(State::Up);
    }

    /// The node takes part no more.
    pub(crate) fn stop(&self) {
        self.cluster().stop_in_order();
    }

    /// The others are asked to evict this node.
    pub(crate) fn expect_to_be_shut_out(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// Whether the others have evicted this node, as they were asked to.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.is_forgotten.load(Ordering::Relaxed)
    }

    /// Each time another one of the same.
    pub(crate) fn next_of(&self, mut choice: Vec<String>) -> Option<String> {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let turn = turn.checked_rem(choice.len())?;
        Some(choice.swap_remove(turn))
    }

    /// Tells the others a fact of this node.
    pub(crate) fn tell(&self, key: &str, value: &str) {
        if let Err(error) = self.cluster().set_info(key, value) {
            tracing::error!(key, %error, "the others cannot be told");
        }
    }

    /// The members as the store knows them.
    fn store_members(&self, node: &Node, members: &Members) -> Vec<store::Member> {
        let cluster = self.cluster();
        let now = node.clock.now_ms();
        let own = node.store().node();
        let silent_ms = |id: u64| {
            let heard = cluster.last_heard_ms(id);
            heard.map_or(0, |heard| cluster.now_ms().saturating_sub(heard))
        };
        let member = |member: &cluster::Member| {
            let told = member
                .info
                .get(INCARNATION)
                .and_then(|text| text.parse().ok());
            let is_own = member.node == own;
            store::Member {
                node: member.node,
                incarnation: member.incarnation.max(told.unwrap_or(0)),
                is_up: is_own || !matches!(member.reach, Reach::Down { .. }),
                has_ended: matches!(
                    member.reach,
                    Reach::Down {
                        has_ended: true,
                        ..
                    }
                ),
                role: match member.state {
                    State::Joining | State::Up => Role::Serves,
                    State::Draining | State::Stopping => Role::Rests,
                    State::Leaving => Role::Leaves,
                },
                last_heard_ms: if is_own {
                    now
                } else {
                    now - silent_ms(member.node).min(now)
                },
            }
        };
        let evicted = members.evicted.iter().map(|node| store::Member {
            node: *node,
            incarnation: LAST_INCARNATION,
            is_up: false,
            has_ended: false,
            role: Role::Leaves,
            last_heard_ms: now,
        });
        members.nodes.values().map(member).chain(evicted).collect()
    }

    /// One line for each node that comes into reach, or goes down; its connections have none.
    fn tell_reach(&self, own: u64, members: &Members) {
        let mut told = self.told.lock();
        told.retain(|id, _| members.nodes.contains_key(id));
        for member in members.nodes.values().filter(|member| member.node != own) {
            let is_down = match &member.reach {
                Reach::Up => false,
                Reach::Down { .. } => true,
                Reach::Suspect => continue,
            };
            if told.insert(member.node, is_down) == Some(is_down) {
                continue;
            }
            let (node, address) = (format!("{:016x}", member.node), &member.address);
            match &member.reach {
                Reach::Down { has_ended, .. } => {
                    let reason = if *has_ended {
                        "its process has ended"
                    } else {
                        "it is not heard any more"
                    };
                    tracing::warn!(node, address, reason, "a node is down");
                }
                Reach::Up | Reach::Suspect => tracing::info!(node, address, "a node is in reach"),
            }
        }
    }

    /// Nodes that have been started again since they were last seen.
    fn restarted(&self, members: &Members) -> Vec<u64> {
        let mut incarnations = self.incarnations.lock();
        let mut restarted = Vec::new();
        for member in members.nodes.values() {
            let before = incarnations.insert(member.node, member.incarnation);
            if before.is_some_and(|before| before < member.incarnation) {
                restarted.push(member.node);
            }
        }
        restarted
    }
}

/// By what other nodes reach this one.
pub(crate) fn host(config: &Config) -> &str {
    let host = config.cluster_config.host.as_ref();
    host.map_or("127.0.0.1", |host| host.as_str())
}

fn options(
    config: &Config,
    folder: &Folder,
    give_up: Arc<AtomicBool>,
) -> Result<Options, StartError> {
    let cluster = &config.cluster_config;
    let host = host(config);
    Ok(Options {
        node: folder.node(),
        incarnation: folder.incarnation(),
        env: cluster.env.clone(),
        host: host.to_owned(),
        listen: host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        port: cluster.port,
        seeds: cluster
            .seed_endpoints
            .iter()
            .map(ToString::to_string)
            .collect(),
        domain: cluster.cluster_domain_name.clone(),
        bootstrap: config.bootstrap,
        folder: config.data_dir.clone(),
        security: security(cluster)?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        info: BTreeMap::new(),
        timings: Timings::default(),
        give_up,
    })
}

/// Reads the files that a node needs in its cluster, and starts nothing.
pub(crate) fn check(config: &Config) -> Result<(), StartError> {
    let security = security(&config.cluster_config)?;
    Cluster::check(&security, host(config)).map_err(StartError::Cluster)
}

fn security(cluster: &ClusterConfig) -> Result<Security, StartError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| StartError::File {
            kind: "cluster secret",
            path: path.to_owned(),
            source,
        })
    };
    let secret = cluster.secret_file.as_deref().map(read).transpose()?;
    let tls = cluster
        .ssl
        .files()
        .map(|[certificate, key, authorities]| TlsFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            authorities: authorities.to_owned(),
        });
    Ok(Security {
        secret: secret.map(|bytes| Secret::new(bytes.trim_ascii().to_vec())),
        tls,
    })
}

impl Handler for Clustered {
    fn message(&self, from: u64, _: Channel, bytes: Bytes) {
        let Some(node) = self.node.get() else {
            return;
        };
        let outcome = if bytes
            .first()
            .is_some_and(|first| STORE_FORMATS.contains(first))
        {
            let listener = StoreListener::new(Arc::clone(node));
            node.store().received(&listener, from, &bytes)
        } else {
            let listener = PeerListener::new(Arc::clone(node));
            listener
                .message(from, &bytes)
                .map_err(|error| error.to_string())
        };
        if let Err(error) = outcome {
            tracing::error!(
                from = format!("{from:016x}"),
                error,
                "a message of another node makes no sense"
            );
        }
    }

    fn request(&self, from: u64, channel: Channel, bytes: Bytes, reply: Reply) {
        let Some(node) = self.node.get().cloned() else {
            return;
        };
        if channel == Channel::Data && *bytes == [cluster_time::FORMAT] {
            reply.send(cluster_time::answer(&node));
            return;
        }
        if channel == Channel::Data {
            // On the cluster's own runtime, which calls this.
            tokio::spawn(async move { control::answer(&node, from, &bytes, reply).await });
            return;
        }
        let Some(group) = bytes.first_chunk::<GROUP>() else {
            return;
        };
        let group = u64::from_be_bytes(*group);
        tokio::spawn(async move {
            if let Some(answer) = node.store().handle(group, bytes.slice(GROUP..)).await {
                reply.send(answer);
            }
        });
    }

    fn connected(&self, to: u64, channel: Channel, _: u64) {
        if let (Some(node), Channel::Data) = (self.node.get(), channel) {
            PeerListener::new(Arc::clone(node)).connected(to);
            node.store().linked(to, true);
        }
    }

    fn disconnected(&self, to: u64, channel: Channel) {
        if let (Some(node), Channel::Data) = (self.node.get(), channel) {
            PeerListener::new(Arc::clone(node)).disconnected(to);
            node.store().linked(to, false);
        }
    }

    fn incoming(&self, from: u64, channel: Channel, up: bool) {
        if let (Some(node), Channel::Data) = (self.node.get(), channel) {
            let listener = PeerListener::new(Arc::clone(node));
            if up {
                listener.heard_again(from);
            } else {
                listener.lost(from);
            }
            node.store().interrupted(from);
        }
    }

    fn members(&self, members: &Arc<Members>) {
        let Some(node) = self.node.get() else {
            return;
        };
        let own = node.store().node();
        self.tell_reach(own, members);
        let listener = PeerListener::new(Arc::clone(node));
        for restarted in self.restarted(members) {
            listener.restarted(restarted);
        }
        let others: Vec<u64> = members
            .nodes
            .keys()
            .copied()
            .filter(|id| *id != own)
            .collect();
        listener.members(&others);
        let members = self.store_members(node, members);
        let is_down = |member: &&store::Member| !member.is_up;
        let down: Vec<u64> = members.iter().filter(is_down).map(|m| m.node).collect();
        listener.down(&down);
        node.store().members(members);
    }

    fn shut_out(&self, reason: ShutOut) {
        if self.has_left.load(Ordering::Relaxed) {
            self.is_forgotten.store(true, Ordering::Relaxed);
            return;
        }
        let why = reason.to_string();
        tracing::error!(
            why,
            "this node is not wanted in its cluster any more; it ends"
        );
        std::process::exit(match reason {
            ShutOut::Evicted | ShutOut::Replaced => 1,
            ShutOut::OldFolder { .. } => OLD_FOLDER.into(),
        });
    }

    fn welcome(&self) -> Bytes {
        encode_welcome(self.shards(), self.name_seed())
    }

    fn welcomed(&self, welcome: &Bytes) -> Result<(), String> {
        let (shards, name_seed) = decode_welcome(welcome)?;
        let _ = self.shards.set(shards);
        let _ = self.name_seed.set(name_seed);
        Ok(())
    }
}

/// What a node that joins has to know: how many shards each store has, and the seed of the hash of names. A seed of
/// 0 is left out: what is left is what nodes said and understood when there was none.
fn encode_welcome(shards: [u16; 3], name_seed: u64) -> Bytes {
    let mut out = BytesMut::new();
    for shards in shards {
        out.put_u16(shards);
    }
    if name_seed != 0 {
        out.put_u64(name_seed);
    }
    out.freeze()
}

fn decode_welcome(welcome: &[u8]) -> Result<([u16; 3], u64), String> {
    let not_understood = || format!("a welcome of {} bytes is not understood", welcome.len());
    let (counts, seed) = welcome
        .split_first_chunk::<6>()
        .ok_or_else(not_understood)?;
    let (pairs, _) = counts.as_chunks::<2>();
    let mut shards = [0; 3];
    for (shards, pair) in shards.iter_mut().zip(pairs) {
        *shards = u16::from_be_bytes(*pair);
    }
    if shards.contains(&0) {
        return Err("a store without shards".to_owned());
    }
    match seed {
        [] => Ok((shards, 0)),
        seed => {
            let seed = seed.try_into().map_err(|_| not_understood())?;
            Ok((shards, u64::from_be_bytes(seed)))
        }
    }
}

/// The way to the stores of other nodes.
pub(crate) struct StorePeers(pub(crate) Arc<Clustered>);

impl store::Peers for StorePeers {
    fn admitted(&self) -> watch::Receiver<bool> {
        self.0.cluster().admitted()
    }

    fn send(&self, to: u64, message: Bytes) {
        // Not sent: the store hears that the connection is lost.
        self.0.cluster().send(to, Channel::Data, message);
    }
}

impl Network for StorePeers {
    fn call(
        &self,
        node: u64,
        group: u64,
        bulk: bool,
        request: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Unreachable>> {
        let channel = if bulk { Channel::Bulk } else { Channel::Raft };
        let mut bytes = BytesMut::with_capacity(GROUP + request.len());
        bytes.put_u64(group);
        bytes.extend_from_slice(&request);
        let answer = self
            .0
            .cluster()
            .call(node, channel, bytes.freeze(), timeout);
        answer
            .map(|answer| answer.map_err(|error| Unreachable(error.to_string())))
            .boxed()
    }
}

/// The way to the brokers of other nodes.
pub(crate) struct BrokerLinks(pub(crate) Arc<Clustered>);

impl Links for BrokerLinks {
    fn send(&self, to: u64, bytes: Bytes) -> bool {
        self.0.cluster().send(to, Channel::Data, bytes)
    }

    fn queued_bytes(&self, to: u64) -> usize {
        self.0.cluster().queued_bytes(to, Channel::Data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_welcome_says_the_shards_and_the_seed() {
        for seed in [0, 1, u64::MAX] {
            let welcome = encode_welcome([1, 2, 300], seed);
            assert_eq!(decode_welcome(&welcome), Ok(([1, 2, 300], seed)));
            for cut in 0..welcome.len() {
                // Without a seed it is that of a cluster that has none.
                let decoded = decode_welcome(&welcome[..cut]);
                assert_eq!(decoded.is_ok(), cut == 6, "{cut} bytes");
            }
        }
        // As nodes said it when there was no seed.
        assert_eq!(encode_welcome([1, 1, 1], 0).len(), 6);
        decode_welcome(&encode_welcome([1, 0, 1], 5)).unwrap_err();
    }
}
