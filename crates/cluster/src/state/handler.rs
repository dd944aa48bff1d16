//! What a cluster tells its user, and asks of it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::members::list::Members;
use crate::protocol::channel::{Channel, Source};
use crate::protocol::frame::Frame;
use crate::protocol::refusal::ShutOut;
use crate::state::peers::Peers;

/// What [`Handler::welcome`] may tell, in bytes.
pub const WELCOME_LIMIT: usize = 1024 * 1024;

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

    /// What to tell a node that joins; at most [1 MiB](WELCOME_LIMIT).
    fn welcome(&self) -> Bytes;

    /// What a node is told that joins, and a member each time it is started, in the version of the protocol that was agreed on with
    /// it. A few bytes; those of a version before 8 are told nothing.
    fn note(&self, version: u16) -> Bytes;

    /// A member that this node has dialled at its start has said this, in the version that was agreed on with it; empty: nothing.
    /// Called before [`Cluster::start`](crate::Cluster::start) returns, once for each of them, and later when members are asked
    /// again.
    fn noted(&self, version: u16, note: &[u8]);

    /// This node has joined, and was told this. Called once in a node's life, before
    /// [`Cluster::start`](crate::Cluster::start) returns; the bytes are kept.
    ///
    /// # Errors
    /// The bytes make no sense; the node does not join.
    fn welcomed(&self, welcome: &Bytes) -> Result<(), String>;
}

/// Where the answer to a request goes. Without an answer the caller is told so.
pub struct Reply {
    peers: Arc<Peers>,
    to: u64,
    channel: Channel,
    /// The caller's number of the call, until it is answered.
    call: Option<u64>,
}

impl Reply {
    pub(crate) fn new(peers: Arc<Peers>, to: u64, channel: Channel, call: u64) -> Self {
        Self {
            peers,
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
        self.peers.send(self.to, self.channel, frame)
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.peers
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
