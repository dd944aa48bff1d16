use super::*;

fn integer(bytes: &[u8]) -> Result<u32, DecodeError> {
    Reader::new(bytes).variable_byte_integer()
}

#[test]
fn variable_byte_integers_at_their_borders() {
    let borders: [(usize, &[u8]); 8] = [
        (0, &[0x00]),
        (127, &[0x7F]),
        (128, &[0x80, 0x01]),
        (16_383, &[0xFF, 0x7F]),
        (16_384, &[0x80, 0x80, 0x01]),
        (2_097_151, &[0xFF, 0xFF, 0x7F]),
        (2_097_152, &[0x80, 0x80, 0x80, 0x01]),
        (268_435_455, &[0xFF, 0xFF, 0xFF, 0x7F]),
    ];
    for (value, bytes) in borders {
        assert_eq!(integer(bytes), Ok(value as u32));
        assert_eq!(variable_byte_integer_len(value), bytes.len());
        let mut out = Vec::new();
        put_variable_byte_integer(value, &mut out);
        assert_eq!(out, bytes);
    }
}

#[test]
fn variable_byte_integers_that_are_none() {
    // [MQTT-1.5.5-1] the shortest form
    assert_eq!(
        integer(&[0x80, 0x00]),
        Err(DecodeError::VariableByteIntegerNotMinimal)
    );
    assert_eq!(
        integer(&[0xFF, 0x80, 0x00]),
        Err(DecodeError::VariableByteIntegerNotMinimal)
    );
    assert_eq!(
        integer(&[0x80, 0x80, 0x80, 0x80]),
        Err(DecodeError::VariableByteIntegerTooLong)
    );
    assert_eq!(integer(&[0x80, 0x80]), Err(DecodeError::Truncated));
    assert_eq!(integer(&[]), Err(DecodeError::Truncated));
}

#[test]
fn strings() {
    let string = |bytes| Reader::new(bytes).string();
    assert_eq!(string(&[0, 3, b'a', 0xC3, 0xA9]), Ok("aé"));
    assert_eq!(string(&[0, 0]), Ok(""));
    // [MQTT-1.5.4-1] [MQTT3-1.5.3-1] U+D800, an overlong '/', a lone continuation, beyond U+10FFFF
    for bad in [
        &[0, 3, 0xED, 0xA0, 0x80][..],
        &[0, 2, 0xC0, 0xAF],
        &[0, 1, 0x80],
        &[0, 4, 0xF4, 0x90, 0x80, 0x80],
    ] {
        assert_eq!(string(bad), Err(DecodeError::NotUtf8));
    }
    // [MQTT-1.5.4-2] [MQTT3-1.5.3-2] U+0000, at the front, in the middle, at the end
    for bad in [
        &[0, 1, 0][..],
        &[0, 3, b'a', 0, b'b'],
        &[0, 9, 1, 1, 1, 1, 1, 1, 1, 1, 0],
    ] {
        assert_eq!(string(bad), Err(DecodeError::NulInString));
    }
    // [MQTT-1.5.4-3] [MQTT3-1.5.3-3] U+FEFF is kept
    assert_eq!(string(&[0, 4, 0xEF, 0xBB, 0xBF, b'a']), Ok("\u{FEFF}a"));
    assert_eq!(string(&[0, 2, b'a']), Err(DecodeError::Truncated));
    assert_eq!(string(&[0]), Err(DecodeError::Truncated));
}

#[test]
fn lengths_are_written_in_front_of_what_they_count() {
    for len in [0, 1, 127, 128, 16_383, 16_384] {
        let mut out = vec![0xAA];
        put_length_prefixed(&mut out, 0, |out| {
            out.resize(out.len() + len, 0x55);
            Ok(())
        })
        .expect("fits");
        let mut reader = Reader::new(&out[1..]);
        assert_eq!(reader.variable_byte_integer(), Ok(len as u32));
        assert_eq!(reader.rest(), vec![0x55; len]);
        assert_eq!(out[0], 0xAA);
    }
}

#[test]
fn a_failed_frame_leaves_nothing_behind() {
    let mut out = vec![1, 2, 3];
    let long = "x".repeat(65_536);
    let failed = put_frame(0x30, &[], &mut out, |out| put_string(&long, out));
    assert_eq!(failed, Err(EncodeError::FieldTooLong));
    let failed = put_frame(0x30, &[], &mut out, |out| put_string("a\0", out));
    assert_eq!(failed, Err(EncodeError::NulInString));
    let failed = put_length_prefixed(&mut Vec::new(), MAX_REMAINING_LENGTH + 1, |_| Ok(()));
    assert_eq!(failed, Err(EncodeError::PacketTooLarge));
    assert_eq!(out, [1, 2, 3]);
}
