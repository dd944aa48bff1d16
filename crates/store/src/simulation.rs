//! What simulations look at.

use std::fmt::Write as _;

use mqtt_session::Timestamp;
use store_state::api::{ShardNumber, StoreId};
use store_state::control::ControlMachine;
use store_state::inbox::{InboxMachine, Queued};
use store_state::retain::{PageBudget, RetainMachine};
use store_state::session::SessionMachine;
use store_state::{Descriptor, Level, Table};

/// What a replica holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replica {
    /// The store.
    pub store: StoreId,
    /// The shard.
    pub shard: ShardNumber,
    /// The index of the last entry that is applied.
    pub applied: u64,
    /// What it is responsible for.
    pub descriptor: Descriptor,
    /// Its level.
    pub level: Level,
    /// A child of it has no tables yet, or it has none itself.
    pub is_seeding: bool,
    /// What clients could see of it, as text.
    pub content: String,
    /// Wills that are due and not recorded as published yet, and those that may be.
    pub unfinished: usize,
}

/// A machine that can tell what it holds.
pub(crate) trait Describe {
    fn describe(&mut self, table: &dyn Table) -> String;

    fn unfinished(&self) -> usize {
        0
    }
}

impl Describe for SessionMachine {
    fn unfinished(&self) -> usize {
        let counts = self.counts();
        counts.firing + counts.held
    }

    fn describe(&mut self, _: &dyn Table) -> String {
        let mut clients = Vec::new();
        self.for_each_known(|client| {
            clients.push((client.to_owned(), self.find(client)));
        });
        clients.sort();
        format!("{:?} {clients:?}", self.counts())
    }
}

impl Describe for ControlMachine {
    fn describe(&mut self, _: &dyn Table) -> String {
        format!("{:?} {:?}", self.records(), self.audit_head())
    }
}

impl Describe for InboxMachine {
    fn describe(&mut self, table: &dyn Table) -> String {
        let mut text = format!("{:?}", self.counts());
        let mut left = self.counts().inboxes;
        for inbox in 0.. {
            if left == 0 {
                break;
            }
            let Some(next) = self.next_sequence(inbox) else {
                continue;
            };
            left -= 1;
            let mut items = Vec::new();
            let read = self.page(inbox, 0, usize::MAX, usize::MAX, table, &mut items);
            let shown: Vec<_> = items.iter().map(shown).collect();
            // Writing to a text does not fail.
            let _ = write!(text, "; {inbox}: {next} {read:?} {shown:?}");
        }
        text
    }
}

fn shown((sequence, queued): &(u64, Queued)) -> (u64, &[u8]) {
    match queued {
        Queued::Message(item) => (*sequence, item.message.body.payload()),
        Queued::Released => (*sequence, b"released"),
    }
}

impl Describe for RetainMachine {
    fn describe(&mut self, _: &dyn Table) -> String {
        let mut budget = PageBudget::UNLIMITED;
        let (messages, _) = self.page("#", None, &mut budget, Timestamp(0));
        let body = |message: &std::sync::Arc<mqtt_session::ApplicationMessage>| {
            let body = &message.body;
            (body.topic().to_owned(), body.payload().to_vec())
        };
        let mut bodies: Vec<_> = messages.iter().map(body).collect();
        bodies.sort();
        format!("{:?} {bodies:?}", self.size())
    }
}
