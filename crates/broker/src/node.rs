//! What all loops of a node share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use authentication::Authentication;
use config::Networks;
use foldhash::fast::RandomState;
use guard::{Guard, Quota};
use hashbrown::HashMap;
use mqtt_session::PacketIdSet;
use net::{Clock, Kind, LoopStats, RateBucket, Remote};
use parking_lot::{Mutex, Once, RwLock};
use store::Store;

use crate::client_loop::ClientLoop;
use crate::cluster_time::ClusterTime;
use crate::clustered::Clustered;
use crate::direct::Direct;
use crate::drops::Drops;
use crate::grace::GracePeriods;
use crate::http::Token;
use crate::peers::Peers;
use crate::registry::Registry;
use crate::retained::Retained;
use crate::routes::Routes;
use crate::settings::Settings;
use crate::stalls::Stalls;
use crate::stats::{BrokerStats, sum};

/// Lines per second about refusals: enough to see who it is, and too few to fill a disk.
const REFUSAL_LINES: u32 = 10;

/// Lines per second about clients that connect, and as many about those that go.
const CLIENT_LINES: u32 = 20;

/// The state of a node beside its sessions, which belong to their loops.
#[derive(Debug)]
pub(crate) struct Node {
    /// For deadlines in this process.
    pub(crate) clock: Clock,
    /// For what other nodes and later processes read.
    pub(crate) cluster_time: ClusterTime,
    /// What the loops obey is the copy that each was last sent; this one is for other threads.
    pub(crate) settings: RwLock<Arc<Settings>>,
    /// The peers that each listener takes connections of, by its number; `None`: all.
    pub(crate) trusted_peers: Box<[Option<Networks>]>,
    /// Of each listener, by its number.
    pub(crate) listener_kinds: Box<[Kind]>,
    pub(crate) registry: Registry,
    pub(crate) routes: Routes,
    /// The broker's own retained messages; those of clients are in the store.
    pub(crate) retained: Retained,
    pub(crate) unreleased: Unreleased,
    /// What the broker published and sessions here have got.
    pub(crate) direct: Direct,
    /// Whom subscribers that do not drain hold back no more for a while.
    pub(crate) stalls: Stalls,
    /// Lines of the log about publishers that are held back.
    pub(crate) hold_lines: Quota,
    /// Who is let in.
    pub(crate) authentication: Authentication,
    pub(crate) guard: Arc<Guard>,
    /// Lines of the log about connections and clients that are refused.
    pub(crate) refusal_lines: Quota,
    /// Lines about clients that connect.
    pub(crate) connect_lines: Quota,
    /// Lines about clients that go.
    pub(crate) disconnect_lines: Quota,
    /// What requests that change something must show; without it there are none.
    pub(crate) http_token: RwLock<Option<Token>>,
    /// Opened after the node is made, because it tells the node what it finds.
    store: OnceLock<Store>,
    /// The other nodes; only in a cluster.
    peers: OnceLock<Peers>,
    /// Its membership; only in a cluster.
    clustered: OnceLock<Arc<Clustered>>,
    /// They start after the store.
    loops: OnceLock<Remote<ClientLoop>>,
    /// Clients connected, in all loops.
    pub(crate) connected: AtomicUsize,
    /// The most clients ever connected at once.
    pub(crate) connected_maximum: AtomicUsize,
    pressure: AtomicU8,
    /// New connections of the whole node.
    pub(crate) connection_rate: Mutex<RateBucket>,
    anonymous_refusal: Once,
    /// All listeners are bound and all loops run, and no shutdown has begun.
    pub(crate) ready: AtomicBool,
    /// RETAIN messages that are published: until the retain store was asked to keep them, and sessions have them.
    pub(crate) retaining: GracePeriods,
    /// Of each loop and, last, of the store.
    pub(crate) drops: Box<[Arc<Drops>]>,
    /// Drops that are remembered; each keeps as many, because all may be of one.
    pub(crate) recent_drops: usize,
    pub(crate) stats: Box<[Arc<BrokerStats>]>,
    pub(crate) net: Box<[Arc<LoopStats>]>,
}

/// QoS 2 publications of durable sessions that are not connected, received in this process and not
/// released. Sessions that live as long as their connections have got them and must not get them again.
///
/// At most [`UNRELEASED`] sessions; beyond that, the one whose connection ended first is forgotten. Messages that
/// it sends again may then reach sessions a second time that live as long as their connections.
#[derive(Debug, Default)]
pub(crate) struct Unreleased(Mutex<Remembered>);

/// Sessions of which unreleased publications are remembered. Each takes 10 KiB at most.
const UNRELEASED: usize = 100_000;

#[derive(Debug, Default)]
struct Remembered {
    /// With when its connection ended, counted.
    by_client: HashMap<Arc<str>, (u64, PacketIdSet), RandomState>,
    by_age: BTreeMap<u64, Arc<str>>,
    last: u64,
}

impl Unreleased {
    /// A session's connection is closed.
    pub(crate) fn keep(&self, client_id: &str, received: &PacketIdSet) {
        if received.is_empty() {
            return;
        }
        let mut remembered = self.0.lock();
        remembered.take(client_id);
        remembered.last += 1;
        let (client, number) = (Arc::<str>::from(client_id), remembered.last);
        remembered.by_age.insert(number, Arc::clone(&client));
        remembered
            .by_client
            .insert(client, (number, received.clone()));
        if remembered.by_age.len() > UNRELEASED
            && let Some((_, oldest)) = remembered.by_age.pop_first()
        {
            remembered.by_client.remove(&oldest);
        }
    }

    /// A session is connected again, or ends.
    pub(crate) fn take(&self, client_id: &str) -> PacketIdSet {
        self.0.lock().take(client_id)
    }

    /// How many sessions there are.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().by_age.len()
    }
}

impl Remembered {
    fn take(&mut self, client_id: &str) -> PacketIdSet {
        let Some((number, received)) = self.by_client.remove(client_id) else {
            return PacketIdSet::new();
        };
        self.by_age.remove(&number);
        received
    }
}

/// How scarce memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Pressure {
    /// Below the high-water mark.
    None = 0,
    /// Publishers are not read.
    StopReading = 1,
    /// New connections are refused as well.
    Refuse = 2,
}

/// What decides who is let in.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) authentication: Authentication,
    pub(crate) guard: Arc<Guard>,
    /// By the listener's number: the proxies whose word is taken for whom they connect.
    pub(crate) trusted_peers: Box<[Option<Networks>]>,
    /// By the listener's number as well.
    pub(crate) listener_kinds: Box<[Kind]>,
}

impl Node {
    pub(crate) fn new(
        settings: Arc<Settings>,
        gate: Gate,
        loops: usize,
        recent_drops: usize,
        clock: Clock,
    ) -> Self {
        // Only a fixed number of topics and identifiers can collide under a seed nobody else knows.
        let seed = std::hash::BuildHasher::hash_one(&RandomState::default(), clock.now_ms());
        Self {
            clock,
            cluster_time: ClusterTime::default(),
            settings: RwLock::new(settings),
            trusted_peers: gate.trusted_peers,
            listener_kinds: gate.listener_kinds,
            registry: Registry::new(),
            routes: Routes::with_seed(seed),
            retained: Retained::default(),
            unreleased: Unreleased::default(),
            direct: Direct::default(),
            stalls: Stalls::default(),
            hold_lines: Quota::new(REFUSAL_LINES),
            authentication: gate.authentication,
            guard: gate.guard,
            refusal_lines: Quota::new(REFUSAL_LINES),
            connect_lines: Quota::new(CLIENT_LINES),
            disconnect_lines: Quota::new(CLIENT_LINES),
            http_token: RwLock::new(None),
            store: OnceLock::new(),
            peers: OnceLock::new(),
            clustered: OnceLock::new(),
            loops: OnceLock::new(),
            connected: AtomicUsize::new(0),
            connected_maximum: AtomicUsize::new(0),
            pressure: AtomicU8::new(0),
            connection_rate: Mutex::default(),
            anonymous_refusal: Once::new(),
            ready: AtomicBool::new(false),
            retaining: GracePeriods::default(),
            recent_drops,
            drops: (0..=loops).map(|_| Drops::new(recent_drops)).collect(),
            stats: (0..loops).map(|_| Arc::default()).collect(),
            net: (0..loops).map(|_| Arc::default()).collect(),
        }
    }

    /// The cluster's time now, in ms of Unix time.
    pub(crate) fn cluster_now_ms(&self) -> u64 {
        self.cluster_time.at_ms(self.clock.now_ms())
    }

    /// The store has been opened.
    ///
    /// # Panics
    /// It had been before.
    pub(crate) fn set_store(&self, store: Store) {
        assert!(self.store.set(store).is_ok(), "a node has one store");
    }

    /// The store.
    ///
    /// # Panics
    /// It has not been opened yet. Loops start after that.
    #[inline]
    pub(crate) fn store(&self) -> &Store {
        self.store
            .get()
            .expect("the store opens before the loops start")
    }

    /// The same, for those who may look before.
    pub(crate) fn opened_store(&self) -> Option<&Store> {
        self.store.get()
    }

    /// The node is one of several. Before the store is opened and loops start.
    pub(crate) fn set_peers(&self, peers: Peers) {
        // A second time changes nothing.
        let _ = self.peers.set(peers);
    }

    /// The other nodes; `None`: this node is alone for good.
    #[inline]
    pub(crate) fn peers(&self) -> Option<&Peers> {
        self.peers.get()
    }

    /// The node is a member of a cluster.
    pub(crate) fn set_clustered(&self, clustered: Arc<Clustered>) {
        // A second time changes nothing.
        let _ = self.clustered.set(clustered);
    }

    /// The node's membership in its cluster, if it has one.
    pub(crate) fn clustered(&self) -> Option<&Arc<Clustered>> {
        self.clustered.get()
    }

    /// The loops, for those who do not wait until they have started.
    pub(crate) fn started_loops(&self) -> Option<&Remote<ClientLoop>> {
        self.loops.get()
    }

    /// The loops have started.
    pub(crate) fn set_loops(&self, loops: Remote<ClientLoop>) {
        // A second time changes nothing.
        let _ = self.loops.set(loops);
    }

    /// The loops. Whoever asks before they have started waits.
    pub(crate) fn loops(&self) -> &Remote<ClientLoop> {
        self.loops.wait()
    }

    /// Sessions, connected and not.
    pub(crate) fn sessions(&self) -> u64 {
        let here = sum(&self.stats, |s| &s.sessions);
        here + self.opened_store().map_or(0, Store::sessions)
    }

    /// Bytes of the topic filters of all clients that are connected.
    pub(crate) fn subscription_bytes(&self) -> u64 {
        sum(&self.stats, |s| &s.subscription_bytes)
    }

    pub(crate) fn pressure(&self) -> Pressure {
        match self.pressure.load(Ordering::Relaxed) {
            0 => Pressure::None,
            1 => Pressure::StopReading,
            _ => Pressure::Refuse,
        }
    }

    pub(crate) fn set_pressure(&self, pressure: Pressure) {
        self.pressure.store(pressure as u8, Ordering::Relaxed);
    }

    /// Says, once, how anonymous clients from other machines are let in.
    pub(crate) fn explain_anonymous_refusal(&self) {
        self.anonymous_refusal.call_once(|| {
            tracing::warn!(
                "anonymous clients are accepted from loopback addresses only; \
                 `allowAnonymous: true` accepts them from everywhere"
            );
        });
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

#[cfg(test)]
mod tests {
    use mqtt_proto::PacketId;

    use super::*;

    #[test]
    fn of_too_many_sessions_the_oldest_is_forgotten() {
        let unreleased = Unreleased::default();
        let ids: PacketIdSet = [PacketId::FIRST].into_iter().collect();
        unreleased.keep("none", &PacketIdSet::new());
        for n in 0..=UNRELEASED {
            unreleased.keep(&n.to_string(), &ids);
            unreleased.keep("latest", &ids);
        }
        assert_eq!(unreleased.len(), UNRELEASED);
        assert_eq!(
            (unreleased.take("0").len(), unreleased.take("1").len()),
            (0, 0)
        );
        assert_eq!(unreleased.take("2"), ids);
        assert_eq!(unreleased.take("latest"), ids);
        assert_eq!(unreleased.take("latest").len(), 0);
        assert_eq!(unreleased.len(), UNRELEASED - 2);
    }
}
