//! A shard is to be split: what this node asks before it proposes that.
//!
//! Purpose: a split is one entry of the shard's log, and every replica of the shard cuts its own state. The leader proposes it
//! only when all replicas can do so at once: else the child has no majority for a while, and who waits for it waits that long.
//!
//! Invariants: a node asks for one split at a time; what is refused here has changed nothing.
//!
//! Deliberately absent: who asks, and waits for what comes of it (`splits.rs`); whether the entry splits the shard, which its
//! replicas decide (`shard/split.rs`); when a shard should be split (`splitting`).

use std::collections::BTreeSet;
use std::fmt;

use consensus::{Group, Members, ProposeError};
use parking_lot::Mutex;
use store_state::api::{ShardNumber, StoreId};
use store_state::{ChildShard, Level};

use crate::kinds::command::Command;
use crate::peers::known::KnownPeers;
use crate::placement::members::find_late_voter;

/// Why a shard was not split.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SplitError {
    /// The store has no such shard.
    NoShard,
    /// This node does not lead the shard, or not any more.
    NotLeader {
        /// The node that does, if known.
        leader: Option<u64>,
    },
    /// The slot is not within those of the shard, or it is the first one.
    NoSuchSlot {
        /// The first slot of the shard.
        first: u16,
        /// The last one.
        last: u16,
    },
    /// The one shard of the store is never split.
    NeverSplit,
    /// A node serves no more shards of a store.
    TooManyShards,
    /// The replicas of the shard are being changed.
    MembersChange,
    /// A voter cannot be reached, or lacks much of the log.
    VoterIsLate {
        /// Its node.
        node: u64,
    },
    /// A node does not understand, or is not known to, what nodes say to each other of splits.
    EarlierVersion {
        /// The node.
        node: u64,
    },
    /// The level of the shard has no splits.
    Level(Level),
    /// The disk is full.
    Full,
    /// A split that this node has asked for earlier is not over: its child has no leader, or no tables here.
    Unfinished {
        /// The store of the child.
        store: StoreId,
        /// The child.
        child: ShardNumber,
    },
    /// The shard was split otherwise meanwhile, or its replicas were being changed.
    Overtaken,
    /// Whether the shard is split, or will be, is not known: this node has lost the lead.
    Unknown,
    /// The shard does not serve here any more, for this reason.
    Stopped(String),
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoShard => f.write_str("there is no such shard"),
            Self::NotLeader { leader: Some(node) } => {
                write!(f, "node {node:016x} leads the shard")
            }
            Self::NotLeader { leader: None } => f.write_str("this node does not lead the shard"),
            Self::NoSuchSlot { first, last } => write!(
                f,
                "the shard has the slots {first} to {last}, and can be split at a later one than the first"
            ),
            Self::NeverSplit => f.write_str("the one shard of the store is never split"),
            Self::TooManyShards => f.write_str("the store has as many shards as a node serves"),
            Self::MembersChange => f.write_str("the replicas of the shard are being changed"),
            Self::VoterIsLate { node } => write!(
                f,
                "the replica on node {node:016x} cannot be reached, or lacks much of the log"
            ),
            Self::EarlierVersion { node } => write!(
                f,
                "node {node:016x} cannot be reached, or runs a version that knows of no splits"
            ),
            Self::Level(level) => write!(
                f,
                "the shard is at level {level}, and shards are split from level {} on: the upgrade of the cluster is not finished",
                Level::SPLITS
            ),
            Self::Full => f.write_str("the disk is full"),
            Self::Unfinished { store, child } => write!(
                f,
                "shard {child} of the {} store, which was split off before, has no leader or no tables yet",
                store.name()
            ),
            Self::Overtaken => f.write_str(
                "the shard was split otherwise meanwhile, or its replicas were being changed",
            ),
            Self::Unknown => f.write_str("whether the shard is split is not known"),
            Self::Stopped(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for SplitError {}

impl From<ProposeError> for SplitError {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::Full => Self::Full,
            ProposeError::NotLeader { leader } => Self::NotLeader { leader },
            ProposeError::Unknown => Self::Unknown,
            ProposeError::TooLong { .. } | ProposeError::Stopped(_) => {
                Self::Stopped(error.to_string())
            }
        }
    }
}

/// A split that a node has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SplitId {
    pub(super) store: StoreId,
    pub(super) parent: ShardNumber,
    pub(super) child: ChildShard,
}

/// The split that this node has asked for last, as long as it may not be over.
#[derive(Debug, Default)]
pub(super) struct AskedSplit(Mutex<Option<SplitId>>);

/// It is being asked for. If that comes to nothing, it is forgotten.
pub(super) struct Asking<'a> {
    asked: &'a AskedSplit,
    /// The replicas have split the shard.
    pub(super) is_done: bool,
}

impl AskedSplit {
    /// Takes note that a split is being asked for, if the last one is over.
    pub(super) fn begin(
        &self,
        split: SplitId,
        is_over: impl FnOnce(SplitId) -> bool,
    ) -> Result<Asking<'_>, SplitError> {
        let mut asked = self.0.lock();
        if let Some(earlier) = asked.filter(|earlier| !is_over(*earlier)) {
            let SplitId { store, child, .. } = earlier;
            return Err(SplitError::Unfinished {
                store,
                child: child.0,
            });
        }
        *asked = Some(split);
        Ok(Asking {
            asked: self,
            is_done: false,
        })
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            *self.asked.0.lock() = None;
        }
    }
}

/// Whether all replicas of a shard that this node leads can cut it at once.
///
/// # Errors
/// They cannot, or are not known to.
pub(super) fn check_replicas(
    group: &Group<Command>,
    own: u64,
    known_peers: &KnownPeers,
) -> Result<(), SplitError> {
    let members = group.watch().borrow().members.clone();
    let voters = settled_voters(&members).ok_or(SplitError::MembersChange)?;
    if let Some(peers) = &known_peers.network {
        let nodes = known_peers.members.borrow().clone();
        let others = nodes.iter().filter(|member| member.node != own);
        let mut nodes = others.map(|member| member.node);
        if let Some(node) = nodes.find(|node| !peers.knows_splits(*node)) {
            return Err(SplitError::EarlierVersion { node });
        }
    }
    if voters.iter().all(|voter| *voter == own) {
        return Ok(());
    }
    let progress = group
        .progress()
        .ok_or(SplitError::NotLeader { leader: None })?;
    match find_late_voter(&progress, voters, own, |node| known_peers.is_up(node)) {
        Some(node) => Err(SplitError::VoterIsLate { node }),
        None => Ok(()),
    }
}

/// Who votes, and nobody else has a replica; `None`: that is being changed.
fn settled_voters(members: &Members) -> Option<&BTreeSet<u64>> {
    match members.voters.as_slice() {
        [voters] if members.learners.is_empty() => Some(voters),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_settled_without_learners_and_in_one_set() {
        let set = |nodes: &[u64]| nodes.iter().copied().collect::<BTreeSet<u64>>();
        let of = |voters: &[&[u64]], learners: &[u64]| Members {
            voters: voters.iter().map(|nodes| set(nodes)).collect(),
            learners: set(learners),
        };
        assert_eq!(
            settled_voters(&of(&[&[1, 2, 3]], &[])),
            Some(&set(&[1, 2, 3]))
        );
        for changing in [
            of(&[&[1, 2, 3]], &[4]),
            of(&[&[1, 2, 3], &[1, 2, 4]], &[]),
            of(&[], &[]),
        ] {
            assert_eq!(settled_voters(&changing), None, "{changing:?}");
        }
    }

    fn split(child: u16) -> SplitId {
        SplitId {
            store: StoreId::Inbox,
            parent: 0,
            child: ChildShard(child),
        }
    }

    #[test]
    fn one_split_is_asked_for_at_a_time() {
        let asked = AskedSplit::default();
        let refused = |child| SplitError::Unfinished {
            store: StoreId::Inbox,
            child,
        };
        let asking = asked.begin(split(7), |_| panic!("there is none")).ok();
        let again = asked.begin(split(8), |earlier| earlier != split(7));
        assert_eq!(again.err(), Some(refused(7)));
        // It has come to nothing.
        drop(asking);
        let mut asking = asked.begin(split(9), |_| panic!("there is none")).unwrap();
        asking.is_done = true;
        drop(asking);
        assert_eq!(asked.begin(split(8), |_| false).err(), Some(refused(9)));
        assert!(asked.begin(split(8), |_| true).is_ok());
    }
}
