//! Folders that cannot be used.

use std::fs;
use std::path::PathBuf;

use store_state::api::PerStore;

use crate::node::{Node, options};

fn refusal(folder: &std::path::Path, options: &store::Options) -> String {
    match Node::try_start(folder, options) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it started"),
    }
}

fn unseen(folder: &std::path::Path) -> String {
    store::survey(folder, &PerStore::default())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_folder_is_used_by_one_at_a_time() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 1);
    assert!(refusal(at.path(), &options(1)).contains("in use by another process"));
    assert!(unseen(at.path()).contains("in use by another process"));
    node.retain("a", b"x").unwrap();
    node.stop();
}

#[test]
fn a_foreign_folder_is_refused_and_left_alone() {
    let at = tempfile::tempdir().unwrap();
    fs::write(at.path().join("thesis.txt"), "…").unwrap();
    assert!(refusal(at.path(), &options(1)).contains("thesis.txt"));
    assert!(unseen(at.path()).contains("no FORMAT file"));
    assert_eq!(fs::read_dir(at.path()).unwrap().count(), 1);
    assert!(unseen(&at.path().join("none")).contains("none"));
}

#[test]
fn a_store_that_is_gone_is_missed() {
    let at = tempfile::tempdir().unwrap();
    Node::start(at.path(), 1).stop();
    fs::remove_dir_all(at.path().join("inbox")).unwrap();
    let said = refusal(at.path(), &options(1));
    assert!(
        said.contains("the inbox store of this node is not in"),
        "{said}"
    );
    let found = crate::node::survey(at.path());
    let stores: Vec<_> = found.stores.iter().map(|store| store.name).collect();
    assert_eq!(stores, ["session", "retain"]);
    assert_eq!(found.findings[0].store, Some("inbox"));
}

#[test]
fn a_store_elsewhere_is_found_there() {
    let at = tempfile::tempdir().unwrap();
    let disk = tempfile::tempdir().unwrap();
    let mut options = options(1);
    options.folders.retain = Some(disk.path().to_owned());
    let node = Node::try_start(at.path(), &options).unwrap();
    node.retain("a", b"x").unwrap();
    node.stop();
    let found = store::survey(at.path(), &options.folders).unwrap();
    assert_eq!(found.findings, []);
    assert_eq!(found.stores[2].folder, disk.path());
    // The data folder says where it is to those who do not know the settings.
    let found = crate::node::survey(at.path());
    assert_eq!(found.findings, []);
    assert_eq!(found.stores[2].folder, disk.path());
}

#[test]
fn nothing_is_changed_by_looking() {
    let at = tempfile::tempdir().unwrap();
    let node = Node::start(at.path(), 2);
    node.sleeper("ann", "#");
    node.publish("a", b"x").unwrap();
    node.stop();
    // What a crash leaves behind, and a node would remove.
    let shard = at.path().join("inbox/shard-0000000000000000");
    fs::write(shard.join("v99"), "").unwrap();
    fs::write(shard.join("tables/99"), "").unwrap();
    let before = content(at.path());
    assert_eq!(crate::node::survey(at.path()).findings, []);
    assert_eq!(content(at.path()), before);
}

/// All files with their bytes and times.
fn content(folder: &std::path::Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(content(&path));
        } else {
            let modified = path.metadata().unwrap().modified().unwrap();
            found.push((path.clone(), fs::read(&path).unwrap(), modified));
        }
    }
    found.sort();
    found
}
