//! Nodes with old copies of their data folders.

use std::path::Path;
use std::thread;
use std::time::Duration;
use std::{fs, io};

use tempfile::TempDir;

use super::node::{Net, Node, Told, all_reach_all, eventually, try_start};
use crate::folder::record::RecordFile;
use crate::{Options, ShutOut, StartError};

fn quick(options: &mut Options) {
    options.timings.stamp = Duration::from_millis(100);
    options.timings.down = Duration::from_millis(500);
}

fn start(net: Net, count: u64) -> Vec<Node> {
    let nodes: Vec<_> = (1..=count)
        .map(|node| Node::start_with(net, node, quick))
        .collect();
    all_reach_all(&nodes);
    nodes
}

/// A copy of the folder of a node, which may write to it meanwhile.
fn copy(folder: &Path) -> TempDir {
    for _ in 0..100 {
        match try_copy(folder) {
            Ok(copy) => return copy,
            // It is written anew under another name, which is gone by now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => panic!("{}: {error}", folder.display()),
        }
    }
    panic!("{}: a file of it is always gone", folder.display());
}

fn try_copy(folder: &Path) -> io::Result<TempDir> {
    let copy = tempfile::tempdir()?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        fs::copy(entry.path(), copy.path().join(entry.file_name()))?;
    }
    Ok(copy)
}

fn again(net: Net, node: u64, incarnation: u64, folder: TempDir) -> Result<Node, StartError> {
    let mut options = net.options(node, folder.path());
    quick(&mut options);
    options.incarnation = incarnation;
    options.bootstrap = false;
    try_start(options, folder)
}

fn is_admitted(node: &Node) -> bool {
    *node.cluster.admitted().borrow()
}

/// At the start, or as soon as a member is found, and before it was let in.
fn assert_refused(started: Result<Node, StartError>) {
    match started {
        Err(error) => assert!(error.is_old_folder(), "{error}"),
        Ok(node) => {
            let is_shut_out =
                |told: &Told| matches!(told, Told::ShutOut(ShutOut::OldFolder { .. }));
            eventually("shut out", || node.recorder.count(is_shut_out) == 1);
            assert!(!is_admitted(&node));
            node.cluster.stop();
        }
    }
}

/// The folder is taken out of a node that has stopped.
fn stop(node: Node) -> TempDir {
    node.cluster.stop();
    node.folder
}

#[test]
fn an_old_copy_is_refused_at_every_start() {
    let net = Net(50);
    let mut nodes = start(net, 3);
    let folder = stop(nodes.pop().unwrap());
    let old = copy(folder.path());
    // Both are started as often.
    let node = again(net, 3, 2, folder).unwrap();
    assert!(is_admitted(&node));
    let folder = stop(node);
    for incarnation in [2, 3, 9] {
        let started = again(net, 3, incarnation, copy(old.path()));
        let error = started.err().unwrap();
        assert!(error.is_old_folder(), "{error}");
        assert!(error.to_string().contains("start 2 of"), "{error}");
        let refusals = |node: &Node| node.cluster.refusals().contains_key("oldFolder");
        eventually("a refusal is counted", || nodes.iter().any(refusals));
    }
    // The folder itself is as good as before.
    nodes.push(again(net, 3, 3, folder).unwrap());
    all_reach_all(&nodes);
}

#[test]
fn what_is_remembered_outlives_the_processes() {
    let net = Net(51);
    let mut nodes = start(net, 3);
    let folder = stop(nodes.pop().unwrap());
    let old = copy(folder.path());
    let folder = stop(again(net, 3, 2, folder).unwrap());
    let second = stop(nodes.pop().unwrap());
    let first = stop(nodes.pop().unwrap());
    let others = thread::spawn(move || {
        [(1, first), (2, second)].map(|(node, folder)| again(net, node, 2, folder).unwrap())
    });
    let started = again(net, 3, 3, old);
    let others = others.join().unwrap();
    assert_refused(started);
    let mut nodes = Vec::from(others);
    nodes.push(again(net, 3, 4, folder).unwrap());
    all_reach_all(&nodes);
}

#[test]
fn a_node_waits_for_a_majority() {
    let net = Net(52);
    let mut nodes = start(net, 3);
    let folders: Vec<_> = nodes.drain(..).map(stop).collect();
    let mut folders = folders.into_iter();
    let first = again(net, 1, 2, folders.next().unwrap()).unwrap();
    assert!(!is_admitted(&first));
    let second = again(net, 2, 2, folders.next().unwrap()).unwrap();
    for node in [&first, &second] {
        eventually("admitted", || is_admitted(node));
    }
    let third = again(net, 3, 2, folders.next().unwrap()).unwrap();
    all_reach_all(&[first, second, third]);
}

#[test]
fn a_copy_of_a_running_node_is_refused() {
    let net = Net(53);
    let mut nodes = start(net, 2);
    let node = nodes.pop().unwrap();
    let old = copy(node.folder.path());
    let before = node.cluster.shared.stamps.lock().history().clone();
    eventually("it has told how far it is", || {
        let shared = &nodes[0].cluster.shared;
        shared.stamps.lock().check(2, &before).is_ok()
            && node.cluster.shared.stamps.lock().history() != &before
    });
    node.cluster.stop_in_order();
    let error = again(net, 2, 2, old).err().unwrap();
    assert!(error.is_old_folder(), "{error}");
    nodes.push(again(net, 2, 3, node.folder).unwrap());
    all_reach_all(&nodes);
}

#[test]
fn a_copy_from_before_the_others_joined_is_found_by_them() {
    let net = Net(54);
    let first = Node::start_with(net, 1, quick);
    let old = copy(first.folder.path());
    let nodes = [first, Node::start_with(net, 2, quick)];
    all_reach_all(&nodes);
    let [first, _second] = nodes;
    first.cluster.stop_in_order();
    // It knows of no other member: they find it.
    assert_refused(again(net, 1, 2, old));
}

#[test]
fn nobody_is_waited_for_when_the_others_are_gone_for_good() {
    let net = Net(55);
    let mut nodes = start(net, 3);
    let folder = stop(nodes.remove(0));
    nodes.drain(..).for_each(|node| node.cluster.stop());
    crate::go_on_alone(folder.path()).unwrap();
    let node = again(net, 1, 2, folder).unwrap();
    eventually("admitted", || is_admitted(&node));
}

#[test]
fn members_that_are_evicted_in_the_folder_are_refused_with_theirs() {
    let net = Net(59);
    let mut nodes = start(net, 2);
    let folder = nodes[0].folder.path().to_owned();
    let env = net.options(1, &folder).env;
    let file = RecordFile::new(&folder);
    eventually("recorded", || {
        let record = file.read(1, &env).unwrap().unwrap();
        record.members.iter().any(|place| place.node == 2)
    });
    let second = stop(nodes.remove(1));
    let first = stop(nodes.remove(0));
    assert_eq!(crate::evict_others(first.path()).unwrap(), [2]);
    assert_eq!(crate::evict_others(first.path()).unwrap(), []);
    // The only member that is left confirms its own folder.
    let node = again(net, 1, 2, first).unwrap();
    eventually("admitted", || is_admitted(&node));
    assert!(node.cluster.members().evicted.contains(&2));
    match again(net, 2, 2, second) {
        Err(error) => assert!(
            matches!(
                error,
                StartError::Evicted | StartError::ShutOut(ShutOut::Evicted)
            ),
            "{error}"
        ),
        Ok(other) => {
            let is_evicted = |told: &Told| matches!(told, Told::ShutOut(ShutOut::Evicted));
            eventually("shut out", || other.recorder.count(is_evicted) == 1);
            assert!(!is_admitted(&other));
        }
    }
}

fn accepted(net: Net, node: u64, incarnation: u64, folder: TempDir) -> Result<Node, StartError> {
    let mut options = net.options(node, folder.path());
    quick(&mut options);
    options.incarnation = incarnation;
    options.bootstrap = false;
    options.accepts_folder = true;
    try_start(options, folder)
}

#[test]
fn a_folder_that_is_accepted_waits_for_nobody_and_only_once() {
    let net = Net(58);
    let mut nodes = start(net, 3);
    let folder = stop(nodes.remove(0));
    nodes.drain(..).for_each(|node| node.cluster.stop());
    let node = accepted(net, 1, 2, folder).unwrap();
    eventually("admitted", || is_admitted(&node));
    let node = again(net, 1, 3, stop(node)).unwrap();
    assert!(!is_admitted(&node), "nothing of it is kept");
}

#[test]
fn restored_folders_that_are_accepted_form_a_cluster() {
    let net = Net(61);
    let mut nodes = start(net, 2);
    let second = stop(nodes.pop().unwrap());
    let old = copy(second.path());
    // The first one remembers more starts of the second one than its backup has.
    let node = again(net, 2, 2, second).unwrap();
    let node = again(net, 2, 3, stop(node)).unwrap();
    nodes.push(node);
    all_reach_all(&nodes);
    nodes.pop().unwrap().cluster.stop();
    let first = stop(nodes.pop().unwrap());
    let nodes = thread::scope(|scope| {
        let first = scope.spawn(|| accepted(net, 1, 2, first).unwrap());
        let second = accepted(net, 2, 2, old).unwrap();
        [first.join().unwrap(), second]
    });
    all_reach_all(&nodes);
    nodes
        .iter()
        .for_each(|node| eventually("admitted", || is_admitted(node)));
}

#[test]
fn members_refuse_an_old_copy_though_its_own_start_accepts_it() {
    let net = Net(60);
    let mut nodes = start(net, 3);
    let folder = stop(nodes.pop().unwrap());
    let old = copy(folder.path());
    let folder = stop(again(net, 3, 2, folder).unwrap());
    assert_refused(accepted(net, 3, 3, old));
    drop(folder);
}

#[test]
fn a_member_tells_another_what_it_remembers() {
    let net = Net(56);
    let mut nodes = start(net, 3);
    let folder = stop(nodes.pop().unwrap());
    let old = copy(folder.path());
    let second = stop(nodes.pop().unwrap());
    // The second one never meets this start.
    let folder = stop(again(net, 3, 2, folder).unwrap());
    let second = again(net, 2, 2, second).unwrap();
    let history = {
        let stamps = crate::folder::stamps::StampFile::new(old.path())
            .read()
            .unwrap();
        stamps.history().clone()
    };
    eventually("told", || {
        let stamps = second.cluster.shared.stamps.lock();
        stamps.check(3, &history).is_err()
    });
    nodes.pop().unwrap().cluster.stop();
    let error = again(net, 3, 3, old).err().unwrap();
    assert!(error.is_old_folder(), "{error}");
    drop(folder);
}

#[test]
fn a_start_without_stamps_is_taken_once() {
    let net = Net(57);
    let mut nodes = start(net, 2);
    let folder = stop(nodes.pop().unwrap());
    // As an earlier version has left them.
    for name in ["cluster.stamps", "cluster.stamps.copy"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    nodes[0].cluster.shared.stamps.lock().retain(|_| false);
    let old = copy(folder.path());
    nodes.push(again(net, 2, 2, folder).unwrap());
    all_reach_all(&nodes);
    let folder = stop(nodes.pop().unwrap());
    let error = again(net, 2, 3, old).err().unwrap();
    assert!(error.is_old_folder(), "{error}");
    nodes.push(again(net, 2, 3, folder).unwrap());
    all_reach_all(&nodes);
}
