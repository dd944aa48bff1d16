//! A node across its lives: its disks stay, all else begins anew.
//!
//! Each life has a runtime of its own whose clock stands but for [`Life::run`]; dropping it is a crash.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use consensus::simulation::SimulatedDisk;
use consensus::{Log, LogOptions, Network, Unreachable};
use futures_util::future::BoxFuture;
use mqtt_session::{ApplicationMessage, Qos0Inbox, QueueFull};
use parking_lot::Mutex;
use store::{Cluster, Folder, Listener, Options, Peers, Role, Store};
use store_state::Limits;
use store_state::api::{Event, PerStore, ShardNumber, StoreId};
use store_state::inbox::{InboxDrop, StoredSubscription};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::routes::{Frame, Routes};

/// Unix time in ms when a run begins.
const EPOCH_MS: u64 = 1_000_000;

/// What a node sends.
pub(crate) enum Out {
    Store {
        to: u64,
        message: Bytes,
    },
    Routes {
        to: u64,
        frame: Frame,
    },
    Call {
        to: u64,
        group: u64,
        request: Bytes,
        answer: oneshot::Sender<Bytes>,
    },
    Answer {
        call: u64,
        answer: Option<Bytes>,
    },
}

/// The network as one life of a node has it.
#[derive(Clone, Default)]
struct Plug(Arc<Mutex<Vec<Out>>>);

impl Peers for Plug {
    fn send(&self, to: u64, message: Bytes) {
        self.0.lock().push(Out::Store { to, message });
    }
}

impl Network for Plug {
    fn call(
        &self,
        to: u64,
        group: u64,
        _bulk: bool,
        request: Bytes,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Unreachable>> {
        let (answer, answered) = oneshot::channel();
        self.0.lock().push(Out::Call {
            to,
            group,
            request,
            answer,
        });
        Box::pin(async move {
            match tokio::time::timeout(limit, answered).await {
                Ok(Ok(answer)) => Ok(answer),
                _ => Err(Unreachable("lost".to_owned())),
            }
        })
    }
}

/// A life's clock.
#[derive(Clone, Copy)]
struct Clock {
    origin: Instant,
    /// Unix time in ms at the origin.
    origin_ms: u64,
}

impl Clock {
    /// Within the life's runtime.
    fn now_ms(self) -> u64 {
        self.origin_ms + self.origin.elapsed().as_millis() as u64
    }
}

/// What the store tells.
pub(crate) struct Ears {
    clock: Clock,
    events: Mutex<Vec<Event>>,
    failure: Mutex<Option<String>>,
    routes: Arc<Mutex<Routes>>,
    node: u64,
}

impl Listener for Ears {
    fn mail(&self, _: usize, events: Vec<Event>) {
        self.events.lock().extend(events);
    }

    fn loops(&self) -> usize {
        1
    }

    fn filter(&self, shard: ShardNumber, filter: &str, any: bool, detached: bool) {
        self.routes.lock().set_filter(shard, filter, any, detached);
    }

    fn member(&self, _: ShardNumber, _: &str, _: &str, _: Option<&StoredSubscription>) {}

    fn inbox_leader(&self, shard: ShardNumber, node: Option<u64>, term: u64) {
        let mut routes = self.routes.lock();
        if node == Some(self.node) {
            routes.lead(shard, term);
        } else {
            routes.resign(shard);
        }
    }

    fn inbox_announced(&self, shard: ShardNumber) {
        self.routes.lock().complete(shard);
    }

    fn dropped(&self, drop: &InboxDrop<'_>) {
        *self.failure.lock() = Some(format!("dropped: {drop:?}"));
    }

    fn lost(&self, _: &str, _: &ApplicationMessage) {}

    fn failed(&self, what: &str) {
        *self.failure.lock() = Some(what.to_owned());
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn limits(&self) -> Limits {
        Limits {
            queue_messages: 1_000_000,
            queue_bytes: 1 << 40,
            queue_full: QueueFull::Refuse,
            qos0: Qos0Inbox::Offline,
            retained_messages: 1_000_000,
            retained_bytes: 1 << 40,
        }
    }
}

/// What stays of a node.
pub(crate) struct Node {
    pub(crate) id: u64,
    folder: TempDir,
    pub(crate) disk: SimulatedDisk,
    pub(crate) life: Option<Life>,
    pub(crate) lives: u64,
    /// The incarnation that it was last heard to have.
    pub(crate) incarnation: u64,
    pub(crate) role: Role,
    /// What its clock is before or behind, in ms.
    skew_ms: u64,
    /// How long its disk takes to write.
    write_ms: u64,
}

/// A node that runs.
pub(crate) struct Life {
    pub(crate) number: u64,
    clock: Clock,
    started: u64,
    serving: Option<Pin<Box<dyn Future<Output = ()>>>>,
    pub(crate) store: Arc<Store>,
    pub(crate) routes: Arc<Mutex<Routes>>,
    ears: Arc<Ears>,
    plug: Plug,
    /// Last, so that what lives in it ends first.
    runtime: Runtime,
}

/// What a life has brought forth since it was last asked.
#[derive(Default)]
pub(crate) struct Brought {
    pub(crate) out: Vec<Out>,
    pub(crate) events: Vec<Event>,
    pub(crate) failure: Option<String>,
}

impl Node {
    pub(crate) fn new(id: u64, skew_ms: u64, write_ms: u64) -> Self {
        // In memory where there is such a place: tables are synced for real.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            TempDir::with_prefix_in("herald-simulation-", memory)
        } else {
            TempDir::with_prefix("herald-simulation-")
        };
        Self {
            id,
            folder: folder.expect("a folder"),
            disk: SimulatedDisk::new(),
            life: None,
            lives: 0,
            incarnation: 0,
            role: Role::Serves,
            skew_ms,
            write_ms,
        }
    }

    pub(crate) fn start(&mut self, shards: PerStore<u16>, founds: bool, now: u64) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let within = runtime.enter();
        let clock = Clock {
            origin: Instant::now(),
            origin_ms: EPOCH_MS + now + self.skew_ms,
        };
        let folder = Folder::open_as(self.folder.path(), self.id).expect("its folder");
        let log_options = LogOptions {
            file_bytes: 64 << 10,
            disk_bytes: 256 << 10,
            ..LogOptions::new(self.folder.path().join("log"))
        };
        let files = Arc::new(self.disk.clone());
        let write = Duration::from_millis(self.write_ms);
        let log = Log::open_within(&log_options, files, write).expect("its log");
        let routes = Routes::new(self.id, folder.incarnation(), shards.inbox);
        let routes = Arc::new(Mutex::new(routes));
        let plug = Plug::default();
        let ears = Arc::new(Ears {
            clock,
            events: Mutex::default(),
            failure: Mutex::default(),
            routes: Arc::clone(&routes),
            node: self.id,
        });
        let options = Options {
            shards,
            replace_after: Duration::from_secs(8),
            cluster: Some(Cluster {
                peers: Arc::new(plug.clone()),
                founds,
            }),
            ..Options::default()
        };
        let listener: Arc<dyn Listener> = ears.clone();
        let opened = Store::open_within(folder, log, &options, &listener);
        let (store, serving) = opened.expect("its store");
        store.begin(&*listener);
        drop(within);
        self.lives += 1;
        self.incarnation = store.incarnation();
        self.life = Some(Life {
            number: self.lives,
            clock,
            started: now,
            serving: Some(Box::pin(serving)),
            store: Arc::new(store),
            routes,
            ears,
            plug,
            runtime,
        });
    }
}

impl Life {
    /// Lets the node live until a time of the run.
    pub(crate) fn run(&mut self, until: u64) {
        let end = self.clock.origin + Duration::from_millis(until - self.started);
        let serving = self
            .serving
            .as_mut()
            .expect("it serves until it is dropped");
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = serving => panic!("the store has ended"),
                () = sleep_until(end) => {}
            }
        });
    }

    /// Calls something as a thread of the node would.
    pub(crate) fn within<T>(&self, f: impl FnOnce(&Store, u64) -> T) -> T {
        let _within = self.runtime.enter();
        f(&self.store, self.clock.now_ms())
    }

    pub(crate) fn with_routes<T>(&self, f: impl FnOnce(&mut Routes, u64) -> T) -> T {
        let _within = self.runtime.enter();
        f(&mut self.routes.lock(), self.clock.now_ms())
    }

    pub(crate) fn received(&self, from: u64, message: &[u8]) {
        let _within = self.runtime.enter();
        let taken = self.store.received(&*self.ears, from, message);
        taken.expect("it makes sense");
    }

    /// Has another voter lead a shard that this node leads, or leave it so.
    pub(crate) fn transfer_leader(&self, store: StoreId, shard: u16, to: u64) {
        let own = Arc::clone(&self.store);
        self.runtime.spawn(async move {
            // It may lead no more by now.
            drop(own.transfer_leader(store, shard, to).await);
        });
    }

    pub(crate) fn handle(&self, call: u64, group: u64, request: Bytes) {
        let (store, plug) = (Arc::clone(&self.store), self.plug.clone());
        self.runtime.spawn(async move {
            let answer = store.handle(group, request).await;
            plug.0.lock().push(Out::Answer { call, answer });
        });
    }

    pub(crate) fn take(&self) -> Brought {
        let mut routes = self.routes.lock();
        let mut out = std::mem::take(&mut *self.plug.0.lock());
        let frames = std::mem::take(&mut routes.out).into_iter();
        out.extend(frames.map(|(to, frame)| Out::Routes { to, frame }));
        Brought {
            out,
            events: std::mem::take(&mut self.ears.events.lock()),
            failure: self.ears.failure.lock().take(),
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _within = self.runtime.enter();
        self.serving = None;
        self.store.abandon();
    }
}
