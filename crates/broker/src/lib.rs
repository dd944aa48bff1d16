//! The process around the broker's logic: event loops, the durable store, other nodes, authenticators, metrics and the
//! HTTP port.
//!
//! Purpose: [`Broker::start`] makes a running node of a [`Config`]; [`Broker::shutdown`] ends it in
//! order.
//!
//! Where to read next: `node.rs` for what the logic runs on, `store_listener.rs` for what the store tells,
//! `peers/mod.rs` for the links to other nodes, `control.rs` for what people ask of a cluster.
//!
//! Deliberately absent: what happens to packets and messages (`broker-core`), sockets (`net`).

mod access;
mod alarms;
mod all_loops;
mod audit_notes;
mod audit_sending;
mod ban_file;
mod certificate_metrics;
mod class_test;
mod cluster_bans;
mod cluster_time;
mod clustered;
mod control;
mod control_age;
mod control_changes;
mod control_requests;
mod control_waiting;
mod damaged_replicas;
mod descriptors;
mod disk_space;
mod drain;
mod ending;
mod events;
mod eviction;
mod first_login;
mod history;
mod http_tls;
mod inspect;
mod json_file;
mod latency_metrics;
mod left;
mod listeners;
mod memory;
mod metrics;
mod net_stats;
mod node;
mod otlp;
mod outlets;
mod own_connections;
mod pace;
mod peers;
mod people;
mod process_metrics;
mod purging;
mod queue_metrics;
mod readiness;
mod refused_logins;
mod reread;
mod retained_ends;
mod retained_forecast;
mod rule_file;
mod rules_of_all;
mod settings;
mod split_scripts;
mod spreading;
mod start_error;
mod stop;
mod store_listener;
mod sys;
mod upgrade;

use std::fmt;
use std::hash::BuildHasher;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use admin::{Anonymous, KeyFile, People, Rights, Token};
use authentication::Authentication;
use axum::Router;
use broker_core::{LoopMessage, NodeOptions, Place, SessionKey, Settings};
use config::{Config, ControlMode, HttpAnonymous, HttpConfig, Listing, SplitPolicy};
use control_view::View;
use guard::{Bans, Guard};
use net::{Clock, EventLoops};

pub use class_test::{DescribedClient, TriedClass, try_classes};
pub use left::NotReady;
pub use reread::Reread;
pub use retained_forecast::retained_forecast;
pub use rule_file::{RuleFile, RuleFileError};
pub use start_error::{OLD_FOLDER, StartError};

use self::control::{AloneControl, ClusterControl, Control};
use self::outlets::Outlets;
use access::NodeAccess;
use alarms::Alarms;
use all_loops::{STEP, all_loops};
use ban_file::BanFile;
use cluster_bans::ClusterBans;
use clustered::{BrokerLinks, COMMIT, CONNECTIONS, Clustered, MQTT, StorePeers};
use descriptors::Shares;
use disk_space::DiskSpace;
use drain::Drain;
use http_tls::HttpTls;
use inspect::{About, Answering, Inspect, OutletRim, asking, record_history, tell_changes};
use listeners::Listeners;
use node::{ClientLoop, Node, Process};
use own_connections::OwnConnections;
use peers::PeerLinks;
use peers::answerer::Answerer;
use people::ConfiguredPeople;
use route_exchange::Times;
use settings::settings;
use spreading::Spreading;
use stop::StopPlan;
use store::{Density, Folder, SplitBy, SplitOptions, Store};
use store_listener::StoreListener;
use store_state::api::PerStore;
use telemetry::{Exporter, LogLines};

use upgrade::{HasLevels, NameOf, Upgrade};

/// What the file of the HTTP port's token is called in messages.
const TOKEN: &str = "HTTP token";

/// Where the HTTP port is looked for if the configuration does not say.
const HTTP_PORT: u16 = 8091;

/// Cores for each thread of the store, if the configuration does not say.
const CORES_PER_STORE_THREAD: usize = 4;

/// The same, when splits have made more shards.
const CORES_PER_FURTHER_THREAD: usize = 2;

/// Store threads that a node has room for where it has as many cores, when splits have made more shards.
const FURTHER_THREADS: usize = 2;

/// Replicas of shards of a store for each core, from which on a node splits none by itself, if the configuration does not say.
const SHARDS_PER_CORE: usize = 4;

/// How long the processes of outlets may take to end in order.
const OUTLETS_END: Duration = Duration::from_secs(6);

/// How long clients are still read after the signal to shut down.
const SHUTDOWN_READ: Duration = Duration::from_millis(100);

/// How often other nodes are told how many clients are connected.
const TELL_CONNECTIONS: Duration = Duration::from_secs(1);

/// Threads of a thread beside the loops for what waits: files, locks of loops.
const BLOCKING_THREADS: usize = 16;

/// How often the memory is looked at.
const RESOURCE_CHECK: Duration = Duration::from_millis(500);

/// A running node.
pub struct Broker {
    node: Arc<Node>,
    loops: EventLoops<ClientLoop>,
    side: Side,
    http: Option<Side>,
    /// Answers other nodes as long as it is kept.
    _answerer: Arc<dyn Answerer>,
    inspect: Arc<Inspect>,
    listeners: Listeners,
    http_address: Option<SocketAddr>,
    http_tls: Option<HttpTls>,
    stop: StopPlan,
    exporter: Option<Arc<Exporter>>,
}

/// What a node is given by its process, and how the process ends before, or without, [`Broker::shutdown`] being called for.
pub struct Ends {
    /// When it becomes true, a node that waits for its cluster does not start.
    pub give_up: Arc<AtomicBool>,
    /// Called when the node has left its cluster: it is to be shut down.
    pub left: Box<dyn Fn() + Send + Sync>,
    /// The commit that the program was built from, which the other nodes are told.
    pub commit: &'static str,
    /// Log lines of the process that the node pushes to a collector of OpenTelemetry, if the log keeps any.
    pub log_lines: Option<Arc<LogLines>>,
    /// What only the program knows of its process.
    pub process: OwnProcess,
}

pub use inspect::OwnProcess;

/// Called when a node has left its cluster.
type Left = Box<dyn Fn() + Send + Sync>;

/// What a person says of the data folder at one start; no file keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FolderWord {
    /// Nothing: in a cluster, a majority of the members has to confirm that it is not an old copy.
    #[default]
    None,
    /// It is to be taken as it is, and so are those of the other members.
    Accepted,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            give_up: Arc::default(),
            left: Box::new(|| {}),
            commit: "unknown",
            log_lines: None,
            process: OwnProcess::default(),
        }
    }
}

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ends")
    }
}

/// A thread beside the loops: one serves HTTP, the other watches over memory and tells other nodes of this one.
struct Side {
    stop: tokio::sync::oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Broker {
    /// Opens the listeners and starts serving.
    ///
    /// # Errors
    /// A file that cannot be used, a listener that cannot be opened, or a system that gives no threads or
    /// descriptors.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        Self::start_until(config, FolderWord::None, Ends::default())
    }

    /// As [`Broker::start`], for a process that can end before the start is done, or because the node has left
    /// its cluster. `word`: what a person says of the data folder.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn start_until(config: &Config, word: FolderWord, ends: Ends) -> Result<Self, StartError> {
        if let Some(wrong) = outlets::check(config).next() {
            return Err(wrong);
        }
        let Ends {
            give_up,
            left: after,
            commit,
            log_lines,
            process,
        } = ends;
        let left = left::begin_anew(config)?;
        let is_member = config.data_dir.join(cluster::RECORD).exists();
        if is_member && !config.cluster_config.is_enabled() {
            // Its shards would wait for the other voters for ever.
            return Err(StartError::Member(config.data_dir.clone()));
        }
        let mut folder = Folder::open(&config.data_dir).map_err(StartError::Folder)?;
        let port = HttpPort::open(&config.http)?;
        let accepts_folder = word == FolderWord::Accepted;
        if accepts_folder && !(is_member && config.cluster_config.is_enabled()) {
            tracing::warn!(
                "--accept-folder was not needed: the data folder is not that of a member of a cluster"
            );
        }
        if !config.cluster_config.is_enabled() {
            let connect = |_: &Arc<Node>| {};
            return Self::start_node(
                config,
                (folder, port),
                None,
                None,
                (after, log_lines, process),
                connect,
            );
        }
        if folder.has_founded() && !config.bootstrap && !is_member {
            return Err(StartError::NotEmpty(config.data_dir.clone()));
        }
        let Some(config) = clustered::with_host(config, &give_up)? else {
            return Err(StartError::Cluster(cluster::StartError::GivenUp));
        };
        let config = left::founds_nothing(config, left.is_some());
        let config = config.as_ref();
        let clustered = Clustered::join(config, &folder, accepts_folder && is_member, give_up)?;
        if let Some(left) = left {
            left.forget().map_err(StartError::Folder)?;
        }
        clustered.tell(COMMIT, commit);
        folder
            .adopt_name_seed(clustered.name_seed())
            .map_err(StartError::Folder)?;
        let place = Place {
            node: folder.node(),
            incarnation: folder.incarnation(),
            times: Times::default(),
            links: PeerLinks(Box::new(BrokerLinks(Arc::clone(&clustered)))),
        };
        let clustered = Some(clustered);
        Self::start_node(
            config,
            (folder, port),
            Some(place),
            clustered,
            (after, log_lines, process),
            |_| {},
        )
    }

    /// The same for a node of a cluster. `connect` is called before the store is opened: it has the node told of
    /// members and of what comes from them from then on, and of the members that are known before it returns.
    #[cfg(test)]
    pub(crate) fn start_among(
        config: &Config,
        place: Place<PeerLinks>,
        connect: impl FnOnce(&Arc<Node>),
    ) -> Result<Self, StartError> {
        let folder = Folder::open(&config.data_dir).map_err(StartError::Folder)?;
        let port = HttpPort::open(&config.http)?;
        let Ends { left, process, .. } = Ends::default();
        Self::start_node(
            config,
            (folder, port),
            Some(place),
            None,
            (left, None, process),
            connect,
        )
    }

    fn start_node(
        config: &Config,
        (folder, port): (Folder, HttpPort),
        place: Option<Place<PeerLinks>>,
        clustered: Option<Arc<Clustered>>,
        (left, log_lines, own_process): (Left, Option<Arc<LogLines>>, OwnProcess),
        connect: impl FnOnce(&Arc<Node>),
    ) -> Result<Self, StartError> {
        let clock = Clock::start();
        let settings = Arc::new(read_settings(config).map_err(StartError::Rules)?);
        let view = Arc::new(match config.control.mode {
            ControlMode::Store => View::default(),
            ControlMode::File => View::off(),
        });
        let authentication = Authentication::open(&config.authentication, Arc::clone(&view))
            .map_err(StartError::Authentication)?;
        let exporter = otlp::open(&config.telemetry, folder.node(), log_lines)?;
        let (listeners, sockets) = Listeners::open(&config.mqtt_server_config)?;
        let loops = config
            .event_loops
            .map_or_else(cores, |n| n.get().into())
            .clamp(1, SessionKey::MAX_LOOPS);
        let recent_drops = config.limits.node.recent_drops as usize;
        let peers = listeners::peers(&config.mqtt_server_config);
        let shared = clustered.as_ref().map(|_| folder.node());
        let (ban_file, bans) = ban_file(config, shared)?;
        let ban_file = Arc::new(ban_file);
        let guard = Guard::new(&config.abuse);
        guard.set_bans(bans);
        let disk = DiskSpace::new(config.data_dir.clone());
        let scripts = split_scripts::read(config);
        let scripts = scripts.map_err(|mut problems| problems.swap_remove(0))?;
        let mut stores = store_options(config, clustered.as_ref());
        stores.split_scripts = scripts;
        let shares = Shares::new(config, loops, &stores);
        stores.open_files = usize::try_from(shares.of_tables.0).unwrap_or(usize::MAX);
        let places = Arc::clone(&shares.places);
        tracing::info!(
            limit = shares.limit.0,
            kept_back = shares.kept_back.0,
            for_clients = places.most().0,
            "file descriptors"
        );
        let audit_notes = audit_notes::AuditNotes::open(&config.data_dir);
        let process = Process::new(
            clock,
            (authentication, view),
            audit_notes,
            peers,
            disk,
            (loops, shares),
        );
        let options = NodeOptions {
            settings: Arc::clone(&settings),
            guard: Arc::new(guard),
            listener_kinds: listeners::kinds(&config.mqtt_server_config),
            loops,
            recent_drops,
            seed: random_seed(&clock),
        };
        let node = Node::new(options, process);
        let node = match place {
            Some(place) => node.among(place),
            None => node,
        };
        configure_rights(&node.rim.rights, &config.http)?;
        let age = &node.rim.control.age;
        age.configure(config.control.refuse_stale_after);
        let node = Arc::new(node);
        connect(&node);
        let name_seed = folder.name_seed();
        let listener = Arc::new(StoreListener::new(Arc::clone(&node)));
        let told: Arc<dyn store::Listener> = Arc::clone(&listener) as _;
        let store = Store::open(folder, &stores, &told).map_err(StartError::Store)?;
        node.rim.set_store(store);
        node.inbox_shards_changed();
        node.with_peers(|peers, node| peers.opened(node));
        if let Some(clustered) = &clustered {
            let links = PeerLinks(Box::new(BrokerLinks(Arc::clone(clustered))));
            node.rim.set_bans(ClusterBans::new(
                bans_of(&node, Arc::clone(&ban_file), Arc::clone(clustered)),
                links,
            ));
            node.rim.set_clustered(Arc::clone(clustered));
        }
        // Nobody is let in before the rules for everybody count.
        rules_of_all::replace(&node, |node| Settings::clone(&node.settings.read()));
        let services = (0..loops)
            .map(|index| ClientLoop::new(Arc::clone(&node), index))
            .collect();
        let loops = EventLoops::start(services, sockets, clock, &node.rim.net, &places)
            .map_err(StartError::System)?;
        let remote = loops.remote();
        node.rim.set_loops(loops.remote());
        node.store().begin(&*listener);
        if let Some(clustered) = &clustered {
            clustered.open(&node);
        }
        // The store has been loaded, and with it the rules for everybody.
        rules_of_all::replace(&node, |node| Settings::clone(&node.settings.read()));
        let http = port.hand_over();
        let http_address = http
            .as_ref()
            .and_then(|(listener, _)| listener.local_addr().ok());
        let upgrade = Arc::new(Upgrade::new(
            Arc::clone(&node) as Arc<dyn HasLevels>,
            clustered.as_ref().map(|clustered| {
                let name_of: NameOf = clustered::name_of;
                (Arc::clone(clustered.cluster()), name_of)
            }),
            config.cluster_config.raise_level_after,
        ));
        let spreading = clustered.as_ref().map(|clustered| {
            let spreading = Spreading::new(Arc::clone(&node), Arc::clone(clustered), config);
            Arc::new(spreading)
        });
        let control = match clustered.zip(spreading.clone()) {
            Some((clustered, spreading)) => {
                if let Some(reference) = listeners.reference(clustered::host(config)) {
                    clustered.tell(MQTT, &reference);
                }
                control(config, (&node, clustered), (&upgrade, spreading), left)
            }
            None => {
                let env = config.cluster_config.env.clone();
                Arc::new(AloneControl::new(
                    Arc::clone(&node),
                    Arc::clone(&upgrade),
                    env,
                ))
            }
        };
        let own_number = listeners::own_number(&config.mqtt_server_config);
        let connections = OwnConnections::new(loops.remote(), own_number);
        let outlets = Outlets::new(connections, name_seed, config);
        let about = About {
            upgrade: Arc::clone(&upgrade),
            name: clustered::node_name(config),
            listeners: listeners.listening(),
            alarms: Alarms::open(&config.data_dir, &config.attention),
            outlets: Arc::new(outlets),
            pushes: exporter
                .as_deref()
                .map(|exporter| Arc::clone(exporter.counts())),
            process: own_process,
        };
        let access = NodeAccess::new(Arc::clone(&node));
        let inspect = Inspect::new(&node, control, ban_file, about);
        let answerer: Arc<dyn Answerer> = Arc::new(Answering(Arc::clone(&inspect)));
        node.rim.set_answerer(&answerer);
        let side = beside_loops(
            Arc::clone(&node),
            Arc::clone(&inspect),
            (upgrade, spreading),
            exporter.clone(),
        );
        let side = Side::start("beside", side);
        let side = side.map_err(StartError::System)?;
        let asking = asking(Arc::clone(&inspect));
        let router = admin::router(Arc::new(asking), Arc::new(access), &node.rim.rights);
        let (http, http_tls) = match http {
            Some((listener, tls)) => {
                let port = tls.as_ref().map(HttpTls::port);
                let place = http_address.map(|address| (address, tls.is_some()));
                let serves = serve_http(listener, router, port);
                let told = Arc::clone(&node);
                let serves = async move {
                    let tells = place.map(|place| first_login::tell(&told, place));
                    tokio::join!(serves, futures_util::future::OptionFuture::from(tells));
                };
                let side = Side::start("http", serves).map_err(StartError::System)?;
                (Some(side), tls)
            }
            None => (None, None),
        };
        listeners.announce();
        if let Some(address) = http_address {
            let kind = if http_tls.is_some() { "https" } else { "http" };
            tracing::info!(kind, %address, "listening");
        }
        node.rim.readiness.handle_serving(Instant::now());
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            loops = remote.loops(),
            "ready"
        );
        Ok(Self {
            node,
            loops,
            side,
            http,
            _answerer: answerer,
            inspect,
            listeners,
            http_address,
            http_tls,
            stop: StopPlan::new(config),
            exporter,
        })
    }

    /// What `/api/v1/settings` shows: after the start what the node was started with, after each
    /// [`Broker::reload`] what was loaded then.
    pub fn show_settings(&self, loaded: Listing) {
        self.inspect.show_settings(loaded);
    }

    /// Where HTTP is served.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Reads the rule file again and applies what can change without a restart. What is wrong with
    /// authenticators, certificates or split scripts is logged, and stays as it was; so is which files were read. When this
    /// returns, all clients are subject to what could be applied.
    ///
    /// # Errors
    /// A rule file that is wrong; then everything stays as it is.
    pub fn reload(&self, config: &Config) -> Result<Reread, RuleFileError> {
        let settings = read_settings(config)?;
        let mut reread = Reread::default();
        reread.tell("rules", reread::rules(config), true);
        let chain = self.node.rim.authentication.reload(&config.authentication);
        if let Err(error) = &chain {
            tracing::error!(%error, "authentication not reloaded; it stays as it was");
        }
        let files = reread::authenticators(&config.authentication);
        reread.tell("authentication", files, chain.is_ok());
        self.listeners.reload(&mut reread);
        if let Some(tls) = &self.http_tls {
            tls.reload(&mut reread);
        }
        self.inspect.alarms.configure(&config.attention);
        self.inspect.outlets.configure(config);
        let age = &self.node.rim.control.age;
        age.configure(config.control.refuse_stale_after);
        self.node.guard.reload(&config.abuse);
        let keys = configure_rights(&self.node.rim.rights, &config.http);
        reread.tell("HTTP keys", reread::http_keys(config), keys.is_ok());
        if let Err(error) = keys {
            match &error {
                StartError::File { kind: TOKEN, .. } => {
                    tracing::error!(%error, "the HTTP token is not reloaded; it stays as it was");
                }
                _ => {
                    tracing::error!(%error, "the HTTP keys are not reloaded; they stay as they were")
                }
            }
        }
        if let Some(store) = self.node.opened_store() {
            split_scripts::reload(&store.splits().scripts(), config, &mut reread);
        }
        if let Some(exporter) = &self.exporter {
            otlp::reload(exporter, &config.telemetry, &mut reread);
        }
        rules_of_all::replace(&self.node, |_| settings);
        Ok(reread)
    }

    /// The node's view of the control store was changed: within 200 ms the rules for everybody are compiled, and all clients
    /// are judged anew, as by a reload. Waits for nobody.
    pub fn control_changed(&self) {
        self.node.rim.control.changed();
    }

    /// Ends the node in order: wills are published, clients are told and disconnected, sockets are
    /// closed.
    pub fn shutdown(mut self) {
        self.listeners.remove_sockets();
        self.node.rim.readiness.handle_stop();
        let connected = self.node.connected.load(Ordering::Relaxed);
        tracing::info!(connected, "shutting down");
        if let Some(clustered) = self.node.rim.clustered() {
            let status = || self.inspect.control.status();
            self.stop.prepare(&self.node, clustered, status);
            drain::hand_over(&self.node, clustered);
        }
        self.inspect.outlets.end(OUTLETS_END);
        let remote = self.loops.remote();
        all_loops(&remote, LoopMessage::LetNobodyIn);
        // Who has said goodbye before the signal is heard: its will must not be published.
        std::thread::sleep(SHUTDOWN_READ);
        self.node.store().make_room();
        all_loops(&remote, LoopMessage::PublishWills);
        // One loop has published them, a second one may own their topics: what it is sent, what it does with that, and
        // what it gave to others each come before a step of theirs.
        for _ in 0..3 {
            all_loops(&remote, LoopMessage::LetNobodyIn);
        }
        // While those are connected that messages with many receivers are still to be given to.
        let deadline = Instant::now() + STEP;
        let waiting = || broker_core::sum(&self.node.stats, |s| &s.deliveries_waiting);
        while waiting() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        all_loops(&remote, LoopMessage::Disconnect);
        // The last packets are on their way; a connection that does not take them is given up.
        let deadline = Instant::now() + STEP;
        while net_stats::sum_net(&self.node.rim.net, |s| &s.open) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        // What the clients' ends brought: its answers may bring more. On a full disk there are none.
        while broker_core::sum(&self.node.stats, |s| &s.pending) + waiting() > 0
            && !self.node.store().is_full()
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        // While the loops still take messages: what the clients' ends brought is carried out.
        let own = ::control::Node(self.node.store().node());
        let now = ::control::UnixMs(self.node.rim.clock.now_ms());
        self.node.rim.audit_notes.handle_stop(own, now);
        self.node.store().shutdown();
        self.inspect.alarms.handle_stop();
        if let Some(clustered) = self.node.rim.clustered() {
            clustered.stop();
        }
        self.loops.stop();
        if let Some(http) = self.http {
            http.end();
        }
        self.side.end();
        tracing::info!("stopped");
    }
}

/// From its next start on the node of this data folder, which no process uses, waits for no other one to confirm that
/// the folder is not an old copy: the others are gone for good. Does nothing if it is no member of a cluster.
///
/// # Errors
/// Why the folder cannot be used.
pub fn go_on_alone(folder: &Path) -> Result<(), String> {
    if !folder.join(cluster::RECORD).exists() {
        return Ok(());
    }
    cluster::go_on_alone(folder).map_err(|error| error.to_string())
}

/// Evicts all other members of the cluster that the node of this data folder belongs to, which no process uses: they are
/// gone for good, and what they had must not be served beside what takes its place. Gives their identifiers. Does nothing
/// if the node is no member of a cluster.
///
/// # Errors
/// Why the folder cannot be used.
pub fn evict_others(folder: &Path) -> Result<Vec<u64>, String> {
    cluster::evict_others(folder).map_err(|error| error.to_string())
}

/// Reads all files that the configuration names, as [`Broker::start`] does, and says what is wrong with each.
/// Opens no listener, connects to nobody, writes nothing.
#[must_use]
pub fn check_files(config: &Config) -> Vec<StartError> {
    let mut problems = listeners::check(&config.mqtt_server_config);
    let chain = Authentication::check(&config.authentication);
    problems.extend(chain.into_iter().map(StartError::Authentication));
    problems.extend(read_settings(config).err().map(StartError::Rules));
    problems.extend(configure_rights(&Rights::default(), &config.http).err());
    problems.extend(HttpTls::open(&config.http).err());
    let exporter = Exporter::check(&config.telemetry);
    problems.extend(exporter.err().map(StartError::Telemetry));
    problems.extend(ban_file(config, None).err());
    problems.extend(split_scripts::read(config).err().into_iter().flatten());
    problems.extend(outlets::check(config));
    if config.cluster_config.is_enabled() {
        problems.extend(clustered::check(config).err());
    }
    problems
}

fn read_settings(config: &Config) -> Result<Settings, RuleFileError> {
    let RuleFile { rules, .. } = RuleFile::configured(&config.authorization)?;
    Ok(settings(config, rules))
}

/// What nobody else knows.
fn random_seed(clock: &Clock) -> u64 {
    std::hash::RandomState::new().hash_one(clock.now_ms())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

fn store_options(config: &Config, clustered: Option<&Arc<Clustered>>) -> store::Options {
    let configured = PerStore {
        session: config.session_store_shards,
        inbox: config.inbox_store_shards,
        retain: config.retain_store_shards,
        control: 1,
    };
    store::Options {
        folders: PerStore {
            session: config.session_store_folder.clone(),
            inbox: config.inbox_store_folder.clone(),
            retain: config.retain_store_folder.clone(),
            control: None,
        },
        shards: clustered.map_or(configured, |clustered| clustered.shards()),
        voters: PerStore {
            session: config.session_store_voters,
            inbox: config.inbox_store_voters,
            retain: config.retain_store_voters,
            control: None,
        },
        open_files: store::Options::default().open_files,
        level: clustered.and_then(|clustered| clustered.level_told()),
        replace_after: config.cluster_config.replace_after.unwrap_or(Duration::MAX),
        compare_every: config
            .cluster_config
            .compare_replicas
            .unwrap_or(Duration::ZERO),
        scrub_every: config.store.scrub.unwrap_or(Duration::ZERO),
        cluster: clustered.map(|clustered| store::Cluster {
            founds: clustered.founds(),
            accepts_folder: clustered.accepts_folder(),
            peers: Arc::new(StorePeers(Arc::clone(clustered))),
        }),
        threads: config.store.threads.map_or_else(
            || (cores() / CORES_PER_STORE_THREAD).max(1),
            |threads| threads.get().into(),
        ),
        threads_most: config.store.threads.map_or_else(
            || (cores() / CORES_PER_FURTHER_THREAD).max(FURTHER_THREADS.min(cores())),
            |threads| threads.get().into(),
        ),
        splits: split_options(config),
        split_scripts: store::SplitScripts::default(),
    }
}

fn split_options(config: &Config) -> PerStore<SplitOptions> {
    let by = |policy| match policy {
        SplitPolicy::Load => SplitBy::Load,
        SplitPolicy::Bifromq => SplitBy::Bifromq,
        SplitPolicy::Script => SplitBy::Script,
        SplitPolicy::Nothing => SplitBy::Nothing,
    };
    let for_cores = || {
        let count = u16::try_from(SHARDS_PER_CORE * cores()).unwrap_or(u16::MAX);
        NonZeroU16::new(count).unwrap_or(NonZeroU16::MIN)
    };
    PerStore {
        session: SplitOptions {
            by: by(config.session_store_split_policy),
            cooldown: config.session_store_split_cooldown,
            shards_most: config
                .session_store_shards_per_node
                .unwrap_or_else(for_cores),
            operation_limit: config.session_store_io_nanos_limit,
            density_most: Density(config.session_store_max_io_density),
            cpu_usage_most: config.session_store_max_cpu_usage.get(),
        },
        inbox: SplitOptions {
            by: by(config.inbox_store_split_policy),
            cooldown: config.inbox_store_split_cooldown,
            shards_most: config.inbox_store_shards_per_node.unwrap_or_else(for_cores),
            operation_limit: config.inbox_store_io_nanos_limit,
            density_most: Density(config.inbox_store_max_io_density),
            cpu_usage_most: config.inbox_store_max_cpu_usage.get(),
        },
        retain: SplitOptions {
            by: by(config.retain_store_split_policy),
            cooldown: config.retain_store_split_cooldown,
            shards_most: config
                .retain_store_shards_per_node
                .unwrap_or_else(for_cores),
            operation_limit: config.retain_store_io_nanos_limit,
            density_most: Density(config.retain_store_max_io_density),
            cpu_usage_most: config.retain_store_max_cpu_usage.get(),
        },
        // It is never split.
        control: SplitOptions::default(),
    }
}

/// What people ask of a node's cluster.
fn control(
    config: &Config,
    (node, clustered): (&Arc<Node>, Arc<Clustered>),
    (upgrade, spreading): (&Arc<Upgrade>, Arc<Spreading>),
    left: Box<dyn Fn() + Send + Sync>,
) -> Arc<dyn ClusterControl> {
    let drain = Drain::new(
        Arc::clone(node),
        Arc::clone(&clustered),
        config.cluster_config.drain_clients_per_second.get(),
        left::noted(config, node.store().node(), left),
    );
    let env = config.cluster_config.env.clone();
    Arc::new(Control::new(
        Arc::clone(node),
        clustered,
        Arc::new(drain),
        (
            Arc::clone(upgrade),
            Box::new(move |clients_per_second| spreading.wish(clients_per_second)),
        ),
        env,
    ))
}

fn ban_file(config: &Config, node: Option<u64>) -> Result<(BanFile, Bans), StartError> {
    let in_data_folder = || config.data_dir.join(ban_file::FILES[0]);
    let path = config.abuse.ban_file.clone().unwrap_or_else(in_data_folder);
    BanFile::open(path.clone(), node).map_err(|source| StartError::File {
        kind: "bans",
        path,
        source,
    })
}

/// What the bans of a cluster need of a node.
fn bans_of(
    node: &Arc<Node>,
    file: Arc<BanFile>,
    clustered: Arc<Clustered>,
) -> cluster_bans::Process {
    let own = node.store().node();
    let others = move || {
        let members = clustered.cluster().members();
        let ids = members.nodes.keys().copied();
        ids.filter(|id| *id != own).collect()
    };
    let weak = Arc::downgrade(node);
    let check_clients = move || {
        if let Some(node) = weak.upgrade() {
            node.rim.check_bans();
        }
    };
    cluster_bans::Process {
        file,
        guard: Arc::clone(&node.guard),
        clock: node.rim.clock,
        others: Box::new(others),
        check_clients: Arc::new(check_clients),
    }
}

/// Who may use the HTTP port from now on.
///
/// # Errors
/// A file cannot be used; then everything stays as it was.
fn configure_rights(rights: &Rights, config: &HttpConfig) -> Result<(), StartError> {
    let failed = |kind, path: &Path, source| StartError::File {
        kind,
        path: path.to_owned(),
        source,
    };
    let token = config.token_file.as_deref();
    let token = token.map(|path| Token::read(path).map_err(|e| failed(TOKEN, path, e)));
    let keys = config.key_file.as_deref().map(|path| {
        let read = KeyFile::new(path).read();
        read.map_err(|error| failed("HTTP keys", path, io::Error::other(error)))
    });
    let (token, keys) = (token.transpose()?, keys.transpose()?);
    // A warning only: secrets that an orchestrator mounts are often open to all users of a container, which has one.
    if let Some(path) = config.token_file.as_deref()
        && std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
    {
        tracing::warn!(
            path = %path.display(),
            "others may read or change the HTTP token; chmod 600 makes it safe"
        );
    }
    let people = config.user_file.as_deref().map(|path| {
        let read = ConfiguredPeople::read(path, config);
        read.map_err(|error| failed("HTTP users", path, io::Error::other(error)))
    });
    let people = people.transpose()?;
    let people = people.map(|people| Arc::new(people) as Arc<dyn People>);
    let anonymous = match config.anonymous {
        HttpAnonymous::Viewer => Anonymous::Viewer,
        HttpAnonymous::None => Anonymous::None,
    };
    let hosts = config.hosts.iter().map(ToString::to_string).collect();
    rights.configure(token, keys.unwrap_or_default(), anonymous, hosts, people);
    Ok(())
}

fn http_listener(config: &HttpConfig) -> Result<Option<std::net::TcpListener>, StartError> {
    if !config.enable {
        return Ok(None);
    }
    let host = config.host.as_str();
    let port = config.port.unwrap_or(HTTP_PORT);
    let listener = match std::net::TcpListener::bind((host, port)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && config.port.is_none() => {
            tracing::warn!(
                port,
                "the default HTTP port is taken, another one is used; http.port sets it"
            );
            std::net::TcpListener::bind((host, 0))
        }
        result => result,
    };
    let failed = |source| StartError::Listen {
        kind: "HTTP",
        address: format!("{host}:{port}"),
        source,
    };
    let listener = listener.map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(Some(listener))
}

/// The HTTP port before the node serves.
struct HttpPort(Option<OpenPort>);

/// A port that is open, and who answers meanwhile.
struct OpenPort {
    listener: std::net::TcpListener,
    tls: Option<HttpTls>,
    side: Side,
}

impl HttpPort {
    /// From now on it says that the process lives, and is not ready: a node may wait for its cluster, or read
    /// for a while what it has stored.
    fn open(config: &HttpConfig) -> Result<Self, StartError> {
        let Some(listener) = http_listener(config)? else {
            return Ok(Self(None));
        };
        let tls = HttpTls::open(config)?;
        let meanwhile = listener.try_clone().map_err(StartError::System)?;
        let port = tls.as_ref().map(HttpTls::port);
        let serves = serve_http(meanwhile, admin::not_ready(), port);
        let side = Side::start("http", serves).map_err(StartError::System)?;
        Ok(Self(Some(OpenPort {
            listener,
            tls,
            side,
        })))
    }

    /// Somebody else answers from now on.
    fn hand_over(self) -> Option<(std::net::TcpListener, Option<HttpTls>)> {
        let OpenPort {
            listener,
            tls,
            side,
        } = self.0?;
        side.end();
        Some((listener, tls))
    }
}

impl Side {
    fn start(
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build()?;
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        _ = stopped => {}
                        () = work => {}
                    }
                });
            })?;
        Ok(Self { stop, thread })
    }

    fn end(self) {
        let Self { stop, thread } = self;
        let _ = stop.send(());
        if thread.join().is_err() {
            tracing::error!("a panic ended a thread");
        }
    }
}

async fn beside_loops(
    node: Arc<Node>,
    inspect: Arc<Inspect>,
    (upgrade, spreading): (Arc<Upgrade>, Option<Arc<Spreading>>),
    exporter: Option<Arc<Exporter>>,
) {
    let pushed = Arc::clone(&inspect);
    let rim = OutletRim(Arc::clone(&inspect));
    tokio::select! {
        () = record_history(Arc::clone(&inspect)) => {}
        () = tell_changes(inspect) => {}
        () = watch_resources(&node) => {}
        () = tick_peers(&node) => {}
        () = tell_connections(&node) => {}
        () = keep_cluster_time(&node) => {}
        () = share_bans(&node) => {}
        () = raise_levels(&upgrade) => {}
        () = spreading::run(spreading) => {}
        () = rules_of_all::run(&node) => {}
        () = audit_sending::run(&node) => {}
        () = otlp::run(exporter, &pushed) => {}
        () = outlets::run(&pushed.outlets, &rim) => {}
        () = outlets::tell_events(&pushed.outlets, &rim) => {}
    }
}

impl HasLevels for Node {
    fn levels(&self) -> &store::Levels {
        &self.store().levels
    }
}

/// Shards are raised when the level of the cluster is.
async fn raise_levels(upgrade: &Upgrade) {
    let mut interval = tokio::time::interval(upgrade::ROUND);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        upgrade.round().await;
    }
}

async fn share_bans(node: &Arc<Node>) {
    match node.rim.bans() {
        Some(bans) => bans.run().await,
        None => std::future::pending().await,
    }
}

async fn watch_resources(node: &Arc<Node>) {
    let mut interval = tokio::time::interval(RESOURCE_CHECK);
    loop {
        interval.tick().await;
        memory::check(node);
        // Whether or not anybody asks, the log says when it is ready.
        let _ = node.rim.readiness.judge(node.opened_store());
        let settings = Arc::clone(&node.settings.read());
        node.rim.disk.check(&settings);
    }
}

/// Other nodes are told now and then that this one lives.
async fn tick_peers(node: &Arc<Node>) {
    if node.peers().is_none() {
        return std::future::pending().await;
    }
    let mut interval = tokio::time::interval(Duration::from_millis(broker_core::TICK_MS));
    // Ticks that were missed while the process was stopped are no time in which others were silent.
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        node.with_peers(|peers, node| peers.tick(node));
    }
}

/// Other nodes are told now and then how many clients this one has.
async fn tell_connections(node: &Arc<Node>) {
    let Some(clustered) = node.rim.clustered() else {
        return std::future::pending().await;
    };
    let mut interval = tokio::time::interval(TELL_CONNECTIONS);
    loop {
        interval.tick().await;
        let connected = node.connected.load(Ordering::Relaxed);
        clustered.tell(CONNECTIONS, &connected.to_string());
    }
}

/// The nodes of a cluster agree on the time again and again.
async fn keep_cluster_time(node: &Arc<Node>) {
    let Some(clustered) = node.rim.clustered() else {
        return std::future::pending().await;
    };
    let mut interval = tokio::time::interval(cluster_time::ROUND);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        cluster_time::agree(node, clustered).await;
    }
}

async fn serve_http(listener: std::net::TcpListener, router: Router, tls: Option<admin::Tls>) {
    let served = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => admin::serve(listener, router, tls, descriptors::of_http()).await,
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        tracing::error!(%error, "the HTTP port is closed");
    }
    std::future::pending().await
}
