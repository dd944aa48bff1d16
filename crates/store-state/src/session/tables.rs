//! How the machine is written and read.
//!
//! Rows: `M`, the machine; `S`, a record by client; `W`, a will by client and epoch; `E`, an inbox that
//! is being removed, by client and epoch; `H`, a will that may be discarded, by client and epoch, without the will.
//! A will that neither its record nor an `H` claims to have is being published; so a will is written once, whatever
//! becomes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashing::HashMap;
use serde::{Deserialize, Serialize};

use super::StoredWill;
use super::by_epoch::ByEpoch;
use super::held::{HeldWill, HeldWills};
use super::machine::SessionMachine;
use super::record::{Owner, Record};
use super::records::Records;
use crate::touched::Touched;
use crate::{Changes, LoadError, NameHash, SlotRange, Slots, Table, row};

const MACHINE: &[u8] = b"M";
pub(super) const SESSION: u8 = b'S';
pub(super) const WILL: u8 = b'W';
pub(super) const ENDING: u8 = b'E';
pub(super) const HELD: u8 = b'H';

/// A row of `M`.
#[derive(Serialize, Deserialize)]
pub(super) struct MachineRow {
    pub(super) next_epoch: u64,
    nodes: BTreeMap<u64, u64>,
}

/// A row of `H`.
#[derive(Serialize, Deserialize)]
pub(super) struct HeldRow {
    /// Who had the connection.
    node: u64,
    incarnation: u64,
    /// When it is published, Unix time in ms.
    until: u64,
}

impl From<&HeldWill> for HeldRow {
    fn from(held: &HeldWill) -> Self {
        let Owner { node, incarnation } = held.owner;
        Self {
            node,
            incarnation,
            until: held.until,
        }
    }
}

/// A row of `S`. Behind it stands the user that the session belongs to, if it belongs to one.
#[derive(Serialize, Deserialize)]
pub(super) struct SessionRow {
    pub(super) epoch: u64,
    pub(super) incarnation: u64,
    /// The node and its incarnation.
    pub(super) owner: Option<(u64, u64)>,
    since: u64,
    pub(super) expiry: u32,
    pub(super) inbox: bool,
    /// Whether the will of this epoch is the record's.
    pub(super) will: bool,
}

impl From<&Record> for SessionRow {
    fn from(record: &Record) -> Self {
        Self {
            epoch: record.epoch,
            incarnation: record.incarnation,
            owner: record.owner.map(|owner| (owner.node, owner.incarnation)),
            since: record.since,
            expiry: record.expiry,
            inbox: record.inbox,
            will: record.will.is_some(),
        }
    }
}

impl SessionRow {
    fn into_record(self, user: Option<Box<str>>, will: Option<Box<StoredWill>>) -> Record {
        Record {
            epoch: self.epoch,
            incarnation: self.incarnation,
            owner: self
                .owner
                .map(|(node, incarnation)| Owner { node, incarnation }),
            since: self.since,
            expiry: self.expiry,
            inbox: self.inbox,
            user,
            will,
        }
    }
}

/// What differs from the tables.
#[derive(Debug)]
pub(super) struct Unsaved {
    hash: NameHash,
    machine: bool,
    /// A checkpoint has begun, and has yet to hand out sessions.
    collecting: bool,
    sessions: Touched<Arc<str>>,
    wills: Touched<(Arc<str>, u64)>,
    endings: Touched<(Arc<str>, u64)>,
    held: Touched<(Arc<str>, u64)>,
}

impl Unsaved {
    /// `machine`: whether the tables lack the machine's own row.
    fn new(hash: NameHash, machine: bool) -> Self {
        Self {
            hash,
            machine,
            collecting: false,
            sessions: Touched::new(),
            wills: Touched::new(),
            endings: Touched::new(),
            held: Touched::new(),
        }
    }

    pub(super) fn touch_machine(&mut self) {
        self.machine = true;
    }

    /// The record of a client is about to change: what a checkpoint has yet to hand out is the record as
    /// it is.
    pub(super) fn settle_session(&mut self, client: &str, records: &Records) {
        if self.collecting {
            let row = |client: &Arc<str>| session_row(self.hash, records, client);
            self.sessions.settle(client, row);
        }
    }

    /// `exists`: whether it does until now.
    pub(super) fn touch_session(&mut self, client: &Arc<str>, record: &Record, exists: bool) {
        let user = record.user.as_deref().map_or(0, str::len);
        let bytes = client.len() + user + size_of::<SessionRow>();
        self.sessions.touch(Arc::clone(client), exists, bytes);
    }

    /// A will is new, or gone.
    pub(super) fn touch_will(&mut self, client: &Arc<str>, epoch: u64, new: Option<&StoredWill>) {
        let bytes = client.len() + new.map_or(0, |will| will.message.body.heap_len());
        let key = (Arc::clone(client), epoch);
        self.wills.touch(key, new.is_none(), bytes);
    }

    /// `exists`: whether it does until now.
    pub(super) fn touch_ending(&mut self, client: &Arc<str>, epoch: u64, exists: bool) {
        let key = (Arc::clone(client), epoch);
        self.endings.touch(key, exists, client.len());
    }

    /// A will is held, or is not any more. `exists`: whether it was until now.
    pub(super) fn touch_held(&mut self, client: &Arc<str>, epoch: u64, exists: bool) {
        let key = (Arc::clone(client), epoch);
        let bytes = client.len() + size_of::<HeldRow>();
        self.held.touch(key, exists, bytes);
    }

    /// Takes out the rows of clients that belong to the child of a split. The machine's own row belongs to both halves.
    ///
    /// # Panics
    /// A checkpoint is under way.
    pub(super) fn split_off(&mut self, is_childs: impl Fn(&str) -> bool) -> Self {
        assert!(!self.collecting, "no split within a checkpoint");
        let of_epoch = |(client, _): &(Arc<str>, u64)| is_childs(client);
        Self {
            hash: self.hash,
            machine: self.machine,
            collecting: false,
            sessions: self.sessions.split_off(|client| is_childs(client)),
            wills: self.wills.split_off(of_epoch),
            endings: self.endings.split_off(of_epoch),
            held: self.held.split_off(of_epoch),
        }
    }

    pub(super) fn hash(&self) -> NameHash {
        self.hash
    }

    pub(super) fn saved(&mut self) {
        self.sessions.saved();
        self.wills.saved();
        self.endings.saved();
        self.held.saved();
    }

    pub(super) fn bytes(&self) -> usize {
        self.sessions.bytes() + self.wills.bytes() + self.endings.bytes() + self.held.bytes()
    }
}

fn session_row(hash: NameHash, records: &Records, client: &str) -> (Vec<u8>, Option<Vec<u8>>) {
    let value = records.get(client).map(|record| {
        let own = SessionRow::from(record);
        match &record.user {
            Some(user) => row::encode(&(own, user)),
            None => row::encode(&own),
        }
    });
    (row::key(SESSION, hash.slot_of(client), client), value)
}

/// Sessions in parts, since the end of a node touches very many at once; all else with the first part.
pub(super) fn collect_part(
    machine: &mut SessionMachine,
    rows: usize,
    changes: &mut Changes,
) -> bool {
    if !machine.unsaved.collecting {
        machine.unsaved.collecting = true;
        machine.unsaved.sessions.begin();
        collect_others(machine, changes);
    }
    let SessionMachine {
        records, unsaved, ..
    } = machine;
    let hash = unsaved.hash;
    let row = |client: &Arc<str>| session_row(hash, records, client);
    let is_all = unsaved.sessions.collect_part(rows, changes, row);
    unsaved.collecting = !is_all;
    is_all
}

fn collect_others(machine: &mut SessionMachine, changes: &mut Changes) {
    let SessionMachine {
        next_epoch,
        nodes,
        records,
        firing,
        held,
        ending,
        unsaved,
        left: _,
    } = machine;
    if std::mem::take(&mut unsaved.machine) {
        let row = MachineRow {
            next_epoch: *next_epoch,
            nodes: nodes.clone(),
        };
        changes.put(MACHINE.to_vec(), row::encode(&row));
    }
    let hash = unsaved.hash;
    unsaved.wills.collect(changes, |(client, epoch)| {
        let of_record = || {
            let record = records.get(client)?;
            record.will.as_ref().filter(|_| record.epoch == *epoch)
        };
        let of_held = || held.get(client, *epoch).map(|held| &held.will);
        let firing = firing.get(client, *epoch);
        let will = firing.or_else(of_record).or_else(of_held);
        let value = will.map(row::encode);
        let slot = hash.slot_of(client);
        (row::numbered_key(WILL, slot, client, *epoch), value)
    });
    unsaved.held.collect(changes, |(client, epoch)| {
        let held = held.get(client, *epoch);
        let value = held.map(|held| row::encode(&HeldRow::from(held)));
        let slot = hash.slot_of(client);
        (row::numbered_key(HELD, slot, client, *epoch), value)
    });
    unsaved.endings.collect(changes, |(client, epoch)| {
        let value = ending.get(client, *epoch).map(|()| row::encode(&()));
        let slot = hash.slot_of(client);
        (row::numbered_key(ENDING, slot, client, *epoch), value)
    });
}

pub(super) fn load(slots: Slots, table: &dyn Table) -> Result<SessionMachine, LoadError> {
    let Slots { range, hash, .. } = slots;
    let Some(value) = table.get(MACHINE)? else {
        return Ok(SessionMachine {
            next_epoch: 1,
            nodes: BTreeMap::new(),
            records: Records::default(),
            firing: ByEpoch::new(),
            held: HeldWills::new(),
            ending: ByEpoch::new(),
            unsaved: Unsaved::new(hash, true),
            left: None,
        });
    };
    let MachineRow { next_epoch, nodes } = row::decode(MACHINE, &value)?;
    let mut wills = load_wills(range, table)?;
    let records = load_records(range, table, &mut wills)?;
    let held = load_held(range, table, &mut wills)?;
    Ok(SessionMachine {
        next_epoch,
        nodes,
        records,
        firing: wills,
        held,
        ending: load_endings(range, table)?,
        unsaved: Unsaved::new(hash, false),
        left: None,
    })
}

/// The rows of a session shard all of whose replicas are lost, and that begins anew without sessions.
///
/// `next_epoch`: higher than any epoch that the lost shard can have given. `left`: clients with an inbox that has outlived
/// its session, each once, with the inbox's epoch, below `next_epoch`. The shard has these inboxes removed: they belong
/// to nobody whom the shard knows, and a client that comes back gets a new session.
pub fn begin_anew<'a>(
    hash: NameHash,
    next_epoch: u64,
    left: impl IntoIterator<Item = (&'a str, u64)>,
) -> Changes {
    let mut changes = Changes::default();
    let row = MachineRow {
        next_epoch,
        nodes: BTreeMap::new(),
    };
    changes.put(MACHINE.to_vec(), row::encode(&row));
    for (client, epoch) in left {
        let key = row::numbered_key(ENDING, hash.slot_of(client), client, epoch);
        changes.put(key, row::encode(&()));
    }
    changes
}

fn load_wills(range: SlotRange, table: &dyn Table) -> Result<ByEpoch<Box<StoredWill>>, LoadError> {
    let mut wills = ByEpoch::new();
    row::each(table, WILL, range, |key, value| {
        let (client, epoch) = row::name_and_number(key)?;
        wills.insert(client.into(), epoch, Box::new(row::decode(key, value)?));
        Ok(())
    })?;
    Ok(wills)
}

/// Takes the wills that records have out of `wills`.
fn load_records(
    range: SlotRange,
    table: &dyn Table,
    wills: &mut ByEpoch<Box<StoredWill>>,
) -> Result<Records, LoadError> {
    let mut records = HashMap::default();
    row::each(table, SESSION, range, |key, value| {
        let client = row::name(key)?;
        let (written, user): (SessionRow, _) = row::decode_with(key, value)?;
        let will = if written.will {
            let (_, will) = wills
                .remove(client, written.epoch)
                .ok_or_else(|| row::damaged(key, "its will is missing"))?;
            Some(will)
        } else {
            None
        };
        records.insert(client.into(), written.into_record(user, will));
        Ok(())
    })?;
    Ok(Records::from(records))
}

/// Takes the wills that are held out of `wills`.
fn load_held(
    range: SlotRange,
    table: &dyn Table,
    wills: &mut ByEpoch<Box<StoredWill>>,
) -> Result<HeldWills, LoadError> {
    let mut held = HeldWills::new();
    row::each(table, HELD, range, |key, value| {
        let (client, epoch) = row::name_and_number(key)?;
        let HeldRow {
            node,
            incarnation,
            until,
        } = row::decode(key, value)?;
        let (client, will) = wills
            .remove(client, epoch)
            .ok_or_else(|| row::damaged(key, "its will is missing"))?;
        let owner = Owner { node, incarnation };
        held.insert(client, epoch, HeldWill { will, owner, until });
        Ok(())
    })?;
    Ok(held)
}

fn load_endings(range: SlotRange, table: &dyn Table) -> Result<ByEpoch<()>, LoadError> {
    let mut endings = ByEpoch::new();
    row::each(table, ENDING, range, |key, value| {
        let (client, epoch) = row::name_and_number(key)?;
        row::decode::<()>(key, value)?;
        endings.insert(client.into(), epoch, ());
        Ok(())
    })?;
    Ok(endings)
}
