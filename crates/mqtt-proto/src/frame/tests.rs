use super::*;
use ProtocolVersion::{V3_1, V3_1_1, V5};

const VERSIONS: [Option<ProtocolVersion>; 4] = [None, Some(V3_1), Some(V3_1_1), Some(V5)];

#[test]
fn at_most_five_bytes_decide() {
    for version in VERSIONS {
        assert_eq!(peek_frame(&[], version), Ok(None));
        assert_eq!(peek_frame(&[0x30], version), Ok(None));
        assert_eq!(peek_frame(&[0x30, 0xFF, 0xFF, 0xFF], version), Ok(None));
        let largest = peek_frame(&[0x3D, 0xFF, 0xFF, 0xFF, 0x7F], version);
        let expect = Frame {
            packet_type: PacketType::Publish,
            flags: 0x0D,
            header_len: 5,
            remaining_len: MAX_REMAINING_LENGTH,
        };
        assert_eq!(largest, Ok(Some(expect)));
        assert_eq!(expect.len(), 268_435_460);
        // §2.1.4: no fifth byte
        assert_eq!(
            peek_frame(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF], version),
            Err(DecodeError::RemainingLengthTooLong)
        );
    }
}

#[test]
fn flags_are_those_listed() {
    // [MQTT-2.1.3-1] [MQTT3-2.2.2-1] [MQTT3-2.2.2-2] [MQTT-3.6.1-1] [MQTT3-3.6.1-1] [MQTT-3.8.1-1]
    // [MQTT3-3.8.1-1] [MQTT-3.10.1-1] [MQTT3-3.10.1-1] [MQTT-3.14.1-1] [MQTT3-3.14.1-1] [MQTT-3.15.1-1]
    for version in VERSIONS {
        for first in 0..=255_u8 {
            let (kind, flags) = (first >> 4, first & 0x0F);
            let listed = match kind {
                6 | 8 | 10 => 0b0010,
                _ => 0,
            };
            // 3.1 §3.6, §3.8, §3.10: DUP when sent again
            let again = version == Some(V3_1) && listed != 0 && flags == listed | 0b1000;
            let known = kind != 15 || !matches!(version, Some(V3_1 | V3_1_1));
            let good = kind == 3 || (kind != 0 && known && (flags == listed || again));
            // the first byte alone is enough to refuse
            assert_eq!(
                peek_frame(&[first], version).is_ok(),
                good,
                "{first:#04X} {version:?}"
            );
            assert_eq!(
                peek_frame(&[first, 0], version).is_ok(),
                good,
                "{first:#04X} {version:?}"
            );
        }
    }
    assert_eq!(
        peek_frame(&[0x00, 0], None),
        Err(DecodeError::ReservedPacketType)
    );
    assert_eq!(
        peek_frame(&[0xC1, 0], Some(V5)),
        Err(DecodeError::ReservedFlags(PacketType::PingReq))
    );
    assert_eq!(
        peek_frame(&[0xF0, 0], Some(V3_1_1)),
        Err(DecodeError::PacketTypeNotInVersion(PacketType::Auth))
    );
}

#[test]
fn remaining_length_is_in_shortest_form_in_v5() {
    // [MQTT-1.5.5-1]
    let padded = [0xC0, 0x80, 0x00];
    assert_eq!(
        peek_frame(&padded, Some(V5)),
        Err(DecodeError::VariableByteIntegerNotMinimal)
    );
    assert!(matches!(peek_frame(&padded, Some(V3_1_1)), Ok(Some(frame)) if frame.len() == 3));
}
