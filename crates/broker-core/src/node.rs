//! What all loops of a node share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use guard::{Guard, Quota, Seldom};
use net_api::{Kind, RateBucket};
use parking_lot::{Mutex, RwLock};
use route_exchange::Exports;
use store_state::api::{ShardNumber, Store};

use crate::backpressure::slow::SlowSubscribers;
use crate::connect::departures::Departure;
use crate::connect::registry::Registry;
use crate::drops::{Drops, Reason};
use crate::key::SessionKey;
use crate::peers::{PeerEvent, Peers, Place, ThisNode, splits};
use crate::publish::direct::Direct;
use crate::quotas::Quotas;
use crate::retained::grace::GracePeriods;
use crate::retained::own::Retained;
use crate::rim::Rim;
use crate::routes::Routes;
use crate::session::unreleased::Unreleased;
use crate::settings::Settings;
use crate::stats::{BrokerStats, sum};

/// Lines per second about refusals: enough to see who it is, and too few to fill a disk.
const REFUSAL_LINES: u32 = 10;

/// Lines per second about clients that connect, and as many about those that go.
///
/// Limit: lines in the log about clients that connect, that go, that are refused | {}, {} and {REFUSAL_LINES} a
/// second; names of {excerpt::SHOWN:bytes} | counted, the next line says how many
const CLIENT_LINES: u32 = 20;

/// The state of a node beside its sessions, which belong to their loops.
#[derive(Debug)]
pub struct Node<R: Rim> {
    /// What the node runs on.
    pub rim: R,
    peers: Option<Peers<R::Links>>,
    /// What the loops obey is the copy that each was last sent; this one is for other threads.
    pub settings: RwLock<Arc<Settings>>,
    /// Of each listener, by its number.
    pub listener_kinds: Box<[Kind]>,
    pub(crate) registry: Registry,
    /// Who gets a message.
    pub routes: Routes,
    /// The broker's own retained messages; those of clients are in the store.
    pub(crate) retained: Retained,
    /// Of QoS 2, what earlier connections of clients have sent.
    pub unreleased: Unreleased,
    /// What the broker published and sessions here have got.
    pub direct: Direct,
    /// Subscribers that do not keep up.
    pub slow: SlowSubscribers,
    /// Who is let in.
    pub guard: Arc<Guard>,
    /// How much the log says of clients.
    pub lines: LogLines,
    /// Bytes of the topic filters of inboxes that are kept here, as of a moment ago.
    pub inbox_filters: AtomicUsize,
    /// What users have.
    pub(crate) quotas: Quotas,
    /// Clients connected, in all loops.
    pub connected: AtomicUsize,
    /// The most clients ever connected at once.
    pub connected_maximum: AtomicUsize,
    pressure: AtomicU8,
    /// New connections of the whole node.
    pub(crate) connection_rate: Mutex<RateBucket>,
    explained_anonymous_refusal: AtomicBool,
    /// RETAIN messages that are published: until the retain store was asked to keep them, and sessions have them.
    pub(crate) retaining: GracePeriods,
    /// Of each loop and, last, of the store.
    pub drops: Box<[Arc<Drops>]>,
    /// Drops that are remembered; each keeps as many, because all may be of one.
    pub recent_drops: usize,
    /// What each loop counts.
    pub stats: Box<[Arc<BrokerStats>]>,
}

/// How scarce memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Pressure {
    /// Below the high-water mark.
    None = 0,
    /// Publishers are not read.
    StopReading = 1,
    /// New connections are refused as well.
    Refuse = 2,
}

/// What a node is made with.
#[derive(Debug)]
pub struct NodeOptions {
    /// The settings at the start.
    pub settings: Arc<Settings>,
    /// Who is let in.
    pub guard: Arc<Guard>,
    /// Of each listener, by its number.
    pub listener_kinds: Box<[Kind]>,
    /// How many event loops there are.
    pub loops: usize,
    /// Drops that are remembered.
    pub recent_drops: usize,
    /// Protects the route index from chosen collisions.
    pub seed: u64,
}

/// Lines of the log about clients, which strangers cause.
#[derive(Debug)]
pub struct LogLines {
    /// Connections and logins that are refused, and clients that are disconnected.
    pub refusals: Quota,
    /// Handshakes that are refused, beside the limit above.
    pub handshakes: Seldom,
    /// Clients that connect.
    pub connects: Quota,
    /// Clients that go.
    pub disconnects: Quota,
}

impl LogLines {
    fn new() -> Self {
        Self {
            refusals: Quota::new(REFUSAL_LINES),
            handshakes: Seldom::default(),
            connects: Quota::new(CLIENT_LINES),
            disconnects: Quota::new(CLIENT_LINES),
        }
    }
}

impl<R: Rim> Node<R> {
    /// A node without clients and routes.
    pub fn new(options: NodeOptions, rim: R) -> Self {
        let NodeOptions {
            settings,
            guard,
            listener_kinds,
            loops,
            recent_drops,
            seed,
        } = options;
        Self {
            rim,
            peers: None,
            settings: RwLock::new(settings),
            listener_kinds,
            registry: Registry::new(),
            routes: Routes::with_seed(seed),
            retained: Retained::default(),
            unreleased: Unreleased::default(),
            direct: Direct::default(),
            slow: SlowSubscribers::default(),
            guard,
            lines: LogLines::new(),
            inbox_filters: AtomicUsize::new(0),
            quotas: Quotas::default(),
            connected: AtomicUsize::new(0),
            connected_maximum: AtomicUsize::new(0),
            pressure: AtomicU8::new(0),
            connection_rate: Mutex::default(),
            explained_anonymous_refusal: AtomicBool::new(false),
            retaining: GracePeriods::default(),
            recent_drops,
            drops: (0..=loops).map(|_| Drops::new(recent_drops)).collect(),
            stats: (0..loops).map(|_| Arc::default()).collect(),
        }
    }

    /// Makes it one of several nodes. Before its store is opened and its loops start.
    #[must_use]
    pub fn among(mut self, place: Place<R::Links>) -> Self {
        let exports = Exports::new(place.incarnation, place.times);
        self.routes.export(exports);
        self.peers = Some(Peers::new(place));
        self
    }

    /// The cluster's time now, in ms of Unix time.
    pub fn cluster_now_ms(&self) -> u64 {
        self.rim.cluster_time_ms(self.rim.now_ms())
    }

    /// The store.
    ///
    /// # Panics
    /// It has not been opened yet. Loops start after that.
    #[inline]
    pub fn store(&self) -> &R::Store {
        self.rim
            .store()
            .expect("the store opens before the loops start")
    }

    /// The same, for those who may look before.
    pub fn opened_store(&self) -> Option<&R::Store> {
        self.rim.store()
    }

    /// The other nodes; `None`: this node is alone for good.
    #[inline]
    pub fn peers(&self) -> Option<&Peers<R::Links>> {
        self.peers.as_ref()
    }

    /// Tells what knows of the other nodes something; a node that is alone has nobody to tell.
    pub fn with_peers(&self, f: impl FnOnce(&Peers<R::Links>, &Self)) {
        if let Some(peers) = &self.peers {
            f(peers, self);
        }
    }

    /// All that an inbox shard that this node leads had to tell of filters and members when it began to has been told.
    pub fn inbox_announced(&self, shard: ShardNumber) {
        if let Some(peers) = &self.peers {
            return peers.complete(self, shard);
        }
        self.routes.was_told(shard);
        self.inbox_shards_changed();
    }

    /// Which inbox shards there are has changed, or which slots one of them has; or the store has been opened.
    pub fn inbox_shards_changed(&self) {
        if let Some(peers) = &self.peers {
            return splits::shards_changed(peers, self);
        }
        // Before it is open, nothing is routed.
        if let Some(store) = self.opened_store() {
            let [all, routed] = self.routes.know_shards(|| store.inbox_shards());
            for shard in all.split().filter(|shard| routed.has(*shard)) {
                let is_kept = |client: &str| store.inbox_slot(client).0 <= shard.last;
                self.routes.forget_moved(shard.number, is_kept);
                store.narrow_inbox_shard(shard.number);
            }
        }
    }

    /// When and why a client's last connection has ended, as far as this node remembers.
    pub fn last_departure(&self, client_id: &str) -> Option<Departure> {
        self.registry.last_departure(client_id)
    }

    /// The session of a client in this node, and so the loop that has to do with it.
    pub fn home_of(&self, client_id: &str) -> Option<SessionKey> {
        self.registry.find(client_id)
    }

    /// The first `limit` client identifiers of sessions in this node, in the order of their bytes, behind `after` that begin
    /// with `prefix`.
    pub fn homes(
        &self,
        after: Option<&str>,
        prefix: &str,
        limit: usize,
    ) -> Vec<(Box<str>, SessionKey)> {
        self.registry.page(after, prefix, limit)
    }

    /// Sessions, connected and not.
    pub fn sessions(&self) -> u64 {
        let here = sum(&self.stats, |s| &s.sessions);
        here + self.opened_store().map_or(0, Store::sessions)
    }

    /// Whether one client more may be connected; one that takes its own connection over is none. `limit`: of connections; 0:
    /// there is none.
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        limit == 0 || self.connected.load(Ordering::Relaxed) < limit
    }

    /// Bytes of the topic filters of all clients that are connected.
    pub fn subscription_bytes(&self) -> u64 {
        sum(&self.stats, |s| &s.subscription_bytes)
    }

    /// Messages dropped for a reason since the start.
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.drops.iter().map(|drops| drops.count(reason)).sum()
    }

    /// How scarce memory is.
    pub fn pressure(&self) -> Pressure {
        match self.pressure.load(Ordering::Relaxed) {
            0 => Pressure::None,
            1 => Pressure::StopReading,
            _ => Pressure::Refuse,
        }
    }

    /// Memory has been looked at.
    pub fn set_pressure(&self, pressure: Pressure) {
        self.pressure.store(pressure as u8, Ordering::Relaxed);
    }

    /// Says, once, how anonymous clients from other machines are let in.
    pub(crate) fn explain_anonymous_refusal(&self) {
        if !self
            .explained_anonymous_refusal
            .swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "anonymous clients are accepted from loopback addresses only, and not for web pages of other hosts; \
                 `allowAnonymous: true` accepts them from everywhere, a listener's `allowedOrigins` those of the pages that it lists"
            );
        }
    }

    /// A client has connected.
    pub(crate) fn count_connected(&self) {
        let now = self.connected.fetch_add(1, Ordering::Relaxed) + 1;
        if now > self.connected_maximum.load(Ordering::Relaxed) {
            self.connected_maximum.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// A client's connection is gone.
    pub(crate) fn count_disconnected(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R: Rim> ThisNode for Node<R> {
    type Store = R::Store;

    fn routes(&self) -> &Routes {
        &self.routes
    }

    fn store(&self) -> &R::Store {
        Self::store(self)
    }

    fn opened_store(&self) -> Option<&R::Store> {
        Self::opened_store(self)
    }

    fn now_ms(&self) -> u64 {
        self.rim.now_ms()
    }

    fn cluster_now_us(&self) -> u64 {
        self.rim.cluster_time_us(self.rim.now_us())
    }

    fn loops(&self) -> usize {
        self.stats.len()
    }

    fn loops_run(&self) -> bool {
        self.rim.loops_run()
    }

    fn home_loop_of(&self, client: &str) -> Option<usize> {
        self.home_of(client).map(|home| home.loop_index())
    }

    fn tell_loop(&self, index: usize, event: PeerEvent) {
        self.rim.send(index, event.into());
    }
}
