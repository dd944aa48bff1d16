use std::num::{NonZeroU16, NonZeroU32};

use crate::ProtocolVersion::*;
use crate::packet::vectors::{check, refuse};
use crate::{
    Connect, ConnectProperties, DecodeError, EncodeError, LastWill, Packet, ProtocolVersion, QoS,
    UserProperties, WillProperties,
};

fn plain(version: ProtocolVersion) -> Connect<'static> {
    Connect {
        version,
        is_bridge: false,
        clean_start: true,
        keep_alive: 60,
        client_id: "c",
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    }
}

/// A CONNECT of 3.1.1 with these flags and this payload.
fn v3(flags: u8, payload: &[u8]) -> Vec<u8> {
    let header = [
        0x10,
        10 + payload.len() as u8,
        0,
        4,
        b'M',
        b'Q',
        b'T',
        b'T',
        4,
        flags,
        0,
        60,
    ];
    [&header, payload].concat()
}

/// A CONNECT of 5.0 with these flags, properties and payload.
fn v5(flags: u8, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let len = 11 + properties.len() + payload.len();
    let header = [
        0x10,
        len as u8,
        0,
        4,
        b'M',
        b'Q',
        b'T',
        b'T',
        5,
        flags,
        0,
        60,
        properties.len() as u8,
    ];
    [&header, properties, payload].concat()
}

#[test]
fn shortest_of_each_version() {
    // [MQTT-3.1.2-1] [MQTT3-3.1.2-1] names, [MQTT-3.1.2-2] [MQTT3-3.1.2-2] levels
    #[rustfmt::skip]
    check(V3_1, &[
        0x10, 15, // CONNECT; remaining length
        0, 6, b'M', b'Q', b'I', b's', b'd', b'p', // protocol name
        3, // protocol level
        0x02, // connect flags: clean session
        0, 60, // keep alive
        0, 1, b'c', // client identifier
    ], Packet::Connect(plain(V3_1)));
    #[rustfmt::skip]
    check(V3_1_1, &[
        0x10, 13, // CONNECT; remaining length
        0, 4, b'M', b'Q', b'T', b'T', // protocol name
        4, // protocol level
        0x02, // connect flags: clean session
        0, 60, // keep alive
        0, 1, b'c', // client identifier
    ], Packet::Connect(plain(V3_1_1)));
    #[rustfmt::skip]
    check(V5, &[
        0x10, 14, // CONNECT; remaining length
        0, 4, b'M', b'Q', b'T', b'T', // protocol name
        5, // protocol version
        0x02, // connect flags: clean start
        0, 60, // keep alive
        0, // property length
        0, 1, b'c', // client identifier
    ], Packet::Connect(plain(V5)));
    // an empty client identifier is for the session to judge
    let nameless = Connect {
        client_id: "",
        clean_start: false,
        ..plain(V3_1_1)
    };
    check(V3_1_1, &v3(0, &[0, 0]), Packet::Connect(nameless));
}

#[test]
fn everything_in_v5() {
    let mut pairs = Vec::new();
    let mut will_pairs = Vec::new();
    let connect = Connect {
        clean_start: false,
        will: Some(LastWill {
            topic: "w",
            payload: &[0xFF],
            qos: QoS::ExactlyOnce,
            retain: true,
            properties: WillProperties {
                will_delay_interval: Some(5),
                payload_format_indicator: Some(false),
                message_expiry_interval: Some(6),
                content_type: Some("t"),
                response_topic: Some("r"),
                correlation_data: Some(&[1]),
                user_properties: UserProperties::encode_from(&[("b", "2")], &mut will_pairs)
                    .expect("fits"),
            },
        }),
        username: Some("u"),
        password: Some(&[0, 0xFF]),
        properties: ConnectProperties {
            session_expiry_interval: Some(u32::MAX),
            receive_maximum: NonZeroU16::new(10),
            maximum_packet_size: NonZeroU32::new(1000),
            topic_alias_maximum: Some(0),
            request_response_information: Some(true),
            request_problem_information: Some(false),
            authentication_method: Some("m"),
            authentication_data: Some(&[7]),
            user_properties: UserProperties::encode_from(&[("a", "1")], &mut pairs).expect("fits"),
        },
        ..plain(V5)
    };
    #[rustfmt::skip]
    check(V5, &[
        0x10, 94, // CONNECT; remaining length
        0, 4, b'M', b'Q', b'T', b'T', // protocol name
        5, // protocol version
        0xF4, // user name, password, will retain, will QoS 2, will
        0, 60, // keep alive
        35, // property length
        0x11, 0xFF, 0xFF, 0xFF, 0xFF, // session expiry interval
        0x21, 0, 10, // receive maximum
        0x27, 0, 0, 3, 0xE8, // maximum packet size
        0x22, 0, 0, // topic alias maximum
        0x19, 1, // request response information
        0x17, 0, // request problem information
        0x15, 0, 1, b'm', // authentication method
        0x16, 0, 1, 7, // authentication data
        0x26, 0, 1, b'a', 0, 1, b'1', // user property
        // [MQTT-3.1.3-1] [MQTT-3.1.3-3] client identifier first
        0, 1, b'c',
        31, // [MQTT-3.1.2-9] will property length
        0x18, 0, 0, 0, 5, // will delay interval
        0x01, 0, // payload format indicator
        0x02, 0, 0, 0, 6, // message expiry interval
        0x03, 0, 1, b't', // content type
        0x08, 0, 1, b'r', // response topic
        0x09, 0, 1, 1, // correlation data
        0x26, 0, 1, b'b', 0, 1, b'2', // user property
        0, 1, b'w', // will topic
        0, 1, 0xFF, // will payload
        0, 1, b'u', // [MQTT-3.1.2-17] user name
        0, 2, 0, 0xFF, // [MQTT-3.1.2-19] password
    ], Packet::Connect(connect));
}

#[test]
fn will_user_name_and_password_of_v3() {
    let connect = Connect {
        will: Some(LastWill {
            topic: "w",
            payload: b"gone",
            qos: QoS::AtLeastOnce,
            retain: false,
            properties: WillProperties::default(),
        }),
        username: Some("u"),
        password: Some(b"p"),
        ..plain(V3_1_1)
    };
    // [MQTT3-3.1.2-9] [MQTT3-3.1.2-19] [MQTT3-3.1.2-21] [MQTT3-3.1.3-1]
    #[rustfmt::skip]
    let payload = [
        0, 1, b'c', // client identifier
        0, 1, b'w', // will topic
        0, 4, b'g', b'o', b'n', b'e', // will message
        0, 1, b'u', // user name
        0, 1, b'p', // password
    ];
    check(V3_1_1, &v3(0b1100_1110, &payload), Packet::Connect(connect));
}

#[test]
fn names_and_levels() {
    let frame = |name: &[u8], level| {
        let rest = [level, 2, 0, 60, 0, 0, 0];
        let len = 2 + name.len() + rest.len();
        [&[0x10, len as u8, 0, name.len() as u8], name, &rest].concat()
    };
    // [MQTT-3.1.2-1] [MQTT3-3.1.2-1] other names
    for name in [
        &b"mqtt"[..],
        b"MQTT2",
        b"MQIsd",
        b"",
        b"HTTP",
        b"MQISDP",
        b"\xFF\xFF\xFF\xFF",
    ] {
        refuse(V5, &frame(name, 4), DecodeError::UnknownProtocolName);
    }
    // [MQTT-3.1.2-2] [MQTT3-3.1.2-2] known names, other levels
    for (name, served) in [(&b"MQTT"[..], &[4, 5, 0x84][..]), (b"MQIsdp", &[3, 0x83])] {
        for level in (0..=255).filter(|level| !served.contains(level)) {
            let error = DecodeError::UnsupportedProtocolLevel(level);
            refuse(V5, &frame(name, level), error);
            assert_eq!(
                error.reason_code(),
                crate::ReasonCode::UnsupportedProtocolVersion
            );
        }
    }
    // nothing behind an unknown level matters
    refuse(
        V5,
        &[0x10, 7, 0, 4, b'M', b'Q', b'T', b'T', 6],
        DecodeError::UnsupportedProtocolLevel(6),
    );
}

#[test]
fn the_highest_bit_of_the_level_marks_a_bridge() {
    for (version, name, level) in [(V3_1, "MQIsdp", 0x83), (V3_1_1, "MQTT", 0x84)] {
        let bridge = Connect {
            is_bridge: true,
            ..plain(version)
        };
        let rest = [level, 2, 0, 60, 0, 1, b'c'];
        let len = (2 + name.len() + rest.len()) as u8;
        let head = [0x10, len, 0, name.len() as u8];
        let frame = [&head[..], name.as_bytes(), &rest].concat();
        check(V5, &frame, Packet::Connect(bridge));
    }
    // 5.0 has subscription options instead: no bit is set there.
    let mut out = Vec::new();
    let bridge = Connect {
        is_bridge: true,
        ..plain(V5)
    };
    bridge.encode(&mut out).unwrap();
    check(V5, &out, Packet::Connect(plain(V5)));
}

#[test]
fn flags_that_contradict() {
    let id = [0, 1, b'c'];
    // [MQTT-3.1.2-3] [MQTT3-3.1.2-3]
    refuse(
        V3_1_1,
        &v3(0b0000_0011, &id),
        DecodeError::ReservedConnectFlag,
    );
    refuse(
        V5,
        &v5(0b0000_0001, &[], &id),
        DecodeError::ReservedConnectFlag,
    );
    // [MQTT-3.1.2-11] [MQTT3-3.1.2-11] [MQTT3-3.1.2-13]
    for flags in [0b0000_1000, 0b0001_0000, 0b0001_1000] {
        refuse(V3_1_1, &v3(flags, &id), DecodeError::WillQosWithoutWill);
        refuse(V5, &v5(flags, &[], &id), DecodeError::WillQosWithoutWill);
    }
    // [MQTT-3.1.2-13] [MQTT3-3.1.2-11] [MQTT3-3.1.2-15]
    refuse(
        V3_1_1,
        &v3(0b0010_0000, &id),
        DecodeError::WillRetainWithoutWill,
    );
    refuse(
        V5,
        &v5(0b0010_0000, &[], &id),
        DecodeError::WillRetainWithoutWill,
    );
    // [MQTT-3.1.2-12] [MQTT3-3.1.2-14]
    let will = [&id[..], &[0, 1, b'w', 0, 0]].concat();
    refuse(V3_1_1, &v3(0b0001_1100, &will), DecodeError::WillQosInvalid);
    refuse(
        V5,
        &v5(0b0001_1100, &[], &will),
        DecodeError::WillQosInvalid,
    );
    // [MQTT3-3.1.2-22], which 5.0 does not have
    let password = [&id[..], &[0, 1, b'p']].concat();
    refuse(
        V3_1_1,
        &v3(0b0100_0000, &password),
        DecodeError::PasswordWithoutUserName,
    );
    let connect = Connect {
        clean_start: false,
        password: Some(b"p"),
        ..plain(V5)
    };
    check(
        V5,
        &v5(0b0100_0000, &[], &password),
        Packet::Connect(connect),
    );
    let connect = Connect {
        password: Some(b"p"),
        ..plain(V3_1_1)
    };
    let mut out = Vec::new();
    assert_eq!(
        connect.encode(&mut out),
        Err(EncodeError::PasswordWithoutUserName)
    );
}

#[test]
fn payload_and_flags_go_together() {
    let id = [0, 1, b'c'];
    // [MQTT-3.1.2-16] [MQTT-3.1.2-18] [MQTT3-3.1.2-18] [MQTT3-3.1.2-20] not flagged, not there
    let extra = [&id[..], &[0, 1, b'u']].concat();
    refuse(V3_1_1, &v3(2, &extra), DecodeError::TrailingBytes);
    refuse(V5, &v5(2, &[], &extra), DecodeError::TrailingBytes);
    // [MQTT-3.1.2-17] [MQTT-3.1.2-19] [MQTT3-3.1.2-19] [MQTT3-3.1.2-21] flagged, but not there
    for flags in [0b1000_0000, 0b1100_0000] {
        refuse(V3_1_1, &v3(flags, &id), DecodeError::Truncated);
        refuse(V5, &v5(flags, &[], &id), DecodeError::Truncated);
    }
    // [MQTT-3.1.2-9] [MQTT3-3.1.2-9] a will flagged, but not there
    refuse(V3_1_1, &v3(0b0000_0100, &id), DecodeError::Truncated);
    refuse(V5, &v5(0b0000_0100, &[], &id), DecodeError::Truncated);
    // [MQTT-3.1.3-3] [MQTT3-3.1.3-3] no client identifier
    refuse(V3_1_1, &v3(2, &[]), DecodeError::Truncated);
    // [MQTT-3.1.3-4] [MQTT3-3.1.3-4] [MQTT-3.1.3-11] [MQTT3-3.1.3-10] [MQTT-3.1.3-12] [MQTT3-3.1.3-11]
    refuse(V3_1_1, &v3(2, &[0, 1, 0xFF]), DecodeError::NotUtf8);
    refuse(
        V3_1_1,
        &v3(6, &[0, 0, 0, 1, 0xFF, 0, 0]),
        DecodeError::NotUtf8,
    );
    refuse(V3_1_1, &v3(0x82, &[0, 0, 0, 1, 0xFF]), DecodeError::NotUtf8);
    // [MQTT-4.7.0-1] [MQTT3-4.7.1-1] [MQTT-4.7.3-1] [MQTT3-4.7.3-1] the will topic is a topic name
    for topic in [&[0, 1, b'#'][..], &[0, 2, b'a', b'+'], &[0, 0]] {
        let payload = [&id[..], topic, &[0, 0]].concat();
        refuse(V3_1_1, &v3(6, &payload), DecodeError::WillTopicInvalid);
    }
}

#[test]
fn v3_1_is_lenient_where_it_says_so() {
    let frame = |flags, payload: &[u8]| {
        let header = [
            0x10,
            12 + payload.len() as u8,
            0,
            6,
            b'M',
            b'Q',
            b'I',
            b's',
            b'd',
            b'p',
            3,
            flags,
            0,
            60,
        ];
        [&header, payload].concat()
    };
    let check = |flags, payload: &[u8], connect| {
        assert_eq!(
            Packet::decode(&frame(flags, payload), V5),
            Ok(Packet::Connect(connect))
        );
    };
    // 3.1 §3.1: the remaining length takes precedence over the user name and password flags.
    let nobody = plain(V3_1);
    check(0b1100_0010, &[0, 1, b'c'], nobody);
    let user = Connect {
        username: Some("u"),
        ..nobody
    };
    check(0b1100_0010, &[0, 1, b'c', 0, 1, b'u'], user);
    // bit 0 is not used
    check(0b0000_0011, &[0, 1, b'c'], nobody);
    refuse(
        V5,
        &frame(0b0100_0010, &[0, 1, b'c']),
        DecodeError::PasswordWithoutUserName,
    );
    refuse(
        V5,
        &frame(0b1000_0010, &[0, 1, b'c', 0]),
        DecodeError::Truncated,
    );
}

#[test]
fn properties_of_v5() {
    let id = [0, 1, b'c'];
    refuse(
        V5,
        &v5(2, &[0x21, 0, 0], &id),
        DecodeError::PropertyValueInvalid(0x21),
    );
    refuse(
        V5,
        &v5(2, &[0x27, 0, 0, 0, 0], &id),
        DecodeError::PropertyValueInvalid(0x27),
    );
    refuse(
        V5,
        &v5(2, &[0x17, 2], &id),
        DecodeError::PropertyValueInvalid(0x17),
    );
    refuse(
        V5,
        &v5(2, &[0x17, 1, 0x17, 1], &id),
        DecodeError::DuplicateProperty(0x17),
    );
    refuse(
        V5,
        &v5(2, &[0x01, 1], &id),
        DecodeError::PropertyNotAllowed(0x01),
    );
    // §3.1.2.11.10
    refuse(
        V5,
        &v5(2, &[0x16, 0, 0], &id),
        DecodeError::AuthenticationMethodMissing,
    );
    let mut connect = plain(V5);
    connect.properties.authentication_data = Some(b"x");
    let mut out = Vec::new();
    assert_eq!(
        connect.encode(&mut out),
        Err(EncodeError::AuthenticationMethodMissing)
    );
}

#[test]
fn remaining_length_in_shortest_form_is_asked_of_v5_only() {
    // [MQTT-1.5.5-1]
    let pad = |mut frame: Vec<u8>| {
        frame[1] |= 0x80;
        frame.insert(2, 0);
        frame
    };
    assert!(Packet::decode(&pad(v3(2, &[0, 0])), V3_1_1).is_ok());
    refuse(
        V5,
        &pad(v5(2, &[], &[0, 0])),
        DecodeError::VariableByteIntegerNotMinimal,
    );
}
