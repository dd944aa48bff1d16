//! What the inbox shards are asked for sessions that linger.

use mqtt_session::Delivery;
use net_api::Key;

/// A question that is not answered.
#[derive(Debug)]
pub(crate) enum Asked {
    /// To keep a message that came by the routes of a connection that is over.
    Late(Box<Late>),
    /// To detach the inbox of an entry that has lingered long enough.
    End(Key),
}

/// A message for a client that is not connected, on its way to its inbox.
#[derive(Debug)]
pub(crate) struct Late {
    pub(super) client: Box<str>,
    pub(super) holder: Key,
    pub(super) delivery: Delivery,
    pub(super) bytes: usize,
}
