use crate::ProtocolVersion::*;
use crate::packet::vectors::{check, decodes, refuse};
use crate::{AckProperties, DecodeError, EncodeError, Packet, PacketId, PubRec, ReasonCode};

fn packet(id: u16, reason: ReasonCode, reason_string: &str) -> Packet<'_> {
    let reason_string = (!reason_string.is_empty()).then_some(reason_string);
    Packet::PubRec(PubRec {
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
    // [MQTT-2.2.1-5] [MQTT3-2.3.1-6] the identifier is carried; §3.5.2
    for version in [V3_1, V3_1_1, V5] {
        check(
            version,
            &[0x50, 2, 0x01, 0x02],
            packet(0x0102, ReasonCode::Success, ""),
        );
        // [MQTT-2.2.1-5] [MQTT3-2.3.1-1] never 0
        refuse(version, &[0x50, 2, 0, 0], DecodeError::PacketIdentifierZero);
        refuse(version, &[0x50, 1, 0], DecodeError::Truncated);
        refuse(version, &[0x50, 0], DecodeError::Truncated);
    }
}

#[test]
fn reason_and_properties_of_v5() {
    #[rustfmt::skip]
    let full = [
        0x50, 8, // remaining length
        0, 9, // packet identifier
        0x10, // reason code
        4, 0x1F, 0, 1, b'w', // property length, reason string
    ];
    check(V5, &full, packet(9, ReasonCode::NoMatchingSubscribers, "w"));
    // §3.5.2.1: below four bytes there is no property length
    check(
        V5,
        &[0x50, 3, 0, 9, 0x10],
        packet(9, ReasonCode::NoMatchingSubscribers, ""),
    );
    // longer ways to say the same
    decodes(V5, &[0x50, 3, 0, 9, 0], packet(9, ReasonCode::Success, ""));
    decodes(
        V5,
        &[0x50, 4, 0, 9, 0, 0],
        packet(9, ReasonCode::Success, ""),
    );
    refuse(V5, &[0x50, 5, 0, 9, 0, 0, 0], DecodeError::TrailingBytes);
    refuse(
        V5,
        &[0x50, 6, 0, 9, 0, 2, 0x01, 1],
        DecodeError::PropertyNotAllowed(0x01),
    );
    // before 5.0 the length is exact
    for version in [V3_1, V3_1_1] {
        refuse(version, &[0x50, 3, 0, 9, 0], DecodeError::TrailingBytes);
        // and reasons are not sent
        let mut out = Vec::new();
        packet(9, ReasonCode::NoMatchingSubscribers, "w")
            .encode(version, &mut out)
            .expect("encodes");
        assert_eq!(out, [0x50, 2, 0, 9]);
    }
}

#[test]
fn reason_codes_of_this_packet_only() {
    // [MQTT-3.5.2-1]
    let allowed = [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
    for code in 0..=255_u8 {
        let frame = [0x50, 3, 0, 9, code];
        if allowed.contains(&code) {
            assert!(Packet::decode(&frame, V5).is_ok(), "{code:#04X}");
        } else {
            refuse(V5, &frame, DecodeError::ReasonCodeNotAllowed(code));
        }
    }
    let wrong = ReasonCode::from_u8(0x92).expect("defined");
    let mut out = Vec::new();
    let failed = packet(9, wrong, "").encode(V5, &mut out);
    assert_eq!(failed, Err(EncodeError::ReasonCodeNotAllowed(wrong)));
    assert!(out.is_empty());
}
