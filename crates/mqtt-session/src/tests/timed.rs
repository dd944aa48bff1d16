//! Packets whose time is measured.

use std::num::NonZeroU64;
use std::sync::Arc;

use mqtt_proto::{
    Connect, ConnectProperties, MessageBody, Packet, PacketId, ProtocolVersion, Publish,
    PublishProperties, QoS, ReasonCode,
};

use crate::{
    Accepted, Action, ApplicationMessage, Delivered, Delivery, Outcome, Policy, Session,
    SubscriptionIdSet, TakenUp, Timed, TimedPacket, Timestamp, Transmit,
};

const NOW: Timestamp = Timestamp(1);

fn connected(policy: &Policy) -> Session {
    let connect = Connect {
        version: ProtocolVersion::V5,
        is_bridge: false,
        clean_start: true,
        keep_alive: 0,
        client_id: "c",
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    };
    let accepted = Accepted::default();
    Session::open(&connect, "c".into(), accepted, policy, NOW)
}

fn timed(session: &mut Session, policy: &Policy) -> Vec<(TimedPacket, QoS, u64)> {
    let (mut out, mut outcome) = (Vec::new(), Outcome::default());
    let transmit = session.poll_transmit(&mut out, 1_000, &mut outcome, policy, NOW);
    assert_eq!(transmit, Transmit::Idle);
    let told = outcome.timed.into_iter();
    told.map(
        |Timed {
             packet,
             qos,
             taken_up: TakenUp(at),
         }| (packet, qos, at.get()),
    )
    .collect()
}

fn at(us: u64) -> Option<TakenUp> {
    NonZeroU64::new(us).map(TakenUp)
}

/// An answer is timed when it is written, which is when those before it are.
#[test]
fn answers_are_timed_when_they_are_written() {
    let policy = Policy::default();
    let mut session = connected(&policy);
    assert_eq!(timed(&mut session, &policy), []);
    let ids = [
        PacketId::FIRST,
        PacketId::FIRST.next(),
        PacketId::FIRST.next().next(),
    ];
    for (packet_id, qos) in
        ids.into_iter()
            .zip([QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::AtLeastOnce])
    {
        let publish = Packet::Publish(Publish {
            dup: false,
            qos,
            retain: false,
            topic: "t",
            packet_id: Some(packet_id),
            properties: PublishProperties::default(),
            payload: b"",
        });
        let action = session.handle_packet(&publish, 1, &policy, NOW);
        assert!(matches!(action, Ok(Action::Publish { .. })));
    }
    let [one, two, three] = ids;
    session.complete_publish(two, ReasonCode::Success, at(20));
    assert_eq!(timed(&mut session, &policy), []);
    session.complete_publish(one, ReasonCode::Success, at(10));
    // The last one is not measured.
    session.complete_publish(three, ReasonCode::Success, None);
    let told = timed(&mut session, &policy);
    assert_eq!(
        told,
        [
            (TimedPacket::Answer, QoS::AtLeastOnce, 10),
            (TimedPacket::Answer, QoS::ExactlyOnce, 20),
        ]
    );
    assert_eq!(timed(&mut session, &policy), []);
}

/// Retained messages have waited for their subscription, and not for the server.
#[test]
fn deliveries_are_timed_unless_they_are_retained_messages() {
    let policy = Policy::default();
    let mut session = connected(&policy);
    for (qos, retain, taken_up) in [
        (QoS::AtMostOnce, false, at(10)),
        (QoS::AtLeastOnce, false, at(20)),
        (QoS::AtLeastOnce, true, at(30)),
        (QoS::ExactlyOnce, false, None),
    ] {
        let message = ApplicationMessage {
            body: MessageBody::new("t", b""),
            qos,
            retain,
            publisher: 0,
            publisher_hash: 0,
            expires_at: None,
            taken_up,
        };
        let delivery = Delivery {
            message: Arc::new(message),
            qos,
            retain,
            subscription_ids: SubscriptionIdSet::None,
            group: None,
        };
        let delivered = session.deliver(delivery, &policy, NOW);
        assert!(matches!(delivered, Delivered::Queued));
    }
    let told = timed(&mut session, &policy);
    let expected = [(QoS::AtMostOnce, 10), (QoS::AtLeastOnce, 20)];
    assert_eq!(
        told,
        expected.map(|(qos, at)| (TimedPacket::Publish, qos, at))
    );
    assert_eq!(timed(&mut session, &policy), []);
}
