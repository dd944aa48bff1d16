//! A node across its lives: its disks stay, all else begins anew.
//!
//! Each life has a runtime of its own whose clock stands but for [`Life::run`]; dropping it is a crash. In it live a
//! store and a broker: the logic of `broker-core` with its event loops, which have connections in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use broker_core::{ClientLoop, Node as Broker, NodeOptions, Peers, Place};
use bytes::Bytes;
use consensus::simulation::{Chance, SimulatedDisk};
use consensus::{Files as _, Log, LogOptions};
use control_view::View;
use net_api::{Arrival, Closed, Connections as _, Kind, Next, Service as _, Transmit};
use parking_lot::Mutex;
use peer_protocol::PeerMessage;
use route_exchange::Times;
use store::{Cluster, Folder, Listener, Options, Role, SplitBy, Store};
use store_state::api::Event;
use store_state::api::{PerStore, Slot, StoreId};
use store_state::control::ControlOp;
use store_state::{Level, Retention};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep_until};

use crate::connections::{Connection, Memory};
use crate::control::Seen;
use crate::rim::{Clock, Ears, Out, Plug, SimulatedProcess, Trimmed};
use crate::settings::{guard, settings};
use crate::splits::{ByItself, SplitAnswer};

/// Unix time in ms when a run begins.
const EPOCH_MS: u64 = 1_000_000;

/// Event loops of a node.
pub(crate) const LOOPS: usize = 2;

/// How often the loops of a node may act within a step before something must be wrong.
const ROUNDS: usize = 10_000;

/// What a turn of an event loop sends at the most on a connection, in bytes.
const TRANSMIT_BYTES: usize = 64 << 10;

/// Drops that a node remembers.
const RECENT_DROPS: usize = 64;

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
    /// Its log was damaged since its last life.
    is_damaged: bool,
    /// As of [`LogOptions`].
    ends_interval: Duration,
}

/// What of a log is damaged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its end, or some other place, or `ends`.
    Any,
    /// Its end: some bytes, or up to all of the newest file.
    End,
}

/// A node that runs.
pub(crate) struct Life {
    pub(crate) number: u64,
    clock: Clock,
    started: u64,
    serving: Option<Pin<Box<dyn Future<Output = ()>>>>,
    pub(crate) broker: Arc<Broker<SimulatedProcess>>,
    loops: Vec<(ClientLoop<SimulatedProcess>, Memory)>,
    ears: Arc<Ears>,
    plug: Plug,
    /// What became of splits that the node was asked for.
    split_answers: Arc<Mutex<Vec<SplitAnswer>>>,
    /// Last, so that what lives in it ends first.
    runtime: Runtime,
}

/// What a life has brought forth since it was last asked.
#[derive(Default)]
pub(crate) struct Brought {
    pub(crate) out: Vec<Out>,
    /// Shards whose inboxes the store had the broker open again.
    pub(crate) reopened: Vec<u16>,
    pub(crate) trimmed: Vec<Trimmed>,
    pub(crate) failure: Option<String>,
    pub(crate) split_answers: Vec<SplitAnswer>,
    /// Answers of the control store.
    pub(crate) control_answers: Vec<Event>,
}

/// What a connection has brought its client.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    /// The broker has closed it, or it is not there any more; `true`: in order.
    pub(crate) closed: Option<bool>,
}

/// The stores of the nodes that are alive, by node.
pub(crate) fn stores(nodes: &BTreeMap<u64, Node>) -> Vec<&Store> {
    let lives = nodes.values().filter_map(|node| node.life.as_ref());
    lives.map(Life::store).collect()
}

/// The nodes that are alive, as far as the control store goes.
pub(crate) fn seen(nodes: &BTreeMap<u64, Node>) -> Vec<Seen<'_>> {
    let lives = nodes.values().filter_map(|node| {
        let life = node.life.as_ref()?;
        Some(Seen {
            store: life.store(),
            view: life.view(),
            leaves: node.role == Role::Leaves,
        })
    });
    lives.collect()
}

impl Node {
    pub(crate) fn new(id: u64, skew_ms: u64, write_ms: u64) -> Self {
        // In memory where there is such a place: tables are synced for real.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            TempDir::with_prefix_in("herald-sim-", memory)
        } else {
            TempDir::with_prefix("herald-sim-")
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
            is_damaged: false,
            ends_interval: Duration::from_secs(1),
        }
    }

    /// From its next life on damage is noticed at the very end of its log, too.
    pub(crate) fn note_each_end(&mut self) {
        self.ends_interval = Duration::ZERO;
    }

    /// Damages the log of a node that does not run. Says how.
    pub(crate) fn damage(&mut self, chance: &mut Chance, part: Part) -> String {
        self.is_damaged = true;
        let paths = self.disk.paths();
        let of_kind = |suffix: &str| {
            let ends = |path: &&PathBuf| path.to_string_lossy().ends_with(suffix);
            paths.iter().filter(ends).collect::<Vec<_>>()
        };
        let appended = of_kind(".raftlog");
        let how = match part {
            Part::Any => chance.below(8),
            Part::End => chance.below(3),
        };
        let path = match how {
            0..4 => appended.last().copied(),
            4..6 => appended.get(chance.below(appended.len())).copied(),
            6 => of_kind(".rewrite").pop(),
            _ => of_kind("ends").pop(),
        };
        let Some(path) = path else {
            return "nothing is there yet".to_owned();
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if how == 0 {
            self.disk.delete(path).expect("it can be deleted");
            return format!("{name} is lost");
        }
        let mut said = String::new();
        self.disk.edit(path, |content| {
            let zeros = content.iter().rev().take_while(|byte| **byte == 0);
            let written = content.len() - zeros.count();
            let most = match part {
                Part::End if chance.below(2) == 0 => written,
                _ => 400.min(written),
            };
            let lost = 1 + chance.below(most.max(1));
            match how {
                1 | 4 => {
                    content.truncate(written.saturating_sub(lost));
                    said = format!("{lost} bytes of {name} are lost");
                }
                2 => {
                    content[written.saturating_sub(lost)..].fill(0);
                    said = format!("{lost} bytes of {name} are zeros");
                }
                _ if written > 0 => {
                    let (at, bit) = (chance.below(written), chance.below(8));
                    content[at] ^= 1 << bit;
                    said = format!("bit {bit} of byte {at} of {name} is flipped");
                }
                _ => {}
            }
        });
        said
    }

    pub(crate) fn start(
        &mut self,
        shards: PerStore<u16>,
        (by_itself, retention, level): (ByItself, &Arc<Retention>, Level),
        founds: bool,
        now: u64,
        others: &[u64],
    ) {
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
            ends_interval: self.ends_interval,
            ..LogOptions::new(self.folder.path().join("log"))
        };
        let files = Arc::new(self.disk.clone());
        let write = Duration::from_millis(self.write_ms);
        let log = Log::open_within(&log_options, files, write).expect("its log");
        assert!(
            std::mem::take(&mut self.is_damaged) || log.damage().is_empty(),
            "what a power loss leaves is taken for damage: {:?}",
            log.damage()
        );
        let plug = Plug::default();
        let place = Place {
            node: self.id,
            incarnation: folder.incarnation(),
            times: Times::default(),
            links: plug.clone(),
        };
        let node_options = NodeOptions {
            settings: Arc::new(settings()),
            guard: Arc::new(guard()),
            listener_kinds: Box::new([Kind::Tcp]),
            loops: LOOPS,
            recent_drops: RECENT_DROPS,
            seed: 1,
        };
        let broker = Broker::new(node_options, SimulatedProcess::new(clock)).among(place);
        let broker = Arc::new(broker);
        broker.with_peers(|peers, node| peers.members(node, others));
        let ears = Arc::new(Ears::new(
            Arc::clone(&broker),
            by_itself.look,
            Arc::clone(retention),
        ));
        let options = Options {
            shards,
            threads_most: match by_itself.options.by {
                SplitBy::Nothing => 1,
                SplitBy::Load | SplitBy::Bifromq | SplitBy::Script => 2,
            },
            splits: PerStore::all(by_itself.options),
            level: Some(level),
            replace_after: Duration::from_secs(8),
            compare_every: Duration::from_secs(2),
            cluster: Some(Cluster {
                accepts_folder: None,
                peers: Arc::new(plug.clone()),
                founds,
            }),
            ..Options::default()
        };
        let listener: Arc<dyn Listener> = ears.clone();
        let opened = Store::open_within(folder, log, &options, &listener);
        let (store, serving) = opened.expect("its store");
        broker.rim.set_store(store);
        broker.inbox_shards_changed();
        broker.store().begin(&*listener);
        broker.with_peers(|peers, node| peers.opened(node));
        let now_ms = clock.now_ms();
        let loops = (0..LOOPS)
            .map(|index| {
                let clients = ClientLoop::new(Arc::clone(&broker), index);
                (clients, Memory::new(index, LOOPS, now_ms))
            })
            .collect();
        drop(within);
        self.lives += 1;
        self.incarnation = broker.store().incarnation();
        self.life = Some(Life {
            number: self.lives,
            clock,
            started: now,
            serving: Some(Box::pin(serving)),
            broker,
            loops,
            ears,
            plug,
            split_answers: Arc::default(),
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
        let _within = self.runtime.enter();
        let now_ms = self.clock.now_ms();
        for (_, memory) in &mut self.loops {
            memory.now_ms = now_ms;
        }
        self.let_loops_act();
    }

    /// The loops act until none has anything to do.
    fn let_loops_act(&mut self) {
        for _ in 0..ROUNDS {
            let mut is_busy = false;
            let mut messages = self.broker.rim.take_messages();
            for (_, memory) in &mut self.loops {
                memory.turn += 1;
                memory.append_messages(&mut messages);
            }
            for (to, message) in messages {
                is_busy = true;
                let (clients, memory) = &mut self.loops[to];
                clients.mail(memory, message);
            }
            for (clients, memory) in &mut self.loops {
                while let Some(due) = memory.timers.first_entry()
                    && due.key().0 <= memory.now_ms
                {
                    let timer = due.remove();
                    clients.timer(memory, timer);
                    is_busy = true;
                }
            }
            for index in 0..LOOPS {
                is_busy |= self.read(index);
                is_busy |= self.transmit(index);
            }
            if !is_busy {
                return;
            }
        }
        panic!("the loops do not come to rest");
    }

    fn read(&mut self, index: usize) -> bool {
        let mut is_busy = false;
        let ids: Vec<_> = self.loops[index].1.connections.keys().collect();
        for id in ids {
            let (clients, memory) = &mut self.loops[index];
            let Some(c) = memory.connections.get_mut(id) else {
                continue;
            };
            if c.is_paused || c.is_closing || c.unread.is_empty() {
                continue;
            }
            let bytes = std::mem::take(&mut c.unread);
            let received = clients.received(memory, id, &bytes);
            is_busy |= received.consumed > 0;
            let Some(c) = memory.connections.get_mut(id) else {
                continue;
            };
            c.unread
                .splice(0..0, bytes[received.consumed..].iter().copied());
            match received.next {
                Next::Read | Next::Yield => {}
                Next::Pause => c.is_paused = true,
                Next::Close => memory.close(id),
                Next::HandOver(to) => {
                    is_busy = true;
                    let mut connection = memory.connections.remove(id).expect("it is there");
                    let messages = memory.accompanying.take();
                    connection.tag = 0;
                    let (clients, memory) = &mut self.loops[to];
                    let id = memory.connections.insert(connection);
                    let peer = memory.peer(id).expect("it is there");
                    clients.arrived(memory, id, peer, Arrival::HandedOver);
                    if let Some(messages) = messages {
                        clients.accompanied(memory, id, messages);
                    }
                }
            }
        }
        is_busy
    }

    fn transmit(&mut self, index: usize) -> bool {
        let mut is_busy = false;
        let ids: Vec<_> = self.loops[index].1.connections.keys().collect();
        for id in ids {
            let (clients, memory) = &mut self.loops[index];
            let Some(c) = memory.connections.get_mut(id) else {
                continue;
            };
            if !c.is_touched || c.is_blocked {
                continue;
            }
            c.is_touched = false;
            is_busy = true;
            let mut out = Vec::new();
            let next = clients.transmit(memory, id, &mut out, TRANSMIT_BYTES);
            if let Some(c) = memory.connections.get_mut(id) {
                c.sent.extend_from_slice(&out);
                c.is_touched |= next == Transmit::More;
            }
            if next == Transmit::Close {
                memory.close(id);
            }
        }
        is_busy
    }

    /// A client opens a connection to a loop. `label`: what it is found by from here on.
    pub(crate) fn open(&mut self, label: &str, index: usize) {
        let _within = self.runtime.enter();
        let (clients, memory) = &mut self.loops[index];
        let id = memory.connections.insert(Connection {
            client: label.to_owned(),
            ..Connection::default()
        });
        let peer = memory.peer(id).expect("it is there");
        clients.arrived(memory, id, peer, Arrival::Accepted);
    }

    fn find(&self, label: &str) -> Option<(usize, net_api::ConnectionId)> {
        self.loops
            .iter()
            .enumerate()
            .find_map(|(index, (_, memory))| {
                let is_it = |id: &net_api::ConnectionId| {
                    let connection = memory.connections.get(*id);
                    connection.is_some_and(|c| c.client == label)
                };
                Some((index, memory.connections.keys().find(is_it)?))
            })
    }

    /// Whether the broker serves a connection.
    pub(crate) fn serves(&self, label: &str) -> bool {
        self.find(label).is_some_and(|(index, id)| {
            let connection = self.loops[index].1.connections.get(id);
            connection.is_some_and(|c| !c.is_closing)
        })
    }

    /// A client sends something. It may not arrive.
    pub(crate) fn push(&mut self, label: &str, bytes: &[u8]) {
        if let Some((index, id)) = self.find(label)
            && let Some(connection) = self.loops[index].1.connections.get_mut(id)
        {
            connection.unread.extend_from_slice(bytes);
        }
    }

    /// What a client receives.
    pub(crate) fn take_from(&mut self, label: &str) -> Received {
        let mut received = Received::default();
        if let Some((index, id)) = self.find(label)
            && let Some(connection) = self.loops[index].1.connections.get_mut(id)
        {
            received.bytes = std::mem::take(&mut connection.sent);
            return received;
        }
        received.closed = Some(false);
        for (_, memory) in &mut self.loops {
            if let Some(at) = memory.closed.iter().position(|c| c.client == label) {
                let closed = memory.closed.swap_remove(at);
                received.bytes = closed.sent;
                received.closed = Some(closed.is_closed_in_order);
            }
        }
        received
    }

    /// A connection breaks, as its node sees it.
    pub(crate) fn lose(&mut self, label: &str) {
        let _within = self.runtime.enter();
        if let Some((index, id)) = self.find(label) {
            let (clients, memory) = &mut self.loops[index];
            clients.closed(memory, id, Closed::ByPeer);
            memory.connections.remove(id);
        }
    }

    /// Whether the sockets of a client take anything.
    pub(crate) fn block(&mut self, label: &str, is_blocked: bool) {
        if let Some((index, id)) = self.find(label)
            && let Some(connection) = self.loops[index].1.connections.get_mut(id)
        {
            connection.is_blocked = is_blocked;
            connection.is_touched = true;
        }
    }

    pub(crate) fn store(&self) -> &Store {
        self.broker.store()
    }

    /// Calls something as a thread of the node would.
    pub(crate) fn within<T>(&self, f: impl FnOnce(&Broker<SimulatedProcess>, u64) -> T) -> T {
        let _within = self.runtime.enter();
        f(&self.broker, self.clock.now_ms())
    }

    /// Whether the node gives messages of a topic to the inbox shard of a client.
    pub(crate) fn routes_to(&self, client: &str, topic: &str) -> bool {
        self.within(|node, now_ms| {
            node.with_peers(|peers, node| peers.check_leases(node, now_ms));
            let found = node.routes.find(topic);
            let shard = found
                .known
                .of_slot(store_state::api::Store::inbox_slot(node.store(), client));
            let shards = found.shards.iter().chain(&found.cut_off);
            shard.is_some_and(|shard| shards.clone().any(|known| *known == shard))
        })
    }

    /// Whether the node has heard no majority since its start, and does not wait for one (P10).
    pub(crate) fn lacks_quorum_since_start(&self) -> bool {
        self.within(|node, _| node.peers().is_some_and(Peers::lacks_quorum_since_start))
    }

    /// Whether there is a connection to another node.
    pub(crate) fn linked(&self, to: u64, is_linked: bool) {
        self.plug.linked(to, is_linked);
        self.within(|node, _| {
            node.with_peers(|peers, node| match is_linked {
                true => peers.connected(node, to),
                false => peers.disconnected(node, to),
            });
            node.store().linked(to, is_linked);
        });
    }

    /// The connection from another node is gone, or there is a new one.
    pub(crate) fn incoming(&self, from: u64, is_up: bool) {
        self.within(|node, _| {
            node.with_peers(|peers, node| match is_up {
                true => peers.heard_again(from),
                false => peers.lost(node, from),
            });
            node.store().interrupted(from);
        });
    }

    /// A message of another node.
    pub(crate) fn received(&self, from: u64, bytes: &[u8]) {
        let _within = self.runtime.enter();
        let message = PeerMessage::decode(bytes, *peer_protocol::VERSIONS.end());
        let message = message.expect("it makes sense");
        if let PeerMessage::Store(_) = message {
            let taken = self.store().received(&*self.ears, from, bytes);
            return taken.expect("it makes sense");
        }
        self.broker.with_peers(|peers, node| {
            let taken = peers.message(node, from, message, bytes.len());
            taken.expect("it makes sense");
        });
    }

    /// Has another voter lead a shard that this node leads, or leave it so.
    pub(crate) fn transfer_leader(&self, store: StoreId, shard: u16, to: u64) {
        let broker = Arc::clone(&self.broker);
        self.runtime.spawn(async move {
            // It may lead no more by now.
            drop(broker.store().transfer_leader(store, shard, to).await);
        });
    }

    /// Asks the node to split a shard that it leads.
    pub(crate) fn split(&self, store: StoreId, shard: u16, at: Slot) {
        let (broker, answers) = (Arc::clone(&self.broker), Arc::clone(&self.split_answers));
        self.runtime.spawn(async move {
            let outcome = broker.store().splits().split(store, shard, at.0).await;
            answers.lock().push(SplitAnswer { store, at, outcome });
        });
    }

    /// What the node knows of users, groups and rules.
    pub(crate) fn view(&self) -> &View {
        &self.ears.view
    }

    /// Has the node begin the control store, if it leads what begins it.
    pub(crate) fn begin_control(&self) {
        let broker = Arc::clone(&self.broker);
        self.runtime.spawn(async move {
            // It is asked again until the store has begun.
            drop(broker.store().control_store.begin().await);
        });
    }

    /// Asks the control store something.
    pub(crate) fn ask_control(&self, token: u64, op: ControlOp) {
        let _within = self.runtime.enter();
        self.store().control_store.ask(token, op);
    }

    /// Has the node raise the shards that it leads.
    pub(crate) fn raise(&self) {
        let broker = Arc::clone(&self.broker);
        self.runtime.spawn(async move {
            broker.store().levels.raise(Level::NEWEST).await;
        });
    }

    pub(crate) fn handle(&self, call: u64, group: u64, request: Bytes) {
        let (broker, plug) = (Arc::clone(&self.broker), self.plug.clone());
        self.runtime.spawn(async move {
            let answer = broker.store().handle(group, request).await;
            plug.push(Out::Answer { call, answer });
        });
    }

    /// A digest of what the store has told the broker.
    pub(crate) fn effects(&self) -> u64 {
        self.ears.told()
    }

    pub(crate) fn take(&self) -> Brought {
        Brought {
            out: self.plug.take(),
            reopened: self.ears.take_reopened(),
            trimmed: self.ears.take_trimmed(),
            failure: self.ears.take_failure(),
            split_answers: std::mem::take(&mut self.split_answers.lock()),
            control_answers: self.ears.take_answers(),
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _within = self.runtime.enter();
        self.serving = None;
        self.broker.store().abandon();
        // It holds the node, which holds it.
        self.ears.forget();
    }
}
