//! The store of one node: the handle that requests are given to.
//!
//! Purpose: event loops call [`Store`] from any thread. `session.rs`, `inbox.rs` and `retain.rs` hold the requests of the three
//! stores, `cluster.rs` what concerns other nodes.
//!
//! Invariant: no method of [`Store`] waits for the disk or for other nodes, but for [`Store::make_room`] and
//! [`Store::shutdown`].
//!
//! Read next: `open.rs` for how a store comes up, then `shard/mod.rs`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use consensus::{Condition, Log};
use histogram::Histogram;
use mqtt_session::Timestamp;
use parking_lot::Mutex;
use store_state::api::PerStore;
use store_state::control::ControlMachine;
use store_state::inbox::InboxMachine;
use store_state::retain::RetainMachine;
use store_state::session::SessionMachine;
use store_state::session::inspect::away_before;
use tokio::sync::watch;

use crate::api::catching_up::CatchingUp;
use crate::api::control::ControlStore;
use crate::api::levels::Levels;
use crate::api::listener::Listener;
use crate::api::memory::MemoryOfStore;
use crate::api::shard_set::ShardSet;
use crate::api::splits::Splits;
use crate::api::stats::{AWAY_DAYS, StoreStats};
use crate::leadership::led_shards::LedShards;
use crate::node::disk::is_full;
use crate::node::shutdown::Stop;
use crate::peers::known::KnownPeers;
use crate::retention::held::HeldQueues;
use crate::scrub::counters::ScrubCounters;
use crate::storage::folder::Folder;

/// How long a shutdown waits for the log when the reserve was released for it.
const ROOM_WAIT: Duration = Duration::from_secs(1);

/// How often is looked meanwhile.
const ROOM_LOOK: Duration = Duration::from_millis(5);

/// The store of this node. Cheap to share; requests can be given from any thread.
pub struct Store {
    pub(super) session: Arc<ShardSet<SessionMachine>>,
    pub(super) inbox: Arc<ShardSet<InboxMachine>>,
    pub(super) retain: Arc<ShardSet<RetainMachine>>,
    pub(super) control: Arc<ShardSet<ControlMachine>>,
    pub(super) over_limit: Arc<AtomicBool>,
    pub(super) splits: Arc<Splits>,
    pub(super) known_peers: Arc<KnownPeers>,
    pub(super) led_shards: Arc<LedShards>,
    pub(super) apply_times: Arc<Histogram>,
    pub(super) scrubbed: Arc<ScrubCounters>,
    pub(super) held_queues: Arc<HeldQueues>,
    pub(super) folder: Arc<Folder>,
    /// What it takes of the memory.
    pub memory: MemoryOfStore,
    /// The levels of its shards.
    pub levels: Levels,
    /// Users, groups and rules.
    pub control_store: ControlStore,
    /// The replicas of the start that have not caught up yet.
    pub catching_up: CatchingUp,
    pub(super) log: Arc<Log>,
    pub(super) condition: watch::Receiver<Condition>,
    pub(super) stop: watch::Sender<Stop>,
    pub(super) threads: Arc<ThreadHandles>,
}

/// The threads that run.
pub(super) type ThreadHandles = Mutex<Vec<std::thread::JoinHandle<()>>>;

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("node", &self.node())
            .field("incarnation", &self.incarnation())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// What the replicas here hold.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn replicas(&self) -> Vec<crate::simulation::Replica> {
        let mut replicas = self.session.replicas();
        replicas.extend(self.inbox.replicas());
        replicas.extend(self.retain.replicas());
        replicas.extend(self.control.replicas());
        replicas
    }

    /// Before a simulated crash: lets go of what holds itself.
    #[cfg(feature = "simulation")]
    pub fn abandon(&self) {
        self.session.abandon();
        self.inbox.abandon();
        self.retain.abandon();
        self.control.abandon();
    }

    /// The event loops have started: they are told what was found, and get their answers from now on.
    pub fn begin(&self, listener: &dyn Listener) {
        self.session.begin(listener);
        self.inbox.begin(listener);
        self.retain.begin(listener);
        self.control.begin(listener);
        self.control_store.tell(listener);
    }

    /// The splits of the shards that this node leads.
    #[must_use]
    pub fn splits(&self) -> &Splits {
        &self.splits
    }

    /// This node's identifier.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.folder.node()
    }

    /// Counts the starts of this node, and how often it was taken for dead.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.known_peers.incarnation()
    }

    /// Whether publishers should not be read for now. Asked for each message: while no shard is over its limit,
    /// it is one look at what hardly ever changes.
    #[must_use]
    pub fn is_over_limit(&self) -> bool {
        self.over_limit.load(Ordering::Relaxed) && self.is_still_over_limit()
    }

    fn is_still_over_limit(&self) -> bool {
        // In this order: a shard that becomes over its limit behind the look says so after this.
        self.over_limit.swap(false, Ordering::AcqRel);
        let is_over_limit = self.inbox.is_over_limit()
            || self.retain.is_over_limit()
            || self.session.is_over_limit();
        if is_over_limit {
            self.over_limit.store(true, Ordering::Release);
        }
        is_over_limit
    }

    /// Whether the disk is full: what has to be kept is refused, or waits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        is_full(&self.condition.borrow())
    }

    /// Before a shutdown: if the disk is full, gives up the space that was kept for that, and waits for at
    /// most `ROOM_WAIT` until the log can be written. What waits for space is then recorded.
    pub fn make_room(&self) {
        if !self.is_full() {
            return;
        }
        self.folder.reserve().release();
        let deadline = Instant::now() + ROOM_WAIT;
        while self.is_full() && Instant::now() < deadline {
            std::thread::sleep(ROOM_LOOK);
        }
    }

    /// Carries out what has been given, writes a last checkpoint, and ends the threads. On a full disk
    /// only what [`Store::make_room`] has room for is carried out.
    pub fn shutdown(&self) {
        self.make_room();
        self.stop.send_replace(Stop::InOrder);
        loop {
            // A thread that is just ending may have started another one.
            let threads = std::mem::take(&mut *self.threads.lock());
            if threads.is_empty() {
                break;
            }
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("a panic ended a thread of the store");
                }
            }
        }
        // Not when it is dropped: a process may end before that.
        self.log.close();
        // The part of the reserve that the shutdown did not need is for the next start.
        self.folder.reserve().keep();
    }

    /// Figures for the metrics. `now`: by the time of the cluster.
    #[must_use]
    pub fn stats(&self, now: Timestamp) -> StoreStats {
        const DAY_MS: u64 = 86_400_000;
        StoreStats {
            log: self.log.stats(),
            scrub: self.scrubbed.stats(),
            stores: PerStore {
                session: self.session.stats(),
                inbox: self.inbox.stats(),
                retain: self.retain.stats(),
                control: self.control.stats(),
            },
            sessions: self.sessions(),
            connected: self
                .session
                .sum(|machine| machine.counts().connected as u64),
            away: AWAY_DAYS.map(|days| {
                let before = Timestamp(now.0.saturating_sub(u64::from(days) * DAY_MS));
                self.session.sum(|machine| away_before(machine, before))
            }),
            inboxes: self.inbox.sum(|machine| machine.counts().inboxes as u64),
            full_queues: self.inbox.sum(|machine| machine.counts().full),
            filter_bytes: self.inbox.sum_kept(|machine| machine.counts().filter_bytes),
            queued_messages: self.inbox.sum(|machine| machine.counts().messages),
            queued_bytes: self.inbox.sum(|machine| machine.counts().bytes),
            remembered_calls: self.inbox.sum(|machine| machine.counts().calls as u64),
            remembered_fences: self.inbox.sum(|machine| machine.counts().fences as u64)
                + self.retain.sum(|machine| machine.fences() as u64),
            remembered_origins: self.inbox.sum(|machine| {
                let counts = machine.counts();
                (counts.origins + counts.released_origins) as u64
            }),
            retained_messages: self.retain.sum(|machine| machine.size().0),
            retained_bytes: self.retain.sum(|machine| machine.size().1),
            retained_wills: self.retain.sum(|machine| machine.wills() as u64),
            held_wills: self.session.sum(|machine| machine.counts().held as u64),
        }
    }
}
