//! The links to the brokers of other nodes, and what comes over them.
//!
//! Deliberately absent: what nodes say to each other, and what they do about it (`broker-core/src/peers`); types and
//! bytes of messages (`peer-protocol`); connections and membership (`cluster`, `clustered.rs`).

pub(crate) mod answerer;
pub(crate) mod dispatch;
#[cfg(test)]
mod tests;

use std::fmt;

use broker_core::Links;
use bytes::Bytes;
use peer_protocol::{Encode, PeerMessage, PublicationsFrame};
use route_exchange::NodeId;

/// What carries bytes to other nodes.
pub(crate) trait Carrier: Send + Sync + 'static {
    /// The version of the protocol that was agreed on with a node. `None`: there is no connection.
    fn version(&self, to: NodeId) -> Option<u16>;

    /// Queues bytes for a node, behind all that went before. False: there is no connection, and they are
    /// lost; they may also be lost later, when the connection breaks.
    fn send(&self, to: NodeId, bytes: Bytes) -> bool;

    /// The same of bytes that belong together: the calling thread may write them itself.
    fn send_at_once(&self, to: NodeId, bytes: Bytes) -> bool;

    /// Bytes that wait to be sent to a node.
    fn queued_bytes(&self, to: NodeId) -> usize;
}

/// The links to the brokers of other nodes.
pub(crate) struct PeerLinks(pub(crate) Box<dyn Carrier>);

impl fmt::Debug for PeerLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerLinks")
    }
}

impl PeerLinks {
    /// In the version of the link. What that cannot carry is lost, as if there were no connection.
    fn encode_and_send(
        &self,
        to: NodeId,
        message: impl Encode,
        send: impl FnOnce(Bytes) -> bool,
    ) -> bool {
        let Some(version) = self.0.version(to) else {
            return false;
        };
        match message.encode(version) {
            Ok(bytes) => send(bytes),
            Err(violation) => {
                tracing::error!(
                    to = format!("{to:016x}"),
                    error = %violation,
                    "a message cannot be sent to another node"
                );
                false
            }
        }
    }
}

impl Links for PeerLinks {
    fn send(&self, to: NodeId, message: PeerMessage<'_>) -> bool {
        self.encode_and_send(to, message, |bytes| self.0.send(to, bytes))
    }

    fn forward(&self, to: NodeId, frame: PublicationsFrame) -> bool {
        self.encode_and_send(to, frame, |bytes| self.0.send_at_once(to, bytes))
    }

    fn queued_bytes(&self, to: NodeId) -> usize {
        self.0.queued_bytes(to)
    }
}
