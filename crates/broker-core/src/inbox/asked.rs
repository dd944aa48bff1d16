//! What the inbox shards are asked for a client.

use mqtt_proto::PacketId;
use net_api::Key;

use super::catching_up::Round;
use super::numbers::{Epoch, Sequence};

/// A question that is not answered.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A PUBREC of a client is to be recorded.
    Receipt {
        key: Key,
        /// Of the message.
        sequence: Sequence,
    },
    /// A PUBREL of a client: shards are to forget its publication.
    Release {
        key: Key,
        packet_id: PacketId,
        /// Shards that have not answered.
        left: usize,
    },
    /// The inbox of a client has given what it had, if there was credit for all.
    Read {
        key: Key,
        /// Of the connection.
        epoch: Epoch,
        round: Round,
    },
    /// The inbox of a session that has ended is to be removed.
    Removal {
        client: Box<str>,
        /// The last one of the session.
        epoch: Epoch,
    },
}

impl Asked {
    /// One shard has answered, or has failed. Whether others are waited for.
    pub(crate) fn waits_for_others(&mut self, has_failed: bool) -> bool {
        match self {
            Self::Release { left, .. } if *left > 1 && !has_failed => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }
}
