use crate::ProtocolVersion::*;
use crate::packet::vectors::refuse;
use crate::{
    DecodeError, EncodeError, Packet, PacketId, PacketType, ProtocolVersion, Unsubscribe,
    UnsubscribeFilters, UnsubscribeProperties, UserProperties,
};

#[track_caller]
fn check(
    version: ProtocolVersion,
    frame: &[u8],
    properties: UnsubscribeProperties<'_>,
    filters: &[&str],
) {
    let mut buffer = vec![7];
    let packet = Packet::Unsubscribe(Unsubscribe {
        packet_id: PacketId::new(10).expect("not 0"),
        properties,
        filters: UnsubscribeFilters::encode_from(filters, &mut buffer).expect("fits"),
    });
    let decoded = Packet::decode(frame, version);
    assert_eq!(decoded, Ok(packet));
    if let Ok(Packet::Unsubscribe(unsubscribe)) = decoded {
        assert!(unsubscribe.filters.iter().eq(filters.iter().copied()));
        assert_eq!(unsubscribe.filters.len(), filters.len());
    }
    let mut out = Vec::new();
    packet.encode(version, &mut out).expect("encodes");
    assert_eq!(out, frame);
}

#[test]
fn golden() {
    for version in [V3_1, V3_1_1] {
        #[rustfmt::skip]
        check(version, &[
            0xA2, 10, // UNSUBSCRIBE; remaining length
            0, 10, // packet identifier
            0, 3, b'a', b'/', b'b', // topic filter
            0, 1, b'#', // topic filter
        ], UnsubscribeProperties::default(), &["a/b", "#"]);
    }
    let mut pairs = Vec::new();
    let user_properties = UserProperties::encode_from(&[("k", "v")], &mut pairs).expect("fits");
    #[rustfmt::skip]
    check(V5, &[
        0xA2, 13, // UNSUBSCRIBE; remaining length
        0, 10, // packet identifier
        7, // property length
        0x26, 0, 1, b'k', 0, 1, b'v', // user property
        0, 1, b'#', // topic filter
    ], UnsubscribeProperties { user_properties }, &["#"]);
}

#[test]
fn malformed() {
    // [MQTT-3.10.3-2] [MQTT3-3.10.3-2]
    let none = DecodeError::NoTopicFilter(PacketType::Unsubscribe);
    refuse(V3_1_1, &[0xA2, 2, 0, 10], none);
    refuse(V5, &[0xA2, 3, 0, 10, 0], none);
    // [MQTT-2.2.1-3] [MQTT3-2.3.1-1]
    refuse(
        V3_1_1,
        &[0xA2, 5, 0, 0, 0, 1, b'a'],
        DecodeError::PacketIdentifierZero,
    );
    refuse(
        V5,
        &[0xA2, 6, 0, 0, 0, 0, 1, b'a'],
        DecodeError::PacketIdentifierZero,
    );
    // [MQTT-3.10.3-1] [MQTT3-3.10.3-1]
    refuse(V3_1_1, &[0xA2, 5, 0, 1, 0, 1, 0xFF], DecodeError::NotUtf8);
    refuse(V5, &[0xA2, 6, 0, 1, 0, 0, 1, 0xFF], DecodeError::NotUtf8);
    refuse(V5, &[0xA2, 6, 0, 1, 0, 0, 2, b'a'], DecodeError::Truncated);
    // [MQTT-4.7.3-1] [MQTT3-4.7.3-1]
    let empty = DecodeError::TopicFilterEmpty(PacketType::Unsubscribe);
    refuse(V3_1, &[0xA2, 7, 0, 1, 0, 1, b'a', 0, 0], empty);
    refuse(V3_1_1, &[0xA2, 4, 0, 1, 0, 0], empty);
    refuse(V5, &[0xA2, 5, 0, 1, 0, 0, 0], empty);
    // §3.10.2.1
    let frame = [0xA2, 10, 0, 1, 4, 0x1F, 0, 1, b'w', 0, 1, b'a'];
    refuse(V5, &frame, DecodeError::PropertyNotAllowed(0x1F));
    // [MQTT-3.10.1-1] [MQTT3-3.10.1-1]
    for first in [0xA0, 0xA1, 0xA3, 0xAA] {
        let frame = [first, 5, 0, 1, 0, 1, b'a'];
        refuse(
            V3_1_1,
            &frame,
            DecodeError::ReservedFlags(PacketType::Unsubscribe),
        );
    }
    // 3.1 §3.10: sent again with DUP
    assert!(Packet::decode(&[0xAA, 5, 0, 1, 0, 1, b'a'], V3_1).is_ok());
    let mut buffer = vec![7];
    for (filters, error) in [
        (&[][..], EncodeError::NoTopicFilter),
        (&["a", "\0"], EncodeError::NulInString),
        (&["a", ""], EncodeError::TopicFilterEmpty),
    ] {
        assert_eq!(
            UnsubscribeFilters::encode_from(filters, &mut buffer),
            Err(error)
        );
    }
    assert_eq!(buffer, [7]);
}
