//! All rows of the session tables, and whether they agree.

use std::collections::HashSet;

use super::StoredWill;
use super::tables::{ENDING, HELD, HeldRow, MachineRow, SESSION, SessionRow, WILL};
use crate::survey::{ensure, ensure_slot};
use crate::{Slots, Survey, Table, row};

pub(super) fn survey(slots: Slots, table: &dyn Table) -> Survey {
    let mut survey = Survey::default();
    let mut next_epoch = u64::MAX;
    let mut wills = HashSet::new();
    survey.machine(table, |key, value| {
        next_epoch = row::decode::<MachineRow>(key, value)?.next_epoch;
        Ok(())
    });
    survey.each(table, WILL, "wills", |key, value| {
        let (client, epoch) = row::name_and_number(key)?;
        wills.insert((client.to_owned(), epoch));
        row::decode::<StoredWill>(key, value)?;
        ensure_slot(key, client, slots)?;
        ensure(epoch < next_epoch, key, "its epoch was never given")
    });
    survey.each(table, SESSION, "sessions", |key, value| {
        let client = row::name(key)?;
        let (record, _): (SessionRow, Option<Box<str>>) = row::decode_with(key, value)?;
        ensure_slot(key, client, slots)?;
        ensure(record.epoch < next_epoch, key, "its epoch was never given")?;
        ensure(
            record.incarnation <= record.epoch,
            key,
            "it began after its last connection",
        )?;
        ensure(
            record.owner.is_some() || record.expiry > 0,
            key,
            "it is over, and still there",
        )?;
        ensure(
            record.expiry == 0 || record.inbox,
            key,
            "it lasts, and has no inbox",
        )?;
        let will_is_there = || wills.contains(&(client.to_owned(), record.epoch));
        ensure(!record.will || will_is_there(), key, "its will is missing")
    });
    survey.each(table, HELD, "wills that may be discarded", |key, value| {
        let (client, epoch) = row::name_and_number(key)?;
        row::decode::<HeldRow>(key, value)?;
        ensure_slot(key, client, slots)?;
        let will_is_there = wills.contains(&(client.to_owned(), epoch));
        ensure(will_is_there, key, "its will is missing")
    });
    survey.each(table, ENDING, "inboxes to remove", |key, value| {
        let (client, epoch) = row::name_and_number(key)?;
        row::decode::<()>(key, value)?;
        ensure_slot(key, client, slots)?;
        ensure(epoch < next_epoch, key, "its epoch was never given")
    });
    survey.finish(table, vec![WILL, SESSION, HELD, ENDING]);
    survey
}
