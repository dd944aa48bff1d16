use super::*;

/// One valid property of each kind, with its identifier.
fn samples() -> Vec<(u8, Vec<u8>)> {
    let sample = |id: u8| match id {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28..=0x2A | 0x0B => vec![1],
        0x13 | 0x21..=0x23 => vec![0, 7],
        0x02 | 0x11 | 0x18 | 0x27 => vec![0, 0, 1, 0],
        0x26 => vec![0, 1, b'k', 0, 1, b'v'],
        _ => vec![0, 1, b's'],
    };
    let ids = [
        0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x11, 0x12, 0x13, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1A,
        0x1C, 0x1F, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A,
    ];
    ids.into_iter()
        .map(|id| (id, [vec![id], sample(id)].concat()))
        .collect()
}

/// Decodes a property block, encodes what was read and expects the same bytes.
macro_rules! round_trip {
    ($set:ident, $block:expr) => {{
        let block: &[u8] = $block;
        let framed = [&[block.len() as u8][..], block].concat();
        let mut reader = Reader::new(&framed);
        $set::decode(&mut reader).map(|set| {
            assert!(reader.is_empty());
            assert_eq!(set.is_empty(), block.is_empty());
            let mut out = Vec::new();
            set.encode(&mut out).expect("what was read can be written");
            assert_eq!(out, framed);
        })
    }};
}

macro_rules! check_table {
    ($($set:ident: $allowed:expr, $repeatable:expr;)*) => {
        for (id, entry) in samples() {
            $({
                let allowed: &[u8] = $allowed;
                let repeatable: &[u8] = $repeatable;
                let expect = if allowed.contains(&id) || repeatable.contains(&id) {
                    Ok(())
                } else {
                    Err(DecodeError::PropertyNotAllowed(id))
                };
                assert_eq!(round_trip!($set, &entry), expect, "{id:#04X} in {}", stringify!($set));
                if expect.is_ok() {
                    let twice = [entry.clone(), entry.clone()].concat();
                    let expect = if repeatable.contains(&id) {
                        Ok(())
                    } else {
                        Err(DecodeError::DuplicateProperty(id))
                    };
                    assert_eq!(round_trip!($set, &twice), expect, "{id:#04X} twice");
                }
                // one byte short of the value
                let short = &entry[..entry.len() - 1];
                assert!(round_trip!($set, short).is_err());
            })*
        }
    };
}

/// 5.0 table 2-4.
#[test]
fn each_packet_has_its_properties_and_most_of_them_once() {
    check_table! {
        ConnectProperties: &[0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x27], &[0x26];
        WillProperties: &[0x01, 0x02, 0x03, 0x08, 0x09, 0x18], &[0x26];
        ConnAckProperties: &[0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24,
            0x25, 0x27, 0x28, 0x29, 0x2A], &[0x26];
        PublishProperties: &[0x01, 0x02, 0x03, 0x08, 0x09, 0x23], &[0x0B, 0x26];
        SubscribeProperties: &[0x0B], &[0x26];
        UnsubscribeProperties: &[], &[0x26];
        AckProperties: &[0x1F], &[0x26];
        DisconnectProperties: &[0x11, 0x1C, 0x1F], &[0x26];
        AuthProperties: &[0x15, 0x16, 0x1F], &[0x26];
    }
}

#[test]
fn undefined_identifiers() {
    let defined: Vec<u8> = samples().iter().map(|(id, _)| *id).collect();
    for id in (0..=255).filter(|id| !defined.contains(id)) {
        assert_eq!(
            PublishProperties::decode_block(&[id, 0, 0, 0, 0]),
            Err(DecodeError::UnknownProperty(id))
        );
    }
}

#[test]
fn values_out_of_range() {
    let invalid = |id| Err(DecodeError::PropertyValueInvalid(id));
    // §3.1.2.11: flags are 0 or 1, receive maximum and maximum packet size are not 0
    assert_eq!(round_trip!(ConnectProperties, &[0x17, 2]), invalid(0x17));
    assert_eq!(round_trip!(ConnectProperties, &[0x19, 255]), invalid(0x19));
    assert_eq!(round_trip!(ConnectProperties, &[0x21, 0, 0]), invalid(0x21));
    assert_eq!(
        round_trip!(ConnectProperties, &[0x27, 0, 0, 0, 0]),
        invalid(0x27)
    );
    // §3.2.2.3: maximum QoS is 0 or 1
    for id in [0x24, 0x25, 0x28, 0x29, 0x2A] {
        assert_eq!(round_trip!(ConnAckProperties, &[id, 2]), invalid(id));
        assert_eq!(round_trip!(ConnAckProperties, &[id, 0]), Ok(()));
    }
    assert_eq!(round_trip!(WillProperties, &[0x01, 2]), invalid(0x01));
    // [MQTT-3.3.2-8]
    assert_eq!(
        round_trip!(PublishProperties, &[0x23, 0, 0]),
        Err(DecodeError::TopicAliasZero)
    );
    // §3.8.2.1.2: 1 to 268,435,455
    assert_eq!(round_trip!(SubscribeProperties, &[0x0B, 0]), invalid(0x0B));
    assert_eq!(
        round_trip!(SubscribeProperties, &[0x0B, 0xFF, 0xFF, 0xFF, 0x7F]),
        Ok(())
    );
    // [MQTT-3.3.2-14] [MQTT-4.7.3-1]
    for bad in [
        &[0x08, 0, 3, b'a', b'/', b'#'][..],
        &[0x08, 0, 1, b'+'],
        &[0x08, 0, 0],
    ] {
        assert_eq!(
            round_trip!(PublishProperties, bad),
            Err(DecodeError::ResponseTopicInvalid)
        );
    }
    // [MQTT-1.5.7-1] both strings of a pair; [MQTT-3.3.2-13] [MQTT-3.3.2-19] strings
    for bad in [
        &[0x26, 0, 1, 0xFF, 0, 1, b'v'][..],
        &[0x26, 0, 1, b'k', 0, 1, 0xFF],
        &[0x08, 0, 1, 0xFF],
        &[0x03, 0, 1, 0xFF],
    ] {
        assert_eq!(
            round_trip!(PublishProperties, bad),
            Err(DecodeError::NotUtf8)
        );
    }
    // correlation data is binary
    assert_eq!(round_trip!(PublishProperties, &[0x09, 0, 1, 0xFF]), Ok(()));
}

#[test]
fn no_properties_are_said_by_a_zero_length() {
    // [MQTT-2.2.2-1]
    assert_eq!(round_trip!(PublishProperties, &[]), Ok(()));
    // a block longer than the packet
    assert_eq!(
        PublishProperties::decode(&mut Reader::new(&[5, 0x01, 1])),
        Err(DecodeError::Truncated)
    );
}

#[test]
fn repeated_properties_keep_their_order_among_others() {
    #[rustfmt::skip]
    let block = [
        0x26, 0, 1, b'a', 0, 1, b'1', // user property
        0x0B, 0x80, 0x01, // subscription identifier 128
        0x03, 0, 1, b'c', // content type
        0x26, 0, 1, b'b', 0, 0, // user property
        0x0B, 0x02, // subscription identifier 2
        0x26, 0, 1, b'a', 0, 1, b'2', // user property, same name
    ];
    let set = PublishProperties::decode_block(&block).expect("well-formed");
    let pairs: Vec<_> = set.user_properties.iter().collect();
    assert_eq!(pairs, [("a", "1"), ("b", ""), ("a", "2")]);
    assert_eq!(set.user_properties.len(), 3);
    assert_eq!(set.subscription_ids.iter().collect::<Vec<_>>(), [128, 2]);
    assert_eq!(set.subscription_ids.len(), 2);

    let (mut buffer, mut ids) = (vec![9], Vec::new());
    let built = PublishProperties {
        content_type: Some("c"),
        user_properties: UserProperties::encode_from(&pairs, &mut buffer).expect("fits"),
        subscription_ids: SubscriptionIds::encode_from(&[128, 2], &mut ids).expect("in range"),
        ..PublishProperties::default()
    };
    assert_eq!(built, set);
    assert_eq!(built.user_properties.encoded_len(), 7 + 6 + 7);
}

#[test]
fn what_cannot_be_written_leaves_the_buffer_alone() {
    let long = "x".repeat(65_536);
    let mut buffer = vec![7];
    for pairs in [[("a", "b"), ("c", &*long)], [("a", "b"), ("\0", "d")]] {
        assert!(UserProperties::encode_from(&pairs, &mut buffer).is_err());
    }
    for ids in [[1, 0], [1, 268_435_456]] {
        assert_eq!(
            SubscriptionIds::encode_from(&ids, &mut buffer).err(),
            Some(EncodeError::SubscriptionIdentifierInvalid)
        );
    }
    assert_eq!(buffer, [7]);
}

#[test]
fn maximum_qos_2_is_said_by_leaving_it_out() {
    let set = ConnAckProperties {
        maximum_qos: Some(QoS::ExactlyOnce),
        ..Default::default()
    };
    let mut out = Vec::new();
    set.encode(&mut out).expect("fits");
    assert_eq!(out, [0]);
}
