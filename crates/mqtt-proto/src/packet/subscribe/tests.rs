use crate::ProtocolVersion::*;
use crate::packet::vectors::refuse;
use crate::{
    DecodeError, EncodeError, Packet, PacketId, PacketType, ProtocolVersion, QoS, RetainHandling,
    Subscribe, SubscribeFilters, SubscribeFiltersIter, SubscribeProperties, SubscriptionOptions,
    UserProperties,
};

fn options(qos: QoS) -> SubscriptionOptions {
    SubscriptionOptions {
        qos,
        ..SubscriptionOptions::default()
    }
}

#[track_caller]
fn check(
    version: ProtocolVersion,
    frame: &[u8],
    properties: SubscribeProperties<'_>,
    filters: &[(&str, SubscriptionOptions)],
) {
    let mut buffer = vec![7];
    let packet = Packet::Subscribe(Subscribe {
        packet_id: PacketId::new(10).expect("not 0"),
        properties,
        filters: SubscribeFilters::encode_from(filters, &mut buffer).expect("fits"),
    });
    let decoded = Packet::decode(frame, version);
    assert_eq!(decoded, Ok(packet));
    if let Ok(Packet::Subscribe(subscribe)) = decoded {
        assert!(subscribe.filters.iter().eq(filters.iter().copied()));
        assert_eq!(subscribe.filters.len(), filters.len());
        let mut walk = subscribe.filters.iter();
        for taken in 0..=filters.len() {
            let rest = SubscribeFiltersIter::resume(frame, walk.bytes_left());
            assert!(rest.eq(filters.iter().skip(taken).copied()));
            walk.next();
        }
    }
    let mut out = Vec::new();
    packet.encode(version, &mut out).expect("encodes");
    assert_eq!(out, frame);
}

#[test]
fn before_v5() {
    for version in [V3_1, V3_1_1] {
        #[rustfmt::skip]
        check(version, &[
            0x82, 14, // SUBSCRIBE; remaining length
            0, 10, // packet identifier
            0, 3, b'a', b'/', b'b', // topic filter
            1, // QoS
            0, 3, b'c', b'/', b'#', // topic filter
            2, // QoS
        ], SubscribeProperties::default(), &[
            ("a/b", options(QoS::AtLeastOnce)),
            ("c/#", options(QoS::ExactlyOnce)),
        ]);
    }
}

#[test]
fn options_and_properties_of_v5() {
    let mut pairs = Vec::new();
    let properties = SubscribeProperties {
        subscription_id: Some(128),
        user_properties: UserProperties::encode_from(&[("k", "v")], &mut pairs).expect("fits"),
    };
    let full = SubscriptionOptions {
        qos: QoS::ExactlyOnce,
        no_local: true,
        retain_as_published: true,
        retain_handling: RetainHandling::DoNotSend,
    };
    let once = SubscriptionOptions {
        retain_handling: RetainHandling::SendIfNew,
        ..Default::default()
    };
    #[rustfmt::skip]
    check(V5, &[
        0x82, 21, // SUBSCRIBE; remaining length
        0, 10, // packet identifier
        10, // property length
        0x0B, 0x80, 0x01, // subscription identifier
        0x26, 0, 1, b'k', 0, 1, b'v', // user property
        0, 1, b'+', // topic filter
        0b0010_1110, // retain handling 2, retain as published, no local, QoS 2
        0, 1, b'a', // topic filter
        0b0001_0000, // retain handling 1, QoS 0
    ], properties, &[("+", full), ("a", once)]);
    // before 5.0, only QoS of all this is written
    let mut buffer = Vec::new();
    let subscribe = Subscribe {
        packet_id: PacketId::FIRST,
        properties,
        filters: SubscribeFilters::encode_from(&[("+", full)], &mut buffer).expect("fits"),
    };
    let mut out = Vec::new();
    subscribe.encode(V3_1_1, &mut out).expect("encodes");
    assert_eq!(out, [0x82, 6, 0, 1, 0, 1, b'+', 2]);
}

#[test]
fn a_filter_is_judged_by_the_server_one_by_one() {
    for filter in ["a#", "a/#/b", "$share//x"] {
        let len = filter.len() as u8;
        let frame = [&[0x82, 6 + len, 0, 10, 0, 0, len], filter.as_bytes(), &[0]].concat();
        check(
            V5,
            &frame,
            SubscribeProperties::default(),
            &[(filter, options(QoS::AtMostOnce))],
        );
    }
}

#[test]
fn malformed() {
    for version in [V3_1, V3_1_1] {
        // [MQTT3-3.8.3-3]
        refuse(
            version,
            &[0x82, 2, 0, 10],
            DecodeError::NoTopicFilter(PacketType::Subscribe),
        );
        // [MQTT3-2.3.1-1]
        refuse(
            version,
            &[0x82, 6, 0, 0, 0, 1, b'a', 0],
            DecodeError::PacketIdentifierZero,
        );
        // [MQTT3-3.8.3-4]
        refuse(
            version,
            &[0x82, 6, 0, 1, 0, 1, b'a', 3],
            DecodeError::SubscriptionQosInvalid,
        );
        for bit in 2..8 {
            let frame = [0x82, 6, 0, 1, 0, 1, b'a', 1 << bit];
            refuse(version, &frame, DecodeError::ReservedSubscriptionOptions);
        }
        // [MQTT3-3.8.3-1]
        refuse(
            version,
            &[0x82, 6, 0, 1, 0, 1, 0xFF, 0],
            DecodeError::NotUtf8,
        );
        // [MQTT3-4.7.3-1]
        refuse(
            version,
            &[0x82, 9, 0, 1, 0, 1, b'a', 0, 0, 0, 0],
            DecodeError::TopicFilterEmpty(PacketType::Subscribe),
        );
        refuse(
            version,
            &[0x82, 5, 0, 1, 0, 1, b'a'],
            DecodeError::Truncated,
        );
    }
    // [MQTT-3.8.3-2]
    refuse(
        V5,
        &[0x82, 3, 0, 10, 0],
        DecodeError::NoTopicFilter(PacketType::Subscribe),
    );
    // [MQTT-2.2.1-3]
    refuse(
        V5,
        &[0x82, 7, 0, 0, 0, 0, 1, b'a', 0],
        DecodeError::PacketIdentifierZero,
    );
    let v5 = |options| [0x82, 7, 0, 1, 0, 0, 1, b'a', options];
    // [MQTT-3.8.3-5]
    refuse(V5, &v5(0x40), DecodeError::ReservedSubscriptionOptions);
    refuse(V5, &v5(0x80), DecodeError::ReservedSubscriptionOptions);
    // §3.8.3.1
    refuse(V5, &v5(0x03), DecodeError::SubscriptionQosInvalid);
    refuse(V5, &v5(0x30), DecodeError::RetainHandlingInvalid);
    // [MQTT-3.8.3-1]
    refuse(V5, &[0x82, 7, 0, 1, 0, 0, 1, 0xFF, 0], DecodeError::NotUtf8);
    // [MQTT-4.7.3-1]
    let empty = DecodeError::TopicFilterEmpty(PacketType::Subscribe);
    refuse(V5, &[0x82, 6, 0, 1, 0, 0, 0, 0], empty);
    // §3.8.2.1.2
    let frame = [0x82, 9, 0, 1, 2, 0x0B, 0, 0, 1, b'a', 0];
    refuse(V5, &frame, DecodeError::PropertyValueInvalid(0x0B));
    // [MQTT-3.8.1-1] [MQTT3-3.8.1-1]
    for first in [0x80, 0x81, 0x83, 0x8A] {
        let frame = [first, 7, 0, 1, 0, 0, 1, b'a', 0];
        refuse(
            V5,
            &frame,
            DecodeError::ReservedFlags(PacketType::Subscribe),
        );
    }
    // 3.1 §3.8: sent again with DUP
    assert!(Packet::decode(&[0x8A, 6, 0, 1, 0, 1, b'a', 0], V3_1).is_ok());
}

#[test]
fn no_local_on_a_shared_subscription() {
    // [MQTT-3.8.3-4]
    let frame = [&[0x82, 16, 0, 1, 0, 0, 10][..], b"$share/g/a", &[0b100]].concat();
    refuse(V5, &frame, DecodeError::NoLocalOnSharedSubscription);
    let options = SubscriptionOptions {
        no_local: true,
        ..Default::default()
    };
    let mut buffer = vec![7];
    for (filters, error) in [
        (
            &[("a", options), ("$share/g/a", options)][..],
            EncodeError::NoLocalOnSharedSubscription,
        ),
        (&[], EncodeError::NoTopicFilter),
        (&[("a", options), ("\0", options)], EncodeError::NulInString),
        (
            &[("a", options), ("", options)],
            EncodeError::TopicFilterEmpty,
        ),
    ] {
        assert_eq!(
            SubscribeFilters::encode_from(filters, &mut buffer),
            Err(error)
        );
    }
    assert_eq!(buffer, [7]);
}
