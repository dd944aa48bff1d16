//! Inboxes that have shared subscriptions: those of the members of shared groups.
//!
//! Invariant: an inbox is here as long as it has at least one shared subscription.

use std::collections::BTreeMap;

/// By the number of an inbox, how many shared subscriptions it has.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_inbox: BTreeMap<u64, usize>,
}

impl Members {
    /// An inbox has one more.
    pub(super) fn add(&mut self, inbox: u64) {
        *self.by_inbox.entry(inbox).or_default() += 1;
    }

    /// An inbox has one less.
    pub(super) fn remove(&mut self, inbox: u64) {
        if let Some(shared) = self.by_inbox.get_mut(&inbox) {
            *shared -= 1;
            if *shared == 0 {
                self.by_inbox.remove(&inbox);
            }
        }
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
}
