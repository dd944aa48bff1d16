//! The node writes down each second that it is alive, and says at its start when that was later than it is now.

use std::sync::Arc;
use std::time::Duration;

use crate::api::listener::Listener;
use crate::storage::folder::Folder;

/// How often the node writes down that it is alive.
const ALIVE: Duration = Duration::from_secs(1);

/// The time is that of the cluster, which a node that starts does not know yet: its own clock may be behind by so much,
/// in ms.
const TOLERANCE_MS: u64 = 2_000;

/// Writes down each second that the node is alive, for those who ask when it died, and keeps the reserve.
pub(super) async fn stay_alive(folder: Arc<Folder>, listener: Arc<dyn Listener>) {
    let (last_alive_ms, now_ms) = (folder.last_alive_ms(), listener.now_ms());
    if let Some(behind_ms) = behind(last_alive_ms, now_ms) {
        tracing::warn!(
            behind_s = behind_ms / 1_000,
            now_ms,
            last_alive_ms,
            "the clock is earlier than when this node last ran: expiry intervals last longer by the difference"
        );
    }
    let mut each = tokio::time::interval(ALIVE);
    loop {
        each.tick().await;
        if let Err(error) = folder.mark_alive(listener.now_ms()) {
            tracing::debug!(%error, "the mark of being alive cannot be written");
        }
        folder.reserve().refill();
    }
}

/// How far the clock is behind the last time that the data folder knows, in ms; `None`: it is not.
fn behind(last_alive_ms: Option<u64>, now_ms: u64) -> Option<u64> {
    let behind_ms = last_alive_ms?.saturating_sub(now_ms);
    (behind_ms > TOLERANCE_MS).then_some(behind_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_earlier_than_the_folder_is_behind() {
        for (last_alive_ms, now_ms, expected) in [
            (None, 5_000, None),
            (Some(5_000), 6_000, None),
            (Some(7_000), 5_000, None),
            (Some(7_001), 5_000, Some(2_001)),
            (Some(1 << 40), 0, Some(1 << 40)),
        ] {
            assert_eq!(behind(last_alive_ms, now_ms), expected);
        }
    }
}
