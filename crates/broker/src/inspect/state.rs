//! What is asked and answered with.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Listing;
use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use telemetry::Counts;
use tokio::sync::Semaphore;

use super::own_profiles::{OwnProcess, OwnProfiles};
use super::walks::Walks;
use crate::alarms::Alarms;
use crate::ban_file::BanFile;
use crate::control::ClusterControl;
use crate::history::History;
use crate::listeners::Listening;
use crate::node::Node;
use crate::outlets::Outlets;
use crate::upgrade::Upgrade;

/// Questions that a node answers at once, its own and those of other nodes.
const ANSWERS: usize = 64;

/// Questions that look at each client that a node works on at once.
const SCANS: usize = 2;

/// What is left of a question's time when a node stops looking further.
pub(super) const LEFT: Duration = Duration::from_millis(100);

/// Asks and answers.
pub(crate) struct Inspect {
    pub(crate) node: Arc<Node>,
    pub(crate) control: Arc<dyn ClusterControl>,
    pub(super) ban_file: Arc<BanFile>,
    pub(crate) registry: Registry,
    /// What people call this node.
    pub(super) name: String,
    pub(super) listeners: Vec<Listening>,
    pub(super) upgrade: Arc<Upgrade>,
    pub(crate) alarms: Alarms,
    /// The outlets of this node.
    pub(crate) outlets: Arc<Outlets>,
    pub(super) started: Instant,
    /// What it has counted in the last hour.
    pub(super) history: Arc<History>,
    /// What the node is configured with.
    pub(super) settings: RwLock<Listing>,
    /// Of [`ANSWERS`].
    pub(super) answers: Semaphore,
    /// Of [`SCANS`].
    pub(super) scans: Semaphore,
    pub(super) walks: Walks,
    /// Looks into the process.
    pub(super) profiles: Arc<OwnProfiles>,
    /// Passwords of people are checked one after the other.
    pub(super) password_checks: Semaphore,
}

/// What is known of a node when it begins to serve.
#[derive(Debug)]
pub(crate) struct About {
    /// What people call it.
    pub(crate) name: String,
    /// Its listeners, by their numbers.
    pub(crate) listeners: Vec<Listening>,
    /// How far the upgrade of the cluster is.
    pub(crate) upgrade: Arc<Upgrade>,
    /// Its alarms of before the start.
    pub(crate) alarms: Alarms,
    /// Its outlets.
    pub(crate) outlets: Arc<Outlets>,
    /// What became of pushes to a collector of OpenTelemetry, if there are any.
    pub(crate) pushes: Option<Arc<Counts>>,
    /// What only the program knows of its process.
    pub(crate) process: OwnProcess,
}

impl fmt::Debug for Inspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inspect")
    }
}

impl Inspect {
    pub(crate) fn new(
        node: &Arc<Node>,
        control: Arc<dyn ClusterControl>,
        ban_file: Arc<BanFile>,
        about: About,
    ) -> Arc<Self> {
        let About {
            name,
            listeners,
            upgrade,
            alarms,
            outlets,
            pushes,
            process,
        } = about;
        let (started, history) = (Instant::now(), Arc::default());
        let profiles = OwnProfiles::new(node, &name, started, &history, process);
        Arc::new(Self {
            registry: crate::metrics::registry(
                Arc::clone(node),
                &listeners,
                pushes,
                Some(Arc::clone(&outlets)),
            ),
            node: Arc::clone(node),
            control,
            ban_file,
            name,
            listeners,
            upgrade,
            alarms,
            outlets,
            started,
            history,
            settings: RwLock::default(),
            answers: Semaphore::new(ANSWERS),
            scans: Semaphore::new(SCANS),
            walks: Walks::default(),
            profiles: Arc::new(profiles),
            password_checks: Semaphore::new(1),
        })
    }

    /// What the node is configured with: at the first time all of it, later what was loaded again.
    pub(crate) fn show_settings(&self, loaded: Listing) {
        let mut settings = self.settings.write();
        match settings.is_empty() {
            true => *settings = loaded,
            false => settings.reload(loaded),
        }
    }
}
