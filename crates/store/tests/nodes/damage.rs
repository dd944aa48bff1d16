//! A damaged shard does not serve, and the others do.

use std::fs;
use std::path::Path;

use store::{Tables, TablesOptions};
use store_state::api::Failure;
use store_state::retain::RetainReply;
use store_state::{Changes, NameHash, SlotRange};

use crate::node::{Node, flip_in_table, survey};

/// A topic for each of four shards.
fn topics() -> [String; 4] {
    [0, 1, 2, 3].map(|part| {
        let mut names = (0..).map(|n| format!("topic-{n}"));
        let range = SlotRange::part(part, 4);
        names
            .find(|name| range.contains(NameHash::default().slot_of(name)))
            .unwrap()
    })
}

/// A node that was ended in order, with a retained message in each shard.
fn filled(folder: &Path) {
    let node = Node::start(folder, 4);
    for topic in topics() {
        assert_eq!(node.retain(&topic, b"before"), Ok(RetainReply::Done));
    }
    node.stop();
}

/// Shard 2 of the retain store is stopped, all others serve.
fn check(folder: &Path) {
    let node = Node::start(folder, 4);
    let stopped: Vec<u64> = node
        .store
        .stats(mqtt_session::Timestamp(0))
        .stores
        .iter()
        .map(|(_, of)| of.stopped)
        .collect();
    assert_eq!(stopped, [0, 0, 1]);
    for (shard, topic) in topics().iter().enumerate() {
        let expected = match shard {
            2 => Err(Failure::Stopped),
            _ => Ok(RetainReply::Done),
        };
        assert_eq!(node.retain(topic, b"after"), expected, "shard {shard}");
    }
    assert_eq!(node.retained().len(), 3);
    node.sleeper("ann", "#");
    assert_eq!(node.publish("a", b"x"), Ok(1));
    node.stop();
}

/// What is found of the retain store.
fn found(folder: &Path) -> Vec<String> {
    let found = survey(folder).findings;
    let of_shard = |of: &store::Finding| (of.store, of.shard) == (Some("retain"), Some(2));
    assert!(found.iter().all(of_shard), "{found:?}");
    found.into_iter().map(|of| of.what).collect()
}

#[test]
fn a_flipped_bit_in_a_table_stops_its_shard_only() {
    let at = tempfile::tempdir().unwrap();
    filled(at.path());
    flip_in_table(&at.path().join("retain"), 2);
    let said = found(at.path());
    assert!(said[0].contains("is damaged"), "{said:?}");
    check(at.path());
    let said = found(at.path());
    assert!(said[0].contains("is damaged"), "{said:?}");
}

#[test]
fn a_checkpoint_that_cannot_be_read_stops_its_shard_only() {
    let at = tempfile::tempdir().unwrap();
    filled(at.path());
    let tables = Tables::open(&at.path().join("retain"), TablesOptions::default()).unwrap();
    let table = tables.shard(2).unwrap();
    table.write(&Changes::default(), b"junk").unwrap();
    drop((table, tables));
    let said = found(at.path());
    assert!(said[0].contains("its checkpoint is damaged"), "{said:?}");
    check(at.path());
}

#[test]
fn tables_that_the_log_does_not_fit_stop_their_shard_only() {
    let at = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    filled(at.path());
    let node = Node::start(other.path(), 4);
    for n in 0..50u8 {
        node.retain(&topics()[2], &[n]).unwrap();
    }
    node.stop();
    let shard = "retain/shard-0000000000000002";
    fs::remove_dir_all(at.path().join(shard)).unwrap();
    fs::rename(other.path().join(shard), at.path().join(shard)).unwrap();
    let said = found(at.path());
    assert!(said[0].contains("do not belong together"), "{said:?}");
    check(at.path());
}

#[test]
fn rows_that_do_not_agree_are_found_with_their_key() {
    let at = tempfile::tempdir().unwrap();
    filled(at.path());
    let tables = Tables::open(&at.path().join("retain"), TablesOptions::default()).unwrap();
    let table = tables.shard(2).unwrap();
    let mark = table.mark().unwrap().unwrap();
    let mut changes = Changes::default();
    changes.put(b"R\0\0other".to_vec(), b"\x01".to_vec());
    table.write(&changes, &mark).unwrap();
    drop((table, tables));
    let found = survey(at.path()).findings;
    let keys: Vec<_> = found.iter().map(|of| of.key.as_deref()).collect();
    assert_eq!(keys, [Some("5200006f74686572")], "{found:?}");
}

#[test]
fn a_log_that_is_damaged_is_found_and_the_tables_are_still_read() {
    let at = tempfile::tempdir().unwrap();
    filled(at.path());
    let log = at.path().join("log/entries/0000000000000001.raftlog");
    let mut bytes = fs::read(&log).unwrap();
    // Behind the file's header and the first batch's.
    bytes[69 + 8] ^= 1;
    fs::write(&log, bytes).unwrap();
    let found = survey(at.path());
    assert!(found.log.is_none());
    assert!(
        found.findings[0].what.contains("damaged at byte 69"),
        "{found:?}"
    );
    assert!(
        found.stores[2]
            .shards
            .iter()
            .all(|shard| shard.rows.len() == 4)
    );
}

#[test]
fn a_torn_end_of_the_log_is_nothing_wrong() {
    let at = tempfile::tempdir().unwrap();
    filled(at.path());
    let log = at.path().join("log/entries/0000000000000001.raftlog");
    let mut bytes = fs::read(&log).unwrap();
    bytes.extend_from_slice(&[7; 100]);
    fs::write(&log, bytes).unwrap();
    let found = survey(at.path());
    assert_eq!(found.findings, []);
    assert_eq!(found.log.unwrap().torn_bytes, 100);
    let node = Node::start(at.path(), 4);
    assert_eq!(node.retained().len(), 4);
    node.stop();
}
