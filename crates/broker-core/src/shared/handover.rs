//! Undelivered messages of shared groups, and how far their handover is.

use std::collections::{BTreeSet, VecDeque};

use store_state::api::Store;
use store_state::inbox::{Done, InboxOp, Origin};

/// A legacy, by whose session it was and the number that the inbox had.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Legacy {
    pub(super) client: Box<str>,
    pub(super) inbox: u64,
}

impl Legacy {
    /// Who publishes its messages; as with wills, no client is called so.
    pub(super) fn publisher(&self) -> String {
        let Self { client, inbox } = self;
        format!("\0left {inbox}/{client}")
    }

    /// What makes a message of it happen once.
    pub(super) fn origin(&self, store: &impl Store, sequence: u64) -> Origin {
        Origin {
            client: store.client_name(&self.publisher()),
            incarnation: sequence,
            packet_id: 0,
        }
    }

    /// Others have these messages of it, and the next ones are asked for.
    pub(super) fn hand_over(&self, store: &impl Store, done: Vec<u64>) -> InboxOp {
        InboxOp::HandOver {
            client: store.client_name(&self.client),
            inbox: self.inbox,
            done: Done(done),
        }
    }
}

/// The legacies that a loop hands over.
#[derive(Debug, Default)]
pub(crate) struct Legacies {
    /// All of them.
    pub(super) known: BTreeSet<Legacy>,
    /// Those that wait for others to be done.
    pub(super) waiting: VecDeque<Legacy>,
    /// Those of which something could not be handed over.
    pub(super) stuck: Vec<Legacy>,
}

impl Legacies {
    pub(super) fn under_way(&self) -> usize {
        self.known.len() - self.waiting.len() - self.stuck.len()
    }
}

/// A page of a legacy that is handed over.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(super) legacy: Legacy,
    /// Messages on the page; 0: it has not come.
    pub(super) messages: usize,
    /// The sequences of those that others have.
    pub(super) done: Vec<u64>,
    /// Inboxes that were asked to take one and have not answered.
    pub(super) asked: usize,
}
