//! What inboxes are asked when rules have changed.

use net_api::Key;

/// A question that is not answered: a client is to be unsubscribed from filters.
#[derive(Debug)]
pub(crate) struct Revoke {
    pub(super) key: Key,
    pub(super) filters: Vec<Box<str>>,
}
