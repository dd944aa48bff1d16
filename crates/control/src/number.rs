//! What is counted, and how nodes are named.

use serde::{Deserialize, Serialize};

/// How many operations have changed something; of a record, the last one that has changed it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
pub struct Revision(pub u64);

/// A change as a node numbers it, so that one that is asked for again is done once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ChangeId {
    /// The node.
    pub node: Node,
    /// Its process.
    pub incarnation: Incarnation,
    /// The how-many-th of that process.
    pub count: Count,
}

/// A node, as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Node(pub u64);

/// Which process of a node it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// The how-many-th change a process has asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Count(pub u64);
