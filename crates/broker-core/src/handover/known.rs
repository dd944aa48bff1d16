//! The legacies that a loop hands over, and in which order.
//!
//! Invariant: of one client, one legacy is handed over at a time, in the order in which they were told: so messages of one
//! publisher that were queued in one session stay in their order.

use std::collections::{BTreeMap, VecDeque};

use store_state::api::Store;
use store_state::inbox::{Done, InboxOp, Origin};

use crate::inbox::{InboxNumber, Sequence};

/// A legacy, by whose session has left it and its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Legacy {
    pub(super) client: Box<str>,
    pub(super) inbox: InboxNumber,
}

impl Legacy {
    /// Who publishes its messages; as with wills, no client is called so.
    pub(super) fn publisher(&self) -> String {
        let Self { client, inbox } = self;
        let InboxNumber(inbox) = inbox;
        format!("\0left {inbox}/{client}")
    }

    /// What makes a message of it happen once.
    pub(super) fn origin(&self, store: &impl Store, Sequence(sequence): Sequence) -> Origin {
        Origin {
            client: store.client_name(&self.publisher()),
            incarnation: sequence,
            packet_id: 0,
        }
    }

    /// Others have these messages of it, and the next ones are asked for.
    pub(super) fn hand_over(&self, store: &impl Store, done: Vec<Sequence>) -> InboxOp {
        InboxOp::HandOver {
            client: store.client_name(&self.client),
            inbox: self.inbox.0,
            done: Done(done.into_iter().map(|Sequence(of)| of).collect()),
        }
    }
}

/// The legacies that are known, and how far each is.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// All of them, by client. The first of each is under way, or ready, or stuck; the others wait for it.
    by_client: BTreeMap<Box<str>, VecDeque<InboxNumber>>,
    /// How many these are.
    known: usize,
    /// Those that wait for legacies of other clients to be done.
    ready: VecDeque<Legacy>,
    /// Those of which something could not be handed over.
    stuck: Vec<Legacy>,
}

impl Known {
    /// How many are known.
    pub(super) fn known(&self) -> usize {
        self.known
    }

    pub(super) fn under_way(&self) -> usize {
        self.by_client.len() - self.ready.len() - self.stuck.len()
    }

    /// There is a legacy. False: it is known.
    pub(super) fn handle_told(&mut self, legacy: Legacy) -> bool {
        let of_client = self.by_client.entry(legacy.client.clone()).or_default();
        if of_client.contains(&legacy.inbox) {
            return false;
        }
        of_client.push_back(legacy.inbox);
        self.known += 1;
        if of_client.len() == 1 {
            self.ready.push_back(legacy);
        }
        true
    }

    /// The next one to be handed over.
    pub(super) fn begin(&mut self) -> Option<Legacy> {
        self.ready.pop_front()
    }

    /// Nothing is left of one that was under way.
    pub(super) fn handle_done(&mut self, legacy: &Legacy) {
        let of_client = self.by_client.get_mut(&legacy.client);
        let of_client = of_client.expect("what was under way is known");
        assert_eq!(of_client.pop_front(), Some(legacy.inbox));
        self.known -= 1;
        match of_client.front() {
            Some(&inbox) => self.ready.push_back(Legacy {
                client: legacy.client.clone(),
                inbox,
            }),
            None => {
                self.by_client.remove(&legacy.client);
            }
        }
    }

    /// Something of one that was under way could not be handed over. True: it is the only such one.
    pub(super) fn handle_stuck(&mut self, legacy: Legacy) -> bool {
        self.stuck.push(legacy);
        self.stuck.len() == 1
    }

    /// Those that are stuck are ready again, but those of the clients that `is_given_up` selects, of which nothing is known any
    /// more.
    pub(super) fn retry(&mut self, is_given_up: impl Fn(&str) -> bool) {
        for legacy in std::mem::take(&mut self.stuck) {
            if is_given_up(&legacy.client) {
                let of_client = self.by_client.remove(&legacy.client);
                self.known -= of_client.map_or(0, |of_client| of_client.len());
            } else {
                self.ready.push_back(legacy);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legacy(client: &str, inbox: u64) -> Legacy {
        Legacy {
            client: client.into(),
            inbox: InboxNumber(inbox),
        }
    }

    #[test]
    fn legacies_of_a_client_are_handed_over_one_after_the_other() {
        let mut legacies = Known::default();
        for (client, inbox) in [("ann", 7), ("ann", 9), ("bob", 3), ("ann", 2)] {
            assert!(legacies.handle_told(legacy(client, inbox)));
        }
        assert!(!legacies.handle_told(legacy("ann", 9)));
        assert_eq!((legacies.known(), legacies.under_way()), (4, 0));
        let begun = [legacies.begin(), legacies.begin(), legacies.begin()];
        assert_eq!(
            begun,
            [Some(legacy("ann", 7)), Some(legacy("bob", 3)), None]
        );
        assert_eq!(legacies.under_way(), 2);
        assert!(legacies.handle_stuck(legacy("ann", 7)));
        assert_eq!(legacies.begin(), None, "the others of ann wait for it");
        legacies.handle_done(&legacy("bob", 3));
        legacies.retry(|_| false);
        for inbox in [7, 9, 2] {
            assert_eq!(legacies.begin(), Some(legacy("ann", inbox)));
            legacies.handle_done(&legacy("ann", inbox));
        }
        assert_eq!((legacies.known(), legacies.under_way()), (0, 0));
        assert_eq!(legacies.begin(), None);
    }

    #[test]
    fn what_is_given_up_is_not_known_any_more() {
        let mut legacies = Known::default();
        for (client, inbox) in [("ann", 7), ("ann", 9), ("bob", 3)] {
            legacies.handle_told(legacy(client, inbox));
        }
        for _ in 0..2 {
            let begun = legacies.begin().expect("one of each client");
            legacies.handle_stuck(begun);
        }
        legacies.retry(|client| client == "ann");
        assert_eq!((legacies.known(), legacies.under_way()), (1, 0));
        assert_eq!(legacies.begin(), Some(legacy("bob", 3)));
        assert!(legacies.handle_told(legacy("ann", 9)), "it is told again");
    }
}
