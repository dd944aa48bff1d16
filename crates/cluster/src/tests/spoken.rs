//! What a node knows of the versions of the protocol that the others speak, over its own starts and theirs.

use std::path::Path;

use tempfile::TempDir;

use super::node::{Net, Node, all_reach_all, eventually, try_start};
use crate::folder::spoken::SpokenFile;
use crate::folder::stamps::{Stamp, StampFile};
use crate::{Options, Spoken, Versions};

/// The newest version here.
const NEW: u16 = 3;
const OLD: u16 = 2;

fn speaks(newest: u16) -> impl FnOnce(&mut Options) {
    move |options| {
        options.protocol = Versions { oldest: 1, newest };
        options.version = format!("1.{newest}");
    }
}

/// `newest`: the newest versions of the nodes 1, 2 and so on.
fn start(net: Net, newest: &[u16]) -> Vec<Node> {
    let nodes: Vec<_> = (1..)
        .zip(newest)
        .map(|(node, newest)| Node::start_with(net, node, speaks(*newest)))
        .collect();
    all_reach_all(&nodes);
    nodes
}

fn stop(node: Node) -> TempDir {
    node.cluster.stop();
    node.folder
}

fn again_with(
    net: Net,
    node: u64,
    incarnation: u64,
    folder: TempDir,
    change: impl FnOnce(&mut Options),
) -> Node {
    let mut options = net.options(node, folder.path());
    speaks(NEW)(&mut options);
    change(&mut options);
    options.incarnation = incarnation;
    options.bootstrap = false;
    try_start(options, folder).unwrap()
}

fn again(net: Net, node: u64, incarnation: u64, folder: TempDir) -> Node {
    again_with(net, node, incarnation, folder, |_| ())
}

/// What the folder of node 1 keeps of a node: the version, and that of its program.
fn kept(folder: &Path, node: u64) -> Option<(u16, String)> {
    let kept = SpokenFile::new(folder).read()?;
    kept.entry(node)
}

/// Waits until the folder keeps this of a node.
fn keeps(node: &Node, other: u64, version: u16) {
    let expected = Some((version, format!("1.{version}")));
    eventually("it is kept", || kept(node.folder.path(), other) == expected);
}

fn live(newest: u16) -> Option<Spoken> {
    Some(Spoken {
        versions: Versions { oldest: 1, newest },
        is_kept: false,
    })
}

fn of_the_folder(newest: u16) -> Option<Spoken> {
    let live = live(newest)?;
    let is_kept = true;
    Some(Spoken { is_kept, ..live })
}

/// The nodes 1 and 2, and the folder of node 3, which has stopped and is known to node 1.
fn without_the_third(net: Net, third: u16) -> (Node, Node, TempDir) {
    let mut nodes = start(net, &[NEW, NEW, third]);
    keeps(&nodes[0], 3, third);
    keeps(&nodes[0], 2, NEW);
    // A node counts for itself as well.
    assert_eq!(nodes[2].cluster.all_speak(NEW), third == NEW);
    let third = stop(nodes.pop().unwrap());
    let second = nodes.pop().unwrap();
    (nodes.pop().unwrap(), second, third)
}

/// The list of members is there, and no member but those that count is in the way.
fn await_members(node: &Node) {
    eventually("the members are known", || {
        node.member(1).is_some() && node.cluster.spoken(2) == live(NEW)
    });
}

#[test]
fn what_a_member_speaks_that_is_down_is_known_over_a_restart() {
    let net = Net(70);
    let (first, _second, third) = without_the_third(net, NEW);
    assert_eq!(first.cluster.spoken(3), live(NEW));
    let first = again(net, 1, 2, stop(first));
    await_members(&first);
    assert_eq!(first.cluster.spoken(3), of_the_folder(NEW));
    assert!(first.cluster.all_speak(NEW));
    // This node does not speak a later one itself.
    assert!(!first.cluster.all_speak(NEW + 1));
    let member = first.member(3).unwrap();
    assert_eq!((&*member.version, &*member.info["http"]), ("1.3", "3:8080"));
    assert_eq!(first.cluster.spoken(1), None);
    assert_eq!(first.cluster.spoken(9), None);

    // It goes back to an older program.
    let third = again_with(net, 3, 2, third, speaks(OLD));
    eventually("seen", || first.cluster.spoken(3) == live(OLD));
    assert!(!first.cluster.all_speak(NEW) && first.cluster.all_speak(OLD));
    keeps(&first, 3, OLD);
    drop(third);
}

#[test]
fn a_member_that_was_started_since_does_not_count() {
    let net = Net(71);
    let (first, second, third) = without_the_third(net, NEW);
    let first = stop(first);
    // The first one never meets this start.
    let third = again_with(net, 3, 2, third, speaks(OLD));
    eventually("met", || {
        let told = second.member(3).unwrap();
        second.cluster.spoken(3) == live(OLD) && told.version == "1.2"
    });
    let _third = stop(third);
    let first = again(net, 1, 2, first);
    // Not for a moment: whoever confirms this node's folder tells it.
    assert_eq!(first.cluster.spoken(3), None);
    await_members(&first);
    assert_eq!(first.cluster.spoken(3), None);
    assert!(!first.cluster.all_speak(OLD));
    eventually("told by gossip", || {
        first.member(3).unwrap().version == "1.2"
    });
    assert!(!first.cluster.all_speak(OLD));
}

#[test]
fn a_start_that_only_the_stamps_tell_of_counts() {
    let net = Net(72);
    let (first, _second, _third) = without_the_third(net, NEW);
    let first = stop(first);
    // This node was killed before it had written the file `cluster`.
    let file = StampFile::new(first.path());
    let mut stamps = file.read().unwrap();
    let later = Stamp {
        incarnation: 2,
        count: 0,
        mark: 7,
    };
    stamps.was_told(3, later);
    file.write(&stamps).unwrap();
    let first = again(net, 1, 2, first);
    await_members(&first);
    assert_eq!(first.member(3).unwrap().incarnation, 1);
    assert_eq!(first.cluster.spoken(3), None);
    assert!(!first.cluster.all_speak(OLD));
}

#[test]
fn an_evicted_member_does_not_count_and_is_not_kept() {
    let net = Net(73);
    let (first, _second, _third) = without_the_third(net, OLD);
    let first = again(net, 1, 2, stop(first));
    await_members(&first);
    assert_eq!(first.cluster.spoken(3), of_the_folder(OLD));
    assert!(!first.cluster.all_speak(NEW));
    first.cluster.evict(3).unwrap();
    assert_eq!(first.cluster.spoken(3), None);
    assert!(first.cluster.all_speak(NEW));
    eventually("forgotten", || kept(first.folder.path(), 3).is_none());
    assert!(kept(first.folder.path(), 2).is_some());
}

#[test]
fn a_damaged_file_prevents_no_start_and_is_replaced() {
    let net = Net(74);
    let (first, _second, third) = without_the_third(net, NEW);
    let first = stop(first);
    std::fs::write(first.path().join("cluster.spoken"), b"HMQSPOKE").unwrap();
    let first = again(net, 1, 2, first);
    await_members(&first);
    assert_eq!(first.cluster.spoken(3), None);
    assert!(!first.cluster.all_speak(OLD));
    keeps(&first, 2, NEW);
    let _third = again(net, 3, 2, third);
    eventually("all speak it", || first.cluster.all_speak(NEW));
    keeps(&first, 3, NEW);
}

#[test]
fn what_is_kept_counts_only_in_a_folder_that_is_confirmed() {
    let net = Net(75);
    let (first, second, _third) = without_the_third(net, NEW);
    let second = stop(second);
    let first = again(net, 1, 2, stop(first));
    eventually("the members are known", || first.member(3).is_some());
    assert!(!*first.cluster.admitted().borrow());
    assert_eq!(first.cluster.spoken(3), None);
    assert!(!first.cluster.all_speak(OLD));
    // Only people are told the rest, and nobody gossips yet.
    let member = first.member(3).unwrap();
    assert_eq!((&*member.version, &*member.info["http"]), ("1.3", "3:8080"));
    let _second = again(net, 2, 2, second);
    eventually("confirmed", || {
        first.cluster.spoken(3) == of_the_folder(NEW)
    });
}

#[test]
fn a_folder_that_is_taken_as_it_is_keeps_nothing_of_the_others() {
    let net = Net(76);
    let (first, _second, _third) = without_the_third(net, NEW);
    let accepts = |options: &mut Options| options.accepts_folder = true;
    let first = again_with(net, 1, 2, stop(first), accepts);
    await_members(&first);
    assert_eq!(first.cluster.spoken(3), None);
    assert!(!first.cluster.all_speak(OLD));
    eventually("forgotten on the disk", || {
        kept(first.folder.path(), 3).is_none()
    });
    // Nor does a later start know it again.
    let first = again(net, 1, 3, stop(first));
    await_members(&first);
    assert_eq!(first.cluster.spoken(3), None);
}
