//! Three brokers in one process, connected by queues that can be cut, and clients on Unix sockets: what takes two whole
//! nodes. What one node does about others is in the dialogues of `broker-core/src/tests/peers.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use bytes::Bytes;
use config::{Config, TcpListenerConfig, UnixListenerConfig};
use mqtt_proto::{PacketType, peek_frame};
use parking_lot::Mutex;
use peer_protocol::Kind;
use route_exchange::{NodeId, Times};
use store::Folder;

use super::{Carrier, PeerLinks, dispatch};
use crate::Broker;
use crate::node::Node;
use broker_core::Place;
use broker_core::{BrokerStats, sum};

const NODES: usize = 3;

/// What all of them speak.
const VERSION: u16 = *peer_protocol::VERSIONS.end();

/// For tests that are not about silence, which a busy machine must not bring about.
const PATIENT: Times = Times {
    lease_ms: 60_000,
    silence_ms: 120_000,
};

/// More than the silence after which a node is not waited for.
const DEADLINE: Duration = Duration::from_secs(20);

/// The queues between the nodes.
#[derive(Default)]
struct Wires {
    /// Directions in which nothing gets through, and senders are told so.
    cut: Mutex<BTreeSet<(NodeId, NodeId)>>,
    /// What waits in directions that stand still.
    stalled: Mutex<BTreeMap<(NodeId, NodeId), Vec<Bytes>>>,
}

/// What happens between nodes, in the order in which it does.
enum Event {
    Bytes(NodeId, NodeId, Bytes),
    Node(NodeId, Arc<Node>),
    Connected(NodeId, NodeId),
    Disconnected(NodeId, NodeId),
}

struct End {
    node: NodeId,
    wires: Arc<Wires>,
    events: Sender<Event>,
}

impl Carrier for End {
    fn version(&self, _: NodeId) -> Option<u16> {
        Some(VERSION)
    }

    fn send(&self, to: NodeId, bytes: Bytes) -> bool {
        if self.wires.cut.lock().contains(&(self.node, to)) {
            return false;
        }
        if let Some(stalled) = self.wires.stalled.lock().get_mut(&(self.node, to)) {
            stalled.push(bytes);
            return true;
        }
        self.events.send(Event::Bytes(self.node, to, bytes)).is_ok()
    }

    fn send_at_once(&self, to: NodeId, bytes: Bytes) -> bool {
        self.send(to, bytes)
    }

    fn queued_bytes(&self, _: NodeId) -> usize {
        0
    }
}

/// Carries events until all senders are gone.
fn carry(events: &Receiver<Event>) {
    let mut nodes: BTreeMap<NodeId, Arc<Node>> = BTreeMap::new();
    for event in events {
        match event {
            Event::Node(id, node) => {
                nodes.insert(id, node);
            }
            Event::Bytes(from, to, bytes) => {
                let read = nodes.get(&to).map_or(Ok(()), |node| {
                    dispatch::receive(node, from, VERSION, &bytes)
                });
                read.expect("nodes understand each other");
            }
            Event::Connected(from, to) => {
                if let Some(node) = nodes.get(&from) {
                    node.with_peers(|peers, node| peers.connected(node, to));
                }
            }
            Event::Disconnected(from, to) => {
                if let Some(node) = nodes.get(&from) {
                    node.with_peers(|peers, node| peers.disconnected(node, to));
                }
                if let Some(node) = nodes.get(&to) {
                    node.with_peers(|peers, node| peers.lost(node, from));
                }
            }
        }
    }
}

struct Nodes {
    /// Each leads the shards of a store of its own.
    ids: Vec<NodeId>,
    brokers: Vec<Broker>,
    wires: Arc<Wires>,
    events: Sender<Event>,
    folder: tempfile::TempDir,
}

impl Nodes {
    fn start() -> Self {
        Self::with(PATIENT)
    }

    fn with(times: Times) -> Self {
        Self::configured(times, |_| {})
    }

    /// `configure`: each node.
    fn configured(times: Times, configure: impl Fn(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let wires = Arc::new(Wires::default());
        let (events, received) = mpsc::channel();
        std::thread::spawn(move || carry(&received));
        let mut brokers = Vec::new();
        let ids: Vec<NodeId> = (0..NODES).map(|node| id_of(folder.path(), node)).collect();
        for (number, node) in ids.iter().copied().enumerate() {
            let place = Place {
                node,
                incarnation: 1,
                times,
                links: PeerLinks(Box::new(End {
                    node,
                    wires: Arc::clone(&wires),
                    events: events.clone(),
                })),
            };
            let others: Vec<NodeId> = ids.iter().copied().filter(|other| *other != node).collect();
            let mut config = config(&folder.path().join(number.to_string()));
            configure(&mut config);
            let connect = |of: &Arc<Node>| {
                of.with_peers(|peers, node| peers.members(node, &others));
                events.send(Event::Node(node, Arc::clone(of))).unwrap();
            };
            brokers.push(Broker::start_among(&config, place, connect).unwrap());
        }
        let nodes = Self {
            ids,
            brokers,
            wires,
            events,
            folder,
        };
        for from in nodes.ids.iter().copied() {
            for to in nodes.ids.iter().copied().filter(|to| *to != from) {
                nodes.event(Event::Connected(from, to));
            }
        }
        for node in 0..NODES {
            wait_for("all to be known", || {
                nodes.broker(node).routes.unsure() == (0, 0)
            });
        }
        nodes
    }

    fn event(&self, event: Event) {
        self.events.send(event).unwrap();
    }

    fn broker(&self, node: usize) -> &Node {
        &self.brokers[node].node
    }

    fn peers(&self, node: usize, f: impl FnOnce(&broker_core::Peers<PeerLinks>, &Node)) {
        self.broker(node).with_peers(f);
    }

    fn client(&self, node: usize, id: &str) -> Client {
        Client::connect(&self.folder.path().join(node.to_string()), id)
    }

    fn unreleased(&self, node: usize, id: &str) -> mqtt_session::PacketIdSet {
        self.broker(node).unreleased.before(id, u64::MAX)
    }

    /// A client of a session that outlives its connection, whose CONNECT is not waited for.
    fn knocks(&self, node: usize, id: &str) -> Client {
        Client::connecting(&self.folder.path().join(node.to_string()), id, false)
    }

    /// Has the next CONNECT of a client of a session that outlives its connection wait until `node` hears others
    /// again: the session has a publication of QoS 2 that is not released, and this process has forgotten who has it.
    fn have_wait(&self, node: usize, id: &str) {
        let mut client = self.durable(node, id, [0, 0]);
        client.send_message("t", "once", 2);
        client.next(PacketType::PubRec);
        drop(client);
        wait_for("the connection to be gone", || {
            !self.unreleased(node, id).is_empty()
        });
        self.broker(node).unreleased.forget(id, u64::MAX);
        self.stall(node, (node + 1) % NODES);
    }

    /// A client of a session that outlives its connection.
    fn durable(&self, node: usize, id: &str, answer: [u8; 2]) -> Client {
        let folder = self.folder.path().join(node.to_string());
        Client::connected(&folder, id, false, answer)
    }

    fn count(&self, node: usize, pick: fn(&BrokerStats) -> &net_api::Counter) -> u64 {
        sum(&self.broker(node).stats, pick)
    }

    /// Nothing arrives from one node at another, and nobody is told.
    fn stall(&self, from: usize, to: usize) {
        let direction = (self.ids[from], self.ids[to]);
        self.wires.stalled.lock().insert(direction, Vec::new());
    }

    fn go_on(&self, from: usize, to: usize) {
        self.go_on_without(from, to, |_| false);
    }

    /// What waits gets through, but for what is lost.
    fn go_on_without(&self, from: usize, to: usize, is_lost: impl Fn(&Bytes) -> bool) {
        let mut stalled = self.wires.stalled.lock();
        let (from, to) = (self.ids[from], self.ids[to]);
        let waiting = stalled.remove(&(from, to)).unwrap_or_default();
        for bytes in waiting.into_iter().filter(|bytes| !is_lost(bytes)) {
            self.event(Event::Bytes(from, to, bytes));
        }
    }

    /// What waits in a direction that stands still.
    fn stalled(&self, from: usize, to: usize) -> Vec<Bytes> {
        let stalled = self.wires.stalled.lock();
        let direction = (self.ids[from], self.ids[to]);
        stalled.get(&direction).cloned().unwrap_or_default()
    }

    /// A node is not reached any more, and reaches nobody.
    fn cut_off(&self, node: usize) {
        let gone = self.ids[node];
        for other in self.ids.iter().copied().filter(|other| *other != gone) {
            for (from, to) in [(gone, other), (other, gone)] {
                self.wires.cut.lock().insert((from, to));
                self.event(Event::Disconnected(from, to));
            }
        }
    }
}

/// The identifier that a node's data folder gives it.
fn id_of(folder: &std::path::Path, node: usize) -> NodeId {
    let config = config(&folder.join(node.to_string()));
    Folder::open(&config.data_dir).unwrap().node()
}

fn config(folder: &std::path::Path) -> Config {
    std::fs::create_dir_all(folder).unwrap();
    let mut config = Config {
        data_dir: folder.join("data"),
        event_loops: std::num::NonZeroU8::new(2).map(Into::into),
        ..Config::default()
    };
    config.http.enable = false;
    config.limits.session.queue_messages = 1_000;
    config.mqtt_server_config.tcp_listeners = Vec::<TcpListenerConfig>::new();
    let unix = UnixListenerConfig {
        path: socket(folder),
        ..UnixListenerConfig::default()
    };
    config.mqtt_server_config.unix_listeners = vec![unix];
    config
}

fn socket(folder: &std::path::Path) -> PathBuf {
    folder.join("mqtt")
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A client of MQTT 3.1.1 with a clean session.
struct Client {
    stream: UnixStream,
    read: Vec<u8>,
    last_packet_id: u16,
}

impl Client {
    fn connect(folder: &std::path::Path, id: &str) -> Self {
        Self::connected(folder, id, true, [0, 0])
    }

    /// `clean`: a clean session. `answer`: Session Present, and the return code.
    fn connected(folder: &std::path::Path, id: &str, clean: bool, answer: [u8; 2]) -> Self {
        let mut client = Self::connecting(folder, id, clean);
        assert_eq!(client.next(PacketType::ConnAck), answer);
        client
    }

    /// Only sends CONNECT.
    fn connecting(folder: &std::path::Path, id: &str, clean: bool) -> Self {
        let stream = UnixStream::connect(socket(folder)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut client = Self {
            stream,
            read: Vec::new(),
            last_packet_id: 0,
        };
        let mut body = b"\x00\x04MQTT\x04\x02\x00\x00".to_vec();
        body[7] = u8::from(clean) << 1;
        body.extend(text(id));
        client.send(0x10, &body);
        client
    }

    fn send(&mut self, first: u8, body: &[u8]) {
        let mut packet = vec![first];
        let mut left = body.len();
        loop {
            let more = if left > 127 { 128 } else { 0 };
            packet.push((left % 128) as u8 | more);
            left /= 128;
            if left == 0 {
                break;
            }
        }
        packet.extend_from_slice(body);
        self.stream.write_all(&packet).unwrap();
    }

    fn packet_id(&mut self) -> [u8; 2] {
        self.last_packet_id += 1;
        self.last_packet_id.to_be_bytes()
    }

    fn ask_for(&mut self, filter: &str, qos: u8) {
        let body = [&self.packet_id()[..], &text(filter), &[qos]].concat();
        self.send(0x82, &body);
    }

    fn subscribe(&mut self, filter: &str, qos: u8) {
        self.ask_for(filter, qos);
        assert_eq!(self.next(PacketType::SubAck)[2], qos);
    }

    /// Publishes, without waiting for the acknowledgement.
    fn send_message(&mut self, topic: &str, payload: &str, qos: u8) {
        let mut body = text(topic);
        if qos > 0 {
            body.extend(self.packet_id());
        }
        body.extend(payload.as_bytes());
        self.send(0x30 | qos << 1, &body);
    }

    fn publish(&mut self, topic: &str, payload: &str, qos: u8) {
        self.send_message(topic, payload, qos);
        if qos > 0 {
            self.next(PacketType::PubAck);
        }
    }

    /// The body of the next packet, which must be of this type.
    fn next(&mut self, wanted: PacketType) -> Vec<u8> {
        let (packet, _, body) = self.packet().expect("a packet comes in time");
        assert_eq!(packet, wanted, "{body:?}");
        body
    }

    /// The payload of the next message, and its packet identifier.
    fn message(&mut self) -> (String, Vec<u8>) {
        let (packet, flags, body) = self.packet().expect("a message comes in time");
        assert_eq!(packet, PacketType::Publish);
        let topic = usize::from(u16::from_be_bytes([body[0], body[1]]));
        let id = if flags & 0b110 == 0 { 0 } else { 2 };
        let (id, payload) = body[2 + topic..].split_at(id);
        (String::from_utf8(payload.to_vec()).unwrap(), id.to_vec())
    }

    fn acknowledge(&mut self, packet_id: &[u8]) {
        self.send(0x40, packet_id);
    }

    /// `None`: nothing came in time.
    fn packet(&mut self) -> Option<(PacketType, u8, Vec<u8>)> {
        loop {
            if let Some(frame) = peek_frame(&self.read, None).unwrap()
                && self.read.len() >= frame.len()
            {
                let packet: Vec<u8> = self.read.drain(..frame.len()).collect();
                let header = 1 + packet[1..].iter().position(|byte| *byte < 128).unwrap() + 1;
                return Some((frame.packet_type, frame.flags, packet[header..].to_vec()));
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(n) if n > 0 => self.read.extend_from_slice(&buffer[..n]),
                _ => return None,
            }
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u16).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

#[test]
fn messages_reach_subscribers_of_other_nodes_in_order_and_go_once_to_each_node() {
    let nodes = Nodes::start();
    let mut publisher = nodes.client(0, "publisher");
    let mut subscribers: Vec<Client> = (0..4)
        .map(|n| nodes.client(1, &format!("subscriber {n}")))
        .collect();
    for (n, subscriber) in subscribers.iter_mut().enumerate() {
        subscriber.subscribe("a/+", (n % 2) as u8);
    }
    let qos_of = |n: u8| n % 2;
    for n in 0..200 {
        publisher.publish("a/b", &n.to_string(), qos_of(n));
    }
    for (qos, subscriber) in subscribers.iter_mut().enumerate() {
        for n in 0..200u8 {
            let (payload, id) = subscriber.message();
            assert_eq!(payload, n.to_string());
            assert_eq!(id.is_empty(), qos_of(n).min((qos % 2) as u8) == 0);
            if !id.is_empty() {
                subscriber.acknowledge(&id);
            }
        }
    }
    assert_eq!(nodes.count(0, |s| &s.forwarded), 200);
    assert_eq!(nodes.count(1, |s| &s.from_peers), 200);
    assert_eq!(nodes.count(2, |s| &s.from_peers), 0);
}

#[test]
fn what_is_published_anywhere_after_suback_reaches_the_subscriber() {
    let nodes = Nodes::start();
    let mut subscriber = nodes.client(1, "subscriber");
    let mut publishers = [nodes.client(0, "publisher"), nodes.client(2, "publisher")];
    for round in 0..50 {
        let topic = format!("topic/{round}");
        subscriber.subscribe(&topic, 0);
        for publisher in &mut publishers {
            publisher.publish(&topic, &topic, 0);
            assert_eq!(subscriber.message().0, topic);
        }
    }
}

#[test]
fn suback_waits_for_a_node_that_does_not_answer_until_that_knows_nothing() {
    let nodes = Nodes::with(Times::default());
    let mut subscriber = nodes.client(1, "subscriber");
    let mut publisher = nodes.client(0, "publisher");
    nodes.stall(1, 0);
    subscriber.ask_for("a", 0);
    let peers = nodes.broker(1).peers().unwrap();
    wait_for("SUBACK to wait", || peers.figures()[1] == 1);
    nodes.go_on(1, 0);
    subscriber.next(PacketType::SubAck);
    // From now on node 0 hears nothing of node 1: it knows its routes no longer when SUBACK comes, and sends
    // it everything.
    nodes.stall(1, 0);
    nodes.stall(0, 1);
    subscriber.subscribe("b", 0);
    nodes.go_on(0, 1);
    publisher.publish("b", "1", 0);
    assert_eq!(subscriber.message().0, "1");
    assert_eq!(nodes.count(1, |s| &s.route_waits), 2);
}

#[test]
fn a_group_with_members_on_several_nodes_gets_each_message_once() {
    let nodes = Nodes::start();
    let mut publisher = nodes.client(0, "publisher");
    let mut members = [nodes.client(1, "member"), nodes.client(2, "member")];
    for member in &mut members {
        member.subscribe("$share/g/t", 1);
    }
    for n in 0..40 {
        publisher.publish("t", &n.to_string(), 1);
    }
    let (sender, receiver) = mpsc::channel();
    for (n, mut member) in members.into_iter().enumerate() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            loop {
                let (payload, id) = member.message();
                member.acknowledge(&id);
                let got = (payload.parse::<u32>().unwrap(), n);
                if sender.send(got).is_err() {
                    return;
                }
            }
        });
    }
    let got = || {
        receiver
            .recv_timeout(DEADLINE)
            .expect("a message comes in time")
    };
    let mut got: Vec<(u32, usize)> = (0..40).map(|_| got()).collect();
    got.sort_unstable();
    assert!(got.iter().map(|(payload, _)| *payload).eq(0..40));
    for n in 0..2 {
        assert!(got.iter().any(|(_, member)| *member == n));
    }
    let peers = nodes.broker(0).peers().unwrap();
    wait_for("copies to be settled", || peers.figures()[2] == 0);
}

#[test]
fn a_member_here_is_preferred_to_members_elsewhere() {
    let nodes = Nodes::start();
    let mut members = [nodes.client(0, "member"), nodes.client(1, "member")];
    for member in &mut members {
        member.subscribe("$share/g/t", 1);
    }
    let mut publisher = nodes.client(0, "publisher");
    for n in 0..10 {
        publisher.publish("t", &n.to_string(), 1);
        assert_eq!(members[0].message().0, n.to_string());
    }
    assert_eq!(nodes.count(0, |s| &s.forwarded), 0);
}

#[test]
fn what_the_member_of_a_node_that_died_did_not_acknowledge_goes_to_another() {
    let nodes = Nodes::with(Times::default());
    let mut publisher = nodes.client(0, "publisher");
    let mut doomed = nodes.client(1, "member");
    doomed.subscribe("$share/g/t", 1);
    for n in 0..10 {
        publisher.publish("t", &n.to_string(), 1);
    }
    for n in 0..10 {
        let (payload, id) = doomed.message();
        assert_eq!(payload, n.to_string());
        if n < 3 {
            doomed.acknowledge(&id);
        }
    }
    let bytes = || nodes.broker(0).peers().unwrap().figures()[2];
    let all = bytes();
    wait_for("what is acknowledged to be settled", || {
        bytes() * 10 <= all * 7
    });
    let mut other = nodes.client(2, "member");
    other.subscribe("$share/g/t", 1);
    nodes.cut_off(1);
    for n in 3..10 {
        let (payload, id) = other.message();
        assert_eq!(payload, n.to_string());
        other.acknowledge(&id);
    }
    wait_for("all copies to be settled", || bytes() == 0);
}

#[test]
fn a_group_whose_members_are_not_known_yet_gets_messages() {
    let nodes = Nodes::start();
    let mut member = nodes.client(1, "member");
    nodes.event(Event::Disconnected(nodes.ids[1], nodes.ids[0]));
    wait_for("node 1 to be unknown", || {
        nodes.broker(0).routes.unsure().0 == 1
    });
    member.ask_for("$share/g/t", 0);
    let mut publisher = nodes.client(0, "publisher");
    let peers = nodes.broker(1).peers().unwrap();
    wait_for("the member to be there", || peers.figures()[1] == 1);
    publisher.publish("t", "1", 0);
    member.next(PacketType::Publish);
    nodes.event(Event::Connected(nodes.ids[1], nodes.ids[0]));
    member.next(PacketType::SubAck);
}

#[test]
fn what_waits_for_the_members_of_a_group_is_given_once() {
    let nodes = Nodes::start();
    let node = nodes.broker(0);
    let shards = store_state::api::Store::inbox_shards(node.store());
    for broker in 0..NODES {
        for shard in shards.iter().map(|shard| shard.number) {
            nodes.peers(broker, |peers, node| peers.resign(node, shard));
        }
    }
    wait_for("the shards to be unknown", || node.routes.lacks_shards());
    let mut member = nodes.client(1, "member");
    nodes.event(Event::Disconnected(nodes.ids[1], nodes.ids[0]));
    wait_for("node 1 to be unknown", || node.routes.unsure().0 == 1);
    member.ask_for("$share/g/t", 1);
    let peers = nodes.broker(1).peers().unwrap();
    wait_for("the member to be there", || peers.figures()[1] == 1);
    let mut publisher = nodes.client(0, "publisher");
    publisher.send_message("t", "1", 1);
    wait_for("it to wait", || nodes.count(0, |s| &s.members_awaited) == 1);
    nodes.event(Event::Connected(nodes.ids[1], nodes.ids[0]));
    member.next(PacketType::SubAck);
    for shard in shards.iter().map(|shard| shard.number) {
        nodes.peers(0, |peers, node| {
            peers.lead(node, shard, 9);
            peers.complete(node, shard);
        });
    }
    publisher.next(PacketType::PubAck);
    publisher.publish("t", "2", 1);
    for expected in ["1", "2"] {
        let (payload, id) = member.message();
        assert_eq!(payload, expected);
        member.acknowledge(&id);
    }
}

#[test]
fn a_subscriber_that_does_not_keep_up_holds_back_publishers_of_other_nodes() {
    const MESSAGES: usize = 5_000;
    let nodes = Nodes::start();
    let mut subscriber = nodes.client(1, "subscriber");
    subscriber.subscribe("t", 1);
    let mut publisher = nodes.client(0, "publisher");
    for n in 0..MESSAGES {
        publisher.send_message("t", &n.to_string(), 1);
    }
    wait_for("the publisher to be held back", || {
        nodes.count(0, |s| &s.holds) > 0
    });
    for n in 0..MESSAGES {
        let (payload, id) = subscriber.message();
        assert_eq!(payload, n.to_string());
        subscriber.acknowledge(&id);
    }
    for _ in 0..MESSAGES {
        publisher.next(PacketType::PubAck);
    }
}

#[test]
fn who_has_acknowledged_nothing_holds_nobody_back_if_so_configured() {
    let nodes = Nodes::configured(PATIENT, |config| {
        config.limits.connection.hold_unearned = None;
    });
    let mut silent = nodes.client(0, "silent");
    silent.subscribe("t", 1);
    silent.subscribe("u", 1);
    let mut other = nodes.client(0, "other");
    other.subscribe("t", 0);
    let mut publisher = nodes.client(0, "publisher");
    // As soon as its queue is three quarters full.
    for n in 0.. {
        publisher.publish("t", "message", 1);
        assert_eq!(other.message().0, "message");
        assert_eq!(nodes.count(0, |s| &s.holds), 0, "after {n} messages");
        if nodes.count(0, |s| &s.holds_spared) > 0 {
            break;
        }
    }
    // Who has no other receivers waits.
    publisher.send_message("u", "message", 1);
    wait_for("the hold", || nodes.count(0, |s| &s.holds) > 0);
}

/// CONNECTs of one client, more than a loop handles in a turn.
const ABANDONED: u64 = 400;

#[test]
fn of_connects_that_wait_only_the_last_goes_on() {
    let nodes = Nodes::start();
    nodes.have_wait(0, "client");
    let first = nodes.knocks(0, "client");
    wait_for("the first to have its place", || {
        nodes.broker(0).home_of("client").is_some()
    });
    // Each is closed when the next one waits. [MQTT-3.1.4-3]
    let have_waited = || nodes.count(0, |s| &s.connects_waiting) + nodes.count(0, |s| &s.takeovers);
    let mut last = None;
    for n in 1..=ABANDONED {
        // The client gives the one before it up.
        last = Some(nodes.knocks(0, "client"));
        wait_for("the CONNECT to wait", || have_waited() == n);
    }
    let closed = nodes.count(0, |s| &s.takeovers);
    nodes.go_on(0, 1);
    let mut last = last.unwrap();
    assert_eq!(last.next(PacketType::ConnAck), [1, 0]);
    drop(first);
    let open = |of: &Arc<net::LoopStats>| of.open.get();
    wait_for("the others to be closed", || {
        nodes.broker(0).rim.net.iter().map(open).sum::<u64>() == 1
    });
    last.subscribe("t", 0);
    assert_eq!(closed, ABANDONED - 1);
    assert_eq!(nodes.count(0, |s| &s.connects_waiting), 0);
}

#[test]
fn what_is_not_released_is_known_elsewhere_although_an_answer_is_lost() {
    let nodes = Nodes::start();
    let mut subscriber = nodes.client(0, "subscriber");
    subscriber.subscribe("t", 0);
    nodes.have_wait(0, "client");
    assert_eq!(subscriber.message().0, "once");
    // As if the client had been connected to node 1.
    let ids = [mqtt_proto::PacketId::FIRST].into_iter().collect();
    nodes.broker(1).unreleased.keep("client", 1, &ids, 0);
    nodes.stall(1, 0);
    let mut client = nodes.knocks(0, "client");
    let is_takeover = |bytes: &Bytes| bytes.starts_with(&[Kind::Takeover.tag()]);
    nodes.go_on(0, 1);
    wait_for("node 1 to have answered", || {
        nodes.stalled(1, 0).iter().any(is_takeover)
    });
    // Its answer is lost. What says how routes change is not: nodes whose connection loses that begin anew.
    nodes.go_on_without(1, 0, is_takeover);
    nodes.event(Event::Connected(nodes.ids[0], nodes.ids[1]));
    assert_eq!(client.next(PacketType::ConnAck), [1, 0]);
    client.send_message("t", "once", 2);
    client.next(PacketType::PubRec);
    client.send_message("t", "end", 0);
    assert_eq!(subscriber.message().0, "end");
    wait_for("node 1 to forget it", || {
        nodes.unreleased(1, "client").is_empty()
    });
}

#[test]
fn routes_of_many_subscriptions_outlive_a_short_absence() {
    const MANY: usize = 100;
    let nodes = Nodes::start();
    let mut client = nodes.durable(0, "client", [0, 0]);
    for n in 0..MANY {
        client.subscribe(&format!("t/{n}"), 1);
    }
    let mut here = nodes.client(0, "here");
    let mut elsewhere = nodes.client(1, "elsewhere");
    let lingering = || nodes.count(0, |s| &s.lingering);
    let is_away = || wait_for("the connection to be gone", || lingering() == 1);
    let before = nodes.broker(0).routes.changes();
    for _ in 0..5 {
        drop(client);
        is_away();
        here.publish("t/7", "away 0", 0);
        here.publish("t/8", "away 1", 1);
        client = nodes.durable(0, "client", [1, 0]);
        let mut got: Vec<String> = Vec::new();
        for _ in 0..2 {
            let (payload, id) = client.message();
            if !id.is_empty() {
                client.acknowledge(&id);
            }
            got.push(payload);
        }
        got.sort();
        assert_eq!(got, ["away 0", "away 1"]);
        for (n, publisher) in [&mut here, &mut elsewhere].into_iter().enumerate() {
            publisher.publish("t/9", &n.to_string(), 0);
            assert_eq!(client.message().0, n.to_string());
        }
    }
    let routes = &nodes.broker(0).routes;
    assert_eq!(
        routes.changes(),
        before,
        "nothing was taken out and put in again"
    );
    // After a while they go, and what comes is stored by the shard.
    drop(client);
    is_away();
    wait_for("the end of the wait", || lingering() == 0);
    wait_for("the routes to be taken out", || routes.subscriptions() == 0);
    here.publish("t/7", "late", 0);
    let mut client = nodes.durable(0, "client", [1, 0]);
    assert_eq!(client.message().0, "late");
    // A session that begins anew has none of them.
    drop(client);
    is_away();
    let mut client = nodes.client(0, "client");
    assert_eq!((lingering(), routes.subscriptions()), (0, 0));
    client.subscribe("u", 0);
    here.publish("t/7", "nobody", 0);
    here.publish("u", "new", 0);
    assert_eq!(client.message().0, "new");
}
