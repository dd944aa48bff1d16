use crate::ProtocolVersion::*;
use crate::packet::vectors::{check as check_exact, refuse};
use crate::{
    AckProperties, DecodeError, EncodeError, Packet, PacketId, ReasonCode, ReasonCodes, UnsubAck,
};

fn packet<'a>(reasons: &'a [ReasonCode], reason_string: Option<&'a str>) -> Packet<'a> {
    Packet::UnsubAck(UnsubAck {
        packet_id: PacketId::new(10).expect("not 0"),
        properties: AckProperties {
            reason_string,
            ..AckProperties::default()
        },
        reasons: ReasonCodes::from(reasons),
    })
}

#[test]
fn before_v5_there_is_only_the_identifier() {
    for version in [V3_1, V3_1_1] {
        check_exact(version, &[0xB0, 2, 0, 10], packet(&[], None));
        refuse(version, &[0xB0, 3, 0, 10, 0], DecodeError::TrailingBytes);
        refuse(version, &[0xB0, 2, 0, 0], DecodeError::PacketIdentifierZero);
        let mut out = Vec::new();
        packet(&[ReasonCode::Success], Some("w"))
            .encode(version, &mut out)
            .expect("encodes");
        assert_eq!(out, [0xB0, 2, 0, 10]);
    }
}

#[test]
fn golden_in_v5() {
    #[rustfmt::skip]
    let frame = [
        0xB0, 9, // UNSUBACK; remaining length
        0, 10, // packet identifier
        4, 0x1F, 0, 1, b'w', // property length, reason string
        0, 0x11, // reason codes, in the order of the filters
    ];
    let reasons = [ReasonCode::Success, ReasonCode::NoSubscriptionExisted];
    let packet = packet(&reasons, Some("w"));
    assert_eq!(Packet::decode(&frame, V5), Ok(packet));
    let mut out = Vec::new();
    packet.encode(V5, &mut out).expect("encodes");
    assert_eq!(out, frame);
    refuse(V5, &[0xB0, 2, 0, 10], DecodeError::Truncated);
}

#[test]
fn reason_codes_of_this_packet_only() {
    // [MQTT-3.11.3-2]
    let allowed = [0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91];
    for code in 0..=255_u8 {
        let good = Packet::decode(&[0xB0, 5, 0, 10, 0, 0, code], V5).is_ok();
        assert_eq!(good, allowed.contains(&code), "{code:#04X}");
    }
    let wrong = ReasonCode::GrantedQoS1;
    assert_eq!(
        packet(&[wrong], None).encode(V5, &mut Vec::new()),
        Err(EncodeError::ReasonCodeNotAllowed(wrong))
    );
}
