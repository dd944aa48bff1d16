use crate::ProtocolVersion::*;
use crate::packet::vectors::{check, decodes, refuse};
use crate::{Auth, AuthProperties, DecodeError, EncodeError, Packet, PacketType, ReasonCode};

fn bare(reason: ReasonCode) -> Packet<'static> {
    Packet::Auth(Auth {
        reason,
        properties: AuthProperties::default(),
    })
}

#[test]
fn golden() {
    // §3.15.2.1: nothing is Success without properties
    check(V5, &[0xF0, 0], bare(ReasonCode::Success));
    decodes(V5, &[0xF0, 2, 0, 0], bare(ReasonCode::Success));
    let full = Auth {
        reason: ReasonCode::ContinueAuthentication,
        properties: AuthProperties {
            authentication_method: Some("m"),
            authentication_data: Some(&[0xFF]),
            reason_string: Some("w"),
            ..AuthProperties::default()
        },
    };
    #[rustfmt::skip]
    check(V5, &[
        0xF0, 14, // AUTH; remaining length
        0x18, // reason code
        12, // property length
        0x15, 0, 1, b'm', // authentication method
        0x16, 0, 1, 0xFF, // authentication data
        0x1F, 0, 1, b'w', // reason string
    ], Packet::Auth(full));
}

#[test]
fn malformed() {
    // [MQTT-3.15.1-1]
    refuse(V5, &[0xF1, 0], DecodeError::ReservedFlags(PacketType::Auth));
    refuse(V5, &[0xF0, 1, 0x18], DecodeError::Truncated);
    // §3.15.2.2.2
    refuse(
        V5,
        &[0xF0, 2, 0x18, 0],
        DecodeError::AuthenticationMethodMissing,
    );
    let frame = [0xF0, 6, 0, 4, 0x1F, 0, 1, b'w'];
    refuse(V5, &frame, DecodeError::AuthenticationMethodMissing);
    assert_eq!(
        bare(ReasonCode::Reauthenticate).encode(V5, &mut Vec::new()),
        Err(EncodeError::AuthenticationMethodMissing)
    );
}

#[test]
fn reason_codes_of_this_packet_only() {
    // [MQTT-3.15.2-1]
    for code in 0..=255_u8 {
        let frame = [0xF0, 6, code, 4, 0x15, 0, 1, b'm'];
        let good = Packet::decode(&frame, V5).is_ok();
        assert_eq!(good, matches!(code, 0 | 0x18 | 0x19), "{code:#04X}");
    }
}
