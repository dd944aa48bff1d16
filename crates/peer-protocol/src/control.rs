//! Messages that are neither routes nor messages of clients.

use route_exchange::ShardNumber;
use serde::{Deserialize, Serialize};

/// Copies in one [`Control::Settled`] at most: as many as its limit of bytes has room for, however high the numbers are.
pub const SETTLED_AT_ONCE: usize = 100_000;

/// What is neither routes nor messages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Control {
    /// Tell me when all live nodes know the routes of this inbox shard, which you lead.
    Await {
        /// The shard.
        shard: ShardNumber,
        /// The sender's, for the answer.
        correlation_id: u64,
    },
    /// They do.
    Known {
        /// That of [`Control::Await`].
        correlation_id: u64,
    },
    /// These messages for groups are acknowledged, dropped with a record, or with somebody else.
    Settled {
        /// The receiver's numbers for them; at most [`SETTLED_AT_ONCE`].
        copies: Vec<u64>,
    },
    /// A publisher of yours is held back by one more subscriber here, until [`Control::Release`] or the end of
    /// this connection.
    Hold {
        /// See [`Forwarded::publisher`](crate::Forwarded::publisher).
        publisher: u64,
    },
    /// By one less.
    Release {
        /// See [`Forwarded::publisher`](crate::Forwarded::publisher).
        publisher: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Encode as _, PeerMessage};

    #[test]
    fn copies_that_are_settled_at_once_fit_a_message() {
        let copies = vec![u64::MAX; SETTLED_AT_ONCE];
        let message = PeerMessage::from(Control::Settled { copies });
        assert!(message.encode(1).is_ok());
    }
}
