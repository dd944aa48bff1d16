//! What all loops of a node share.

use std::collections::{BTreeMap, VecDeque};
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
/// A node to which the client connects is told of them, and they are remembered until it says that the client is
/// connected: its answer, or the connection, may come to nothing. Those of a node of an earlier version, which does
/// not say so, are remembered for [`TOLD_MS`].
///
/// At most [`UNRELEASED`] sessions; beyond that, the one whose connection ended first is forgotten. Messages that
/// it sends again may then reach sessions a second time that live as long as their connections.
#[derive(Debug, Default)]
pub(crate) struct Unreleased(Mutex<Remembered>);

/// Sessions of which unreleased publications are remembered. Each takes 10 KiB at most.
const UNRELEASED: usize = 100_000;

/// How long they are remembered after another node was first told of them, in ms.
const TOLD_MS: u64 = 600_000;

#[derive(Debug, Default)]
struct Remembered {
    by_client: HashMap<Arc<str>, OfSession, RandomState>,
    /// By when their connections ended, counted.
    by_age: BTreeMap<u64, Arc<str>>,
    last: u64,
    /// Of which other nodes were told, and when they are forgotten; some are forgotten already.
    told: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct OfSession {
    /// When its connection ended, counted.
    number: u64,
    /// Of that connection.
    epoch: u64,
    received: PacketIdSet,
    is_told: bool,
}

impl Unreleased {
    /// The connection of a session is closed that the session store knew by an epoch.
    pub(crate) fn keep(&self, client_id: &str, epoch: u64, received: &PacketIdSet, now_ms: u64) {
        let mut remembered = self.0.lock();
        remembered.forget_told(now_ms);
        remembered.forget(client_id, epoch);
        if received.is_empty() || remembered.by_client.contains_key(client_id) {
            return;
        }
        remembered.last += 1;
        let (client, number) = (Arc::<str>::from(client_id), remembered.last);
        remembered.by_age.insert(number, Arc::clone(&client));
        let of_session = OfSession {
            number,
            epoch,
            received: received.clone(),
            is_told: false,
        };
        remembered.by_client.insert(client, of_session);
        if remembered.by_age.len() > UNRELEASED
            && let Some((_, oldest)) = remembered.by_age.pop_first()
        {
            remembered.by_client.remove(&oldest);
        }
    }

    /// Those of a session that came on connections of lower epochs.
    pub(crate) fn before(&self, client_id: &str, epoch: u64) -> PacketIdSet {
        let remembered = self.0.lock();
        let of_session = remembered.by_client.get(client_id);
        of_session
            .filter(|of| of.epoch < epoch)
            .map_or_else(PacketIdSet::new, |of| of.received.clone())
    }

    /// The same, to be told to another node.
    pub(crate) fn tell(&self, client_id: &str, epoch: u64, now_ms: u64) -> PacketIdSet {
        let remembered = &mut *self.0.lock();
        remembered.forget_told(now_ms);
        let of_session = remembered.by_client.get_mut(client_id);
        let Some(of_session) = of_session.filter(|of| of.epoch < epoch) else {
            return PacketIdSet::new();
        };
        if !std::mem::replace(&mut of_session.is_told, true) {
            let told = (now_ms + TOLD_MS, of_session.number);
            if remembered.told.len() >= 2 * UNRELEASED {
                let by_age = &remembered.by_age;
                remembered
                    .told
                    .retain(|(_, number)| by_age.contains_key(number));
            }
            remembered.told.push_back(told);
        }
        of_session.received.clone()
    }

    /// A session is connected by an epoch, or ends with the connection of that.
    pub(crate) fn forget(&self, client_id: &str, epoch: u64) {
        self.0.lock().forget(client_id, epoch);
    }

    /// How many sessions there are.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().by_age.len()
    }
}

impl Remembered {
    /// Forgets what came on connections of no higher epoch.
    fn forget(&mut self, client_id: &str, epoch: u64) {
        if let Some(of_session) = self.by_client.get(client_id)
            && of_session.epoch <= epoch
        {
            self.by_age.remove(&of_session.number);
            self.by_client.remove(client_id);
        }
    }

    fn forget_told(&mut self, now_ms: u64) {
        while let Some((until_ms, number)) = self.told.front().copied()
            && (until_ms <= now_ms || !self.by_age.contains_key(&number))
        {
            self.told.pop_front();
            if let Some(client) = self.by_age.remove(&number) {
                self.by_client.remove(&client);
            }
        }
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
        unreleased.keep("none", 1, &PacketIdSet::new(), 0);
        for n in 0..=UNRELEASED as u64 {
            unreleased.keep(&n.to_string(), 1, &ids, 0);
            unreleased.keep("latest", n, &ids, 0);
        }
        assert_eq!(unreleased.len(), UNRELEASED);
        let of = |client| unreleased.before(client, u64::MAX);
        assert_eq!((of("0").len(), of("1").len()), (0, 0));
        assert_eq!((of("2"), of("latest")), (ids.clone(), ids));
        unreleased.forget("latest", u64::MAX);
        assert_eq!(of("latest").len(), 0);
        assert_eq!(unreleased.len(), UNRELEASED - 1);
    }

    #[test]
    fn what_a_node_is_told_is_remembered_until_the_client_is_connected_there() {
        let unreleased = Unreleased::default();
        let ids: PacketIdSet = [PacketId::FIRST].into_iter().collect();
        unreleased.keep("c", 5, &ids, 0);
        let tell = |epoch, now_ms| unreleased.tell("c", epoch, now_ms).len();
        // A question of before, that was late.
        assert_eq!(tell(5, 0), 0);
        // The first answer may be lost.
        assert_eq!((tell(6, 0), tell(6, 1), tell(7, 2)), (1, 1, 1));
        unreleased.forget("c", 4);
        assert_eq!(tell(7, 3), 1);
        unreleased.forget("c", 7);
        assert_eq!((tell(7, 4), unreleased.len()), (0, 0));
        // It came back, and went.
        unreleased.keep("c", 8, &ids, 5);
        assert_eq!((tell(9, 6), tell(9, TOLD_MS + 5)), (1, 1));
        assert_eq!((tell(9, TOLD_MS + 6), unreleased.len()), (0, 0));
        unreleased.keep("c", 10, &ids, 0);
        unreleased.keep("c", 11, &PacketIdSet::new(), 0);
        assert_eq!(unreleased.len(), 0);
    }

    #[test]
    fn so_many_are_told_at_a_time() {
        let unreleased = Unreleased::default();
        let ids: PacketIdSet = [PacketId::FIRST].into_iter().collect();
        for epoch in 0..=2 * UNRELEASED as u64 {
            unreleased.keep("c", epoch, &ids, 0);
            assert_eq!(unreleased.tell("c", epoch + 1, 0).len(), 1);
        }
        assert!(unreleased.0.lock().told.len() <= 2 * UNRELEASED);
    }
}
