//! Nodes that speak no older version of the protocol than is required.

use super::node::{Net, Node, Stranger, Told, all_reach_all, eventually};
use crate::protocol::handshake::Purpose;
use crate::protocol::refusal::{Failure, Refusal};
use crate::state::connect_error::ConnectError;
use crate::{Channel, Options, VersionError, Versions};

const NEW: u16 = 3;
const OLD: u16 = 2;

fn speaks(oldest: u16, newest: u16) -> impl FnOnce(&mut Options) {
    move |options| options.protocol = Versions { oldest, newest }
}

fn versions_refused(node: &Node) -> u64 {
    let refusals = node.cluster.refusals();
    refusals.get("versions").copied().unwrap_or_default()
}

fn is_linked(node: &Node, other: u64) -> bool {
    let links = node.cluster.links();
    links
        .iter()
        .any(|link| link.node == other && link.connected)
}

fn connects(node: &Node, other: u64) -> usize {
    node.recorder
        .count(|told| matches!(told, Told::Connected(to, _, _) if *to == other))
}

/// One that knows the cluster, if `cluster` is not 0, and would be the node 9.
fn stranger(net: Net, cluster: u64, oldest: u16, newest: u16) -> Stranger {
    let folder = tempfile::tempdir().unwrap();
    let mut options = net.options(9, folder.path());
    speaks(oldest, newest)(&mut options);
    match cluster {
        0 => Stranger::new(options),
        cluster => Stranger::of(cluster, options),
    }
}

fn is_refused_for(error: &ConnectError, refuses: Versions, refused: Versions) -> bool {
    let expected = Refusal::Versions {
        ours: refuses,
        theirs: refused,
    };
    matches!(
        error,
        ConnectError::Failure(Failure::They { refusal, .. }) if *refusal == expected
    )
}

#[test]
fn links_of_an_older_version_end_and_both_sides_refuse() {
    let net = Net(77);
    let nodes = [
        Node::start_with(net, 1, speaks(1, NEW)),
        Node::start_with(net, 2, speaks(1, OLD)),
        Node::start_with(net, 3, speaks(1, NEW)),
    ];
    all_reach_all(&nodes);
    let [first, older, third] = nodes;
    let before = connects(&first, 3);
    first.cluster.require(NEW).unwrap();
    // It only rises.
    first.cluster.require(OLD).unwrap();
    for channel in Channel::ALL {
        for told in [
            Told::Disconnected(2, channel),
            Told::Incoming(2, channel, false),
        ] {
            eventually("its links end", || first.recorder.was_told(&told));
        }
    }
    // Each side has dialled the other one, and was refused.
    for node in [&first, &older] {
        let refused = versions_refused(node);
        eventually("refused again", || versions_refused(node) > refused);
    }
    assert!(!is_linked(&first, 2) && !is_linked(&older, 1));
    let protocol = first.cluster.protocol_version(2, Channel::Data);
    assert_eq!(protocol, None);
    // The others are as before: the node itself requires it, not the cluster.
    assert_eq!(connects(&first, 3), before);
    assert!(is_linked(&first, 3) && is_linked(&third, 2));
    assert_eq!(versions_refused(&third), 0);
}

#[test]
fn a_node_of_an_older_program_does_not_join() {
    let net = Net(78);
    let node = Node::start_with(net, 1, speaks(1, NEW));
    let identifier = node.cluster.identifier();
    let join = |cluster, oldest, newest| {
        let stranger = stranger(net, cluster, oldest, newest);
        stranger.dial(net.address(1), Purpose::Join)
    };
    eventually("it is ready", || join(0, 1, OLD).is_ok());
    node.cluster.require(NEW).unwrap();
    let versions = |oldest, newest| Versions { oldest, newest };
    for cluster in [0, identifier] {
        let error = join(cluster, 1, OLD).err().expect("it is refused");
        let refused = is_refused_for(&error, versions(NEW, NEW), versions(1, OLD));
        assert!(refused, "{error}");
    }
    eventually("counted", || versions_refused(&node) == 2);
    assert!(join(0, 1, NEW).is_ok());
    // The other way: it is dialled, and requires it from its first handshake on.
    let older = Node::start_with(Net(79), 1, speaks(1, OLD));
    let requiring = stranger(Net(79), 0, NEW, NEW);
    let error = requiring.failure(Net(79).address(1), Purpose::Join);
    let refused = is_refused_for(&error, versions(1, OLD), versions(NEW, NEW));
    assert!(refused, "{error}");
    eventually("counted", || versions_refused(&older) == 1);
}

/// A handshake is under way while the version is required.
#[test]
fn who_has_agreed_on_an_older_version_before_is_refused() {
    let net = Net(80);
    let folder = tempfile::tempdir().unwrap();
    let mut options = net.options(1, folder.path());
    speaks(1, NEW)(&mut options);
    let one = Stranger::of(7, options);
    let older = stranger(net, 7, 1, OLD);
    let (one, older) = (&one.shared, older.shared.party());
    let judge = || {
        let party = one.party();
        let (dialling, hello) = older.dial(Purpose::Join, None, [1; 32]);
        let (challenging, challenge) = party.answer(&hello, true, [2; 32]).unwrap();
        let (_, proof) = dialling.prove(&challenge).unwrap();
        challenging.check(&proof).unwrap()
    };
    let judging = judge();
    assert_eq!(one.judge(&judging.peer), Ok(()));
    one.versions.require(NEW).unwrap();
    let (ours, theirs) = (one.versions.get(), judging.peer.versions);
    let refusal = Err(Refusal::Versions { ours, theirs });
    assert_eq!(one.judge(&judging.peer), refusal);
    assert_eq!(one.greet(&judging.peer), refusal);
}

#[test]
fn a_version_that_the_node_does_not_speak_cannot_be_required() {
    let net = Net(81);
    let node = Node::start_with(net, 1, speaks(1, NEW));
    let (oldest, newest) = (NEW + 1, NEW);
    let error = node.cluster.require(oldest).unwrap_err();
    let left = Versions { oldest, newest };
    assert_eq!(error, VersionError { left });
    assert!(error.to_string().contains("none after 3"), "{error}");
    let older = stranger(net, node.cluster.identifier(), 1, 1);
    let dialled = older.dial(net.address(1), Purpose::Carry(Channel::Data));
    assert!(dialled.is_ok(), "nothing has changed");
}
