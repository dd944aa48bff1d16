use super::*;
use crate::{Packet, SubscriptionIds};
use ProtocolVersion::{V3_1, V3_1_1, V5};

fn publish<'a>(user_properties: UserProperties<'a>) -> Publish<'a> {
    Publish {
        dup: true,
        qos: QoS::ExactlyOnce,
        retain: true,
        topic: "a/b",
        packet_id: PacketId::new(77),
        properties: PublishProperties {
            payload_format_indicator: Some(true),
            message_expiry_interval: Some(9),
            topic_alias: NonZeroU16::new(3),
            response_topic: Some("r"),
            correlation_data: Some(&[1, 2]),
            content_type: Some("text"),
            user_properties,
            ..PublishProperties::default()
        },
        payload: b"payload",
    }
}

#[test]
fn holds_what_is_forwarded_and_nothing_else() {
    // [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]
    let mut buffer = Vec::new();
    let pairs = [("z", "1"), ("a", "2"), ("z", "3")];
    let publish = publish(UserProperties::encode_from(&pairs, &mut buffer).expect("fits"));
    let body = MessageBody::from_publish(&publish, "resolved");
    assert_eq!(body.topic(), "resolved");
    assert_eq!(body.payload(), b"payload");
    let expect = PublishProperties {
        message_expiry_interval: None,
        topic_alias: None,
        ..publish.properties
    };
    assert_eq!(body.properties(), expect);
    assert_eq!(body.forwarded_properties_len(), 2 + 7 + 4 + 5 + 21);
    assert_eq!(body.heap_len(), 2 + 8 + 39 + 7);
    assert!(size_of::<MessageBody>() <= 32);

    let will = LastWill {
        topic: "resolved",
        payload: b"payload",
        qos: QoS::AtMostOnce,
        retain: false,
        properties: crate::WillProperties {
            will_delay_interval: Some(5),
            payload_format_indicator: Some(true),
            message_expiry_interval: Some(9),
            content_type: Some("text"),
            response_topic: Some("r"),
            correlation_data: Some(&[1, 2]),
            user_properties: publish.properties.user_properties,
        },
    };
    // [MQTT-3.1.3-10] the will message keeps the order of its user properties
    assert_eq!(MessageBody::from_will(&will), body);
}

#[test]
fn every_delivery_is_the_publish_it_says() {
    let mut buffer = Vec::new();
    let pairs = [("k", "v")];
    let full = publish(UserProperties::encode_from(&pairs, &mut buffer).expect("fits"));
    let big = vec![b'x'; 20_000];
    let bodies = [
        MessageBody::from_publish(&full, "a/b"),
        MessageBody::new("a/b", b""),
        MessageBody::new(&"t".repeat(65_535), b"x"),
        MessageBody::new("a", &big),
    ];
    let alias = NonZeroU16::new(0x0102).expect("not 0");
    for body in &bodies {
        for version in [V3_1, V3_1_1, V5] {
            for packet_id in [None, PacketId::new(0x0304)] {
                for message_expiry_interval in [None, Some(60)] {
                    for topic_alias in [None, Some((alias, true)), Some((alias, false))] {
                        for ids in [&[][..], &[1], &[200, 268_435_455]] {
                            for user_property in [None, Some(("position", "1.2")), Some(("", ""))] {
                                let header = DeliveryHeader {
                                    dup: packet_id.is_some(),
                                    qos: packet_id.map_or(QoS::AtMostOnce, |_| QoS::ExactlyOnce),
                                    retain: ids.is_empty(),
                                    packet_id,
                                    message_expiry_interval,
                                    topic_alias,
                                    subscription_ids: ids,
                                    user_property,
                                };
                                check(body, version, &header);
                            }
                        }
                    }
                }
            }
        }
    }
}

fn check(body: &MessageBody, version: ProtocolVersion, header: &DeliveryHeader<'_>) {
    let mut out = vec![0xEE];
    body.encode(version, header, &mut out);
    let frame = &out[1..];
    assert_eq!(frame.len(), body.encoded_len(version, header));
    let named = !version.is_v5() || !matches!(header.topic_alias, Some((_, false)));
    let mut ids = Vec::new();
    let mut pairs = Vec::new();
    let of_body = body.properties().user_properties;
    let all: Vec<_> = header
        .user_property
        .into_iter()
        .chain(of_body.iter())
        .collect();
    let properties = if version.is_v5() {
        PublishProperties {
            message_expiry_interval: header.message_expiry_interval,
            topic_alias: header.topic_alias.map(|(alias, _)| alias),
            subscription_ids: SubscriptionIds::encode_from(header.subscription_ids, &mut ids)
                .expect("in range"),
            user_properties: UserProperties::encode_from(&all, &mut pairs).expect("fits"),
            ..body.properties()
        }
    } else {
        PublishProperties::default()
    };
    let expect = Publish {
        dup: header.dup,
        qos: header.qos,
        retain: header.retain,
        topic: if named { body.topic() } else { "" },
        packet_id: header.packet_id,
        properties,
        payload: body.payload(),
    };
    assert_eq!(Packet::decode(frame, version), Ok(Packet::Publish(expect)));
}

#[test]
fn golden_delivery() {
    let body = MessageBody::new("a/b", b"hi");
    let header = DeliveryHeader {
        qos: QoS::AtLeastOnce,
        packet_id: PacketId::new(10),
        message_expiry_interval: Some(2),
        subscription_ids: &[5],
        user_property: Some(("p", "1.2")),
        ..DeliveryHeader::default()
    };
    let mut out = Vec::new();
    body.encode(V5, &header, &mut out);
    #[rustfmt::skip]
    assert_eq!(out, [
        0x32, 26, // PUBLISH, QoS 1; remaining length
        0, 3, b'a', b'/', b'b', // topic name
        0, 10, // packet identifier
        16, // property length
        0x02, 0, 0, 0, 2, // message expiry interval
        0x0B, 5, // subscription identifier
        0x26, 0, 1, b'p', 0, 3, b'1', b'.', b'2', // user property
        b'h', b'i', // payload
    ]);
    out.clear();
    body.encode(V3_1_1, &header, &mut out);
    assert_eq!(out, [0x32, 9, 0, 3, b'a', b'/', b'b', 0, 10, b'h', b'i']);
}

#[test]
fn a_frame_that_cannot_exist_is_not_begun() {
    let body = MessageBody::new("a", &vec![0; MAX_REMAINING_LENGTH - 3]);
    let header = DeliveryHeader::default();
    let mut out = Vec::new();
    assert_eq!(body.encoded_len(V3_1_1, &header), 5 + MAX_REMAINING_LENGTH);
    body.encode(V5, &header, &mut out);
    assert!(body.encoded_len(V5, &header) > 5 + MAX_REMAINING_LENGTH);
    assert!(out.is_empty());
}
