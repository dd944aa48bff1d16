//! Messages about client identifiers that are taken over from other nodes (P5).

use route_exchange::NodeId;
use serde::{Deserialize, Serialize};

use crate::DirectoryMessage;

/// What nodes say to each other about takeovers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Takeover {
    /// Close older connections of a client.
    Close {
        /// The sender's, for the answer.
        correlation_id: u64,
        /// Which ones.
        what: Older,
    },
    /// There is no such connection any more.
    Closed {
        /// That of [`Takeover::Close`].
        correlation_id: u64,
        /// If the session goes on: publications of QoS 2 that came on it, and are not released. All who are
        /// connected have them.
        unreleased: Vec<u16>,
    },
    /// About clients that the session store does not know.
    Directory(DirectoryMessage),
}

/// The connections that are to be closed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Older {
    /// The client identifier.
    pub client: Box<str>,
    /// Those of lower epochs; 0: the store does not know the later one.
    pub epoch: u64,
    /// Those of lower numbers, if one of the two has no epoch.
    pub number: u64,
    /// The session goes on: what came on the connection has to be settled. If not, nothing that is remembered of it
    /// is needed any more.
    pub resumes: bool,
}

/// Who is to hear that connections are closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    /// The node.
    pub node: NodeId,
    /// That of [`Takeover::Close`].
    pub correlation_id: u64,
}
