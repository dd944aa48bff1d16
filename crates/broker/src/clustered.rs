//! A node among others: joining the cluster, and what its parts are made of there.
//!
//! One connection carries all messages of `peer-protocol`. Raft and snapshots have connections of their own.
//!
//! Deliberately absent: what is sent (`store`, `broker-core/src/peers`), who gets what arrives (`peers/dispatch.rs`), connections
//! (`cluster`), and what people ask of a cluster (`control.rs`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cluster::{
    Channel, Cluster, Handler, Members, Options, Reach, Reply, Secret, Security, ShutOut, Source,
};
use cluster::{State, Timings, TlsFiles, Versions};
use config::{ClusterConfig, Config, Host, NodeName};
use consensus::{Network, Unreachable};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use peer_protocol::{
    Encode, Kind, LEVELS_SINCE, LOADS_SINCE, PeerRequest, ReplicaRequest, SESSION_NAMES_SINCE,
    SPLITS_SINCE, VERSIONS, Welcome,
};
use store::{Folder, Role};
use store_state::Level;
use store_state::api::PerStore;
use tokio::sync::watch;

use crate::cluster_time;
use crate::control;
use crate::node::Node;
use crate::peers::{Carrier, dispatch};
use crate::start_error::{OLD_FOLDER, StartError};

/// What members tell of themselves beside what the cluster does.
pub(crate) const INCARNATION: &str = "incarnation";

/// Host and port of the listener that clients without TLS and WebSocket are sent to.
pub(crate) const MQTT: &str = "mqtt";

/// What people call it.
pub(crate) const NAME: &str = "name";

/// The commit of its program.
pub(crate) const COMMIT: &str = "commit";

/// How many clients are connected.
pub(crate) const CONNECTIONS: &str = "connections";

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
    shards: OnceLock<PerStore<u16>>,
    configured_shards: PerStore<u16>,
    /// The seed of the hash of names: this node's own, until the cluster says otherwise.
    name_seed: OnceLock<u64>,
    own_name_seed: u64,
    /// Somebody has said that the data folder is to be taken as it is.
    accepts_folder: bool,
    /// The data folder has the sessions of a node that ran alone, and belongs to no cluster: it can found one.
    keeps_own: Option<PathBuf>,
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
    /// The lowest level that members have told of the shards that say none.
    level_told: Mutex<Option<Level>>,
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
        accepts_folder: bool,
        give_up: Arc<AtomicBool>,
    ) -> Result<Arc<Self>, StartError> {
        let clustered = Arc::new(Self {
            cluster: OnceLock::new(),
            node: OnceLock::new(),
            shards: OnceLock::new(),
            configured_shards: PerStore {
                session: config.session_store_shards,
                inbox: config.inbox_store_shards,
                retain: config.retain_store_shards,
                control: 1,
            },
            name_seed: OnceLock::new(),
            own_name_seed: folder.name_seed(),
            accepts_folder,
            keeps_own: (folder.has_founded() && !config.data_dir.join(cluster::RECORD).exists())
                .then(|| config.data_dir.clone()),
            incarnations: Mutex::default(),
            told: Mutex::default(),
            turns: AtomicUsize::default(),
            has_left: AtomicBool::default(),
            is_forgotten: AtomicBool::default(),
            level_told: Mutex::default(),
        });
        let options = Options {
            accepts_folder,
            ..options(config, folder, give_up)?
        };
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

    /// The first term in which replicas may vote whose folder is taken as it is, though it may be an old copy.
    pub(crate) fn accepts_folder(&self) -> Option<u64> {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = since_1970.map_or(0, |time| time.as_secs());
        self.accepts_folder.then_some(seconds)
    }

    /// The level of shards that say none, as the members tell that were asked at the start.
    pub(crate) fn level_told(&self) -> Option<Level> {
        *self.level_told.lock()
    }

    /// How many shards the stores of this cluster have.
    pub(crate) fn shards(&self) -> PerStore<u16> {
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
            if !node.rim.cluster_time.knows(&linked)
                && asked.is_none_or(|asked| asked.elapsed() >= ASK)
            {
                asked = Some(Instant::now());
                // An error: the system gives no runtime; the time is asked for again when this node serves.
                let _ = control::block_on(cluster_time::agree(node, self));
            }
            let is_connected = !members.nodes.is_empty() && linked.len() == others.len();
            if is_connected && node.rim.cluster_time.knows(&linked) || Instant::now() >= deadline {
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

    /// Whether there is a connection to a node, of a version of the protocol or a later one.
    pub(crate) fn speaks(&self, node: u64, version: u16) -> bool {
        let spoken = self.cluster().protocol_version(node, Channel::Data);
        spoken.is_some_and(|spoken| spoken >= version)
    }

    /// Whether there is a connection to a node.
    pub(crate) fn is_linked(&self, node: u64) -> bool {
        self.speaks(node, 0)
    }

    /// Asks another node. The request is on its way when this returns; the answer may be awaited anywhere.
    ///
    /// # Errors
    /// There is no connection to the node.
    pub(crate) fn call(
        &self,
        to: u64,
        request: PeerRequest,
        patience: Duration,
    ) -> Result<
        impl Future<Output = Result<Bytes, cluster::Unreachable>> + use<>,
        cluster::Unreachable,
    > {
        let cluster = self.cluster();
        let version = cluster.protocol_version(to, Channel::Data);
        let version = version.ok_or(cluster::Unreachable::NotConnected)?;
        // A version that lacks the request has nobody who answers it.
        let request = request.encode(version);
        let request = request.map_err(|_| cluster::Unreachable::NoAnswer)?;
        Ok(cluster.call(to, Channel::Data, request, patience))
    }

    /// The members as the store knows them.
    fn store_members(&self, node: &Node, members: &Members) -> Vec<store::Member> {
        let cluster = self.cluster();
        let now = node.rim.clock.now_ms();
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
            let name = name_of(member);
            match &member.reach {
                Reach::Down { has_ended, .. } => {
                    let reason = if *has_ended {
                        "its process has ended"
                    } else {
                        "it is not heard any more"
                    };
                    tracing::warn!(node, name, address, reason, "a node is down");
                }
                Reach::Up | Reach::Suspect => {
                    tracing::info!(node, name, address, "a node is reachable");
                }
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

/// The configuration with `clusterConfig.host`, which is found where it is not set. Waits for a route to the seeds; `None`:
/// `give_up` became true before there was one.
///
/// # Errors
/// The system gives no runtime.
pub(crate) fn with_host<'a>(
    config: &'a Config,
    give_up: &AtomicBool,
) -> Result<Option<Cow<'a, Config>>, StartError> {
    let cluster = &config.cluster_config;
    if cluster.host.is_some() {
        return Ok(Some(Cow::Borrowed(config)));
    }
    let seeds = cluster.seed_endpoints.iter().map(ToString::to_string);
    let domain = cluster.cluster_domain_name.iter();
    let named = domain.map(|name| format!("{name}:{}", cluster.port));
    let endpoints: Vec<String> = seeds.chain(named).collect();
    let address = cluster::own_address(&endpoints, give_up).map_err(StartError::System)?;
    Ok(address.map(|address| Cow::Owned(at(config, address))))
}

fn at(config: &Config, address: IpAddr) -> Config {
    let host = address.to_string();
    tracing::info!(
        host,
        "clusterConfig.host is not set: other nodes reach this one at the address of the seed that it is, or where its \
         route to the seeds begins"
    );
    let mut config = config.clone();
    config.cluster_config.host = Host::new(&host);
    config
}

/// What people call this node; its host's name unless the configuration has another.
pub(crate) fn node_name(config: &Config) -> String {
    let named = config.cluster_config.node_name.clone();
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let name = named.or_else(|| NodeName::of_host(&host));
    name.map_or_else(|| "unnamed".to_owned(), |name| name.to_string())
}

/// What a member says people call it. Empty: it says nothing, or no name.
pub(crate) fn name_of(member: &cluster::Member) -> &str {
    let told = member.info.get(NAME).map_or("", String::as_str);
    // It is shown to people, and another program may have said it.
    if NodeName::new(told).is_some() {
        told
    } else {
        ""
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
        listen: host.parse().ok(),
        port: cluster.port,
        seeds: cluster
            .seed_endpoints
            .iter()
            .map(ToString::to_string)
            .collect(),
        domain: cluster.cluster_domain_name.clone(),
        bootstrap: config.bootstrap,
        found_after: cluster.found_after.unwrap_or(Duration::ZERO),
        accepts_folder: false,
        folder: config.data_dir.clone(),
        security: security(cluster)?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: Versions {
            oldest: *VERSIONS.start(),
            newest: *VERSIONS.end(),
        },
        info: BTreeMap::from([(NAME.to_owned(), node_name(config))]),
        kept_info: vec![NAME.to_owned()],
        timings: Timings::default(),
        give_up,
    })
}

/// Reads the files that a node needs in its cluster, and starts nothing.
pub(crate) fn check(config: &Config) -> Result<(), StartError> {
    let security = security(&config.cluster_config)?;
    let host = config.cluster_config.host.as_ref();
    Cluster::check(&security, host.map(Host::as_str)).map_err(StartError::Cluster)
}

fn security(cluster: &ClusterConfig) -> Result<Security, StartError> {
    let read = |path: &Path| {
        let read = std::fs::read(path).and_then(|bytes| match bytes.trim_ascii() {
            // It would keep nobody out.
            [] => Err(io::Error::other("it is empty")),
            secret => Ok(Secret::new(secret.to_vec())),
        });
        read.map_err(|source| StartError::File {
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
        secret,
        tls,
        open_to: cluster.open_to(),
    })
}

impl Handler for Clustered {
    fn message(&self, from: Source, bytes: Bytes) {
        if let Some(node) = self.node.get() {
            dispatch::message(node, from, &bytes);
        }
    }

    fn request(&self, from: Source, bytes: Bytes, reply: Reply) {
        if let Some(node) = self.node.get() {
            dispatch::request(node, from, bytes, reply);
        }
    }

    fn connected(&self, to: u64, channel: Channel, _: u64) {
        if let (Some(node), Channel::Data) = (self.node.get(), channel) {
            node.with_peers(|peers, node| peers.connected(node, to));
            node.store().linked(to, true);
            if let Some(bans) = node.rim.bans() {
                bans.linked(to);
            }
        }
    }

    fn disconnected(&self, to: u64, channel: Channel) {
        if let (Some(node), Channel::Data) = (self.node.get(), channel) {
            node.with_peers(|peers, node| peers.disconnected(node, to));
            node.store().linked(to, false);
        }
    }

    fn incoming(&self, from: u64, channel: Channel, up: bool) {
        if let (Some(node), Channel::Data) = (self.node.get(), channel) {
            node.with_peers(|peers, node| match up {
                true => peers.heard_again(from),
                false => peers.lost(node, from),
            });
            node.store().interrupted(from);
        }
    }

    fn members(&self, members: &Arc<Members>) {
        let Some(node) = self.node.get() else {
            return;
        };
        let own = node.store().node();
        self.tell_reach(own, members);
        for restarted in self.restarted(members) {
            node.with_peers(|peers, node| peers.restarted(node, restarted));
        }
        let others: Vec<u64> = members
            .nodes
            .keys()
            .copied()
            .filter(|id| *id != own)
            .collect();
        node.with_peers(|peers, node| peers.members(node, &others));
        let members = self.store_members(node, members);
        let is_down = |member: &&store::Member| !member.is_up;
        let down: Vec<u64> = members.iter().filter(is_down).map(|m| m.node).collect();
        node.with_peers(|peers, node| peers.down(node, &down));
        node.store().members(members);
    }

    fn shut_out(&self, reason: ShutOut) {
        if self.has_left.load(Ordering::Relaxed) {
            self.is_forgotten.store(true, Ordering::Relaxed);
            return;
        }
        let why = reason.to_string();
        tracing::error!(why, "the cluster no longer accepts this node; it stops");
        std::process::exit(match reason {
            ShutOut::Evicted | ShutOut::Replaced => 1,
            ShutOut::OldFolder { .. } => OLD_FOLDER.into(),
        });
    }

    fn welcome(&self) -> Bytes {
        let welcome = Welcome {
            shards: self.shards(),
            name_seed: self.name_seed(),
        };
        welcome.encode()
    }

    fn note(&self, _: u16) -> Bytes {
        let level = self.node.get().and_then(|node| node.opened_store());
        let level = level.map(|store| store.levels.of_folder().0.to_be_bytes());
        level.map_or_else(Bytes::new, |bytes| Bytes::copy_from_slice(&bytes))
    }

    fn noted(&self, version: u16, note: &[u8]) {
        let level = match note.try_into() {
            Ok(bytes) => Level(u32::from_be_bytes(bytes)),
            // It does not know either, or it is of a program without levels.
            Err(_) if version >= Level::RAISED.facts().map_or(0, |facts| facts.protocol.0) => {
                return;
            }
            Err(_) => Level::of_protocol(version),
        };
        let mut told = self.level_told.lock();
        *told = Some(told.map_or(level, |told| told.min(level)));
    }

    fn welcomed(&self, welcome: &Bytes) -> Result<(), String> {
        if let Some(folder) = &self.keeps_own {
            return Err(StartError::NotEmpty(folder.clone()).to_string());
        }
        let welcome = Welcome::decode(welcome).map_err(|error| error.to_string())?;
        let _ = self.shards.set(welcome.shards);
        let _ = self.name_seed.set(welcome.name_seed);
        Ok(())
    }
}

/// The way to the stores of other nodes.
pub(crate) struct StorePeers(pub(crate) Arc<Clustered>);

impl store::Peers for StorePeers {
    fn know_names(&self) -> bool {
        self.0.cluster().all_speak(SESSION_NAMES_SINCE)
    }

    fn knows_loads(&self, node: u64) -> bool {
        self.0.speaks(node, LOADS_SINCE)
    }

    fn knows_splits(&self, node: u64) -> bool {
        self.0.speaks(node, SPLITS_SINCE)
    }

    fn knows_digests(&self, node: u64) -> bool {
        self.0.speaks(node, LEVELS_SINCE)
    }

    fn admitted(&self) -> watch::Receiver<bool> {
        self.0.cluster().admitted()
    }

    fn send(&self, to: u64, message: Bytes) {
        let cluster = self.0.cluster();
        // Not sent: the store hears that the connection is lost.
        let Some(version) = cluster.protocol_version(to, Channel::Data) else {
            return;
        };
        match Kind::Store.check(message.len(), version) {
            Ok(()) => {
                cluster.send(to, Channel::Data, message);
            }
            Err(violation) => tracing::error!(
                to = format!("{to:016x}"),
                error = %violation,
                "a message cannot be sent to another node"
            ),
        }
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
        let request = ReplicaRequest { group, request }.encode();
        let answer = self.0.cluster().call(node, channel, request, timeout);
        answer
            .map(|answer| answer.map_err(|error| Unreachable(error.to_string())))
            .boxed()
    }
}

/// The way to the brokers of other nodes.
pub(crate) struct BrokerLinks(pub(crate) Arc<Clustered>);

impl Carrier for BrokerLinks {
    fn version(&self, to: u64) -> Option<u16> {
        self.0.cluster().protocol_version(to, Channel::Data)
    }

    fn send(&self, to: u64, bytes: Bytes) -> bool {
        self.0.cluster().send(to, Channel::Data, bytes)
    }

    fn send_at_once(&self, to: u64, bytes: Bytes) -> bool {
        self.0.cluster().send_at_once(to, Channel::Data, bytes)
    }

    fn queued_bytes(&self, to: u64) -> usize {
        self.0.cluster().queued_bytes(to, Channel::Data)
    }
}
