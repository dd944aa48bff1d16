use std::num::{NonZeroU16, NonZeroU32};

use crate::ProtocolVersion::*;
use crate::packet::vectors::{check, decodes, refuse};
use crate::{
    ConnAck, ConnAckProperties, DecodeError, EncodeError, Packet, QoS, ReasonCode, UserProperties,
};

fn packet(session_present: bool, reason: ReasonCode) -> Packet<'static> {
    let properties = ConnAckProperties::default();
    Packet::ConnAck(ConnAck {
        session_present,
        reason,
        properties,
    })
}

#[test]
fn before_v5() {
    for version in [V3_1, V3_1_1] {
        check(
            version,
            &[0x20, 2, 0, 0],
            packet(false, ReasonCode::Success),
        );
        // 3.1.1 §3.2.2.3
        for (code, reason) in [
            (1, ReasonCode::UnsupportedProtocolVersion),
            (2, ReasonCode::ClientIdentifierNotValid),
            (3, ReasonCode::ServerUnavailable),
            (4, ReasonCode::BadUserNameOrPassword),
            (5, ReasonCode::NotAuthorized),
        ] {
            check(version, &[0x20, 2, 0, code], packet(false, reason));
        }
        refuse(
            version,
            &[0x20, 2, 0, 6],
            DecodeError::ReasonCodeNotAllowed(6),
        );
        refuse(version, &[0x20, 3, 0, 0, 0], DecodeError::TrailingBytes);
        refuse(version, &[0x20, 1, 0], DecodeError::Truncated);
    }
    check(V3_1_1, &[0x20, 2, 1, 0], packet(true, ReasonCode::Success));
    // [MQTT3-3.2.2-4]
    refuse(
        V3_1_1,
        &[0x20, 2, 1, 5],
        DecodeError::SessionPresentWithError,
    );
    refuse(
        V3_1_1,
        &[0x20, 2, 2, 0],
        DecodeError::ReservedConnectAcknowledgeFlags,
    );
    // 3.1 leaves the first byte without a meaning
    decodes(V3_1, &[0x20, 2, 1, 0], packet(false, ReasonCode::Success));
    let mut out = Vec::new();
    packet(true, ReasonCode::Success)
        .encode(V3_1, &mut out)
        .expect("encodes");
    assert_eq!(out, [0x20, 2, 0, 0]);
    // a refusal that 3.1.1 has no word for
    out.clear();
    packet(false, ReasonCode::QuotaExceeded)
        .encode(V3_1_1, &mut out)
        .expect("encodes");
    assert_eq!(out, [0x20, 2, 0, 3]);
}

#[test]
fn shortest_in_v5() {
    check(V5, &[0x20, 3, 0, 0, 0], packet(false, ReasonCode::Success));
    check(V5, &[0x20, 3, 1, 0, 0], packet(true, ReasonCode::Success));
    check(
        V5,
        &[0x20, 3, 0, 0x87, 0],
        packet(false, ReasonCode::NotAuthorized),
    );
    // [MQTT-3.2.2-1]
    refuse(
        V5,
        &[0x20, 3, 2, 0, 0],
        DecodeError::ReservedConnectAcknowledgeFlags,
    );
    refuse(
        V5,
        &[0x20, 3, 0x81, 0, 0],
        DecodeError::ReservedConnectAcknowledgeFlags,
    );
    // [MQTT-3.2.2-6]
    refuse(
        V5,
        &[0x20, 3, 1, 0x87, 0],
        DecodeError::SessionPresentWithError,
    );
    let mut out = Vec::new();
    assert_eq!(
        packet(true, ReasonCode::NotAuthorized).encode(V5, &mut out),
        Err(EncodeError::SessionPresentWithError)
    );
    refuse(V5, &[0x20, 4, 0, 0, 0, 0], DecodeError::TrailingBytes);
    refuse(V5, &[0x20, 2, 0, 0], DecodeError::Truncated);
}

#[test]
fn every_property() {
    let mut pairs = Vec::new();
    let properties = ConnAckProperties {
        session_expiry_interval: Some(1),
        receive_maximum: NonZeroU16::new(2),
        maximum_qos: Some(QoS::AtLeastOnce),
        retain_available: Some(false),
        maximum_packet_size: NonZeroU32::new(3),
        assigned_client_identifier: Some("i"),
        topic_alias_maximum: Some(4),
        reason_string: Some("w"),
        wildcard_subscription_available: Some(true),
        subscription_identifiers_available: Some(false),
        shared_subscription_available: Some(true),
        server_keep_alive: Some(5),
        response_information: Some("r"),
        server_reference: Some("s"),
        authentication_method: Some("m"),
        authentication_data: Some(&[6]),
        user_properties: UserProperties::encode_from(&[("k", "v")], &mut pairs).expect("fits"),
    };
    #[rustfmt::skip]
    check(V5, &[
        0x20, 63, // CONNACK; remaining length
        1, // session present
        0, // reason code
        60, // property length
        0x11, 0, 0, 0, 1, // session expiry interval
        0x21, 0, 2, // receive maximum
        0x24, 1, // maximum QoS
        0x25, 0, // retain available
        0x27, 0, 0, 0, 3, // maximum packet size
        0x12, 0, 1, b'i', // assigned client identifier
        0x22, 0, 4, // topic alias maximum
        0x1F, 0, 1, b'w', // reason string
        0x28, 1, // wildcard subscription available
        0x29, 0, // subscription identifiers available
        0x2A, 1, // shared subscription available
        0x13, 0, 5, // server keep alive
        0x1A, 0, 1, b'r', // response information
        0x1C, 0, 1, b's', // server reference
        0x15, 0, 1, b'm', // authentication method
        0x16, 0, 1, 6, // authentication data
        0x26, 0, 1, b'k', 0, 1, b'v', // user property
    ], Packet::ConnAck(ConnAck { session_present: true, reason: ReasonCode::Success, properties }));
}

#[test]
fn reason_codes_of_this_packet_only() {
    // [MQTT-3.2.2-8]
    let allowed = [
        0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95,
        0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
    ];
    for code in 0..=255_u8 {
        let good = Packet::decode(&[0x20, 3, 0, code, 0], V5).is_ok();
        assert_eq!(good, allowed.contains(&code), "{code:#04X}");
    }
    let wrong = ReasonCode::SessionTakenOver;
    let failed = packet(false, wrong).encode(V5, &mut Vec::new());
    assert_eq!(failed, Err(EncodeError::ReasonCodeNotAllowed(wrong)));
}
