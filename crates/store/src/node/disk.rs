//! Whether the disk has space.
//!
//! Invariant: a start that cannot be recorded for lack of space fails after [`START_PATIENCE`]; a running store waits.

use std::sync::Arc;
use std::time::Duration;

use consensus::Condition;
use tokio::sync::watch;

use crate::api::listener::Listener;

/// How long a start waits for space to record itself.
const START_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn is_full(condition: &Condition) -> bool {
    *condition == Condition::Full
}

/// Returns when the disk has been full for [`START_PATIENCE`].
pub(super) async fn stays_full(condition: &mut watch::Receiver<Condition>) {
    while condition.wait_for(is_full).await.is_ok() {
        tracing::error!("the disk is full: the start waits for space");
        let has_space = condition.wait_for(|condition| !is_full(condition));
        if tokio::time::timeout(START_PATIENCE, has_space)
            .await
            .is_err()
        {
            return;
        }
    }
}

/// Tells of the log's end, and of a full disk.
pub(super) async fn watch_log(
    mut condition: watch::Receiver<Condition>,
    listener: Arc<dyn Listener>,
) {
    loop {
        let now = condition.borrow_and_update().clone();
        match now {
            Condition::Working => tracing::debug!("the log can be written"),
            Condition::Full => {
                tracing::error!("the disk is full: requests that have to be stored are refused")
            }
            Condition::Failed(why) => listener.failed(&why),
        }
        if condition.changed().await.is_err() {
            return;
        }
    }
}
