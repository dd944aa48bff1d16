//! Why a node is refused, and what that means for the one that is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::membership::founding::Waiting;
use crate::options::Versions;

/// Why a node is refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Refusal {
    Versions {
        ours: Versions,
        theirs: Versions,
    },
    Env {
        ours: String,
        theirs: String,
    },
    Cluster {
        ours: u64,
        theirs: u64,
    },
    Secret,
    /// The one that was dialled belongs to no cluster yet, or is not ready.
    NotReady,
    /// A node has dialled itself.
    Itself,
    /// Another node was expected at this address.
    OtherNode {
        expected: u64,
        found: u64,
    },
    Evicted,
    /// A later process has its identifier.
    Replaced {
        incarnation: u64,
    },
    /// Another process with the same identifier and incarnation was there first.
    Twin,
    Full,
    /// Its data folder is older than what is remembered of it.
    OldFolder {
        node: u64,
        /// The start that the folder does not know of.
        incarnation: u64,
    },
    /// The one that refuses cannot write down that it knows the other one.
    Disk,
}

impl Refusal {
    /// Its name in metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Versions { .. } => "versions",
            Self::Env { .. } => "env",
            Self::Cluster { .. } => "cluster",
            Self::Secret => "secret",
            Self::NotReady => "notReady",
            Self::Itself => "itself",
            Self::OtherNode { .. } => "otherNode",
            Self::Evicted => "evicted",
            Self::Replaced { .. } => "replaced",
            Self::Twin => "twin",
            Self::Full => "full",
            Self::OldFolder { .. } => "oldFolder",
            Self::Disk => "disk",
        }
    }
}

/// "Ours" is the side that refuses.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Versions { ours, theirs } => write!(
                f,
                "it speaks the versions {theirs} of the protocol, the one that refuses {ours}"
            ),
            Self::Env { ours, theirs } => write!(
                f,
                "its environment is `{theirs:.64}`, that of the one that refuses `{ours:.64}`"
            ),
            Self::Cluster { ours, theirs } => write!(
                f,
                "it belongs to the cluster {theirs:016x}, the one that refuses to {ours:016x}"
            ),
            Self::Secret => f.write_str("it has another secret"),
            Self::NotReady => f.write_str("the one that refuses is not a member of a cluster yet"),
            Self::Itself => f.write_str("it is the same node"),
            Self::OtherNode { expected, found } => write!(
                f,
                "the node {expected:016x} was expected at its address, it is {found:016x}"
            ),
            Self::Evicted => f.write_str("it was evicted from the cluster"),
            Self::Replaced { incarnation } => write!(
                f,
                "a later process, incarnation {incarnation}, has its node identifier"
            ),
            Self::Twin => {
                f.write_str("another process with its node identifier and incarnation is there")
            }
            Self::Full => f.write_str("the cluster has as many members as it may have"),
            Self::OldFolder { node, incarnation } => write!(
                f,
                "the data folder of node {node:016x} is an old copy: it does not know of the start {incarnation} of \
                 the node, or how far that came. Empty the folder, have the node join as a new one, and evict {node:016x}"
            ),
            Self::Disk => f.write_str("the one that refuses cannot write to its disk"),
        }
    }
}

/// Why there is no connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// What was received is not what a node sends.
    Malformed,
    /// This side refuses the other.
    We(Refusal),
    /// The other side has the secret, and belongs to no cluster either.
    Waits(Waiting),
    /// The other side refuses this one. `proven`: it has the secret.
    They { refusal: Refusal, proven: bool },
}

impl Failure {
    /// Why this node takes part no more, if a member has refused it for good.
    pub(crate) fn why_shut_out(&self) -> Option<ShutOut> {
        let Self::They {
            refusal,
            proven: true,
        } = self
        else {
            return None;
        };
        match refusal {
            Refusal::Evicted => Some(ShutOut::Evicted),
            Refusal::Replaced { .. } | Refusal::Twin => Some(ShutOut::Replaced),
            Refusal::OldFolder { incarnation, .. } => Some(ShutOut::OldFolder {
                incarnation: *incarnation,
            }),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("what it sends is not the protocol of nodes"),
            Self::We(refusal) => write!(f, "refused by this node: {refusal}"),
            Self::Waits(_) => f.write_str("it is not a member of a cluster yet"),
            Self::They { refusal, .. } => write!(f, "refused this node: {refusal}"),
        }
    }
}

/// Why a node is not wanted in its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShutOut {
    /// It was evicted.
    Evicted,
    /// Another process with its identifier has taken its place.
    Replaced,
    /// Its data folder is an old copy: another member remembers this start of the node, or how far that came, and the
    /// folder does not.
    OldFolder {
        /// The start's incarnation.
        incarnation: u64,
    },
}

impl fmt::Display for ShutOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicted => f.write_str("it was evicted"),
            Self::Replaced => {
                f.write_str("another process with its data folder has taken its place")
            }
            Self::OldFolder { incarnation } => write!(
                f,
                "its data folder is an old copy, or was copied and runs elsewhere: another member remembers the start \
                 {incarnation} of this node, or how far that came, and the folder does not. What the node has \
                 acknowledged since then is not in it. Empty the folder to join as a new node, and evict this one. If \
                 all members were restored from backups, start each of them with --accept-folder once"
            ),
        }
    }
}
