//! The outlets of this node: which are to be here, their processes, and what is known of them.
//!
//! Purpose: [`Outlets::configure`] says which outlets there are; [`Outlets::run`] starts a process for each whose inbox shard this node
//! leads, ends it when that changes, and starts it again when it has ended. Nothing runs while no outlet is configured.
//!
//! ```text
//! configure ─► wanted ─ run: each second, placement and pause ─► Wish ─► attempts.rs ─► process.rs
//!                                          list, metrics ◄─ Standing ◄─────── reports ─┘
//! ```
//!
//! Whether an outlet is paused is a retained message, `$hmq/outlet/NAME/paused`, which clients cannot reach: all nodes know it, and no
//! store has more kinds of rows for it.
//!
//! Deliberately absent: what an outlet does with messages (`outlet`, `outlets`), and the HTTP API.

mod attempts;
mod collector;
mod events;
mod process;
mod standing;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::api::{Encoding, EventKind, NewMessage};
use admin::problem::{Kind, Problem};
use config::Config;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use outlets::Definition;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use store_state::api::Store as _;
use tokio::sync::{Notify, watch};

pub(crate) use collector::OutletCollector;
pub(crate) use standing::{Place, Standing};

use crate::inspect::{self, Inspect};
use crate::node::Node;
use crate::own_connections::OwnConnections;
use crate::start_error::StartError;

/// How often it is looked where outlets are to be, and whether they are paused.
const LOOKS: Duration = Duration::from_secs(1);

/// How long an outlet fails until people are told.
const FAILING: Duration = Duration::from_secs(60);

/// How long other nodes may take to say what is retained.
const BUDGET: Duration = Duration::from_secs(2);

/// What a process is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub(crate) definition: Arc<Definition>,
    pub(crate) is_paused: bool,
}

/// The outlets of a node.
#[derive(Debug)]
pub(crate) struct Outlets {
    /// The program of processes.
    program: PathBuf,
    connections: OwnConnections,
    /// What tells this cluster from others in the paths of messages.
    cluster: String,
    state: Mutex<State>,
    changed: Notify,
    events_changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    outlets: BTreeMap<String, Standing>,
    is_stopping: bool,
    /// Processes that have not ended.
    running: usize,
}

impl Outlets {
    /// The outlets of a configuration that was checked.
    /// `name_seed`: that of the cluster, which is not to be known outside.
    pub(crate) fn new(connections: OwnConnections, name_seed: u64, config: &Config) -> Self {
        let outlets = Self {
            connections,
            cluster: cluster(name_seed),
            // The running one also if its file was replaced.
            program: PathBuf::from("/proc/self/exe"),
            state: Mutex::default(),
            changed: Notify::new(),
            events_changed: Notify::new(),
        };
        outlets.configure(config);
        outlets
    }

    /// From the next look on there are these outlets. A process goes on if nothing has changed for it.
    pub(crate) fn configure(&self, config: &Config) {
        let mut state = self.state.lock();
        let mut before = std::mem::take(&mut state.outlets);
        for definition in config.outlets.iter().filter_map(Definition::of) {
            let mut standing = before.remove(&definition.name).unwrap_or_default();
            let name = definition.name.clone();
            standing.definition = Some(Arc::new(definition));
            state.outlets.insert(name, standing);
        }
        for name in before.into_keys() {
            tracing::info!(outlet = %name, "the outlet is not configured any more; its session stays until it expires");
        }
        drop(state);
        self.changed.notify_one();
        self.events_changed.notify_one();
    }

    /// What opens connections for processes.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> &OwnConnections {
        &self.connections
    }

    /// What is known of all outlets, by name.
    pub(crate) fn list(&self) -> Vec<(String, Standing)> {
        let state = self.state.lock();
        let outlets = state.outlets.iter();
        outlets
            .map(|(name, standing)| (name.clone(), standing.clone()))
            .collect()
    }

    /// Outlets of this node that have failed for [`FAILING`], and why.
    pub(crate) fn failing(&self) -> Vec<(String, String)> {
        let state = self.state.lock();
        let here = state.outlets.iter();
        let here = here.filter(|(_, standing)| standing.place == Place::Here);
        let failing = here.filter_map(|(name, standing)| {
            let since = standing.failing_since?;
            let error = standing.report.last_error.as_ref();
            let why = error.or(standing.last_end.as_ref())?;
            let seconds = since.elapsed().as_secs();
            (since.elapsed() >= FAILING).then(|| {
                (
                    name.clone(),
                    format!("outlet {name} has failed for {seconds} s: {why}"),
                )
            })
        });
        failing.collect()
    }

    /// Ends all processes, and waits for that, not longer than `patience`. [`Self::run`] has to be polled by another thread.
    pub(crate) fn end(&self, patience: Duration) {
        self.state.lock().is_stopping = true;
        self.changed.notify_one();
        let deadline = Instant::now() + patience;
        while self.state.lock().running > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Runs the outlets as long as it is polled.
    pub(crate) async fn run(&self, inspect: &Arc<Inspect>) {
        let mut here: BTreeMap<String, watch::Sender<Option<Wish>>> = BTreeMap::new();
        let mut attempts: FuturesUnordered<BoxFuture<'_, String>> = FuturesUnordered::new();
        loop {
            let is_idle = self.state.lock().outlets.is_empty() && attempts.is_empty();
            tokio::select! {
                // A permit that is left says that something has changed before.
                () = self.changed.notified() => {}
                () = tokio::time::sleep(LOOKS), if !is_idle => {}
                Some(name) = attempts.next() => {
                    here.remove(&name);
                    self.state.lock().running = attempts.len();
                }
            }
            for (name, wish) in self.look(inspect).await {
                match (here.get(&name), wish) {
                    (Some(sender), wish) => {
                        sender.send_if_modified(|before| {
                            let is_changed = *before != wish;
                            *before = wish;
                            is_changed
                        });
                    }
                    (None, Some(wish)) => {
                        let (sender, wishes) = watch::channel(Some(wish));
                        here.insert(name.clone(), sender);
                        attempts.push(self.attempts(inspect, name, wishes).boxed());
                    }
                    (None, None) => {}
                }
            }
            for (name, sender) in &here {
                if !self.state.lock().outlets.contains_key(name) {
                    sender.send_replace(None);
                }
            }
            self.state.lock().running = attempts.len();
        }
    }

    /// What each outlet is to do here; `None`: nothing. Outlets of which that is not known stay as they are.
    async fn look(&self, inspect: &Arc<Inspect>) -> Vec<(String, Option<Wish>)> {
        let (is_stopping, wanted): (bool, Vec<_>) = {
            let state = self.state.lock();
            let definitions = state.outlets.values();
            let definitions = definitions.filter_map(|standing| standing.definition.clone());
            (state.is_stopping, definitions.collect())
        };
        let mut wishes = Vec::new();
        for definition in wanted {
            let name = definition.name.clone();
            let place = place(&inspect.node, &definition.client_id());
            self.note(&name, |standing| standing.place = place);
            if is_stopping || place != Place::Here {
                wishes.push((name, None));
                continue;
            }
            match is_paused(inspect, &name).await {
                Ok(is_paused) => {
                    self.note(&name, |standing| standing.is_paused = is_paused);
                    let wish = Wish {
                        definition,
                        is_paused,
                    };
                    wishes.push((name, Some(wish)));
                }
                // One that runs goes on, and one that does not has to know it first.
                Err(problem) => {
                    tracing::debug!(outlet = %name, ?problem, "whether the outlet is paused is not known");
                }
            }
        }
        wishes
    }

    fn note(&self, name: &str, change: impl FnOnce(&mut Standing)) {
        if let Some(standing) = self.state.lock().outlets.get_mut(name) {
            change(standing);
        }
    }
}

/// What a cluster is called in the paths of messages: nobody can tell the seed by it.
fn cluster(name_seed: u64) -> String {
    let digest = Sha256::digest(format!("hmq-path {name_seed}").as_bytes());
    let first = digest.iter().take(6);
    first.map(|byte| format!("{byte:02x}")).collect()
}

/// What is wrong with the outlets of a configuration: URLs, and the files that they name.
pub(crate) fn check(config: &Config) -> impl Iterator<Item = StartError> + '_ {
    let definitions = config.outlets.iter().filter_map(Definition::of);
    definitions.filter_map(|definition| {
        let filters = definition.filters.iter();
        let mut kinds = filters.filter_map(|filter| filter.strip_prefix(outlets::EVENTS));
        let why = match kinds.find(|name| events::kind(name).is_none()) {
            Some(name) => {
                let known = EventKind::ALL.map(EventKind::name).join(", ");
                format!("there are no events {name}; there are {known}")
            }
            None => outlets::check(&definition).err()?,
        };
        let name = definition.name;
        Some(StartError::Outlet { name, why })
    })
}

/// Where an outlet is to be: at the leader of the inbox shard of its session.
fn place(node: &Node, client_id: &str) -> Place {
    let store = node.store();
    let shard = store.inbox_shard(store.inbox_slot(client_id));
    match store.inbox_leader(shard) {
        Some(leader) if leader == store.node() => Place::Here,
        Some(leader) => Place::At(leader),
        None => Place::Nowhere,
    }
}

/// The retained message that says that an outlet is paused.
fn pause_topic(name: &str) -> String {
    format!("$hmq/outlet/{name}/paused")
}

/// Whether somebody has paused an outlet.
pub(crate) async fn is_paused(inspect: &Arc<Inspect>, name: &str) -> Result<bool, Problem> {
    match inspect::retained_message(inspect, pause_topic(name), BUDGET).await {
        Ok(_) => Ok(true),
        Err(problem) if problem.kind == Kind::NotFound => Ok(false),
        Err(problem) => Err(problem),
    }
}

/// Pauses an outlet at whichever node it is, or ends the pause. It counts after [`LOOKS`].
pub(crate) async fn pause(
    inspect: &Arc<Inspect>,
    name: &str,
    is_paused: bool,
) -> Result<(), Problem> {
    let payload = if is_paused { "paused" } else { "" };
    let message = message(pause_topic(name), payload.to_owned(), true);
    inspect::publish_internal(inspect, vec![message], BUDGET).await
}

/// A message of the broker's own.
fn message(topic: String, payload: String, retain: bool) -> NewMessage {
    NewMessage {
        topic,
        payload,
        encoding: Encoding::Utf8,
        qos: 1,
        retain,
        message_expiry_s: None,
        payload_is_utf8: true,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
    }
}
