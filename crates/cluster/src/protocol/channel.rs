//! The connections to each peer.

use serde::{Deserialize, Serialize};

const MIB: usize = 1024 * 1024;

/// One of the connections to each peer. What is sent on one never waits for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Channel {
    /// Small and urgent: consensus.
    Raft,
    /// Requests to stores, routes, messages. Its connections tell who can be reached.
    Data,
    /// Snapshots.
    Bulk,
}

impl Channel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Raft, Self::Data, Self::Bulk];

    /// How many bytes may wait to be sent; with more, the connection is given up.
    ///
    /// Limit: what waits for a node, on one channel | 16 MiB Raft, 64 MiB Data, 128 MiB Bulk | the connection is
    /// given up and dialled again
    #[must_use]
    pub const fn queue_limit(self) -> usize {
        match self {
            Self::Raft => 16 * MIB,
            Self::Data => 64 * MIB,
            Self::Bulk => 128 * MIB,
        }
    }

    /// Its name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raft => "raft",
            Self::Data => "data",
            Self::Bulk => "bulk",
        }
    }
}

/// Where bytes have come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// The node.
    pub node: u64,
    /// Which of its connections.
    pub channel: Channel,
    /// The version of the protocol that was agreed on for that connection.
    pub version: u16,
}
