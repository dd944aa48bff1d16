//! What a node keeps when it ends and starts again.

use crate::node::{Node, survey, to_replay};
use store_state::api::Store as _;

#[test]
fn a_restart_keeps_sessions_inboxes_and_retained_messages() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 3);
    let clients: Vec<String> = (0..12).map(|n| format!("client-{n}")).collect();
    for client in &clients {
        node.sleeper(client, "news/#");
    }
    for n in 0..5u8 {
        assert_eq!(node.publish("news/a", &[n]), Ok(12));
        node.retain(&format!("kept/{n}"), &[n]).unwrap();
    }
    let retained = node.retained();
    assert_eq!(retained.len(), 5);
    node.stop();

    let node = Node::start(at.path(), 3);
    assert_eq!(node.store.incarnation(), 2);
    assert_eq!(node.store.sessions(), 12);
    assert_eq!(node.retained(), retained);
    for client in &clients {
        assert!(node.store.knows(client));
        let found = node.connect(client);
        assert!(found.1.present);
        assert_eq!(&*found.1.subscriptions[0].filter, "news/#");
        let queue = node.read(client, &found, 5);
        assert_eq!(queue, [[0], [1], [2], [3], [4]]);
    }
    assert_eq!(node.publish("news/a", b"again"), Ok(12));
    node.stop();
}

#[test]
fn an_end_in_order_leaves_nothing_to_apply_again() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 2);
    node.sleeper("ann", "#");
    node.publish("a", b"x").unwrap();
    node.retain("a", b"x").unwrap();
    node.stop();
    let found = survey(at.path());
    assert_eq!(found.findings, []);
    assert_eq!(to_replay(&found), 0);
    let queued = |of: &store::NodeSurvey| -> u64 {
        let inbox = &of.stores[1];
        let rows = inbox.shards.iter().flat_map(|shard| &shard.rows);
        rows.filter(|kind| kind.kind == "queued messages")
            .map(|kind| kind.rows)
            .sum()
    };
    assert_eq!(queued(&found), 1);
}

#[test]
fn what_was_only_in_the_log_is_counted_and_applied_again() {
    let at = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    node.sleeper("ann", "#");
    for n in 0..10 {
        node.publish("a", &[n]).unwrap();
    }
    // What a killed process leaves behind.
    copy_folder(at.path(), copy.path());
    node.stop();
    let found = survey(copy.path());
    assert_eq!(found.findings, []);
    // CONNECT, SUBSCRIBE, DISCONNECT and the messages; each of the two stores heard that the node is up.
    assert_eq!(to_replay(&found), 1 + 3 + 10 + 2);
    let node = Node::start(copy.path(), 1);
    let ann = node.connect("ann");
    assert_eq!(node.read("ann", &ann, 10).len(), 10);
    node.stop();
}

/// A copy of a folder that a node may be writing to, in an order in which it could have crashed: files before folders, since the log
/// says first where its entries end, and the log last, since tables never have what it lacks.
pub(crate) fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    let entries = std::fs::read_dir(from).unwrap().map(Result::unwrap);
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|entry| {
        let is_log = entry.file_name() == "log";
        (entry.file_type().unwrap().is_dir(), is_log)
    });
    for entry in entries {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
