//! The first leader of a shard that was just split off.
//!
//! Purpose: the replica on the node that leads the parent campaigns at once, and again and again: the others cannot vote before
//! they have cut the parent, too. Else the shard would have no leader until an election timeout has passed.
//!
//! Invariant: it ends with the first leader, whoever that is.
//!
//! Deliberately absent: later elections, which the timeouts of the group bring about (`consensus`).

use std::sync::Arc;
use std::time::Duration;

use consensus::Group;
use tokio::time::{Instant, timeout};

use crate::kinds::command::Command;

/// How often the replica campaigns. Before a majority would vote for it, that costs no term.
const AGAIN: Duration = Duration::from_millis(10);

/// How long it tries. Then election timeouts do it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Campaigns until the group has a leader, for [`PATIENCE`] at most.
pub(crate) async fn elect_first(group: Arc<Group<Command>>) {
    let end = Instant::now() + PATIENCE;
    let mut standing = group.watch();
    while Instant::now() < end {
        let begun = group.elect().await;
        let led = standing.wait_for(|standing| standing.leader.is_some());
        let is_led = timeout(AGAIN, led).await.is_ok();
        // An error: the group has ended.
        if is_led || begun.is_err() {
            return;
        }
    }
}
