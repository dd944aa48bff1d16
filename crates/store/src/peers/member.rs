//! The members of the cluster, as the store sees them.

use std::collections::BTreeSet;
use std::fmt;

use store_state::api::{ShardNumber, StoreId};

/// A member of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its identifier.
    pub node: u64,
    /// Its latest start.
    pub incarnation: u64,
    /// It can be reached.
    pub is_up: bool,
    /// Its process has ended: its host says so.
    pub has_ended: bool,
    /// What may be asked of it.
    pub role: Role,
    /// When it was last heard, if it cannot be reached; by [`Listener::clock_ms`](crate::Listener::clock_ms).
    pub last_heard_ms: u64,
}

/// What a member does for shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It has replicas, and leads.
    Serves,
    /// It keeps the replicas that it has, gets no more, and leads nothing if another voter can.
    Rests,
    /// It is to have no replicas.
    Leaves,
}

/// Nodes as people see them.
pub(crate) struct Names<'a>(pub(crate) &'a BTreeSet<u64>);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.0.iter().enumerate() {
            let before = if index == 0 { "" } else { " " };
            write!(f, "{before}{node:016x}")?;
        }
        Ok(())
    }
}

/// A store and one of its shards.
pub(crate) type ShardId = (StoreId, ShardNumber);
