//! Changes of a group's members and of its leader.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, Fatal, RaftError};
use openraft::raft::{ClientWriteResponse, TransferLeaderRequest};
use openraft::{ChangeMembers, EmptyNode};

use crate::group::not_leader;
use crate::standing::Members;
use crate::types::{Types, Vote};
use crate::{Command, Group};

/// How much later each further voter campaigns when its leader is presumed dead, so that they do not
/// stand in each other's way.
const STAGGER: Duration = Duration::from_millis(100);

impl<C: Command> Group<C> {
    /// Makes a node a learner, which gets what the group agrees on and has no say. One that is a member
    /// already stays what it is. [`Group::progress`] tells when it has caught up.
    ///
    /// # Errors
    /// The members may be the new ones in spite of [`ChangeError::Unknown`].
    pub async fn add_learner(&self, node: u64) -> Result<(), ChangeError> {
        changed(self.raft.add_learner(node, EmptyNode {}, false).await)
    }

    /// Has exactly these nodes vote, by joint consensus. New ones should be learners that have caught up;
    /// former ones are members no more. After an error in between, or a change of the leader, two sets of
    /// voters may remain: then it is to be called again.
    ///
    /// # Errors
    /// The members may be the new ones in spite of [`ChangeError::Unknown`].
    pub async fn change_voters(&self, voters: BTreeSet<u64>) -> Result<(), ChangeError> {
        let change = ChangeMembers::ReplaceAllVoters(voters);
        changed(self.raft.change_membership(change, false).await)
    }

    /// Removes a voter, as [`Group::change_voters`] does, or a learner.
    ///
    /// # Errors
    /// The members may be the new ones in spite of [`ChangeError::Unknown`].
    pub async fn remove(&self, node: u64) -> Result<(), ChangeError> {
        let nodes = BTreeSet::from([node]);
        let change = if self.newest_members().has_voter(node) {
            ChangeMembers::RemoveVoters(nodes)
        } else {
            ChangeMembers::RemoveNodes(nodes)
        };
        changed(self.raft.change_membership(change, false).await)
    }

    /// Hands the lead over to another voter. Returns when that is under way; until it is done, or has
    /// failed by an election timeout, proposals are refused.
    ///
    /// # Errors
    /// Nothing was begun.
    pub async fn transfer_leader(&self, to: u64) -> Result<(), ChangeError> {
        if !self.raft.is_leader() {
            let leader = self.watch().borrow().leader;
            return Err(ChangeError::NotLeader { leader });
        }
        if to == self.node || !self.newest_members().has_voter(to) {
            return Err(ChangeError::Refused(format!(
                "node {to:016x} is not another voter"
            )));
        }
        let begun = self.raft.trigger().transfer_leader(to).await;
        begun.map_err(|fatal| ChangeError::Stopped(fatal.to_string()))
    }

    /// Campaigns at once, if this replica is a voter, does not lead and is not below its floor. It first asks the voters whether they would
    /// vote for it: a refusal changes nothing, and it can be asked again a few milliseconds later. Returns when it has asked
    /// them; a replica that votes alone has written its vote by then.
    ///
    /// For a group that has been seeded: voters whose replicas are not there yet do not answer. Else it would take
    /// an election timeout until one campaigns.
    ///
    /// # Errors
    /// [`ChangeError::Stopped`]: the group has stopped.
    pub async fn elect(&self) -> Result<(), ChangeError> {
        if self.is_below_floor() {
            return Ok(());
        }
        let stopped = |fatal: Fatal<_>| ChangeError::Stopped(fatal.to_string());
        self.raft.trigger().elect(true).await.map_err(stopped)?;
        // Messages are taken one after the other. Campaigns that come faster than votes are written would make each other
        // vain.
        self.raft.with_raft_state(|_| ()).await.map_err(stopped)
    }

    /// Sends a heartbeat to the other members at once, if this replica leads. It says how far the group has agreed:
    /// a member that has missed the message that said so does not wait for it until
    /// [`GroupOptions::heartbeat`](crate::GroupOptions::heartbeat) has passed.
    ///
    /// # Errors
    /// [`ChangeError::Stopped`]: the group has stopped.
    pub async fn heartbeat(&self) -> Result<(), ChangeError> {
        let sent = self.raft.trigger().heartbeat().await;
        sent.map_err(|fatal| ChangeError::Stopped(fatal.to_string()))
    }

    /// Campaigns at once if `leader`, whose node is known to be dead, leads: no voter waits until it has
    /// not heard of it for an election timeout. To be called on all voters; they take turns. If the leader
    /// lives after all, it loses the lead, and nothing that was acknowledged.
    pub async fn presume_dead(&self, leader: u64) {
        let led = self.vote();
        let members = self.newest_members();
        if self.is_below_floor() {
            return;
        }
        if led.leader_id.voted_for != leader || !led.committed || leader == self.node {
            return;
        }
        let mut successors = members.all();
        successors.retain(|node| *node != leader && members.has_voter(*node));
        let Some(turn) = successors.iter().position(|node| *node == self.node) else {
            return;
        };
        tokio::time::sleep(STAGGER * turn as u32).await;
        // As if it had been asked by the leader to take over: others then grant it their votes though they
        // have heard of the leader just now. That would break reads by lease; there are none.
        let request = TransferLeaderRequest::new(led, self.node, None);
        // Somebody else's turn has come to something, or the group has stopped.
        drop(self.raft.handle_transfer_leader(request).await);
    }

    pub(crate) fn vote(&self) -> Vote {
        self.raft.server_metrics().borrow_watched().vote
    }

    fn newest_members(&self) -> Members {
        let metrics = self.raft.server_metrics();
        let server = metrics.borrow_watched();
        Members::of(server.membership_config.membership())
    }
}

/// Why the members, or the leader, are not seen to have changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeError {
    /// Nothing was changed: another node leads, or none.
    NotLeader {
        /// Which one, if known.
        leader: Option<u64>,
    },
    /// Nothing was changed, for this reason: it makes no sense, or another change goes on.
    Refused(String),
    /// The lead was lost meanwhile: it may be changed, even later.
    Unknown,
    /// The group has stopped, for this reason.
    Stopped(String),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader { leader } => not_leader(*leader, f),
            Self::Refused(why) => f.write_str(why),
            Self::Unknown => f.write_str("the outcome is not known"),
            Self::Stopped(why) => write!(f, "the group has stopped: {why}"),
        }
    }
}

impl std::error::Error for ChangeError {}

type Changed<C> =
    Result<ClientWriteResponse<Types<C>>, RaftError<Types<C>, ClientWriteError<Types<C>>>>;

fn changed<C: Command>(outcome: Changed<C>) -> Result<(), ChangeError> {
    match outcome {
        Ok(_) => Ok(()),
        Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
            Err(ChangeError::NotLeader {
                leader: forward.leader_id,
            })
        }
        Err(RaftError::APIError(ClientWriteError::LogEntryDiscarded(_))) => {
            Err(ChangeError::Unknown)
        }
        Err(RaftError::APIError(refused)) => Err(ChangeError::Refused(refused.to_string())),
        Err(RaftError::Fatal(fatal)) => Err(ChangeError::Stopped(fatal.to_string())),
    }
}
