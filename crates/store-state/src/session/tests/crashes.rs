//! What the tables hold, and what is made of it after a crash.

use super::driver::{Connect, Shard, fired, gone, holding, left, lost};
use crate::session::{SessionMachine, SessionOp};
use crate::{LoadError, Machine, NameHash, SlotRange, Slots};

#[test]
fn what_came_and_went_between_checkpoints_is_not_written() {
    let mut shard = Shard::new();
    assert_eq!(shard.checkpoint(), 1, "the machine");
    assert_eq!(shard.checkpoint(), 0);
    shard.claimed(0, Connect("c", 60).will("w", 5));
    shard.told(1, lost("c", 1, 0));
    shard.told(2, fired("c", 1));
    shard.told(2, gone("c", 1));
    assert!(shard.machine.unsaved_bytes() > 0);
    assert_eq!(shard.checkpoint(), 1, "the next epoch");
    assert_eq!(shard.machine.unsaved_bytes(), 0);
    assert_eq!(shard.table.rows.len(), 1);
    shard.restart();
    assert_eq!(shard.claimed(3, Connect("c", 60).op()).epoch, 2);
}

#[test]
fn a_will_is_written_once() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).will("w", 5));
    assert_eq!(shard.checkpoint(), 3, "machine, session, will");
    shard.told(1, lost("c", 1, 60));
    assert_eq!(shard.checkpoint(), 1, "session");
    shard.told(10, SessionOp::Due);
    assert_eq!(shard.checkpoint(), 1, "session");
    shard.restart();
    assert_eq!(shard.outstanding(), ["fire c 1 w"]);
    shard.told(11, fired("c", 1));
    assert_eq!(shard.checkpoint(), 1, "no will");
    assert_eq!(shard.table.rows_of(b'W'), 0);
}

#[test]
fn what_is_owed_is_told_again_after_a_start() {
    let mut shard = Shard::new();
    for client in ["a", "b"] {
        let epoch = shard.claimed(0, Connect(client, 60).will("w", 0)).epoch;
        shard.checkpoint();
        shard.told(1, lost(client, epoch, 0));
        shard.checkpoint();
        shard.restart();
    }
    let all = ["fire a 1 w", "fire b 2 w", "ended a 1", "ended b 2"];
    assert_eq!(shard.outstanding(), all);
    shard.told(2, fired("a", 1));
    shard.told(2, gone("b", 2));
    shard.checkpoint();
    shard.restart();
    assert_eq!(shard.outstanding(), ["fire b 2 w", "ended a 1"]);
}

#[test]
fn a_will_that_is_pending_is_not_told_as_due() {
    let mut shard = Shard::new();
    shard.claimed(0, Connect("c", 60).will("w", 5));
    shard.checkpoint();
    shard.restart();
    assert!(shard.outstanding().is_empty());
    assert!(shard.told(1, left("c", 1, 60)).is_empty());
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'W'), 0);
}

#[test]
fn a_machine_reads_the_slots_of_its_shard_only() {
    let mut shard = Shard::new();
    for client in ["a", "b"] {
        let epoch = shard.claimed(0, Connect(client, 60).will("w", 0)).epoch;
        shard.told(1, lost(client, epoch, 0));
        shard.claimed(1, Connect(client, 60).op());
    }
    shard.checkpoint();
    let slot = NameHash::default().slot_of("a");
    let range = SlotRange {
        first: slot,
        last: slot,
    };
    let slots = Slots {
        range,
        ..Slots::ALL
    };
    shard.machine = SessionMachine::load(slots, &shard.table).unwrap();
    assert!(shard.machine.known("a") && !shard.machine.known("b"));
    assert_eq!(shard.outstanding(), ["fire a 1 w", "ended a 1"]);
}

#[test]
fn damaged_tables_are_refused() {
    let mut shard = Shard::new();
    let epoch = shard.claimed(0, Connect("a", 60).will("w", 0)).epoch;
    shard.told(1, lost("a", epoch, 0));
    shard.claimed(0, Connect("c", 60).will("w", 5));
    shard.claimed(0, Connect("d", 60).will("w", 0));
    shard.claimed(0, holding(Connect("d", 60).from((2, 1), false, None)));
    shard.checkpoint();
    for (key, value) in shard.table.rows.clone() {
        for cut in 0..value.len() {
            let mut table = shard.table.clone();
            table.rows.insert(key.clone(), value[..cut].to_vec());
            let loaded = SessionMachine::load(Slots::ALL, &table);
            assert!(
                matches!(loaded, Err(LoadError::Damaged { .. })),
                "{key:?} cut at {cut}"
            );
        }
        let mut table = shard.table.clone();
        table.rows.insert(key, vec![9; 4]);
        let loaded = SessionMachine::load(Slots::ALL, &table);
        let (found, known) = (9, 1);
        assert_eq!(loaded.unwrap_err(), LoadError::Format { found, known });
    }
    let mut table = shard.table.clone();
    table.rows.retain(|key, _| key[0] != b'W');
    let loaded = SessionMachine::load(Slots::ALL, &table);
    assert!(matches!(loaded, Err(LoadError::Damaged { what, .. }) if what.contains("will")));
}
