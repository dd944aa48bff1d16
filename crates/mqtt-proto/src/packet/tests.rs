use super::vectors::refuse;
use super::*;
use ProtocolVersion::{V3_1_1, V5};

#[test]
fn a_frame_is_as_long_as_it_says() {
    refuse(V5, &[], DecodeError::FrameLengthMismatch);
    refuse(V5, &[0xC0], DecodeError::FrameLengthMismatch);
    refuse(V5, &[0xC0, 1], DecodeError::FrameLengthMismatch);
    refuse(V5, &[0xC0, 0, 0], DecodeError::FrameLengthMismatch);
}

#[test]
fn auth_is_new_in_v5() {
    refuse(
        V3_1_1,
        &[0xF0, 0],
        DecodeError::PacketTypeNotInVersion(PacketType::Auth),
    );
    let auth = Auth {
        reason: crate::ReasonCode::Success,
        properties: Default::default(),
    };
    let mut out = Vec::new();
    assert_eq!(
        auth.encode(V3_1_1, &mut out),
        Err(EncodeError::PacketTypeNotInVersion(PacketType::Auth))
    );
    assert!(out.is_empty());
}

#[test]
fn what_is_malformed_is_told_so() {
    use crate::ReasonCode;
    // [MQTT-4.13.1-1]
    for (error, reason, statement) in [
        (
            DecodeError::QosInvalid,
            ReasonCode::MalformedPacket,
            Some("MQTT-3.3.1-4"),
        ),
        (
            DecodeError::DuplicateProperty(1),
            ReasonCode::ProtocolError,
            None,
        ),
        (
            DecodeError::TopicAliasZero,
            ReasonCode::TopicAliasInvalid,
            Some("MQTT-3.3.2-8"),
        ),
        (
            DecodeError::TopicNameWildcard,
            ReasonCode::TopicNameInvalid,
            Some("MQTT-3.3.2-2"),
        ),
        (
            DecodeError::UnsupportedProtocolLevel(6),
            ReasonCode::UnsupportedProtocolVersion,
            Some("MQTT-3.1.2-2"),
        ),
    ] {
        assert_eq!(
            (error.reason_code(), error.statement()),
            (reason, statement)
        );
    }
    assert_eq!(
        DecodeError::UnsupportedProtocolLevel(6).to_string(),
        "protocol level 6 is not supported"
    );
}
