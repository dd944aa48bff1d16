//! A network between nodes in one process: in order, as long as it is not cut.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use consensus::{Network, Unreachable};
use futures_util::future::BoxFuture;
use store::{Cluster, Folder, Listener, Member, Options, Peers, Role, Store};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::node::{Node, Told};

/// All nodes, and what is between them.
pub(crate) struct Hub {
    runtime: Runtime,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: HashMap<u64, (Weak<Store>, Arc<Told>)>,
    /// From one node to another.
    wires: HashMap<(u64, u64), UnboundedSender<Bytes>>,
    cut: HashSet<(u64, u64)>,
    /// Groups whose requests do not get to a node: the node, and the group.
    held: HashSet<(u64, u64)>,
    /// How often a request found no replica: by node and group.
    unanswered: HashMap<(u64, u64), usize>,
    /// Nodes that run an earlier version.
    earlier: HashSet<u64>,
}

/// The network as one node has it.
struct Plug {
    node: u64,
    hub: Weak<Hub>,
}

/// The seed of the hash of names that the nodes of a cluster have in common.
pub(crate) const NAME_SEED: u64 = 0x5EED;

impl Hub {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_time()
                .build()
                .unwrap(),
            state: Mutex::default(),
        })
    }

    /// Starts a node, and connects it with the others.
    pub(crate) fn start(self: &Arc<Self>, folder: &Path, options: &Options, founds: bool) -> Node {
        let mut folder = Folder::open(folder).unwrap();
        // As nodes that join each other do.
        folder.adopt_name_seed(NAME_SEED).unwrap();
        let plug = Plug {
            node: folder.node(),
            hub: Arc::downgrade(self),
        };
        let options = Options {
            cluster: Some(Cluster {
                accepts_folder: None,
                peers: Arc::new(plug),
                founds,
            }),
            ..options.clone()
        };
        let node = Node::start_in(folder, &options).unwrap();
        let id = node.store.node();
        let store = Arc::downgrade(&node.store);
        let told = Arc::clone(&node.told);
        self.state.lock().unwrap().nodes.insert(id, (store, told));
        self.connect(id);
        node
    }

    fn connect(self: &Arc<Self>, node: u64) {
        for other in self.up() {
            if other != node {
                self.wire(node, other);
                self.wire(other, node);
            }
        }
    }

    fn up(&self) -> Vec<u64> {
        let state = self.state.lock().unwrap();
        let up = state
            .nodes
            .iter()
            .filter(|(_, (store, _))| store.strong_count() > 0);
        up.map(|(node, _)| *node).collect()
    }

    fn store(&self, node: u64) -> Option<(Arc<Store>, Arc<Told>)> {
        let state = self.state.lock().unwrap();
        let (store, told) = state.nodes.get(&node)?;
        Some((store.upgrade()?, Arc::clone(told)))
    }

    /// Opens the way from one node to another anew.
    fn wire(self: &Arc<Self>, from: u64, to: u64) {
        let (sender, mut receiver) = unbounded_channel::<Bytes>();
        self.state.lock().unwrap().wires.insert((from, to), sender);
        let hub = Arc::downgrade(self);
        self.runtime.spawn(async move {
            while let Some(message) = receiver.recv().await {
                let Some(hub) = hub.upgrade() else { return };
                if let Some((store, told)) = hub.store(to) {
                    store.received(&*told, from, &message).unwrap();
                }
            }
        });
        if let Some((store, _)) = self.store(from) {
            store.linked(to, true);
        }
        if let Some((store, _)) = self.store(to) {
            store.interrupted(from);
        }
    }

    /// Nothing gets from one node to the other.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        let mut state = self.state.lock().unwrap();
        state.wires.remove(&(from, to));
        state.cut.insert((from, to));
        drop(state);
        if let Some((store, _)) = self.store(from) {
            store.linked(to, false);
        }
    }

    pub(crate) fn mend(self: &Arc<Self>, from: u64, to: u64) {
        self.state.lock().unwrap().cut.remove(&(from, to));
        self.wire(from, to);
    }

    /// Replicas do not hear each other any more, or hear each other again. Other messages get through.
    pub(crate) fn set_deaf(&self, deaf: bool) {
        let up = self.up();
        let mut state = self.state.lock().unwrap();
        state.cut.clear();
        if deaf {
            let pairs = up
                .iter()
                .flat_map(|from| up.iter().map(move |to| (*from, *to)));
            state.cut.extend(pairs);
        }
    }

    /// A node is away: nobody reaches it, nor does it reach anybody.
    pub(crate) fn isolate(&self, node: u64) {
        for other in self.up() {
            if other != node {
                self.cut(node, other);
                self.cut(other, node);
            }
        }
    }

    pub(crate) fn rejoin(self: &Arc<Self>, node: u64) {
        for other in self.up() {
            if other != node {
                self.mend(node, other);
                self.mend(other, node);
            }
        }
    }

    /// No request of this group gets to a node, or all do again.
    pub(crate) fn hold(&self, node: u64, group: u64, is_held: bool) {
        let held = &mut self.state.lock().unwrap().held;
        match is_held {
            true => held.insert((node, group)),
            false => held.remove(&(node, group)),
        };
    }

    /// How often a request of this group has come to a node that had no replica.
    pub(crate) fn unanswered(&self, node: u64, group: u64) -> usize {
        let state = self.state.lock().unwrap();
        state.unanswered.get(&(node, group)).copied().unwrap_or(0)
    }

    /// A node runs an earlier version, as the others see it, or no longer does.
    pub(crate) fn set_earlier(&self, node: u64, is_earlier: bool) {
        let earlier = &mut self.state.lock().unwrap().earlier;
        match is_earlier {
            true => earlier.insert(node),
            false => earlier.remove(&node),
        };
    }

    /// Tells all nodes who the members are.
    pub(crate) fn members(&self, members: &[Member]) {
        for node in self.up() {
            if let Some((store, _)) = self.store(node) {
                store.members(members.to_vec());
            }
        }
    }

    fn wire_of(&self, from: u64, to: u64) -> Option<UnboundedSender<Bytes>> {
        self.state.lock().unwrap().wires.get(&(from, to)).cloned()
    }

    fn is_open(&self, from: u64, to: u64) -> bool {
        !self.state.lock().unwrap().cut.contains(&(from, to))
    }

    fn is_held(&self, node: u64, group: u64) -> bool {
        self.state.lock().unwrap().held.contains(&(node, group))
    }

    /// Has a node answer a request of a group.
    async fn ask(&self, store: &Store, group: u64, request: Bytes) -> Option<Bytes> {
        let answer = store.handle(group, request).await;
        if answer.is_none() {
            let mut state = self.state.lock().unwrap();
            *state.unanswered.entry((store.node(), group)).or_default() += 1;
        }
        answer
    }
}

impl Peers for Plug {
    fn send(&self, to: u64, message: Bytes) {
        let wire = self
            .hub
            .upgrade()
            .and_then(|hub| hub.wire_of(self.node, to));
        if let Some(wire) = wire {
            let _ = wire.send(message);
        }
    }

    fn knows_loads(&self, node: u64) -> bool {
        self.knows_splits(node)
    }

    fn knows_splits(&self, node: u64) -> bool {
        let hub = self.hub.upgrade();
        hub.is_some_and(|hub| !hub.state.lock().unwrap().earlier.contains(&node))
    }
}

impl Network for Plug {
    fn call(
        &self,
        node: u64,
        group: u64,
        _: bool,
        request: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Bytes, Unreachable>> {
        let (hub, from) = (self.hub.clone(), self.node);
        let nobody = || Unreachable("cut".to_owned());
        Box::pin(async move {
            let hub = hub.upgrade().ok_or_else(nobody)?;
            if !hub.is_open(from, node) || hub.is_held(node, group) {
                tokio::time::sleep(Duration::from_millis(20)).await;
                return Err(nobody());
            }
            let (store, _) = hub.store(node).ok_or_else(nobody)?;
            let asked = Arc::clone(&hub);
            let answer = hub
                .runtime
                .spawn(async move { asked.ask(&store, group, request).await });
            let answer = tokio::time::timeout(timeout, answer).await;
            let answer = answer.ok().and_then(Result::ok).flatten();
            answer
                .filter(|_| hub.is_open(node, from))
                .ok_or_else(nobody)
        })
    }
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hub")
    }
}

pub(crate) fn member(node: &Node) -> Member {
    Member {
        node: node.store.node(),
        incarnation: node.store.incarnation(),
        is_up: true,
        role: Role::Serves,
        has_ended: false,
        last_heard_ms: node.told.now_ms(),
    }
}
