//! What rules for retained messages would remove from a data folder that no broker uses.
//!
//! Invariants: nothing in the folder is changed; what stands in the log behind a table is applied in memory, as a broker does when it
//! starts.
//!
//! Deliberately absent: what expires; a split that only the log has, whose messages would count twice.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use consensus::{LogView, Mark};
use mqtt_session::Timestamp;
use store_state::api::ShardNumber;
use store_state::retain::{RetainMachine, RetainedAmount, RetainedEnd, RetainedRules};
use store_state::{Descriptor, Level, Machine, Retention, Slots};

use crate::kinds::command::Command;
use crate::kinds::group::group_of;
use crate::kinds::kind::Kind;
use crate::retention::retained::look::Look;
use crate::storage::folder::{FolderError, FolderView};
use crate::storage::layout::ShardLayout;
use crate::storage::map::ShardMap;
use crate::storage::tables::{ShardTable, TablesOptions};

/// What rules would remove of the messages of a data folder.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RetainedForecast {
    /// Retained messages.
    pub messages: RetainedAmount,
    /// Of these: older than their rule keeps them.
    pub too_old: RetainedAmount,
    /// Of the others: of a rule that has too many messages, or too many bytes.
    pub too_many: RetainedAmount,
    /// Messages that were retained at a level that did not keep since when; they count from when a rule is in force.
    pub of_unknown_age: RetainedAmount,
}

/// Looks at all retained messages of a data folder, which is locked meanwhile: no broker can start on it. Takes the memory that
/// the messages take in a broker.
///
/// # Errors
/// A broker uses the folder; it is no data folder, or of a newer format; or it cannot be read, or is damaged.
pub fn forecast_retained(
    folder: &Path,
    rules: &RetainedRules,
    now: Timestamp,
) -> Result<RetainedForecast, FolderError> {
    let view = FolderView::open(folder)?;
    let retention = Arc::new(Retention {
        retained: rules.clone(),
        ..Retention::default()
    });
    let mut look = Look::new(retention, now, &[]);
    let mut forecast = RetainedForecast::default();
    for machine in machines(&view)? {
        let mut work = usize::MAX;
        machine.look(None, &mut work, |message| {
            let end = look.handle_message(&message);
            let count = |of: &mut RetainedAmount, counts: bool| of.0 += u64::from(counts);
            count(&mut forecast.messages, true);
            count(&mut forecast.of_unknown_age, message.counts_from.is_none());
            count(&mut forecast.too_old, end == Some(RetainedEnd::Age));
            ControlFlow::Continue(())
        });
    }
    forecast.too_many = look.surplus_messages();
    Ok(forecast)
}

/// What the shards hold that were ever used.
fn machines(view: &FolderView) -> Result<Vec<RetainMachine>, FolderError> {
    let mut machines = Vec::new();
    let store = view.store(RetainMachine::NAME, None)?;
    let map = |store: &PathBuf| {
        let map = ShardMap::read(store, view.name_hash());
        map.map_err(|reason| FolderError::io(store, reason))
    };
    let map = store.as_ref().map(map).transpose()?.flatten();
    if let (Some(store), Some(map)) = (store, map) {
        let unusable = |reason: String| FolderError::io(&store, io::Error::other(reason));
        let scratch = tempfile::tempdir();
        let scratch = scratch.map_err(|reason| FolderError::io(&std::env::temp_dir(), reason))?;
        let names = scratch.path().join("log");
        fs::create_dir(&names).map_err(|reason| FolderError::io(&names, reason))?;
        let log = LogView::open(&view.log(), &names);
        let log = log.map_err(|error| unusable(error.to_string()))?;
        let layout = ShardLayout::new::<RetainMachine>(map, &log.group_ids());
        for number in layout.numbers() {
            let links = scratch.path().join(number.to_string());
            let options = TablesOptions::of::<RetainMachine>();
            let table = ShardTable::view(&store, number.into(), &links, options);
            let slots = Slots {
                range: layout.range(number, map),
                hash: map.hash(),
                level: view.level()?,
            };
            if let Some(table) = table.map_err(|error| unusable(error.to_string()))? {
                machines.push(read_shard(&table, (slots, number), &log).map_err(unusable)?);
            }
        }
    }
    Ok(machines)
}

/// What a shard holds by its table and by its part of the log.
fn read_shard(
    table: &ShardTable,
    (mut slots, number): (Slots, ShardNumber),
    log: &LogView,
) -> Result<RetainMachine, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    if let Some(own) = Descriptor::of_table(table).map_err(|e| text(&e))? {
        slots.range = own.range;
    }
    if let Some(own) = Level::of_table(table).map_err(|e| text(&e))? {
        slots.level = own;
    }
    let mut machine = RetainMachine::load(slots, table).map_err(|e| text(&e))?;
    let mark = table.mark().map_err(|e| text(&e))?;
    let mark = mark.map(|bytes| Mark::decode(&bytes)).transpose();
    let covered = mark.map_err(|e| text(&e))?.and_then(|mark| mark.index());
    let group = group_of::<RetainMachine>(number);
    let span = log.span(group).map_err(|e| text(&e))?;
    let mut failed = None;
    let read = log.commands(group, span, |index, command: &Command| {
        if covered.is_some_and(|covered| index <= covered) {
            return;
        }
        match command {
            Command::Raise(_, level) => machine.raise(*level),
            Command::Retain(batch) => {
                for request in &batch.requests {
                    let applied = machine.apply(&batch.header, &request.op, table, &mut ());
                    failed = applied
                        .err()
                        .map(|error| error.to_string())
                        .or(failed.take());
                }
            }
            _ => {}
        }
    });
    read.map_err(|e| text(&e))?;
    failed.map_or(Ok(machine), Err)
}
