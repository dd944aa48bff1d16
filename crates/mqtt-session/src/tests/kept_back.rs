//! Clients that keep one acknowledgement back and send the others: they get what is published all the same.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::Arc;

use mqtt_proto::*;

use super::driver::quiet_policy;
use crate::*;

const NOW: Timestamp = Timestamp(1);

/// Packet identifiers go round more than twice.
const MESSAGES: u32 = 140_000;

/// Which acknowledgement is kept back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    /// PUBACK.
    Ack,
    /// PUBREC.
    Rec,
    /// PUBCOMP.
    Comp,
}

impl Kept {
    fn qos(self) -> QoS {
        match self {
            Self::Ack => QoS::AtLeastOnce,
            Self::Rec | Self::Comp => QoS::ExactlyOnce,
        }
    }

    fn packet(self, packet_id: PacketId) -> Packet<'static> {
        let (reason, properties) = (ReasonCode::Success, AckProperties::default());
        match self {
            Self::Ack => Packet::PubAck(PubAck {
                packet_id,
                reason,
                properties,
            }),
            Self::Rec => Packet::PubRec(PubRec {
                packet_id,
                reason,
                properties,
            }),
            Self::Comp => Packet::PubComp(PubComp {
                packet_id,
                reason,
                properties,
            }),
        }
    }
}

fn connect(expiry: u32) -> Connect<'static> {
    Connect {
        version: ProtocolVersion::V5,
        is_bridge: false,
        clean_start: false,
        keep_alive: 0,
        client_id: "c",
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties {
            session_expiry_interval: Some(expiry),
            receive_maximum: NonZeroU16::new(20),
            ..ConnectProperties::default()
        },
    }
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

/// A session, and a client that acknowledges everything but what it keeps back.
struct World {
    session: Session,
    policy: Policy,
    kept: Kept,
    /// Numbers of the messages whose acknowledgement the client keeps back.
    keeps: BTreeSet<u32>,
    /// Identifiers that the client knows to be in use.
    in_use: BTreeSet<PacketId>,
    /// Identifiers of messages in `keeps`.
    kept_back: Vec<PacketId>,
    /// Numbers of messages in the order in which they came, and whether with DUP.
    arrived: Vec<(u32, bool)>,
    /// PUBRELs for what is kept back.
    released: usize,
}

impl World {
    fn new(kept: Kept, keeps: &[u32], durable: bool) -> Self {
        let policy = Policy {
            inflight_maximum: 100,
            ..quiet_policy()
        };
        let connect = connect(NEVER_EXPIRES);
        let accepted = Accepted::default();
        let session = match durable {
            true => Session::open_durable(
                &connect,
                "c".into(),
                accepted,
                false,
                Restored::default(),
                &policy,
                NOW,
            ),
            false => Session::open(&connect, "c".into(), accepted, &policy, NOW),
        };
        Self {
            session,
            policy,
            kept,
            keeps: keeps.iter().copied().collect(),
            in_use: BTreeSet::new(),
            kept_back: Vec::new(),
            arrived: Vec::new(),
            released: 0,
        }
    }

    /// Everything that can go back and forth does.
    fn exchange(&mut self) {
        while self.session.wants_transmit() {
            let (mut out, mut outcome) = (Vec::new(), Outcome::default());
            let policy = &self.policy;
            let _ = self
                .session
                .poll_transmit(&mut out, 4_096, &mut outcome, policy, NOW);
            assert!(outcome.dropped.is_empty());
            let mut rest = out.as_slice();
            while let Some(frame) = peek_frame(rest, Some(ProtocolVersion::V5)).expect("good") {
                let (first, others) = rest.split_at(frame.len());
                self.client_receives(first);
                rest = others;
            }
        }
    }

    fn client_receives(&mut self, frame: &[u8]) {
        match Packet::decode(frame, ProtocolVersion::V5).expect("a good packet") {
            Packet::Publish(publish) => {
                let number = u32::from_be_bytes(publish.payload.try_into().expect("a number"));
                let packet_id = publish.packet_id.expect("QoS 1 or 2");
                // [MQTT-2.2.1-4]
                assert_eq!(!self.in_use.insert(packet_id), publish.dup, "{packet_id:?}");
                self.arrived.push((number, publish.dup));
                let keeps = self.keeps.contains(&number);
                if keeps && !self.kept_back.contains(&packet_id) {
                    self.kept_back.push(packet_id);
                }
                match self.kept {
                    Kept::Ack | Kept::Rec if keeps => {}
                    Kept::Ack => self.send(Kept::Ack.packet(packet_id)),
                    Kept::Rec | Kept::Comp => self.send(Kept::Rec.packet(packet_id)),
                }
            }
            Packet::PubRel(PubRel { packet_id, .. }) if self.kept_back.contains(&packet_id) => {
                self.released += 1;
            }
            Packet::PubRel(PubRel { packet_id, .. }) => self.send(Kept::Comp.packet(packet_id)),
            _ => {}
        }
    }

    fn send(&mut self, packet: Packet<'_>) {
        if let Packet::PubAck(PubAck { packet_id, .. })
        | Packet::PubComp(PubComp { packet_id, .. }) = &packet
        {
            self.in_use.remove(packet_id);
        }
        match self.session.handle_packet(&packet, 1, &self.policy, NOW) {
            Ok(Action::None | Action::Acknowledged) => {}
            Ok(Action::Receipt { sequence }) => self.session.complete_receipt(sequence),
            other => panic!("{other:?} came of {packet:?}"),
        }
    }
}

/// [MQTT-3.3.4-9] [MQTT-2.2.1-4] [MQTT-4.4.0-1] [MQTT-4.6.0-1] while quota is left, messages go on: in order, in
/// the memory of what is kept back, with identifiers that are free however often they go round. After a reconnection
/// what was kept back, and nothing else, comes again in its order.
#[test]
fn a_clean_session_goes_on_with_one_kept_back() {
    for kept in [Kept::Ack, Kept::Rec, Kept::Comp] {
        let keeps = [1, 2, 70_000, 70_001, 139_000];
        let mut world = World::new(kept, &keeps, false);
        world.exchange();
        for number in 1..=MESSAGES {
            let delivery = delivery(kept.qos(), number);
            let delivered = world.session.deliver(delivery, &world.policy, NOW);
            assert!(matches!(delivered, Delivered::Queued));
            world.exchange();
            assert_eq!(world.arrived.last(), Some(&(number, false)), "{kept:?}");
            if number % 1_000 == 0 {
                assert!(world.session.heap_bytes() < 16_384, "at {number}");
            }
        }
        assert!(world.arrived.is_sorted());
        assert_eq!(world.session.in_flight(), keeps.len());
        assert_eq!(world.session.held_back(), None);

        let _ = world.session.handle_connection_closed(NOW);
        (world.arrived, world.released) = (Vec::new(), 0);
        world
            .session
            .resume(&connect(NEVER_EXPIRES), &world.policy, NOW);
        world.exchange();
        match kept {
            Kept::Comp => assert_eq!((world.arrived.len(), world.released), (0, keeps.len())),
            _ => assert_eq!(world.arrived, keeps.map(|number| (number, true))),
        }
        for packet_id in std::mem::take(&mut world.kept_back) {
            world.send(kept.packet(packet_id));
        }
        world.exchange();
        assert!(world.session.is_quiet() && world.in_use.is_empty());
        assert_eq!(world.session.queue_bytes(), 0);
    }
}

/// The quota is what holds a client that keeps all back, and the session says so.
#[test]
fn the_receive_maximum_holds_back_and_is_named() {
    let keeps: Vec<u32> = (1..=20).collect();
    for durable in [false, true] {
        let mut world = World::new(Kept::Ack, &keeps, durable);
        for number in 1..=21 {
            let delivery = delivery(QoS::AtLeastOnce, number);
            if durable {
                let session = &mut world.session;
                session.deliver_stored(delivery, number.into(), StoredState::New);
            } else {
                let _ = world.session.deliver(delivery, &world.policy, NOW);
            }
            world.exchange();
        }
        assert_eq!(world.arrived.len(), 20);
        assert_eq!(world.session.held_back(), Some(HeldBack::ReceiveMaximum));
        let packet_id = world.kept_back.remove(7);
        world.send(Kept::Ack.packet(packet_id));
        world.exchange();
        assert_eq!(world.arrived.last(), Some(&(21, false)));
        assert_eq!(world.session.held_back(), None);
    }
}

/// [MQTT-2.2.1-4] the identifier of a stored message is a function of its sequence number, so half of the
/// identifiers may be between the oldest and the newest: then the client is held, and the session says so, once.
#[test]
fn a_durable_session_goes_on_with_one_kept_back_for_half_the_identifiers() {
    for kept in [Kept::Ack, Kept::Rec, Kept::Comp] {
        let mut world = World::new(kept, &[1], true);
        world.exchange();
        for number in 1..=32_769 {
            let delivery = delivery(kept.qos(), number);
            let session = &mut world.session;
            session.deliver_stored(delivery, number.into(), StoredState::New);
            let mut acknowledged = Vec::new();
            world.exchange();
            world.session.take_acknowledged(&mut acknowledged);
            assert!(world.session.heap_bytes() < 16_384, "at {number}");
            let expected = Vec::from_iter((2..=32_768).contains(&number).then_some(number.into()));
            assert_eq!(acknowledged, expected);
        }
        assert_eq!(world.arrived.last(), Some(&(32_768, false)));
        let held = Some(HeldBack::PacketIdentifiers);
        assert_eq!(world.session.held_back(), held);
        let counts = [0, 1].map(|_| {
            let mut outcome = Outcome::default();
            let (session, policy) = (&mut world.session, &world.policy);
            let _ = session.poll_transmit(&mut Vec::new(), 4_096, &mut outcome, policy, NOW);
            outcome.waits_for_identifier
        });
        assert_eq!(counts, [true, false]);
        let packet_id = world.kept_back.remove(0);
        world.keeps.clear();
        world.send(kept.packet(packet_id));
        world.exchange();
        assert_eq!(world.arrived.last(), Some(&(32_769, false)));
        assert!(world.session.is_quiet() && world.in_use.is_empty());
    }
}
