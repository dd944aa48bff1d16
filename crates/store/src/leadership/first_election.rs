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

use consensus::{Group, Standing};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::kinds::command::Command;

/// How often the replica campaigns. Before a majority would vote for it, that costs no term.
const AGAIN: Duration = Duration::from_millis(10);

/// How long a campaign may take that a majority wants: each voter writes its vote to the disk. Another one before would only be a
/// later term.
const CAMPAIGN: Duration = Duration::from_millis(500);

/// How long it tries. Then election timeouts do it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Campaigns until the group has a leader, for [`PATIENCE`] at most.
pub(crate) async fn elect_first(group: Arc<Group<Command>>) {
    let end = Instant::now() + PATIENCE;
    let mut standing = group.watch();
    let mut term = standing.borrow().term;
    let mut is_over = false;
    while !is_over && Instant::now() < end {
        let begun = group.elect().await;
        is_over = begun.is_err() || is_led(&mut standing, AGAIN).await;
        let now = standing.borrow().term;
        if now > term {
            term = now;
            is_over = is_over || is_led(&mut standing, CAMPAIGN).await;
        }
    }
}

/// Whether the group has a leader within `time`, or has ended.
async fn is_led(standing: &mut watch::Receiver<Standing>, time: Duration) -> bool {
    let led = standing.wait_for(|standing| standing.leader.is_some());
    timeout(time, led).await.is_ok()
}
