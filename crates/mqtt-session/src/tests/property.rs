//! Two endpoints in virtual time: a session and a model client that keeps to the standard, over a
//! connection that breaks at any moment, with a server that is done with messages in any order.
//!
//! Whatever happens: no packet identifier is reused in flight, the client's Receive Maximum holds,
//! QoS 2 arrives exactly once both ways, QoS 1 at least once, each QoS in order, and in the end the
//! session holds nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use mqtt_proto::*;
use proptest::prelude::*;

use super::driver::quiet_policy;
use crate::*;

#[derive(Clone, Debug)]
enum Step {
    /// The server delivers the next message to the session.
    Deliver(QoS),
    /// The client publishes its next message.
    Publish(QoS),
    /// So many packets of the client arrive.
    ToSession(usize),
    /// The session transmits, with this budget.
    Transmit(usize),
    /// So many packets of the session arrive.
    ToClient(usize),
    /// The client sends so many of its acknowledgements.
    Acknowledge(usize),
    /// It keeps its next one back, or sends those that it has kept back.
    KeepBack,
    SendKept,
    /// The server is done with one of the messages it was given.
    Complete(usize),
    Lose,
    Reconnect {
        receive_maximum: u16,
        topic_alias_maximum: u16,
    },
    Ping,
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
        6 => qos().prop_map(Step::Deliver),
        4 => qos().prop_map(Step::Publish),
        6 => (1_usize..8).prop_map(Step::ToSession),
        6 => (1_usize..200).prop_map(Step::Transmit),
        6 => (1_usize..8).prop_map(Step::ToClient),
        5 => (1_usize..6).prop_map(Step::Acknowledge),
        1 => Just(Step::KeepBack),
        1 => Just(Step::SendKept),
        5 => (0_usize..8).prop_map(Step::Complete),
        1 => Just(Step::Lose),
        2 => (1_u16..6, 0_u16..3).prop_map(|(receive_maximum, topic_alias_maximum)| {
            Step::Reconnect { receive_maximum, topic_alias_maximum }
        }),
        1 => Just(Step::Ping),
    ]
}

/// What the client still has to hear about a message of its own.
#[derive(Clone, Debug)]
enum Sent {
    Publish(u32, QoS),
    PubRel,
}

struct World {
    version: ProtocolVersion,
    policy: Policy,
    now: Timestamp,
    session: Session,
    online: bool,
    /// Whole packets on their way.
    to_session: VecDeque<Vec<u8>>,
    to_client: VecDeque<Vec<u8>>,
    // The server's side.
    delivered: u32,
    /// Messages by the session's word; identifiers that wait for completion.
    published: Vec<(QoS, u32)>,
    completions: Vec<PacketId>,
    /// Identifiers that the session has in flight.
    in_flight: BTreeSet<PacketId>,
    /// Those of them it has sent on this connection.
    in_flight_here: BTreeSet<PacketId>,
    receive_maximum: u16,
    // The client's side.
    publications: u32,
    next_id: PacketId,
    sent: VecDeque<(PacketId, Sent)>,
    received: BTreeSet<PacketId>,
    acknowledgements: VecDeque<Vec<u8>>,
    kept_back: Vec<Vec<u8>>,
    arrived: Vec<(QoS, u32)>,
    aliases: BTreeMap<NonZeroU16, String>,
}

const TOPICS: [&str; 4] = ["long/a", "long/b", "long/c", "d"];

impl World {
    fn new(version: ProtocolVersion) -> Self {
        let policy = Policy {
            receive_maximum: 5,
            inflight_maximum: 4,
            ..quiet_policy()
        };
        let now = Timestamp(0);
        let connect = connect(version, 3, 0);
        let session = Session::open(&connect, "c".into(), Accepted::default(), &policy, now);
        Self {
            version,
            policy,
            now,
            session,
            online: true,
            to_session: VecDeque::new(),
            to_client: VecDeque::new(),
            delivered: 0,
            published: Vec::new(),
            completions: Vec::new(),
            in_flight: BTreeSet::new(),
            in_flight_here: BTreeSet::new(),
            receive_maximum: if version.is_v5() { 3 } else { u16::MAX },
            publications: 0,
            next_id: PacketId::FIRST,
            sent: VecDeque::new(),
            received: BTreeSet::new(),
            acknowledgements: VecDeque::new(),
            kept_back: Vec::new(),
            arrived: Vec::new(),
            aliases: BTreeMap::new(),
        }
    }

    fn encode(&self, packet: &Packet<'_>) -> Vec<u8> {
        let mut frame = Vec::new();
        packet
            .encode(self.version, &mut frame)
            .expect("the model makes good packets");
        frame
    }

    fn step(&mut self, step: &Step) {
        self.now = self.now.add_millis(1);
        match *step {
            Step::Deliver(qos) => self.deliver(qos),
            Step::Publish(qos) => self.publish(qos),
            Step::ToSession(count) => (0..count).for_each(|_| self.session_receives()),
            Step::Transmit(budget) => self.transmit(budget),
            Step::ToClient(count) => (0..count).for_each(|_| self.client_receives()),
            Step::Acknowledge(count) => {
                if self.online {
                    let count = count.min(self.acknowledgements.len());
                    self.to_session.extend(self.acknowledgements.drain(..count));
                }
            }
            Step::KeepBack => self.kept_back.extend(self.acknowledgements.pop_front()),
            Step::SendKept => self.acknowledgements.extend(self.kept_back.drain(..)),
            Step::Complete(index) => {
                if !self.completions.is_empty() {
                    let id = self.completions.remove(index % self.completions.len());
                    self.session.complete_publish(id, ReasonCode::Success, None);
                }
            }
            Step::Lose => self.lose(),
            Step::Reconnect {
                receive_maximum,
                topic_alias_maximum,
            } => {
                self.reconnect(receive_maximum, topic_alias_maximum);
            }
            Step::Ping => {
                if self.online {
                    self.to_session.push_back(self.encode(&Packet::PingReq));
                }
            }
        }
    }

    fn deliver(&mut self, qos: QoS) {
        self.delivered += 1;
        let number = self.delivered;
        let topic = TOPICS[number as usize % TOPICS.len()];
        let message = ApplicationMessage {
            body: MessageBody::new(topic, &number.to_be_bytes()),
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
        let delivered = self.session.deliver(delivery, &self.policy, self.now);
        assert!(matches!(delivered, Delivered::Queued));
    }

    fn publish(&mut self, qos: QoS) {
        if !self.online || self.sent.len() >= usize::from(self.policy.receive_maximum) {
            return;
        }
        self.publications += 1;
        let number = self.publications;
        let id = (qos != QoS::AtMostOnce).then(|| {
            while self.sent.iter().any(|(id, _)| *id == self.next_id) {
                self.next_id = self.next_id.next();
            }
            let id = self.next_id;
            self.next_id = id.next();
            self.sent.push_back((id, Sent::Publish(number, qos)));
            id
        });
        let frame = self.publication(number, qos, id, false);
        self.to_session.push_back(frame);
    }

    fn publication(
        &self,
        number: u32,
        qos: QoS,
        packet_id: Option<PacketId>,
        dup: bool,
    ) -> Vec<u8> {
        self.encode(&Packet::Publish(Publish {
            dup,
            qos,
            retain: false,
            topic: "t",
            packet_id,
            properties: PublishProperties::default(),
            payload: &number.to_be_bytes(),
        }))
    }

    /// The session handles one packet.
    fn session_receives(&mut self) {
        let Some(frame) = self.to_session.pop_front() else {
            return;
        };
        let packet = Packet::decode(&frame, self.version).expect("the model makes good packets");
        let acknowledged = match &packet {
            Packet::PubAck(ack) => Some(ack.packet_id),
            Packet::PubComp(ack) => Some(ack.packet_id),
            _ => None,
        };
        match self
            .session
            .handle_packet(&packet, 1, &self.policy, self.now)
        {
            Ok(Action::Publish { message, packet_id }) => {
                self.published
                    .push((message.qos, number_of(message.body.payload())));
                self.completions.extend(packet_id);
            }
            Ok(Action::None | Action::Acknowledged) => {}
            other => panic!("{other:?} came of {packet:?}"),
        }
        if let Some(id) = acknowledged {
            self.in_flight.remove(&id);
            self.in_flight_here.remove(&id);
        }
    }

    fn transmit(&mut self, budget: usize) {
        let (mut out, mut outcome) = (Vec::new(), Outcome::default());
        let wanted = self.session.wants_transmit();
        let transmit =
            self.session
                .poll_transmit(&mut out, budget, &mut outcome, &self.policy, self.now);
        assert!(outcome.dropped.is_empty());
        assert_eq!(wanted, !out.is_empty());
        assert_eq!(transmit == Transmit::More, self.session.wants_transmit());
        let mut rest = out.as_slice();
        while let Some(frame) = peek_frame(rest, Some(self.version)).expect("good frames") {
            let (first, others) = rest.split_at(frame.len());
            self.observe(first);
            self.to_client.push_back(first.to_vec());
            rest = others;
        }
        assert!(rest.is_empty(), "the session sends whole packets");
    }

    /// Holds a packet of the session against the rules.
    fn observe(&mut self, frame: &[u8]) {
        match Packet::decode(frame, self.version).expect("the session sends good packets") {
            Packet::Publish(Publish {
                packet_id: Some(id),
                dup,
                ..
            }) => {
                // [MQTT-2.2.1-4]
                assert_eq!(
                    !self.in_flight.insert(id),
                    dup,
                    "identifier {id:?} reused or DUP wrong"
                );
                assert!(
                    self.in_flight_here.insert(id),
                    "sent twice on one connection"
                );
                // [MQTT-3.3.4-9]
                assert!(self.in_flight_here.len() <= usize::from(self.receive_maximum));
                assert!(self.in_flight_here.len() <= usize::from(self.policy.inflight_maximum));
            }
            Packet::PubRel(ack) => assert_eq!(ack.reason, ReasonCode::Success),
            _ => {}
        }
    }

    /// The client handles one packet.
    fn client_receives(&mut self) {
        let Some(frame) = self.to_client.pop_front() else {
            return;
        };
        let properties = AckProperties::default();
        let reason = ReasonCode::Success;
        match Packet::decode(&frame, self.version).expect("the session sends good packets") {
            Packet::ConnAck(_) | Packet::PingResp => {}
            Packet::Publish(publish) => {
                self.check_alias(&publish);
                let number = number_of(publish.payload);
                let Some(packet_id) = publish.packet_id else {
                    self.arrived.push((publish.qos, number));
                    return;
                };
                let answer = if publish.qos == QoS::AtLeastOnce {
                    self.arrived.push((publish.qos, number));
                    Packet::PubAck(PubAck {
                        packet_id,
                        reason,
                        properties,
                    })
                } else {
                    if self.received.insert(packet_id) {
                        self.arrived.push((publish.qos, number));
                    }
                    Packet::PubRec(PubRec {
                        packet_id,
                        reason,
                        properties,
                    })
                };
                self.acknowledgements.push_back(self.encode(&answer));
            }
            Packet::PubRel(PubRel { packet_id, .. }) => {
                self.received.remove(&packet_id);
                let answer = Packet::PubComp(PubComp {
                    packet_id,
                    reason,
                    properties,
                });
                self.acknowledgements.push_back(self.encode(&answer));
            }
            Packet::PubAck(ack) => self.finish(ack.packet_id),
            Packet::PubComp(ack) => self.finish(ack.packet_id),
            Packet::PubRec(PubRec { packet_id, .. }) => {
                if let Some((_, sent)) = self.sent.iter_mut().find(|(id, _)| *id == packet_id) {
                    *sent = Sent::PubRel;
                }
                let release = Packet::PubRel(PubRel {
                    packet_id,
                    reason,
                    properties,
                });
                self.to_session.push_back(self.encode(&release));
            }
            other => panic!("{other:?}"),
        }
    }

    /// [MQTT-3.3.2-7] every alias stands for the topic of the message.
    fn check_alias(&mut self, publish: &Publish<'_>) {
        let expected = TOPICS[number_of(publish.payload) as usize % TOPICS.len()];
        let topic = match publish.properties.topic_alias {
            Some(alias) if publish.topic.is_empty() => self.aliases[&alias].clone(),
            Some(alias) => {
                self.aliases.insert(alias, publish.topic.to_owned());
                publish.topic.to_owned()
            }
            None => publish.topic.to_owned(),
        };
        assert_eq!(topic, expected);
    }

    fn finish(&mut self, packet_id: PacketId) {
        self.sent.retain(|(id, _)| *id != packet_id);
    }

    fn lose(&mut self) {
        if self.online {
            self.online = false;
            self.to_session.clear();
            self.to_client.clear();
            self.acknowledgements.clear();
            self.kept_back.clear();
            self.aliases.clear();
            self.in_flight_here.clear();
            let detached = self.session.handle_connection_closed(self.now);
            assert!(!detached.ended && detached.will.is_none());
        }
    }

    fn reconnect(&mut self, receive_maximum: u16, topic_alias_maximum: u16) {
        if self.online {
            return;
        }
        self.online = true;
        self.receive_maximum = if self.version.is_v5() {
            receive_maximum
        } else {
            u16::MAX
        };
        let connect = connect(self.version, receive_maximum, topic_alias_maximum);
        self.session.resume(&connect, &self.policy, self.now);
        // [MQTT-4.4.0-1] [MQTT-4.6.0-1] the client sends again what it has no answer to.
        for (packet_id, sent) in self.sent.clone() {
            let frame = match sent {
                Sent::Publish(number, qos) => self.publication(number, qos, Some(packet_id), true),
                Sent::PubRel => self.encode(&Packet::PubRel(PubRel {
                    packet_id,
                    reason: ReasonCode::Success,
                    properties: AckProperties::default(),
                })),
            };
            self.to_session.push_back(frame);
        }
    }

    /// Everything settles.
    fn settle(&mut self) {
        self.reconnect(2, 1);
        self.step(&Step::SendKept);
        for _ in 0..10_000 {
            for step in [
                Step::ToSession(100),
                Step::Complete(0),
                Step::Transmit(1_000),
                Step::ToClient(100),
                Step::Acknowledge(100),
            ] {
                self.step(&step);
            }
            let quiet = self.to_session.is_empty()
                && self.to_client.is_empty()
                && self.completions.is_empty()
                && !self.session.wants_transmit();
            if quiet {
                return;
            }
        }
        panic!("the two never settle");
    }

    fn check(&self) {
        assert_eq!(self.session.queue_len(), 0);
        assert_eq!(self.session.queue_bytes(), 0);
        assert_eq!(self.session.in_flight(), 0);
        assert!(self.session.is_quiet());
        assert!(self.sent.is_empty() && self.in_flight.is_empty());
        check_log(&self.published, self.publications);
        check_log(&self.arrived, self.delivered);
    }
}

/// [MQTT-4.6.0-5] [MQTT-4.6.0-6] each QoS in order of first arrival; QoS 2 exactly once; QoS 0 at most
/// once.
fn check_log(log: &[(QoS, u32)], last: u32) {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut highest = 0;
        let mut seen = BTreeSet::new();
        for (_, number) in log.iter().filter(|(logged, _)| *logged == qos) {
            if seen.insert(*number) {
                assert!(*number > highest, "out of order at {qos:?}");
                highest = *number;
            } else {
                assert_eq!(qos, QoS::AtLeastOnce, "{number} came twice");
            }
            assert!(*number <= last);
        }
    }
}

fn connect(version: ProtocolVersion, receive_maximum: u16, aliases: u16) -> Connect<'static> {
    Connect {
        version,
        is_bridge: false,
        clean_start: false,
        keep_alive: 0,
        client_id: "c",
        will: None,
        username: None,
        password: None,
        properties: if version.is_v5() {
            ConnectProperties {
                session_expiry_interval: Some(NEVER_EXPIRES),
                receive_maximum: NonZeroU16::new(receive_maximum),
                topic_alias_maximum: Some(aliases),
                maximum_packet_size: NonZeroU32::new(1_000),
                ..ConnectProperties::default()
            }
        } else {
            ConnectProperties::default()
        },
    }
}

fn number_of(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload.try_into().expect("four bytes"))
}

/// Every message of QoS 1 and 2 arrives: the numbers of a direction that came.
fn arrived(log: &[(QoS, u32)], qos: QoS) -> BTreeSet<u32> {
    log.iter()
        .filter(|(logged, _)| *logged == qos)
        .map(|(_, number)| *number)
        .collect()
}

proptest! {
    #[test]
    fn the_two_endpoints_agree(
        steps in prop::collection::vec(step(), 0..300),
        v5 in any::<bool>(),
    ) {
        let version = if v5 { ProtocolVersion::V5 } else { ProtocolVersion::V3_1_1 };
        let mut world = World::new(version);
        let mut expected: [BTreeSet<u32>; 4] = Default::default();
        for step in &steps {
            let before = (world.delivered, world.publications);
            world.step(step);
            match step {
                Step::Deliver(qos) if *qos != QoS::AtMostOnce => {
                    expected[usize::from(qos.as_u8() - 1)].insert(world.delivered);
                }
                Step::Publish(qos) if *qos != QoS::AtMostOnce && world.publications > before.1 => {
                    expected[usize::from(qos.as_u8() + 1)].insert(world.publications);
                }
                _ => {}
            }
        }
        world.settle();
        world.check();
        prop_assert_eq!(&arrived(&world.arrived, QoS::AtLeastOnce), &expected[0]);
        prop_assert_eq!(&arrived(&world.arrived, QoS::ExactlyOnce), &expected[1]);
        prop_assert_eq!(&arrived(&world.published, QoS::AtLeastOnce), &expected[2]);
        prop_assert_eq!(&arrived(&world.published, QoS::ExactlyOnce), &expected[3]);
    }
}

/// [MQTT-2.2.1-4] identifiers go round from 65,535 to 1, with holes in flight.
#[test]
fn identifiers_go_round() {
    let mut world = World::new(ProtocolVersion::V5);
    world.settle();
    for round in 0..70_000_u32 {
        world.deliver(if round % 3 == 0 {
            QoS::ExactlyOnce
        } else {
            QoS::AtLeastOnce
        });
        world.transmit(1_000);
        world.client_receives();
        // Later acknowledgements overtake earlier ones.
        if round % 2 == 1 {
            while let Some(ack) = world.acknowledgements.pop_back() {
                world.to_session.push_back(ack);
                world.session_receives();
            }
        }
        if round % 1_000 == 999 {
            world.lose();
            world.reconnect(3, 0);
            world.settle();
        }
    }
    world.settle();
    assert_eq!(world.session.queue_bytes(), 0);
    assert_eq!(
        arrived(&world.arrived, QoS::ExactlyOnce).len(),
        70_000_usize.div_ceil(3)
    );
}
