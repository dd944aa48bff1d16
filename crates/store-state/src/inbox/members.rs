//! Inboxes that have shared subscriptions: those of the members of shared groups.
//!
//! Invariants: an inbox is here as long as it has at least one shared subscription. Since when it is away is not written, and
//! replicas need not agree on it: it only says when to propose something.

use std::collections::BTreeMap;

use mqtt_session::Timestamp;

/// By the number of an inbox, what it has of groups.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_inbox: BTreeMap<u64, Membership>,
}

/// What an inbox has of shared groups.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Membership {
    /// Shared subscriptions.
    shared: usize,
    /// When it was detached; `None`: it is attached, or was detached when the machine was loaded.
    pub(super) away_since: Option<Timestamp>,
}

impl Members {
    /// An inbox has one more.
    pub(super) fn add(&mut self, inbox: u64) {
        self.by_inbox.entry(inbox).or_default().shared += 1;
    }

    /// An inbox has one less.
    pub(super) fn remove(&mut self, inbox: u64) {
        if let Some(of) = self.by_inbox.get_mut(&inbox) {
            of.shared -= 1;
            if of.shared == 0 {
                self.by_inbox.remove(&inbox);
            }
        }
    }

    /// An inbox was detached.
    pub(super) fn went_away(&mut self, inbox: u64, now: Timestamp) {
        if let Some(of) = self.by_inbox.get_mut(&inbox) {
            of.away_since = Some(now);
        }
    }

    /// An inbox was attached.
    pub(super) fn came_back(&mut self, inbox: u64) {
        if let Some(of) = self.by_inbox.get_mut(&inbox) {
            of.away_since = None;
        }
    }

    /// What an inbox has of groups; `None`: nothing.
    pub(super) fn of(&self, inbox: u64) -> Option<Membership> {
        self.by_inbox.get(&inbox).copied()
    }

    /// Takes out the inboxes that `moves` selects.
    pub(super) fn split_off(&mut self, mut moves: impl FnMut(u64) -> bool) -> Self {
        let moved = self.by_inbox.extract_if(.., |inbox, _| moves(*inbox));
        Self {
            by_inbox: moved.collect(),
        }
    }

    /// The inboxes that have any.
    pub(super) fn inboxes(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_inbox.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_is_there_while_it_has_shared_subscriptions() {
        let mut members = Members::default();
        members.add(3);
        members.add(4);
        members.add(3);
        members.remove(3);
        assert!(members.inboxes().eq([3, 4]));
        members.remove(3);
        assert!(members.inboxes().eq([4]));
        members.remove(3);
        assert!(members.inboxes().eq([4]));
    }

    #[test]
    fn it_is_known_since_when_an_inbox_is_away() {
        let mut members = Members::default();
        members.add(3);
        let since = |members: &Members| members.of(3).and_then(|of| of.away_since);
        assert_eq!(since(&members), None);
        members.went_away(3, Timestamp(7));
        members.went_away(4, Timestamp(7));
        assert_eq!(since(&members), Some(Timestamp(7)));
        assert!(members.of(4).is_none());
        members.came_back(3);
        assert_eq!(since(&members), None);
    }
}
