use crate::ProtocolVersion::*;
use crate::packet::vectors::{check, decodes, refuse};
use crate::{AckProperties, DecodeError, EncodeError, Packet, PacketId, PubRel, ReasonCode};

fn packet(id: u16, reason: ReasonCode, reason_string: &str) -> Packet<'_> {
    let reason_string = (!reason_string.is_empty()).then_some(reason_string);
    Packet::PubRel(PubRel {
        packet_id: PacketId::new(id).expect("not 0"),
        reason,
        properties: AckProperties {
            reason_string,
            ..AckProperties::default()
        },
    })
}

#[test]
fn shortest_form_is_two_bytes_in_every_version() {
    // [MQTT-2.2.1-5] [MQTT3-2.3.1-6] the identifier is carried; §3.6.2
    for version in [V3_1, V3_1_1, V5] {
        check(
            version,
            &[0x62, 2, 0x01, 0x02],
            packet(0x0102, ReasonCode::Success, ""),
        );
        // [MQTT-2.2.1-5] [MQTT3-2.3.1-1] never 0
        refuse(version, &[0x62, 2, 0, 0], DecodeError::PacketIdentifierZero);
        refuse(version, &[0x62, 1, 0], DecodeError::Truncated);
        refuse(version, &[0x62, 0], DecodeError::Truncated);
    }
}

#[test]
fn reason_and_properties_of_v5() {
    #[rustfmt::skip]
    let full = [
        0x62, 8, // remaining length
        0, 9, // packet identifier
        0x92, // reason code
        4, 0x1F, 0, 1, b'w', // property length, reason string
    ];
    check(
        V5,
        &full,
        packet(9, ReasonCode::PacketIdentifierNotFound, "w"),
    );
    // §3.6.2.1: below four bytes there is no property length
    check(
        V5,
        &[0x62, 3, 0, 9, 0x92],
        packet(9, ReasonCode::PacketIdentifierNotFound, ""),
    );
    // longer ways to say the same
    decodes(V5, &[0x62, 3, 0, 9, 0], packet(9, ReasonCode::Success, ""));
    decodes(
        V5,
        &[0x62, 4, 0, 9, 0, 0],
        packet(9, ReasonCode::Success, ""),
    );
    refuse(V5, &[0x62, 5, 0, 9, 0, 0, 0], DecodeError::TrailingBytes);
    refuse(
        V5,
        &[0x62, 6, 0, 9, 0, 2, 0x01, 1],
        DecodeError::PropertyNotAllowed(0x01),
    );
    // before 5.0 the length is exact
    for version in [V3_1, V3_1_1] {
        refuse(version, &[0x62, 3, 0, 9, 0], DecodeError::TrailingBytes);
        // and reasons are not sent
        let mut out = Vec::new();
        packet(9, ReasonCode::PacketIdentifierNotFound, "w")
            .encode(version, &mut out)
            .expect("encodes");
        assert_eq!(out, [0x62, 2, 0, 9]);
    }
}

#[test]
fn reason_codes_of_this_packet_only() {
    // [MQTT-3.6.2-1]
    let allowed = [0x00, 0x92];
    for code in 0..=255_u8 {
        let frame = [0x62, 3, 0, 9, code];
        if allowed.contains(&code) {
            assert!(Packet::decode(&frame, V5).is_ok(), "{code:#04X}");
        } else {
            refuse(V5, &frame, DecodeError::ReasonCodeNotAllowed(code));
        }
    }
    let wrong = ReasonCode::from_u8(0x10).expect("defined");
    let mut out = Vec::new();
    let failed = packet(9, wrong, "").encode(V5, &mut out);
    assert_eq!(failed, Err(EncodeError::ReasonCodeNotAllowed(wrong)));
    assert!(out.is_empty());
}

#[test]
fn v3_1_may_set_dup() {
    // 3.1 §3.6: a PUBREL that is sent again says so.
    let packet = packet(7, ReasonCode::Success, "");
    decodes(V3_1, &[0x6A, 2, 0, 7], packet);
    for version in [V3_1_1, V5] {
        // [MQTT-3.6.1-1] [MQTT3-3.6.1-1]
        let error = DecodeError::ReservedFlags(crate::PacketType::PubRel);
        refuse(version, &[0x6A, 2, 0, 7], error);
        refuse(version, &[0x60, 2, 0, 7], error);
    }
}
