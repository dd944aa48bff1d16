//! What the session shards are asked for wills.

use store_state::inbox::Origin;

use crate::clients::message::Done;
use crate::inbox::Epoch;

/// A question that is not answered.
#[derive(Debug)]
pub(crate) enum Asked {
    /// To forget a will that was published; its origin.
    Fired(Origin),
    /// To say again that a will is due.
    Again { client: Box<str>, epoch: Epoch },
    /// To say that a will of a client is due that is to be disconnected, for which a shutdown waits.
    Due { _done: Done },
}
