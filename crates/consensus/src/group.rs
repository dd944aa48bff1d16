//! One group's replica on this node: proposals in, applied commands out.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, LinearizableReadError, RaftError};
use openraft::raft::ClientWriteResult;
use openraft::{Config, EmptyNode, Raft, ReadPolicy, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::catch_up::Met;
use crate::floor::Floor;
use crate::group_log::GroupLog;
use crate::keep::KeptBack;
use crate::log::Log;
use crate::loss::Missing;
use crate::machine::{Machine, Positions};
use crate::mark::Mark;
use crate::network::{Network, Peers};
use crate::numbers::GroupId;
use crate::record;
use crate::seed::{self, Origin};
use crate::settle::{Settled, Unsettled};
use crate::snapshot::Receiving;
use crate::standing::{Members, Standing, Watcher, why_stopped};
use crate::types::{Reply, Types};
use crate::wal::{Condition, Wal};
use crate::{Command, StateMachine};

/// The limits and times of one group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Entries that stay in the log behind a checkpoint.
    pub keep: u64,
    /// Bytes of the log that stay behind a checkpoint, at most about, while a member does not have them.
    /// Beyond, such a member will get a snapshot.
    ///
    /// Limit: log behind a checkpoint for replicas that lag | 64 MiB a shard | they get a snapshot
    pub keep_bytes: u64,
    /// Bytes in memory that written and applied entries may take; what is not yet both stays in any case.
    pub tail_bytes: usize,
    /// Bytes of commands that are proposed and not yet applied; further ones wait.
    pub in_flight_bytes: usize,
    /// The thread that the group lives on writes appended entries itself when it has nothing else to do, and cannot do
    /// anything else meanwhile. It has to call [`Log::write_idle`] before it sleeps: else they are never written. For groups
    /// that have no other members, which would wait for heartbeats.
    pub writes_idle: bool,
    /// How often a leader tells the other members that it lives.
    pub heartbeat: Duration,
    /// How long the other members wait for that before they elect another: a random time from the first
    /// to the second. A leader that was not answered by a majority for the second one takes no proposals.
    pub election: (Duration, Duration),
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            keep: 1_000,
            keep_bytes: 64 << 20,
            tail_bytes: 2 << 20,
            in_flight_bytes: 16 << 20,
            writes_idle: false,
            heartbeat: Duration::from_millis(250),
            election: (Duration::from_millis(750), Duration::from_millis(1_500)),
        }
    }
}

/// Bytes of one command at most, with what the log adds: half of the longest frame that nodes send each other. A
/// longer one could be agreed on by a sole voter, and would then never reach another member.
///
/// Limit: one request to a shard, and so one log entry | {:bytes}, half of a frame between nodes;
/// {limits.connection.maximumPacketSize} is at most {config::LARGEST_PACKET} bytes | refused: 0x97; others of the
/// batch go on
pub const COMMAND_LIMIT: usize = 32 << 20;

/// How a replica begins that has nothing in the log. One that has goes on as what it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Birth {
    /// With a new group, of which this node is the only voter.
    Alone,
    /// With nothing: the leader of a group that exists makes this node a member.
    Invited,
    /// With the state that an entry of another group has made, which is what the machine holds: its
    /// [`StateMachine::durable`] is the [`Mark::seed`] of the other group's members before that entry, though no table
    /// has to hold it yet. The members seed their replicas each by itself, and nobody founds the group.
    ///
    /// It can be repeated after a restart, as long as no table holds the state: what the replica has voted and
    /// appended since then stays.
    Seeded(Origin),
}

/// One Raft group's replica on this node. It lives in the tokio runtime that it was started in; a
/// single-threaded one costs it a third of the CPU time. While it is alone and leads it has no timer.
pub struct Group<C: Command> {
    pub(crate) node: u64,
    /// A leader lacks what is applied here, and the log says so.
    pub(crate) is_contradicted: AtomicBool,
    /// Why the last request of another replica could not be read.
    pub(crate) unreadable: Mutex<Option<String>>,
    pub(crate) raft: Raft<Types<C>, Machine<C>>,
    pub(crate) receiving: Receiving,
    /// As of [`crate::rpc::Append`].
    pub(crate) wanted_from: Arc<AtomicU64>,
    pub(crate) positions: Arc<Positions>,
    pub(crate) met: Met,
    pub(crate) log: GroupLog<C>,
    wal: Arc<Wal>,
    kept_back: Mutex<KeptBack>,
    room: Arc<Semaphore>,
    in_flight_bytes: usize,
    watcher: Watcher,
    /// While the log is below its floor.
    _floor: Option<Floor>,
    /// Requests of leaders; [`RETIRED`]: none is answered any more.
    contacts: AtomicU64,
}

/// More requests than there can be.
const RETIRED: u64 = u64::MAX;

impl<C: Command> Group<C> {
    /// Starts the replica of the group `id` on the node `node`. Committed commands that the machine's
    /// tables do not hold are applied again, some of them before this returns, and all before
    /// [`Group::recovered`] does.
    ///
    /// # Errors
    /// What is in the log or in the tables cannot be used.
    pub async fn start(
        id: u64,
        node: u64,
        log: &Log,
        machine: impl StateMachine<C>,
        network: Arc<dyn Network>,
        birth: Birth,
        options: &GroupOptions,
    ) -> Result<Self, StartError> {
        let wal = log.wal().clone();
        let durable = machine.durable().unwrap_or_default();
        prepare(&wal, id, birth, &durable).await?;
        let unsettled = Unsettled {
            wal: &wal,
            group: GroupId(id),
            tables: &durable,
        };
        settled(id, unsettled.settle(node, birth == Birth::Alone).await)?;
        let positions = Arc::new(Positions::new(durable.clone()));
        let log = GroupLog::open(id, wal.clone(), positions.clone(), options.tail_bytes)
            .await
            .map_err(StartError::Log)?
            .with_idle_writes(options.writes_idle);
        check_fit(durable.next_index(), log.span())?;
        let is_below_floor = log.is_below_floor();
        if !is_below_floor {
            log.end_floor().await.map_err(StartError::Log)?;
        }
        let config = Config {
            enable_elect: !is_below_floor,
            ..config(id, options).map_err(failed)?
        };
        let wanted_from = Arc::new(AtomicU64::new(0));
        let peers = Peers {
            own: node,
            network,
            group: id,
            timeout: options.election.1,
            wanted_from: wanted_from.clone(),
        };
        let receiving = Receiving::new(machine.tables());
        let leaders = peers.clone();
        let machine = Machine::new(machine, log.clone());
        let raft = Raft::new(node, Arc::new(config), peers, log.clone(), machine)
            .await
            .map_err(failed)?;
        begin(&raft, node, birth, is_below_floor).await?;
        let watcher = Watcher::spawn(node, raft.clone(), positions.clone());
        let floor = is_below_floor.then(|| {
            let standing = watcher.standing().clone();
            Floor::spawn(log.clone(), raft.clone(), leaders, standing)
        });
        // A semaphore counts to u32::MAX per request; nobody proposes 4 GB.
        let in_flight_bytes = options.in_flight_bytes.clamp(1, u32::MAX as usize);
        Ok(Self {
            node,
            is_contradicted: AtomicBool::new(false),
            unreadable: Mutex::new(None),
            receiving,
            wanted_from,
            log,
            wal,
            kept_back: Mutex::new(KeptBack::new(options.keep_bytes)),
            room: Arc::new(Semaphore::new(in_flight_bytes)),
            in_flight_bytes,
            watcher,
            _floor: floor,
            raft,
            positions,
            met: Met::default(),
            contacts: AtomicU64::new(0),
        })
    }

    /// Waits until everything that was acknowledged before the start is applied. Serve only then. If there
    /// are other voters, a majority of them has to be there.
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
        if bytes > COMMAND_LIMIT {
            return Err(ProposeError::TooLong { bytes });
        }
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

    /// The calling thread has something else to do before it sleeps: what groups with [`GroupOptions::writes_idle`] have
    /// appended is left to the log's thread.
    pub fn hand_over(&self) {
        self.wal.queue.hand_over();
    }

    /// Where this replica stands, now and at each change.
    pub fn watch(&self) -> watch::Receiver<Standing> {
        self.watcher.standing().clone()
    }

    /// Waits until everything is applied here that was acknowledged, by whomever, before the call. Only the
    /// leader can tell; it asks a majority, unless it is the sole voter.
    ///
    /// # Errors
    /// This node does not lead, or not any more, or it cannot tell.
    pub async fn linearize(&self) -> Result<(), LinearizeError> {
        if self.is_sole_voter_and_leads() {
            // What was acknowledged was acknowledged here, when it was applied.
            return Ok(());
        }
        match self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                Err(LinearizeError::NotLeader {
                    leader: forward.leader_id,
                })
            }
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => {
                Err(LinearizeError::NoMajority)
            }
            Err(RaftError::Fatal(fatal)) => Err(LinearizeError::Stopped(fatal.to_string())),
        }
    }

    fn is_sole_voter_and_leads(&self) -> bool {
        // Not what was told to watchers: that comes a moment later.
        let metrics = self.raft.server_metrics();
        let server = metrics.borrow_watched();
        let members = Members::of(server.membership_config.membership());
        members.is_sole_voter(self.node) && self.watcher.standing().borrow().leads
    }

    /// How far the others are; `None`: this replica does not lead.
    pub fn progress(&self) -> Option<Progress> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let mut next: BTreeMap<u64, u64> = metrics
            .replication
            .as_ref()?
            .iter()
            .map(|(node, last)| (*node, last.map_or(0, |id| id.index + 1)))
            .collect();
        next.remove(&self.node);
        Some(Progress {
            next,
            log_next: metrics.last_log_index.map_or(0, |index| index + 1),
        })
    }

    /// How long a majority has not answered this leader; `None`: it does not lead, or needs nobody.
    pub fn majority_silence(&self) -> Option<Duration> {
        if self.is_sole_voter_and_leads() {
            return None;
        }
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let acked = metrics.last_quorum_acked.as_ref()?;
        Some(acked.elapsed())
    }

    /// The term of the last leader that this replica has followed; in later ones it has only voted, or
    /// campaigned.
    pub fn followed_term(&self) -> u64 {
        let vote = self.vote();
        if vote.committed {
            vote.leader_id.term
        } else {
            self.log.last_term()
        }
    }

    /// How many requests of leaders have come: they send any to members only.
    pub fn contacts(&self) -> u64 {
        self.contacts.load(Ordering::Acquire)
    }

    /// Has this replica answer no leader any more, so that it can be removed. False: one has sent something
    /// since there were so many `contacts`, and may count on what it was answered.
    pub fn retire(&self, contacts: u64) -> bool {
        let retired =
            self.contacts
                .compare_exchange(contacts, RETIRED, Ordering::AcqRel, Ordering::Acquire);
        retired.is_ok()
    }

    /// Counts a request of a leader. False: the replica is about to be removed.
    pub(crate) fn count_contact(&self) -> bool {
        let more = |contacts| (contacts != RETIRED).then(|| contacts + 1);
        let counted = self
            .contacts
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        counted.is_ok()
    }

    /// How far the machine is. In the group's single-threaded runtime, outside of the machine's own
    /// calls, this is exactly what it has applied.
    pub fn applied_mark(&self) -> Mark {
        self.positions.applied.lock().clone()
    }

    /// The machine's tables hold everything up to `mark`, synced: the log before it will be deleted, but
    /// for [`GroupOptions::keep`] entries and, for members that do not have them,
    /// [`GroupOptions::keep_bytes`].
    pub async fn checkpointed(&self, mark: Mark) {
        let reaches = mark.next_index() <= self.applied_mark().next_index();
        assert!(reaches, "a checkpoint of what was not applied");
        let (wanted_from, appended) = (self.find_wanted_from(), self.log.appended_bytes());
        let released = {
            let mut kept_back = self.kept_back.lock();
            kept_back.add(mark, appended);
            kept_back.release(wanted_from, appended)
        };
        if let Some(mark) = released {
            *self.positions.checkpoint.lock() = mark;
            // A group that has stopped keeps its log.
            drop(self.raft.trigger().snapshot().await);
        }
    }

    /// Whether this replica is the only member: entries go to nobody else.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        let standing = self.watcher.standing();
        standing.borrow().members.is_alone(self.node)
    }

    /// The first index that another member may still want from the log, as the leader knows it or has said.
    fn find_wanted_from(&self) -> u64 {
        if self.is_alone() {
            return u64::MAX;
        }
        if let Some(progress) = self.progress() {
            let wanted_from = progress.next.values().min().copied().unwrap_or(0);
            self.wanted_from.store(wanted_from, Ordering::Relaxed);
        }
        self.wanted_from.load(Ordering::Relaxed)
    }

    /// Ends the group. Proposals under way are answered or dropped; what was acknowledged stays.
    pub async fn shutdown(self) {
        // It fails if a task of the group has panicked, which has ended the process.
        let _ = self.raft.shutdown().await;
        self.positions.ended.send_replace(true);
    }

    fn why_stopped(&self) -> String {
        match self.wal.condition() {
            Condition::Failed(why) => why.to_string(),
            _ => why_stopped::<C>(&self.raft.metrics()),
        }
    }
}

impl<C: Command> Group<C> {
    /// Whether the log here may lack entries that this replica has acknowledged, because it was damaged or deleted. Until
    /// the leader has sent everything again the replica does not campaign, and may refuse its vote.
    pub fn is_below_floor(&self) -> bool {
        self.log.is_below_floor()
    }

    /// Entries of the log that are in memory, and about how many bytes these take.
    pub fn in_memory(&self) -> (usize, usize) {
        self.log.in_memory()
    }
}

/// openraft's settings. The timer is switched on when there are others: its tick is all that an idle group
/// costs, and while there is nobody else, nobody else could vote or lead.
fn config(id: u64, options: &GroupOptions) -> Result<Config, openraft::ConfigError> {
    let milliseconds = |duration: Duration| duration.as_millis() as u64;
    Config {
        cluster_name: format!("group {id}"),
        heartbeat_interval: milliseconds(options.heartbeat),
        election_timeout_min: milliseconds(options.election.0),
        election_timeout_max: milliseconds(options.election.1),
        enable_tick: false,
        enable_pre_vote: Some(true),
        // A leader that comes back may have lost entries that others have: in the same term it would put
        // different ones in their place, and nobody would notice.
        enable_leader_restore: Some(false),
        // A member whose disk has lost what it had acknowledged is sent it again. It is the one that is wrong: the
        // leader does not end for it.
        allow_log_reversion: Some(true),
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: options.keep,
        backoff: "100ms 200ms ..500ms".to_owned(),
        ..Config::default()
    }
    .validate()
}

/// Founds the group if it is new, and leads if nobody else can. A sole voter below its floor does not lead: nobody can
/// tell what it lacks, until [`Log::make_sole_voter`] says that it does not matter.
async fn begin<C: Command>(
    raft: &Raft<Types<C>, Machine<C>>,
    node: u64,
    birth: Birth,
    is_below_floor: bool,
) -> Result<(), StartError> {
    if !raft.is_initialized().await.map_err(failed)? {
        if birth != Birth::Alone {
            return Ok(());
        }
        let members = BTreeMap::from([(node, EmptyNode {})]);
        return raft.initialize(members).await.map_err(failed);
    }
    let members = {
        let metrics = raft.server_metrics();
        let server = metrics.borrow_watched();
        Members::of(server.membership_config.membership())
    };
    if members.is_sole_voter(node) && !is_below_floor {
        return raft.trigger().elect(false).await.map_err(failed);
    }
    if birth == Birth::Alone && !members.contains(node) {
        return Err(StartError::NotAMember);
    }
    Ok(())
}

/// Before a replica starts whose tables reach to `durable`: a seed is written down, and a seeded group without any
/// state does not start.
async fn prepare(wal: &Wal, group: u64, birth: Birth, durable: &Mark) -> Result<(), StartError> {
    match birth {
        Birth::Seeded(by) => {
            if !durable.is_seed() {
                return Err(StartError::NotASeed);
            }
            match seed::seed(wal, group, by).await.map_err(StartError::Log)? {
                true => Ok(()),
                false => Err(StartError::NotSeedable),
            }
        }
        Birth::Alone | Birth::Invited => match seed::origin(wal, group).map_err(StartError::Log)? {
            Some(origin) if durable.index().is_none() => Err(StartError::Unborn { origin }),
            _ => Ok(()),
        },
    }
}

/// Whether a replica whose log was damaged can start.
fn settled(group: u64, outcome: io::Result<Settled>) -> Result<(), StartError> {
    match outcome.map_err(StartError::Log)? {
        Settled::Whole => Ok(()),
        Settled::BelowFloor(missing) => {
            tracing::error!(
                group,
                "the log was damaged: {missing}. The replica goes on, and the others send it what it lacks; until then it votes \
                 for nobody who may lack that, too"
            );
            Ok(())
        }
        Settled::Lost(missing) => Err(StartError::Lost(missing)),
    }
}

/// `tables_next` is the first index that the tables do not hold; `log` is its first index and the first behind it.
pub(crate) fn check_fit(tables_next: u64, log: (u64, u64)) -> Result<(), StartError> {
    let (log_first, log_next) = log;
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

/// How far the log of a group has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// By other member: the first index that it is not known to have.
    pub next: BTreeMap<u64, u64>,
    /// The first index that the leader does not have.
    pub log_next: u64,
}

/// Why nobody can say here what was acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinearizeError {
    /// Another node leads, or none.
    NotLeader {
        /// Which one, if known.
        leader: Option<u64>,
    },
    /// No majority has answered.
    NoMajority,
    /// The group has stopped, for this reason.
    Stopped(String),
}

impl fmt::Display for LinearizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader { leader } => not_leader(*leader, f),
            Self::NoMajority => f.write_str("no majority of the group answers"),
            Self::Stopped(why) => write!(f, "the group has stopped: {why}"),
        }
    }
}

impl std::error::Error for LinearizeError {}

pub(crate) fn not_leader(leader: Option<u64>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match leader {
        Some(node) => write!(f, "node {node:016x} leads the group"),
        None => f.write_str("the group has no leader"),
    }
}

/// Why a proposal was not applied, or not seen to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProposeError {
    /// The disk is full; nothing was proposed.
    Full,
    /// The command is longer than [`COMMAND_LIMIT`]; nothing was proposed.
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// Nothing was proposed: another node leads, or none, or this one cannot be sure that it does.
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
            Self::TooLong { bytes } => write!(
                f,
                "a command of {bytes} bytes is too long: {COMMAND_LIMIT} are allowed"
            ),
            Self::NotLeader { leader } => not_leader(*leader, f),
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
    /// The log was damaged, and has lost entries that no table of this replica holds. Nobody else has them.
    Lost(Missing),
    /// The group has members, and this node is none of them.
    NotAMember,
    /// The group was seeded here, and no table holds its state yet: the entry that it comes from has to be applied
    /// again, and then the group is started with [`Birth::Seeded`].
    Unborn {
        /// The entry.
        origin: Origin,
    },
    /// The machine does not hold what a group can be seeded with: its mark is not one of [`Mark::seed`], or nobody
    /// would vote.
    NotASeed,
    /// The node has a replica of the group that was not seeded, or had a replica that was deleted. As
    /// [`Log::may_seed`] says beforehand.
    NotSeedable,
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
            Self::Lost(missing) => write!(f, "its log was damaged: {missing}"),
            Self::NotAMember => f.write_str("this node is not a member of the group"),
            Self::Unborn { origin } => {
                write!(
                    f,
                    "its state comes from {origin}, which has to be applied first"
                )
            }
            Self::NotASeed => f.write_str("a group cannot begin with this state"),
            Self::NotSeedable => f.write_str("the node has, or had, another replica of the group"),
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
