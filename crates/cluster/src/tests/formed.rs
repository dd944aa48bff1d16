//! Forming a cluster, talking in it, leaving it and coming back.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::node::{Net, Node, Told, all_reach_all, cluster, eventually, try_start};
use crate::{Channel, Reach, StartError, State, Unreachable, Versions};

const LIMIT: Duration = Duration::from_secs(20);

fn numbered(count: u32) -> Vec<Bytes> {
    (0..count)
        .map(|number| Bytes::from(number.to_string()))
        .collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(future)
}

#[test]
fn nodes_join_in_any_order_and_see_each_other() {
    let net = Net(1);
    // They wait for the first, which is not there yet.
    let waiting: Vec<_> = [3, 2]
        .map(|node| thread::spawn(move || Node::start(net, node)))
        .into();
    let mut nodes = vec![Node::start(net, 1)];
    nodes.extend(waiting.into_iter().map(|node| node.join().unwrap()));
    all_reach_all(&nodes);
    let identifier = nodes[0].cluster.identifier();
    for node in &nodes {
        assert_eq!(node.cluster.identifier(), identifier);
        assert_eq!(node.cluster.members().nodes.len(), 3);
        let second = node.member(2).unwrap();
        assert_eq!(second.address, net.address(2).to_string());
        assert_eq!((second.incarnation, &*second.version), (1, "1.0"));
        assert_eq!(second.info["http"], "2:8080");
    }
    assert_eq!(nodes[0].cluster.welcome(), None);
    let welcome = Bytes::from_static(b"three shards");
    assert_eq!(nodes[1].cluster.welcome(), Some(welcome.clone()));
    assert!(nodes[1].recorder.was_told(&Told::Welcomed(welcome)));
}

#[test]
fn messages_arrive_in_order_both_ways() {
    let nodes = cluster(Net(2), 2);
    let messages = numbered(20_000);
    for channel in Channel::ALL {
        for message in &messages {
            assert!(nodes[0].cluster.send(2, channel, message.clone()));
            assert!(nodes[1].cluster.send(1, channel, message.clone()));
        }
    }
    for channel in Channel::ALL {
        for (receiver, from) in [(&nodes[0], 2), (&nodes[1], 1)] {
            let received = || receiver.recorder.messages(from, channel);
            eventually("all messages", || received().len() == messages.len());
            assert!(received() == messages);
        }
    }
    let links = nodes[0].cluster.links();
    assert!(
        links
            .iter()
            .all(|link| link.sent_frames == 20_000 && link.queued_bytes == 0)
    );
    assert!(!nodes[0].cluster.send(9, Channel::Data, Bytes::new()));
}

#[test]
fn long_messages_arrive_among_short_ones() {
    let nodes = cluster(Net(3), 2);
    let messages: Vec<_> = [1, 40_000, 3, 20_000_000, 0, 300_000]
        .map(|length| Bytes::from(vec![length as u8; length]))
        .into();
    for message in &messages {
        assert!(nodes[0].cluster.send(2, Channel::Bulk, message.clone()));
    }
    let received = || nodes[1].recorder.messages(1, Channel::Bulk);
    eventually("all messages", || received().len() == messages.len());
    assert!(received() == messages);
}

#[test]
fn calls_are_answered_or_fail_with_a_reason() {
    let nodes = cluster(Net(4), 2);
    let call = |request: &'static str, limit| {
        let request = Bytes::from_static(request.as_bytes());
        let channel = Channel::Raft;
        nodes[0].cluster.call(2, channel, request, limit)
    };
    let (second, first) = (call("b", LIMIT), call("a", LIMIT));
    assert_eq!(block_on(first), Ok("a".into()));
    assert_eq!(block_on(second), Ok("b".into()));
    assert_eq!(block_on(call("silence", LIMIT)), Err(Unreachable::NoAnswer));
    let short = Duration::from_millis(50);
    assert_eq!(block_on(call("keep", short)), Err(Unreachable::TimedOut));
    let nobody = nodes[0].cluster.call(9, Channel::Raft, Bytes::new(), LIMIT);
    assert_eq!(block_on(nobody), Err(Unreachable::NotConnected));

    let lost = call("keep", LIMIT);
    eventually("the request is there", || {
        nodes[1].recorder.kept.lock().len() == 2
    });
    nodes[1].cluster.stop();
    assert_eq!(block_on(lost), Err(Unreachable::ConnectionLost));
}

#[test]
fn a_node_that_was_started_again_takes_its_own_place() {
    let net = Net(5);
    let mut nodes = cluster(net, 3);
    let connects = |node: &Node| {
        node.recorder
            .count(|told| matches!(told, Told::Connected(2, Channel::Data, _)))
    };
    assert_eq!(connects(&nodes[0]), 1);
    // Without seeds it finds the others in its file.
    let second = nodes.remove(1).restart(net, 2);
    nodes.insert(1, second);
    for node in [&nodes[0], &nodes[2]] {
        eventually("the new incarnation", || {
            node.member(2).is_some_and(|member| member.incarnation == 2)
        });
        eventually("connected again", || connects(node) == 2);
        assert!(
            node.recorder
                .was_told(&Told::Disconnected(2, Channel::Data))
        );
        assert!(
            node.recorder
                .was_told(&Told::Incoming(2, Channel::Data, false))
        );
    }
    all_reach_all(&nodes);
    assert!(nodes[0].cluster.send(2, Channel::Data, "again".into()));
    eventually("the message", || {
        nodes[1].recorder.messages(1, Channel::Data) == ["again"]
    });
    let told = nodes[0].recorder.told.lock().clone();
    let sessions: Vec<_> = told
        .iter()
        .filter_map(|told| match told {
            Told::Connected(2, Channel::Data, session) => Some(*session),
            _ => None,
        })
        .collect();
    assert!(sessions.is_sorted_by(|earlier, later| earlier < later));
}

#[test]
fn a_whole_cluster_starts_again_without_seeds() {
    let net = Net(6);
    let nodes = cluster(net, 3);
    for node in &nodes {
        eventually("the file is written", || {
            let record = node.cluster.shared.read_record().unwrap().unwrap();
            record.members.len() == 2
        });
    }
    let identifier = nodes[0].cluster.identifier();
    for node in &nodes {
        node.cluster.stop();
    }
    let nodes: Vec<_> = nodes
        .into_iter()
        .zip(1..)
        .map(|(node, number)| node.restart(net, number))
        .collect();
    all_reach_all(&nodes);
    assert!(
        nodes
            .iter()
            .all(|node| node.cluster.identifier() == identifier)
    );
}

#[test]
fn whose_process_has_ended_is_down_at_once() {
    let net = Net(7);
    let nodes = cluster(net, 3);
    nodes[2].cluster.stop_in_order();
    let is_down = |node: u64| {
        let member = nodes[0].member(node).unwrap();
        matches!(member.reach, Reach::Down { .. })
    };
    eventually("down", || is_down(3));
    assert_eq!(nodes[0].member(3).unwrap().state, State::Stopping);
    nodes[1].cluster.stop();
    eventually("the end", || {
        let reach = nodes[0].member(2).unwrap().reach;
        matches!(
            reach,
            Reach::Down {
                has_ended: true,
                ..
            }
        )
    });
    assert_eq!(nodes[0].member(2).unwrap().state, State::Up);
}

#[test]
fn what_a_node_tells_is_seen_by_all() {
    let nodes = cluster(Net(8), 2);
    nodes[1].cluster.set_state(State::Draining);
    nodes[1].cluster.set_info("mqtt", "a:1883").unwrap();
    eventually("the news", || {
        let member = nodes[0].member(2).unwrap();
        member.state == State::Draining && member.info.get("mqtt").is_some_and(|at| at == "a:1883")
    });
    let long = "x".repeat(crate::INFO_LIMIT);
    assert!(nodes[1].cluster.set_info("long", &long).is_err());
    let own = nodes[1].member(2).unwrap();
    assert_eq!(own.reach, Reach::Up);
    assert!(!own.info.contains_key("long"));
}

#[test]
fn keep_alives_are_heard() {
    let nodes = cluster(Net(9), 2);
    let heard = nodes[0].cluster.last_heard(2).unwrap();
    let before = nodes[0].cluster.last_heard_ms(2).unwrap();
    eventually("a keep-alive", || heard.load(Relaxed) > before);
    assert!(nodes[0].cluster.last_heard_ms(2).unwrap() <= nodes[0].cluster.now_ms());
    assert_eq!(nodes[0].cluster.last_heard_ms(9), None);
}

#[test]
fn a_node_that_knows_nobody_says_what_to_set() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Net(10).options(2, folder.path());
    options.seeds.clear();
    let error = try_start(options, folder).err().unwrap().to_string();
    assert!(error.contains("clusterConfig.seedEndpoints"), "{error}");
}

#[test]
fn a_node_that_waits_for_a_member_can_give_up() {
    let folder = tempfile::tempdir().unwrap();
    let options = Net(13).options(2, folder.path());
    let give_up = options.give_up.clone();
    let waiting = thread::spawn(move || try_start(options, folder).err().unwrap());
    give_up.store(true, Relaxed);
    let error = waiting.join().unwrap();
    assert!(matches!(error, StartError::GivenUp), "{error}");
}

#[test]
fn nothing_is_taken_after_the_end() {
    let nodes = cluster(Net(14), 2);
    let waits = nodes[0]
        .cluster
        .call(2, Channel::Raft, "keep".into(), LIMIT);
    nodes[0].cluster.stop();
    assert_eq!(block_on(waits), Err(Unreachable::ConnectionLost));
    assert!(!nodes[0].cluster.send(2, Channel::Data, "x".into()));
}

#[test]
fn the_environment_of_a_member_cannot_be_changed() {
    let net = Net(11);
    let node = Node::start(net, 1);
    node.cluster.stop();
    let mut options = net.options(1, node.folder.path());
    options.env = "Prod".to_owned();
    let error = try_start(options, node.folder).err().unwrap().to_string();
    assert!(error.contains("environment `Test`"), "{error}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let net = Net(12);
    let _node = Node::start(net, 1);
    let folder = tempfile::tempdir().unwrap();
    let options = net.options(1, folder.path());
    let error = try_start(options, folder).err().unwrap().to_string();
    assert!(error.contains("127.77.12.1:8899"), "{error}");
}

#[test]
fn nodes_speak_the_highest_version_that_both_know() {
    let net = Net(15);
    let versions = [(1, 2), (1, 3), (2, 2)];
    let mut nodes = Vec::new();
    for (node, (oldest, newest)) in (1..).zip(versions) {
        nodes.push(Node::start_with(net, node, |options| {
            options.protocol = Versions { oldest, newest };
        }));
    }
    all_reach_all(&nodes);
    for (node, other) in [(0, 2), (0, 3), (1, 1), (1, 3), (2, 1), (2, 2)] {
        let agreed = nodes[node].cluster.protocol_version(other, Channel::Data);
        assert_eq!(agreed, Some(2), "{node} to {other}");
    }
    assert_eq!(nodes[0].cluster.protocol_version(9, Channel::Data), None);
    assert!(
        nodes[0]
            .cluster
            .send(2, Channel::Data, Bytes::from_static(b"a"))
    );
    let told = |version| Told::Version(1, Channel::Data, version);
    eventually("told the version", || nodes[1].recorder.was_told(&told(2)));
}
