//! Clients that are to be judged anew since the rules were read again.

use std::collections::BTreeSet;

use net_api::Key;

use crate::rights::rechecks::Rechecks;

/// Whom the loop has yet to look through.
#[derive(Debug, Default)]
pub(crate) struct Unjudged {
    /// At most the loop's clients.
    pub(super) clients: BTreeSet<Key>,
    /// Clients that wait for the answer to a SUBSCRIBE, which was judged before.
    pub(super) later: BTreeSet<Key>,
    /// The client whose subscriptions are looked through, and those that are left.
    pub(super) current: Option<(Key, Vec<Box<str>>)>,
    /// Rules have changed since all were looked through.
    pub(super) hurries: bool,
    pub(super) is_armed: bool,
    /// Users of databases that are looked up again.
    pub(crate) rechecks: Rechecks,
}

impl Unjudged {
    /// A client is gone.
    pub(crate) fn forget(&mut self, key: Key) {
        self.rechecks.remove(key);
        self.clients.remove(&key);
        self.later.remove(&key);
        self.current.take_if(|(of, _)| *of == key);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.later.is_empty() && self.current.is_none()
    }
}
