//! One group's replica on this node: proposals in, applied commands out.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use openraft::async_runtime::WatchReceiver;
use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use openraft::{Config, EmptyNode, Raft, SnapshotPolicy};
use tokio::sync::{Semaphore, oneshot};

use crate::group_log::GroupLog;
use crate::log::Log;
use crate::machine::{Machine, Positions};
use crate::mark::Mark;
use crate::record;
use crate::types::{Reply, Types};
use crate::wal::{Condition, Wal};
use crate::{Command, StateMachine};

/// The limits of one group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Entries that stay in the log behind a checkpoint.
    pub keep: u64,
    /// Bytes of written and applied entries that stay in memory; what is not yet both stays in any case.
    pub tail_bytes: usize,
    /// Bytes of commands that are proposed and not yet applied; further ones wait.
    pub in_flight_bytes: usize,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            keep: 1_000,
            tail_bytes: 1 << 20,
            in_flight_bytes: 16 << 20,
        }
    }
}

/// One Raft group's replica on this node, its only voter for now. It lives in the tokio runtime that
/// it was started in; a single-threaded one costs it a third of the CPU time.
pub struct Group<C: Command> {
    raft: Raft<Types<C>, Machine<C>>,
    wal: Arc<Wal>,
    positions: Arc<Positions>,
    room: Arc<Semaphore>,
    in_flight_bytes: usize,
}

impl<C: Command> Group<C> {
    /// Starts the group `id` as the node `node_id`; the first time, as its first member. Committed
    /// commands that the machine's tables do not hold are applied again, some of them before this
    /// returns, and all before [`Group::recovered`] does.
    pub async fn start(
        id: u64,
        node_id: u64,
        log: &Log,
        machine: impl StateMachine<C>,
        options: &GroupOptions,
    ) -> Result<Self, StartError> {
        let wal = log.wal().clone();
        let durable = machine.durable().unwrap_or_default();
        let (machine, positions) = Machine::new(machine, durable.clone());
        let group_log = GroupLog::open(id, wal.clone(), positions.clone(), options.tail_bytes)
            .await
            .map_err(StartError::Log)?;
        check_fit(&durable, group_log.span())?;
        let config = config(id, options).map_err(failed)?;
        let raft = Raft::new(
            node_id,
            Arc::new(config),
            crate::network::Alone,
            group_log,
            machine,
        )
        .await
        .map_err(failed)?;
        lead(&raft, node_id).await?;
        // A semaphore counts to u32::MAX per request; nobody proposes 4 GB.
        let in_flight_bytes = options.in_flight_bytes.clamp(1, u32::MAX as usize);
        Ok(Self {
            raft,
            wal,
            positions,
            room: Arc::new(Semaphore::new(in_flight_bytes)),
            in_flight_bytes,
        })
    }

    /// Waits until everything that was acknowledged before the start is applied. Serve only then.
    pub async fn recovered(&self) -> Result<(), RecoveryError> {
        match self.raft.wait_for_recovery(None).await {
            Ok(_) => Ok(()),
            Err(_) => Err(RecoveryError(self.why_stopped())),
        }
    }

    /// Proposes a command. Returns when it is queued: at once, unless
    /// [`GroupOptions::in_flight_bytes`] are under way. What is proposed after another proposal was
    /// queued is applied after it.
    pub async fn propose(&self, command: C) -> Result<Proposal<C>, ProposeError> {
        match self.wal.condition() {
            Condition::Working => {}
            Condition::Full => return Err(ProposeError::Full),
            Condition::Failed(why) => return Err(ProposeError::Stopped(why.to_string())),
        }
        let bytes = record::HEADER + command.encoded_len_hint();
        let permits = bytes.min(self.in_flight_bytes) as u32;
        let Ok(room) = self.room.clone().acquire_many_owned(permits).await else {
            return Err(ProposeError::Stopped(self.why_stopped()));
        };
        let (sender, outcome) = oneshot::channel();
        let reply = Reply {
            outcome: sender,
            _room: room,
        };
        match self.raft.client_write_ff(command, Some(reply)).await {
            Ok(()) => Ok(Proposal(outcome)),
            Err(fatal) => Err(ProposeError::Stopped(fatal.to_string())),
        }
    }

    /// Whether proposals are taken here.
    pub fn is_leader(&self) -> bool {
        self.raft.is_leader()
    }

    /// How far the machine is. In the group's single-threaded runtime, outside of the machine's own
    /// calls, this is exactly what it has applied.
    pub fn applied_mark(&self) -> Mark {
        self.positions.applied.lock().clone()
    }

    /// The machine's tables hold everything up to `mark`, synced: the log before it, but for
    /// [`GroupOptions::keep`] entries, will be deleted.
    pub async fn checkpointed(&self, mark: Mark) {
        let reaches = mark.next_index() <= self.applied_mark().next_index();
        assert!(reaches, "a checkpoint of what was not applied");
        *self.positions.checkpoint.lock() = mark;
        // A group that has stopped keeps its log.
        drop(self.raft.trigger().snapshot().await);
    }

    /// Ends the group. Proposals under way are answered or dropped; what was acknowledged stays.
    pub async fn shutdown(self) {
        if self.raft.shutdown().await.is_err() {
            tracing::error!("a group's task panicked");
        }
    }

    fn why_stopped(&self) -> String {
        if let Condition::Failed(why) = self.wal.condition() {
            return why.to_string();
        }
        match &self.raft.metrics().borrow_watched().running_state {
            Ok(()) => "the group was shut down".to_owned(),
            Err(fatal) => fatal.to_string(),
        }
    }
}

/// openraft's settings for a group that has this node only: without a timer, since nobody else could
/// vote or lead. Its tick is all that an idle group costs.
fn config(id: u64, options: &GroupOptions) -> Result<Config, openraft::ConfigError> {
    Config {
        cluster_name: format!("group {id}"),
        enable_tick: false,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: options.keep,
        ..Config::default()
    }
    .validate()
}

/// Makes this node, the only one, the leader.
async fn lead<C: Command>(
    raft: &Raft<Types<C>, Machine<C>>,
    node_id: u64,
) -> Result<(), StartError> {
    if !raft.is_initialized().await.map_err(failed)? {
        let members = BTreeMap::from([(node_id, EmptyNode {})]);
        return raft.initialize(members).await.map_err(failed);
    }
    if !raft.voter_ids().any(|voter| voter == node_id) {
        return Err(StartError::NotAMember);
    }
    raft.trigger().elect(false).await.map_err(failed)
}

/// `log` is its first index and the first behind it.
pub(crate) fn check_fit(tables: &Mark, log: (u64, u64)) -> Result<(), StartError> {
    let (log_first, log_next) = log;
    let tables_next = tables.next_index();
    if tables_next > log_next {
        return Err(StartError::LogTooShort {
            tables_next,
            log_next,
        });
    }
    if tables_next < log_first {
        return Err(StartError::TablesTooOld {
            tables_next,
            log_first,
        });
    }
    Ok(())
}

fn failed(error: impl fmt::Display) -> StartError {
    StartError::Raft(error.to_string())
}

/// A command under way. Resolves, with its index, when it is applied. Dropping it changes nothing.
#[derive(Debug)]
pub struct Proposal<C: Command>(oneshot::Receiver<ClientWriteResult<Types<C>>>);

impl<C: Command> Future for Proposal<C> {
    type Output = Result<u64, ProposeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(match outcome {
            Ok(Ok(written)) => Ok(written.log_id.index),
            Ok(Err(ClientWriteError::ForwardToLeader(forward))) => Err(ProposeError::NotLeader {
                leader: forward.leader_id,
            }),
            // Changes of members and preconditions are not proposed; what is left was accepted.
            Ok(Err(_)) | Err(_) => Err(ProposeError::Unknown),
        })
    }
}

/// Why a proposal was not applied, or not seen to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProposeError {
    /// The disk is full; nothing was proposed.
    Full,
    /// Nothing was proposed: another node leads, or none.
    NotLeader {
        /// Which one, if known.
        leader: Option<u64>,
    },
    /// It was proposed, and then the group lost the lead or stopped: it may or may not be applied, even
    /// later.
    Unknown,
    /// Nothing was proposed: the group has stopped, for this reason.
    Stopped(String),
}

impl fmt::Display for ProposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the disk is full"),
            Self::NotLeader { leader: Some(node) } => write!(f, "node {node} leads the group"),
            Self::NotLeader { leader: None } => f.write_str("the group has no leader"),
            Self::Unknown => f.write_str("the outcome is not known"),
            Self::Stopped(why) => write!(f, "the group has stopped: {why}"),
        }
    }
}

impl std::error::Error for ProposeError {}

/// Why a group does not start. Other groups of the same log may.
#[derive(Debug)]
pub enum StartError {
    /// Its part of the log cannot be read.
    Log(io::Error),
    /// The tables hold what the log never had: one of them is not of this node, or is missing.
    LogTooShort {
        /// The first index that the tables do not hold.
        tables_next: u64,
        /// The first index that the log does not hold.
        log_next: u64,
    },
    /// The log begins behind what the tables hold: one of them is not of this node, or is missing.
    TablesTooOld {
        /// The first index that the tables do not hold.
        tables_next: u64,
        /// The first index that the log holds.
        log_first: u64,
    },
    /// The group has members, and this node is none of them.
    NotAMember,
    /// What openraft said.
    Raft(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => error.fmt(f),
            Self::LogTooShort {
                tables_next,
                log_next,
            } => write!(
                f,
                "the tables hold all before entry {tables_next}, the log ends before {log_next}: \
                 they do not belong together"
            ),
            Self::TablesTooOld {
                tables_next,
                log_first,
            } => write!(
                f,
                "the tables hold all before entry {tables_next}, the log begins with {log_first}: \
                 they do not belong together"
            ),
            Self::NotAMember => f.write_str("this node is not a member of the group"),
            Self::Raft(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}

/// Why a group did not take up what was acknowledged: a damaged entry, or a failed log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveryError(String);

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RecoveryError {}
