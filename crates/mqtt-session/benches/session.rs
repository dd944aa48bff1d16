//! Nanoseconds of the hot paths: messages to a client and from one, 32 bytes of payload, MQTT 5.0.
//!
//! `cargo bench -p mqtt-session`; with `HERALD_BENCH_SMOKE=1` each case runs a few times only.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use mqtt_proto::{
    AckProperties, Connect, ConnectProperties, MessageBody, Packet, PacketId, ProtocolVersion,
    PubAck, Publish, PublishProperties, QoS, ReasonCode,
};
use mqtt_session::{
    Accepted, Action, ApplicationMessage, Delivery, Outcome, Policy, Session, SubscriptionIdSet,
    Timestamp,
};

const NOW: Timestamp = Timestamp(1_000_000);
const TOPIC: &str = "sensors/building-7/temperature";

fn main() {
    let smoke = std::env::var_os("HERALD_BENCH_SMOKE").is_some();
    let rounds = if smoke { 10 } else { 20_000 };
    for batch in [1, 100] {
        measure(
            "deliver + poll_transmit, QoS 0",
            batch,
            rounds,
            deliver_qos0,
        );
        measure(
            "deliver + poll_transmit + PUBACK, QoS 1",
            batch,
            rounds,
            deliver_qos1,
        );
        measure("inbound PUBLISH, QoS 0", batch, rounds, publish_qos0);
        measure(
            "inbound PUBLISH + PUBACK, QoS 1",
            batch,
            rounds,
            publish_qos1,
        );
    }
}

/// What one turn of an event loop keeps between sessions.
struct Turn {
    session: Session,
    policy: Policy,
    message: Arc<ApplicationMessage>,
    out: Vec<u8>,
    frame: Vec<u8>,
    next_id: PacketId,
}

#[expect(clippy::print_stdout, reason = "the result of a benchmark")]
fn measure(name: &str, batch: usize, rounds: usize, run: fn(&mut Turn, usize)) {
    let policy = Policy::default();
    let connect = Connect {
        version: ProtocolVersion::V5,
        is_bridge: false,
        clean_start: true,
        keep_alive: 60,
        client_id: "c",
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    };
    let message = ApplicationMessage {
        body: MessageBody::new(TOPIC, &[7; 32]),
        qos: QoS::AtLeastOnce,
        retain: false,
        publisher: 1,
        publisher_hash: 0,
        expires_at: None,
        taken_up: None,
    };
    let mut turn = Turn {
        session: Session::open(&connect, "c".into(), Accepted::default(), &policy, NOW),
        policy,
        message: Arc::new(message),
        out: Vec::new(),
        frame: Vec::new(),
        next_id: PacketId::FIRST,
    };
    turn.flush();
    // The best of ten: the rest is other people's load.
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let begin = Instant::now();
        for _ in 0..rounds / batch.min(rounds) {
            run(&mut turn, batch);
        }
        let messages = (rounds / batch.min(rounds) * batch) as f64;
        best = best.min(begin.elapsed().as_nanos() as f64 / messages);
    }
    println!("{name:42} batch {batch:3} {best:8.1} ns/message");
}

impl Turn {
    fn flush(&mut self) {
        self.out.clear();
        let mut outcome = Outcome::default();
        let transmit =
            self.session
                .poll_transmit(&mut self.out, 1 << 20, &mut outcome, &self.policy, NOW);
        let _ = black_box((transmit, &self.out));
    }

    fn deliver(&mut self, qos: QoS) {
        let delivery = Delivery {
            message: Arc::clone(&self.message),
            qos,
            retain: false,
            subscription_ids: SubscriptionIdSet::None,
            group: None,
        };
        let _ = black_box(self.session.deliver(delivery, &self.policy, NOW));
    }

    fn publish(&mut self, qos: QoS) {
        let packet_id = (qos != QoS::AtMostOnce).then_some(self.next_id);
        self.next_id = self.next_id.next();
        let publish = Publish {
            dup: false,
            qos,
            retain: false,
            topic: TOPIC,
            packet_id,
            properties: PublishProperties::default(),
            payload: &[7; 32],
        };
        self.frame.clear();
        let encoded = publish.encode(ProtocolVersion::V5, &mut self.frame);
        assert_eq!(encoded, Ok(()));
        let packet = Packet::decode(&self.frame, ProtocolVersion::V5).expect("a good frame");
        match self.session.handle_packet(&packet, 1, &self.policy, NOW) {
            Ok(Action::Publish { message, packet_id }) => {
                black_box(message);
                if let Some(packet_id) = packet_id {
                    self.session
                        .complete_publish(packet_id, ReasonCode::Success, None);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn deliver_qos0(turn: &mut Turn, batch: usize) {
    (0..batch).for_each(|_| turn.deliver(QoS::AtMostOnce));
    turn.flush();
}

fn deliver_qos1(turn: &mut Turn, batch: usize) {
    (0..batch).for_each(|_| turn.deliver(QoS::AtLeastOnce));
    turn.flush();
    for _ in 0..batch {
        let ack = Packet::PubAck(PubAck {
            packet_id: turn.next_id,
            reason: ReasonCode::Success,
            properties: AckProperties::default(),
        });
        turn.next_id = turn.next_id.next();
        let action = turn.session.handle_packet(&ack, 1, &turn.policy, NOW);
        assert!(matches!(action, Ok(Action::Acknowledged)));
    }
}

/// Encoding and decoding of the frame included, with two allocations for the message.
fn publish_qos0(turn: &mut Turn, batch: usize) {
    (0..batch).for_each(|_| turn.publish(QoS::AtMostOnce));
}

fn publish_qos1(turn: &mut Turn, batch: usize) {
    (0..batch).for_each(|_| turn.publish(QoS::AtLeastOnce));
    turn.flush();
}
