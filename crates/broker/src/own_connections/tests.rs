//! A broker, its outlets' connections by socket pairs, and other clients by TCP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU8;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use config::{Config, Permission};
use mqtt_proto::{
    AckProperties, Connect, ConnectProperties, Packet, PacketId, PacketType, ProtocolVersion,
    PubAck, Publish, PublishProperties, QoS, ReasonCode, Subscribe, SubscribeFilters,
    SubscribeProperties, SubscriptionOptions, UserProperties, peek_frame,
};
use net_api::Kind;

use crate::Broker;

const DEADLINE: Duration = Duration::from_secs(60);

const V5: ProtocolVersion = ProtocolVersion::V5;
const V3: ProtocolVersion = ProtocolVersion::V3_1_1;

trait Stream: Read + Write {}
impl Stream for UnixStream {}
impl Stream for TcpStream {}

/// A client that says what a test wants it to.
struct Client {
    stream: Box<dyn Stream>,
    version: ProtocolVersion,
    read: Vec<u8>,
}

impl Client {
    /// An outlet.
    fn own(broker: &Broker) -> Self {
        let stream = broker.inspect.outlets.connections().open().unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self::on(Box::new(stream))
    }

    fn tcp(broker: &Broker) -> Self {
        let listening = broker.listeners.listening();
        let stream = TcpStream::connect(&listening[0].address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self::on(Box::new(stream))
    }

    fn on(stream: Box<dyn Stream>) -> Self {
        let (version, read) = (V5, Vec::new());
        Self {
            stream,
            version,
            read,
        }
    }

    fn speaking(self, version: ProtocolVersion) -> Self {
        Self { version, ..self }
    }

    fn send(&mut self, packet: &Packet<'_>) {
        let mut out = Vec::new();
        packet.encode(self.version, &mut out).unwrap();
        self.stream.write_all(&out).unwrap();
    }

    /// The next packet, as it came.
    fn next(&mut self) -> Vec<u8> {
        loop {
            if let Some(frame) = peek_frame(&self.read, Some(self.version)).unwrap()
                && self.read.len() >= frame.len()
            {
                return self.read.drain(..frame.len()).collect();
            }
            let mut buffer = [0; 4_096];
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the broker has closed the connection");
            self.read.extend_from_slice(&buffer[..count]);
        }
    }

    /// The bytes of the next packet, which is of this type.
    fn expect(&mut self, packet_type: PacketType) -> Vec<u8> {
        let frame = self.next();
        assert_eq!(frame[0] >> 4, packet_type as u8, "{frame:?}");
        frame
    }

    /// Sends CONNECT; the answer.
    fn connect(&mut self, client_id: &str, clean_start: bool) -> Vec<u8> {
        let version = self.version;
        let properties = ConnectProperties {
            session_expiry_interval: version.is_v5().then_some(3_600),
            ..ConnectProperties::default()
        };
        self.send(&Packet::Connect(Connect {
            version,
            is_bridge: false,
            clean_start,
            keep_alive: 0,
            client_id,
            will: None,
            username: None,
            password: None,
            properties,
        }));
        self.expect(PacketType::ConnAck)
    }

    /// Sends CONNECT; the reason code of the answer.
    fn is_let_in(&mut self, client_id: &str) -> ReasonCode {
        let answer = self.connect(client_id, true);
        match Packet::decode(&answer, self.version) {
            Ok(Packet::ConnAck(connack)) => connack.reason,
            other => panic!("{other:?}"),
        }
    }

    /// Subscribes with QoS 1; the last byte of SUBACK.
    fn subscribe(&mut self, filter: &str) -> u8 {
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            ..SubscriptionOptions::default()
        };
        let mut buffer = Vec::new();
        self.send(&Packet::Subscribe(Subscribe {
            packet_id: PacketId::FIRST,
            properties: SubscribeProperties::default(),
            filters: SubscribeFilters::encode_from(&[(filter, options)], &mut buffer).unwrap(),
        }));
        *self.expect(PacketType::SubAck).last().unwrap()
    }

    /// Publishes with QoS 1; the reason code of PUBACK.
    fn publish(&mut self, topic: &str, payload: &str) -> ReasonCode {
        let mut pairs = Vec::new();
        let user_properties = match self.version {
            V5 => UserProperties::encode_from(&[("k", "v")], &mut pairs).unwrap(),
            _ => UserProperties::NONE,
        };
        self.send(&Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic,
            packet_id: Some(PacketId::FIRST),
            properties: PublishProperties {
                user_properties,
                ..PublishProperties::default()
            },
            payload: payload.as_bytes(),
        }));
        let answer = self.expect(PacketType::PubAck);
        match Packet::decode(&answer, self.version) {
            Ok(Packet::PubAck(puback)) => puback.reason,
            other => panic!("{other:?}"),
        }
    }
}

fn config(folder: &Path) -> Config {
    let mut config = Config {
        data_dir: folder.join("data"),
        event_loops: NonZeroU8::new(2).map(Into::into),
        ..Config::default()
    };
    config.http.enable = false;
    config.mqtt_server_config.tcp_listeners[0].port = 0;
    config
}

/// How many connections of outlets are open.
fn open_outlets(broker: &Broker) -> u64 {
    let numbers = (0..).zip(&broker.node.listener_kinds);
    let number = numbers
        .filter(|(_, kind)| **kind == Kind::Outlet)
        .map(|(number, _)| number)
        .next()
        .unwrap();
    let open = |stats: &std::sync::Arc<net::LoopStats>| stats.listener(number).open.get();
    broker.node.rim.net.iter().map(open).sum()
}

#[test]
fn an_outlet_is_let_in_and_nobody_else_under_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    let broker = Broker::start(&config).unwrap();
    let name = "$outlet/x/0";
    let not_valid = ReasonCode::ClientIdentifierNotValid;
    let mut outlet = Client::own(&broker);
    assert_eq!(outlet.is_let_in(name), ReasonCode::Success);
    assert_eq!(open_outlets(&broker), 1);
    assert_eq!(Client::tcp(&broker).is_let_in(name), not_valid);
    // Of 3.1.1, the return code 2.
    assert_eq!(
        Client::tcp(&broker).speaking(V3).connect(name, true),
        [0x20, 2, 0, 2]
    );
    assert_eq!(Client::own(&broker).is_let_in("x"), not_valid);
    assert_eq!(Client::own(&broker).is_let_in(""), not_valid);
    let refused = broker.node.rim.refused_logins.latest(10);
    let reserved = refused
        .iter()
        .filter(|of| of.why.as_str() == "reserved_client_id");
    assert_eq!(reserved.map(|of| of.last.times.0).sum::<u64>(), 4);
    // It still has its session.
    assert_eq!(outlet.subscribe("a/#"), 1);

    // Nobody else is let in now, and no rule allows anything.
    config.allow_anonymous = Some(false);
    config.authorization.no_match = Permission::Deny;
    broker.reload(&config).unwrap();
    assert_eq!(
        Client::tcp(&broker).is_let_in("y"),
        ReasonCode::NotAuthorized
    );
    assert_eq!(Client::tcp(&broker).is_let_in(name), not_valid);
    let mut other = Client::own(&broker);
    assert_eq!(other.is_let_in("$outlet/x/1"), ReasonCode::Success);
    assert_eq!(other.subscribe("$hmq/#"), 1);
    assert_eq!(outlet.publish("$hmq/x", "1"), ReasonCode::Success);
    other.expect(PacketType::Publish);
    drop((outlet, other));
    let deadline = Instant::now() + DEADLINE;
    while open_outlets(&broker) > 0 {
        assert!(Instant::now() < deadline, "the connections are not closed");
        std::thread::yield_now();
    }
    broker.shutdown();
}

#[test]
fn topics_between_the_broker_and_its_outlets_are_closed_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(&config(folder.path())).unwrap();
    let mut outlet = Client::own(&broker);
    assert_eq!(outlet.is_let_in("$outlet/x/0"), ReasonCode::Success);
    assert_eq!(outlet.subscribe("$hmq/#"), 1);
    let mut other = Client::tcp(&broker);
    assert_eq!(other.is_let_in("y"), ReasonCode::Success);
    for filter in ["$hmq/#", "$hmq", "$share/g/$hmq/x"] {
        assert_eq!(other.subscribe(filter), 0x87, "{filter}");
    }
    assert_eq!(other.publish("$hmq/x", "1"), ReasonCode::NotAuthorized);
    assert_eq!(other.subscribe("#"), 1);
    let mut old = Client::tcp(&broker).speaking(V3);
    assert_eq!(old.is_let_in("z"), ReasonCode::Success);
    assert_eq!(old.subscribe("$hmq/#"), 0x80);
    assert_eq!(old.publish("$hmq/x", "2"), ReasonCode::Success);
    // Only what an outlet publishes there arrives, and not by a wildcard.
    let mut second = Client::own(&broker);
    assert_eq!(second.is_let_in("$outlet/x/1"), ReasonCode::Success);
    assert_eq!(second.publish("$hmq/x", "3"), ReasonCode::Success);
    assert!(outlet.expect(PacketType::Publish).ends_with(b"3"));
    assert_eq!(second.publish("a", "4"), ReasonCode::Success);
    assert!(other.expect(PacketType::Publish).ends_with(b"4"));
    broker.shutdown();
}

/// What an outlet is told in User Properties.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Position {
    incarnation: u64,
    sequence: u64,
}

impl Client {
    /// As an outlet: Session Present, and the epoch.
    fn begin(&mut self, clean_start: bool) -> (bool, u64) {
        let answer = self.connect("$outlet/x/0", clean_start);
        let Ok(Packet::ConnAck(connack)) = Packet::decode(&answer, V5) else {
            panic!("{answer:?}");
        };
        assert_eq!(connack.reason, ReasonCode::Success);
        let told: Vec<_> = connack.properties.user_properties.iter().collect();
        let [("hmq-epoch", epoch)] = told[..] else {
            panic!("{told:?}");
        };
        (connack.session_present, epoch.parse().unwrap())
    }

    /// The next message, with its position: whether it came again.
    fn message(&mut self) -> (bool, Position, PacketId, String) {
        let frame = self.expect(PacketType::Publish);
        let Ok(Packet::Publish(publish)) = Packet::decode(&frame, V5) else {
            panic!("{frame:?}");
        };
        let told: Vec<_> = publish.properties.user_properties.iter().collect();
        let [("hmq-position", position), ("k", "v")] = told[..] else {
            panic!("{told:?}");
        };
        let (incarnation, sequence) = position.split_once('.').unwrap();
        let position = Position {
            incarnation: incarnation.parse().unwrap(),
            sequence: sequence.parse().unwrap(),
        };
        let payload = std::str::from_utf8(publish.payload).unwrap();
        let packet_id = publish.packet_id.unwrap();
        (publish.dup, position, packet_id, payload.to_owned())
    }

    /// The next messages, which have these payloads and come again or not: their positions, which ascend.
    fn messages(&mut self, payloads: &[&str], again: bool) -> Vec<Position> {
        let positions: Vec<Position> = payloads
            .iter()
            .map(|expected| {
                let (dup, position, _, payload) = self.message();
                assert_eq!((dup, &*payload), (again, *expected));
                position
            })
            .collect();
        assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
        positions
    }

    fn acknowledge(&mut self, packet_id: PacketId) {
        self.send(&Packet::PubAck(PubAck {
            packet_id,
            reason: ReasonCode::Success,
            properties: AckProperties::default(),
        }));
    }
}

#[test]
fn an_outlet_is_told_epochs_and_positions() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let broker = Broker::start(&config).unwrap();
    let mut publisher = Client::tcp(&broker);
    assert_eq!(publisher.is_let_in("p"), ReasonCode::Success);
    let mut outlet = Client::own(&broker);
    let (is_present, first) = outlet.begin(true);
    assert!(!is_present);
    assert_eq!(outlet.subscribe("a/#"), 1);
    for payload in ["1", "2", "3"] {
        assert_eq!(publisher.publish("a/b", payload), ReasonCode::Success);
    }
    let positions = outlet.messages(&["1", "2", "3"], false);
    assert_eq!(positions[0].incarnation, positions[2].incarnation);

    // It has acknowledged none, and connects while its older connection is open.
    let mut next = Client::own(&broker);
    let (is_present, second) = next.begin(false);
    assert!(is_present && second > first);
    assert!(outlet.expect(PacketType::Disconnect).contains(&0x8E));
    assert_eq!(next.messages(&["1", "2", "3"], true), positions);
    drop(next);

    // The same after the end of that.
    let mut outlet = Client::own(&broker);
    let (is_present, third) = outlet.begin(false);
    assert!(is_present && third > second);
    for (position, expected) in positions.iter().zip(["1", "2", "3"]) {
        let (dup, again, packet_id, payload) = outlet.message();
        assert_eq!((dup, again, &*payload), (true, *position, expected));
        outlet.acknowledge(packet_id);
    }
    assert_eq!(publisher.publish("a/b", "4"), ReasonCode::Success);
    let after = outlet.messages(&["4"], false)[0];
    assert_eq!(after.incarnation, positions[0].incarnation);
    assert!(after > positions[2]);

    // Another session has another inbox.
    let mut outlet = Client::own(&broker);
    let (is_present, fourth) = outlet.begin(true);
    assert!(!is_present && fourth > third);
    assert_eq!(outlet.subscribe("a/#"), 1);
    assert_eq!(publisher.publish("a/b", "5"), ReasonCode::Success);
    assert!(outlet.messages(&["5"], false)[0].incarnation > after.incarnation);

    // Nobody else is told.
    let mut other = Client::tcp(&broker);
    let answer = other.connect("y", true);
    assert!(!String::from_utf8_lossy(&answer).contains("hmq"));
    assert_eq!(other.subscribe("a/#"), 1);
    assert_eq!(publisher.publish("a/b", "6"), ReasonCode::Success);
    let frame = other.expect(PacketType::Publish);
    assert!(!String::from_utf8_lossy(&frame).contains("hmq"));
    broker.shutdown();
}
