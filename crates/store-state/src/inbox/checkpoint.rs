//! The machine in the tables.

use std::collections::BTreeMap;

use super::attach::runs;
use super::calls::Calls;
use super::ending::UnderWay;
use super::fences::Fences;
use super::filters::Filters;
use super::inbox::{Inbox, is_shared};
use super::inboxes::Inboxes;
use super::machine::InboxMachine;
use super::matching::Matching;
use super::members::Members;
use super::name::Naming;
use super::origins::Origins;
use super::owed::OwedMessages;
use super::stock::Stock;
use super::tables::{
    BROKERS, CALLS, FENCE, FilterNumber, INBOX, InboxRow, LEGACY, MACHINE, MachineRow, ORIGINS,
    OWED, PAGE, PENDING_FILTER, PENDING_OF_CLIENT, PageRow, PendingKey, RELEASED, page_in,
};
use crate::{Changes, Level, LoadError, SlotRange, Slots, Table, row};

/// What stands behind the machine's row at the level of builds for tests.
const TRIAL: u8 = 1;

/// The machine's row, and `recount_below` behind it.
fn own_row(level: Level, value: &[u8]) -> Result<(MachineRow, Option<u64>), LoadError> {
    if level.is_trial()
        && let Ok((own, Some((below, TRIAL)))) =
            row::decode_with::<MachineRow, (u64, u8)>(MACHINE, value)
    {
        return Ok((own, Some(below)));
    }
    row::decode_with(MACHINE, value)
}

/// A machine without inboxes.
fn empty(Slots { range, hash, level }: Slots) -> InboxMachine {
    let naming = Naming { hash, level };
    InboxMachine {
        naming,
        range,
        nodes: BTreeMap::new(),
        next_inbox: 1,
        next_body: 1,
        inboxes: Inboxes::new(naming),
        matching: Matching::new(),
        filters: Filters::default(),
        members: Members::default(),
        origins: Origins::new(naming),
        fences: Fences::new(naming),
        owed: OwedMessages::new(naming),
        calls: Calls::default(),
        stock: Stock::new(level),
        attached: 0,
        under_way: UnderWay::default(),
        recorded: Vec::new(),
    }
}

impl InboxMachine {
    /// Reads everything but queues and bodies.
    pub(super) fn from_tables(slots: Slots, table: &dyn Table) -> Result<Self, LoadError> {
        let range = slots.range;
        let mut machine = empty(slots);
        let Some(value) = table.get(MACHINE)? else {
            return row::each(table, INBOX, range, |_, _| {
                Err(row::damaged(
                    MACHINE,
                    "it is missing, and there are inboxes",
                ))
            })
            .map(|()| machine);
        };
        let (own, recount_below) = own_row(machine.naming.level, &value)?;
        // A row of before a split, of which this is a half: rows of the other half are not read, and nothing is asked
        // of this one that concerns their slots.
        if !own.range.covers(range) {
            let what = format!("it is of {:?}, not of {range:?}", own.range);
            return Err(row::damaged(MACHINE, &what));
        }
        machine.nodes = own.nodes.into_iter().collect();
        machine.next_inbox = own.next_inbox;
        machine.next_body = own.next_body;
        let bodies = &mut machine.stock.bodies;
        bodies.load_bound(recount_below.unwrap_or_default());
        if own.range != range {
            bodies.load_bound(own.next_body);
        }
        machine.recorded = value;
        if let Some(value) = table.get(CALLS)? {
            machine.calls.load(row::decode(CALLS, &value)?);
        }
        row::each(table, INBOX, range, |key, value| {
            let row: InboxRow = row::decode(key, value)?;
            row.check_queue(key)?;
            machine.load_inbox(row::name(key)?, row);
            Ok(())
        })?;
        row::each(table, LEGACY, range, |key, value| {
            let (client, _) = row::name_and_number(key)?;
            let row: InboxRow = row::decode(key, value)?;
            row.check_queue(key)?;
            machine.load_legacy(client, row);
            Ok(())
        })?;
        row::each(table, ORIGINS, SlotRange::ALL, |key, value| {
            let entries = row::decode(key, value)?;
            machine.origins.load_superseded(row::name(key)?, entries);
            Ok(())
        })?;
        row::each(table, PAGE, SlotRange::ALL, |key, value| {
            let (publisher, incarnation, _) = page_in(key)?;
            let page: PageRow = row::decode(key, value)?;
            machine.origins.load_page(publisher, incarnation, &page);
            Ok(())
        })?;
        row::each(table, BROKERS, SlotRange::ALL, |key, value| {
            let (publisher, incarnation) = row::name_and_number(key)?;
            let parts = row::decode(key, value)?;
            machine
                .origins
                .load_of_broker(publisher, incarnation, parts);
            Ok(())
        })?;
        row::each(table, FENCE, SlotRange::ALL, |key, value| {
            let fence = row::decode(key, value)?;
            machine.fences.load(row::name(key)?, fence);
            Ok(())
        })?;
        row::each(table, OWED, range, |key, value| {
            let client = row::name(key)?;
            let inbox = machine.inboxes.id_of(client);
            let owed = row::decode(key, value)?;
            machine
                .owed
                .load_superseded(key, (client, inbox), FilterNumber(0), owed);
            Ok(())
        })?;
        row::each(table, PENDING_OF_CLIENT, range, |key, value| {
            let (client, number) = row::name_and_number(key)?;
            let inbox = machine.inboxes.id_of(client);
            let (number, owed) = (FilterNumber(number), row::decode(key, value)?);
            machine
                .owed
                .load_of_client(key, (client, inbox), number, owed);
            Ok(())
        })?;
        row::each(table, PENDING_FILTER, range, |key, value| {
            let place = PendingKey::from_bytes(key)
                .ok_or_else(|| row::damaged(key, "the key is of another length"))?;
            machine.owed.load(place, row::decode(key, value)?);
            Ok(())
        })?;
        row::each(table, RELEASED, SlotRange::ALL, |key, value| {
            let released = row::decode(key, value)?;
            machine
                .origins
                .load_superseded_released(row::name(key)?, released);
            Ok(())
        })?;
        Ok(machine)
    }

    fn load_inbox(&mut self, client: &str, row: InboxRow) {
        let mut inbox = Inbox::load(client, self.naming.hash.slot_of(client), row);
        inbox.attached = inbox.attached.filter(|&place| runs(&self.nodes, place));
        inbox.lingers &= inbox.is_attached();
        self.attached += usize::from(inbox.is_attached());
        self.stock.load(&mut inbox);
        for subscription in &inbox.subscriptions {
            self.stock.filter_bytes += subscription.filter.len();
            if is_shared(&subscription.filter) {
                self.members.add(inbox.number);
            } else {
                self.matching.subscribe(inbox.number, subscription);
                self.filters
                    .load(&subscription.filter, !inbox.is_attached());
            }
        }
        self.inboxes.insert(inbox);
    }

    fn load_legacy(&mut self, client: &str, row: InboxRow) {
        let mut legacy = Box::new(Inbox::load_legacy(
            client,
            self.naming.hash.slot_of(client),
            row,
        ));
        self.stock.load(&mut legacy);
        self.inboxes.legacies.insert(legacy.number, legacy);
    }

    /// What is owed, inboxes and removals in parts, since one message can touch all inboxes; all else with the
    /// first.
    pub(super) fn collect_changes(&mut self, rows: usize, changes: &mut Changes) -> bool {
        if self.stock.begin(changes) {
            debug_assert!(
                self.under_way.is_nothing(),
                "no checkpoint begins between two parts of an operation"
            );
            self.origins.collect(changes);
            self.fences.collect(changes);
            self.owed.begin();
            let own = MachineRow {
                next_inbox: self.next_inbox,
                next_body: self.next_body,
                nodes: self.nodes.iter().map(|(&node, &of)| (node, of)).collect(),
                range: self.range,
            };
            let own = match self.stock.bodies.recount_below() {
                below if self.naming.level.is_trial() => row::encode(&(own, below, TRIAL)),
                0 => row::encode(&own),
                below => row::encode(&(own, below)),
            };
            if own != self.recorded {
                changes.put(MACHINE.to_vec(), own.clone());
                self.recorded = own;
            }
            if let Some(calls) = self.calls.take_changed() {
                changes.put(CALLS.to_vec(), calls);
            }
        }
        self.owed.collect_part(rows, changes)
            && self.stock.collect_part(rows, &mut self.inboxes, changes)
    }
}
