//! Which outlets there are, and what is known of each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Config;
use outlets::Transfer;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;

use super::check::problem;
use super::standing::{Place, Standing};
use crate::own_connections::OwnConnections;

/// How long an outlet fails until people are told.
const FAILING: Duration = Duration::from_secs(60);

/// The outlets of a node.
#[derive(Debug)]
pub(crate) struct Outlets {
    pub(super) connections: OwnConnections,
    /// What tells this cluster from others in the paths of messages.
    pub(super) cluster: String,
    state: Mutex<State>,
    pub(super) changed: Notify,
    pub(super) events_changed: Notify,
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
            state: Mutex::default(),
            changed: Notify::new(),
            events_changed: Notify::new(),
        };
        outlets.configure(config);
        outlets
    }

    /// From the next look on there are these outlets. A process goes on if nothing has changed for it.
    pub(crate) fn configure(&self, config: &Config) {
        // A program of its own may take some time for that.
        let checked = Transfer::all(config).map(|transfer| (problem(&transfer), transfer));
        let checked: Vec<_> = checked.collect();
        let mut state = self.state.lock();
        let mut before = std::mem::take(&mut state.outlets);
        for (checked, transfer) in checked {
            let (name, kind) = (transfer.name().to_owned(), transfer.kind());
            let former = before.remove(&name);
            let standing = match (checked, former) {
                (Ok(()), former) => {
                    let mut standing = former.unwrap_or_default();
                    standing.transfer = Some(Arc::new(transfer));
                    standing
                }
                // A start is refused; this is a reload.
                (Err(why), Some(former)) => {
                    tracing::error!(outlet = %name, %why, "the {kind} cannot run as it is configured; it stays as it was");
                    former
                }
                (Err(why), None) => {
                    tracing::error!(outlet = %name, %why, "the {kind} cannot run as it is configured; it does not begin");
                    continue;
                }
            };
            state.outlets.insert(name, standing);
        }
        for (name, standing) in before {
            let kind = standing.kind();
            tracing::info!(outlet = %name, "the {kind} is not configured any more; its session stays until it expires");
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
                    format!(
                        "{} {name} has failed for {seconds} s: {why}",
                        standing.kind()
                    ),
                )
            })
        });
        failing.collect()
    }

    /// Ends all processes, and waits for that, not longer than `patience`. [`run`](super::run) has to be polled by another thread.
    pub(crate) fn end(&self, patience: Duration) {
        self.state.lock().is_stopping = true;
        self.changed.notify_one();
        let deadline = Instant::now() + patience;
        while self.state.lock().running > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What is configured, and whether the node is about to stop.
    pub(super) fn wanted(&self) -> (Vec<Arc<Transfer>>, bool) {
        let state = self.state.lock();
        let standings = state.outlets.values();
        let transfers = standings.filter_map(|standing| standing.transfer.clone());
        (transfers.collect(), state.is_stopping)
    }

    /// So many processes have not ended.
    pub(super) fn handle_running(&self, running: usize) {
        self.state.lock().running = running;
    }

    /// Notes something of an outlet, if it is still configured.
    pub(super) fn note(&self, name: &str, change: impl FnOnce(&mut Standing)) {
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
