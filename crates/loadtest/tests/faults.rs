//! The tool against brokers that do wrong on purpose: each wrong shows in its own count.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use loadtest::verify::Faults;
use loadtest::workload::{Activity, Login, Messages, Pace, Part};
use loadtest::{Engine, EngineError, Outcome, Share, Target, Topology, Workload, monotonic_ns};
use mqtt_proto::{
    AckProperties, ConnAck, ConnAckProperties, Packet, PacketId, ProtocolVersion, PubAck, PubComp,
    PubRec, PubRel, Publish, PublishProperties, QoS, ReasonCode, SubAck, peek_frame,
};

const VERSION: ProtocolVersion = ProtocolVersion::V5;

/// What the broker grants: few enough that a stall fills it.
const RECEIVE_MAXIMUM: Option<NonZeroU16> = NonZeroU16::new(10);

/// What the broker does with the n-th message, n from 0.
#[derive(Clone, Copy)]
enum Wrong {
    Drop(usize),
    Duplicate(usize),
    /// The n-th after the next one.
    Swap(usize),
    /// Reads nothing of the publisher for this long before it handles the n-th.
    Stall(usize, Duration),
}

/// A broker for one subscriber, which connects first, and one publisher. What the publisher sends goes
/// to the subscriber, wrongs aside.
struct FaultyBroker {
    wrongs: Vec<Wrong>,
}

impl FaultyBroker {
    fn start(wrongs: &[Wrong]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let broker = Self {
            wrongs: wrongs.to_vec(),
        };
        let stall = wrongs.iter().find_map(|wrong| match *wrong {
            Wrong::Stall(number, time) => Some((number, time)),
            _ => None,
        });
        thread::spawn(move || {
            let (subscriber, _) = listener.accept().unwrap();
            let (publisher, _) = listener.accept().unwrap();
            let (messages, deliveries) = channel();
            let writer = subscriber.try_clone().unwrap();
            thread::spawn(move || serve(subscriber, None, None));
            thread::spawn(move || serve(publisher, Some(messages), stall));
            broker.deliver(&deliveries, writer);
        });
        address
    }

    fn deliver(&self, messages: &Receiver<Message>, mut subscriber: TcpStream) {
        let mut held: Option<Message> = None;
        for (number, message) in messages.iter().enumerate() {
            let mut deliveries = vec![&message];
            let swapped = held.take();
            deliveries.extend(&swapped);
            let mut hold = false;
            for wrong in &self.wrongs {
                match *wrong {
                    Wrong::Drop(n) if n == number => deliveries.clear(),
                    Wrong::Duplicate(n) if n == number => deliveries.push(&message),
                    Wrong::Swap(n) if n == number => {
                        deliveries.clear();
                        hold = true;
                    }
                    _ => {}
                }
            }
            // One write: the client finds copies of a message side by side.
            let mut frames = Vec::new();
            for delivery in deliveries {
                delivery.encode(&mut frames);
            }
            subscriber.write_all(&frames).unwrap();
            held = hold.then_some(message);
        }
    }
}

struct Message {
    topic: String,
    qos: QoS,
    /// As the publisher gave it: one publisher's identifiers serve for one subscriber.
    packet_id: Option<PacketId>,
    payload: Vec<u8>,
}

impl Message {
    fn encode(&self, out: &mut Vec<u8>) {
        let publish = Publish {
            dup: false,
            qos: self.qos,
            retain: false,
            topic: &self.topic,
            packet_id: self.packet_id,
            properties: PublishProperties::default(),
            payload: &self.payload,
        };
        publish.encode(VERSION, out).unwrap();
    }
}

/// Answers one connection as a broker should, until it closes.
fn serve(
    mut stream: TcpStream,
    messages: Option<Sender<Message>>,
    stall: Option<(usize, Duration)>,
) {
    let mut published = 0;
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..count]);
        while let Some(header) = peek_frame(&bytes, Some(VERSION)).unwrap()
            && header.len() <= bytes.len()
        {
            let frame: Vec<u8> = bytes.drain(..header.len()).collect();
            let packet = Packet::decode(&frame, VERSION).unwrap();
            if matches!(packet, Packet::Publish(_)) {
                if let Some((_, time)) = stall.filter(|&(number, _)| number == published) {
                    thread::sleep(time);
                }
                published += 1;
            }
            let answer = answer(&packet, messages.as_ref());
            stream.write_all(&answer).unwrap();
        }
    }
}

fn answer(packet: &Packet<'_>, messages: Option<&Sender<Message>>) -> Vec<u8> {
    let reason = ReasonCode::Success;
    let properties = AckProperties::default();
    let mut out = Vec::new();
    match *packet {
        Packet::Connect(_) => {
            let properties = ConnAckProperties {
                receive_maximum: RECEIVE_MAXIMUM,
                ..ConnAckProperties::default()
            };
            ConnAck {
                session_present: false,
                reason,
                properties,
            }
            .encode(VERSION, &mut out)
        }
        Packet::Subscribe(subscribe) => {
            let reasons = [reason];
            SubAck {
                packet_id: subscribe.packet_id,
                properties,
                reasons: reasons.as_slice().into(),
            }
            .encode(VERSION, &mut out)
        }
        Packet::Publish(publish) => {
            let message = Message {
                topic: publish.topic.to_owned(),
                qos: publish.qos,
                packet_id: publish.packet_id,
                payload: publish.payload.to_vec(),
            };
            messages.unwrap().send(message).unwrap();
            match (publish.qos, publish.packet_id) {
                (QoS::AtLeastOnce, Some(packet_id)) => PubAck {
                    packet_id,
                    reason,
                    properties,
                }
                .encode(VERSION, &mut out),
                (QoS::ExactlyOnce, Some(packet_id)) => PubRec {
                    packet_id,
                    reason,
                    properties,
                }
                .encode(VERSION, &mut out),
                _ => Ok(()),
            }
        }
        Packet::PubRel(PubRel { packet_id, .. }) => PubComp {
            packet_id,
            reason,
            properties,
        }
        .encode(VERSION, &mut out),
        Packet::PubRec(PubRec { packet_id, .. }) => PubRel {
            packet_id,
            reason,
            properties,
        }
        .encode(VERSION, &mut out),
        _ => Ok(()),
    }
    .unwrap();
    out
}

fn workload(topology: Topology, qos: QoS, pace: Pace) -> Workload {
    let messages = Messages {
        topology,
        payload_len: 32,
        qos,
        pace,
        clean_session: true,
        retain: false,
        read_rate: None,
    };
    Workload {
        parts: vec![Part::new("faults", Activity::Messages(messages))],
        login: Login::new(VERSION),
    }
}

fn engine(workload: Workload, address: SocketAddr) -> Engine {
    let target = Target::new(address);
    Engine::new(workload, Share::WHOLE, target, "test", monotonic_ns()).unwrap()
}

/// 200 messages at 1,000 per second, or as many as pass in 0.2 s through a window.
fn play(wrongs: &[Wrong], qos: QoS, pace: Pace) -> Result<Outcome, EngineError> {
    let workload = workload(Topology::Pairs { pairs: 1 }, qos, pace);
    let mut engine = engine(workload, FaultyBroker::start(wrongs));
    engine.connect(usize::MAX, |_| Ok(None))?;
    engine.load(Duration::from_millis(200), true)?;
    engine.drain()?;
    Ok(engine.outcome())
}

const OPEN: Pace = Pace::Open {
    per_second: 1_000.0,
};

fn check(wrongs: &[Wrong], qos: QoS, expected: Faults) -> Outcome {
    let outcome = play(wrongs, qos, OPEN).unwrap();
    assert_eq!(outcome.totals.sent, 200);
    assert_eq!(outcome.faults, expected, "{qos:?}");
    let delivered = outcome.totals.sent + expected.duplicated - expected.lost;
    assert_eq!(outcome.totals.delivered, delivered);
    outcome
}

const NONE: Faults = Faults {
    lost: 0,
    duplicated: 0,
    reordered: 0,
    stray: 0,
};

#[test]
fn a_right_broker_has_no_faults() {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let outcome = check(&[], qos, NONE);
        let acknowledged = if qos == QoS::AtMostOnce { 0 } else { 200 };
        assert_eq!(outcome.totals.acknowledged, acknowledged);
        assert_eq!(outcome.acknowledge.len(), acknowledged);
        assert_eq!(outcome.deliver.len(), 200);
    }
}

#[test]
fn each_wrong_shows_in_its_own_count() {
    check(
        &[Wrong::Drop(50)],
        QoS::AtLeastOnce,
        Faults { lost: 1, ..NONE },
    );
    check(
        &[Wrong::Drop(199)],
        QoS::AtMostOnce,
        Faults { lost: 1, ..NONE },
    );
    check(
        &[Wrong::Duplicate(0)],
        QoS::AtMostOnce,
        Faults {
            duplicated: 1,
            ..NONE
        },
    );
    check(
        &[Wrong::Swap(100)],
        QoS::AtLeastOnce,
        Faults {
            reordered: 1,
            ..NONE
        },
    );
}

#[test]
fn wrongs_together_are_told_apart() {
    let wrongs = [
        Wrong::Drop(10),
        Wrong::Drop(11),
        Wrong::Duplicate(30),
        Wrong::Swap(60),
    ];
    check(
        &wrongs,
        QoS::AtMostOnce,
        Faults {
            lost: 2,
            duplicated: 1,
            reordered: 1,
            stray: 0,
        },
    );
}

/// Both copies come before the client could answer with PUBREC: the same packet identifier then means
/// the same message.
#[test]
fn a_repeated_qos_2_packet_is_one_message() {
    let outcome = play(&[Wrong::Duplicate(5)], QoS::ExactlyOnce, OPEN).unwrap();
    assert_eq!(outcome.faults, NONE);
    assert_eq!(outcome.totals.delivered, 200);
}

/// Open loop: messages that were due during the stall waited for its end, and their wait counts.
#[test]
fn a_stall_shows_in_the_latency_of_all_that_were_due() {
    let stall = Duration::from_millis(100);
    // At QoS 0 the messages wait in the socket; at QoS 1 all but ten wait in the tool, in-flight room
    // being full.
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let outcome = check(&[Wrong::Stall(50, stall)], qos, NONE);
        let ms = |ns: u64| ns / 1_000_000;
        assert!(ms(outcome.deliver.max()) >= 99, "{qos:?}");
        // 100 of the 200 messages waited 0 to 100 ms, so about a quarter waited 50 ms.
        assert!(ms(outcome.deliver.value_at_quantile(0.76)) >= 48, "{qos:?}");
    }
}

#[test]
fn a_window_survives_a_loss() {
    let outcome = play(
        &[Wrong::Drop(3)],
        QoS::AtMostOnce,
        Pace::Closed { window: 4 },
    )
    .unwrap();
    assert_eq!(outcome.faults, Faults { lost: 1, ..NONE });
    assert!(outcome.totals.sent > 8, "{}", outcome.totals.sent);
}

#[test]
fn a_broker_that_is_not_there_is_an_error() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let workload = workload(Topology::Idle { connections: 1 }, QoS::AtMostOnce, OPEN);
    let mut engine = engine(workload, address);
    match engine.connect(1, |_| Ok(None)) {
        Err(EngineError::Client { client_id, .. }) => assert_eq!(client_id, "test-faults-s0"),
        other => panic!("{other:?}"),
    }
}
