use std::num::NonZeroU16;

use crate::ProtocolVersion::*;
use crate::packet::vectors::refuse;
use crate::{
    DecodeError, EncodeError, Packet, PacketId, ProtocolVersion, Publish, PublishProperties, QoS,
    UserProperties,
};

const PLAIN: Publish<'static> = Publish {
    dup: false,
    qos: QoS::AtMostOnce,
    retain: false,
    topic: "a/b",
    packet_id: None,
    properties: PublishProperties {
        payload_format_indicator: None,
        message_expiry_interval: None,
        topic_alias: None,
        response_topic: None,
        correlation_data: None,
        content_type: None,
        subscription_ids: crate::SubscriptionIds::NONE,
        user_properties: UserProperties::NONE,
    },
    payload: b"hi",
};

/// As `vectors::check`, except that a PUBLISH may end anywhere in its payload.
#[track_caller]
fn check(version: ProtocolVersion, frame: &[u8], publish: Publish<'_>) {
    assert_eq!(Packet::decode(frame, version), Ok(Packet::Publish(publish)));
    let mut out = Vec::new();
    publish
        .encode(version, &mut out)
        .expect("a golden packet encodes");
    assert_eq!(out, frame);
    // The header says less than is there, and less is there than the header says.
    assert!(Packet::decode(&[frame, &[0]].concat(), version).is_err());
    assert!(Packet::decode(&frame[..frame.len() - 1], version).is_err());
}

#[test]
fn qos_0() {
    // [MQTT-2.2.1-2] [MQTT3-2.3.1-5] no packet identifier; [MQTT-3.3.2-1] [MQTT3-3.3.2-1] topic first
    for version in [V3_1, V3_1_1] {
        #[rustfmt::skip]
        check(version, &[
            0x30, 7, // PUBLISH, QoS 0; remaining length
            0, 3, b'a', b'/', b'b', // topic name
            b'h', b'i', // payload
        ], PLAIN);
    }
    #[rustfmt::skip]
    check(V5, &[
        0x30, 8, // PUBLISH, QoS 0; remaining length
        0, 3, b'a', b'/', b'b', // topic name
        0, // property length [MQTT-2.2.2-1]
        b'h', b'i', // payload
    ], PLAIN);
}

#[test]
fn every_flag() {
    let qos1 = Publish {
        qos: QoS::AtLeastOnce,
        packet_id: PacketId::new(10),
        ..PLAIN
    };
    check(
        V3_1_1,
        &[0x32, 9, 0, 3, b'a', b'/', b'b', 0, 10, b'h', b'i'],
        qos1,
    );
    // [MQTT-3.3.1-1] [MQTT3-3.3.1-1] DUP is carried
    let again = Publish { dup: true, ..qos1 };
    check(
        V3_1_1,
        &[0x3A, 9, 0, 3, b'a', b'/', b'b', 0, 10, b'h', b'i'],
        again,
    );
    let qos2 = Publish {
        qos: QoS::ExactlyOnce,
        retain: true,
        payload: b"",
        ..qos1
    };
    check(V5, &[0x35, 8, 0, 3, b'a', b'/', b'b', 0, 10, 0], qos2);
    let retained = Publish {
        retain: true,
        payload: b"",
        ..PLAIN
    };
    check(V3_1, &[0x31, 5, 0, 3, b'a', b'/', b'b'], retained);
}

#[test]
fn all_properties_of_v5() {
    let mut pairs = Vec::new();
    let mut ids = Vec::new();
    let properties = PublishProperties {
        payload_format_indicator: Some(true),
        message_expiry_interval: Some(256),
        topic_alias: NonZeroU16::new(5),
        response_topic: Some("r"),
        correlation_data: Some(&[0xFF]),
        content_type: Some("t"),
        subscription_ids: crate::SubscriptionIds::encode_from(&[1, 128], &mut ids).expect("fits"),
        user_properties: UserProperties::encode_from(&[("k", "v")], &mut pairs).expect("fits"),
    };
    #[rustfmt::skip]
    check(V5, &[
        0x30, 40, // PUBLISH; remaining length
        0, 0, // empty topic name, for there is an alias
        34, // property length
        0x01, 1, // payload format indicator
        0x02, 0, 0, 1, 0, // message expiry interval
        0x23, 0, 5, // topic alias
        0x08, 0, 1, b'r', // response topic
        0x09, 0, 1, 0xFF, // correlation data
        0x03, 0, 1, b't', // content type
        0x0B, 1, // subscription identifier
        0x0B, 0x80, 0x01, // subscription identifier
        0x26, 0, 1, b'k', 0, 1, b'v', // user property
        b'h', b'i', b'!', // payload
    ], Publish { topic: "", properties, payload: b"hi!", ..PLAIN });
}

#[test]
fn malformed() {
    for version in [V3_1, V3_1_1, V5] {
        // [MQTT-3.3.1-4] [MQTT3-3.3.1-4]
        refuse(
            version,
            &[0x36, 6, 0, 1, b'a', 0, 1, 0],
            DecodeError::QosInvalid,
        );
        // [MQTT-3.3.1-2] [MQTT3-3.3.1-2]
        refuse(version, &[0x38, 4, 0, 1, b'a', 0], DecodeError::DupWithQos0);
        // [MQTT-3.3.2-1] [MQTT3-3.3.2-1] [MQTT-1.5.4-1]
        refuse(version, &[0x30, 4, 0, 1, 0xFF, 0], DecodeError::NotUtf8);
        refuse(version, &[0x30, 4, 0, 1, 0, 0], DecodeError::NulInString);
        // [MQTT-3.3.2-2] [MQTT3-3.3.2-2]
        for wildcard in [b'+', b'#'] {
            let frame = [0x30, 6, 0, 3, b'a', b'/', wildcard, 0];
            refuse(version, &frame, DecodeError::TopicNameWildcard);
        }
        // [MQTT-4.7.3-1] [MQTT3-4.7.3-1]
        refuse(version, &[0x30, 3, 0, 0, 0], DecodeError::TopicNameEmpty);
        // [MQTT-2.2.1-3] [MQTT-2.2.1-4] [MQTT3-2.3.1-1]
        refuse(
            version,
            &[0x32, 6, 0, 1, b'a', 0, 0, 0],
            DecodeError::PacketIdentifierZero,
        );
        refuse(version, &[0x32, 4, 0, 1, b'a', 1], DecodeError::Truncated);
        refuse(version, &[0x30, 0], DecodeError::Truncated);
        refuse(version, &[0x30, 2, 0, 9], DecodeError::Truncated);
    }
    // the property block is missing, longer than the packet, malformed
    refuse(V5, &[0x30, 3, 0, 1, b'a'], DecodeError::Truncated);
    refuse(V5, &[0x30, 4, 0, 1, b'a', 1], DecodeError::Truncated);
    refuse(
        V5,
        &[0x30, 7, 0, 1, b'a', 3, 0x23, 0, 0],
        DecodeError::TopicAliasZero,
    );
    refuse(
        V5,
        &[0x30, 8, 0, 1, b'a', 4, 0x01, 1, 0x01, 1],
        DecodeError::DuplicateProperty(0x01),
    );
    // the bytes of a property block are payload before 5.0
    let decoded = Packet::decode(&[0x30, 4, 0, 1, b'a', 1], V3_1_1);
    assert!(matches!(decoded, Ok(Packet::Publish(publish)) if publish.payload == [1]));
}

#[test]
fn what_is_no_publish_is_not_written() {
    let alias = PublishProperties {
        topic_alias: NonZeroU16::new(1),
        ..PLAIN.properties
    };
    let long = "t".repeat(65_536);
    for (publish, version, error) in [
        (
            Publish {
                packet_id: PacketId::new(1),
                ..PLAIN
            },
            V5,
            EncodeError::PacketIdentifierMismatch,
        ),
        (
            Publish {
                qos: QoS::AtLeastOnce,
                ..PLAIN
            },
            V5,
            EncodeError::PacketIdentifierMismatch,
        ),
        (Publish { dup: true, ..PLAIN }, V5, EncodeError::DupWithQos0),
        (
            Publish { topic: "", ..PLAIN },
            V5,
            EncodeError::TopicNameInvalid,
        ),
        (
            Publish {
                topic: "a/#",
                ..PLAIN
            },
            V5,
            EncodeError::TopicNameInvalid,
        ),
        (
            Publish {
                topic: "",
                properties: alias,
                ..PLAIN
            },
            V3_1_1,
            EncodeError::TopicNameInvalid,
        ),
        (
            Publish {
                topic: &long,
                ..PLAIN
            },
            V5,
            EncodeError::FieldTooLong,
        ),
    ] {
        let mut out = vec![1];
        assert_eq!(publish.encode(version, &mut out), Err(error));
        assert_eq!(out, [1]);
    }
}

#[test]
fn one_byte_more_than_the_largest_packet() {
    let payload = vec![0; crate::MAX_REMAINING_LENGTH - 4];
    let mut out = Vec::new();
    let publish = Publish {
        payload: &payload,
        ..PLAIN
    };
    assert_eq!(
        publish.encode(V3_1, &mut out),
        Err(EncodeError::PacketTooLarge)
    );
    assert!(out.is_empty());
}
