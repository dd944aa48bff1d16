//! A client against the broker's side of a session, in virtual time, over a network connection that breaks at any
//! moment and carries bytes in whatever pieces.
//!
//! Whatever happens: QoS 2 arrives exactly once both ways, QoS 1 at least once, QoS 0 at most once, each QoS in the
//! order of publishing, and in the end neither side holds anything.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use mqtt_proto::*;
use mqtt_session::{
    Accepted, Action, ApplicationMessage, Delivered, Delivery, Outcome, Policy, Session,
    SubscriptionIdSet, Timestamp, Transmit,
};
use proptest::prelude::*;

use crate::*;

#[derive(Clone, Debug)]
enum Step {
    /// The client publishes its next message.
    Publish(QoS),
    /// The server delivers its next message.
    Deliver(QoS),
    /// So many bytes of the client arrive.
    ToServer(usize),
    /// So many bytes of the server arrive.
    ToClient(usize),
    /// The application answers so many messages.
    Answer(usize),
    /// The server is done with one of the messages that it was given.
    Complete(usize),
    /// So many milliseconds pass.
    Pass(u64),
    Lose,
    Reconnect {
        receive_maximum: u16,
        server_receive_maximum: u16,
    },
}

fn qos() -> impl Strategy<Value = QoS> {
    prop_oneof![
        Just(QoS::AtMostOnce),
        Just(QoS::AtLeastOnce),
        Just(QoS::ExactlyOnce)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => qos().prop_map(Step::Publish),
        5 => qos().prop_map(Step::Deliver),
        8 => (1_usize..60).prop_map(Step::ToServer),
        8 => (1_usize..60).prop_map(Step::ToClient),
        5 => (1_usize..5).prop_map(Step::Answer),
        5 => (0_usize..8).prop_map(Step::Complete),
        2 => (1_u64..1_500).prop_map(Step::Pass),
        1 => Just(Step::Lose),
        3 => (1_u16..6, 1_u16..6).prop_map(|(receive_maximum, server_receive_maximum)| {
            Step::Reconnect { receive_maximum, server_receive_maximum }
        }),
    ]
}

struct World {
    version: ProtocolVersion,
    now_ms: u64,
    policy: Policy,
    client: Client<u32>,
    session: Option<Session>,
    is_online: bool,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    /// QoS of the client's messages, by number; of the server's.
    published: Vec<QoS>,
    delivered: Vec<QoS>,
    /// What arrived at the server, at the client.
    at_server: Vec<u32>,
    at_client: Vec<u32>,
    /// The client's messages that were acknowledged to the end.
    acknowledged: Vec<u32>,
    /// Messages that the server is at work on.
    completions: Vec<PacketId>,
    /// Answers that the application owes, with the message if it is to be handled then.
    answers: Vec<(Answer, Option<u32>)>,
}

impl World {
    fn new(version: ProtocolVersion, acknowledgements: Acknowledgements) -> Self {
        let mut world = Self {
            version,
            now_ms: 0,
            policy: Policy::default(),
            client: Client::new(acknowledgements),
            session: None,
            is_online: false,
            to_server: Vec::new(),
            to_client: Vec::new(),
            published: Vec::new(),
            delivered: Vec::new(),
            at_server: Vec::new(),
            at_client: Vec::new(),
            acknowledged: Vec::new(),
            completions: Vec::new(),
            answers: Vec::new(),
        };
        world.reconnect(3, 3);
        world
    }

    fn now(&self) -> (Timestamp, Duration) {
        (Timestamp(self.now_ms), Duration::from_millis(self.now_ms))
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Publish(qos) => self.publish(qos),
            Step::Deliver(qos) => self.deliver(qos),
            Step::ToServer(count) => self.server_receives(count),
            Step::ToClient(count) => self.client_receives(count),
            Step::Answer(count) => {
                let count = count.min(self.answers.len());
                for (answer, message) in self.answers.drain(..count) {
                    // What is not answered is not handled: it comes again.
                    if self.client.answer(answer) {
                        self.at_client.extend(message);
                    }
                }
            }
            Step::Complete(index) => {
                if !self.completions.is_empty() {
                    let id = self.completions.remove(index % self.completions.len());
                    let session = self.session.as_mut().expect("it gave the message");
                    session.complete_publish(id, ReasonCode::Success, None);
                }
            }
            Step::Pass(millis) => self.pass(millis),
            Step::Lose => self.lose(),
            Step::Reconnect {
                receive_maximum,
                server_receive_maximum,
            } => self.reconnect(receive_maximum, server_receive_maximum),
        }
        self.client_sends();
        self.server_sends();
    }

    fn publish(&mut self, qos: QoS) {
        if !self.client.has_room(qos) {
            return;
        }
        let number = self.published.len() as u32;
        self.published.push(qos);
        let published = self
            .client
            .publish(message(qos, &number.to_be_bytes()), number);
        assert!(published.is_ok(), "{published:?}");
    }

    /// Sends again what there is room for.
    fn resend(&mut self) {
        while let Some(&number) = self.client.poll_resend() {
            let qos = self.published[number as usize];
            let resent = self.client.resend(message(qos, &number.to_be_bytes()));
            assert_eq!(resent, Ok(()));
        }
    }

    fn deliver(&mut self, qos: QoS) {
        let Some(session) = &mut self.session else {
            return;
        };
        let number = self.delivered.len() as u32;
        self.delivered.push(qos);
        let message = ApplicationMessage {
            body: MessageBody::new("t", &number.to_be_bytes()),
            qos,
            retain: false,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up: None,
        };
        let delivery = Delivery {
            message: Arc::new(message),
            qos,
            retain: false,
            subscription_ids: SubscriptionIdSet::None,
            group: None,
        };
        let delivered = session.deliver(delivery, &self.policy, Timestamp(self.now_ms));
        assert!(matches!(delivered, Delivered::Queued));
    }

    fn client_sends(&mut self) {
        self.resend();
        let (_, now) = self.now();
        let bytes = self.client.poll_transmit();
        let count = bytes.len();
        self.to_server.extend_from_slice(bytes);
        self.client.handle_transmitted(count, now);
    }

    fn server_sends(&mut self) {
        let Some(session) = self.session.as_mut().filter(|_| self.is_online) else {
            return;
        };
        let (now, mut outcome) = (Timestamp(self.now_ms), Outcome::default());
        let out = &mut self.to_client;
        while session.poll_transmit(out, usize::MAX, &mut outcome, &self.policy, now)
            == Transmit::More
        {}
        assert!(outcome.dropped.is_empty());
    }

    fn client_receives(&mut self, count: usize) {
        let count = count.min(self.to_client.len());
        let bytes: Vec<u8> = self.to_client.drain(..count).collect();
        let mut arrival = self.client.handle_bytes(&bytes);
        while let Some(event) = self
            .client
            .poll_event(&mut arrival)
            .expect("the server keeps to the protocol")
        {
            match event {
                Event::Message(Incoming { publish, answer }) => {
                    let number = number_of(publish.payload);
                    assert_eq!(publish.qos, self.delivered[number as usize]);
                    match answer {
                        Some(answer) => self.answers.push((answer, Some(number))),
                        None => self.at_client.push(number),
                    }
                }
                Event::Duplicate(Incoming { publish, answer }) => {
                    assert_eq!(publish.qos, QoS::ExactlyOnce);
                    self.answers.extend(answer.map(|answer| (answer, None)));
                }
                Event::Released { answer, .. } => {
                    self.answers.extend(answer.map(|answer| (answer, None)));
                }
                Event::Acknowledged(ack) => {
                    // The server had released it before PUBREL was sent again.
                    let was_released = ack.packet_type == PacketType::PubComp
                        && ack.reason == ReasonCode::PacketIdentifierNotFound;
                    assert!(!ack.reason.is_error() || was_released, "{ack:?}");
                    self.acknowledged.push(ack.message);
                }
                Event::Received(message) => {
                    assert_eq!(self.published[message as usize], QoS::ExactlyOnce);
                }
                Event::Connected(_) | Event::PingResp => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn server_receives(&mut self, count: usize) {
        // Cutting bytes into frames is not the session's.
        let wanted = count.min(self.to_server.len());
        let mut taken = 0;
        while let Some(frame) =
            peek_frame(&self.to_server[taken..], Some(self.version)).expect("good frames")
            && taken + frame.len() <= wanted
        {
            let bytes = self.to_server[taken..taken + frame.len()].to_vec();
            taken += frame.len();
            let packet = Packet::decode(&bytes, self.version).expect("good packets");
            self.handle(&packet);
        }
        self.to_server.drain(..taken);
    }

    fn handle(&mut self, packet: &Packet<'_>) {
        let (now, _) = self.now();
        if let Packet::Connect(connect) = packet {
            match &mut self.session {
                Some(session) => session.resume(connect, &self.policy, now),
                None => {
                    let accepted = Accepted::default();
                    let policy = &self.policy;
                    self.session = Some(Session::open(connect, "c".into(), accepted, policy, now));
                }
            }
            self.is_online = true;
            return;
        }
        let session = self.session.as_mut().expect("CONNECT comes first");
        match session.handle_packet(packet, 1, &self.policy, now) {
            Ok(Action::Publish { message, packet_id }) => {
                self.at_server.push(number_of(message.body.payload()));
                self.completions.extend(packet_id);
            }
            Ok(Action::None | Action::Acknowledged) => {}
            other => panic!("{other:?} came of {packet:?}"),
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now_ms += millis;
        let (_, now) = self.now();
        if self.client.handle_deadline(now) == Deadline::KeepAliveTimeout {
            self.lose();
        }
    }

    fn lose(&mut self) {
        let (now, _) = self.now();
        self.client.handle_connection_closed();
        if let (Some(session), true) = (&mut self.session, self.is_online) {
            let detached = session.handle_connection_closed(now);
            assert!(!detached.ended && detached.will.is_none());
            // QoS 0 that waited goes with the connection.
        }
        self.is_online = false;
        self.to_server.clear();
        self.to_client.clear();
    }

    fn reconnect(&mut self, receive_maximum: u16, server_receive_maximum: u16) {
        self.lose();
        let is_v5 = self.version.is_v5();
        if is_v5 {
            self.policy.receive_maximum = server_receive_maximum;
        }
        let connect = Connect {
            version: self.version,
            is_bridge: false,
            clean_start: false,
            keep_alive: 2,
            client_id: "c",
            will: None,
            username: None,
            password: None,
            properties: ConnectProperties {
                session_expiry_interval: is_v5.then_some(u32::MAX),
                receive_maximum: NonZeroU16::new(receive_maximum).filter(|_| is_v5),
                ..ConnectProperties::default()
            },
        };
        self.client.connect(&connect).expect("a good packet");
    }

    /// A connection that holds, until nothing happens any more.
    fn drain(&mut self) {
        self.step(&Step::Reconnect {
            receive_maximum: 3,
            server_receive_maximum: 3,
        });
        for _ in 0..20 * (self.published.len() + self.delivered.len() + 4) {
            for step in [
                Step::ToServer(usize::MAX),
                Step::Complete(0),
                Step::ToClient(usize::MAX),
                Step::Answer(usize::MAX),
            ] {
                self.step(&step);
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.client.in_flight(), 0);
        assert_eq!(self.client.awaiting_release().next(), None);
        let session = self.session.as_ref().expect("connected");
        assert!(session.is_quiet(), "{session:?}");
        check_direction(&self.published, &self.at_server);
        check_direction(&self.delivered, &self.at_client);
        let mut acknowledged = self.acknowledged.clone();
        acknowledged.sort_unstable();
        let wanted = (0..self.published.len() as u32)
            .filter(|&number| self.published[number as usize] > QoS::AtMostOnce);
        assert!(acknowledged.into_iter().eq(wanted), "each once");
    }
}

fn message(qos: QoS, payload: &[u8]) -> Publish<'_> {
    Publish {
        dup: false,
        qos,
        retain: false,
        topic: "t",
        packet_id: None,
        properties: PublishProperties::default(),
        payload,
    }
}

fn number_of(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload.try_into().expect("four bytes"))
}

fn check_direction(sent: &[QoS], arrived: &[u32]) {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let of_qos = |number: &&u32| sent[**number as usize] == qos;
        let mut got: Vec<u32> = arrived.iter().filter(of_qos).copied().collect();
        if qos == QoS::AtLeastOnce {
            // Again and again is allowed; the first time of each stands in order.
            let mut seen = std::collections::BTreeSet::new();
            got.retain(|number| seen.insert(*number));
        }
        assert!(got.is_sorted_by(|a, b| a < b), "{qos:?}: {got:?}");
        if qos > QoS::AtMostOnce {
            let numbers = 0..sent.len() as u32;
            let wanted = numbers.filter(|&number| sent[number as usize] == qos);
            assert!(got.iter().copied().eq(wanted), "{qos:?}: {got:?}");
        }
    }
}

proptest! {
    #[test]
    fn everything_arrives(
        steps in prop::collection::vec(step(), 1..120),
        is_v5: bool,
        is_manual: bool,
    ) {
        let version = if is_v5 { ProtocolVersion::V5 } else { ProtocolVersion::V3_1_1 };
        let acknowledgements = if is_manual {
            Acknowledgements::Manual
        } else {
            Acknowledgements::Automatic
        };
        let mut world = World::new(version, acknowledgements);
        for step in &steps {
            world.step(step);
        }
        world.drain();
        world.check();
    }
}
