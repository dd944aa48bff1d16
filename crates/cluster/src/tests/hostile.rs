//! What comes to the port that should not, and peers that misbehave.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::node::{
    DEADLINE, Net, Node, Recorder, Stranger, Told, cluster_with, eventually, try_start,
};
use crate::links::connect::{accept, dial, write};
use crate::links::stream::Stream;
use crate::protocol::frame::FRAME_LIMIT;
use crate::protocol::handshake::{Identity, Party, Purpose};
use crate::protocol::refusal::{Failure, Refusal};
use crate::state::connect_error::ConnectError;
use crate::{Channel, Options, Secret, StartError, Unreachable, Versions};

const DATA: Purpose = Purpose::Carry(Channel::Data);

/// A node that is not started, but would be this one.
fn stranger(net: Net, cluster: u64, change: impl FnOnce(&mut Options)) -> Stranger {
    let folder = tempfile::tempdir().unwrap();
    let mut options = net.options(9, folder.path());
    change(&mut options);
    match cluster {
        0 => Stranger::new(options),
        cluster => Stranger::of(cluster, options),
    }
}

/// The member refuses, and both sides know why.
fn assert_refused(node: &Node, stranger: &Stranger, purpose: Purpose, reason: &'static str) {
    let address = node.cluster.shared.place().address.parse().unwrap();
    let error = stranger.failure(address, purpose);
    assert!(
        matches!(&error, ConnectError::Failure(Failure::They { .. })),
        "{error}"
    );
    assert_eq!(error.name(), reason);
    eventually("counted", || {
        node.cluster.refusals().get(reason) == Some(&1)
    });
}

#[test]
fn who_does_not_fit_is_refused() {
    let net = Net(30);
    let node = Node::start(net, 1);
    let identifier = node.cluster.identifier();
    let other_secret = stranger(net, 0, |options| {
        options.security.secret = Some(Secret::new(b"other".to_vec()));
    });
    assert_refused(&node, &other_secret, Purpose::Join, "secret");
    let other_env = stranger(net, identifier, |options| options.env = "Prod".to_owned());
    assert_refused(&node, &other_env, DATA, "env");
    let other_cluster = stranger(net, identifier ^ 1, |_| ());
    assert_refused(&node, &other_cluster, DATA, "cluster");
}

/// Connections from 127.77.x.y, but not to it, begin at 127.0.0.1: that is the public address here.
#[test]
fn a_public_address_is_refused_where_there_is_no_secret() {
    let net = Net(43);
    let is_private = |options: &mut Options| {
        options.security.secret = None;
        options.security.open_to = |address| address != Ipv4Addr::LOCALHOST;
    };
    let node = Node::start_with(net, 1, is_private);
    assert!(node.cluster.is_open());
    let accepting = stranger(net, 0, |options| {
        options.security.secret = None;
        options.security.open_to = |_| true;
    });
    let error = accepting.failure(net.address(1), Purpose::Join);
    assert!(matches!(error, ConnectError::Io(_)), "{error}");
    eventually("counted", || {
        node.cluster.refusals().get("publicAddress") == Some(&1)
    });
    // The other way it is not even dialled.
    let public: SocketAddr = (Ipv4Addr::LOCALHOST, net.address(1).port()).into();
    let error = stranger(net, 0, is_private).failure(public, Purpose::Join);
    assert_eq!(error.name(), "publicAddress");
    // With a secret, addresses do not count.
    let secret = Node::start_with(Net(44), 1, |options| {
        options.security.open_to = |address| address != Ipv4Addr::LOCALHOST;
    });
    assert!(!secret.cluster.is_open());
    let dialled = stranger(Net(44), 0, |_| ()).dial(Net(44).address(1), Purpose::Join);
    assert!(dialled.is_ok(), "{:?}", dialled.err());
}

#[test]
fn a_node_without_a_secret_does_not_start_at_a_public_address() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Net(45).options(1, folder.path());
    options.security.secret = None;
    options.security.open_to = |_| false;
    let error = try_start(options, folder).err().expect("it is refused");
    assert!(matches!(error, StartError::PublicHost(..)), "{error}");
    assert!(error.is_in_configuration());
    let message = error.to_string();
    assert!(
        message.contains("127.77.45.1") && message.contains("secretFile"),
        "{message}"
    );
}

#[test]
fn another_version_is_refused_with_words() {
    let net = Net(31);
    let node = Node::start(net, 1);
    let stranger = stranger(net, node.cluster.identifier(), |_| ());
    let theirs = Versions {
        oldest: 7,
        newest: 8,
    };
    let identity = Identity {
        env: "Test".to_owned(),
        cluster: node.cluster.identifier(),
        place: stranger.shared.place(),
        instance: 5,
        history: Default::default(),
        versions: theirs,
        founds: false,
    };
    let party = Party::new(identity, None);
    let (dialling, hello) = party.dial(DATA, None, [0; 32]);
    let mut stream = TcpStream::connect(net.address(1)).unwrap();
    stream
        .write_all(&u32::to_be_bytes(hello.len() as u32))
        .unwrap();
    stream.write_all(&hello).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let failure = dialling.prove(&answer[4..]).unwrap_err();
    let ours = Versions::FIRST;
    let refusal = Refusal::Versions { ours, theirs };
    let proven = false;
    assert_eq!(failure, Failure::They { refusal, proven });
    assert!(failure.to_string().contains("versions 7 to 8"), "{failure}");
}

#[test]
fn nobody_joins_through_a_node_that_is_not_open() {
    let net = Net(32);
    let folder = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::default());
    let node = crate::Cluster::start(net.options(1, folder.path()), recorder).unwrap();
    let failure = stranger(net, 0, |_| ()).failure(net.address(1), Purpose::Join);
    assert_eq!(failure.name(), "notReady");
    node.open();
    eventually("admitted", || {
        let dialled = stranger(net, 0, |_| ()).dial(net.address(1), Purpose::Join);
        dialled.is_ok_and(|dialled| dialled.admission.is_some())
    });
}

#[test]
fn garbage_and_half_open_connections_do_no_harm() {
    let net = Net(33);
    let nodes = cluster_with(net, 2, |options| {
        options.timings.handshake = Duration::from_millis(500);
    });
    let half_open: Vec<_> = (0..200)
        .map(|_| TcpStream::connect(net.address(1)).unwrap())
        .collect();
    for reason in ["displaced", "timedOut"] {
        eventually("given up", || {
            nodes[0].cluster.refusals().contains_key(reason)
        });
    }
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0xFF; 64]] {
        let mut stream = TcpStream::connect(net.address(1)).unwrap();
        // It may be closed before all is written.
        let _ = stream.write_all(garbage);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    eventually("refused", || {
        nodes[0]
            .cluster
            .refusals()
            .get("malformed")
            .is_some_and(|&count| count >= 3)
    });
    assert!(nodes[1].cluster.send(1, Channel::Data, "still".into()));
    eventually("still served", || {
        nodes[0].recorder.messages(2, Channel::Data) == ["still"]
    });
    drop(half_open);
}

#[test]
fn silent_connections_keep_no_node_out() {
    let net = Net(62);
    let node = Node::start_with(net, 1, |options| {
        options.timings.handshake = Duration::from_secs(600);
    });
    // More than the kernel's queue and the limit hold, and each open until it is displaced.
    let silent: Vec<_> = (0..300)
        .map(|_| TcpStream::connect(net.address(1)).unwrap())
        .collect();
    let stranger = stranger(net, node.cluster.identifier(), |_| ());
    let dialled = stranger.dial(net.address(1), DATA);
    assert!(dialled.is_ok());
    drop(silent);
}

#[test]
fn gossip_without_the_key_is_dropped() {
    let net = Net(34);
    let node = Node::start(net, 1);
    let socket = UdpSocket::bind((net.host(5), 0)).unwrap();
    eventually("dropped", || {
        socket.send_to(&[1; 100], net.address(1)).unwrap();
        node.cluster.gossip_dropped() > 0
    });
    assert_eq!(node.cluster.members().nodes.len(), 1);
}

#[test]
fn a_frame_above_the_limit_ends_the_connection() {
    let net = Net(35);
    let node = Node::start_with(net, 1, |options| {
        options.timings.silence = Duration::from_secs(600);
    });
    for (head, incarnation) in [(FRAME_LIMIT as u32 + 1, 1), (u32::MAX, 2)] {
        let stranger = stranger(net, node.cluster.identifier(), |options| {
            options.incarnation = incarnation;
        });
        let mut stream = stranger.dial(net.address(1), DATA).ok().unwrap().stream;
        stranger.runtime.block_on(async {
            stream.write_u32(head).await.unwrap();
            // Keep-alives, then the end.
            let keep_alives =
                async { while stream.read_u32().await.is_ok_and(|length| length == 0) {} };
            tokio::time::timeout(DEADLINE, keep_alives).await.unwrap();
        });
        let ended = Told::Incoming(9, Channel::Data, false);
        eventually("ended", || node.recorder.was_told(&ended));
        node.recorder.told.lock().clear();
    }
    assert!(
        !node
            .cluster
            .send(1, Channel::Data, Bytes::from(vec![0; FRAME_LIMIT]))
    );
}

struct Deaf {
    /// Its own connection.
    dialled: Option<Stream>,
    /// That of the node.
    _taken: Stream,
    _runtime: Runtime,
}

/// A member that takes one connection of the node's, on Raft, and never reads.
fn deaf(net: Net, node: &Node) -> Deaf {
    let Stranger { shared, runtime } = stranger(net, node.cluster.identifier(), |_| ());
    shared.is_serving.store(true, Relaxed);
    let listener = runtime.block_on(TcpListener::bind(net.address(9))).unwrap();
    // The node hears of it, and dials.
    let raft = Purpose::Carry(Channel::Raft);
    let dialling = dial(&shared, net.address(1), "", raft, None);
    let dialled = runtime.block_on(dialling).ok().unwrap();
    let taken = runtime.block_on(async {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let Ok(mut accepted) = accept(&shared, tcp, Ipv4Addr::LOCALHOST.into()).await else {
                continue;
            };
            if accepted.judging.purpose == raft {
                let verdict = accepted.judging.verdict(Ok(None));
                write(&mut accepted.stream, &verdict).await.unwrap();
                return accepted.stream;
            }
        }
    });
    Deaf {
        dialled: Some(dialled.stream),
        _taken: taken,
        _runtime: runtime,
    }
}

#[test]
fn a_queue_above_its_limit_ends_the_connection() {
    let net = Net(36);
    let node = Node::start_with(net, 1, |options| {
        options.timings.stall = Duration::from_secs(600);
        options.timings.silence = Duration::from_secs(600);
    });
    let _deaf = deaf(net, &node);
    let raft = |told: &Told| matches!(told, Told::Connected(9, Channel::Raft, _));
    eventually("connected", || node.recorder.count(raft) == 1);
    let message = Bytes::from(vec![0; 1024 * 1024]);
    let mut sent = 0;
    while node.cluster.send(9, Channel::Raft, message.clone()) {
        sent += 1;
        assert!(sent < 1000, "the queue has no limit");
    }
    assert!(sent >= 15);
    let lost = Told::Disconnected(9, Channel::Raft);
    eventually("given up", || node.recorder.was_told(&lost));
    assert_eq!(node.cluster.queued_bytes(9, Channel::Raft), 0);
}

#[test]
fn a_peer_that_takes_no_bytes_is_given_up() {
    let net = Net(37);
    let node = Node::start_with(net, 1, |options| {
        options.timings.stall = Duration::from_millis(500);
        options.timings.silence = Duration::from_secs(600);
    });
    let _deaf = deaf(net, &node);
    eventually("sent", || {
        let message = Bytes::from(vec![0; 8 * 1024 * 1024]);
        node.cluster.send(9, Channel::Raft, message)
    });
    let lost = Told::Disconnected(9, Channel::Raft);
    eventually("given up", || node.recorder.was_told(&lost));
}

#[test]
fn a_call_fails_with_the_connection_that_its_answer_would_come_on() {
    let net = Net(39);
    let node = Node::start_with(net, 1, |options| {
        options.timings.silence = Duration::from_secs(600);
    });
    let mut deaf = deaf(net, &node);
    let call = || node.cluster.call(9, Channel::Raft, Bytes::new(), DEADLINE);
    let is_connected = |told: &Told| matches!(told, Told::Connected(9, Channel::Raft, _));
    eventually("connected", || node.recorder.count(is_connected) == 1);
    let waiting = call();
    drop(deaf.dialled.take());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert_eq!(runtime.block_on(waiting), Err(Unreachable::ConnectionLost));
    assert_eq!(runtime.block_on(call()), Err(Unreachable::NotConnected));
    assert!(node.cluster.send(9, Channel::Raft, "x".into()));
}

#[test]
fn a_later_connection_takes_the_place_of_the_earlier() {
    let net = Net(29);
    let node = Node::start_with(net, 1, |options| {
        options.timings.silence = Duration::from_secs(600);
    });
    let stranger = stranger(net, node.cluster.identifier(), |_| ());
    let mut earlier = stranger.dial(net.address(1), DATA).ok().unwrap().stream;
    let _later = stranger.dial(net.address(1), DATA).ok().unwrap().stream;
    stranger.runtime.block_on(async {
        let keep_alives = async { while earlier.read_u32().await.is_ok() {} };
        tokio::time::timeout(DEADLINE, keep_alives).await.unwrap();
    });
    let incoming = || {
        let told = node.recorder.told.lock().clone();
        let ups = told.into_iter().filter_map(|told| match told {
            Told::Incoming(9, Channel::Data, up) => Some(up),
            _ => None,
        });
        ups.collect::<Vec<_>>()
    };
    eventually("both were told", || incoming().len() >= 3);
    assert_eq!(incoming(), [true, false, true]);
}

#[test]
fn a_silent_peer_is_given_up() {
    let net = Net(38);
    let node = Node::start(net, 1);
    let _deaf = deaf(net, &node);
    // It reads nothing and says nothing; the keep-alives of the node find room.
    let lost = Told::Disconnected(9, Channel::Raft);
    eventually("given up", || node.recorder.was_told(&lost));
}
