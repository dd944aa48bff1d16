//! What the directory of clients is to be told at the end of the turn.

use peer_protocol::Registration;

/// What the directory is to be told at the end of the turn.
#[derive(Debug, Default)]
pub(crate) struct Registering {
    pub(super) new: Vec<(u64, Registration)>,
    pub(super) gone: Vec<Registration>,
}
