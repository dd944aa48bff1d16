//! What nobody reads is read again, and damage that is found stops the shard.

use std::fs;
use std::time::Duration;

use mqtt_session::Timestamp;
use store::ScrubStats;
use store_state::api::Failure;
use store_state::retain::RetainReply;

use crate::node::{Node, flip_in_table, options, until};

fn scrubbing(node: &Node) -> ScrubStats {
    node.store.stats(Timestamp(0)).scrub
}

/// A node in a folder with a checkpoint of a retained message, which reads all of it again and again.
fn scrubbed(folder: &std::path::Path) -> Node {
    let node = Node::start(folder, 1);
    assert_eq!(node.retain("a", b"before"), Ok(RetainReply::Done));
    node.stop();
    let options = store::Options {
        scrub_every: Duration::from_millis(50),
        ..options(1)
    };
    let node = Node::try_start(folder, &options).unwrap();
    until("all is read", || scrubbing(&node).rounds.0 >= 2);
    let ScrubStats {
        small_files,
        log_places,
        tables,
        ..
    } = scrubbing(&node);
    assert_eq!([small_files.0, log_places.0, tables.0], [0; 3]);
    node
}

#[test]
fn a_damaged_table_that_nobody_reads_is_found() {
    let at = tempfile::tempdir().unwrap();
    let node = scrubbed(at.path());
    assert!(scrubbing(&node).bytes.0 > 0);
    flip_in_table(&at.path().join("retain"), 0);
    until("the damage is found", || scrubbing(&node).tables.0 == 1);
    until("the shard stops", || {
        node.retain("a", b"after") == Err(Failure::Stopped)
    });
    // The others serve.
    node.sleeper("ann", "#");
    node.stop();
}

#[test]
fn a_damaged_place_in_the_log_is_counted_once() {
    let at = tempfile::tempdir().unwrap();
    let node = scrubbed(at.path());
    let files = fs::read_dir(at.path().join("log/entries")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let log = files
        .filter(|file| file.extension().is_some_and(|of| of == "raftlog"))
        .min();
    let log = log.unwrap();
    let mut bytes = fs::read(&log).unwrap();
    // Behind the file's header and the first batch's.
    bytes[69 + 20] ^= 1;
    fs::write(&log, bytes).unwrap();
    until("the damage is found", || scrubbing(&node).log_places.0 == 1);
    assert_eq!(node.store.stats(Timestamp(0)).log.damage.0, 1);
    let rounds = scrubbing(&node).rounds.0;
    until("it is read again", || {
        scrubbing(&node).rounds.0 > rounds + 1
    });
    assert_eq!(scrubbing(&node).log_places.0, 1);
    // It serves: what the file holds is in memory.
    assert_eq!(node.retain("a", b"after"), Ok(RetainReply::Done));
    node.stop();
}

#[test]
fn a_small_file_that_is_damaged_or_lost_while_the_node_runs_is_written_again() {
    let at = tempfile::tempdir().unwrap();
    let node = scrubbed(at.path());
    let names = [
        "FORMAT",
        "FORMAT.copy",
        "retain/FORMAT",
        "retain/SHARDS",
        "inbox/SHARDS.check",
        "session/SHARDS.copy",
        "log/FORMAT",
    ];
    for (number, name) in names.into_iter().enumerate() {
        let path = at.path().join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, b"x").unwrap();
        until(name, || scrubbing(&node).small_files.0 == number as u64 + 1);
        assert_eq!(fs::read(&path).unwrap(), whole, "{name}");
    }
    node.stop();
}
