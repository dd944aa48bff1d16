//! What reaches the tables, and what does not.

use super::*;
use crate::inbox::tables::{InboxRow, agreed as agreed_part};
use crate::{LoadError, SlotRange, row};

#[test]
fn what_is_acknowledged_soon_never_reaches_the_tables() {
    let mut shard = Shard::new();
    shard.session("ann", "a");
    shard.session("bob", "a");
    shard.checkpoint();
    for _ in 0..10 {
        shard.publish("a", "x", QoS::ExactlyOnce);
    }
    for client in ["ann", "bob"] {
        shard.acknowledge(client, 1, 10, &(1..=10).collect::<Vec<_>>());
    }
    let origin = Origin {
        client: "pub".into(),
        incarnation: 1,
        packet_id: 1,
    };
    shard.apply(&publish(
        message("a", "x", QoS::ExactlyOnce),
        Some(origin.clone()),
    ));
    shard.apply(&InboxOp::Release { origin });
    for client in ["ann", "bob"] {
        shard.acknowledge(client, 1, 11, &[11]);
    }
    let mut keys: Vec<u8> = shard
        .checkpoint()
        .entries
        .iter()
        .map(|of| of.0[0])
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, *b"IIM");
    assert_eq!(shard.checkpoint().entries, []);
}

#[test]
fn what_goes_while_it_is_written_is_removed_afterwards() {
    let mut shard = Shard::new();
    let ann = shard.session("ann", "a");
    let bob = shard.sleeper("bob", "a");
    for payload in ["1", "2"] {
        shard.publish("a", payload, QoS::AtLeastOnce);
    }
    let changes = shard.collect();
    shard.acknowledge("ann", 1, 2, &[1]);
    shard.acknowledge("bob", 1, 2, &[1, 2]);
    // Neither state of the table misleads.
    assert_eq!(shard.queue(ann), payloads(&[(2, "2")]));
    shard.table.write(&changes);
    assert_eq!(shard.queue(ann), payloads(&[(2, "2")]));
    assert_eq!(shard.queue(bob), payloads(&[]));
    shard.machine.saved();
    assert_eq!(shard.queue(ann), payloads(&[(2, "2")]));
    assert_eq!(shard.queue(bob), payloads(&[]));
    assert_eq!(
        (shard.table.rows_of(b'Q'), shard.table.rows_of(b'B')),
        (4, 2)
    );
    shard.checkpoint();
    assert_eq!(
        (shard.table.rows_of(b'Q'), shard.table.rows_of(b'B')),
        (1, 1)
    );
    shard.acknowledge("ann", 1, 2, &[2]);
    shard.checkpoint();
    assert_eq!(
        (shard.table.rows_of(b'Q'), shard.table.rows_of(b'B')),
        (0, 0)
    );
    assert_eq!(shard.table.rows_of(b'C'), 0);
}

#[test]
fn what_one_session_has_stands_in_its_queue() {
    let mut shard = Shard::new();
    shard.session("ann", "a");
    shard.sleeper("bob", "a");
    // Ann is online, and gets QoS 0 directly.
    shard.publish("a", "x", QoS::AtMostOnce);
    shard.checkpoint();
    assert_eq!(
        (shard.table.rows_of(b'Q'), shard.table.rows_of(b'B')),
        (1, 0)
    );
}

#[test]
fn loading_reads_no_messages() {
    let mut shard = Shard::new();
    let inbox = shard.sleeper("ann", "a");
    shard.publish("a", "1", QoS::AtLeastOnce);
    shard.checkpoint();
    let damaged: Vec<_> = shard.table.rows.range(vec![b'Q']..vec![b'R']).collect();
    let key = damaged[0].0.clone();
    shard.table.rows.insert(key, vec![9]);
    shard.restart();
    assert_eq!(shard.machine.queue_len(inbox), 1);
    assert_eq!(shard.publish("a", "2", QoS::AtLeastOnce), published(1, 0));
    let op = InboxOp::Acknowledge {
        session: "ann".into(),
        epoch: 1,
        sent: 1,
        done: Done(vec![1]),
    };
    let mut recorder = Recorder::default();
    let result = shard
        .machine
        .apply(&HEADER, &op, &shard.table, &mut recorder);
    assert!(result.is_err(), "{result:?}");
}

#[test]
fn tables_that_are_not_this_shards_are_refused() {
    let mut shard = Shard::new();
    shard.sleeper("ann", "a");
    shard.checkpoint();
    let half = Slots {
        range: SlotRange::part(0, 2),
        ..Slots::ALL
    };
    let mut upper = Shard::new();
    upper.machine = InboxMachine::load(half, &upper.table).unwrap();
    upper.session("ann", "a");
    upper.checkpoint();
    for range in [SlotRange::ALL, SlotRange::part(1, 2), SlotRange::part(1, 4)] {
        let slots = Slots {
            range,
            ..Slots::ALL
        };
        let loaded = InboxMachine::load(slots, &upper.table);
        let is_within = range == SlotRange::part(1, 4);
        assert_eq!(loaded.is_ok(), is_within, "{range:?}");
    }
    let mut table = shard.table.clone();
    table.rows.remove(b"M".as_slice());
    let loaded = InboxMachine::load(Slots::ALL, &table);
    assert!(matches!(loaded, Err(LoadError::Damaged { .. })));
    for kind in *b"IM" {
        let mut table = shard.table.clone();
        let (_, value) = table.rows.range_mut(vec![kind]..).next().unwrap();
        value.pop();
        let loaded = InboxMachine::load(Slots::ALL, &table);
        assert!(matches!(loaded, Err(LoadError::Damaged { .. })));
        let (_, value) = table.rows.range_mut(vec![kind]..).next().unwrap();
        value[0] += 1;
        let loaded = InboxMachine::load(Slots::ALL, &table);
        assert!(matches!(loaded, Err(LoadError::Format { .. })));
    }
}

#[test]
fn unsaved_bytes_follow_what_happens() {
    let mut shard = Shard::new();
    shard.session("ann", "a");
    shard.checkpoint();
    assert_eq!(shard.machine.unsaved_bytes(), 0);
    shard.publish("a", &"x".repeat(10_000), QoS::AtLeastOnce);
    assert!((10_000..11_000).contains(&shard.machine.unsaved_bytes()));
    shard.acknowledge("ann", 1, 1, &[1]);
    assert!(shard.machine.unsaved_bytes() < 1_000);
    shard.publish("a", &"x".repeat(10_000), QoS::AtLeastOnce);
    shard.collect();
    assert!(shard.machine.unsaved_bytes() > 10_000);
    shard.machine.saved();
    assert_eq!(shard.machine.unsaved_bytes(), 0);
}

#[test]
fn replicas_agree_on_what_is_decided_by() {
    let mut shard = Shard::new();
    shard.sleeper("ann", "a");
    for payload in ["1", "2"] {
        shard.publish("a", payload, QoS::AtLeastOnce);
    }
    let changes = shard.checkpoint();
    let put = |kind: u8| {
        let mut of_kind = changes.entries.iter().filter(|(key, _)| key[0] == kind);
        let (key, value) = of_kind.next().expect("a row");
        (key.clone(), value.clone().expect("it is put"))
    };
    let (key, value) = put(b'I');
    let mut row: InboxRow = row::decode(&key, &value).unwrap();
    assert!(!row.rest.marks.is_empty());
    let agreed = agreed_part(&key, &value);
    row.attached = Some((1, 1));
    row.rest.lingers = true;
    row.rest.marks.clear();
    row.head += 1;
    assert_eq!(agreed_part(&key, &row::encode(&row)), agreed);
    row.subscriptions.clear();
    assert_ne!(agreed_part(&key, &row::encode(&row)), agreed);

    let (machine, value) = put(b'M');
    let rebuilt = [&value[..], &[7]].concat();
    assert_eq!(*agreed_part(&machine, &rebuilt), value);
    for (key, value) in [put(b'Q'), (key, b"not a row".to_vec())] {
        assert_eq!(*agreed_part(&key, &value), value);
    }
}
