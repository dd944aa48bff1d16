//! The way to the stores of other nodes.

use bytes::Bytes;
use consensus::Network;
use tokio::sync::watch;

/// Carries messages between the stores of a cluster's nodes.
pub trait Peers: Network {
    /// Sends a message to the store of another node, which gets it by [`Store::received`]. In order; lost
    /// if there is no connection, or with it.
    ///
    /// [`Store::received`]: crate::Store::received
    fn send(&self, to: u64, message: Bytes);

    /// Whether another node understands what is said of loads.
    fn knows_loads(&self, _node: u64) -> bool {
        true
    }

    /// Whether another node understands what is said of shards that are split.
    fn knows_splits(&self, _node: u64) -> bool {
        true
    }

    /// Whether another node understands what is said of what replicas hold.
    fn knows_digests(&self, _node: u64) -> bool {
        true
    }

    /// Whether all other nodes are known to understand [`SessionName::Inbox`] and what [`ClientName::of`] makes of long
    /// identifiers. What a node cannot read it does not take into its log, so a node that has not been heard yet counts
    /// as one that does not. Asked when a connection has come up, and when the members are others.
    ///
    /// [`ClientName::of`]: store_state::inbox::ClientName::of
    /// [`SessionName::Inbox`]: store_state::inbox::SessionName::Inbox
    fn know_names(&self) -> bool {
        true
    }

    /// Whether the other nodes have confirmed that this node's data folder is not an old copy. Replicas begin then:
    /// what the folder lacks must not be agreed upon anew.
    fn admitted(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }
}
