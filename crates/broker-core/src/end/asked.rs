//! What the session shards are asked when connections end.

use net_api::ConnectionId;

/// A question that is not answered: the end of a connection is to be recorded. A shutdown waits for it.
#[derive(Debug)]
pub(crate) struct Disconnect {
    /// A connection whose client has sent DISCONNECT, and which is closed when that is recorded.
    pub(super) closes: Option<ConnectionId>,
}
