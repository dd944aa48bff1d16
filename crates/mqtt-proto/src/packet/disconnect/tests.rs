use crate::ProtocolVersion::*;
use crate::packet::vectors::{check, decodes, refuse};
use crate::{
    DecodeError, Disconnect, DisconnectProperties, EncodeError, Packet, PacketType, ReasonCode,
};

fn packet(reason: ReasonCode) -> Packet<'static> {
    Packet::Disconnect(Disconnect {
        reason,
        properties: DisconnectProperties::default(),
    })
}

#[test]
fn before_v5_it_says_nothing() {
    for version in [V3_1, V3_1_1] {
        check(version, &[0xE0, 0], packet(ReasonCode::Success));
        refuse(version, &[0xE0, 1, 0], DecodeError::TrailingBytes);
        let mut out = Vec::new();
        packet(ReasonCode::ServerBusy)
            .encode(version, &mut out)
            .expect("encodes");
        assert_eq!(out, [0xE0, 0]);
    }
    // [MQTT-3.14.1-1] [MQTT3-3.14.1-1]
    refuse(
        V3_1_1,
        &[0xE2, 0],
        DecodeError::ReservedFlags(PacketType::Disconnect),
    );
}

#[test]
fn lengths_of_v5() {
    // §3.14.2.1: nothing is Normal disconnection, one byte is a reason without properties
    check(V5, &[0xE0, 0], packet(ReasonCode::Success));
    check(V5, &[0xE0, 1, 4], packet(ReasonCode::DisconnectWithWill));
    decodes(V5, &[0xE0, 1, 0], packet(ReasonCode::Success));
    decodes(V5, &[0xE0, 2, 0, 0], packet(ReasonCode::Success));
    let full = Disconnect {
        reason: ReasonCode::UseAnotherServer,
        properties: DisconnectProperties {
            session_expiry_interval: Some(1),
            reason_string: Some("w"),
            server_reference: Some("s"),
            ..DisconnectProperties::default()
        },
    };
    #[rustfmt::skip]
    check(V5, &[
        0xE0, 15, // DISCONNECT; remaining length
        0x9C, // reason code
        13, // property length
        0x11, 0, 0, 0, 1, // session expiry interval
        0x1F, 0, 1, b'w', // reason string
        0x1C, 0, 1, b's', // server reference
    ], Packet::Disconnect(full));
    refuse(V5, &[0xE0, 3, 0, 0, 0], DecodeError::TrailingBytes);
    refuse(V5, &[0xE0, 4, 0, 2, 0x21, 1], DecodeError::Truncated);
}

#[test]
fn reason_codes_of_this_packet_only() {
    // [MQTT-3.14.2-1]
    let allowed = [
        0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94,
        0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
    ];
    for code in 0..=255_u8 {
        let good = Packet::decode(&[0xE0, 1, code], V5).is_ok();
        assert_eq!(good, allowed.contains(&code), "{code:#04X}");
    }
    let wrong = ReasonCode::BadUserNameOrPassword;
    assert_eq!(
        packet(wrong).encode(V5, &mut Vec::new()),
        Err(EncodeError::ReasonCodeNotAllowed(wrong))
    );
}
