//! Replicas whose log may lack entries that they have acknowledged.
//!
//! Purpose: a replica among other voters whose log is damaged loses the log and keeps its vote. What is left of the
//! log begins below a *floor*: a position that no acknowledged entry of the lost log is behind. The log of a replica that was
//! deleted leaves one, too.
//!
//! Invariants: below its floor a replica votes for nobody whose log ends below the floor (`handle.rs`), and does not
//! campaign. It follows and acknowledges as any other: the leader counts what is on the disk here now.
//!
//! The floor ends when the last entry on the disk is not below it, or when all is here that the leader of the floor's
//! term or of a later one had when it was asked, in this life of the process. What the replica has acknowledged in
//! the floor's term went to one leader, whose log only grows in that term; what went to earlier leaders that one has.
//! `tests/floor_model.rs` visits all orders of events, and finds a loss with each of these rules left out.
//!
//! Deliberately absent: an end after some time; a floor of a sole voter, which nobody could end; the decision where a
//! log is still whole.

use std::time::Duration;

use openraft::Raft;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::command::Command;
use crate::group_log::GroupLog;
use crate::machine::Machine;
use crate::network::Peers;
use crate::rpc::End;
use crate::standing::Standing;
use crate::types::Types;

/// How long after one question for the leader's end the next is asked; each time twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// And how long at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// The task that ends a replica's floor. It ends with this.
pub(crate) struct Floor(JoinHandle<()>);

impl Floor {
    pub(crate) fn spawn<C: Command>(
        log: GroupLog<C>,
        raft: Raft<Types<C>, Machine<C>>,
        peers: Peers,
        standing: watch::Receiver<Standing>,
    ) -> Self {
        Self(tokio::spawn(leave(log, raft, peers, standing)))
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Asks the leader until the floor can end, and ends it. While no leader is known it costs nothing.
async fn leave<C: Command>(
    log: GroupLog<C>,
    raft: Raft<Types<C>, Machine<C>>,
    peers: Peers,
    mut standing: watch::Receiver<Standing>,
) {
    let mut end: Option<End> = None;
    let mut pause = FIRST_PAUSE;
    let may_end =
        |end: Option<&End>| !log.is_below_floor() || end.is_some_and(|end| log.has_all_of(end));
    while !may_end(end.as_ref()) {
        let Some(leader) = next_leader(&mut standing, peers.own).await else {
            return;
        };
        // An earlier answer stays good. One that does not come is asked for again.
        if let Ok(answer) = peers.ask_for_end::<C>(leader).await {
            end = Some(answer);
        }
        if !may_end(end.as_ref()) {
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }
    let group = log.group();
    match log.end_floor().await {
        Ok(()) => {
            raft.runtime_config().elect(true);
            tracing::info!(
                group,
                "the log again has everything that was acknowledged here"
            );
        }
        // The log has failed, and says so.
        Err(error) => tracing::warn!(group, %error, "the floor of the log cannot be removed"),
    }
}

/// Waits until another node leads; `None`: the replica has stopped.
async fn next_leader(standing: &mut watch::Receiver<Standing>, own: u64) -> Option<u64> {
    let other = |now: &Standing| now.leader.filter(|leader| *leader != own);
    let now = standing.wait_for(|now| now.stopped.is_some() || other(now).is_some());
    let now = now.await.ok()?;
    other(&now).filter(|_| now.stopped.is_none())
}
