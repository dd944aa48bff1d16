//! What a survey of the tables counts and finds.

use super::*;
use crate::{SlotRange, row};

/// Ann and Bob have two messages in common; Ann has one more, and one for which PUBREL is owed. A will that a
/// third one had no use for is published. Lea's session has ended, and left a message.
fn filled() -> Shard {
    let mut shard = Shard::new();
    shard.session("ann", "a");
    shard.sleeper("bob", "a");
    for payload in ["1", "2", "3"] {
        shard.publish("a", payload, QoS::ExactlyOnce);
    }
    shard.receipt("ann", 1, 1);
    shard.acknowledge("bob", 1, 1, &[1]);
    shard.subscribe("ann", 1, "b", QoS::AtLeastOnce);
    shard.publish("b", "4", QoS::AtLeastOnce);
    let origin = Origin {
        client: "pub".into(),
        incarnation: 1,
        packet_id: 1,
    };
    shard.apply(&publish(message("b", "5", QoS::ExactlyOnce), Some(origin)));
    shard.attach("eve", 1, false);
    let origin = Origin {
        client: "eve".into(),
        incarnation: 1,
        packet_id: 0,
    };
    shard.apply(&publish(
        message("w", "6", QoS::AtMostOnce),
        Some(origin.clone()),
    ));
    shard.apply(&InboxOp::Release {
        origin: origin.clone(),
    });
    shard.apply(&InboxOp::ReleaseFenced { origin, epoch: 7 });
    shard.session("lea", "$share/g/a");
    shard.apply(&InboxOp::Deliver {
        session: "lea".into(),
        items: vec![item("a", "7", QoS::AtLeastOnce, Some("$share/g/a"))],
        origin: None,
    });
    shard.attach("lea", 2, false);
    shard.apply(&InboxOp::Remove {
        session: "lea".into(),
        epoch: 2,
    });
    shard.checkpoint();
    shard
}

/// What is found when something is done to the tables.
fn found(damage: impl FnOnce(&mut TestTable)) -> Vec<String> {
    let mut table = filled().table;
    damage(&mut table);
    let survey = InboxMachine::survey(Slots::ALL, &table);
    assert_eq!(survey.found, survey.findings.len() as u64);
    survey.findings.into_iter().map(|of| of.what).collect()
}

/// The keys of Ann's and Bob's queues.
fn queues(table: &TestTable) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let keys = table.keys_of(b'Q');
    let inbox = |key: &[u8]| u64::from_be_bytes(key[3..11].try_into().unwrap());
    let keys = keys.into_iter().filter(|key| inbox(key) <= 2);
    keys.partition(|key| inbox(key) == 1)
}

#[test]
fn rows_are_counted_by_kind_and_the_fullest_inbox_is_named() {
    let survey = InboxMachine::survey(Slots::ALL, &filled().table);
    assert_eq!(survey.findings, []);
    let counted: Vec<_> = survey.rows.iter().map(|of| (of.kind, of.rows)).collect();
    let expected = [
        ("machine", 1),
        ("inboxes", 3),
        ("legacies", 1),
        ("shared messages", 2),
        ("reference counts", 2),
        ("queued messages", 7),
        ("retained messages owed", 0),
        ("origins", 0),
        ("filters owed to clients", 0),
        ("filters owed", 3),
        ("identifiers not released", 1),
        ("origins of the broker", 1),
        ("released origins", 0),
        ("loops with calls", 0),
        ("fences of publishers", 1),
    ];
    assert_eq!(counted, expected);
    assert!(
        survey
            .rows
            .iter()
            .all(|of| of.rows == 0 || of.bytes > of.rows)
    );
    let fullest: Vec<_> = survey
        .fullest
        .iter()
        .map(|of| (&*of.client, of.messages))
        .collect();
    assert_eq!(fullest, [("ann", 4), ("bob", 2), ("lea", 1)]);
}

#[test]
fn a_queue_that_is_not_what_its_inbox_says_is_found() {
    let gone = found(|table| {
        let (ann, _) = queues(table);
        table.rows.remove(&ann[0]);
    });
    assert_eq!(gone.len(), 2, "{gone:?}");
    assert!(gone[0].starts_with("it has 4 messages"), "{gone:?}");
    assert!(gone[1].starts_with("1 queued messages refer"), "{gone:?}");
    let beyond = found(|table| {
        let (ann, _) = queues(table);
        let mut key = ann[3].clone();
        key[18] = 99;
        table.rename(&ann[3], key);
    });
    assert_eq!(beyond, ["its sequence is not one of the queue's"]);
    let released = found(|table| {
        let (ann, _) = queues(table);
        let mut key = ann[0].clone();
        key[18] = 1;
        table.rename(&ann[0], key);
    });
    assert_eq!(released, ["it is queued and released"]);
    let elsewhere = found(|table| {
        let (ann, _) = queues(table);
        let mut key = ann[0].clone();
        key[1] ^= 1;
        table.rename(&ann[0], key);
    });
    assert_eq!(elsewhere, ["its slot is not that of its inbox"]);
}

#[test]
fn a_queue_without_an_inbox_is_found() {
    let found = found(|table| {
        table.rows.remove(&row::unseeded_key(b'I', "bob"));
    });
    let owed = "there is no such inbox";
    let queued = "there is no such inbox";
    assert_eq!(found, [queued, queued, owed]);
}

#[test]
fn a_legacy_that_is_no_queue_of_an_ended_session_is_found() {
    let key = row::unseeded_numbered_key(b'L', "lea", 4);
    let renamed = found(|table| table.rename(&key, row::unseeded_numbered_key(b'L', "lea", 9)));
    assert_eq!(renamed, ["its key has the number of another inbox"]);
    let of_a_session = found(|table| {
        let inbox = table.rows[&row::unseeded_key(b'I', "ann")].clone();
        table.rows.remove(&row::unseeded_key(b'I', "ann"));
        let key = row::unseeded_numbered_key(b'L', "ann", 1);
        table.rows.insert(key, inbox);
    });
    let owed = "there is no such subscription, or it is owed twice";
    assert_eq!(
        of_a_session,
        ["it is empty, or more than a queue", owed, owed]
    );
    let missing = found(|table| {
        table.rows.remove(&key);
    });
    assert_eq!(missing, ["there is no such inbox"]);
}

#[test]
fn a_shared_message_that_is_missing_is_found() {
    let found = found(|table| {
        let bodies = table.keys_of(b'B');
        table.rows.remove(&bodies[0]);
    });
    let expected = [
        "there is no such message",
        "the message it refers to is missing",
        "the message it refers to is missing",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_count_that_is_missing_or_wrong_is_found() {
    let missing = found(|table| {
        let counts = table.keys_of(b'C');
        table.rows.remove(&counts[0]);
    });
    assert_eq!(missing, ["2 queued messages refer to it, not 0"]);
    let wrong = found(|table| {
        let counts = table.keys_of(b'C');
        table.rows.insert(counts[1].clone(), row::encode(&3u32));
    });
    assert_eq!(wrong, ["2 queued messages refer to it, not 3"]);
}

#[test]
fn an_inbox_under_another_name_is_found() {
    let found = found(|table| {
        table.rename(&row::unseeded_key(b'I', "bob"), {
            let mut key = row::unseeded_key(b'I', "bob");
            key[3] = b'x';
            key
        })
    });
    assert_eq!(found[0], "its key has the slot of another name");
}

#[test]
fn rows_of_other_slots_and_unknown_kinds_are_found() {
    let table = filled().table;
    let half = Slots {
        range: SlotRange::part(0, 2),
        ..Slots::ALL
    };
    let finds = |slots, table: &TestTable, what: &str| {
        let survey = InboxMachine::survey(slots, table);
        survey.findings.iter().any(|of| of.what == what)
    };
    assert!(finds(half, &table, "its slot belongs to another shard"));
    let mut shard = Shard::new();
    shard.machine = InboxMachine::load(half, &shard.table).unwrap();
    shard.checkpoint();
    for (slots, is_other) in [(half, false), (Slots::ALL, true)] {
        let found = finds(slots, &shard.table, "it is of other slots");
        assert_eq!(found, is_other);
    }
    let unknown = found(|table| {
        for key in ["A", "Mx", "Z", "z"] {
            table.rows.insert(key.into(), Vec::new());
        }
    });
    let not_known = "rows of this kind are not known";
    assert_eq!(
        unknown,
        ["no machine has such a key", not_known, not_known, not_known]
    );
}

#[test]
fn a_missing_machine_is_found_and_an_empty_table_is_right() {
    let missing = found(|table| {
        table.rows.remove(b"M".as_slice());
    });
    assert_eq!(missing, ["it is missing, and there are others"]);
    assert_eq!(found(|table| table.rows.clear()), [""; 0]);
}

#[test]
fn a_row_that_cannot_be_read_is_found_with_its_key() {
    let table = filled().table;
    for key in table.rows.keys() {
        let mut damaged = table.clone();
        damaged.rows.get_mut(key).unwrap().pop();
        let survey = InboxMachine::survey(Slots::ALL, &damaged);
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let keys = || survey.findings.iter().map(|of| of.key.as_deref());
        assert!(keys().any(|of| of == Some(&digits)), "{survey:?}");
    }
}

#[test]
fn findings_beyond_a_limit_are_only_counted() {
    let mut table = filled().table;
    for number in 0..150u64 {
        table
            .rows
            .insert([&b"B"[..], &number.to_be_bytes()].concat(), Vec::new());
    }
    let survey = InboxMachine::survey(Slots::ALL, &table);
    assert_eq!(survey.findings.len(), 100);
    assert!(survey.found > 150, "{}", survey.found);
}
