//! What a cluster tells its user, and asks of it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::frame::Frame;
use crate::members::Members;
use crate::shared::Shared;

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

/// The user of a cluster. All methods are called on the cluster's own thread, and must not block it; only
/// [`Handler::welcomed`] may, for there are no links yet.
pub trait Handler: Send + Sync + 'static {
    /// Bytes that a node has sent with [`Cluster::send`](crate::Cluster::send).
    fn message(&self, from: Source, bytes: Bytes);

    /// A request that a node has made with [`Cluster::call`](crate::Cluster::call). The answer may be given
    /// later and from any thread.
    fn request(&self, from: Source, bytes: Bytes, reply: Reply);

    /// Our connection to a node is up, until [`Handler::disconnected`]. What was sent before may be lost.
    /// `session` is greater than that of any earlier connection of this process.
    fn connected(&self, to: u64, channel: Channel, session: u64);

    /// Our connection to a node is lost.
    fn disconnected(&self, to: u64, channel: Channel);

    /// A node's connection to us came or went.
    fn incoming(&self, from: u64, channel: Channel, up: bool);

    /// The list of members has changed. Called once with the first list, before any connection.
    fn members(&self, members: &Arc<Members>);

    /// This node is not wanted in the cluster any more. Its links are refused from now on; it should stop.
    fn shut_out(&self, reason: ShutOut);

    /// What to tell a node that joins; at most [1 MiB](crate::Cluster::WELCOME_LIMIT).
    fn welcome(&self) -> Bytes;

    /// This node has joined, and was told this. Called once in a node's life, before
    /// [`Cluster::start`](crate::Cluster::start) returns; the bytes are kept.
    ///
    /// # Errors
    /// The bytes make no sense; the node does not join.
    fn welcomed(&self, welcome: &Bytes) -> Result<(), String>;
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
                 acknowledged since then is not in it. Empty the folder to join as a new node, and evict this one"
            ),
        }
    }
}

/// Where the answer to a request goes. Without an answer the caller is told so.
pub struct Reply {
    shared: Arc<Shared>,
    to: u64,
    channel: Channel,
    /// The caller's number of the call, until it is answered.
    call: Option<u64>,
}

impl Reply {
    pub(crate) fn new(shared: Arc<Shared>, to: u64, channel: Channel, call: u64) -> Self {
        Self {
            shared,
            to,
            channel,
            call: Some(call),
        }
    }

    /// Answers. `false`: there is no connection to the caller, it will not hear.
    pub fn send(mut self, answer: Bytes) -> bool {
        let Some(call) = self.call.take() else {
            return false;
        };
        let frame = Frame::answer(call, answer);
        self.shared.send(self.to, self.channel, frame)
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.shared
                .send(self.to, self.channel, Frame::no_answer(call));
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("to", &self.to)
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}
