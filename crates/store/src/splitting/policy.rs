//! What a policy goes by, and what it says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use store_state::api::{PerStore, Slot};

use crate::peers::member::ShardId;
use crate::shard::load::{Busyness, Percent};

/// A shard that this node leads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    /// Store and number.
    pub id: ShardId,
    /// The thread that it lives on, as a place in [`NodeView::threads`].
    pub thread: usize,
    /// Its last ten seconds; `None`: this node has not led it, as it is now, for as long.
    pub busyness: Option<Busyness>,
}

/// What the node knows of itself and of others. Loads are CPU time per second, means of ten seconds; those of threads have the
/// time in them that these have waited for a core.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeView {
    /// What each thread of the store uses that runs or could.
    pub threads: Vec<Duration>,
    /// What the shards use that this node leads.
    pub led_here: Duration,
    /// The same of each other node that can lead.
    pub led_elsewhere: Vec<Duration>,
    /// Replicas here, by store.
    pub replicas: PerStore<usize>,
    /// What the process uses of the CPU time of the machine, from 0 to 1.
    pub process_cpu: f64,
    /// All members can be reached.
    pub has_all_members: bool,
}

/// Says whether a shard is to be split.
pub(crate) trait SplitPolicy {
    /// To be asked about each shard that the node leads, once a second.
    fn decide(&self, shard: &Candidate, node: &NodeView) -> Verdict;
}

/// What a policy says of a shard, or what holds its answer back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is to be split, at this slot.
    Split {
        /// The first slot of the upper half.
        at: Slot,
        /// What the script of the store says of it; `None`: a built-in policy has decided.
        why: Option<Why>,
    },
    /// It is not, for this reason.
    Hold(Hold),
}

/// Why a shard is not split.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Shards of the store are split by hand only.
    ByHandOnly,
    /// This node has not led the shard, as it is now, for ten seconds.
    New,
    /// It has not been busy in each of the last ten seconds.
    NotBusy,
    /// No thread of this node and no other node has half as little to do.
    NoRoom,
    /// No boundary leaves a fifth of the load on either side.
    Narrow,
    /// One slot alone has most of the load: that of a client, or of a topic, which a split cannot spread.
    OneSlot {
        /// The slot.
        slot: Slot,
        /// Its share of the load.
        share: Percent,
    },
    /// The store was split a short time ago.
    Cooldown,
    /// A split of this node is under way.
    UnderWay,
    /// The node has as many replicas of shards of the store as it may have.
    ShardsMost,
    /// A split that was decided on was refused a short time ago.
    Refused,
    /// As BifroMQ: the process uses too much of the machine's CPU.
    ProcessBusy,
    /// As BifroMQ: what an operation takes is too long.
    SlowOperations,
    /// As BifroMQ: entries of the log have too few operations.
    SmallEntries,
    /// As BifroMQ: a member of the cluster cannot be reached.
    MemberDown,
    /// The script of the store does not want it, for this reason.
    Script(Why),
    /// The time of the script is used up for this second: it is asked about the shard in a later one.
    Deferred,
}

/// A reason that a script gives: at most [`Why::BYTES_MOST`] bytes in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why(Arc<str>);

impl Why {
    /// The most bytes that are kept.
    pub const BYTES_MOST: usize = 200;

    /// The first [`Why::BYTES_MOST`] bytes of a text; control characters become spaces.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let end = text.floor_char_boundary(Self::BYTES_MOST);
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        Self(text[..end].chars().map(plain).collect::<String>().into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Hold {
    /// A word for it, in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::ByHandOnly => "by_hand_only",
            Self::New => "new",
            Self::NotBusy => "not_busy",
            Self::NoRoom => "no_room",
            Self::Narrow => "narrow",
            Self::OneSlot { .. } => "one_slot",
            Self::Cooldown => "cooldown",
            Self::UnderWay => "under_way",
            Self::ShardsMost => "shards_most",
            Self::Refused => "refused",
            Self::ProcessBusy => "process_busy",
            Self::SlowOperations => "slow_operations",
            Self::SmallEntries => "small_entries",
            Self::MemberDown => "member_down",
            Self::Script(_) => "script",
            Self::Deferred => "deferred",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Split { at, why: None } => write!(f, "split at slot {}", at.0),
            Self::Split { at, why: Some(why) } => {
                write!(f, "split at slot {}: {}", at.0, why.as_str())
            }
            Self::Hold(hold) => hold.fmt(f),
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByHandOnly => "is split by hand only",
            Self::New => "has not been led here for ten seconds since it was split or moved",
            Self::NotBusy => "has not been busy for ten seconds",
            Self::NoRoom => "no thread and no node has much less to do",
            Self::Narrow => "no boundary divides its load",
            Self::OneSlot { slot, share } => {
                return write!(
                    f,
                    "slot {} alone has {} % of its load, which a split cannot divide",
                    slot.0, share.0
                );
            }
            Self::Cooldown => "the store was split a short time ago",
            Self::UnderWay => "another split is under way",
            Self::ShardsMost => "the node has as many shards of the store as it may have",
            Self::Refused => "a split was refused a short time ago",
            Self::ProcessBusy => "the process uses too much CPU",
            Self::SlowOperations => "operations take too long",
            Self::SmallEntries => "entries of the log have few operations",
            Self::MemberDown => "a member of the cluster cannot be reached",
            Self::Script(why) if why.as_str().is_empty() => "the script does not split it",
            Self::Script(why) => why.as_str(),
            Self::Deferred => "the script has not been asked about it yet",
        })
    }
}

/// Split by hand only.
pub(crate) struct ByHandOnly;

impl SplitPolicy for ByHandOnly {
    fn decide(&self, _: &Candidate, _: &NodeView) -> Verdict {
        Verdict::Hold(Hold::ByHandOnly)
    }
}
