//! What carries messages to other nodes.

use std::fmt::Debug;

use peer_protocol::{PeerMessage, PublicationsFrame};
use route_exchange::NodeId;

/// The links to the other nodes. All calls return at once.
pub trait Links: Debug + Send + Sync + 'static {
    /// Queues a message for a node, behind all that went before. False: there is no connection, or its version of the
    /// protocol does not have the message, and it is lost; it may also be lost after this, with the connection.
    fn send(&self, to: NodeId, message: PeerMessage<'_>) -> bool;

    /// The same of messages of clients, which their loop has encoded.
    fn forward(&self, to: NodeId, frame: PublicationsFrame) -> bool;

    /// Bytes that wait to be sent to a node.
    fn queued_bytes(&self, to: NodeId) -> usize;
}
