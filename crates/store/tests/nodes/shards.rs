//! Requests go to the shard that has the slot.

use store_state::api::Store as _;
use store_state::{NameHash, SlotRange};

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
