use crate::ProtocolVersion::*;
use crate::packet::vectors::refuse;
use crate::{
    AckProperties, DecodeError, EncodeError, Packet, PacketId, ProtocolVersion, ReasonCode,
    ReasonCodes, SubAck,
};

fn packet<'a>(reasons: &'a [ReasonCode], reason_string: Option<&'a str>) -> Packet<'a> {
    Packet::SubAck(SubAck {
        packet_id: PacketId::new(10).expect("not 0"),
        properties: AckProperties {
            reason_string,
            ..AckProperties::default()
        },
        reasons: ReasonCodes::from(reasons),
    })
}

#[track_caller]
fn check(version: ProtocolVersion, frame: &[u8], packet: Packet<'_>) {
    assert_eq!(Packet::decode(frame, version), Ok(packet));
    let mut out = Vec::new();
    packet.encode(version, &mut out).expect("encodes");
    assert_eq!(out, frame);
}

#[test]
fn golden() {
    use ReasonCode::*;
    for version in [V3_1, V3_1_1] {
        #[rustfmt::skip]
        check(version, &[
            0x90, 6, // SUBACK; remaining length
            0, 10, // packet identifier
            0, 1, 2, 0x80, // return codes, in the order of the filters
        ], packet(&[Success, GrantedQoS1, GrantedQoS2, UnspecifiedError], None));
    }
    #[rustfmt::skip]
    check(V5, &[
        0x90, 9, // SUBACK; remaining length
        0, 10, // packet identifier
        4, 0x1F, 0, 1, b'w', // property length, reason string
        2, 0x8F, // reason codes
    ], packet(&[GrantedQoS2, TopicFilterInvalid], Some("w")));
}

#[test]
fn every_failure_is_0x80_before_v5() {
    // [MQTT3-3.9.3-2]
    let reasons = [
        ReasonCode::NotAuthorized,
        ReasonCode::GrantedQoS1,
        ReasonCode::QuotaExceeded,
    ];
    let mut out = Vec::new();
    packet(&reasons, Some("w"))
        .encode(V3_1_1, &mut out)
        .expect("encodes");
    assert_eq!(out, [0x90, 5, 0, 10, 0x80, 1, 0x80]);
}

#[test]
fn reason_codes_of_this_packet_only() {
    // [MQTT-3.9.3-2]
    let allowed = [
        0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2,
    ];
    // [MQTT3-3.9.3-2]
    let before = [0, 1, 2, 0x80];
    for code in 0..=255_u8 {
        let good = Packet::decode(&[0x90, 5, 0, 10, 0, 0, code], V5).is_ok();
        assert_eq!(good, allowed.contains(&code), "{code:#04X}");
        let good = Packet::decode(&[0x90, 4, 0, 10, 0, code], V3_1_1).is_ok();
        assert_eq!(good, before.contains(&code), "{code:#04X}");
    }
    let wrong = ReasonCode::SessionTakenOver;
    assert_eq!(
        packet(&[wrong], None).encode(V5, &mut Vec::new()),
        Err(EncodeError::ReasonCodeNotAllowed(wrong))
    );
    // [MQTT-2.2.1-6] [MQTT3-2.3.1-7]
    refuse(
        V3_1_1,
        &[0x90, 3, 0, 0, 0],
        DecodeError::PacketIdentifierZero,
    );
}
