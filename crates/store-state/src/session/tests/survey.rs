//! What a survey of the tables counts and finds.

use super::driver::{Connect, Shard, holding};
use crate::session::SessionMachine;
use crate::test_table::TestTable;
use crate::{Machine, Slots, row};

/// Ann with a will, Bob, whose inbox is being removed, and Cid, whose will may be discarded.
fn filled() -> TestTable {
    let mut shard = Shard::new();
    shard.ask(1, Connect("ann", 60).will("w", 10));
    shard.ask(1, Connect("bob", 60).op());
    shard.ask(2, Connect("bob", 0).clean());
    shard.ask(1, Connect("cid", 60).will("w", 0));
    shard.ask(2, holding(Connect("cid", 60).from((2, 1), false, None)));
    shard.checkpoint();
    shard.table
}

fn found(damage: impl FnOnce(&mut TestTable)) -> Vec<String> {
    let mut table = filled();
    damage(&mut table);
    let survey = SessionMachine::survey(Slots::ALL, &table);
    survey.findings.into_iter().map(|of| of.what).collect()
}

#[test]
fn rows_are_counted_by_kind() {
    let survey = SessionMachine::survey(Slots::ALL, &filled());
    assert_eq!(survey.findings, []);
    let counted: Vec<_> = survey.rows.iter().map(|of| (of.kind, of.rows)).collect();
    let expected = [
        ("machine", 1),
        ("wills", 2),
        ("sessions", 3),
        ("wills that may be discarded", 1),
        ("inboxes to remove", 1),
    ];
    assert_eq!(counted, expected);
}

#[test]
fn rows_that_do_not_agree_are_found() {
    let will = found(|table| {
        let wills = table.keys_of(b'W');
        table.rows.remove(&wills[0]);
    });
    assert_eq!(will, ["its will is missing"]);
    let held = found(|table| {
        let wills = table.keys_of(b'W');
        table.rows.remove(&wills[1]);
    });
    assert_eq!(held, ["its will is missing"]);
    let machine = found(|table| {
        table.rows.remove(b"M".as_slice());
    });
    assert_eq!(machine, ["it is missing, and there are others"]);
    let name = found(|table| {
        let mut key = row::unseeded_key(b'S', "bob");
        key[5] = b'x';
        table.rename(&row::unseeded_key(b'S', "bob"), key);
    });
    assert_eq!(name, ["its key has the slot of another name"]);
    let epoch = found(|table| {
        let wills = table.keys_of(b'W');
        let value = table.rows[&wills[0]].clone();
        table
            .rows
            .insert(row::unseeded_numbered_key(b'W', "ann", 99), value);
    });
    assert_eq!(epoch, ["its epoch was never given"]);
}

#[test]
fn a_row_that_cannot_be_read_is_found_with_its_key() {
    let table = filled();
    for key in table.rows.keys() {
        let mut damaged = table.clone();
        damaged.rows.insert(key.clone(), vec![1, 0xFF]);
        let survey = SessionMachine::survey(Slots::ALL, &damaged);
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(survey.findings[0].key, Some(digits));
    }
}
