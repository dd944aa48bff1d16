//! Clients that are to be judged anew since the rules were read again.
//!
//! Invariants: a client is in one of the lists at most, or it is the one whose subscriptions are looked through; it may be
//! listed again while it is. A timer is armed while anybody is listed.

use std::collections::BTreeSet;
use std::mem;

use net_api::Key;

use super::rechecks::Rechecks;

/// Between two turns if only sessions that were resumed are looked through, in ms: what one client can have judged
/// by connecting again and again is a small part of the loop's time.
const PAUSE_MS: u64 = 20;

/// Whom the loop has yet to look through.
#[derive(Debug, Default)]
pub(super) struct Unjudged {
    /// At most the loop's clients.
    clients: BTreeSet<Key>,
    /// Clients that wait for the answer to a SUBSCRIBE, which was judged before.
    later: BTreeSet<Key>,
    /// The client whose subscriptions are looked through, and those that are left: at least one.
    current: Option<(Key, Vec<Box<str>>)>,
    /// Rules have changed since all were looked through.
    hurries: bool,
    pub(super) is_armed: bool,
    /// Users of databases that are looked up again.
    pub(super) rechecks: Rechecks,
}

impl Unjudged {
    /// The rules have changed: all are looked through from the beginning, without pauses.
    pub(super) fn add_all(&mut self, clients: impl IntoIterator<Item = Key>) {
        self.clients.extend(clients);
        self.later.clear();
        self.current = None;
        self.hurries = true;
    }

    pub(super) fn add(&mut self, client: Key) {
        self.clients.insert(client);
    }

    /// A client cannot be looked through in this turn.
    pub(super) fn put_off(&mut self, client: Key) {
        self.later.insert(client);
    }

    /// The subscriptions of a client are next.
    pub(super) fn look_through(&mut self, client: Key, filters: Vec<Box<str>>) {
        debug_assert!(
            self.current.is_none(),
            "the subscriptions of one client are looked through at a time"
        );
        self.current = (!filters.is_empty()).then_some((client, filters));
    }

    /// Takes some of the subscriptions of the client whose are looked through, at most so many.
    pub(super) fn next_filters(&mut self, most: usize) -> Option<(Key, Vec<Box<str>>)> {
        let (key, mut filters) = self.current.take()?;
        let rest = filters.len().saturating_sub(most);
        let part = filters.split_off(rest);
        if rest > 0 {
            self.current = Some((key, filters));
        }
        Some((key, part))
    }

    /// Takes the next client.
    pub(super) fn next_client(&mut self) -> Option<Key> {
        self.clients.pop_first()
    }

    /// All are looked through, but for those that were put off.
    pub(super) fn handle_all_judged(&mut self) {
        self.hurries = false;
        self.clients = mem::take(&mut self.later);
    }

    /// If a timer is to be armed now: in how many ms.
    pub(super) fn begin(&mut self) -> Option<u64> {
        let begins = !self.is_empty() && !mem::replace(&mut self.is_armed, true);
        begins.then_some(if self.hurries { 0 } else { PAUSE_MS })
    }

    /// A client is gone.
    pub(super) fn forget(&mut self, key: Key) {
        self.rechecks.remove(key);
        self.clients.remove(&key);
        self.later.remove(&key);
        self.current.take_if(|(of, _)| *of == key);
    }

    #[cfg(test)]
    pub(super) fn has_filters(&self) -> bool {
        self.current.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.later.is_empty() && self.current.is_none()
    }
}
