//! A durable session between a model store and a model client that keeps to the standard.
//!
//! The store records what it is asked to in order and later, its answers come in any order, its
//! sequence numbers have gaps. Connections break; the server crashes, which loses the session and what
//! was not recorded. Whatever happens: no packet identifier is in use twice, messages go in order and
//! within the window, QoS 2 arrives once both ways, PUBREL and PUBCOMP wait for the store, and every
//! sequence number is acknowledged once, when it is done and not before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU16;
use std::sync::Arc;

use mqtt_proto::*;
use proptest::prelude::*;

use super::driver::quiet_policy;
use crate::*;

#[derive(Clone, Debug)]
enum Step {
    /// A message is queued, so many sequence numbers after the last one.
    Queue(QoS, u64),
    /// A QoS 0 message that is not stored.
    Direct,
    /// The store hands over so many of what it has.
    HandOver(usize),
    /// The store records so many of what it was asked to.
    Record(usize),
    /// One of the store's answers arrives.
    Answer(usize),
    /// The client publishes its next message.
    Publish(QoS),
    ToSession(usize),
    Transmit(usize),
    ToClient(usize),
    Acknowledge(usize),
    /// The client keeps its next acknowledgement back, or sends those that it has kept back.
    KeepBack,
    SendKept,
    Lose,
    Crash,
    Reconnect {
        receive_maximum: u16,
    },
}

fn qos() -> impl Strategy<Value = QoS> {
    prop_oneof![
        1 => Just(QoS::AtMostOnce),
        2 => Just(QoS::AtLeastOnce),
        3 => Just(QoS::ExactlyOnce)
    ]
}

/// Many gaps are small; some end near an identifier that is in use, or at the most sequence numbers in flight.
fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![
        12 => 1_u64..3,
        2 => 6_u64..36,
        2 => 32_760_u64..32_775,
        2 => 65_500_u64..65_560,
        1 => 131_065_u64..131_075,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (qos(), gap()).prop_map(|(qos, gap)| Step::Queue(qos, gap)),
        1 => Just(Step::Direct),
        6 => (1_usize..6).prop_map(Step::HandOver),
        6 => (1_usize..8).prop_map(Step::Record),
        8 => (0_usize..8).prop_map(Step::Answer),
        3 => qos().prop_map(Step::Publish),
        6 => (1_usize..8).prop_map(Step::ToSession),
        6 => (1_usize..200).prop_map(Step::Transmit),
        6 => (1_usize..8).prop_map(Step::ToClient),
        5 => (1_usize..6).prop_map(Step::Acknowledge),
        1 => Just(Step::KeepBack),
        1 => Just(Step::SendKept),
        1 => Just(Step::Lose),
        1 => Just(Step::Crash),
        4 => (1_u16..6).prop_map(|receive_maximum| Step::Reconnect { receive_maximum }),
    ]
}

/// What the store is asked to record, in order.
#[derive(Clone, Debug)]
enum Record {
    Acknowledged(Vec<u64>),
    SentUpTo(u64),
    Receipt(u64),
    Release(PacketId),
    Publication(PacketId, QoS, u32),
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Receipt(u64),
    Release(PacketId),
    Publication(PacketId),
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    qos: QoS,
    number: u32,
    released: bool,
}

/// What survives a crash.
#[derive(Default)]
struct Store {
    inbox: BTreeMap<u64, Queued>,
    last: u64,
    sent: u64,
    received: BTreeSet<PacketId>,
    published: Vec<(QoS, u32)>,
}

impl Store {
    fn record(&mut self, record: &Record) -> Option<Answer> {
        match *record {
            Record::Acknowledged(ref sequences) => {
                for sequence in sequences {
                    assert!(self.inbox.remove(sequence).is_some());
                }
                None
            }
            Record::SentUpTo(sequence) => {
                self.sent = self.sent.max(sequence);
                None
            }
            Record::Receipt(sequence) => {
                if let Some(queued) = self.inbox.get_mut(&sequence) {
                    queued.released = true;
                }
                Some(Answer::Receipt(sequence))
            }
            Record::Release(packet_id) => {
                assert!(self.received.remove(&packet_id));
                Some(Answer::Release(packet_id))
            }
            Record::Publication(packet_id, qos, number) => {
                if qos == QoS::AtLeastOnce || self.received.insert(packet_id) {
                    self.published.push((qos, number));
                }
                Some(Answer::Publication(packet_id))
            }
        }
    }
}

/// What the client still has to hear about a message of its own.
#[derive(Clone, Debug)]
enum Sent {
    Publish(u32, QoS),
    PubRel,
}

/// The client; it survives everything.
struct Client {
    publications: u32,
    next_id: PacketId,
    sent: VecDeque<(PacketId, Sent)>,
    received: BTreeSet<PacketId>,
    acknowledgements: VecDeque<Vec<u8>>,
    kept_back: Vec<Vec<u8>>,
    arrived: Vec<(QoS, u32)>,
}

/// What is known of one network connection.
#[derive(Default)]
struct Connection {
    to_session: VecDeque<Vec<u8>>,
    to_client: VecDeque<Vec<u8>>,
    records: VecDeque<Record>,
    answers: Vec<Answer>,
    /// The store's mark when it began.
    sent_before: u64,
    handed_over: u64,
    written: u64,
    /// Sequence numbers that were written and wait for an acknowledgement.
    in_flight: BTreeSet<u64>,
    /// Those whose PUBREL may go.
    may_release: BTreeSet<u64>,
    /// Inbound identifiers whose PUBCOMP may go.
    may_complete: BTreeSet<PacketId>,
    /// Sequence numbers that are done and not acknowledged to the store.
    done: BTreeSet<u64>,
    /// Numbers of messages that wait in the session alone.
    direct: BTreeSet<u32>,
}

struct World {
    version: ProtocolVersion,
    /// The store hands over nothing that is 65,535 or more above what is not recorded as done.
    careful: bool,
    policy: Policy,
    now: Timestamp,
    session: Option<Session>,
    connection: Connection,
    receive_maximum: u16,
    store: Store,
    client: Client,
    numbers: u32,
    /// The sequence number that an identifier stands for, from the first PUBLISH to the last
    /// acknowledgement.
    in_use: BTreeMap<PacketId, u64>,
    sequence_of: BTreeMap<u32, u64>,
    crashes: usize,
    /// By QoS 0 message, the crashes before it arrived.
    arrived_qos0: BTreeMap<u32, usize>,
}

fn packet_id(sequence: u64) -> PacketId {
    PacketId::new(((sequence - 1) % 65_535 + 1) as u16).expect("above 0")
}

fn number_of(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload.try_into().expect("four bytes"))
}

fn delivery(qos: QoS, number: u32) -> Delivery {
    let message = ApplicationMessage {
        body: MessageBody::new("t", &number.to_be_bytes()),
        qos,
        retain: false,
        publisher: 0,
        publisher_hash: 0,
        expires_at: None,
        taken_up: None,
    };
    Delivery {
        message: Arc::new(message),
        qos,
        retain: false,
        subscription_ids: SubscriptionIdSet::None,
        group: None,
    }
}

impl World {
    fn new(version: ProtocolVersion, careful: bool) -> Self {
        Self {
            version,
            careful,
            policy: Policy {
                receive_maximum: 5,
                inflight_maximum: 4,
                ..quiet_policy()
            },
            now: Timestamp(0),
            session: None,
            connection: Connection::default(),
            receive_maximum: 0,
            store: Store::default(),
            client: Client {
                publications: 0,
                next_id: PacketId::FIRST,
                sent: VecDeque::new(),
                received: BTreeSet::new(),
                acknowledgements: VecDeque::new(),
                kept_back: Vec::new(),
                arrived: Vec::new(),
            },
            numbers: 0,
            in_use: BTreeMap::new(),
            sequence_of: BTreeMap::new(),
            crashes: 0,
            arrived_qos0: BTreeMap::new(),
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
            Step::Queue(qos, gap) => self.queue(qos, gap),
            Step::Direct => self.direct(),
            Step::HandOver(count) => (0..count).for_each(|_| self.hand_over()),
            Step::Record(count) => (0..count).for_each(|_| self.record()),
            Step::Answer(index) => self.answer(index),
            Step::Publish(qos) => self.publish(qos),
            Step::ToSession(count) => (0..count).for_each(|_| self.session_receives()),
            Step::Transmit(budget) => self.transmit(budget),
            Step::ToClient(count) => (0..count).for_each(|_| self.client_receives()),
            Step::Acknowledge(count) => {
                if self.session.is_some() {
                    let acknowledgements = &mut self.client.acknowledgements;
                    let count = count.min(acknowledgements.len());
                    let to_session = &mut self.connection.to_session;
                    to_session.extend(acknowledgements.drain(..count));
                }
            }
            Step::KeepBack => {
                let next = self.client.acknowledgements.pop_front();
                self.client.kept_back.extend(next);
            }
            Step::SendKept => {
                let kept_back = self.client.kept_back.drain(..);
                self.client.acknowledgements.extend(kept_back);
            }
            Step::Lose => self.lose(),
            Step::Crash if self.careful => self.crash(),
            Step::Crash => self.lose(),
            Step::Reconnect { receive_maximum } => self.reconnect(receive_maximum),
        }
        self.take_acknowledged();
    }

    fn queue(&mut self, qos: QoS, gap: u64) {
        self.numbers += 1;
        self.store.last += gap;
        let queued = Queued {
            qos,
            number: self.numbers,
            released: false,
        };
        self.store.inbox.insert(self.store.last, queued);
        self.sequence_of.insert(self.numbers, self.store.last);
    }

    fn direct(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        self.numbers += 1;
        let delivery = delivery(QoS::AtMostOnce, self.numbers);
        let delivered = session.deliver(delivery, &self.policy, self.now);
        assert!(matches!(delivered, Delivered::Queued));
        self.connection.direct.insert(self.numbers);
    }

    fn hand_over(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        let inbox = &self.store.inbox;
        let after = self.connection.handed_over + 1;
        let Some((&sequence, &queued)) = inbox.range(after..).next() else {
            return;
        };
        let oldest = inbox.keys().next().copied().unwrap_or(sequence);
        if self.careful && sequence >= oldest + 65_535 {
            return;
        }
        self.connection.handed_over = sequence;
        if queued.released {
            session.owe_pubrel(sequence);
            self.connection.may_release.insert(sequence);
            return;
        }
        let state = if sequence <= self.connection.sent_before {
            StoredState::Sent
        } else {
            StoredState::New
        };
        if queued.qos == QoS::AtMostOnce && state == StoredState::Sent {
            self.connection.done.insert(sequence);
        }
        session.deliver_stored(delivery(queued.qos, queued.number), sequence, state);
    }

    fn record(&mut self) {
        if let Some(record) = self.connection.records.pop_front() {
            let answer = self.store.record(&record);
            self.connection.answers.extend(answer);
        }
    }

    fn answer(&mut self, index: usize) {
        let connection = &mut self.connection;
        let Some(session) = &mut self.session else {
            return;
        };
        if connection.answers.is_empty() {
            return;
        }
        let index = index % connection.answers.len();
        match connection.answers.remove(index) {
            Answer::Receipt(sequence) => {
                connection.may_release.insert(sequence);
                session.complete_receipt(sequence);
            }
            Answer::Release(packet_id) => {
                connection.may_complete.insert(packet_id);
                session.complete_release(packet_id);
            }
            Answer::Publication(packet_id) => {
                session.complete_publish(packet_id, ReasonCode::Success, None);
            }
        }
    }

    fn publish(&mut self, qos: QoS) {
        let full = self.client.sent.len() >= usize::from(self.policy.receive_maximum);
        if self.session.is_none() || full || qos == QoS::AtMostOnce {
            return;
        }
        let client = &mut self.client;
        client.publications += 1;
        while client.sent.iter().any(|(id, _)| *id == client.next_id) {
            client.next_id = client.next_id.next();
        }
        let (id, number) = (client.next_id, client.publications);
        client.next_id = id.next();
        client.sent.push_back((id, Sent::Publish(number, qos)));
        let frame = self.publication(number, qos, id, false);
        self.connection.to_session.push_back(frame);
    }

    fn publication(&self, number: u32, qos: QoS, id: PacketId, dup: bool) -> Vec<u8> {
        self.encode(&Packet::Publish(Publish {
            dup,
            qos,
            retain: false,
            topic: "t",
            packet_id: Some(id),
            properties: PublishProperties::default(),
            payload: &number.to_be_bytes(),
        }))
    }

    /// The session handles one packet.
    fn session_receives(&mut self) {
        let Some(frame) = self.connection.to_session.pop_front() else {
            return;
        };
        let packet = Packet::decode(&frame, self.version).expect("the model makes good packets");
        if let Packet::PubAck(PubAck { packet_id, .. }) | Packet::PubComp(PubComp { packet_id, .. }) =
            &packet
            && let Some(sequence) = self.in_use.remove(packet_id)
        {
            self.connection.in_flight.remove(&sequence);
            self.connection.may_release.remove(&sequence);
            assert!(self.connection.done.insert(sequence));
        }
        let session = self.session.as_mut().expect("packets come while online");
        let record = match session.handle_packet(&packet, 1, &self.policy, self.now) {
            Ok(Action::Publish { message, packet_id }) => {
                let number = number_of(message.body.payload());
                let packet_id = packet_id.expect("the model publishes above QoS 0");
                Record::Publication(packet_id, message.qos, number)
            }
            Ok(Action::Receipt { sequence }) => {
                let Packet::PubRec(ack) = &packet else {
                    panic!("a receipt came of {packet:?}");
                };
                assert_eq!(self.in_use.get(&ack.packet_id), Some(&sequence));
                Record::Receipt(sequence)
            }
            Ok(Action::Release { packet_id }) => Record::Release(packet_id),
            Ok(Action::None | Action::Acknowledged) => return,
            other => panic!("{other:?} came of {packet:?}"),
        };
        self.connection.records.push_back(record);
    }

    fn transmit(&mut self, budget: usize) {
        let Some(session) = &mut self.session else {
            return;
        };
        let (mut out, mut outcome) = (Vec::new(), Outcome::default());
        let wanted = session.wants_transmit();
        let transmit =
            session.poll_transmit(&mut out, budget, &mut outcome, &self.policy, self.now);
        assert!(outcome.dropped.is_empty());
        assert_eq!(wanted, !out.is_empty());
        assert_eq!(transmit == Transmit::More, session.wants_transmit());
        let mut rest = out.as_slice();
        while let Some(frame) = peek_frame(rest, Some(self.version)).expect("good frames") {
            let (first, others) = rest.split_at(frame.len());
            self.observe(first);
            self.connection.to_client.push_back(first.to_vec());
            rest = others;
        }
        let sent = self.session.as_ref().map_or(0, Session::sent_sequence);
        self.connection.records.push_back(Record::SentUpTo(sent));
    }

    /// Holds a packet of the session against the rules.
    fn observe(&mut self, frame: &[u8]) {
        match Packet::decode(frame, self.version).expect("the session sends good packets") {
            Packet::Publish(publish) => self.observe_publish(&publish),
            Packet::PubRel(PubRel {
                packet_id, reason, ..
            }) => {
                assert_eq!(reason, ReasonCode::Success);
                let released = &self.connection.may_release;
                let sequence = *released
                    .iter()
                    .find(|sequence| self::packet_id(**sequence) == packet_id)
                    .expect("PUBREL goes after its record");
                self.begin_use(sequence);
            }
            Packet::PubComp(PubComp {
                packet_id, reason, ..
            }) => {
                assert!(
                    !self.store.received.contains(&packet_id),
                    "PUBCOMP before its record"
                );
                let found = self.connection.may_complete.remove(&packet_id);
                assert!(found || !self.version.is_v5() || reason != ReasonCode::Success);
            }
            _ => {}
        }
    }

    fn observe_publish(&mut self, publish: &Publish<'_>) {
        let number = number_of(publish.payload);
        let Some(&sequence) = self.sequence_of.get(&number) else {
            assert!(self.connection.direct.remove(&number));
            return;
        };
        // [MQTT-4.6.0-1] [MQTT-4.6.0-6] and none twice on one connection.
        assert!(sequence > self.connection.written, "out of order");
        self.connection.written = sequence;
        let session = self.session.as_ref().expect("the session sends");
        assert!(session.sent_sequence() >= sequence);
        if publish.qos == QoS::AtMostOnce {
            assert!(!publish.dup && self.connection.done.insert(sequence));
            return;
        }
        // [MQTT-3.3.1-1]
        assert_eq!(publish.dup, sequence <= self.connection.sent_before);
        assert_eq!(publish.packet_id, Some(packet_id(sequence)));
        self.begin_use(sequence);
        // [MQTT-3.3.4-9]
        self.connection.in_flight.insert(sequence);
        let window = self.receive_maximum.min(self.policy.inflight_maximum);
        assert!(self.connection.in_flight.len() <= usize::from(window));
    }

    /// [MQTT-2.2.1-4]
    fn begin_use(&mut self, sequence: u64) {
        let before = self.in_use.insert(packet_id(sequence), sequence);
        assert!(
            before.is_none_or(|before| before == sequence),
            "{before:?} and {sequence}"
        );
    }

    /// Everything that is done is acknowledged, once, and nothing else is.
    fn take_acknowledged(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        let mut acknowledged = Vec::new();
        session.take_acknowledged(&mut acknowledged);
        for sequence in &acknowledged {
            assert!(
                self.connection.done.remove(sequence),
                "{sequence} is not done"
            );
        }
        assert!(
            self.connection.done.is_empty(),
            "{:?}",
            self.connection.done
        );
        if !acknowledged.is_empty() {
            self.connection
                .records
                .push_back(Record::Acknowledged(acknowledged));
        }
    }

    /// The client handles one packet.
    fn client_receives(&mut self) {
        let Some(frame) = self.connection.to_client.pop_front() else {
            return;
        };
        let properties = AckProperties::default();
        let reason = ReasonCode::Success;
        match Packet::decode(&frame, self.version).expect("the session sends good packets") {
            Packet::ConnAck(_) => {}
            Packet::Publish(publish) => {
                let number = number_of(publish.payload);
                let Some(packet_id) = publish.packet_id else {
                    self.qos0_arrives(number);
                    return;
                };
                let answer = if publish.qos == QoS::AtLeastOnce {
                    self.client.arrived.push((publish.qos, number));
                    Packet::PubAck(PubAck {
                        packet_id,
                        reason,
                        properties,
                    })
                } else {
                    if self.client.received.insert(packet_id) {
                        self.client.arrived.push((publish.qos, number));
                    }
                    Packet::PubRec(PubRec {
                        packet_id,
                        reason,
                        properties,
                    })
                };
                let answer = self.encode(&answer);
                self.client.acknowledgements.push_back(answer);
            }
            Packet::PubRel(PubRel { packet_id, .. }) => {
                self.client.received.remove(&packet_id);
                let answer = self.encode(&Packet::PubComp(PubComp {
                    packet_id,
                    reason,
                    properties,
                }));
                self.client.acknowledgements.push_back(answer);
            }
            Packet::PubAck(PubAck { packet_id, .. })
            | Packet::PubComp(PubComp { packet_id, .. }) => {
                self.client.sent.retain(|(id, _)| *id != packet_id);
            }
            Packet::PubRec(PubRec { packet_id, .. }) => {
                let mut sent = self.client.sent.iter_mut();
                if let Some((_, sent)) = sent.find(|(id, _)| *id == packet_id) {
                    *sent = Sent::PubRel;
                }
                let release = self.encode(&Packet::PubRel(PubRel {
                    packet_id,
                    reason,
                    properties,
                }));
                self.connection.to_session.push_back(release);
            }
            other => panic!("{other:?}"),
        }
    }

    /// At most once; a crash may lose the record that it was sent.
    fn qos0_arrives(&mut self, number: u32) {
        if let Some(before) = self.arrived_qos0.insert(number, self.crashes) {
            assert!(before < self.crashes, "{number} came twice");
        } else {
            self.client.arrived.push((QoS::AtMostOnce, number));
        }
    }

    /// The network connection breaks. What the store was asked to is recorded before the next one.
    fn lose(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        let detached = session.handle_connection_closed(self.now);
        assert!(!detached.ended && detached.will.is_none());
        let dropped = detached.dropped.iter();
        let dropped: BTreeSet<_> = dropped
            .map(|dropped| number_of(dropped.message.body.payload()))
            .collect();
        assert_eq!(dropped, self.connection.direct);
        // Late calls do no harm.
        session.complete_publish(PacketId::FIRST, ReasonCode::Success, None);
        session.complete_receipt(self.connection.handed_over);
        session.complete_release(PacketId::FIRST);
        let sequence = self.connection.handed_over + 1;
        session.deliver_stored(delivery(QoS::AtLeastOnce, 0), sequence, StoredState::New);
        session.owe_pubrel(sequence + 1);
        let direct = session.deliver(delivery(QoS::AtMostOnce, 0), &self.policy, self.now);
        assert!(matches!(direct, Delivered::Dropped(_)));
        assert!(!session.wants_transmit());
        assert_eq!(held(session), (0, 0, 0));
        self.take_acknowledged();
        while !self.connection.records.is_empty() {
            self.record();
        }
        self.disconnected();
    }

    /// The server crashes: what was not recorded is lost.
    fn crash(&mut self) {
        if self.session.is_some() {
            self.crashes += 1;
            self.disconnected();
        }
    }

    fn disconnected(&mut self) {
        self.session = None;
        self.connection = Connection::default();
        self.client.acknowledgements.clear();
        self.client.kept_back.clear();
    }

    fn reconnect(&mut self, receive_maximum: u16) {
        if self.session.is_some() {
            return;
        }
        self.receive_maximum = if self.version.is_v5() {
            receive_maximum
        } else {
            u16::MAX
        };
        let connect = connect(self.version, receive_maximum);
        let restored = Restored {
            subscriptions: Vec::new(),
            received: self.store.received.iter().rev().copied().collect(),
        };
        let (policy, now) = (&self.policy, self.now);
        let session = Session::open_durable(
            &connect,
            "c".into(),
            Accepted::default(),
            true,
            restored,
            policy,
            now,
        );
        self.session = Some(session);
        self.connection.sent_before = self.store.sent;
        // [MQTT-4.4.0-1] [MQTT-4.6.0-1] the client sends again what it has no answer to.
        for (packet_id, sent) in self.client.sent.clone() {
            let frame = match sent {
                Sent::Publish(number, qos) => self.publication(number, qos, packet_id, true),
                Sent::PubRel => self.encode(&Packet::PubRel(PubRel {
                    packet_id,
                    reason: ReasonCode::Success,
                    properties: AckProperties::default(),
                })),
            };
            self.connection.to_session.push_back(frame);
        }
    }

    /// Everything settles.
    fn settle(&mut self) {
        self.reconnect(2);
        self.step(&Step::SendKept);
        for _ in 0..10_000 {
            for step in [
                Step::HandOver(10),
                Step::ToSession(100),
                Step::Record(100),
                Step::Answer(1),
                Step::Transmit(1_000),
                Step::ToClient(100),
                Step::Acknowledge(100),
            ] {
                self.step(&step);
            }
            let connection = &self.connection;
            let quiet = connection.to_session.is_empty()
                && connection.to_client.is_empty()
                && connection.records.len() <= 1
                && connection.answers.is_empty()
                && self.client.acknowledgements.is_empty()
                && self.store.inbox.is_empty();
            if quiet {
                return;
            }
        }
        panic!("they never settle");
    }

    fn check(&self) {
        let session = self.session.as_ref().expect("settled");
        assert!(!session.wants_transmit());
        assert_eq!(held(session), (0, 0, 0));
        assert!(self.client.sent.is_empty() && self.in_use.is_empty());
        assert!(self.store.received.is_empty() && self.client.received.is_empty());
        check_log(&self.store.published);
        check_log(&self.client.arrived);
    }
}

/// [MQTT-4.6.0-5] [MQTT-4.6.0-6] each QoS in order of first arrival; QoS 2 once.
fn check_log(log: &[(QoS, u32)]) {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut highest = 0;
        let mut seen = BTreeSet::new();
        for (_, number) in log.iter().filter(|(logged, _)| *logged == qos) {
            if seen.insert(*number) {
                assert!(*number > highest, "out of order at {qos:?}");
                highest = *number;
            } else {
                assert_eq!(qos, QoS::AtLeastOnce, "{number} came twice");
            }
        }
    }
}

fn connect(version: ProtocolVersion, receive_maximum: u16) -> Connect<'static> {
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
                ..ConnectProperties::default()
            }
        } else {
            ConnectProperties::default()
        },
    }
}

/// Messages and bytes that a session holds, and what it has in flight.
fn held(session: &Session) -> (usize, u64, usize) {
    let bytes = session.queue_bytes();
    (session.queue_len(), bytes, session.in_flight())
}

/// The numbers that came with one QoS.
fn arrived(log: &[(QoS, u32)], qos: QoS) -> BTreeSet<u32> {
    log.iter()
        .filter(|(logged, _)| *logged == qos)
        .map(|(_, number)| *number)
        .collect()
}

proptest! {
    #[test]
    fn store_session_and_client_agree(
        steps in prop::collection::vec(step(), 0..400),
        v5 in any::<bool>(),
        careful in prop::bool::weighted(0.7),
    ) {
        let version = if v5 { ProtocolVersion::V5 } else { ProtocolVersion::V3_1_1 };
        let mut world = World::new(version, careful);
        let mut expected: [BTreeSet<u32>; 4] = Default::default();
        world.reconnect(3);
        for step in &steps {
            let before = world.client.publications;
            world.step(step);
            match step {
                Step::Queue(qos, _) if *qos != QoS::AtMostOnce => {
                    expected[usize::from(qos.as_u8() - 1)].insert(world.numbers);
                }
                Step::Publish(qos) if world.client.publications > before => {
                    expected[usize::from(qos.as_u8() + 1)].insert(world.client.publications);
                }
                _ => {}
            }
        }
        world.settle();
        world.check();
        prop_assert_eq!(&arrived(&world.client.arrived, QoS::AtLeastOnce), &expected[0]);
        prop_assert_eq!(&arrived(&world.client.arrived, QoS::ExactlyOnce), &expected[1]);
        prop_assert_eq!(&arrived(&world.store.published, QoS::AtLeastOnce), &expected[2]);
        prop_assert_eq!(&arrived(&world.store.published, QoS::ExactlyOnce), &expected[3]);
    }
}
