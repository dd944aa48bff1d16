//! A replica of a shard with its tables, which is given entries as a log has them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use serde::de::DeserializeOwned;
use store_state::api::StoreId;
use store_state::inbox::{
    InboxDrop, InboxMachine, InboxOutlet, InboxReply, Item, StoredSubscription,
};
use store_state::retain::RetainMachine;
use store_state::session::{SessionEnd, SessionMachine, SessionOutlet, SessionReply, StoredWill};
use store_state::{Batch, Changes, Level, Machine, Slots, Table, TableError};
use xxhash_rust::xxh3::xxh3_64;

use crate::generate::{Attached, World};

/// The first byte of an entry that has the limits of classes behind it.
const WITH_CLASSES: u8 = 3;

#[derive(Default)]
struct Rows(BTreeMap<Vec<u8>, Vec<u8>>);

impl Table for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        Ok(self.0.get(key).cloned())
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TableError> {
        for (key, value) in self.0.range(from.to_vec()..to.to_vec()) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Nobody who listens.
struct Nobody;

impl InboxOutlet for Nobody {
    fn queued(&mut self, _: u64, _: u64, _: &Item) {}
    fn dropped(&mut self, _: InboxDrop<'_>) {}
    fn filter(&mut self, _: &str, _: bool, _: bool) {}
    fn member(&mut self, _: &str, _: &str, _: Option<&StoredSubscription>) {}
    fn left_behind(&mut self, _: &str, _: u64) {}
}

impl SessionOutlet for Nobody {
    fn fire(&mut self, _: &str, _: u64, _: &StoredWill) {}
    fn ended(&mut self, _: &str, _: u64, _: Option<SessionEnd>) {}
    fn known(&mut self, _: &str, _: bool) {}
}

enum Kind {
    Session(Box<SessionMachine>),
    Inbox(Box<InboxMachine>),
    Retain(Box<RetainMachine>),
}

pub(crate) struct Replica {
    slots: Slots,
    store: StoreId,
    machine: Kind,
    rows: Rows,
}

fn slots(level: Level) -> Slots {
    Slots {
        level,
        ..Slots::ALL
    }
}

fn batch<O: DeserializeOwned>(entry: &[u8]) -> Batch<O> {
    let (mut batch, rest) = postcard::take_from_bytes::<Batch<O>>(&entry[2..]).unwrap();
    if entry[0] == WITH_CLASSES {
        batch.header.limits.classes = postcard::from_bytes(rest).unwrap();
    } else {
        assert!(rest.is_empty(), "nothing follows a batch");
    }
    batch
}

impl Replica {
    pub(crate) fn new(level: Level, store: StoreId) -> Self {
        let rows = Rows::default();
        let slots = slots(level);
        Self {
            machine: load(slots, store, &rows),
            slots,
            store,
            rows,
        }
    }

    pub(crate) fn apply(&mut self, entry: &[u8]) -> Option<Attached> {
        let rows = &self.rows;
        let mut attached = None;
        match &mut self.machine {
            Kind::Session(machine) => {
                let batch = batch(entry);
                for request in &batch.requests {
                    machine
                        .apply(&batch.header, &request.op, rows, &mut Nobody)
                        .unwrap();
                }
            }
            Kind::Inbox(machine) => {
                let batch = batch(entry);
                for request in &batch.requests {
                    let reply = machine.apply(&batch.header, &request.op, rows, &mut Nobody);
                    if let InboxReply::Attached(of) | InboxReply::AttachedAgain(of) = reply.unwrap()
                    {
                        attached = Some(Attached {
                            inbox: of.inbox,
                            incarnation: of.incarnation,
                            slot: 0,
                        });
                    }
                }
            }
            Kind::Retain(machine) => {
                let batch = batch(entry);
                for request in &batch.requests {
                    machine
                        .apply(&batch.header, &request.op, rows, &mut ())
                        .unwrap();
                }
            }
        }
        attached
    }

    /// Draws an entry, and applies it.
    pub(crate) fn draw(&mut self, world: &mut World) -> Vec<u8> {
        match self.store {
            StoreId::Session => {
                let op = world.session_op();
                let entry = world.entry(0, vec![op]);
                let batch = batch(&entry);
                let Kind::Session(machine) = &mut self.machine else {
                    unreachable!("the machine is that of the store");
                };
                for request in &batch.requests {
                    let reply = machine.apply(&batch.header, &request.op, &self.rows, &mut Nobody);
                    if let SessionReply::Claimed(claimed) = reply.unwrap() {
                        world.claimed(claimed.epoch);
                    }
                }
                entry
            }
            StoreId::Inbox => {
                let count = 1 + world.draw.below(3);
                let mut ops = Vec::new();
                let mut attaching = None;
                for _ in 0..count {
                    let (op, attaches) = world.inbox();
                    let client = match &op {
                        crate::mirror::Inbox::Attach(name, ..)
                        | crate::mirror::Inbox::AttachAgain(name, ..)
                        | crate::mirror::Inbox::AttachAs(name, ..) => name.0.clone(),
                        _ => Vec::new(),
                    };
                    ops.push(op);
                    if attaches {
                        attaching = Some(client);
                        // What follows in the batch counts on its answer.
                        break;
                    }
                }
                let entry = world.entry(1, ops);
                if let (Some(mut attached), Some(client)) = (self.apply(&entry), attaching) {
                    let client = String::from_utf8(client).unwrap();
                    attached.slot = self.slots.hash.slot_of(&client);
                    world.attached(attached);
                }
                entry
            }
            StoreId::Retain => {
                let op = world.retain();
                let entry = world.entry(2, vec![op]);
                self.apply(&entry);
                entry
            }
            StoreId::Control => unreachable!("the corpora are of the stores of names"),
        }
    }

    /// Writes a checkpoint, and goes on with what the tables hold.
    pub(crate) fn restart(&mut self) {
        let mut changes = Changes::default();
        match &mut self.machine {
            Kind::Session(machine) => checkpoint(&mut **machine, &mut changes),
            Kind::Inbox(machine) => checkpoint(&mut **machine, &mut changes),
            Kind::Retain(machine) => checkpoint(&mut **machine, &mut changes),
        }
        for (key, value) in changes.entries {
            match value {
                Some(value) => self.rows.0.insert(key, value),
                None => self.rows.0.remove(&key),
            };
        }
        self.machine = load(self.slots, self.store, &self.rows);
    }

    /// Of all rows.
    pub(crate) fn digest(&self) -> u64 {
        xxh3_64(self.rows().as_bytes())
    }

    /// All rows, each in a line.
    pub(crate) fn rows(&self) -> String {
        let mut rows = String::new();
        let hex =
            |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        for (key, value) in &self.rows.0 {
            writeln!(rows, "{} {}", hex(key), hex(value)).unwrap();
        }
        rows
    }
}

fn checkpoint<M: Machine>(machine: &mut M, changes: &mut Changes) {
    machine.collect(changes);
    machine.saved();
}

fn load(slots: Slots, store: StoreId, rows: &Rows) -> Kind {
    match store {
        StoreId::Session => Kind::Session(Box::new(SessionMachine::load(slots, rows).unwrap())),
        StoreId::Inbox => Kind::Inbox(Box::new(InboxMachine::load(slots, rows).unwrap())),
        StoreId::Retain => Kind::Retain(Box::new(RetainMachine::load(slots, rows).unwrap())),
        StoreId::Control => unreachable!("the corpora are of the stores of names"),
    }
}
