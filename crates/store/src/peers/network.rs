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

    /// Whether all other nodes understand [`SessionName::Inbox`] and what [`ClientName::of`] makes of long identifiers,
    /// as far as they are known: those that have had a connection to this node. Asked when one has come up.
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
