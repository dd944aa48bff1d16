//! Where a replica stands in its group, for all to see, and the timers that follow from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use openraft::{Raft, RaftMetrics};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::command::Command;
use crate::machine::{Machine, Positions};
use crate::types::{Membership, Types};

type ServerMetrics<C> = openraft::metrics::RaftServerMetrics<Types<C>>;

/// The members of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Members {
    /// Who decides: one set, or two while it changes, of which both have to agree. None: this replica has
    /// not heard of the group yet.
    pub voters: Vec<BTreeSet<u64>>,
    /// Who only follows.
    pub learners: BTreeSet<u64>,
}

impl Members {
    pub(crate) fn of(membership: &Membership) -> Self {
        Self {
            voters: membership.get_joint_config().clone(),
            learners: membership.learner_ids().collect(),
        }
    }

    /// Whether `node` is a voter, now or after the change that goes on.
    pub fn has_voter(&self, node: u64) -> bool {
        self.voters.iter().any(|set| set.contains(&node))
    }

    /// Whether `node` is a voter or a learner.
    pub fn contains(&self, node: u64) -> bool {
        self.has_voter(node) || self.learners.contains(&node)
    }

    /// All of them.
    pub fn all(&self) -> BTreeSet<u64> {
        let voters = self.voters.iter().flatten();
        voters.chain(&self.learners).copied().collect()
    }

    /// Whether there is nobody but `node`, and it decides.
    pub fn is_alone(&self, node: u64) -> bool {
        self.learners.is_empty() && self.is_sole_voter(node)
    }

    /// Whether nobody but `node` decides.
    pub fn is_sole_voter(&self, node: u64) -> bool {
        matches!(self.voters.as_slice(), [set] if set.len() == 1 && set.contains(&node))
    }
}

/// Where a replica stands in its group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// The newest term that it knows of.
    pub term: u64,
    /// Who leads in it, if known.
    pub leader: Option<u64>,
    /// This replica leads and has applied everything of earlier terms: it may serve. Another may lead
    /// already without this one knowing; [`Group::linearize`](crate::Group::linearize) finds out.
    pub leads: bool,
    /// The newest members that it knows of, agreed or not.
    pub members: Members,
    /// The replica takes part no more, for this reason: its storage failed, or it was shut down.
    pub stopped: Option<String>,
}

/// The task that follows a replica. It ends with this.
pub(crate) struct Watcher {
    task: JoinHandle<()>,
    standing: watch::Receiver<Standing>,
}

impl Watcher {
    pub(crate) fn spawn<C: Command>(
        node: u64,
        raft: Raft<Types<C>, Machine<C>>,
        positions: Arc<Positions>,
    ) -> Self {
        let first = standing::<C>(&raft.server_metrics().borrow_watched(), &positions);
        let (sender, standing) = watch::channel(first);
        let task = tokio::spawn(follow(node, raft, positions, sender));
        Self { task, standing }
    }

    pub(crate) fn standing(&self) -> &watch::Receiver<Standing> {
        &self.standing
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Tells what changes until the group stops, and switches its timers: they cost what an idle group costs.
async fn follow<C: Command>(
    node: u64,
    raft: Raft<Types<C>, Machine<C>>,
    positions: Arc<Positions>,
    sender: watch::Sender<Standing>,
) {
    let mut server = raft.server_metrics();
    let mut term = positions.term.subscribe();
    loop {
        let now = standing::<C>(&server.borrow_watched(), &positions);
        let rests = now.members.voters.is_empty() || now.leads && now.members.is_alone(node);
        raft.runtime_config().tick(!rests);
        sender.send_if_modified(|before| {
            let changes = *before != now;
            *before = now;
            changes
        });
        tokio::select! {
            changed = server.changed() => {
                if changed.is_err() {
                    break;
                }
            }
            // The sender is in `positions`.
            _ = term.changed() => {}
        }
    }
    sender.send_modify(|standing| {
        standing.leads = false;
        standing.stopped = Some(why_stopped(&raft.metrics()));
    });
}

fn standing<C: Command>(server: &ServerMetrics<C>, positions: &Positions) -> Standing {
    let term = server.vote.leader_id.term;
    let is_current = *positions.term.borrow() == term;
    Standing {
        term,
        leader: server.current_leader,
        leads: server.state == ServerState::Leader && is_current,
        members: Members::of(server.membership_config.membership()),
        stopped: None,
    }
}

pub(crate) fn why_stopped<C: Command>(
    metrics: &WatchReceiverOf<Types<C>, RaftMetrics<Types<C>>>,
) -> String {
    match &metrics.borrow_watched().running_state {
        Ok(()) => "the group was shut down".to_owned(),
        Err(fatal) => fatal.to_string(),
    }
}
