//! Requests go to the shard that has the slot.

use std::path::Path;

use store::{Tables, TablesOptions};
use store_state::api::Store as _;
use store_state::inbox::InboxMachine;
use store_state::retain::RetainMachine;
use store_state::session::SessionMachine;
use store_state::{Changes, DESCRIPTOR_KEY, Descriptor, NameHash, SlotRange, Split};

use crate::node::{Node, survey};

#[test]
fn each_name_is_kept_by_the_shard_of_its_slot() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 5);
    let names: Vec<String> = (0..40).map(|n| format!("name-{n}")).collect();
    let shard_of = |name: &str| {
        let slot = NameHash::default().slot_of(name);
        (0..5)
            .position(|part| SlotRange::part(part, 5).contains(slot))
            .unwrap()
    };
    let mut expected = [0; 5];
    for name in &names {
        expected[shard_of(name)] += 1;
        assert_eq!(
            usize::from(node.store.inbox_shard(node.store.inbox_slot(name))),
            shard_of(name)
        );
        node.sleeper(name, name);
        node.retain(name, b"x").unwrap();
    }
    for name in &names {
        assert_eq!(node.publish(name, b"x"), Ok(1));
    }
    node.stop();
    let found = survey(at.path());
    assert_eq!(found.findings, []);
    for (store, kind) in [(0, "sessions"), (1, "inboxes"), (2, "retained messages")] {
        let shards = found.stores[store].shards.iter();
        let counted: Vec<u64> = shards
            .map(|shard| {
                let rows = shard.rows.iter().find(|of| of.kind == kind).unwrap();
                rows.rows
            })
            .collect();
        assert_eq!(counted, expected, "{kind}");
    }
}

#[test]
fn the_number_of_shards_stays_what_it_was_at_first() {
    let at = tempfile::tempdir().unwrap();
    Node::start(at.path(), 3).stop();
    let node = Node::start(at.path(), 7);
    let shards = node.store.inbox_shards();
    assert!(shards.iter().map(|shard| shard.number).eq([0, 1, 2]));
    node.stop();
}

/// Writes down that shard 0 of a store was split, as its checkpoint after that does.
fn narrow<M: Split>(store: &Path, at: u16) {
    let tables = Tables::open(store, TablesOptions::of::<M>()).unwrap();
    let table = tables.shard(0).unwrap();
    let mut descriptor = Descriptor::first(SlotRange::ALL);
    let _child = descriptor.split_off(at);
    let mut changes = Changes::default();
    changes.put(DESCRIPTOR_KEY.to_vec(), descriptor.to_row());
    let mark = table.mark().unwrap().unwrap();
    table.write(&changes, &mark).unwrap();
}

#[test]
fn a_survey_has_the_descriptor_and_no_row_that_a_split_has_given_away() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    let names: Vec<String> = (0..40).map(|n| format!("name-{n}")).collect();
    for name in &names {
        node.sleeper(name, name);
        node.retain(name, b"x").unwrap();
        assert_eq!(node.publish(name, b"x"), Ok(1));
    }
    node.stop();
    narrow::<SessionMachine>(&at.path().join("session"), 30_000);
    narrow::<InboxMachine>(&at.path().join("inbox"), 30_000);
    narrow::<RetainMachine>(&at.path().join("retain"), 30_000);
    let kept = names.iter();
    let kept = kept.filter(|name| NameHash::default().slot_of(name) < 30_000);
    let kept = kept.count() as u64;
    assert!(0 < kept && kept < 40);

    let found = survey(at.path());
    assert_eq!(found.findings, []);
    for (store, kind) in [
        (0, "sessions"),
        (1, "inboxes"),
        (1, "queued messages"),
        (2, "retained messages"),
    ] {
        let shard = &found.stores[store].shards[0];
        assert_eq!((shard.first_slot, shard.last_slot), (0, 29_999));
        let count = |kind| shard.rows.iter().find(|of| of.kind == kind).unwrap().rows;
        assert_eq!((count(kind), count("descriptor")), (kept, 1), "{kind}");
    }
}

#[test]
fn a_table_that_is_no_shards_gets_no_slots() {
    let at = tempfile::tempdir().unwrap();
    Node::start(at.path(), 1).stop();
    let stray = at.path().join("inbox/shard-00000000000000ff");
    std::fs::create_dir(stray).unwrap();
    let node = Node::start(at.path(), 1);
    assert_eq!(node.store.inbox_shards().len(), 1);
    node.sleeper("ann", "a");
    assert_eq!(node.publish("a", b"x"), Ok(1));
    node.stop();
    let findings = survey(at.path()).findings;
    assert!(
        findings.iter().any(|finding| finding.what.contains("255")),
        "{findings:?}"
    );
}
