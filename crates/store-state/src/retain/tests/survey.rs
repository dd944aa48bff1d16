//! What a survey of the tables counts and finds.

use super::driver::{Shard, set, set_from, will};
use crate::retain::RetainMachine;
use crate::test_table::TestTable;
use crate::{Machine, NameHash, SlotRange, Slots, row};

fn filled() -> TestTable {
    let mut shard = Shard::new();
    shard.ask(&set("a", b"1", 0));
    shard.ask(&will("b", b"1", 7));
    shard.ask(&set_from("b", b"2", "c", 1));
    shard.checkpoint();
    shard.table
}

#[test]
fn messages_are_counted() {
    let survey = RetainMachine::survey(Slots::ALL, &filled());
    assert_eq!(survey.findings, []);
    let counted: Vec<_> = survey.rows.iter().map(|of| (of.kind, of.rows)).collect();
    assert_eq!(
        counted,
        [
            ("machine", 1),
            ("retained messages", 2),
            ("wills", 1),
            ("fences", 1)
        ]
    );
}

#[test]
fn a_message_under_another_topic_or_in_another_shard_is_found() {
    let mut table = filled();
    table.rename(&row::unseeded_key(b'R', "a"), row::unseeded_key(b'R', "c"));
    let survey = RetainMachine::survey(Slots::ALL, &table);
    let found: Vec<_> = survey.findings.iter().map(|of| &*of.what).collect();
    assert_eq!(found, ["its message is of another topic, or empty"]);
    let slot = NameHash::default().slot_of("a");
    let range = SlotRange {
        first: slot,
        last: slot,
    };
    let slots = Slots {
        range,
        ..Slots::ALL
    };
    let survey = RetainMachine::survey(slots, &filled());
    let found: Vec<_> = survey.findings.iter().map(|of| &*of.what).collect();
    assert_eq!(found, ["its slot belongs to another shard"; 3]);
}
