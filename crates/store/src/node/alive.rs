//! The node writes down each second that it is alive.

use std::sync::Arc;
use std::time::Duration;

use crate::api::listener::Listener;
use crate::storage::folder::Folder;

/// How often the node writes down that it is alive.
const ALIVE: Duration = Duration::from_secs(1);

/// Writes down each second that the node is alive, for those who ask when it died, and keeps the reserve.
pub(super) async fn stay_alive(folder: Arc<Folder>, listener: Arc<dyn Listener>) {
    let mut each = tokio::time::interval(ALIVE);
    loop {
        each.tick().await;
        if let Err(error) = folder.mark_alive(listener.now_ms()) {
            tracing::debug!(%error, "the mark of being alive cannot be written");
        }
        folder.reserve().refill();
    }
}
