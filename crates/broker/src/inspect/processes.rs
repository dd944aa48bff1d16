//! What the API is told of processes: those of nodes (`profiles.rs`), and those of outlets (`outlets.rs`).
//!
//! Invariant: `asked.rs` is handed these parts and imports none of them, as they ask other nodes with what it defines.

use std::sync::Arc;

use admin::Processes;

use super::asked::Asking;
use super::outlets::AllOutlets;
use super::profiles::NodeProfiles;
use super::state::Inspect;

/// The broker as the API sees it.
pub(crate) fn asking(inspect: Arc<Inspect>) -> Asking {
    let processes = Processes {
        profiles: Arc::new(NodeProfiles(Arc::clone(&inspect))),
        outlets: Arc::new(AllOutlets(Arc::clone(&inspect))),
    };
    Asking(inspect, processes)
}
