//! Nodes that are refused for ever, and processes that come too late or twice.

use super::node::{Net, Node, Stranger, Told, cluster, eventually};
use crate::protocol::handshake::Purpose;
use crate::protocol::refusal::{Failure, Refusal};
use crate::state::connect_error::ConnectError;
use crate::{Channel, EvictError, ShutOut};

const DATA: Purpose = Purpose::Carry(Channel::Data);

fn is_proven(error: &ConnectError, expected: &Refusal) -> bool {
    matches!(
        error,
        ConnectError::Failure(Failure::They { refusal, proven: true }) if refusal == expected
    )
}

#[test]
fn an_evicted_node_is_refused_by_all_for_ever() {
    let net = Net(20);
    let mut nodes = cluster(net, 3);
    let third = nodes.pop().unwrap();
    nodes[0].cluster.evict(3).unwrap();
    for node in &nodes {
        eventually("evicted", || {
            let members = node.cluster.members();
            members.evicted.contains(&3) && !members.nodes.contains_key(&3)
        });
        for told in [
            Told::Disconnected(3, Channel::Data),
            Told::Incoming(3, Channel::Data, false),
        ] {
            eventually("its links end", || node.recorder.was_told(&told));
        }
        assert!(!node.cluster.send(3, Channel::Data, "x".into()));
    }
    let shut_out = Told::ShutOut(ShutOut::Evicted);
    eventually("shut out", || third.recorder.was_told(&shut_out));
    third.cluster.stop();

    let second = nodes.pop().unwrap();
    eventually("the file is written", || {
        let record = second.cluster.shared.read_record().unwrap().unwrap();
        record.evicted.contains(&3)
    });
    let second = second.restart(net, 2);
    let identifier = second.cluster.identifier();
    let folder = tempfile::tempdir().unwrap();
    let mut options = net.options(3, folder.path());
    options.incarnation = 9;
    let stranger = Stranger::of(identifier, options);
    for purpose in [DATA, Purpose::Join] {
        let failure = stranger.failure(net.address(2), purpose);
        assert!(is_proven(&failure, &Refusal::Evicted), "{failure}");
    }
    eventually("counted", || {
        second.cluster.refusals().get("evicted") == Some(&2)
    });
}

#[test]
fn a_node_does_not_evict_itself() {
    let node = Node::start(Net(21), 1);
    assert!(matches!(node.cluster.evict(1), Err(EvictError::Itself)));
}

#[test]
fn the_higher_incarnation_wins_and_the_other_is_told() {
    let net = Net(22);
    let nodes = cluster(net, 2);
    let identifier = nodes[0].cluster.identifier();
    let folder = tempfile::tempdir().unwrap();
    let shown = nodes[1].cluster.shared.stamps.lock().clone();
    let stranger = |incarnation| {
        let mut options = net.options(2, folder.path());
        options.incarnation = incarnation;
        let stranger = Stranger::of(identifier, options);
        *stranger.shared.stamps.lock() = shown.clone();
        stranger.shared.keep_stamps().unwrap();
        stranger
    };
    let earlier = stranger(0).failure(net.address(1), DATA);
    let incarnation = 1;
    assert!(
        is_proven(&earlier, &Refusal::Replaced { incarnation }),
        "{earlier}"
    );
    let twin = stranger(1).failure(net.address(1), DATA);
    assert!(is_proven(&twin, &Refusal::Twin), "{twin}");

    let _connection = stranger(2).dial(net.address(1), DATA).ok().unwrap();
    let replaced = Told::ShutOut(ShutOut::Replaced);
    eventually("replaced", || nodes[1].recorder.was_told(&replaced));
    // The earlier process still keeps its connections up.
    for told in [
        Told::Disconnected(2, Channel::Raft),
        Told::Incoming(2, Channel::Raft, false),
    ] {
        eventually("its links end", || nodes[0].recorder.was_told(&told));
    }
}
