//! What the tables hold, and what is made of it after a crash.

use super::driver::{Shard, set};
use crate::retain::{RetainMachine, RetainOp};
use crate::{LoadError, Machine, NameHash, SlotRange, Slots};

#[test]
fn only_net_changes_are_written() {
    let mut shard = Shard::new();
    assert_eq!(shard.checkpoint(), 1, "the machine");
    assert_eq!(shard.checkpoint(), 0);
    shard.ask(&set("came/and/went", b"1", 0));
    shard.ask(&set("came/and/went", b"", 0));
    shard.ask(&set("never/there", b"", 0));
    for n in 0..9 {
        shard.ask(&set("kept", &[n], 0));
    }
    assert!(shard.machine.unsaved_bytes() > 0);
    assert_eq!(shard.checkpoint(), 1);
    assert_eq!(shard.machine.unsaved_bytes(), 0);
    shard.ask(&set("kept", b"", 0));
    assert_eq!(shard.checkpoint(), 1);
    assert_eq!(shard.table.rows.len(), 1);
}

#[test]
fn what_expires_leaves_the_tables() {
    let mut shard = Shard::new();
    shard.ask(&set("a", b"1", 100));
    shard.checkpoint();
    shard.restart();
    assert_eq!(shard.machine.next_deadline(), Some(100));
    shard.header.now_ms = 100;
    shard.ask(&RetainOp::Expire);
    shard.checkpoint();
    assert_eq!(shard.table.rows_of(b'R'), 0);
}

#[test]
fn a_message_comes_back_as_it_was() {
    let mut shard = Shard::new();
    shard.ask(&set("a", b"1", 100));
    let before = shard.machine.get("a", shard.now()).unwrap().clone();
    let size = shard.machine.size();
    shard.checkpoint();
    shard.restart();
    let after = shard.machine.get("a", shard.now()).unwrap();
    assert_eq!(after.body, before.body);
    assert_eq!(
        (after.qos, after.retain, after.expires_at),
        (before.qos, before.retain, before.expires_at)
    );
    assert_eq!(shard.machine.size(), size);
}

#[test]
fn a_machine_reads_the_slots_of_its_shard_only() {
    let mut shard = Shard::new();
    shard.ask(&set("a", b"1", 0));
    shard.ask(&set("b", b"1", 0));
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
    shard.machine = RetainMachine::load(slots, &shard.table).unwrap();
    assert_eq!(shard.found("#"), [("a".to_owned(), b"1".to_vec())]);
}

#[test]
fn damaged_tables_are_refused() {
    let mut shard = Shard::new();
    shard.ask(&set("a", b"1", 0));
    shard.checkpoint();
    for (key, value) in shard.table.rows.clone() {
        for cut in 0..value.len() {
            let mut table = shard.table.clone();
            table.rows.insert(key.clone(), value[..cut].to_vec());
            let loaded = RetainMachine::load(Slots::ALL, &table);
            assert!(
                matches!(loaded, Err(LoadError::Damaged { .. })),
                "{key:?} cut at {cut}"
            );
        }
        let mut table = shard.table.clone();
        table.rows.insert(key, vec![9; 4]);
        let (found, known) = (9, 1);
        let loaded = RetainMachine::load(Slots::ALL, &table);
        assert_eq!(loaded.unwrap_err(), LoadError::Format { found, known });
    }
}
